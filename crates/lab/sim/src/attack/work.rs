//! Work that a peer makes, in look-ups and changes of what is kept in order: each costs a logarithm, so a few of them are few.

use polypath_mptcp::hostile_work::{mappings, pieces_with_gaps};
use polypath_tcp::hostile_work::selective_acknowledgment;

use super::Attack;

/// What one block, acknowledgment or search for losses may take.
const MOST_OF_ACKNOWLEDGMENT: f64 = 24.0;
/// What one piece or mapping may take.
const MOST_OF_PIECE: f64 = 3.0;

pub(super) fn at_64_mb() -> Vec<Attack> {
    let row = |name, figure, bound| Attack::at_most(name, "look-ups", figure as f64, bound);
    vec![
        row(
            "SACK over 64 MB outstanding: one acknowledgment",
            selective_acknowledgment(),
            MOST_OF_ACKNOWLEDGMENT,
        ),
        row("64 MB of data with 65 536 gaps: one segment", pieces_with_gaps(), MOST_OF_PIECE),
        row("16 384 mappings of 64 MB, none in order: one segment", mappings(), MOST_OF_PIECE),
    ]
}
