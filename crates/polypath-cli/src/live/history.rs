//! Rates that were, for pictures.

use std::collections::VecDeque;

/// Rates that are remembered of each path: more than the widest terminal shows.
pub(crate) const HISTORY: usize = 240;

pub(super) fn remember(history: &mut VecDeque<u64>, rate: f64) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(rate as u64);
}
