//! Data that goes out again: what a subflow lost or holds for too long leaves on another.

use alloc::collections::{BTreeMap, VecDeque};

use polypath_units::Instant;
use polypath_wire::DataSeq;

use super::Connection;
use super::state::Mode;
use crate::mapping::Carried;
use crate::ordered::Origin;
use crate::sent_chunk::SentChunk;
use crate::subflow::Stage;

/// Data that waits to go out again, in order: what blocks the receiver first goes first. An entry costs log *n*.
#[derive(Debug, Default)]
pub(super) struct Reinjections {
    by_position: BTreeMap<u64, Reinjection>,
    bytes: u64,
    /// Chosen anew whenever nothing waits.
    origin: Origin,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reinjection {
    pub(super) seq: DataSeq,
    pub(super) len: u32,
    /// The subflow that lost it; `None` where it may go out on any again.
    pub(super) from: Option<u8>,
}

impl Connection {
    /// A subflow timed out, or is gone: what it holds goes out on another.
    pub(super) fn reinject_from(&mut self, id: u8) {
        if self.shared.mode != Mode::Mptcp {
            return;
        }
        let gone = self.position(id).is_none();
        let others = self.subflows.iter().any(|subflow| {
            subflow.meta.id != id
                && subflow.meta.stage == Stage::Established
                && subflow.tcp.consecutive_timeouts() == 0
        });
        if !others && !gone {
            return;
        }
        let acked =
            self.position(id).and_then(|at| self.subflows.get(at)).map_or(0, |s| s.tcp.acked_offset());
        for chunk in &mut self.shared.sent {
            if chunk.subflow == id && !chunk.queued && (gone || chunk.end_offset > acked) {
                chunk.queued = true;
                self.reinjections.push(chunk.seq, chunk.len, (!gone).then_some(id));
            }
        }
        self.needs_schedule = true;
    }

    /// A new subflow is up: it takes over from those that have timed out.
    pub(super) fn rescue_stalled(&mut self) {
        let mut at = 0;
        while let Some(subflow) = self.subflows.get(at) {
            if subflow.tcp.consecutive_timeouts() > 0 {
                let id = subflow.meta.id;
                self.reinject_from(id);
            }
            at += 1;
        }
    }

    /// Sends again, on another subflow or the same, what was sent before.
    pub(super) fn resend(
        &mut self,
        now: Instant,
        position: usize,
        seq: DataSeq,
        count: u64,
        carried: Carried,
    ) {
        let data = self.shared.send.slice(seq, count as usize);
        let Some(id) = self.subflows.get(position).map(|subflow| subflow.meta.id) else { return };
        if data.is_empty() {
            return;
        }
        self.scheduler.on_sent(id, seq, data.len() as u64);
        let end = seq.add(data.len() as u64);
        let end_offset = self.push(now, position, seq, data, carried);
        take_over(&mut self.shared.sent, seq, end, id, end_offset);
    }

    pub(super) fn drop_stale_reinjections(&mut self) {
        let una = self.shared.send.start();
        while let Some(front) = self.reinjections.front().copied() {
            let stale = una.diff(front.seq);
            if stale <= 0 {
                break;
            }
            self.reinjections.take_front(u32::try_from(stale).unwrap_or(u32::MAX).min(front.len));
        }
    }

    /// Everything that is queued for reinjection is forgotten (fallback).
    pub(super) fn forget_reinjections(&mut self) {
        self.reinjections = Reinjections::default();
    }
}

impl Reinjections {
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn front(&self) -> Option<&Reinjection> {
        self.by_position.first_key_value().map(|(_, front)| front)
    }

    pub(super) fn push(&mut self, seq: DataSeq, len: u32, from: Option<u8>) {
        if self.by_position.is_empty() {
            self.origin = Origin::near(seq);
        }
        let entry =
            self.by_position.entry(self.origin.position(seq)).or_insert(Reinjection { seq, len: 0, from });
        // The same again says more of where it is lost.
        entry.from = from;
        self.bytes += u64::from(len.saturating_sub(entry.len));
        entry.len = entry.len.max(len);
    }

