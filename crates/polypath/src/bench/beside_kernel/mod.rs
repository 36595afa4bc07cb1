//! Is our client, or our sender, ever slower than TCP over the best path where the other end is the kernel? (Linux, root)
//!
//! Sets of two access links and a size are drawn; over each, in namespaces of their own with emulated links, the same bytes go by TCP over
//! each path alone, by the kernel's Multipath TCP at both ends, and by ours with the kernel at the other end. All of it is in real time, one
//! after the other, so that what else the machine does weighs on all.

pub mod scene;

use std::io;
use std::time::Duration;

use polypath_lab::design::latin_hypercube;
use polypath_lab::metrics::Distribution;
use polypath_mptcp::JudgePaths;
use polypath_net::{Namespace, stack};
use serde::Serialize;

use self::scene::{AccessLink, Scene, Transfer, Way};
use super::BenchError;
use super::host::run_ip;
use crate::demo::aggregation_benefit;

/// Less is more than the noise of a real machine.
const HELD: f64 = -0.05;
/// Drawn sizes are cut to what the best path carries in so many seconds, so that a set takes less than a minute.
const MOST_SECONDS: f64 = 10.0;
/// A transfer is given up after so many times as long as TCP took.
const PATIENCE: f64 = 8.0;
/// Rate, round-trip time and queue of each of two paths, and the size.
const FACTORS: usize = 7;

/// What to compare.
#[derive(Clone, Debug)]
pub struct BesideKernel {
    /// How many sets.
    pub sets: usize,
    /// Seed of the sets.
    pub seed: u64,
    /// Which end we are.
    pub ways: Vec<Way>,
    /// Whether our receiver judges paths.
    pub judge_paths: JudgePaths,
}

/// Two access links and a size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Set {
    /// The kernel's client opens its connections over the first.
    pub links: Vec<AccessLink>,
    /// How much is carried.
    pub bytes: u64,
}

/// What came of a set, one way.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Number of the set.
    pub number: usize,
    /// The set.
    #[serde(flatten)]
    pub set: Set,
    /// What we do.
    pub way: Way,
    /// TCP over each path alone, in bits a second.
    pub alone_bps: Vec<f64>,
    /// Our stack at one end.
    pub ours: Transfer,
    /// The kernel at both.
    pub kernel: Transfer,
    /// Aggregation benefit of ours.
    pub benefit: f64,
    /// That of the kernel's.
    pub kernel_benefit: f64,
    /// How often our receiver set a path aside.
    pub set_aside: u64,
}

/// All sets, one way.
#[derive(Clone, Debug, Serialize)]
pub struct WayResult {
    /// What we do.
    pub way: Way,
    /// Share of the sets in which ours is at -0.05 or above.
    pub share_held: f64,
    /// The same of the kernel's.
    pub kernel_share_held: f64,
    /// Half of the sets are above.
    pub median: f64,
    /// The same of the kernel's.
    pub kernel_median: f64,
    /// The least.
    pub min: f64,
    /// The same of the kernel's.
    pub kernel_min: f64,
    /// Ours, in all.
    pub benefit: Distribution,
    /// The kernel's.
    pub kernel_benefit: Distribution,
}

/// The answer. Its first figures are those of the first way: as a receiver, unless only sending was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct BesideKernelResult {
    /// Who is at the other end.
    pub peer: &'static str,
    /// How many sets.
    pub sets: usize,
    /// Their seed.
    pub seed: u64,
    /// Share of the sets in which ours is at -0.05 or above.
    pub share_held: f64,
    /// Half of the sets are above.
    pub median: f64,
    /// The same of the kernel at both ends.
    pub kernel_median: f64,
    /// Each way.
    pub ways: Vec<WayResult>,
    /// Load of the machine before and after (1 minute's average).
    pub load: [f64; 2],
    /// All of them, the worst first.
    pub samples: Vec<Sample>,
}

impl BesideKernel {
    /// The sets: 1 to 100 Mbit/s, round-trip times of 2 to 400 ms, queues of 5 to 1000 ms, 1 to 100 MB, all log-uniform; sizes are no more than
    /// the better path carries in ten seconds.
    #[must_use]
    pub fn draw(&self) -> Vec<Set> {
        let log = |factor: f64, least: f64, most: f64| least * (most / least).powf(factor);
        let set = |point: &Vec<f64>| {
            let link = |factors: &[f64]| AccessLink {
                mbit_per_s: log(factors[0], 1.0, 100.0),
                rtt_ms: log(factors[1], 2.0, 400.0),
                queue_ms: log(factors[2], 5.0, 1000.0),
            };
            let links: Vec<AccessLink> = point.chunks_exact(3).map(link).collect();
            let best = links.iter().map(|link| link.mbit_per_s).fold(0.0, f64::max);
            let megabytes = log(point.last().copied().unwrap_or(0.0), 1.0, 100.0);
            let bytes = (megabytes.min(best / 8.0 * MOST_SECONDS).max(1.0) * 1e6) as u64;
            Set { links, bytes }
        };
        latin_hypercube(self.sets, FACTORS, self.seed).iter().map(set).collect()
    }

