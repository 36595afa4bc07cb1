use super::*;

mod agreement;
mod bounds;
mod reference;

const NO_RATE: RateStart = RateStart::NONE;

impl Scoreboard {
    /// The books against what they are of.
    pub(crate) fn check(&self) {
        let sum = |flag: Flags| self.marks.iter().filter(|p| p.flags.has(flag)).map(Sent::len).sum::<u64>();
        assert_eq!(sum(Flags::SACKED), self.marks.sacked_bytes());
        assert_eq!(sum(Flags::RESENT), self.marks.resent_bytes());
        assert_eq!(sum(Flags::LOST) - sum(Flags::RESENT), self.marks.waiting_bytes());
        assert_eq!(sum(Flags::SACKED) + self.marks.waiting_bytes(), self.marks.absent_bytes());
        assert_eq!(self.marks.iter().map(Sent::len).sum::<u64>(), self.marks.bytes());
        let count = self.marks.iter().filter(|mark| mark.flags.has(Flags::SACKED)).count();
        assert_eq!(count, self.marks.sacked_count());
        assert_eq!(self.sacked_pieces() == 0, count == 0);
        let waiting = self.marks.iter().find(|mark| mark.waits()).map(|mark| mark.start);
        assert_eq!(self.marks.first_waiting(), waiting);
        let (una, end) = self.bounds();
        let mut at = una;
        for original in &self.originals {
            assert_eq!(original.start, at);
            assert!(original.len() > 0);
            at = original.end();
        }
        let (mut lost_bytes, mut at, mut was_sacked) = (0, una, false);
        for mark in self.marks.iter() {
            assert!(at <= mark.start && mark.len() > 0 && mark.end() <= end);
            let is_sacked = mark.flags.has(Flags::SACKED);
            assert!(mark.start > at || !is_sacked || !was_sacked, "joined");
            assert!(mark.start == at || at >= self.marked_to, "not marked");
            lost_bytes += self.lost_to.min(mark.start).saturating_sub(at);
            (at, was_sacked) = (mark.end(), is_sacked);
        }
        lost_bytes += self.lost_to.min(end).saturating_sub(at);
        assert_eq!(lost_bytes, self.lost_originals_bytes);
        assert!(at == end || at >= self.marked_to, "not marked");
    }

    pub(crate) fn capacity(&self) -> usize {
        self.originals.capacity()
    }

    pub(crate) fn pieces(&self) -> usize {
        self.originals.len() + self.marks.count()
    }
}

fn board(count: u64) -> Scoreboard {
    let mut board = Scoreboard::default();
    for at in 0..count {
        let sent_at = Instant::from_millis(at);
        board.push(Sent::new(at * 10, at * 10 + 10, sent_at, NO_RATE, Flags::NONE));
    }
    board
}

fn sack(board: &mut Scoreboard, start: u64, end: u64, newly: &mut Newly) {
    board.sack((start, end), board.high_sacked(), 100, newly);
    board.check();
}

fn resend_next(board: &mut Scoreboard, at_ms: u64, most: u64) -> Option<(u64, u64)> {
    let start = board.next_lost()?;
    let piece = board.resend(start, most, Instant::from_millis(at_ms), NO_RATE)?;
    board.check();
    Some((piece.start, piece.end()))
}

#[test]
fn a_piece_takes_48_bytes() {
    assert_eq!(size_of::<Sent>(), 48);
}

#[test]
fn counts_each_byte_once() {
    let mut board = board(10);
    let mut newly = Newly::default();
    sack(&mut board, 25, 47, &mut newly);
    sack(&mut board, 30, 40, &mut newly);
    assert_eq!((newly.bytes, board.pipe_bytes(100)), (22, 78));
    board.acknowledge(33, &mut newly);
    board.check();
    assert_eq!(newly.bytes, 22 + 25);
    assert_eq!(board.pipe_bytes(67), 67 - 14);
}

