//! The receive queue: data in order that nobody has read, and data behind gaps.

mod behind;
mod insertion;
mod tiny;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use polypath_wire::Payload;

use behind::Behind;
pub(crate) use insertion::Insertion;
pub use tiny::join_tiny;

/// Bytes by stream offset. Bounded in bytes by the receive window, and in gaps.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    ready: VecDeque<Payload>,
    ready_bytes: u64,
    /// Next offset expected.
    next: u64,
    /// None while there is no gap, as nearly always.
    behind: Option<Box<Behind>>,
}

/// A queue that ran empty keeps room for so many pieces; an idle connection holds little memory.
const KEPT_PIECES: usize = 16;

impl ReceiveQueue {
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Offset after the last byte that is there, behind gaps or not.
    pub(crate) fn highest(&self) -> u64 {
        self.behind.as_ref().map_or(self.next, |behind| behind.end())
    }

    pub(crate) fn ready_bytes(&self) -> u64 {
        self.ready_bytes
    }

    pub(crate) fn has_gap(&self) -> bool {
        self.behind.as_ref().is_some_and(|behind| !behind.is_empty())
    }

    pub(crate) fn read(&mut self) -> Option<Payload> {
        let data = self.ready.pop_front()?;
        self.ready_bytes -= data.len() as u64;
        if self.ready.is_empty() && self.ready.capacity() > KEPT_PIECES {
            self.ready = VecDeque::new();
        }
        Some(data)
    }

    /// Data at `offset`. The caller has cut it to the window.
    #[inline]
    pub(crate) fn insert(&mut self, offset: u64, mut data: Payload, max_gaps: usize) -> Insertion {
        let end = offset + data.len() as u64;
        if end <= self.next {
            return Insertion::Duplicate;
        }
        if offset > self.next {
            return match &mut self.behind {
                Some(behind) => behind.insert(offset, data, max_gaps),
                None if max_gaps == 0 => Insertion::TooManyGaps,
                none => none.insert(Box::default()).insert(offset, data, max_gaps),
            };
        }
        data.advance((self.next - offset) as usize);
        self.append(data);
        if self.behind.is_some() { self.fill_gap() } else { Insertion::InOrder }
    }

    /// What came last may have filled a gap.
    fn fill_gap(&mut self) -> Insertion {
        let Some(mut behind) = self.behind.take() else { return Insertion::InOrder };
        while let Some((mut at, pieces)) = behind.take_until(self.next) {
            for mut piece in pieces {
                let end = at + piece.len() as u64;
                piece.advance(self.next.saturating_sub(at).min(end - at) as usize);
                self.append(piece);
                at = end;
            }
        }
        self.behind = Some(behind).filter(|behind| !behind.is_empty());
        Insertion::FilledGap
    }

    fn append(&mut self, data: Payload) {
        let len = data.len() as u64;
        if len > 0 {
            self.next += len;
            self.ready_bytes += len;
            let at = self.ready.len();
            self.ready.push_back(data);
            join_tiny(&mut self.ready, at);
        }
    }

    /// Stretches behind gaps, that of the latest arrival first, as `(start, end)`.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.behind.as_ref().map(|behind| behind.blocks(self.next)).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::tiny::{RUN_BYTES, RUN_PIECES};
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn bytes(from: usize, len: usize) -> Payload {
        (from..from + len).map(|at| at as u8).collect::<Vec<_>>().into()
    }

    #[test]
    fn blocks_are_whole_stretches_with_the_latest_first() {
        let mut queue = ReceiveQueue::default();
        for (from, len) in [(10, 5), (30, 5), (15, 5), (50, 5)] {
            assert_eq!(queue.insert(from as u64, bytes(from, len), 99), Insertion::OutOfOrder);
        }
        assert_eq!(queue.blocks().collect::<Vec<_>>(), [(50, 55), (10, 20), (30, 35)]);
        assert_eq!(queue.insert(12, bytes(12, 5), 99), Insertion::Duplicate);
        assert_eq!(queue.insert(0, bytes(0, 12), 99), Insertion::FilledGap);
        assert_eq!(queue.next(), 20);
        assert_eq!(queue.insert(20, bytes(20, 20), 99), Insertion::FilledGap);
        assert_eq!((queue.next(), queue.has_gap()), (40, true));
        assert_eq!(queue.insert(60, bytes(60, 1), 1), Insertion::TooManyGaps);
    }

