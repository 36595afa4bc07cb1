//! The least round-trip time of a path, as most of its packets have it when there is no queue.
//!
//! Where delays vary, one packet in thousands takes hardly any time, and the others are none the faster for it: a window for that one would
//! leave the path half empty. So samples count in batches, each by its median.

use polypath_units::{Duration, Instant};

/// Samples of a batch.
const BATCH: usize = 8;
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
    batch: [Duration; BATCH],
    in_batch: usize,
    /// What the controller was told last, and when.
    told: Option<(Instant, Duration)>,
}

impl LeastRtt {
    pub(super) fn note(&mut self, now: Instant, sample: Duration) {
        if now.since(self.since) >= WINDOW {
            (self.since, self.before, self.now) = (now, self.now, None);
        }
        self.batch[self.in_batch] = sample;
        self.in_batch += 1;
        if self.in_batch == BATCH {
            self.batch.sort_unstable();
            let median = self.batch[(BATCH - 1) / 2];
            self.now = Some(self.now.map_or(median, |least| least.min(median)));
            self.in_batch = 0;
        }
    }

    /// Of a few samples, it is the least of them.
    pub(super) fn least(&self) -> Duration {
        let of_batches = [self.now, self.before].into_iter().flatten().min();
        let of_few = || self.batch[..self.in_batch].iter().min().copied();
        of_batches.or_else(of_few).unwrap_or(Duration::ZERO)
    }

    /// A hair less than was told before, if a sample is about the least: a controller that waits for a lower one then need not empty
    /// the path to see it.
    pub(super) fn told_for(&mut self, now: Instant, sample: Duration) -> Duration {
        let least = self.least();
        let is_about = sample <= least + least / 16 + TOLERANCE;
        if !is_about || self.told.is_some_and(|(at, _)| now.since(at) < TELL) {
            return sample.max(least);
        }
        let told = self.told.map_or(least, |(_, told)| told.min(least)) - Duration::from_nanos(1);
        self.told = Some((now, told));
        told
    }
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
