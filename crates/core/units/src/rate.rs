use core::fmt;

use crate::Duration;

/// A data rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(u64);

impl BitRate {
    /// Nothing passes.
    pub const ZERO: Self = Self(0);

    /// From bits per second.
    pub const fn from_bps(bits_per_second: u64) -> Self {
        Self(bits_per_second)
    }

    /// From kilobits (1 000 bits) per second.
    pub const fn from_kbps(kilobits_per_second: u64) -> Self {
        Self(kilobits_per_second.saturating_mul(1_000))
    }

    /// From megabits (1 000 000 bits) per second.
    pub const fn from_mbps(megabits_per_second: u64) -> Self {
        Self(megabits_per_second.saturating_mul(1_000_000))
    }

    /// The mean rate of `bytes` in `span`; zero for an empty span.
    pub fn from_bytes_over(bytes: u64, span: Duration) -> Self {
        if span.is_zero() {
            return Self::ZERO;
        }
        let bits = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(span.as_nanos());
        Self(u64::try_from(bits).unwrap_or(u64::MAX))
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Megabits per second.
    pub fn as_mbps_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// How long `bytes` take at this rate; [`Duration::MAX`] at rate zero.
    pub const fn time_to_send(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        // Below 2.3 GB the product fits 64 bits, and 64-bit division is several times faster.
        match bytes.checked_mul(8_000_000_000) {
            Some(scaled) => Duration::from_nanos(scaled / self.0),
            None => {
                let nanos = bytes as u128 * 8_000_000_000 / self.0 as u128;
                Duration::from_nanos(if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 })
            }
        }
    }

    /// How many whole bytes pass in `span`.
    pub const fn bytes_in(self, span: Duration) -> u64 {
        let bytes = self.0 as u128 * span.as_nanos() as u128 / 8_000_000_000;
        if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 }
    }
}

impl fmt::Debug for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bps if bps >= 1_000_000_000 => write!(f, "{} Gbit/s", bps as f64 / 1e9),
            bps if bps >= 1_000_000 => write!(f, "{} Mbit/s", bps as f64 / 1e6),
            bps if bps >= 1_000 => write!(f, "{} kbit/s", bps as f64 / 1e3),
            bps => write!(f, "{bps} bit/s"),
        }
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_between_bytes_and_time() {
        let rate = BitRate::from_mbps(100);
        assert_eq!(rate.time_to_send(1500), Duration::from_micros(120));
        assert_eq!(rate.bytes_in(Duration::from_millis(20)), 250_000);
        assert_eq!(BitRate::from_bytes_over(250_000, Duration::from_millis(20)), rate);
        assert_eq!(BitRate::ZERO.time_to_send(1), Duration::MAX);
        assert_eq!(rate.time_to_send(u64::MAX / 1000), Duration::from_nanos(u64::MAX / 1000 * 80));
    }
}
