//! Data that waits to go out again.

use alloc::collections::BTreeMap;

use polypath_wire::DataSeq;

use crate::identifiers::SubflowId;
use crate::ordered::Origin;

/// Data that waits to go out again, in order: what blocks the receiver first goes first. An entry costs log *n*.
#[derive(Debug, Default)]
pub(in crate::connection) struct Reinjections {
    by_place: BTreeMap<u64, Reinjection>,
    bytes: u64,
    /// Chosen anew whenever nothing waits.
    origin: Origin,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::connection) struct Reinjection {
    pub(in crate::connection) seq: DataSeq,
    pub(in crate::connection) len: u32,
    /// The subflow that lost it; `None` where it may go out on any again.
    pub(in crate::connection) from: Option<SubflowId>,
}

impl Reinjections {
    pub(in crate::connection) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(in crate::connection) fn front(&self) -> Option<&Reinjection> {
        self.by_place.first_key_value().map(|(_, front)| front)
    }

    pub(in crate::connection) fn push(&mut self, seq: DataSeq, len: u32, from: Option<SubflowId>) {
        if self.by_place.is_empty() {
            self.origin = Origin::near(seq);
        }
        let entry =
            self.by_place.entry(self.origin.position(seq)).or_insert(Reinjection { seq, len: 0, from });
        // The same again says more of where it is lost.
        entry.from = from;
        self.bytes += u64::from(len.saturating_sub(entry.len));
        entry.len = entry.len.max(len);
    }

    pub(in crate::connection) fn take_front(&mut self, count: u32) {
        let Some((_, front)) = self.by_place.pop_first() else { return };
        let count = count.min(front.len);
        self.bytes -= u64::from(front.len);
        if count < front.len {
            self.push(front.seq.add(u64::from(count)), front.len - count, front.from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_blocks_first_goes_first() {
        let mut waiting = Reinjections::default();
        let near_wrap = DataSeq(u64::MAX - 1499);
        for (offset, len) in [(2000, 500), (0, 1000), (1000, 1000), (1000, 1000)] {
            waiting.push(near_wrap.add(offset), len, Some(SubflowId(1)));
        }
        assert_eq!(waiting.bytes(), 2500);
        waiting.take_front(400);
        assert_eq!(waiting.front().map(|front| (front.seq, front.len)), Some((near_wrap.add(400), 600)));
        waiting.take_front(600);
        waiting.take_front(9999);
        assert_eq!(waiting.front().map(|front| (front.seq, front.len)), Some((near_wrap.add(2000), 500)));
        assert_eq!(waiting.bytes(), 500);
    }
}
