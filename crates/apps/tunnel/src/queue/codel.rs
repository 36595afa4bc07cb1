//! CoDel (RFC 8289): drops when packets have waited too long for a whole interval.

use polypath_units::{Duration, Instant};

/// Waiting so long is good (RFC 8289 §5.3).
const TARGET: Duration = Duration::from_millis(5);
/// A round trip that most flows have (RFC 8289 §5.3).
const INTERVAL: Duration = Duration::from_millis(100);
/// A flow takes a few round trips of its own to react.
const ROUND_TRIPS: u64 = 2;

/// What is known of the paths behind a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// By how much their delays differ: so long packets wait for the faster path, on purpose.
    pub(crate) skew: Duration,
    /// The longest round trip.
    pub(crate) rtt: Duration,
}

impl Behind {
    /// A slower path carries something only once the queue is as long as the skew. To fill both, it has to be longer.
    fn target(self) -> Duration {
        (TARGET + self.skew * 2).max(self.interval() / 20)
    }

    fn interval(self) -> Duration {
        INTERVAL.max(self.rtt * ROUND_TRIPS)
    }
}

/// The state of one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Codel {
    first_above_at: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Whether to drop the packet at the head, which has waited for `sojourn`. `is_last` when hardly more than it waits.
    pub(super) fn drops(&mut self, now: Instant, sojourn: Duration, is_last: bool, behind: Behind) -> bool {
        let is_above = self.is_above(now, sojourn, is_last, behind);
        if self.dropping {
            if !is_above {
                self.dropping = false;
                return false;
            }
            if now >= self.drop_next {
                self.count += 1;
                self.drop_next += self.spacing(behind);
                return true;
            }
            return false;
        }
        if !is_above {
            return false;
        }
        self.dropping = true;
        // Close to the last time, it goes on where it was (RFC 8289 §5.5).
        let recent = self.count - self.last_count.min(self.count);
        let is_close = now.since(self.drop_next) < behind.interval() * 16;
        self.count = if recent > 1 && is_close { recent } else { 1 };
        self.last_count = self.count;
        self.drop_next = now + self.spacing(behind);
        true
    }

    fn is_above(&mut self, now: Instant, sojourn: Duration, is_last: bool, behind: Behind) -> bool {
        if sojourn < behind.target() || is_last {
            self.first_above_at = None;
            return false;
        }
        let at = *self.first_above_at.get_or_insert(now + behind.interval());
        now >= at
    }

    fn spacing(&self, behind: Behind) -> Duration {
        behind.interval().mul_f64(1.0 / f64::from(self.count.max(1)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_begin_after_an_interval_and_come_closer() {
        let mut codel = Codel::default();
        let drops: Vec<_> = (0..1_000)
            .filter(|&ms| {
                let now = Instant::from_millis(1_000 + ms);
                codel.drops(now, Duration::from_millis(20), false, Behind::default())
            })
            .collect();
        assert_eq!(&drops[..4], [100, 200, 271, 329]);
    }

    #[test]
    fn short_waits_and_last_packets_are_left_alone() {
        let mut codel = Codel::default();
        for ms in 0..1_000 {
            let (now, long) = (Instant::from_millis(ms), Duration::from_millis(20));
            assert!(!codel.drops(now, Duration::from_millis(4), false, Behind::default()));
            assert!(!codel.drops(now, long, true, Behind::default()));
            assert!(!codel.drops(
                now,
                long,
                false,
                Behind { skew: Duration::from_millis(10), rtt: Duration::ZERO }
            ));
        }
    }
}
