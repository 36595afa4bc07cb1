use alloc::vec::Vec;

use bytes::Bytes;
use polypath_wire::{Payload, SeqNumber};

/// One direction of a flow, and what was edited in it. Offsets count from the first byte after SYN; what
/// comes before is negative.
#[derive(Debug)]
pub(super) struct Half {
    isn: SeqNumber,
    /// Everything before this offset has been looked at.
    seen: i64,
    /// In the order of the stream; none overlaps another.
    edits: Vec<Edit>,
}

/// A change of the stream.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    /// Offset in the stream as it was sent.
    start: i64,
    removed: i64,
    inserted: Bytes,
    /// By how much the edits before it have made the stream longer.
    shift_before: i64,
}

impl Edit {
    pub(super) fn new(start: i64, removed: u64, inserted: Bytes) -> Self {
        Self { start, removed: removed as i64, inserted, shift_before: 0 }
    }

    fn inserted_len(&self) -> i64 {
        self.inserted.len() as i64
    }

    /// Offset after what is removed.
    fn end(&self) -> i64 {
        self.start + self.removed
    }
}

impl Half {
    pub(super) fn new(isn: SeqNumber) -> Self {
        Self { isn, seen: 0, edits: Vec::new() }
    }

    pub(super) fn isn(&self) -> SeqNumber {
        self.isn
    }

    pub(super) fn seen(&self) -> i64 {
        self.seen
    }

    pub(super) fn see(&mut self, end: i64) {
        self.seen = self.seen.max(end);
    }

    pub(super) fn edits(&self) -> &[Edit] {
        &self.edits
    }

    /// Adds an edit behind all others; false if it is not.
    pub(super) fn add(&mut self, edit: Edit) -> bool {
        let last = self.edits.last();
        if last.is_some_and(|last| edit.start < last.end() || edit.start == last.start) {
            return false;
        }
        let shift_before = last.map_or(0, |last| last.shift_before + last.inserted_len() - last.removed);
        self.edits.push(Edit { shift_before, ..edit });
        true
    }

    /// Sequence number of an offset.
    fn seq(&self, offset: i64) -> SeqNumber {
        self.isn.add(1).add(offset as u32)
    }

    /// Offset of a sequence number of the stream as it was sent.
    pub(super) fn offset(&self, seq: SeqNumber) -> i64 {
        self.seen + i64::from(seq.diff(self.seq(self.seen)))
    }

    /// Where an offset is in the edited stream. What is inserted belongs to the byte that it comes before.
    fn map(&self, offset: i64) -> i64 {
        match self
            .edits
            .partition_point(|edit| edit.start < offset)
            .checked_sub(1)
            .and_then(|at| self.edits.get(at))
        {
            Some(edit) => {
                offset + edit.shift_before + edit.inserted_len() - edit.removed.min(offset - edit.start)
            }
            None => offset,
        }
    }

    /// The last offset that [`Half::map`] puts at or before `offset`: so much of the stream as it was sent
    /// has arrived when so much of the edited one has.
    fn unmap(&self, offset: i64) -> i64 {
        let before = self.edits.partition_point(|edit| edit.start + edit.shift_before <= offset);
        let Some(edit) = before.checked_sub(1).and_then(|at| self.edits.get(at)) else { return offset };
        let beyond = offset - (edit.start + edit.shift_before) - edit.inserted_len();
        if beyond < 0 { edit.start } else { edit.end() + beyond }
    }

    /// A sequence number of the sender, as the receiver is to see it.
    pub(super) fn changed(&self, seq: SeqNumber) -> SeqNumber {
        self.seq(self.map(self.offset(seq)))
    }

    /// A sequence number of the receiver, as the sender knows it.
    pub(super) fn original(&self, seq: SeqNumber) -> SeqNumber {
        let near = self.map(self.seen);
        let offset = near + i64::from(seq.diff(self.seq(near)));
        self.seq(self.unmap(offset))
    }

    /// The edited form of the data at `start`, by the edits from number `first` on; `None` if none concerns
    /// it.
    pub(super) fn apply(&self, start: i64, payload: &Payload, first: usize) -> Option<Payload> {
        let end = start + payload.len() as i64;
        let concerned = |edit: &&Edit| edit.start < end && edit.end().max(edit.start + 1) > start;
        let mut edits = self.edits.get(first..)?.iter().filter(concerned).peekable();
        edits.peek()?;
        let mut edited = Payload::EMPTY;
        let mut at = start;
        for edit in edits {
            if edit.start >= at {
                edited.append(payload.slice((at - start) as usize, (edit.start - at) as usize));
            }
            if edit.start >= start {
                edited.push(edit.inserted.clone());
            }
            at = at.max(edit.end().min(end));
        }
        edited.append(payload.slice((at - start) as usize, usize::MAX));
        Some(edited)
    }
}
