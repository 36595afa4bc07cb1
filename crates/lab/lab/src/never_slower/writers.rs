//! Does a program that writes at its own pace wait longer over all paths than over the best of them?
//!
//! Over paths that are drawn, a block is written at even intervals, at a share of what both paths carry together. What counts is how
//! long blocks take from their writing to their arrival: the 99th percentile, beside that of plain TCP on the path where it is least.

use std::num::NonZeroUsize;

use polypath_congestion as congestion;
use polypath_units::{BitRate, Duration};
use serde::Serialize;

use super::{Cases, first_seed};
use crate::metrics::Distribution;
use crate::run::{Buffer, InitialPath, in_parallel};
use crate::{PathSet, PathSpec, Variant, Workload, run_set};

/// What to compare over which sets.
#[derive(Clone, Debug)]
pub struct Writers {
    /// How many sets of two paths.
    pub sets: usize,
    /// Shares of what both paths carry together at which is written.
    pub loads: Vec<f64>,
    /// For how long.
    pub duration: Duration,
    /// Seed of the sets and of the runs.
    pub seed: u64,
    /// Over all paths; opened over the first.
    pub multipath: Variant,
    /// Congestion control of plain TCP over each path.
    pub single_path: congestion::Policy,
    /// Threads.
    pub jobs: NonZeroUsize,
}

/// One set, one load.
#[derive(Clone, Debug, Serialize)]
pub struct WriterSample {
    /// Number of the set.
    pub set: usize,
    /// The paths, in words.
    pub paths: Vec<String>,
    /// Share of what both carry.
    pub load: f64,
    /// The same in bits per second.
    pub rate_bps: u64,
    /// 99th percentile of the delays of blocks over all paths; `None` if not all arrived.
    pub delay_p99_s: Option<f64>,
    /// The same of plain TCP over each path.
    pub alone_p99_s: Vec<Option<f64>>,
    /// Over all paths, over the least alone. 0 where no path alone brought all, and infinite where all paths did not, but one would.
    pub ratio: f64,
}

/// The answer for one load.
#[derive(Clone, Debug, Serialize)]
pub struct LoadResult {
    /// Share of what both paths carry.
    pub load: f64,
    /// Share of the sets with a ratio of 1 at most.
    pub share_held: f64,
    /// Share of those with a ratio of 1.01 at most: options of 20 bytes take a hundredth of what a path carries.
    pub share_within_percent: f64,
    /// Ratios.
    pub ratio: Distribution,
    /// By how much the 99th percentile is longer than alone, in seconds; below 0 where it is shorter.
    pub excess_s: Distribution,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct WritersResult {
    /// How many sets of paths.
    pub sets: usize,
    /// Of each load.
    pub loads: Vec<LoadResult>,
    /// All of them, the worst first.
    #[serde(skip)]
    pub samples: Vec<WriterSample>,
}

const BLOCK_BYTES: u64 = 8000;

impl Writers {
    /// Runs everything; `on_set` is told of each set that is done.
    pub fn run(&self, on_set: impl Fn() + Sync) -> WritersResult {
        let cases = Cases::Drawn { changing: false }.make(self.sets, self.seed, false);
        let mut samples = in_parallel(self.jobs, &cases, |number, case| {
            let of_set = self.run_one(number, &case.set);
            on_set();
            of_set
        })
        .concat();
        samples.sort_by(|one: &WriterSample, other| {
            other
                .ratio
                .total_cmp(&one.ratio)
                .then(one.set.cmp(&other.set))
                .then(one.load.total_cmp(&other.load))
        });
        let loads = self.loads.iter().map(|&load| {
            let of_load = || samples.iter().filter(|sample| sample.load.total_cmp(&load).is_eq());
            let share_up_to = |most: f64| {
                let held = of_load().filter(|sample| sample.ratio <= most).count();
                held as f64 / of_load().count().max(1) as f64
            };
            LoadResult {
                load,
                share_held: share_up_to(1.0),
                share_within_percent: share_up_to(1.01),
                ratio: Distribution::of(of_load().map(|sample| sample.ratio)).unwrap_or_default(),
                excess_s: Distribution::of(of_load().filter_map(WriterSample::excess_s)).unwrap_or_default(),
            }
        });
        WritersResult { sets: cases.len(), loads: loads.collect(), samples }
    }

