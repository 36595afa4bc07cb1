//! Data-level reassembly: payloads from all subflows, ordered by data sequence number.

use polypath_wire::{DataSeq, Payload};

use crate::ordered::{OrderedQueue, Origin, Stretch};

/// Data above the next expected byte, sorted, without overlap. Bounded by the receive window in bytes and by
/// [`Reassembly::MAX_PIECES`] in pieces.
///
/// # Cost
/// Data that continues the highest byte held costs what it does in a queue. Other data costs log *n*, and as much for each gap
/// between pieces that it fills, all of which came with segments of their own.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    pieces: OrderedQueue<Piece>,
    bytes: u64,
    /// Chosen anew whenever nothing is held.
    origin: Origin,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    end: u64,
    data: Payload,
}

impl Stretch for Piece {
    fn start(&self) -> u64 {
        self.start
    }

    fn end(&self) -> u64 {
        self.end
    }
}

/// What became of data that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// Kept, in part or whole.
    Kept,
    /// All of it was there before.
    Duplicate,
    /// There are too many pieces.
    Full,
}

impl Reassembly {
    /// More pieces than this are an attack: a 16 MB window holds 11 500 full segments.
    pub(crate) const MAX_PIECES: usize = 65_536;

    /// Look-ups and changes so far.
    #[cfg(any(test, feature = "attacks"))]
    pub(crate) fn steps(&self) -> u64 {
        self.pieces.steps()
    }

    /// Bytes held.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// After the highest byte held.
    pub(crate) fn end(&self) -> Option<DataSeq> {
        self.pieces.back().map(|piece| self.origin.seq(piece.end))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Keeps what of `data` is not there yet. `seq` is after the next expected byte.
    pub(crate) fn insert(&mut self, seq: DataSeq, data: Payload) -> Inserted {
        if self.pieces.len() >= Self::MAX_PIECES {
            return Inserted::Full;
        }
        if self.pieces.is_empty() {
            self.origin = Origin::near(seq);
        }
        let start = self.origin.position(seq);
        let end = start + data.len() as u64;
        // Nearly always the data continues what the fastest subflow brought, which is the end of the queue.
        if self.pieces.back().is_none_or(|last| last.end <= start) {
            self.keep(start, end, data);
            return Inserted::Kept;
        }
        self.fill(start, end, &data)
    }

    fn keep(&mut self, start: u64, end: u64, data: Payload) {
        self.bytes += end - start;
        self.pieces.push(Piece { start, end, data });
    }

    /// Inserts the parts of `start..end` that lie in gaps.
    fn fill(&mut self, start: u64, end: u64, data: &Payload) -> Inserted {
        let (mut from, mut kept) = (start, false);
        while from < end {
            let following = self.pieces.first_ending_after(from).filter(|piece| piece.start < end);
            let (gap_end, resume) = following.map_or((end, end), |piece| (piece.start, piece.end));
            if from < gap_end {
                self.keep(from, gap_end, data.slice((from - start) as usize, (gap_end - from) as usize));
                kept = true;
            }
            from = resume;
        }
        if kept { Inserted::Kept } else { Inserted::Duplicate }
    }

    /// Takes the piece that continues at `expected`, cut to what is new; older pieces are dropped.
    pub(crate) fn pop(&mut self, expected: DataSeq) -> Option<Payload> {
        let expected = self.origin.position(expected);
        while self.pieces.front().is_some_and(|front| front.start <= expected) {
            let mut piece = self.pieces.pop_front()?;
            self.bytes -= piece.end - piece.start;
            if piece.end > expected {
                piece.data.advance((expected - piece.start) as usize);
                return Some(piece.data);
            }
        }
        None
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(from: usize, len: usize) -> Payload {
        (from..from + len).map(|at| at as u8).collect::<alloc::vec::Vec<_>>().into()
    }

    #[test]
    fn a_gap_is_filled_by_what_spans_it() {
        let mut queue = Reassembly::default();
        assert_eq!(queue.insert(DataSeq(10), bytes(10, 5)), Inserted::Kept);
        assert_eq!(queue.insert(DataSeq(20), bytes(20, 5)), Inserted::Kept);
        assert_eq!(queue.insert(DataSeq(12), bytes(12, 2)), Inserted::Duplicate);
        assert_eq!(queue.insert(DataSeq(8), bytes(8, 20)), Inserted::Kept);
        assert_eq!(queue.len_bytes(), 20);
        assert!(queue.pop(DataSeq(7)).is_none());
        let mut at = 8;
        while let Some(piece) = queue.pop(DataSeq(at as u64)) {
            assert_eq!(piece, bytes(at, piece.len()));
            at += piece.len();
        }
        assert_eq!((at, queue.len_bytes(), queue.is_empty()), (28, 0, true));
    }

    #[test]
    fn a_piece_costs_a_logarithm_in_whatever_order() {
        // As many as there may be, each with a gap before it, from the middle of what is there outwards.
        const COUNT: u64 = Reassembly::MAX_PIECES as u64 - 1;
        const MIDDLE: u64 = COUNT / 2;
        let mut queue = Reassembly::default();
        for at in 0..COUNT {
            let at = if at % 2 == 0 { MIDDLE + at / 2 } else { MIDDLE - 1 - at / 2 };
            let before = queue.pieces.steps();
            assert_eq!(queue.insert(DataSeq(at * 2), bytes(0, 1)), Inserted::Kept);
            assert!(queue.pieces.steps() - before <= 2);
        }
        let before = queue.pieces.steps();
        assert_eq!(queue.insert(DataSeq(COUNT - 1), bytes(0, 1)), Inserted::Duplicate);
        assert!(queue.pieces.steps() - before <= 1);
        // What fills all gaps costs as much for each of them.
        assert_eq!(queue.insert(DataSeq(0), bytes(0, 2 * COUNT as usize)), Inserted::Kept);
        assert!(queue.pieces.steps() - before <= 3 * COUNT + 2);
        assert_eq!((queue.pieces.len() as u64, queue.len_bytes()), (2 * COUNT, 2 * COUNT));
        let before = queue.pieces.steps();
        let mut at = 0;
        while let Some(piece) = queue.pop(DataSeq(at)) {
            at += piece.len() as u64;
        }
        assert_eq!((at, queue.pieces.steps() - before), (2 * COUNT, 2 * COUNT));
    }

    proptest! {
        #[test]
        fn any_order_and_overlap_gives_the_stream(
            base in any::<u64>(),
            mut cuts in prop::collection::vec((0usize..400, 1usize..60), 1..60),
        ) {
            cuts.push((0, 460));
            let mut queue = Reassembly::default();
            for (from, len) in cuts {
                queue.insert(DataSeq(base).add(from as u64), bytes(from, len));
            }
            let mut at = 0;
            while let Some(piece) = queue.pop(DataSeq(base).add(at as u64)) {
                prop_assert_eq!(&piece, &bytes(at, piece.len()));
                at += piece.len();
            }
            prop_assert_eq!((at, queue.len_bytes()), (460, 0));
        }
    }
}
