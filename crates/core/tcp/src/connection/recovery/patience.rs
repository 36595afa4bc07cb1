//! How long late segments take where the path is several ones, packet by packet: as long as the slowest of late.

use polypath_units::{Duration, Instant};

/// What the slowest took holds for twice this at most, and once at least.
const SPAN: Duration = Duration::from_secs(5);

/// Before anything is known of the slowest path. Paths of radio are not slower.
const AT_FIRST: Duration = Duration::from_millis(250);

/// A queue that grows makes the next one later than the last: by a quarter, and by a clock's tick.
const MARGIN: Duration = Duration::from_millis(10);

/// The longest time that a segment took lately, from its departure to what acknowledged it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Since `since`, and in the span before.
    longest: Duration,
    before: Duration,
    since: Instant,
}

impl Patience {
    pub(super) const fn new() -> Self {
        Self { longest: Duration::ZERO, before: AT_FIRST, since: Instant::ZERO }
    }

    /// A segment that had left once arrived, so long after that.
    pub(super) fn handle_arrival(&mut self, now: Instant, took: Duration) {
        if self.since == Instant::ZERO {
            self.since = now;
        }
        if now.since(self.since) >= SPAN {
            // After a silence, the last that was known is better than nothing.
            self.before = self.longest;
            self.longest = Duration::ZERO;
            self.since = now;
        }
        self.longest = self.longest.max(took);
    }

    /// What took longer than this is lost.
    pub(super) fn window(&self) -> Duration {
        let longest = self.longest.max(self.before);
        longest + longest / 4 + MARGIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn it_waits_for_the_slowest_of_late_and_a_quarter_longer() {
        let mut patience = Patience::new();
        let at = |seconds| Instant::from_secs(seconds);
        assert_eq!(patience.window(), millis(322) + Duration::from_micros(500));
        patience.handle_arrival(at(1), millis(400));
        patience.handle_arrival(at(2), millis(20));
        assert_eq!(patience.window(), millis(510));
        patience.handle_arrival(at(6), millis(40));
        assert_eq!(patience.window(), millis(510), "of the span before");
        patience.handle_arrival(at(11), millis(20));
        assert_eq!(patience.window(), millis(60));
    }
}