    /// Runs everything; `on_sample` is told of each.
    ///
    /// # Errors
    /// What is missing: root, iproute2, the kernel's Multipath TCP.
    pub async fn run(&self, mut on_sample: impl FnMut(&Sample)) -> Result<BesideKernelResult, BenchError> {
        let load_before = load();
        let mut samples = Vec::new();
        for (number, set) in self.draw().into_iter().enumerate() {
            let alone = scene(&set)?.alone(set.bytes, Duration::from_secs(120)).await?;
            let alone_bps: Vec<f64> = alone.iter().map(Transfer::goodput_bps).collect();
            for &way in &self.ways {
                let sample = self.compare(number, &set, way, &alone_bps).await?;
                on_sample(&sample);
                samples.push(sample);
            }
        }
        samples.sort_by(|one, other| one.benefit.total_cmp(&other.benefit));
        let ways: Vec<WayResult> = self.ways.iter().map(|way| of_way(*way, &samples)).collect();
        let first = ways.first().ok_or_else(|| io::Error::other("nothing was asked for"))?;
        Ok(BesideKernelResult {
            peer: "kernel",
            sets: self.sets,
            seed: self.seed,
            share_held: first.share_held,
            median: first.median,
            kernel_median: first.kernel_median,
            load: [load_before, load()],
            ways,
            samples,
        })
    }

    async fn compare(
        &self,
        number: usize,
        set: &Set,
        way: Way,
        alone_bps: &[f64],
    ) -> Result<Sample, BenchError> {
        let best_bps = alone_bps.iter().copied().fold(0.0, f64::max);
        let limit = Duration::from_secs_f64(PATIENCE * set.bytes as f64 * 8.0 / best_bps.max(1e3) + 5.0);
        let by_kernel = scene(set)?;
        by_kernel.announce_paths(|namespace: &Namespace, arguments: &[&str]| {
            run_ip(namespace, arguments).map_err(io::Error::other)
        })?;
        let kernel = by_kernel.by_kernel(way, set.bytes, limit).await?;
        drop(by_kernel);
        let connection =
            polypath_mptcp::ConnectionConfig { judge_paths: self.judge_paths, ..stack::default_connection() };
        let counted = |stack: &polypath_net::Stack| stack.mib().paths_set_aside;
        let (ours, set_aside) = scene(set)?.by_us(connection, way, set.bytes, limit, counted).await?;
        Ok(Sample {
            number,
            set: set.clone(),
            way,
            benefit: aggregation_benefit(ours.goodput_bps(), alone_bps),
            kernel_benefit: aggregation_benefit(kernel.goodput_bps(), alone_bps),
            alone_bps: alone_bps.to_vec(),
            ours,
            kernel,
            set_aside,
        })
    }
}

fn scene(set: &Set) -> Result<Scene, BenchError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BenchError::Namespaces(io::ErrorKind::PermissionDenied.into()));
    }
    Ok(Scene::new(&set.links)?)
}

fn of_way(way: Way, samples: &[Sample]) -> WayResult {
    let of = |benefit: fn(&Sample) -> f64| {
        let benefits: Vec<f64> = samples.iter().filter(|sample| sample.way == way).map(benefit).collect();
        let held = benefits.iter().filter(|benefit| **benefit >= HELD).count();
        let share_held = held as f64 / benefits.len().max(1) as f64;
        (share_held, Distribution::of(benefits).unwrap_or_default())
    };
    let (share_held, benefit) = of(|sample| sample.benefit);
    let (kernel_share_held, kernel_benefit) = of(|sample| sample.kernel_benefit);
    WayResult {
        way,
        share_held,
        kernel_share_held,
        median: benefit.median,
        kernel_median: kernel_benefit.median,
        min: benefit.min,
        kernel_min: kernel_benefit.min,
        benefit,
        kernel_benefit,
    }
}

/// Processes that ran or waited to, over the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(sets: usize) -> BesideKernel {
        BesideKernel { sets, seed: 1, ways: vec![Way::Receive], judge_paths: JudgePaths::Foreign }
    }

    #[test]
    fn drawn_sets_keep_to_the_ranges_and_to_seconds() {
        let sets = comparison(200).draw();
        assert_eq!(sets.len(), 200);
        for Set { links, bytes } in &sets {
            assert_eq!(links.len(), 2);
            for link in links {
                assert!((1.0..=100.0).contains(&link.mbit_per_s), "{link:?}");
                assert!((2.0..=400.0).contains(&link.rtt_ms), "{link:?}");
                assert!((5.0..=1000.0).contains(&link.queue_ms), "{link:?}");
            }
            let best = links.iter().map(|link| link.mbit_per_s).fold(0.0, f64::max);
            let seconds = *bytes as f64 * 8.0 / 1e6 / best;
            assert!(*bytes >= 1_000_000 && (seconds <= MOST_SECONDS + 0.01 || *bytes == 1_000_000));
        }
        let large = sets.iter().filter(|set| set.bytes > 10_000_000).count();
        assert!((40..=110).contains(&large), "{large}");
        assert_eq!(sets, comparison(200).draw(), "the seed says which");
    }

    #[test]
    fn shares_and_medians_are_those_of_one_way() {
        let sample = |way, benefit, kernel_benefit| Sample {
            number: 0,
            set: Set { links: Vec::new(), bytes: 1 },
            way,
            alone_bps: Vec::new(),
            ours: Transfer::default(),
            kernel: Transfer::default(),
            benefit,
            kernel_benefit,
            set_aside: 0,
        };
        let samples = [
            sample(Way::Receive, -0.3, -0.4),
            sample(Way::Receive, -0.05, -0.06),
            sample(Way::Receive, 0.5, 0.1),
            sample(Way::Send, 1.0, -1.0),
        ];
        let result = of_way(Way::Receive, &samples);
        assert!(
            (result.share_held - 2.0 / 3.0).abs() < 1e-9
                && (result.kernel_share_held - 1.0 / 3.0).abs() < 1e-9
        );
        assert!((result.median + 0.05).abs() < 1e-9 && (result.kernel_median + 0.06).abs() < 1e-9);
        assert!((result.min + 0.3).abs() < 1e-9);
    }
}
