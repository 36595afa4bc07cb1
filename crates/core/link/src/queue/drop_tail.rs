use alloc::collections::VecDeque;

use polypath_units::{BitRate, Instant};
use polypath_wire::Packet;

use super::{Bounds, Dropped, Queue, QueueLimit, Queued, sealed};

/// First in, first out; a packet that would go past the limit is dropped.
///
/// It only counts: since packets leave as they came, the link keeps those that wait right behind those under
/// way, and a transmission that starts moves no packet.
#[derive(Debug)]
pub(crate) struct DropTail {
    sizes_bytes: VecDeque<u32>,
    bytes: u64,
    bounds: Bounds,
}

impl DropTail {
    pub(crate) fn new(limit: QueueLimit, rate: Option<BitRate>) -> Self {
        Self { sizes_bytes: VecDeque::new(), bytes: 0, bounds: limit.bounds(rate) }
    }

    /// A packet comes; false drops it.
    #[inline]
    pub(crate) fn admit(&mut self, size_bytes: u32) -> bool {
        let packets = self.sizes_bytes.len() as u64;
        let bytes = self.bytes + u64::from(size_bytes);
        if packets > 0 && (packets >= self.bounds.packets || bytes > self.bounds.bytes) {
            return false;
        }
        self.bytes = bytes;
        self.sizes_bytes.push_back(size_bytes);
        true
    }

    /// The size of the next packet, which leaves.
    #[inline]
    pub(crate) fn leave(&mut self) -> Option<u32> {
        let size_bytes = self.sizes_bytes.pop_front()?;
        self.bytes -= u64::from(size_bytes);
        Some(size_bytes)
    }

    pub(crate) fn clear(&mut self) {
        self.sizes_bytes.clear();
        self.bytes = 0;
    }

    pub(crate) fn set_limit(&mut self, limit: QueueLimit, rate: Option<BitRate>) {
        // A stopped transmitter says nothing about how much may wait for it.
        if rate != Some(BitRate::ZERO) || !matches!(limit, QueueLimit::Delay(_)) {
            self.bounds = limit.bounds(rate);
        }
    }

    #[inline]
    pub(crate) fn len_packets(&self) -> u64 {
        self.sizes_bytes.len() as u64
    }

    #[inline]
    pub(crate) fn len_bytes(&self) -> u64 {
        self.bytes
    }
}

/// The same with the packets, for who wants a drop-tail queue behind the trait.
#[derive(Debug)]
pub(super) struct DropTailQueue {
    counts: DropTail,
    packets: VecDeque<Packet>,
}

impl DropTailQueue {
    pub(super) fn new(limit: QueueLimit, rate: Option<BitRate>) -> Self {
        Self { counts: DropTail::new(limit, rate), packets: VecDeque::new() }
    }
}

impl Queue for DropTailQueue {
    fn enqueue(&mut self, _: Instant, Queued { packet, size_bytes }: Queued, dropped: &mut Dropped) {
        if self.counts.admit(size_bytes) {
            self.packets.push_back(packet);
        } else {
            dropped.add(size_bytes);
        }
    }

    fn dequeue(&mut self, _: Instant, _: &mut Dropped) -> Option<Queued> {
        let size_bytes = self.counts.leave()?;
        self.packets.pop_front().map(|packet| Queued { packet, size_bytes })
    }

    fn set_limit(&mut self, limit: QueueLimit, rate: Option<BitRate>) {
        self.counts.set_limit(limit, rate);
    }

    fn len_packets(&self) -> u64 {
        self.counts.len_packets()
    }

    fn len_bytes(&self) -> u64 {
        self.counts.len_bytes()
    }

    fn is_drop_tail(&self, _: sealed::Ours) -> bool {
        true
    }
}
