//! Which way gets the next of many files. No clock, socket or task.
//!
//! Each file goes to the way on which it is likely there first. What files took, and how many shared the way then, tells its rate, and
//! so how long one more takes: the ways' shares come to be those of their rates. Where files wait for round trips rather than for
//! rates, more of them take no longer, and the way with the short round trip gets them.

use polypath_units::{Duration, Instant};

/// Of what a file took, in the mean over the last ones.
const WEIGHT: f64 = 0.125;
/// So many files are given to a way before anything is known of it, where another one is known.
const MOST_UNKNOWN: usize = 2;
/// A way that failed rests, at first and at most.
const LEAST_REST: Duration = Duration::from_millis(200);
const MOST_REST: Duration = Duration::from_secs(5);
/// What is known of a way that got nothing for so long is half of the truth.
const STALE: Duration = Duration::from_secs(1);

/// The ways, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Shares {
    ways: Vec<Way>,
}

#[derive(Debug)]
struct Way {
    /// Seconds of a file.
    takes: Option<f64>,
    /// The least of it.
    least: f64,
    /// How many were under way then, each counted itself.
    beside: f64,
    in_flight: usize,
    brought: u64,
    failures: u32,
    rests_until: Instant,
    last: Instant,
}

impl Shares {
    /// The next way.
    pub(super) fn add(&mut self, now: Instant) {
        self.ways.push(Way {
            takes: None,
            least: f64::INFINITY,
            beside: 1.0,
            in_flight: 0,
            brought: 0,
            failures: 0,
            rests_until: now,
            last: now,
        });
    }

    /// The way for the next file, which counts as under way on it; of those only that are in `allowed`, if any is.
    pub(super) fn choose(&mut self, now: Instant, is_allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let mut usable: Vec<usize> = (0..self.ways.len()).filter(|at| is_allowed(*at)).collect();
        if usable.iter().any(|at| self.ways[*at].rests_until <= now) {
            usable.retain(|at| self.ways[*at].rests_until <= now);
        } else {
            // None is at hand: the one that is first again.
            let first = usable.into_iter().min_by_key(|at| self.ways[*at].rests_until)?;
            usable = vec![first];
        }
        for at in &usable {
            self.ways[*at].forget(now);
        }
        let is_any_known = usable.iter().any(|at| self.ways[*at].takes.is_some());
        let unknown = usable.iter().copied().filter(|at| {
            let way = &self.ways[*at];
            way.takes.is_none() && (!is_any_known || way.in_flight < MOST_UNKNOWN)
        });
        let takes = |at: &usize| self.ways[*at].one_more();
        let at = match unknown.min_by_key(|at| self.ways[*at].in_flight) {
            Some(at) => at,
            None => usable.into_iter().min_by(|one, other| takes(one).total_cmp(&takes(other)))?,
        };
        self.ways[at].in_flight += 1;
        Some(at)
    }

    /// A file came over a way.
    pub(super) fn handle_brought(&mut self, now: Instant, at: usize, took: Duration) {
        let way = &mut self.ways[at];
        let took = took.as_secs_f64();
        let beside = way.in_flight.max(1) as f64;
        (way.takes, way.beside) = match way.takes {
            Some(takes) => {
                (Some(takes + (took - takes) * WEIGHT), way.beside + (beside - way.beside) * WEIGHT)
            }
            None => (Some(took), beside),
        };
        way.least = way.least.min(took);
        (way.in_flight, way.failures, way.last) = (way.in_flight.saturating_sub(1), 0, now);
        way.brought += 1;
    }

    /// A way did not bring a file, for no fault of its own.
    pub(super) fn handle_left(&mut self, at: usize) {
        let way = &mut self.ways[at];
        way.in_flight = way.in_flight.saturating_sub(1);
    }

    /// A way could not bring a file.
    pub(super) fn handle_failed(&mut self, now: Instant, at: usize) {
        self.handle_left(at);
        let way = &mut self.ways[at];
        // All that were under way on it fail together.
        if way.rests_until <= now {
            let rest = LEAST_REST * (1 << way.failures.min(5));
            way.rests_until = now + rest.min(MOST_REST);
            way.failures += 1;
        }
    }

