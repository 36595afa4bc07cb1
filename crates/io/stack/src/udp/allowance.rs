//! How much is done in a second for addresses that are not proven.

use polypath_units::{Duration, Instant};

/// Places for the shares of source networks. Where two networks share a place, they share its share.
const PLACES: usize = 1024;

/// At most one second's worth may be taken at once.
const BURST: Duration = Duration::from_secs(1);

/// A rate in all, and a share of it for each source network: 8 KB, however many networks there are.
///
/// Each taking moves a deadline (the generic cell rate algorithm), so that under overload takings are spread evenly over time,
/// and nobody whose retries come in step is always too late.
#[derive(Debug)]
pub(super) struct Allowance {
    in_all: Pace,
    of_source: Pace,
    deadline: Instant,
    /// Empty until something is taken: most ends are never reached.
    deadlines: Vec<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Pace {
    interval: Duration,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Self { interval: Duration::from_nanos(1_000_000_000 / u64::from(per_second.max(1))) }
    }

    /// The deadline after one more, if that is allowed now.
    fn after(self, now: Instant, deadline: Instant) -> Option<Instant> {
        let next = deadline.max(now) + self.interval;
        (next <= now + BURST).then_some(next)
    }
}

impl Allowance {
    /// So much in a second, and so much of it for one source network.
    pub(super) fn new(per_second: u32, per_second_of_source: u32) -> Self {
        let (in_all, of_source) = (Pace::new(per_second), Pace::new(per_second_of_source));
        Self { in_all, of_source, deadline: Instant::ZERO, deadlines: Vec::new() }
    }

    /// Whether the source network at `place` may have one more now. If so, it is taken.
    pub(super) fn take(&mut self, now: Instant, place: u64) -> bool {
        if self.deadlines.is_empty() {
            self.deadlines.resize(PLACES, Instant::ZERO);
        }
        let own = &mut self.deadlines[(place % PLACES as u64) as usize];
        let (in_all, of_source) = (self.in_all.after(now, self.deadline), self.of_source.after(now, *own));
        let (Some(in_all), Some(of_source)) = (in_all, of_source) else { return false };
        (self.deadline, *own) = (in_all, of_source);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_secs(1000) + Duration::from_millis(millis)
    }

    #[test]
    fn one_source_takes_its_share_and_all_take_no_more_than_there_is() {
        let mut allowance = Allowance::new(1000, 100);
        assert_eq!((0..500).filter(|_| allowance.take(at(0), 1)).count(), 100);
        assert_eq!((0..5000).filter(|place| allowance.take(at(0), *place)).count(), 900);
        assert!(!allowance.take(at(0), 7), "all is taken");
        assert_eq!((0..500).filter(|_| allowance.take(at(500), 1)).count(), 50);
    }

    #[test]
    fn who_comes_again_each_second_is_not_always_too_late() {
        let mut allowance = Allowance::new(1000, 1000);
        let mut served = 0;
        for second in 0..20 {
            for micros in 0..100_000 {
                let now = at(second * 1000) + Duration::from_micros(micros * 10);
                allowance.take(now, micros);
                if micros == 70_000 {
                    served += (0..100)
                        .filter(|tick| allowance.take(now + Duration::from_micros(tick * 20), 7))
                        .count();
                }
            }
        }
        assert!(served >= 20, "{served}");
    }
}
