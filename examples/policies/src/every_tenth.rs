use std::collections::VecDeque;

use polypath_link::QueueLimit;
use polypath_link::queue::{Discipline, Dropped, Queue, Queued};
use polypath_units::{BitRate, Instant};

/// A queue discipline: loses every tenth packet that waits, and has no limit.
pub const EVERY_TENTH: Discipline = Discipline::new("every-tenth", |_| Box::new(EveryTenth::default()));

#[derive(Debug, Default)]
struct EveryTenth {
    waiting: VecDeque<Queued>,
    bytes: u64,
    count: u64,
}

impl Queue for EveryTenth {
    fn enqueue(&mut self, _: Instant, packet: Queued, dropped: &mut Dropped) {
        self.count += 1;
        if self.count.is_multiple_of(10) {
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
