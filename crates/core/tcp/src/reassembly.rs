//! The receive queue: data in order that nobody has read, and data behind gaps.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use polypath_wire::Payload;

/// Bytes by stream offset. Bounded in bytes by the receive window, and in gaps.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    ready: VecDeque<Payload>,
    ready_bytes: u64,
    /// Next offset expected.
    next: u64,
    /// Behind gaps, by start; stretches neither overlap nor touch. Empty while there is no gap, as nearly always.
    behind: BTreeMap<u64, Stretch>,
    behind_bytes: u64,
    /// An offset in each of the stretches that grew last, most recent first: the order of SACK blocks (RFC 2018 §4).
    recent: [u64; 4],
}

/// So many neighbours that are shorter than [`RUN_BYTES`] together are copied together: a peer that sends single bytes may not
/// make the queue hold many times the memory that the window allows.
const RUN_PIECES: usize = 16;
const RUN_BYTES: usize = 1024;

/// A queue that ran empty keeps room for so many pieces; an idle connection holds little memory.
const KEPT_PIECES: usize = 16;

/// Contiguous data behind a gap.
#[derive(Debug, Default)]
struct Stretch {
    end: u64,
    pieces: VecDeque<Payload>,
}

/// What became of arrived data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It continued the stream.
    InOrder,
    /// It continued the stream and closed a gap, or part of one.
    FilledGap,
    /// It lies behind a gap.
    OutOfOrder,
    /// All of it had arrived before.
    Duplicate,
    /// It would open one gap too many.
    TooManyGaps,
}

impl ReceiveQueue {
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Offset after the last byte that is there, behind gaps or not.
    pub(crate) fn highest(&self) -> u64 {
        self.behind.last_key_value().map_or(self.next, |(_, stretch)| stretch.end)
    }

    pub(crate) fn ready_bytes(&self) -> u64 {
        self.ready_bytes
    }

    pub(crate) fn has_gap(&self) -> bool {
        self.behind_bytes > 0
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
    pub(crate) fn insert(&mut self, offset: u64, mut data: Payload, max_gaps: usize) -> Arrival {
        let end = offset + data.len() as u64;
        if end <= self.next {
            return Arrival::Duplicate;
        }
        if offset > self.next {
            return self.insert_behind(offset, data, max_gaps);
        }
        data.advance((self.next - offset) as usize);
        self.append(data);
        if self.behind_bytes == 0 {
            return Arrival::InOrder;
        }
        while let Some(entry) = self.behind.first_entry() {
            if *entry.key() > self.next {
                break;
            }
            let (mut at, stretch) = entry.remove_entry();
            self.behind_bytes -= stretch.end - at;
            for mut piece in stretch.pieces {
                let end = at + piece.len() as u64;
                piece.advance(self.next.saturating_sub(at).min(end - at) as usize);
                self.append(piece);
                at = end;
            }
        }
        Arrival::FilledGap
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

    fn insert_behind(&mut self, offset: u64, data: Payload, max_gaps: usize) -> Arrival {
        if self.behind.len() >= max_gaps {
            return Arrival::TooManyGaps;
        }
        let end = offset + data.len() as u64;
        let mut from = offset;
        // What lies before may reach in.
        if let Some((_, stretch)) = self.behind.range(..=offset).next_back() {
            from = from.max(stretch.end);
        }
        let before = self.behind_bytes;
        while from < end {
            let following = self.behind.range(from..end).next().map(|(start, stretch)| (*start, stretch.end));
            let gap_end = following.map_or(end, |(start, _)| start);
            if gap_end > from {
                self.insert_part(from, data.slice((from - offset) as usize, (gap_end - from) as usize));
            }
            from = following.map_or(end, |(_, end)| end);
        }
        self.note_recent(offset);
        if self.behind_bytes == before { Arrival::Duplicate } else { Arrival::OutOfOrder }
    }

    /// Adds data that nothing overlaps, and joins it with what touches it. Of two stretches the shorter moves, so that no
    /// order of arrival costs more than a logarithm for each piece.
    fn insert_part(&mut self, start: u64, data: Payload) {
        let end = start + data.len() as u64;
        self.behind_bytes += end - start;
        let after = self.behind.remove(&end);
        let touching = self.behind.range_mut(..start).next_back().filter(|(_, stretch)| stretch.end == start);
        let stretch = match touching {
            Some((_, stretch)) => stretch,
            None => self.behind.entry(start).or_default(),
        };
        let at = stretch.pieces.len();
        stretch.pieces.push_back(data);
        stretch.end = end;
        if let Some(mut after) = after {
            stretch.end = after.end;
            if stretch.pieces.len() < after.pieces.len() {
                mem::swap(&mut stretch.pieces, &mut after.pieces);
                while let Some(piece) = after.pieces.pop_back() {
                    stretch.pieces.push_front(piece);
                }
            } else {
                stretch.pieces.append(&mut after.pieces);
            }
        }
        join_tiny(&mut stretch.pieces, at);
    }

    /// Puts the stretch around `offset` first, once (RFC 2018 §4: blocks reported before are repeated after it).
    fn note_recent(&mut self, offset: u64) {
        let (start, end) = self.stretch_around(offset);
        let same = |known: &u64| start <= *known && *known < end;
        let at = self.recent.iter().position(same).unwrap_or(self.recent.len() - 1);
        self.recent[..=at].rotate_right(1);
        self.recent[0] = offset;
    }

    /// Stretches behind gaps, that of the latest arrival first, as `(start, end)`.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut blocks = [(0, 0); 4];
        let mut count = 0;
        if self.behind_bytes > 0 {
            for offset in self.recent {
                if offset <= self.next {
                    continue;
                }
                let block = self.stretch_around(offset);
                if block.1 > block.0 && !blocks.contains(&block) {
                    blocks[count] = block;
                    count += 1;
                }
            }
        }
        blocks.into_iter().take(count)
    }

    fn stretch_around(&self, offset: u64) -> (u64, u64) {
        match self.behind.range(..=offset).next_back() {
            Some((start, stretch)) if offset < stretch.end => (*start, stretch.end),
            _ => (0, 0),
        }
    }
}

/// Copies the piece at index `at`, which is new, together with its neighbours if they are many and tiny, so that a queue does not
/// hold many times the memory that it counts: pieces come to 32 bytes on average at least.
///
/// # Cost
/// A call copies less than `RUN_BYTES`, and looks at as many bytes. Where tiny pieces come one after the other, that happens
/// with each fifteenth.
#[inline]
pub fn join_tiny(pieces: &mut VecDeque<Payload>, at: usize) {
    for first in [(at + 1).checked_sub(RUN_PIECES), Some(at)].into_iter().flatten() {
        let run = first..first + RUN_PIECES;
        if run.end <= pieces.len()
            && let Some(bytes) = tiny_bytes(pieces.range(run.clone()))
        {
            return join(pieces, run, bytes);
        }
    }
}

/// How many bytes the pieces hold, if that is few.
fn tiny_bytes<'a>(run: impl DoubleEndedIterator<Item = &'a Payload>) -> Option<usize> {
    let mut bytes = 0;
    for slice in run.rev().flat_map(Payload::slices) {
        bytes += slice.len();
        if bytes >= RUN_BYTES {
            return None;
        }
    }
    Some(bytes)
}