#[test]
fn what_is_selectively_acknowledged_is_one_piece() {
    let mut board = board(1000);
    for at in 1..1000 {
        sack(&mut board, 10, at * 10 + 10, &mut Newly::default());
    }
    assert_eq!(board.marks.count(), 1);
    let mut board = self::board(1000);
    for at in (1..1000).rev() {
        sack(&mut board, at * 10, at * 10 + 10, &mut Newly::default());
    }
    assert_eq!((board.marks.count(), board.sacked_bytes()), (1, 9990));
}

#[test]
fn slivers_do_not_grow_the_board() {
    let mut board = board(90);
    for at in 0..450 {
        sack(&mut board, at * 2, at * 2 + 1, &mut Newly::default());
    }
    assert_eq!(board.marks.count(), 100);
    // What joins them is taken all the same.
    sack(&mut board, 0, 3, &mut Newly::default());
    assert_eq!(board.marks.count(), 99);
}

#[test]
fn what_left_a_reordering_window_before_the_reference_is_lost() {
    let mut board = board(10);
    sack(&mut board, 50, 60, &mut Newly::default());
    let reference = (Instant::from_millis(5), 60);
    let window = Duration::from_millis(100);
    assert_eq!(
        board.detect_losses(Instant::from_millis(102), reference, window),
        (30, Some(Instant::from_millis(103)))
    );
    board.check();
    assert_eq!(board.lost_bytes(), 30);
    assert_eq!(resend_next(&mut board, 103, 6), Some((0, 6)));
    assert_eq!((board.lost_bytes(), board.pipe_bytes(100)), (24, 100 - 10 - 30 + 6));
}

#[test]
fn a_lost_retransmission_is_told_by_its_own_time() {
    let mut board = board(10);
    sack(&mut board, 50, 60, &mut Newly::default());
    let window = Duration::from_millis(50);
    let reference = (Instant::from_millis(5), 60);
    assert_eq!(board.detect_losses(Instant::from_millis(60), reference, window), (50, None));
    while resend_next(&mut board, 60, 10).is_some() {}
    // The second retransmission arrives: nothing older than it is late yet, then the first is.
    sack(&mut board, 10, 20, &mut Newly::default());
    let reference = (Instant::from_millis(60), 20);
    assert_eq!(
        board.detect_losses(Instant::from_millis(100), reference, window),
        (40, Some(Instant::from_millis(110))),
        "the originals behind are"
    );
    board.check();
    assert_eq!(board.detect_losses(Instant::from_millis(110), reference, window), (10, None));
    assert_eq!(board.next_lost(), Some(0));
}

#[test]
fn resent_and_lost_again_is_resent_again() {
    let mut board = board(3);
    board.mark_all_lost();
    while resend_next(&mut board, 50, 100).is_some() {}
    assert_eq!((board.lost_bytes(), board.pipe_bytes(30)), (0, 30));
    board.mark_all_lost();
    assert_eq!((board.lost_bytes(), board.pipe_bytes(30)), (30, 0));
    assert_eq!(resend_next(&mut board, 60, 100), Some((0, 10)));
    board.unmark_lost();
    board.check();
    assert_eq!(board.lost_bytes(), 0);
}

#[test]
fn a_round_trip_is_not_measured_behind_a_hole() {
    let mut board = board(5);
    board.mark_front_lost(10);
    resend_next(&mut board, 50, 10);
    let mut newly = Newly::default();
    board.acknowledge(50, &mut newly);
    assert_eq!((newly.resent, newly.original, newly.bytes), (true, true, 50));
}

#[test]
fn a_probe_of_the_tail_forgets_no_hole_before_it() {
    let mut board = board(10);
    sack(&mut board, 90, 100, &mut Newly::default());
    board.mark_all_lost();
    assert_eq!(resend_next(&mut board, 50, 10), Some((0, 10)));
    let start = board.last_piece(10).expect("one is left");
    assert_eq!(start, 80);
    board.resend(start, 10, Instant::from_millis(51), NO_RATE);
    board.check();
    assert_eq!(resend_next(&mut board, 52, 10), Some((10, 20)));
}
