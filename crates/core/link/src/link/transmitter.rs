use polypath_units::{BitRate, Duration};

/// How long packets take to send, to the nanosecond in the long run: the fractions that integer time leaves
/// over are carried from packet to packet.
#[derive(Debug)]
pub(super) struct Transmitter {
    rate: Option<BitRate>,
    /// Bits per second; `u64::MAX` without a rate.
    divisor: u64,
    /// Fraction of a nanosecond not yet spent, in units of 1 / `divisor`.
    carry: u64,
    /// The last size asked for and its time: most packets of a direction are of one size, and a division
    /// takes longer than all the rest.
    size_bytes: u32,
    time: Duration,
    fraction: u64,
}

impl Transmitter {
    pub(super) fn new(rate: Option<BitRate>) -> Self {
        let divisor = rate.map_or(u64::MAX, BitRate::as_bps);
        Self { rate, divisor, carry: 0, size_bytes: 0, time: Duration::ZERO, fraction: 0 }
    }

    pub(super) fn rate(&self) -> Option<BitRate> {
        self.rate
    }

    /// False at rate zero.
    pub(super) fn runs(&self) -> bool {
        self.divisor != 0
    }

    /// Time to send a packet of this size.
    #[inline]
    pub(super) fn time(&mut self, size_bytes: u32) -> Duration {
        if size_bytes != self.size_bytes {
            self.divide(size_bytes);
        }
        let carry = self.carry + self.fraction;
        if carry >= self.divisor {
            self.carry = carry - self.divisor;
            return self.time + Duration::from_nanos(1);
        }
        self.carry = carry;
        self.time
    }

    fn divide(&mut self, size_bytes: u32) {
        self.size_bytes = size_bytes;
        if self.rate.is_some() {
            let scaled = u64::from(size_bytes).saturating_mul(8_000_000_000);
            let divisor = self.divisor.max(1);
            self.time = Duration::from_nanos(scaled / divisor);
            self.fraction = scaled % divisor;
        }
    }

    /// Work done in `span`, in billionths of a bit.
    pub(super) fn work_in(&self, span: Duration) -> u128 {
        self.rate.map_or(0, |rate| u128::from(span.as_nanos()) * u128::from(rate.as_bps()))
    }

    /// Time for so much work, in billionths of a bit, rounded up.
    pub(super) fn time_for_work(&self, work: u128) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let nanos = work.div_ceil(u128::from(rate.as_bps()).max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Work of sending so many bytes, in billionths of a bit.
#[cfg(test)]
pub(super) const fn work_of(bytes: u64) -> u128 {
    bytes as u128 * 8 * 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_lost_or_won_over_many_packets() {
        // 3 Mbit/s and 7 bytes: 18 666.67 ns each.
        let mut transmitter = Transmitter::new(Some(BitRate::from_mbps(3)));
        let total: u64 = (0..3000).map(|_| transmitter.time(7).as_nanos()).sum();
        assert_eq!(total, 3000 * 7 * 8_000 / 3);
        let mut unlimited = Transmitter::new(None);
        assert_eq!(unlimited.time(1500), Duration::ZERO);
    }

    #[test]
    fn work_and_time_agree() {
        let transmitter = Transmitter::new(Some(BitRate::from_mbps(10)));
        assert_eq!(transmitter.work_in(Duration::from_micros(1200)), work_of(1500));
        assert_eq!(transmitter.time_for_work(work_of(1500)), Duration::from_micros(1200));
    }
}
