//! Round-trip times of a path, a round at a time: what algorithms that look at delay begin from.

use polypath_units::Duration;

/// A round with fewer round-trip samples says too little: a receiver that delays acknowledgments makes most of one or two.
pub(crate) const LEAST_SAMPLES: u64 = 3;

/// Round-trip times of this round, and the least of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrips {
    /// That of an empty queue; [`Duration::MAX`] before the first sample.
    base: Duration,
    round_least: Duration,
    round_sum: Duration,
    round_samples: u64,
}

/// What a round of at least [`LEAST_SAMPLES`] gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) least: Duration,
    pub(crate) mean: Duration,
}

impl RoundTrips {
    pub(crate) const fn new() -> Self {
        Self { base: Duration::MAX, round_least: Duration::MAX, round_sum: Duration::ZERO, round_samples: 0 }
    }

    /// Takes a sample. The acknowledgment that ends a round is the first of the next: [`Self::end_round`] comes before.
    pub(crate) fn sample(&mut self, rtt: Duration) {
        self.base = self.base.min(rtt);
        self.round_least = self.round_least.min(rtt);
        self.round_sum += rtt;
        self.round_samples += 1;
    }

    /// What the round that ends gave, if it had samples enough; a new one begins.
    pub(crate) fn end_round(&mut self) -> Option<Round> {
        let enough = self.round_samples >= LEAST_SAMPLES;
        let round =
            enough.then(|| Round { least: self.round_least, mean: self.round_sum / self.round_samples });
        self.begin_round();
        round.filter(|round| !round.mean.is_zero())
    }

    /// Forgets what this round gave so far.
    pub(crate) fn begin_round(&mut self) {
        *self = Self { base: self.base, ..Self::new() };
    }

    /// The least round-trip time; zero before the first sample.
    pub(crate) fn base(&self) -> Duration {
        if self.base == Duration::MAX { Duration::ZERO } else { self.base }
    }

    /// How much longer than the least one a round trip took.
    pub(crate) fn queue_delay(&self, rtt: Duration) -> Duration {
        rtt.saturating_sub(self.base)
    }

    /// The share of the window that the path holds without a queue, if a round trip takes `rtt`: one or less.
    pub(crate) fn unqueued(&self, rtt: Duration) -> f64 {
        (self.base.as_nanos() as f64 / rtt.as_nanos() as f64).min(1.0)
    }

    /// Segments of a window that wait in the queue of the path (Brakmo and Peterson 1995, section IV-B): the rates that
    /// are expected and that there are, `window / base` and `window / rtt`, differ by so many segments in a `base`.
    pub(crate) fn backlog_packets(&self, window_packets: f64, rtt: Duration) -> f64 {
        window_packets * (1.0 - self.unqueued(rtt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_round_needs_three_samples() {
        let mut trips = RoundTrips::new();
        assert_eq!(trips.base(), Duration::ZERO);
        trips.sample(millis(50));
        trips.sample(millis(40));
        assert_eq!(trips.end_round(), None);
        for ms in [60, 45, 48] {
            trips.sample(millis(ms));
        }
        assert_eq!(trips.end_round(), Some(Round { least: millis(45), mean: millis(51) }));
        assert_eq!(trips.end_round(), None, "a new round is empty");
        assert_eq!(trips.base(), millis(40), "the least of all rounds");
    }

    #[test]
    fn the_backlog_is_what_the_path_does_not_hold() {
        let mut trips = RoundTrips::new();
        trips.sample(millis(40));
        // 50 segments a round trip of 50 ms: 40 of them in the 40 ms of an empty path.
        assert_eq!(trips.backlog_packets(50.0, millis(50)), 50.0 * (1.0 - 0.8));
        assert_eq!(trips.queue_delay(millis(50)), millis(10));
        assert_eq!(trips.backlog_packets(50.0, millis(30)), 0.0);
        assert_eq!(trips.queue_delay(millis(30)), Duration::ZERO);
        // Nothing is not a number.
        assert_eq!(RoundTrips::new().backlog_packets(50.0, Duration::ZERO), 0.0);
        trips.sample(Duration::ZERO);
        assert_eq!(trips.backlog_packets(50.0, Duration::ZERO), 0.0);
    }
}
