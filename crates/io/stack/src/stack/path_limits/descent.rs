//! How a limit comes down to its rate: in steps, since a sender that finds most of its window dropped at once fills the gaps for seconds, and the
//! other paths have to wait for that.

use polypath_units::{BitRate, Duration, Instant};

/// What passes in this time says how fast it has been.
const COUNT_FOR: Duration = Duration::from_millis(50);
/// Between two steps: a round trip or two, in which windows follow.
const STEP: Duration = Duration::from_millis(100);
/// A step leaves this much, as a loss leaves of a window of CUBIC, unless there would be too many steps.
const FACTOR: f64 = 0.7;
/// Most steps.
const MOST_STEPS: i32 = 9;
/// As seen from far above, what is less than this part is nothing.
const LEAST_PART: f64 = 1e-3;

/// The way from what passes to what is to pass.
#[derive(Clone, Debug)]
pub(super) struct Descent {
    target: BitRate,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// What passes is counted.
    Counting {
        since: Instant,
        bytes: u64,
    },
    /// It comes down from this rate.
    Falling {
        from: BitRate,
        steps: i32,
        taken: i32,
        next: Instant,
    },
    There,
}

impl Descent {
    /// From what will have passed without a limit; until that is known, there is none.
    pub(super) fn from_unknown(now: Instant, target: BitRate) -> Self {
        Self { target, state: State::Counting { since: now, bytes: 0 } }
    }

    /// From a known rate.
    pub(super) fn from(now: Instant, from: BitRate, target: BitRate) -> Self {
        let (high, low) = (from.as_bps() as f64, target.as_bps() as f64);
        let part = (low / high).max(LEAST_PART);
        let steps = if low < high { (part.ln() / FACTOR.ln()).ceil() as i32 } else { 1 };
        Self {
            target,
            state: State::Falling { from, steps: steps.clamp(1, MOST_STEPS), taken: 0, next: now },
        }
    }

    /// The rate at which the line is now; none is without a limit.
    pub(super) fn rate(&self) -> Option<BitRate> {
        match self.state {
            State::Counting { .. } => None,
            State::Falling { from, steps, taken, .. } if taken < steps => {
                let part = (self.target.as_bps() as f64 / from.as_bps() as f64).max(LEAST_PART);
                let left = part.powf(f64::from(taken) / f64::from(steps));
                Some(BitRate::from_bps((from.as_bps() as f64 * left) as u64).max(self.target))
            }
            _ => Some(self.target),
        }
    }

    /// So much passes.
    pub(super) fn count(&mut self, octets: u64) {
        if let State::Counting { bytes, .. } = &mut self.state {
            *bytes += octets;
        }
    }

    /// Whether the rate is another one from now on.
    pub(super) fn step(&mut self, now: Instant) -> bool {
        match &mut self.state {
            State::Counting { since, bytes } => {
                let time = now.since(*since);
                if time < COUNT_FOR {
                    return false;
                }
                *self = Self::from(now, BitRate::from_bytes_over(*bytes, time), self.target);
                self.step(now)
            }
            State::Falling { steps, taken, next, .. } => {
                if now < *next {
                    return false;
                }
                *next = now + STEP;
                *taken += 1;
                if taken >= steps {
                    self.state = State::There;
                }
                true
            }
            State::There => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rates of a descent, each with the millisecond at which it begins.
    fn rates(descent: &mut Descent, from_ms: u64) -> Vec<(u64, u64)> {
        let mut rates = Vec::new();
        for ms in from_ms..from_ms + 2000 {
            if descent.step(Instant::from_millis(ms)) {
                rates.push((ms, descent.rate().expect("a limit").as_bps() / 100_000));
            }
        }
        rates
    }

    #[test]
    fn it_comes_down_within_a_second_from_what_has_passed() {
        let target = BitRate::from_mbps(5);
        let mut descent = Descent::from_unknown(Instant::ZERO, target);
        // 100 Mbit/s.
        descent.count(625_000);
        assert!(!descent.step(Instant::from_millis(49)) && descent.rate().is_none());
        let expected = [
            (50, 716),
            (150, 513),
            (250, 368),
            (350, 264),
            (450, 189),
            (550, 135),
            (650, 97),
            (750, 69),
            (850, 50),
        ];
        assert_eq!(rates(&mut descent, 50), expected);
        assert_eq!(descent.rate(), Some(target));
    }

    #[test]
    fn what_has_passed_slowly_or_not_at_all_is_limited_at_once() {
        for octets in [0, 31_249] {
            let mut descent = Descent::from_unknown(Instant::ZERO, BitRate::from_mbps(5));
            descent.count(octets);
            assert_eq!(rates(&mut descent, 50), [(50, 50)]);
        }
    }

    proptest! {
        #[test]
        fn it_only_falls_and_ends_at_its_target(from: u64, target: u64) {
            let (from, target) = (BitRate::from_bps(from), BitRate::from_bps(target));
            let mut descent = Descent::from(Instant::ZERO, from, target);
            let mut last = from.max(target);
            let mut now = Instant::ZERO;
            for _ in 0..MOST_STEPS {
                descent.step(now);
                let rate = descent.rate().expect("a limit");
                prop_assert!(rate <= last && rate >= target);
                (last, now) = (rate, now + STEP);
            }
            prop_assert_eq!(last, target);
        }
    }
}
