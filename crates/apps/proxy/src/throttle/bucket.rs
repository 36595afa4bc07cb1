//! A bucket of tokens, of an octet each.

use polypath_units::{BitRate, Duration, Instant};

/// Bits in a second times nanoseconds, of which so many are an octet.
const OCTET: u128 = 8 * 1_000_000_000;

/// Fills at a rate, up to a burst; what is taken has to be there. Nothing is lost to rounding, however often it is asked. Time that goes backwards
/// counts as none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    rate: BitRate,
    burst: u64,
    level: u128,
    at: Instant,
}

impl Bucket {
    /// A full one.
    #[must_use]
    pub fn new(now: Instant, rate: BitRate, burst: u64) -> Self {
        Self { rate, burst, level: u128::from(burst) * OCTET, at: now }
    }

    /// The rate at which it fills.
    #[must_use]
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// Another rate and burst, from now on. What is in it stays, as far as it has room.
    pub fn set_rate(&mut self, now: Instant, rate: BitRate, burst: u64) {
        self.fill(now);
        self.rate = rate;
        self.burst = burst;
        self.fill(now);
    }

    /// How many octets may be taken now.
    pub fn available(&mut self, now: Instant) -> u64 {
        self.fill(now);
        u64::try_from(self.level / OCTET).unwrap_or(u64::MAX)
    }

    /// Takes octets, as far as they are there.
    pub fn take(&mut self, now: Instant, octets: u64) {
        self.fill(now);
        self.level = self.level.saturating_sub(u128::from(octets) * OCTET);
    }

    /// Puts octets back that were taken for nothing, as far as there is room.
    pub fn give_back(&mut self, octets: u64) {
        self.level = (self.level + u128::from(octets) * OCTET).min(self.room());
    }

    /// When so many octets will have come, if none are taken until then, and as if there were room for all. [`Instant::FAR_FUTURE`] at rate zero.
    pub fn ready_at(&mut self, now: Instant, octets: u64) -> Instant {
        self.fill(now);
        let missing = (u128::from(octets) * OCTET).saturating_sub(self.level);
        match (missing, u128::from(self.rate.as_bps())) {
            (0, _) => now,
            (_, 0) => Instant::FAR_FUTURE,
            (missing, rate) => {
                now + Duration::from_nanos(u64::try_from(missing.div_ceil(rate)).unwrap_or(u64::MAX))
            }
        }
    }

    fn room(&self) -> u128 {
        u128::from(self.burst) * OCTET
    }

    fn fill(&mut self, now: Instant) {
        let came = u128::from(self.rate.as_bps()) * u128::from(now.since(self.at).as_nanos());
        self.level = self.level.saturating_add(came).min(self.room());
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_fills_at_its_rate_up_to_its_burst() {
        let mut bucket = Bucket::new(Instant::ZERO, BitRate::from_kbps(8), 1000);
        assert_eq!(bucket.available(Instant::ZERO), 1000);
        bucket.take(Instant::ZERO, 1000);
        assert_eq!(bucket.ready_at(Instant::ZERO, 1), Instant::from_millis(1));
        assert_eq!(bucket.ready_at(Instant::ZERO, 5000), Instant::from_secs(5));
        assert_eq!(bucket.available(Instant::from_micros(1999)), 1);
        bucket.take(Instant::from_millis(2), 2);
        assert_eq!(bucket.available(Instant::from_secs(9)), 1000);
        bucket.take(Instant::from_secs(9), 600);
        bucket.give_back(100);
        assert_eq!(bucket.available(Instant::from_secs(9)), 500);
        bucket.give_back(u64::MAX);
        assert_eq!(bucket.available(Instant::from_secs(9)), 1000);
    }

    #[test]
    fn another_rate_holds_from_then_on() {
        let mut bucket = Bucket::new(Instant::ZERO, BitRate::ZERO, 10);
        bucket.take(Instant::ZERO, 10);
        assert_eq!(bucket.ready_at(Instant::from_secs(1), 1), Instant::FAR_FUTURE);
        bucket.set_rate(Instant::from_secs(1), BitRate::from_bps(8), 100);
        assert_eq!(bucket.available(Instant::from_secs(3)), 2);
        bucket.set_rate(Instant::from_secs(3), BitRate::from_kbps(8), 1);
        assert_eq!(bucket.available(Instant::from_secs(3)), 1);
        assert_eq!(bucket.available(Instant::from_secs(2)), 1);
    }

    proptest! {
        #[test]
        fn it_gives_what_came_and_no_more(
            bps in 1u64..100_000_000_000,
            burst in 1u64..1_000_000,
            steps in prop::collection::vec((0u64..100_000, 0u64..100_000), 1..200),
        ) {
            let rate = BitRate::from_bps(bps);
            let mut bucket = Bucket::new(Instant::ZERO, rate, burst);
            let (mut now, mut taken) = (Instant::ZERO, 0);
            for (nanos, wanted) in steps {
                now += Duration::from_nanos(nanos);
                let octets = wanted.min(bucket.available(now));
                bucket.take(now, octets);
                taken += octets;
                let ready = bucket.ready_at(now, burst);
                prop_assert!(bucket.clone().available(ready) == burst);
                let came = u128::from(bps) * u128::from(now.as_nanos()) / OCTET;
                prop_assert!(u128::from(taken) <= came + u128::from(burst));
            }
        }

        #[test]
        fn extremes_do_no_harm(bps: u64, burst: u64, at: u64, octets: u64) {
            let mut bucket = Bucket::new(Instant::from_nanos(at), BitRate::from_bps(bps), burst);
            bucket.take(Instant::ZERO, octets);
            let _ = bucket.ready_at(Instant::FAR_FUTURE, octets);
            bucket.give_back(octets);
            prop_assert!(bucket.available(Instant::FAR_FUTURE) <= burst);
        }
    }
}
