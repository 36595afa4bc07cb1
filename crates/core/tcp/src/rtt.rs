use polypath_units::{Duration, Instant};

use crate::config::Config;

/// Round-trip time estimation and the retransmission timeout (RFC 6298).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimator {
    srtt: Duration,
    variance: Duration,
    min: Duration,
    /// When `min` was measured; it is forgotten after [`MIN_RTT_WINDOW`].
    min_at: Instant,
    /// Without backoff.
    rto: Duration,
    backoff: u8,
}

/// How long a minimum holds: longer than route changes are apart, shorter than a day of mobility.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);

/// The timeout after a SYN that timed out (RFC 6298 §5.7).
const AFTER_LOST_SYN: Duration = Duration::from_secs(3);

impl RttEstimator {
    pub(crate) const fn new(config: &Config) -> Self {
        Self {
            srtt: Duration::ZERO,
            variance: Duration::ZERO,
            min: Duration::ZERO,
            min_at: Instant::ZERO,
            rto: config.initial_rto,
            backoff: 0,
        }
    }

    pub(crate) fn sample(&mut self, now: Instant, rtt: Duration, config: &Config) {
        // A clock that stands still measures nothing, but a round trip did happen.
        let rtt = rtt.max(Duration::from_nanos(1));
        self.smooth(rtt, config);
        if self.min.is_zero() || rtt <= self.min || now.since(self.min_at) > MIN_RTT_WINDOW {
            self.min = rtt;
            self.min_at = now;
        }
    }

    /// A sample too coarse to be a minimum.
    pub(crate) fn sample_coarse(&mut self, rtt: Duration, config: &Config) {
        self.smooth(rtt, config);
        if self.min.is_zero() {
            self.min = rtt;
        }
    }

    fn smooth(&mut self, rtt: Duration, config: &Config) {
        if self.srtt.is_zero() {
            self.srtt = rtt;
            self.variance = rtt / 2;
        } else {
            let error = if rtt > self.srtt { rtt - self.srtt } else { self.srtt - rtt };
            self.variance = Duration::from_nanos((self.variance.as_nanos() * 3 + error.as_nanos()) / 4);
            self.srtt = Duration::from_nanos((self.srtt.as_nanos() * 7 + rtt.as_nanos()) / 8);
        }
        self.backoff = 0;
        // The floor is on the variance term, as in Linux: a steady path of 300 ms keeps 500 ms, not 300.
        self.rto = (self.srtt + (self.variance * 4).max(config.min_rto)).min(config.max_rto);
    }

    /// The SYN timed out and its answer measures nothing: the path may be slower than the timeout before the first sample
    /// (RFC 6298 §5.7).
    pub(crate) fn distrust_initial(&mut self, config: &Config) {
        if self.srtt.is_zero() {
            self.rto = self.rto.max(AFTER_LOST_SYN).min(config.max_rto);
        }
    }

    pub(crate) fn srtt(&self) -> Duration {
        self.srtt
    }

    pub(crate) fn variance(&self) -> Duration {
        self.variance
    }

    pub(crate) fn min(&self) -> Duration {
        self.min
    }

    /// The timeout, with backoff.
    #[inline]
    pub(crate) fn rto(&self, config: &Config) -> Duration {
        Duration::from_nanos(self.rto.as_nanos().saturating_mul(1 << self.backoff.min(30)))
            .min(config.max_rto)
    }

    /// Doubles the timeout (RFC 6298 §5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// How often the timeout was doubled.
    pub(crate) fn backoffs(&self) -> u8 {
        self.backoff
    }

    pub(crate) fn reset_backoff(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_equations_of_rfc_6298() {
        let config = Config {
            initial_rto: Duration::from_secs(1),
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_secs(120),
            ..Config::default()
        };
        let mut rtt = RttEstimator::new(&config);
        assert_eq!(rtt.rto(&config), Duration::from_secs(1));
        rtt.sample(Instant::ZERO, Duration::from_millis(100), &config);
        assert_eq!((rtt.srtt(), rtt.variance()), (Duration::from_millis(100), Duration::from_millis(50)));
        assert_eq!(rtt.rto(&config), Duration::from_millis(300));
        rtt.sample(Instant::ZERO, Duration::from_millis(200), &config);
        // variance = 3/4 · 50 + 1/4 · 100; srtt = 7/8 · 100 + 1/8 · 200
        assert_eq!(rtt.variance(), Duration::from_micros(62_500));
        assert_eq!(rtt.srtt(), Duration::from_micros(112_500));
        rtt.back_off();
        assert_eq!(rtt.rto(&config), Duration::from_millis(725));
        for _ in 0..40 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(&config), Duration::from_secs(120));
    }
}