    pub(super) fn take_front(&mut self, count: u32) {
        let Some((_, front)) = self.by_position.pop_first() else { return };
        let count = count.min(front.len);
        self.bytes -= u64::from(front.len);
        if count < front.len {
            self.push(front.seq.add(u64::from(count)), front.len - count, front.from);
        }
    }
}

/// Notes that subflow `id` was given everything from `seq` to `end` again, as one mapping: what went out in pieces before is one
/// from now on, or pieces would only become more.
fn take_over(sent: &mut VecDeque<SentChunk>, seq: DataSeq, end: DataSeq, id: u8, end_offset: u64) {
    let mut first = sent.partition_point(|chunk| !chunk.end().after(seq));
    if sent.get(first).is_some_and(|chunk| chunk.seq.before(seq)) {
        first = split(sent, first, seq);
    }
    let mut after = sent.partition_point(|chunk| !chunk.end().after(end));
    if sent.get(after).is_some_and(|chunk| chunk.seq.before(end)) {
        after = split(sent, after, end);
    }
    let Some(chunk) = sent.get_mut(first).filter(|_| first < after) else { return };
    let len = end.diff(chunk.seq).max(0) as u32;
    *chunk = SentChunk { seq: chunk.seq, len, subflow: id, queued: false, again: true, end_offset };
    if first + 1 < after {
        sent.drain(first + 1..after);
    }
}

/// Cuts the chunk at index `at` in two at `seq`, which lies inside; returns the index of the second part.
fn split(sent: &mut VecDeque<SentChunk>, at: usize, seq: DataSeq) -> usize {
    if let Some(first) = sent.get_mut(at) {
        let mut second = *first;
        let head = seq.diff(first.seq) as u32;
        second.seq = seq;
        second.len = first.len - head;
        first.len = head;
        first.end_offset -= u64::from(second.len);
        sent.insert(at + 1, second);
    }
    at + 1
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::scheduler::tests::sent;

    fn pieces(sent: &VecDeque<SentChunk>) -> Vec<(u64, u32, u8, u64)> {
        sent.iter().map(|chunk| (chunk.seq.0, chunk.len, chunk.subflow, chunk.end_offset)).collect()
    }

    #[test]
    fn what_blocks_first_goes_first() {
        let mut waiting = Reinjections::default();
        let near_wrap = DataSeq(u64::MAX - 1499);
        for (offset, len) in [(2000, 500), (0, 1000), (1000, 1000), (1000, 1000)] {
            waiting.push(near_wrap.add(offset), len, Some(1));
        }
        assert_eq!(waiting.bytes(), 2500);
        waiting.take_front(400);
        assert_eq!(waiting.front().map(|front| (front.seq, front.len)), Some((near_wrap.add(400), 600)));
        waiting.take_front(600);
        waiting.take_front(9999);
        assert_eq!(waiting.front().map(|front| (front.seq, front.len)), Some((near_wrap.add(2000), 500)));
        assert_eq!(waiting.bytes(), 500);
    }

    #[test]
    fn what_is_sent_again_becomes_one_piece() {
        let mut chunks = sent(&[(0, 1000, 1), (1000, 136, 2), (1136, 136, 1), (1272, 1000, 2)]);
        take_over(&mut chunks, DataSeq(1000), DataSeq(1272), 3, 900);
        assert_eq!(pieces(&chunks), [(0, 1000, 1, 1000), (1000, 272, 3, 900), (1272, 1000, 2, 1136)]);
        assert!(chunks.iter().map(|chunk| chunk.again).eq([false, true, false]));
    }

    #[test]
    fn what_is_sent_again_in_part_is_cut() {
        let mut chunks = sent(&[(0, 1000, 1), (1000, 1000, 2)]);
        take_over(&mut chunks, DataSeq(400), DataSeq(1300), 3, 900);
        assert_eq!(pieces(&chunks), [(0, 400, 1, 400), (400, 900, 3, 900), (1300, 700, 2, 1000)]);
        take_over(&mut chunks, DataSeq(500), DataSeq(600), 1, 1100);
        assert_eq!(pieces(&chunks)[1..4], [(400, 100, 3, 100), (500, 100, 1, 1100), (600, 700, 3, 900)]);
        // Acknowledged in the meantime, and not there any more.
        take_over(&mut chunks, DataSeq(2000), DataSeq(2100), 1, 1200);
        assert_eq!(chunks.len(), 5);
    }
}
