//! Data behind gaps.

use alloc::collections::{BTreeMap, VecDeque};
use core::mem;

use polypath_wire::Payload;

use super::insertion::Insertion;
use super::tiny::join_tiny;

/// What lies behind gaps.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// By start; they neither overlap nor touch.
    stretches: BTreeMap<u64, Stretch>,
    bytes: u64,
    /// An offset in each of the stretches that grew last, most recent first: the order of SACK blocks (RFC 2018 §4).
    recent: [u64; 4],
}

/// Contiguous data.
#[derive(Debug, Default)]
struct Stretch {
    end: u64,
    pieces: VecDeque<Payload>,
}

impl Behind {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Offset after the last byte.
    pub(super) fn end(&self) -> u64 {
        self.stretches.last_key_value().map_or(0, |(_, stretch)| stretch.end)
    }

    /// Takes out the first stretch, if it starts at `next` or before.
    pub(super) fn take_until(&mut self, next: u64) -> Option<(u64, VecDeque<Payload>)> {
        let (start, stretch) =
            self.stretches.first_entry().filter(|entry| *entry.key() <= next)?.remove_entry();
        self.bytes -= stretch.end - start;
        Some((start, stretch.pieces))
    }

    /// Adds data that lies behind a gap.
    pub(super) fn insert(&mut self, offset: u64, data: Payload, max_gaps: usize) -> Insertion {
        if self.stretches.len() >= max_gaps {
            return Insertion::TooManyGaps;
        }
        let end = offset + data.len() as u64;
        let mut from = offset;
        // What lies before may reach in.
        if let Some((_, stretch)) = self.stretches.range(..=offset).next_back() {
            from = from.max(stretch.end);
        }
        let before = self.bytes;
        while from < end {
            let following =
                self.stretches.range(from..end).next().map(|(start, stretch)| (*start, stretch.end));
            let gap_end = following.map_or(end, |(start, _)| start);
            if gap_end > from {
                self.insert_part(from, data.slice((from - offset) as usize, (gap_end - from) as usize));
            }
            from = following.map_or(end, |(_, end)| end);
        }
        self.note_recent(offset);
        if self.bytes == before { Insertion::Duplicate } else { Insertion::OutOfOrder }
    }

    /// Adds data that nothing overlaps, and joins it with what touches it. Of two stretches the shorter moves, so that no
    /// order of arrival costs more than a logarithm for each piece.
    fn insert_part(&mut self, start: u64, data: Payload) {
        let end = start + data.len() as u64;
        self.bytes += end - start;
        let after = self.stretches.remove(&end);
        let touching =
            self.stretches.range_mut(..start).next_back().filter(|(_, stretch)| stretch.end == start);
        let stretch = match touching {
            Some((_, stretch)) => stretch,
            None => self.stretches.entry(start).or_default(),
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

    /// Stretches behind `next`, that of the latest arrival first, as `(start, end)`.
    pub(super) fn blocks(&self, next: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let mut blocks = [(0, 0); 4];
        let mut count = 0;
        for offset in self.recent {
            if offset <= next {
                continue;
            }
            let block = self.stretch_around(offset);
            if block.1 > block.0 && !blocks.contains(&block) {
                blocks[count] = block;
                count += 1;
            }
        }
        blocks.into_iter().take(count)
    }

    fn stretch_around(&self, offset: u64) -> (u64, u64) {
        match self.stretches.range(..=offset).next_back() {
            Some((start, stretch)) if offset < stretch.end => (*start, stretch.end),
            _ => (0, 0),
        }
    }

    #[cfg(test)]
    pub(super) fn stretches(&self) -> impl Iterator<Item = &VecDeque<Payload>> {
        self.stretches.values().map(|stretch| &stretch.pieces)
    }
}
