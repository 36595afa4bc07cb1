//! Stretches of what is outstanding that are not as they left: selectively acknowledged, or retransmitted.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::cell::Cell;

use polypath_units::Instant;

use super::{Flags, Sent};

/// Marked stretches by position. They don't overlap, and those that are selectively acknowledged don't touch each other.
///
/// Each method but [`Marks::bytes_between`] and those that visit all costs a logarithm of how many marks there are. Where nothing was
/// lost and nothing reordered since all was acknowledged, there are none, and they take no memory.
#[derive(Debug, Default)]
pub(super) struct Marks {
    kept: Option<Box<Kept>>,
    /// Not in flight: selectively acknowledged, or lost and not resent since.
    absent_bytes: u64,
    /// Look-ups and changes so far; wraps.
    steps: Cell<u32>,
    /// Pieces selectively acknowledged since none was.
    sacked_pieces: u32,
}

#[derive(Debug, Default)]
struct Kept {
    by_start: BTreeMap<u64, Sent>,
    /// Starts of those that are taken for lost and not resent since.
    waiting: BTreeSet<u64>,
    /// Retransmissions as `(when, start)`, oldest first. Stale entries fall out when RACK's reference passes them.
    resent: VecDeque<(Instant, u64)>,
    sacked_count: usize,
    bytes: u64,
    sacked_bytes: u64,
    waiting_bytes: u64,
    resent_bytes: u64,
}

impl Marks {
    /// Counts a look-up or a change: what a peer can make us do has bounds, which are measured.
    #[inline]
    pub(super) fn step(&self) {
        self.steps.set(self.steps.get().wrapping_add(1));
    }

    #[cfg(any(test, feature = "attacks"))]
    pub(super) fn steps(&self) -> u32 {
        self.steps.get()
    }

    pub(super) const fn sacked_pieces(&self) -> u32 {
        self.sacked_pieces
    }

    #[inline]
    pub(super) fn count_sacked_pieces(&mut self, count: u32) {
        self.sacked_pieces += count;
    }

    #[inline]
    pub(super) fn forget_sacked_pieces(&mut self) {
        self.sacked_pieces = 0;
    }

