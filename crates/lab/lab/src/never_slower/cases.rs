//! Which paths, which sizes: what the question is asked of.

use polypath_units::{BitRate, Duration};

use crate::design::{Point, latin_hypercube, wsp};
use crate::run::RateChange;
use crate::{PathSet, PathSpec, Workload};

/// What is tried.
#[derive(Clone, Debug, PartialEq)]
pub enum Cases {
    /// Sets of two paths from a WSP design over the widest ranges of Paasch 2014, chapter 3; over each, each of these, opened over either
    /// path.
    Listed(Vec<Workload>),
    /// Sets of two paths, and a size for each, log-uniform over the ranges below; opened over the first path.
    Drawn {
        /// One of the paths falls to a tenth of its rate on the way, or rises from it.
        changing: bool,
    },
}

/// One set of paths, and what is carried over it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) set: PathSet,
    pub(super) workloads: Vec<Workload>,
    /// The paths that a connection is opened over, in turn.
    pub(super) initial_paths: Vec<usize>,
}

const PATHS: usize = 2;
/// Rate, round-trip time, queue and loss of a path.
const FACTORS: usize = 4;
/// Rate, round-trip time and queue of each path, and the size.
const DRAWN_FACTORS: usize = PATHS * 3 + 1;
/// Which path changes, which way, and when.
const CHANGE_FACTORS: usize = 3;
/// Of a rate that falls, what is left.
const FALLS_TO: f64 = 0.1;
/// After so long nobody waits for a transfer.
const TIMEOUT: Duration = Duration::from_secs(4 * 3600);

impl Cases {
    pub(super) fn make(&self, sets: usize, seed: u64, loss: bool) -> Vec<Case> {
        match self {
            Self::Listed(workloads) => listed(sets, seed, loss)
                .map(|set| Case {
                    initial_paths: (0..set.paths.len()).collect(),
                    set,
                    workloads: workloads.clone(),
                })
                .collect(),
            Self::Drawn { changing } => drawn(sets, seed, *changing),
        }
    }

    /// What is carried, in words, as results are grouped.
    pub(super) fn groups(&self) -> Vec<String> {
        match self {
            Self::Listed(workloads) => workloads.iter().map(Workload::to_string).collect(),
            Self::Drawn { .. } => SIZES.iter().map(|(_, name)| (*name).to_owned()).collect(),
        }
    }

    /// The group of a workload.
    pub(super) fn group_of(&self, workload: &Workload) -> String {
        match (self, workload) {
            (Self::Drawn { .. }, Workload::Transfer { bytes, .. }) => SIZES
                .iter()
                .find(|(below, _)| bytes < below)
                .map_or_else(|| workload.to_string(), |(_, name)| (*name).to_owned()),
            _ => workload.to_string(),
        }
    }
}

/// Drawn sizes below these are told together.
const SIZES: [(u64, &str); 4] = [
    (2_000_000, "0.5 to 2 MB"),
    (10_000_000, "2 to 10 MB"),
    (50_000_000, "10 to 50 MB"),
    (u64::MAX, "50 to 200 MB"),
];

/// Rates of 0.1 to 100 Mbit/s, round-trip times up to 400 ms, queues up to 2 s, loss up to 2.5 %.
fn listed(sets: usize, seed: u64, loss: bool) -> impl Iterator<Item = PathSet> {
    let path = move |factors: &[f64]| PathSpec {
        rate: BitRate::from_bps((1e5 + factors[0] * (1e8 - 1e5)) as u64),
        rtt: Duration::from_secs_f64(0.4 * factors[1]),
        queue: Duration::from_secs_f64(2.0 * factors[2]),
        loss: if loss { 0.025 * factors[3] } else { 0.0 },
        change: None,
    };
    wsp(sets, PATHS * FACTORS, seed)
        .into_iter()
        .map(move |point| PathSet::from(point.chunks(FACTORS).map(path).collect::<Vec<_>>()))
}

