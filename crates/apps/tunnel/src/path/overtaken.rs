//! How far packets may overtake each other on a path before one counts as lost.
//!
//! A path whose delay varies lets packets overtake. One that was taken for lost and arrives all the same tells how long to wait: so many
//! packets, and so much time (RFC 9002 §6.1 lets both be raised; RFC 8985 §6.2 does so for TCP). What was learned is forgotten after a while.

use std::collections::VecDeque;

use polypath_units::{Duration, Instant};

/// A packet is lost when one behind it by so many came (RFC 9002 §6.1.1).
const LEAST_PACKETS: u64 = 3;
/// More are not waited for.
const MOST_PACKETS: u64 = 1_000;
/// Nor longer than this, beyond a round trip.
const MOST_WAIT: Duration = Duration::from_secs(1);
/// Packets that were taken for lost of late.
const MOST_REMEMBERED: usize = 512;
/// So long without any that overtook, and the least holds again.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// One that was taken for lost.
#[derive(Clone, Copy, Debug)]
struct Missing {
    number: u64,
    bytes: u32,
    sent_at: Instant,
}

/// A packet that was not lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Late {
    pub(super) packets: u64,
    /// Those with bytes that count.
    pub(super) counted_packets: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Overtaken {
    packets: u64,
    wait: Duration,
    learned_at: Instant,
    /// By number: losses are found in the order in which packets left.
    missing: VecDeque<Missing>,
}

impl Default for Overtaken {
    fn default() -> Self {
        Self {
            packets: LEAST_PACKETS,
            wait: Duration::ZERO,
            learned_at: Instant::ZERO,
            missing: VecDeque::new(),
        }
    }
}

impl Overtaken {
    /// So many packets behind one mean that it is lost.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// So much longer than a round trip a packet may take.
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// A packet is taken for lost.
    pub(super) fn handle_lost(&mut self, number: u64, bytes: u32, sent_at: Instant) {
        if self.missing.len() == MOST_REMEMBERED {
            self.missing.pop_front();
        }
        self.missing.push_back(Missing { number, bytes, sent_at });
    }

    /// Numbers from `low` to `high` arrived; `largest` is the last of all. `rtt` is what packets take.
    pub(super) fn handle_arrived(
        &mut self,
        now: Instant,
        (low, high): (u64, u64),
        largest: u64,
        rtt: Duration,
    ) -> Late {
        let mut late = Late::default();
        let first = self.missing.partition_point(|missing| missing.number < low);
        let end = self.missing.partition_point(|missing| missing.number <= high);
        let (mut packets, mut wait) = (self.packets, self.wait);
        for missing in self.missing.drain(first..end.max(first)) {
            late.packets += 1;
            late.counted_packets += u64::from(missing.bytes > 0);
            late.bytes += u64::from(missing.bytes);
            packets = packets.max(largest.saturating_sub(missing.number) + 1);
            wait = wait.max(now.since(missing.sent_at).saturating_sub(rtt));
        }
        if late.packets > 0 {
            self.packets = packets.min(MOST_PACKETS);
            self.wait = wait.min(MOST_WAIT);
            self.learned_at = now;
        }
        late
    }

    /// Time passes.
    pub(super) fn forget(&mut self, now: Instant) {
        if self.packets > LEAST_PACKETS && now.since(self.learned_at) >= FORGOTTEN {
            (self.packets, self.wait) = (LEAST_PACKETS, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    #[test]
    fn one_that_arrives_after_all_teaches_patience() {
        let mut overtaken = Overtaken::default();
        let sent_at = Instant::from_secs(100);
        for number in [10, 11, 40] {
            overtaken.handle_lost(number, 1_400, sent_at);
        }
        let now = sent_at + Duration::from_millis(35);
        assert_eq!(overtaken.handle_arrived(now, (12, 30), 50, RTT), Late::default());
        assert_eq!(
            overtaken.handle_arrived(now, (11, 30), 50, RTT),
            Late { packets: 1, counted_packets: 1, bytes: 1_400 }
        );
        assert_eq!((overtaken.packets(), overtaken.wait()), (40, Duration::from_millis(15)));
        // Once only.
        assert_eq!(overtaken.handle_arrived(now, (11, 30), 60, RTT), Late::default());
        overtaken.forget(now + Duration::from_secs(59));
        assert_eq!(overtaken.packets(), 40);
        overtaken.forget(now + Duration::from_secs(60));
        assert_eq!((overtaken.packets(), overtaken.wait()), (3, Duration::ZERO));
    }

    #[test]
    fn what_is_remembered_and_waited_for_is_bounded() {
        let mut overtaken = Overtaken::default();
        for number in 0..5_000 {
            overtaken.handle_lost(number, 100, Instant::from_secs(1));
        }
        let late = overtaken.handle_arrived(Instant::from_secs(90), (0, 9_000), 90_000, RTT);
        assert_eq!(late.packets, MOST_REMEMBERED as u64);
        assert_eq!((overtaken.packets(), overtaken.wait()), (MOST_PACKETS, MOST_WAIT));
    }
}