#[cold]
fn join(pieces: &mut VecDeque<Payload>, run: Range<usize>, bytes: usize) {
    let first = run.start;
    let mut joined = Vec::with_capacity(bytes);
    for slice in pieces.drain(run).flatten() {
        joined.extend_from_slice(&slice);
    }
    pieces.insert(first, joined.into());
}

#[cfg(test)]
mod tests {
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
            assert_eq!(queue.insert(from as u64, bytes(from, len), 99), Arrival::OutOfOrder);
        }
        assert_eq!(queue.blocks().collect::<Vec<_>>(), [(50, 55), (10, 20), (30, 35)]);
        assert_eq!(queue.insert(12, bytes(12, 5), 99), Arrival::Duplicate);
        assert_eq!(queue.insert(0, bytes(0, 12), 99), Arrival::FilledGap);
        assert_eq!(queue.next(), 20);
        assert_eq!(queue.insert(20, bytes(20, 20), 99), Arrival::FilledGap);
        assert_eq!((queue.next(), queue.has_gap()), (40, true));
        assert_eq!(queue.insert(60, bytes(60, 1), 1), Arrival::TooManyGaps);
    }

    #[test]
    fn each_stretch_is_reported_though_another_grows() {
        let mut queue = ReceiveQueue::default();
        for at in [10, 20, 40, 41, 42, 43, 44] {
            queue.insert(at as u64, bytes(at, 1), 99);
        }
        assert_eq!(queue.blocks().collect::<Vec<_>>(), [(40, 45), (20, 21), (10, 11)]);
        // A duplicate is reported within its stretch (RFC 2883 §4).
        assert_eq!(queue.insert(20, bytes(20, 1), 99), Arrival::Duplicate);
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
            let stretch = queue.behind.values().next().unwrap();
            assert!(stretch.pieces.len() <= 64 + COUNT / 64, "{}", stretch.pieces.len());
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
                let slices =
                    queue.behind.values().flat_map(|stretch| &stretch.pieces).flat_map(Payload::slices);
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
