//! Data-level reassembly: payloads from all subflows, ordered by data sequence number.

use alloc::collections::VecDeque;

use polypath_wire::{DataSeq, Payload};

/// Data above the next expected byte, sorted, without overlap. Bounded by the receive window in bytes and by
/// [`Reassembly::MAX_PIECES`] in pieces.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    pieces: VecDeque<Piece>,
    bytes: u64,
}

#[derive(Debug)]
struct Piece {
    seq: DataSeq,
    end: DataSeq,
    data: Payload,
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

    /// Bytes held.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// After the highest byte held.
    pub(crate) fn end(&self) -> Option<DataSeq> {
        self.pieces.back().map(|piece| piece.end)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Keeps what of `data` is not there yet. `seq` is after the next expected byte.
    pub(crate) fn insert(&mut self, seq: DataSeq, data: Payload) -> Inserted {
        if self.pieces.len() >= Self::MAX_PIECES {
            return Inserted::Full;
        }
        let end = seq.add(data.len() as u64);
        // Nearly always the data continues what the fastest subflow brought, which is the end of the queue.
        let position = match self.pieces.back() {
            Some(last) if seq.before(last.end) => self.pieces.partition_point(|piece| !piece.end.after(seq)),
            _ => {
                self.bytes += data.len() as u64;
                self.pieces.push_back(Piece { seq, end, data });
                return Inserted::Kept;
            }
        };
        self.fill(position, seq, end, data)
    }

    /// Inserts the parts of `seq..end` that lie in the gaps from piece `position` on.
    fn fill(&mut self, mut position: usize, seq: DataSeq, end: DataSeq, data: Payload) -> Inserted {
        let (mut from, mut kept) = (seq, false);
        while from.before(end) {
            let (gap_end, resume) = match self.pieces.get(position) {
                Some(piece) if piece.seq.before(end) => (piece.seq, piece.end),
                _ => (end, end),
            };
            if from.before(gap_end) {
                let part = data.slice(from.diff(seq) as usize, gap_end.diff(from) as usize);
                self.bytes += part.len() as u64;
                self.pieces.insert(position, Piece { seq: from, end: gap_end, data: part });
                position += 1;
                kept = true;
            }
            from = from.max(resume);
            position += 1;
        }
        if kept { Inserted::Kept } else { Inserted::Duplicate }
    }

    /// Takes the piece that continues at `expected`, cut to what is new; older pieces are dropped.
    pub(crate) fn pop(&mut self, expected: DataSeq) -> Option<Payload> {
        while let Some(front) = self.pieces.front() {
            if front.seq.after(expected) {
                return None;
            }
            let mut piece = self.pieces.pop_front()?;
            self.bytes -= piece.data.len() as u64;
            if piece.end.after(expected) {
                piece.data.advance(expected.diff(piece.seq) as usize);
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