    /// Everything is acknowledged: nothing is marked, and no retransmission is in flight.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.kept = None;
        self.absent_bytes = 0;
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.by_start.is_empty())
    }

    pub(super) fn count(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.by_start.len())
    }

    /// How many are selectively acknowledged.
    pub(super) fn sacked_count(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.sacked_count)
    }

    /// Bytes marked in whatever way.
    pub(super) fn bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.bytes)
    }

    #[inline]
    pub(super) fn sacked_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.sacked_bytes)
    }

    /// Lost and not resent since.
    #[inline]
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.waiting_bytes)
    }

    /// Not in flight: selectively acknowledged, or lost and not resent since.
    #[inline]
    pub(super) const fn absent_bytes(&self) -> u64 {
        self.absent_bytes
    }

    #[inline]
    pub(super) fn resent_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.resent_bytes)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Sent> {
        self.kept.iter().flat_map(|kept| kept.by_start.values())
    }

    /// The mark that holds `position`.
    pub(super) fn at(&self, position: u64) -> Option<Sent> {
        self.last_before(position + 1).filter(|mark| mark.end() > position)
    }

    /// The last mark that starts before `position`.
    pub(super) fn last_before(&self, position: u64) -> Option<Sent> {
        self.step();
        self.kept.as_ref()?.by_start.range(..position).next_back().map(|(_, mark)| *mark)
    }

    /// The first mark that starts at `position` or after it.
    pub(super) fn first_from(&self, position: u64) -> Option<Sent> {
        self.step();
        self.kept.as_ref()?.by_start.range(position..).next().map(|(_, mark)| *mark)
    }

    /// The first mark.
    pub(super) fn first(&self) -> Option<Sent> {
        self.kept.as_ref()?.by_start.first_key_value().map(|(_, mark)| *mark)
    }

    /// Where the stretch begins with which at least so many bytes are selectively acknowledged, counted from the end, or so many
    /// stretches; none if there are fewer. Visits no more than that, and the retransmissions between.
    pub(super) fn sacked_from_the_end(&self, bytes: u64, stretches: u32) -> Option<u64> {
        let (mut seen_bytes, mut seen) = (0, 0);
        let sacked = self.kept.as_ref()?.by_start.values().rev().filter(|mark| mark.flags.has(Flags::SACKED));
        for mark in sacked {
            self.step();
            seen_bytes += mark.len();
            seen += 1;
            if seen_bytes >= bytes || seen >= stretches {
                return Some(mark.start);
            }
        }
        None
    }

    /// Start of the first that is selectively acknowledged.
    pub(super) fn first_sacked(&self) -> Option<u64> {
        let kept = self.kept.as_ref()?;
        kept.by_start.values().find(|mark| mark.flags.has(Flags::SACKED)).map(|mark| mark.start)
    }

    /// Start of the first that waits for retransmission.
    pub(super) fn first_waiting(&self) -> Option<u64> {
        self.kept.as_ref()?.waiting.first().copied()
    }

    /// How many bytes from `from` to `until` are marked: visits each mark between.
    pub(super) fn bytes_between(&self, from: u64, until: u64) -> u64 {
        let reaching_in = self.at(from).map_or(0, |mark| mark.end().min(until) - from);
        let Some(kept) = &self.kept else { return reaching_in };
        let inside = kept.by_start.range(from + 1..until.max(from + 1)).map(|(start, mark)| {
            self.step();
            mark.end().min(until) - start
        });
        reaching_in + inside.sum::<u64>()
    }

    /// Adds a mark where there is none.
    pub(super) fn put(&mut self, mark: Sent) {
        self.step();
        let kept = self.kept.get_or_insert_default();
        let bytes = mark.len();
        kept.bytes += bytes;
        if mark.flags.has(Flags::SACKED) {
            kept.sacked_bytes += bytes;
            kept.sacked_count += 1;
            self.absent_bytes += bytes;
        }
        if mark.flags.has(Flags::RESENT) {
            kept.resent_bytes += bytes;
        }
        if mark.waits() {
            kept.waiting.insert(mark.start);
            kept.waiting_bytes += bytes;
            self.absent_bytes += bytes;
        }
        kept.by_start.insert(mark.start, mark);
    }

    /// No mark starts after this one.
    pub(super) fn is_last(&self, mark: &Sent) -> bool {
        let last = self.kept.as_ref().and_then(|kept| kept.by_start.last_key_value());
        last.is_some_and(|(start, _)| *start == mark.start)
    }

    /// The last mark, which is selectively acknowledged, reaches further now.
    pub(super) fn extend_last(&mut self, extended: Sent) {
        self.step();
        let Some(kept) = &mut self.kept else { return };
        if let Some(mut last) = kept.by_start.last_entry() {
            let bytes = extended.len() - last.get().len();
            kept.bytes += bytes;
            kept.sacked_bytes += bytes;
            self.absent_bytes += bytes;
            last.insert(extended);
        }
    }

    /// Takes the mark out that starts at `start`.
    pub(super) fn take(&mut self, start: u64) -> Option<Sent> {
        self.step();
        let kept = self.kept.as_mut()?;
        let mark = kept.by_start.remove(&start)?;
        let bytes = mark.len();
        kept.bytes -= bytes;
        if mark.flags.has(Flags::SACKED) {
            kept.sacked_bytes -= bytes;
            kept.sacked_count -= 1;
            self.absent_bytes -= bytes;
        }
        if mark.flags.has(Flags::RESENT) {
            kept.resent_bytes -= bytes;
        }
        if mark.waits() {
            kept.waiting.remove(&start);
            kept.waiting_bytes -= bytes;
            self.absent_bytes -= bytes;
        }
        Some(mark)
    }

    /// Takes the part from `from` to `until` out of the mark that holds `from`; what is left of it on either side stays.
    pub(super) fn take_part(&mut self, from: u64, until: u64) -> Option<Sent> {
        let whole = self.at(from)?;
        let mut part = self.take(whole.start)?;
        if whole.start < from {
            self.put(whole.part(whole.start, from));
            part = part.part(from, whole.end());
        }
        if until < whole.end() {
            self.put(whole.part(until, whole.end()));
            part = part.part(from, until);
        }
        Some(part)
    }

    /// Changes the flags of all that `change` has new ones for; visits each mark.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&Sent) -> Option<Flags>) {
        let mut next = self.first();
        while let Some(mark) = next {
            if let Some(flags) = change(&mark)
                && let Some(old) = self.take(mark.start)
            {
                self.put(Sent { flags, ..old });
            }
            next = self.first_from(mark.start + 1);
        }
    }

    /// Takes back the verdict on those that wait; visits each of them.
    pub(super) fn unmark_waiting(&mut self) {
        while let Some(start) = self.first_waiting()
            && let Some(mark) = self.take(start)
        {
            self.put(Sent { flags: mark.flags.without(Flags::LOST), ..mark });
        }
    }

    // ---- retransmissions in flight

    /// What left again at `now` starts at `start`.
    pub(super) fn note_resent(&mut self, now: Instant, start: u64) {
        self.kept.get_or_insert_default().resent.push_back((now, start));
    }

    /// How many are noted, stale ones included.
    pub(super) fn resent_count(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.resent.len())
    }

    /// The oldest, as `(when, start)`.
    pub(super) fn oldest_resent(&self) -> Option<(Instant, u64)> {
        self.kept.as_ref()?.resent.front().copied()
    }

    /// The oldest is not looked for any more.
    pub(super) fn forget_oldest_resent(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.resent.pop_front();
        }
    }

    /// Forgets all.
    pub(super) fn take_resent(&mut self) -> VecDeque<(Instant, u64)> {
        self.kept.as_mut().map_or_else(VecDeque::new, |kept| core::mem::take(&mut kept.resent))
    }
}