    /// Whether a way has brought files: what its server says is the server's word.
    pub(super) fn is_proven(&self, at: usize) -> bool {
        self.ways[at].brought > 0
    }

    /// So long may a file take that comes over a way, likely.
    pub(super) fn takes(&self, at: usize) -> Option<Duration> {
        self.ways[at].takes.map(Duration::from_secs_f64)
    }

    pub(super) fn len(&self) -> usize {
        self.ways.len()
    }
}

impl Way {
    /// Seconds of a file that is given to it now.
    fn one_more(&self) -> f64 {
        let takes = self.takes.unwrap_or(f64::INFINITY);
        self.least.min(takes).max(takes * (self.in_flight + 1) as f64 / self.beside)
    }

    fn forget(&mut self, now: Instant) {
        if self.in_flight == 0 && now.since(self.last) > STALE {
            self.takes = self.takes.map(|takes| takes / 2.0);
            self.last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the files went over each way, if each carries one file after the other at its rate, and each has its round trip.
    fn shared(ways: &[(f64, f64)], most: usize, files: usize) -> Vec<usize> {
        let (mut shares, mut counts) = (Shares::default(), vec![0; ways.len()]);
        ways.iter().for_each(|_| shares.add(Instant::ZERO));
        // When each is done, its way, and when it was asked for.
        let mut under_way: Vec<(f64, usize, f64)> = Vec::new();
        let mut free_at = vec![0.0; ways.len()];
        let mut now = 0.0;
        for number in 0..files {
            if number >= most {
                let first = (0..under_way.len()).min_by(|a, b| under_way[*a].0.total_cmp(&under_way[*b].0));
                let (done, way, asked) = under_way.swap_remove(first.expect("one is under way"));
                now = done;
                let at = Instant::ZERO + Duration::from_secs_f64(done);
                shares.handle_brought(at, way, Duration::from_secs_f64(done - asked));
            }
            let way = shares.choose(Instant::ZERO + Duration::from_secs_f64(now), |_| true).expect("a way");
            let (files_per_second, round_trip) = ways[way];
            free_at[way] = f64::max(free_at[way], now) + 1.0 / files_per_second;
            under_way.push((f64::max(free_at[way], now + round_trip), way, now));
            counts[way] += 1;
        }
        counts
    }

    #[test]
    fn ways_share_files_by_their_rates() {
        // All of them would be there after 10 s.
        let ways = [(100.0, 0.01), (400.0, 0.01), (500.0, 0.05)];
        let counts = shared(&ways, 50, 10_000);
        for (count, (files_per_second, _)) in counts.iter().zip(ways) {
            assert!(*count as f64 / files_per_second < 12.0, "{counts:?}");
        }
    }

    #[test]
    fn where_files_wait_for_round_trips_the_way_with_the_short_one_gets_them() {
        let counts = shared(&[(1e6, 0.2), (1e6, 0.01)], 50, 10_000);
        assert!(counts[1] > 9500, "{counts:?}");
    }

    #[test]
    fn a_way_that_fails_rests_and_is_tried_again() {
        let at = Instant::from_millis;
        let mut shares = Shares::default();
        shares.add(at(0));
        shares.add(at(0));
        assert_eq!([shares.choose(at(0), |_| true), shares.choose(at(0), |_| true)], [Some(0), Some(1)]);
        shares.handle_failed(at(1), 0);
        assert_eq!([shares.choose(at(2), |_| true), shares.choose(at(2), |_| true)], [Some(1); 2]);
        // Those that failed with it are no further failures.
        shares.handle_failed(at(3), 0);
        shares.handle_brought(at(100), 1, Duration::from_millis(98));
        assert!(shares.is_proven(1) && !shares.is_proven(0));
        assert_eq!(shares.choose(at(202), |_| true), Some(0));
        // Where nobody may have the file but one that rests, it has it.
        shares.handle_failed(at(203), 0);
        assert_eq!(shares.choose(at(204), |way| way == 0), Some(0));
        assert_eq!(shares.choose(at(204), |_| false), None);
    }
}
