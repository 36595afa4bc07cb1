//! Stretches of what is outstanding that are not as they left: selectively acknowledged, or retransmitted.

use alloc::collections::{BTreeMap, BTreeSet};

use super::{Flags, Sent};

/// Marked stretches by position. They don't overlap, and those that are selectively acknowledged don't touch each other.
///
/// Each method but [`Marks::bytes_between`] and those that visit all costs a logarithm of how many marks there are.
#[derive(Debug, Default)]
pub(super) struct Marks {
    by_start: BTreeMap<u64, Sent>,
    /// Starts of those that are taken for lost and not resent since.
    waiting: BTreeSet<u64>,
    sacked_count: usize,
    bytes: u64,
    sacked_bytes: u64,
    lost_bytes: u64,
    resent_bytes: u64,
    /// Look-ups and changes so far.
    steps: core::cell::Cell<u64>,
}

impl Marks {
    /// Counts a look-up or a change: what a peer can make us do has bounds, which are measured.
    #[inline]
    pub(super) fn step(&self) {
        self.steps.set(self.steps.get() + 1);
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.by_start.len()
    }

    /// How many are selectively acknowledged.
    pub(super) fn sacked_count(&self) -> usize {
        self.sacked_count
    }

    /// Bytes marked in whatever way.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn sacked_bytes(&self) -> u64 {
        self.sacked_bytes
    }

    pub(super) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    pub(super) fn resent_bytes(&self) -> u64 {
        self.resent_bytes
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Sent> {
        self.by_start.values()
    }

    /// The mark that holds `position`.
    pub(super) fn at(&self, position: u64) -> Option<Sent> {
        self.last_before(position + 1).filter(|mark| mark.end() > position)
    }

    /// The last mark that starts before `position`.
    pub(super) fn last_before(&self, position: u64) -> Option<Sent> {
        self.step();
        self.by_start.range(..position).next_back().map(|(_, mark)| *mark)
    }

    /// The first mark that starts at `position` or after it.
    pub(super) fn first_from(&self, position: u64) -> Option<Sent> {
        self.step();
        self.by_start.range(position..).next().map(|(_, mark)| *mark)
    }

    /// The first mark.
    pub(super) fn first(&self) -> Option<Sent> {
        self.by_start.first_key_value().map(|(_, mark)| *mark)
    }

    /// Start of the first that waits for retransmission.
    pub(super) fn first_waiting(&self) -> Option<u64> {
        self.waiting.first().copied()
    }

    /// How many bytes from `from` to `until` are marked: visits each mark between.
    pub(super) fn bytes_between(&self, from: u64, until: u64) -> u64 {
        let reaching_in = self.at(from).map_or(0, |mark| mark.end().min(until) - from);
        let inside = self.by_start.range(from + 1..until.max(from + 1)).map(|(start, mark)| {
            self.step();
            mark.end().min(until) - start
        });
        reaching_in + inside.sum::<u64>()
    }

    /// Adds a mark where there is none.
    pub(super) fn put(&mut self, mark: Sent) {
        self.step();
        let bytes = mark.len();
        self.bytes += bytes;
        if mark.flags.has(Flags::SACKED) {
            self.sacked_bytes += bytes;
            self.sacked_count += 1;
        }
        if mark.flags.has(Flags::LOST) {
            self.lost_bytes += bytes;
        }
        if mark.flags.has(Flags::RESENT) {
            self.resent_bytes += bytes;
        }
        if mark.waits() {
            self.waiting.insert(mark.start);
        }
        self.by_start.insert(mark.start, mark);
    }

    /// No mark starts after this one.
    pub(super) fn is_last(&self, mark: &Sent) -> bool {
        self.by_start.last_key_value().is_some_and(|(start, _)| *start == mark.start)
    }

    /// The last mark, which is selectively acknowledged, reaches further now.
    pub(super) fn extend_last(&mut self, extended: Sent) {
        self.step();
        if let Some(mut last) = self.by_start.last_entry() {
            let bytes = extended.len() - last.get().len();
            self.bytes += bytes;
            self.sacked_bytes += bytes;
            last.insert(extended);
        }
    }

    /// Takes the mark out that starts at `start`.
    pub(super) fn take(&mut self, start: u64) -> Option<Sent> {
        self.step();
        let mark = self.by_start.remove(&start)?;
        let bytes = mark.len();
        self.bytes -= bytes;
        if mark.flags.has(Flags::SACKED) {
            self.sacked_bytes -= bytes;
            self.sacked_count -= 1;
        }
        if mark.flags.has(Flags::LOST) {
            self.lost_bytes -= bytes;
        }
        if mark.flags.has(Flags::RESENT) {
            self.resent_bytes -= bytes;
        }
        if mark.waits() {
            self.waiting.remove(&start);
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
}
