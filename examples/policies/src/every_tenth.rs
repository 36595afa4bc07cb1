use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polypath::link::QueueLimit;
use polypath::link::queue::{Dropped, Policy, Queue, Queued};
use polypath::units::{BitRate, Instant};

/// A queue discipline that carries something of the program's: loses every tenth packet that waits, and has no limit. All its queues count
/// together what they lose.
#[must_use]
pub fn every_tenth(lost_packets: Arc<AtomicU64>) -> Policy {
    Policy::from_fn("every-tenth", move |_| {
        let lost_packets = Arc::clone(&lost_packets);
        Box::new(EveryTenth { waiting: VecDeque::new(), bytes: 0, count: 0, lost_packets })
    })
}

#[derive(Debug)]
struct EveryTenth {
    waiting: VecDeque<Queued>,
    bytes: u64,
    count: u64,
    lost_packets: Arc<AtomicU64>,
}

impl Queue for EveryTenth {
    fn enqueue(&mut self, _: Instant, packet: Queued, dropped: &mut Dropped) {
        self.count += 1;
        if self.count.is_multiple_of(10) {
            self.lost_packets.fetch_add(1, Ordering::Relaxed);
            dropped.add(packet.size_bytes);
        } else {
            self.bytes += u64::from(packet.size_bytes);
            self.waiting.push_back(packet);
        }
    }

    fn dequeue(&mut self, _: Instant, _: &mut Dropped) -> Option<Queued> {
        let packet = self.waiting.pop_front()?;
        self.bytes -= u64::from(packet.size_bytes);
        Some(packet)
    }

    fn set_limit(&mut self, _: QueueLimit, _: Option<BitRate>) {}

    fn len_packets(&self) -> u64 {
        self.waiting.len() as u64
    }

    fn len_bytes(&self) -> u64 {
        self.bytes
    }
}