    /// All loads over one set.
    fn run_one(&self, number: usize, set: &PathSet) -> Vec<WriterSample> {
        let seed = first_seed(self.seed, number);
        let both_bps = set.paths.iter().map(PathSpec::capacity_bps).sum::<f64>();
        let of_load = |load: f64| {
            let rate = BitRate::from_bps((both_bps * load) as u64);
            let workload =
                Workload::Blocks { block_bytes: BLOCK_BYTES, rate: Some(rate), duration: self.duration };
            let delay = |variant: &Variant| {
                let blocks = run_set(set, variant, &workload, seed).blocks?;
                (blocks.arrived == blocks.made).then_some(blocks.p99_s)
            };
            let alone = |path| {
                let single = Variant::single_path(path, self.single_path.clone());
                delay(&Variant { buffer: Buffer::Stack, ..single })
            };
            let alone_p99_s: Vec<Option<f64>> = (0..set.paths.len()).map(alone).collect();
            let delay_p99_s = delay(&self.multipath.clone().opened_over(InitialPath::Number(0)));
            WriterSample {
                set: number,
                paths: set.paths.iter().map(ToString::to_string).collect(),
                load,
                rate_bps: rate.as_bps(),
                ratio: ratio(delay_p99_s, least(&alone_p99_s)),
                delay_p99_s,
                alone_p99_s,
            }
        };
        self.loads.iter().map(|&load| of_load(load)).collect()
    }
}

impl WriterSample {
    fn excess_s(&self) -> Option<f64> {
        Some(self.delay_p99_s? - least(&self.alone_p99_s)?)
    }
}

fn least(delays_s: &[Option<f64>]) -> Option<f64> {
    delays_s.iter().flatten().copied().min_by(f64::total_cmp)
}

fn ratio(all_s: Option<f64>, alone_s: Option<f64>) -> f64 {
    match (all_s, alone_s) {
        (Some(all_s), Some(alone_s)) => all_s / alone_s.max(1e-9),
        (_, None) => 0.0,
        (None, Some(_)) => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use polypath_mptcp::scheduler;

    use super::*;

    #[test]
    fn what_one_path_can_not_carry_arrives_sooner_over_two() {
        let writers = Writers {
            sets: 4,
            loads: vec![0.2, 0.8],
            duration: Duration::from_secs(5),
            seed: 1,
            multipath: Variant {
                buffer: Buffer::Stack,
                ..Variant::multipath("default", scheduler::Policy::default(), polypath_congestion::CUBIC)
            },
            single_path: polypath_congestion::CUBIC,
            jobs: NonZeroUsize::MIN,
        };
        let result = writers.run(|| ());
        assert_eq!((result.samples.len(), result.loads.len()), (8, 2));
        let is_sooner = |sample: &WriterSample| sample.load > 0.5 && sample.ratio < 0.5;
        assert!(result.samples.iter().any(is_sooner), "{:#?}", result.samples);
        assert!(result.samples.iter().all(|sample| sample.delay_p99_s.is_some_and(|delay_s| delay_s > 0.0)));
    }

    #[test]
    fn a_delay_that_never_ends_is_infinite() {
        assert_eq!(ratio(Some(2.0), Some(4.0)), 0.5);
        assert_eq!(ratio(None, Some(4.0)), f64::INFINITY);
        assert_eq!((ratio(None, None), ratio(Some(9.0), None)), (0.0, 0.0));
        assert_eq!(least(&[None, Some(3.0), Some(2.0)]), Some(2.0));
    }
}
