//! How long a path takes one way, by two clocks that nobody has set together: only differences between paths mean something.

use polypath_units::{Duration, Instant};

/// How fast the greatest delay is forgotten, a part each sample.
const FORGET: i64 = 64;

/// One-way delays of a path in the last moments, in µs of the receiver's clock minus the sender's.
#[derive(Clone, Debug, Default)]
pub(crate) struct OneWayDelay {
    smoothed: Option<i64>,
    deviation: i64,
    /// The greatest of late, which sinks towards the smoothed one.
    greatest: i64,
    last: i64,
    last_at: Instant,
}

impl OneWayDelay {
    /// A packet that left at `sent` (µs, wrapping) came now.
    pub(crate) fn sample(&mut self, now: Instant, sent: u32) {
        // Clocks that are not set together differ by any amount; half of what wraps is enough for how they drift.
        let raw = (now.as_micros() as u32).wrapping_sub(sent);
        let delay = match self.smoothed {
            Some(before) => before + i64::from(raw.wrapping_sub(before as u32) as i32),
            None => i64::from(raw),
        };
        self.take(delay);
        self.last_at = now;
    }

    fn take(&mut self, delay: i64) {
        self.last = delay;
        let Some(smoothed) = self.smoothed else {
            (self.smoothed, self.greatest) = (Some(delay), delay);
            return;
        };
        self.deviation += ((delay - smoothed).abs() - self.deviation) / 4;
        let smoothed = smoothed + (delay - smoothed) / 8;
        self.smoothed = Some(smoothed);
        self.greatest = delay.max(self.greatest - (self.greatest - smoothed) / FORGET);
    }

    /// Of the last packet, in µs.
    pub(crate) fn last_micros(&self) -> Option<i64> {
        self.smoothed.map(|_| self.last)
    }

    /// Later than this, in µs, a packet hardly comes. A delay that grows is taken to grow on.
    pub(crate) fn latest_micros(&self) -> Option<i64> {
        self.smoothed.map(|smoothed| {
            let growing = self.last + 2 * (self.last - smoothed);
            (smoothed + 4 * self.deviation).max(self.greatest).max(growing)
        })
    }

    /// Whether anything came in the last so long.
    pub(crate) fn is_recent(&self, now: Instant, span: Duration) -> bool {
        self.smoothed.is_some() && now.since(self.last_at) <= span
    }

    #[cfg(test)]
    fn smoothed_micros(&self) -> Option<i64> {
        self.smoothed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_right_whatever_the_clocks_say() {
        for offset in [0_u32, 123_456, u32::MAX - 5_000] {
            let (mut fast, mut slow) = (OneWayDelay::default(), OneWayDelay::default());
            for step in 0..1_000_u32 {
                let sent = (step * 1_000).wrapping_add(offset);
                let at = |delay: u32| Instant::from_micros((step * 1_000 + delay).into());
                fast.sample(at(10_000), sent);
                slow.sample(at(60_000), sent);
            }
            let skew = slow.smoothed_micros().unwrap() as u32;
            assert_eq!(skew.wrapping_sub(fast.smoothed_micros().unwrap() as u32), 50_000, "{offset}");
        }
    }

    #[test]
    fn a_late_packet_is_remembered_for_a_while() {
        let mut delay = OneWayDelay::default();
        for step in 0..400 {
            let late = if step == 50 { 30_000 } else { 0 };
            delay.sample(Instant::from_micros(step * 1_000 + 10_000 + late), (step * 1_000) as u32);
            if step == 60 {
                assert!(delay.latest_micros().unwrap() > 30_000);
            }
        }
        assert!(delay.latest_micros().unwrap() < 11_000);
    }
}
