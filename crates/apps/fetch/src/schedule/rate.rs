//! How fast a path brings bytes, measured while it has something to bring.

use polypath_units::{Duration, Instant};

/// A sample takes at least so long, a round trip, and has so many bytes or takes very long: what came in one burst says nothing.
const LEAST_SAMPLE: Duration = Duration::from_millis(40);
const LEAST_SAMPLE_BYTES: u64 = 12_000;
const MOST_SAMPLE: Duration = Duration::from_millis(250);
/// Before anything is known, little says more than nothing.
const FIRST_SAMPLE: Duration = Duration::from_millis(8);
/// What a sample that is higher, or lower, than what was believed counts: slow start is followed quickly, a dip is not the truth yet.
const WEIGHT_UP: f64 = 0.6;
const WEIGHT_DOWN: f64 = 0.25;
/// Slow start goes on as long as samples grow like this.
const GROWTH: f64 = 1.25;
/// What is expected of a path in slow start: what is asked for now is sent a round trip later.
const HEADROOM: f64 = 3.0;

/// After a silence of so many round trips, what comes is what TCP held back behind a lost packet.
const SILENT_ROUND_TRIPS: f64 = 1.1;

/// The rate of a path. Times in which nothing was asked for don't count.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    bytes_per_second: Option<f64>,
    /// The last sample, as long as the samples grow.
    growing_from: Option<f64>,
    since: Option<Instant>,
    bytes: u64,
    last: Option<Instant>,
    /// When something came again after a silence. The sample that has the silence has all that was held back, too.
    resumed_at: Option<Instant>,
}

impl Default for Rate {
    fn default() -> Self {
        Self {
            bytes_per_second: None,
            growing_from: Some(0.0),
            since: None,
            bytes: 0,
            last: None,
            resumed_at: None,
        }
    }
}

impl Rate {
    /// As far as it is known.
    pub(super) const fn bytes_per_second(&self) -> Option<f64> {
        self.bytes_per_second
    }

    /// What it may be when an answer comes that is asked for now.
    pub(super) fn expected(&self) -> Option<f64> {
        let factor = if self.growing_from.is_some() { HEADROOM } else { 1.0 };
        self.bytes_per_second.map(|rate| rate * factor)
    }

    /// Whether it is in slow start, as far as is known.
    pub(super) const fn is_growing(&self) -> bool {
        self.growing_from.is_some()
    }

    /// Bytes came. `round_trip` is how long a sample takes at least.
    pub(super) fn handle_bytes(&mut self, now: Instant, bytes: u64, round_trip: Duration) {
        // What came first came before the time that is measured.
        let before = self.last.replace(now);
        let Some(since) = self.since else {
            (self.since, self.resumed_at) = (Some(now), None);
            return;
        };
        let silence = before.map(|before| now.since(before)).unwrap_or_default();
        if silence > round_trip.mul_f64(SILENT_ROUND_TRIPS).max(LEAST_SAMPLE) {
            self.resumed_at = Some(now);
        }
        self.bytes += bytes;
        let span = now.since(since);
        let least = if self.bytes_per_second.is_none() { FIRST_SAMPLE } else { LEAST_SAMPLE };
        let is_held_back = self.resumed_at.is_some_and(|at| now.since(at) < LEAST_SAMPLE);
        if !is_held_back
            && span >= least.max(round_trip)
            && (self.bytes >= LEAST_SAMPLE_BYTES || span >= MOST_SAMPLE)
        {
            self.take(self.bytes as f64 / span.as_secs_f64());
            (self.since, self.bytes, self.resumed_at) = (Some(now), 0, None);
        }
    }

    /// Nothing is asked for any more.
    pub(super) fn handle_idle(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            let span = now.since(since);
            if self.bytes >= LEAST_SAMPLE_BYTES && span >= FIRST_SAMPLE {
                self.take(self.bytes as f64 / span.as_secs_f64());
            }
        }
        self.bytes = 0;
    }

    /// Nothing came for so long that what was known is not believed any more.
    pub(super) fn handle_stall(&mut self) {
        self.bytes_per_second = self.bytes_per_second.map(|rate| rate / 2.0);
        (self.since, self.bytes) = (None, 0);
    }

    fn take(&mut self, sample: f64) {
        self.growing_from = self.growing_from.filter(|before| sample > before * GROWTH).map(|_| sample);
        self.bytes_per_second = Some(match self.bytes_per_second {
            None => sample,
            Some(before) if sample > before => before + WEIGHT_UP * (sample - before),
            Some(before) => before + WEIGHT_DOWN * (sample - before),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_comes_and_leaves_out_idle_times() {
        let mut rate = Rate::default();
        let round_trip = Duration::from_millis(50);
        let mut now = Instant::from_secs(1);
        for _ in 0..3 {
            for _ in 0..200 {
                rate.handle_bytes(now, 10_000, round_trip);
                now += Duration::from_millis(10);
            }
            rate.handle_idle(now);
            now += Duration::from_secs(5);
        }
        let known = rate.bytes_per_second().expect("a rate");
        assert!((known / 1e6 - 1.0).abs() < 0.06, "{known}");
        for _ in 0..200 {
            rate.handle_bytes(now, 2_500, round_trip);
            now += Duration::from_millis(10);
        }
        let known = rate.bytes_per_second().expect("a rate");
        assert!((known / 1e6 - 0.25).abs() < 0.03, "{known}");
    }

    #[test]
    fn what_was_held_back_behind_a_loss_is_no_rate() {
        let mut rate = Rate::default();
        let round_trip = Duration::from_millis(200);
        let mut now = Instant::from_secs(1);
        for silence_ms in [0, 400, 300] {
            now += Duration::from_millis(silence_ms);
            rate.handle_bytes(now, silence_ms * 300, round_trip);
            for _ in 0..300 {
                now += Duration::from_millis(5);
                rate.handle_bytes(now, 1500, round_trip);
                assert!(rate.bytes_per_second().is_none_or(|known| known < 1.1 * 300e3), "{rate:?}");
            }
        }
    }
}
