//! The least round-trip time of a path, as most of its packets have it when there is no queue.
//!
//! Where delays vary, one packet in thousands takes hardly any time, and the others are none the faster for it: a window for that one would
//! leave the path half empty. So what counts is the fourth-least of the last eight samples, and of that the least.

use polypath_units::{Duration, Instant};

/// The last samples, of which the three least don't count.
const LAST: usize = 8;
const OUTLIERS: usize = 3;
/// A controller is told so often that the path was without a queue.
const TELL: Duration = Duration::from_secs(2);
/// What is looked back at is one to two of these: a path may change.
const WINDOW: Duration = Duration::from_secs(10);
/// Samples that are above the least by no more than this, and a sixteenth, show a path without a queue.
const TOLERANCE: Duration = Duration::from_micros(500);

#[derive(Debug, Default)]
pub(super) struct LeastRtt {
    since: Instant,
    now: Option<Duration>,
    before: Option<Duration>,
    /// By turns.
    last: [Duration; LAST],
    /// Samples of this window.
    count: usize,
    /// What the controller was told last, and when.
    told: Option<(Instant, Duration)>,
}

impl LeastRtt {
    pub(super) fn note(&mut self, now: Instant, sample: Duration) {
        if now.since(self.since) >= WINDOW {
            (self.since, self.before, self.now) = (now, self.now, None);
            self.count = 0;
        }
        self.last[self.count % LAST] = sample;
        self.count += 1;
        if self.count >= LAST {
            let mut sorted = self.last;
            sorted.sort_unstable();
            // A window for what differs by so little is small anyway.
            let differ_little = sorted[OUTLIERS] <= sorted[0] + TOLERANCE;
            let usual = if differ_little { sorted[0] } else { sorted[OUTLIERS] };
            self.now = Some(self.now.map_or(usual, |least| least.min(usual)));
        }
    }

    /// Of a few samples, it is the least of them.
    pub(super) fn least(&self) -> Duration {
        let of_many = [self.now, self.before].into_iter().flatten().min();
        of_many.or_else(|| self.last.iter().take(self.count).min().copied()).unwrap_or(Duration::ZERO)
    }

    /// A hair less than was told before, if a sample is about the least: a controller that waits for a lower one then need not empty
    /// the path to see it.
    pub(super) fn told_for(&mut self, now: Instant, sample: Duration) -> Duration {
        let least = self.least();
        if !is_about(sample, least) || self.told.is_some_and(|(at, _)| now.since(at) < TELL) {
            return sample.max(least);
        }
        // A path that has become longer is told anew.
        let before = self.told.map(|(_, told)| told).filter(|told| is_about(least, *told));
        let told = before.map_or(least, |told| told.min(least)) - Duration::from_nanos(1);
        self.told = Some((now, told));
        told
    }
}

fn is_about(sample: Duration, least: Duration) -> bool {
    sample <= least + least / 16 + TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn one_fast_packet_among_many_is_not_the_path() {
        let mut least = LeastRtt::default();
        for step in 0..800 {
            let rtt = if step % 50 == 7 { MS } else { MS * (18 + step % 5) };
            least.note(Instant::from_millis(step * 2), rtt);
        }
        assert!((MS * 18..=MS * 20).contains(&least.least()), "{}", least.least());
        assert_eq!(least.told_for(Instant::from_secs(9), MS), least.least() - Duration::from_nanos(1));
        assert_eq!(least.told_for(Instant::from_secs(9), MS), least.least());
    }

    #[test]
    fn between_neighbours_the_least_one_counts() {
        let mut least = LeastRtt::default();
        for step in 0..100 {
            least.note(Instant::from_millis(step), Duration::from_micros(60 + step * 37 % 300));
        }
        assert_eq!(least.least(), Duration::from_micros(60));
    }

    #[test]
    fn a_path_that_becomes_longer_is_told_so() {
        let mut least = LeastRtt::default();
        // The first one is fast by chance.
        let mut told = MS;
        for step in 0..60_000 {
            let rtt = MS
                * if step == 0 {
                    1
                } else if step < 20_000 {
                    10
                } else {
                    70
                };
            let now = Instant::from_millis(step);
            least.note(now, rtt);
            told = least.told_for(now, rtt);
            if step == 19_000 {
                assert!((MS * 9..=MS * 10).contains(&told), "{told}");
            }
        }
        assert!((MS * 69..=MS * 70).contains(&told), "{told}");
    }

    #[test]
    fn what_is_long_past_is_forgotten_and_a_few_samples_do() {
        let mut least = LeastRtt::default();
        least.note(Instant::from_secs(1), MS * 20);
        assert_eq!(least.least(), MS * 20);
        for step in 0..16 {
            least.note(Instant::from_millis(1_000 + step), MS * 10);
        }
        assert_eq!(least.least(), MS * 10);
        for step in 0..30 {
            least.note(Instant::from_secs(2 + step), MS * 70);
        }
        assert_eq!(least.least(), MS * 70);
    }
}
