//! Is a connection over all paths ever slower than TCP over the best of them?
//!
//! Sets of two paths with eight factors (rate, round-trip time, queue and loss of each) from a WSP design over the widest
//! ranges of Paasch 2014, chapter 3, or paths and sizes drawn anew each time ([`Cases`]). Over each set, each workload is carried by plain TCP over each path alone, and by
//! Multipath TCP, opened over either path. What plain TCP gets on a path is that path's capacity; the aggregation benefit
//! follows.

mod cases;
mod writers;

use std::num::NonZeroUsize;

use polypath_congestion as congestion;
use polypath_units::Duration;
use serde::Serialize;

use cases::Case;
pub use cases::Cases;
pub use writers::{LoadResult, WriterSample, Writers, WritersResult};

use crate::metrics::{Distribution, aggregation_benefit};
use crate::run::{Buffer, InitialPath, in_parallel};
use crate::{Variant, Workload, run_set};

/// What to compare over which sets.
#[derive(Clone, Debug)]
pub struct NeverSlower {
    /// How many sets of paths.
    pub sets: usize,
    /// How often a bulk transfer is repeated; the mean counts. Shorter transfers, whose times depend more on which packets
    /// are lost, are repeated more often: see [`NeverSlower::repeats_of`].
    pub repeats: u64,
    /// Seed of the design and of the runs.
    pub seed: u64,
    /// What is carried, over which paths.
    pub cases: Cases,
    /// Over all paths; its initial path is set here.
    pub multipath: Variant,
    /// Congestion control of plain TCP over each path.
    pub single_path: congestion::Policy,
    /// With loss; without, the loss factors have no meaning.
    pub loss: bool,
    /// Threads.
    pub jobs: NonZeroUsize,
}

/// One set, one workload, opened over one path.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Number of the set.
    pub set: usize,
    /// Seed of its first run.
    pub seed: u64,
    /// The paths, in words.
    pub paths: Vec<String>,
    /// What was carried, or among which sizes it is told.
    pub workload: String,
    /// Its size, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The path that the connection was opened over.
    pub initial_path: usize,
    /// Goodput over all paths, in bits per second: all bytes of the repeats over all their time.
    pub goodput_bps: f64,
    /// Goodput of plain TCP over each path.
    pub capacities_bps: Vec<f64>,
    /// Aggregation benefit.
    pub benefit: f64,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct NeverSlowerResult {
    /// How many sets of paths.
    pub sets: usize,
    /// Median of the benefits.
    pub median: f64,
    /// Their 1st percentile.
    pub p1: f64,
    /// The least.
    pub min: f64,
    /// Share of the samples that are slower than the best path alone.
    pub share_slower: f64,
    /// Share of those that are slower by more than 5 %.
    pub share_behind: f64,
    /// Seed of the run with the least.
    pub(crate) worst_seed: u64,
    /// Of each workload.
    pub workloads: Vec<WorkloadResult>,
    /// All of them, the worst first.
    #[serde(skip)]
    pub samples: Vec<Sample>,
}

/// The benefits of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadResult {
    /// What was carried.
    pub workload: String,
    /// Benefits over all sets and both initial paths.
    pub benefit: Distribution,
}

/// Less is more than the noise of what is lost where.
const BEHIND: f64 = -0.05;

impl NeverSlower {
    /// The workloads of the question: a minute of bulk transfer, and 64 KB to 32 MB.
    #[must_use]
    pub fn all_workloads() -> Vec<Workload> {
        let transfer = |bytes| Workload::Transfer { bytes, timeout: Duration::from_secs(4 * 3600) };
        let mut workloads = vec![Workload::Bulk { duration: Duration::from_secs(60) }];
        workloads.extend([64 << 10, 512 << 10, 4 << 20, 32 << 20].map(transfer));
        workloads
    }

    /// How often a workload is repeated.
    #[must_use]
    pub fn repeats_of(&self, workload: &Workload) -> u64 {
        let times = match workload {
            Workload::Transfer { bytes: ..100_000, .. } => 80,
            Workload::Transfer { bytes: ..1_000_000, .. } => 20,
            Workload::Transfer { bytes: ..10_000_000, .. } => 6,
            _ => 1,
        };
        times * self.repeats
    }

    /// Runs everything; `on_set` is told of each set that is done.
    pub fn run(&self, on_set: impl Fn() + Sync) -> NeverSlowerResult {
        let cases = self.cases.make(self.sets, self.seed, self.loss);
        let mut samples = in_parallel(self.jobs, &cases, |number, case| {
            let of_set = self.run_one(number, case);
            on_set();
            of_set
        })
        .concat();
        samples.sort_by(|one: &Sample, other| {
            one.benefit.total_cmp(&other.benefit).then(one.set.cmp(&other.set))
        });
        let benefit = |workload: Option<&str>| {
            let of_workload =
                samples.iter().filter(|sample| workload.is_none_or(|name| sample.workload == name));
            Distribution::of(of_workload.map(|sample| sample.benefit)).unwrap_or_default()
        };
        let all = benefit(None);
        let share_below = |limit: f64| {
            let below = samples.iter().filter(|sample| sample.benefit < limit).count();
            below as f64 / samples.len().max(1) as f64
        };
        NeverSlowerResult {
            sets: cases.len(),
            median: all.median,
            p1: all.p1,
            min: all.min,
            share_slower: share_below(0.0),
            share_behind: share_below(BEHIND),
            worst_seed: samples.first().map_or(0, |sample| sample.seed),
            workloads: self
                .cases
                .groups()
                .into_iter()
                .map(|workload| WorkloadResult { benefit: benefit(Some(&workload)), workload })
                .collect(),
            samples,
        }
    }