    #[test]
    fn each_stretch_is_reported_though_another_grows() {
        let mut queue = ReceiveQueue::default();
        for at in [10, 20, 40, 41, 42, 43, 44] {
            queue.insert(at as u64, bytes(at, 1), 99);
        }
        assert_eq!(queue.blocks().collect::<Vec<_>>(), [(40, 45), (20, 21), (10, 11)]);
        // A duplicate is reported within its stretch (RFC 2883 §4).
        assert_eq!(queue.insert(20, bytes(20, 1), 99), Insertion::Duplicate);
        assert_eq!(queue.blocks().next(), Some((20, 21)));
    }

    #[test]
    fn single_bytes_in_any_order_hold_little_memory() {
        const COUNT: usize = 100_000;
        for reversed in [false, true] {
            let mut queue = ReceiveQueue::default();
            for at in 1..=COUNT {
                let at = if reversed { COUNT + 1 - at } else { at };
                queue.insert(at as u64, bytes(at, 1), 99);
            }
            let stretch = queue.behind.as_ref().unwrap().stretches().next().unwrap();
            assert!(stretch.len() <= 64 + COUNT / 64, "{}", stretch.len());
            queue.insert(0, bytes(0, 1), 99);
            assert_eq!(queue.next(), COUNT as u64 + 1);
            let mut all = Vec::new();
            while let Some(piece) = queue.read() {
                all.extend(piece.to_vec());
            }
            assert_eq!(Payload::from(all), bytes(0, COUNT + 1));
        }
    }

    #[test]
    fn no_tiny_piece_has_much_copied() {
        const COUNT: usize = 1499;
        let orders: [fn(usize) -> usize; 4] =
            [|at| at, |at| COUNT - 1 - at, |at| at * 2 % COUNT, |at| at * 1000 % COUNT];
        for order in orders {
            let mut queue = ReceiveQueue::default();
            let mut before = Vec::new();
            for at in (0..COUNT).map(order) {
                queue.insert(1 + at as u64, bytes(at, 1), 9999);
                let slices = queue
                    .behind
                    .iter()
                    .flat_map(|behind| behind.stretches())
                    .flatten()
                    .flat_map(Payload::slices);
                let after: Vec<_> = slices.map(|slice| (slice.as_ptr(), slice.len())).collect();
                let same = |(a, b): &(&(*const u8, usize), &(*const u8, usize))| a == b;
                let at_front = before.iter().zip(&after).take_while(same).count();
                let at_back = before.iter().rev().zip(after.iter().rev()).take_while(same).count();
                let copied =
                    after.iter().skip(at_front).rev().skip(at_back).map(|(_, len)| len).sum::<usize>();
                assert!(copied < RUN_BYTES, "{copied}");
                before = after;
            }
            assert!(before.len() <= 2 * RUN_PIECES + COUNT / 32, "{}", before.len());
        }
    }

    proptest! {
        #[test]
        fn any_order_and_overlap_gives_the_stream(
            mut cuts in prop::collection::vec((0usize..400, 1usize..60), 1..60),
        ) {
            cuts.push((0, 460));
            let mut queue = ReceiveQueue::default();
            for (from, len) in cuts {
                queue.insert(from as u64, bytes(from, len), 999);
                for (start, end) in queue.blocks() {
                    prop_assert!(queue.next() < start && start < end);
                }
            }
            let mut at = 0;
            while let Some(piece) = queue.read() {
                prop_assert_eq!(&piece, &bytes(at, piece.len()));
                at += piece.len();
            }
            prop_assert_eq!((at, queue.ready_bytes(), queue.has_gap()), (460, 0, false));
        }
    }
}
