//! The bounds that [`Scoreboard`] states, at 64 MB outstanding, in look-ups and changes of marks.

use super::*;

const SEGMENT_BYTES: u64 = 1448;
const PIECES: u64 = (64 << 20) / SEGMENT_BYTES;
const MOST_STRETCHES: usize = most_stretches(64 << 20);
/// Look-ups for one block, acknowledgment or piece, each of them a logarithm; for each mark on the way it is eight.
const FEW: u64 = 24;

/// Segments that left a microsecond after one another.
fn full() -> Scoreboard {
    let mut board = Scoreboard::default();
    for at in 0..PIECES {
        let start = at * SEGMENT_BYTES;
        board.push(Sent::new(start, start + SEGMENT_BYTES, Instant::from_micros(at), NO_RATE, Flags::NONE));
    }
    board
}

/// Selectively acknowledges the segments from `from` to `until`; returns the steps that it took.
fn sack(board: &mut Scoreboard, from: u64, until: u64) -> u64 {
    sack_bytes(board, from * SEGMENT_BYTES, until * SEGMENT_BYTES)
}

fn sack_bytes(board: &mut Scoreboard, from: u64, until: u64) -> u64 {
    let before = board.steps();
    board.sack((from, until), board.high_sacked(), MOST_STRETCHES, &mut Newly::default());
    u64::from(board.steps().wrapping_sub(before))
}

/// A board of which as many pieces are selectively acknowledged as may be, and more than that asked for.
fn riddled() -> Scoreboard {
    const EACH_BYTES: u64 = 1900;
    let mut board = full();
    for at in 0..MOST_STRETCHES as u64 + 100 {
        assert!(sack_bytes(&mut board, at * EACH_BYTES + 1, at * EACH_BYTES + 900) <= FEW);
    }
    assert_eq!(board.marks.sacked_count(), MOST_STRETCHES);
    board
}

/// Everything that left before the last segment is late.
fn lose(board: &mut Scoreboard) -> u64 {
    let before = board.steps();
    let reference = (Instant::from_micros(PIECES), PIECES * SEGMENT_BYTES);
    board.detect_losses(Instant::from_secs(9), reference, Duration::from_millis(1));
    u64::from(board.steps().wrapping_sub(before))
}

fn resend(board: &mut Scoreboard, at_ms: u64) -> u64 {
    let before = board.steps();
    let start = board.next_lost().expect("something is lost");
    board.resend(start, SEGMENT_BYTES, Instant::from_millis(at_ms), NO_RATE);
    u64::from(board.steps().wrapping_sub(before))
}

#[test]
fn a_block_costs_a_logarithm_whatever_it_covers() {
    let mut board = full();
    assert!(sack(&mut board, 1, PIECES) <= FEW);
    assert_eq!(board.sacked_bytes(), (PIECES - 1) * SEGMENT_BYTES);
    let mut board = riddled();
    // What a block joins was made by a block each.
    assert!(sack(&mut board, 0, PIECES) <= FEW + 8 * MOST_STRETCHES as u64);
    assert_eq!(board.marks.count(), 1);
}

#[test]
fn a_block_that_goes_on_costs_one_change() {
    let mut board = full();
    sack(&mut board, 10, 11);
    for until in 12..1000 {
        assert!(sack(&mut board, 10, until) <= 4);
    }
    assert_eq!((board.marks.count(), board.sacked_bytes()), (1, 989 * SEGMENT_BYTES));
}

#[test]
fn each_second_segment_may_be_lost() {
    let mut board = full();
    for at in 0..PIECES / 2 {
        assert!(sack(&mut board, 2 * at + 1, 2 * at + 2) <= FEW);
    }
    assert_eq!(board.sacked_bytes(), PIECES / 2 * SEGMENT_BYTES, "none is left out");
    board.check();
}

#[test]
fn an_acknowledgment_costs_a_logarithm_whatever_it_covers() {
    let mut board = full();
    board.acknowledge(PIECES / 2 * SEGMENT_BYTES, &mut Newly::default());
    assert!(u64::from(board.steps()) <= FEW);
    let mut board = riddled();
    let before = board.steps();
    board.acknowledge(PIECES * SEGMENT_BYTES, &mut Newly::default());
    assert!(u64::from(board.steps().wrapping_sub(before)) <= FEW + 8 * MOST_STRETCHES as u64);
    assert_eq!(board.pieces(), 0);
}

#[test]
fn looking_for_losses_costs_a_logarithm_and_a_walk_where_a_verdict_was_taken_back() {
    let mut board = full();
    sack(&mut board, PIECES - 1, PIECES);
    assert!(lose(&mut board) <= FEW);
    assert_eq!(board.lost_bytes(), (PIECES - 1) * SEGMENT_BYTES);
    let mut board = riddled();
    for _ in 0..3 {
        assert!(lose(&mut board) <= FEW + MOST_STRETCHES as u64);
        assert!(lose(&mut board) <= FEW, "once");
        let before = board.steps();
        board.unmark_lost();
        assert!(u64::from(board.steps().wrapping_sub(before)) <= FEW);
        assert_eq!(board.lost_bytes(), 0);
    }
}

#[test]
fn a_retransmission_costs_a_logarithm_though_the_front_is_lost_again() {
    let mut board = full();
    board.mark_all_lost();
    for at in 0..PIECES / 2 {
        assert!(resend(&mut board, 10_000 + at) <= FEW);
    }
    for at in 0..1000 {
        let before = board.steps();
        board.mark_front_lost(SEGMENT_BYTES);
        assert!(u64::from(board.steps().wrapping_sub(before)) <= FEW);
        assert_eq!(board.next_lost(), Some(0));
        assert!(resend(&mut board, 100_000 + 2 * at) <= FEW);
        assert!(resend(&mut board, 100_001 + 2 * at) <= FEW);
        let before = board.steps();
        assert!(board.last_piece(SEGMENT_BYTES).is_some());
        assert!(u64::from(board.steps().wrapping_sub(before)) <= FEW);
    }
    board.check();
}

#[test]
fn what_is_sent_again_and_again_without_an_answer_is_remembered_once() {
    let mut board = full();
    for at in 0..10_000 {
        board.mark_front_lost(SEGMENT_BYTES);
        resend(&mut board, 10_000 + at);
    }
    assert!(board.marks.resent_count() < 40, "{}", board.marks.resent_count());
}
