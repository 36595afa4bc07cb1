//! Data that was handed to subflows and is not data-acknowledged.

use alloc::collections::VecDeque;

use polypath_wire::DataSeq;

use crate::identifiers::SubflowId;
use crate::sent_chunk::SentChunk;

/// Notes that subflow `id` was given everything from `seq` to `end` again, as one mapping: what went out in pieces before is one
/// from now on, or pieces would only become more.
pub(super) fn take_over(
    sent: &mut VecDeque<SentChunk>,
    seq: DataSeq,
    end: DataSeq,
    id: SubflowId,
    end_offset: u64,
) {
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

/// Forgets what comes before `until`.
#[inline]
pub(super) fn drop_before(sent: &mut VecDeque<SentChunk>, until: DataSeq) {
    while let Some(front) = sent.front_mut() {
        if front.seq.before(until) && front.end().after(until) {
            let cut = until.diff(front.seq) as u32;
            front.seq = until;
            front.len -= cut;
        }
        if front.end().after(until) {
            break;
        }
        sent.pop_front();
    }
}

/// Up to which number a subflow has delivered everything from `una` on that acknowledged `acked` bytes of its stream. What it delivered
/// whole is forgotten.
pub(super) fn deliver_in_order(sent: &mut VecDeque<SentChunk>, una: DataSeq, acked: u64) -> DataSeq {
    let mut until = una;
    while let Some(front) = sent.front() {
        if front.end_offset > acked {
            let missing = front.end_offset - acked;
            if missing < u64::from(front.len) {
                until = front.seq.add(u64::from(front.len) - missing);
            }
            break;
        }
        until = front.end();
        sent.pop_front();
    }
    until
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::scheduler::tests::sent;

    fn pieces(sent: &VecDeque<SentChunk>) -> Vec<(u64, u32, u8, u64)> {
        sent.iter().map(|chunk| (chunk.seq.0, chunk.len, chunk.subflow.0, chunk.end_offset)).collect()
    }

    #[test]
    fn what_is_sent_again_becomes_one_piece() {
        let mut chunks = sent(&[(0, 1000, 1), (1000, 136, 2), (1136, 136, 1), (1272, 1000, 2)]);
        take_over(&mut chunks, DataSeq(1000), DataSeq(1272), SubflowId(3), 900);
        assert_eq!(pieces(&chunks), [(0, 1000, 1, 1000), (1000, 272, 3, 900), (1272, 1000, 2, 1136)]);
        assert!(chunks.iter().map(|chunk| chunk.again).eq([false, true, false]));
    }

    #[test]
    fn what_is_sent_again_in_part_is_cut() {
        let mut chunks = sent(&[(0, 1000, 1), (1000, 1000, 2)]);
        take_over(&mut chunks, DataSeq(400), DataSeq(1300), SubflowId(3), 900);
        assert_eq!(pieces(&chunks), [(0, 400, 1, 400), (400, 900, 3, 900), (1300, 700, 2, 1000)]);
        take_over(&mut chunks, DataSeq(500), DataSeq(600), SubflowId(1), 1100);
        assert_eq!(pieces(&chunks)[1..4], [(400, 100, 3, 100), (500, 100, 1, 1100), (600, 700, 3, 900)]);
        // Acknowledged in the meantime, and not there any more.
        take_over(&mut chunks, DataSeq(2000), DataSeq(2100), SubflowId(1), 1200);
        assert_eq!(chunks.len(), 5);
    }
}