    /// All workloads over one set.
    fn run_one(&self, number: usize, case: &Case) -> Vec<Sample> {
        let set = &case.set;
        let first_seed = first_seed(self.seed, number);
        let mut samples = Vec::new();
        for workload in &case.workloads {
            // All bytes over all time: a loss at the wrong place makes one short transfer take many times as long as another,
            // and the median jumps between the two kinds where each is half of them.
            let goodput = |variant: &Variant| {
                let (mut bits, mut seconds) = (0.0, 0.0);
                for repeat in 0..self.repeats_of(workload) {
                    let outcome = run_set(set, variant, workload, first_seed + repeat);
                    bits += outcome.received_bytes as f64 * 8.0;
                    seconds += outcome.received_bytes as f64 * 8.0 / outcome.goodput_bps.max(1e-9);
                }
                if seconds > 0.0 { bits / seconds } else { 0.0 }
            };
            let capacities_bps: Vec<f64> = (0..set.paths.len())
                .map(|path| {
                    let single = Variant::single_path(path, self.single_path.clone());
                    goodput(&Variant { buffer: Buffer::Stack, ..single })
                })
                .collect();
            for &initial_path in &case.initial_paths {
                let variant = self.multipath.clone().opened_over(InitialPath::Number(initial_path));
                let goodput_bps = goodput(&variant);
                samples.push(Sample {
                    set: number,
                    seed: first_seed,
                    paths: set.paths.iter().map(ToString::to_string).collect(),
                    bytes: match workload {
                        Workload::Transfer { bytes, .. } => Some(*bytes),
                        _ => None,
                    },
                    workload: self.cases.group_of(workload),
                    initial_path,
                    goodput_bps,
                    benefit: aggregation_benefit(goodput_bps, &capacities_bps),
                    capacities_bps: capacities_bps.clone(),
                });
            }
        }
        samples
    }
}

/// The seed of the first run over set `number`.
fn first_seed(seed: u64, number: usize) -> u64 {
    seed.wrapping_mul(1_000_003).wrapping_add(number as u64 * 1000)
}

#[cfg(test)]
mod tests {
    use polypath_mptcp::scheduler;

    use super::*;

    /// A small form of `polypath bench never-slower`, so that a change that makes two paths slower than one is noticed.
    #[test]
    fn two_paths_are_no_slower_than_the_better_one() {
        let transfer = |bytes| Workload::Transfer { bytes, timeout: Duration::from_secs(3600) };
        for (loss, acquainted, seed) in [(true, true, 3), (true, false, 3), (false, false, 4)] {
            let comparison = NeverSlower {
                sets: 16,
                // Without loss a repeat is the same again.
                repeats: if loss { 5 } else { 1 },
                seed,
                cases: Cases::Listed(vec![
                    Workload::Bulk { duration: Duration::from_secs(20) },
                    transfer(64 << 10),
                    transfer(4 << 20),
                ]),
                multipath: Variant {
                    buffer: Buffer::Stack,
                    acquainted,
                    ..Variant::multipath("default", scheduler::Policy::default(), polypath_congestion::CUBIC)
                },
                single_path: polypath_congestion::CUBIC,
                loss,
                jobs: NonZeroUsize::new(2).expect("two"),
            };
            let result = comparison.run(|| ());
            let behind: Vec<_> = result.samples.iter().filter(|sample| sample.benefit < -0.05).collect();
            let figures = format!(
                "loss {loss}, acquainted {acquainted}: median {:.3}, 1st percentile {:.3}, {} of {} behind: {behind:#?}",
                result.median,
                result.p1,
                behind.len(),
                result.samples.len()
            );
            println!("{figures}");
            assert!(result.median >= if loss { 0.3 } else { -0.005 }, "{figures}");
            // The bar is 1 in 100 over 1 000 sets; of so few, with so few repeats, a thin path or two are among them. Between
            // strangers, the better path may be the one that joins.
            let most = result.samples.len() / if acquainted { 20 } else { 9 };
            assert!(behind.len() <= most, "{figures}");
        }
    }

    /// What the README claims of strangers, over a part of the sets that it claims it of.
    #[test]
    fn strangers_are_no_slower_over_paths_that_are_drawn() {
        for (changing, behind) in [(false, -0.05), (true, -0.10)] {
            let comparison = NeverSlower {
                sets: 100,
                repeats: 1,
                seed: 1,
                cases: Cases::Drawn { changing },
                multipath: Variant {
                    buffer: Buffer::Stack,
                    ..Variant::multipath("default", scheduler::Policy::default(), polypath_congestion::CUBIC)
                },
                single_path: polypath_congestion::CUBIC,
                loss: false,
                jobs: NonZeroUsize::new(2).expect("two"),
            };
            let result = comparison.run(|| ());
            let count = result.samples.iter().filter(|sample| sample.benefit < behind).count();
            let figures = format!(
                "changing {changing}: median {:.3}, least {:.3}, {count} of {} below {behind}",
                result.median,
                result.min,
                result.samples.len()
            );
            println!("{figures}");
            assert!(result.median >= if changing { 0.5 } else { 0.65 }, "{figures}");
            assert!(count <= 1, "{figures}");
        }
    }
}