/// Rates of 0.5 to 200 Mbit/s, round-trip times of 2 to 400 ms, queues of 5 to 1000 ms, sizes of 0.5 to 200 MB.
fn drawn(sets: usize, seed: u64, changing: bool) -> Vec<Case> {
    let factors = DRAWN_FACTORS + if changing { CHANGE_FACTORS } else { 0 };
    latin_hypercube(sets, factors, seed).iter().map(drawn_case).collect()
}

fn drawn_case(point: &Point) -> Case {
    let log = |factor: f64, least: f64, most: f64| least * (most / least).powf(factor);
    let path = |factors: &[f64]| PathSpec {
        rate: BitRate::from_bps(log(factors[0], 0.5e6, 200e6) as u64),
        rtt: Duration::from_secs_f64(log(factors[1], 0.002, 0.4)),
        queue: Duration::from_secs_f64(log(factors[2], 0.005, 1.0)),
        loss: 0.0,
        change: None,
    };
    let (of_paths, rest) = point.split_at(PATHS * 3);
    let mut paths: Vec<PathSpec> = of_paths.chunks(3).map(path).collect();
    let bytes = log(rest[0], 5e5, 2e8) as u64;
    if let [_, which, way, when] = *rest {
        let least_s = paths.iter().map(|path| path.expected_time_s(bytes)).fold(f64::INFINITY, f64::min);
        let number = (which * PATHS as f64) as usize;
        if let Some(path) = paths.get_mut(number) {
            let full = path.rate;
            let low = BitRate::from_bps((full.as_bps() as f64 * FALLS_TO) as u64);
            let falls = way < 0.5;
            path.rate = if falls { full } else { low };
            let rate = if falls { low } else { full };
            path.change = Some(RateChange { after: Duration::from_secs_f64(when * least_s), rate });
        }
    }
    Case {
        set: PathSet::from(paths),
        workloads: vec![Workload::Transfer { bytes, timeout: TIMEOUT }],
        initial_paths: vec![0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listed_sets_reach_over_the_ranges() {
        let paths: Vec<PathSpec> = listed(100, 1, true).flat_map(|set| set.paths).collect();
        assert_eq!(paths.len(), 200);
        let most = |value: fn(&PathSpec) -> f64| paths.iter().map(value).fold(0.0, f64::max);
        assert!((95.0..=100.0).contains(&most(|path| path.rate.as_mbps_f64())));
        assert!((0.38..=0.4).contains(&most(|path| path.rtt.as_secs_f64())));
        assert!((1.9..=2.0).contains(&most(|path| path.queue.as_secs_f64())));
        assert!((0.023..=0.025).contains(&most(|path| path.loss)));
        assert!(listed(100, 1, false).flat_map(|set| set.paths).all(|path| path.loss <= 0.0));
    }

    #[test]
    fn half_of_what_is_drawn_is_below_the_middle_of_its_range() {
        let cases = Cases::Drawn { changing: true }.make(200, 1, false);
        let below =
            |limit: f64, of: &dyn Fn(&Case) -> f64| cases.iter().filter(|case| of(case) < limit).count();
        let size = |case: &Case| match case.workloads[0] {
            Workload::Transfer { bytes, .. } => bytes as f64,
            _ => 0.0,
        };
        assert_eq!(below(1e7, &size), 100);
        let full_mbps = |path: &PathSpec| {
            path.change.map_or(path.rate, |change| path.rate.max(change.rate)).as_mbps_f64()
        };
        assert_eq!(below(10.0, &|case| full_mbps(&case.set.paths[0])), 100);
        assert_eq!(below(0.028_284, &|case| case.set.paths[1].rtt.as_secs_f64()), 100);
        let falling = |case: &Case| {
            let falls = |path: &PathSpec| path.change.is_some_and(|change| change.rate < path.rate);
            f64::from(u8::from(case.set.paths.iter().any(falls)))
        };
        assert_eq!(below(0.5, &falling), 100);
        assert!(
            cases.iter().all(|case| case.set.paths.iter().filter(|path| path.change.is_some()).count() == 1)
        );
    }
}
