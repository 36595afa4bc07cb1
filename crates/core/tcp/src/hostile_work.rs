//! What a peer can make a sender look up and change, counted, for `polypath bench attacks`.

use polypath_units::{Duration, Instant};

use crate::rate_start::RateStart;
use crate::scoreboard::{Flags, Newly, Scoreboard, Sent, most_stretches};

const OUTSTANDING_BYTES: u64 = 64 << 20;
const SEGMENT_BYTES: u64 = 1448;
const SEGMENTS: u64 = OUTSTANDING_BYTES / SEGMENT_BYTES;

/// 64 MB in segments that left a microsecond after one another.
fn outstanding() -> Scoreboard {
    let mut board = Scoreboard::default();
    for at in 0..SEGMENTS {
        let (start, sent_at) = (at * SEGMENT_BYTES, Instant::from_micros(at));
        board.push(Sent::new(start, start + SEGMENT_BYTES, sent_at, RateStart::NONE, Flags::NONE));
    }
    board
}

fn steps(board: &mut Scoreboard, work: impl FnOnce(&mut Scoreboard)) -> u64 {
    let before = board.steps();
    work(board);
    u64::from(board.steps().wrapping_sub(before))
}

fn sack(board: &mut Scoreboard, from: u64, until: u64) -> u64 {
    let range = (from * SEGMENT_BYTES, until * SEGMENT_BYTES);
    let most = most_stretches(OUTSTANDING_BYTES);
    steps(board, |board| board.sack(range, board.high_sacked(), most, &mut Newly::default()))
}

/// Look-ups and changes, each of them a logarithm, that one selective acknowledgment costs at the most while 64 MB are outstanding: a
/// block over all but the first segment, then what follows of it, the search for losses and the acknowledgment of everything; and a
/// block for every other segment.
#[must_use]
pub fn selective_acknowledgment() -> u64 {
    let mut board = outstanding();
    let mut most = sack(&mut board, 1, SEGMENTS);
    let newest = (Instant::from_micros(SEGMENTS), SEGMENTS * SEGMENT_BYTES);
    most = most.max(steps(&mut board, |board| {
        board.detect_losses(Instant::from_secs(9), newest, Duration::from_millis(1));
    }));
    most = most.max(steps(&mut board, |board| board.acknowledge(newest.1, &mut Newly::default())));
    let mut board = outstanding();
    (0..SEGMENTS / 2).map(|at| sack(&mut board, 2 * at + 1, 2 * at + 2)).fold(most, u64::max)
}
