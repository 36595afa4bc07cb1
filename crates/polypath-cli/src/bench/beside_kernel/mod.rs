//! Is our client, or our sender, ever slower than TCP over the best path where the other end is the kernel? (Linux, root)
//!
//! Sets of two access links and a size are drawn; over each, in namespaces of their own with emulated links, the same bytes go by TCP over
//! each path alone, by the kernel's Multipath TCP at both ends, and by ours with the kernel at the other end. All of it is in real time, one
//! after the other, so that what else the machine does weighs on all.

#[cfg(test)]
mod judging;
pub(crate) mod scene;

use std::io;
use std::time::Duration;

use polypath_lab::design::latin_hypercube;
use polypath_lab::metrics::Distribution;
use polypath_mptcp::JudgePaths;
use polypath_stack::stack;
use polypath_system::Namespace;
use serde::Serialize;

use self::scene::{AccessLink, Scene, Transfer, Way};
use super::BenchError;
use super::host::run_ip;
use crate::demo::aggregation_benefit;

/// Less is more than the noise of a real machine.
const HELD: f64 = -0.05;
/// A transfer is given up after so many times as long as TCP took.
const PATIENCE: f64 = 8.0;
/// Rate, round-trip time and queue of each of two paths, and the size.
const FACTORS: usize = 7;

/// What to compare.
#[derive(Clone, Debug)]
pub(crate) struct BesideKernel {
    /// How many sets.
    pub sets: usize,
    /// Seed of the sets.
    pub seed: u64,
    /// Which end we are.
    pub ways: Vec<Way>,
    /// Who carries the bytes over each set, in this order.
    pub clients: Vec<Client>,
    /// Congestion control of the kernels.
    pub congestion: String,
    /// Drawn sizes are cut to what the better path carries in so many seconds.
    pub most_seconds: f64,
}

/// Who carries the bytes of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Client {
    /// Our stack, as it is by default.
    Ours,
    /// Our stack, which judges the paths that the sender chooses ([`JudgePaths::Foreign`]).
    OursJudging,
    /// The kernel's Multipath TCP.
    Kernel,
    /// TCP over the better path once more: what the noise of the machine does.
    Tcp,
}

impl Client {
    /// As in the table.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursJudging => "judging",
            Self::Kernel => "kernel",
            Self::Tcp => "tcp again",
        }
    }
}

/// Two access links and a size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Set {
    /// The kernel's client opens its connections over the first.
    pub links: Vec<AccessLink>,
    /// How much is carried.
    pub bytes: u64,
}

/// What came of a set.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// Number of the set.
    pub number: usize,
    /// The set.
    #[serde(flatten)]
    pub set: Set,
    /// TCP over each path alone, in bits a second.
    pub alone_bps: Vec<f64>,
    /// Each client, each way.
    pub runs: Vec<Run>,
}

/// A client over a set.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    /// Who.
    pub client: Client,
    /// What it does.
    pub way: Way,
    /// What came of it.
    #[serde(flatten)]
    pub transfer: Transfer,
    /// Aggregation benefit.
    pub benefit: f64,
    /// How often our receiver set a path aside.
    pub set_aside: u64,
}

/// All sets of a client, one way.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Who.
    pub client: Client,
    /// What it does.
    pub way: Way,
    /// Share of the sets at -0.05 or above.
    pub share_held: f64,
    /// Aggregation benefit.
    pub benefit: Distribution,
}

/// The answer. Its first figures are those of ours and of the kernel's client the first way: as a receiver, unless only sending was asked for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BesideKernelResult {
    /// Who is at the other end.
    pub peer: &'static str,
    /// Congestion control of the kernels.
    pub congestion: String,
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
    /// Each client, each way.
    pub rows: Vec<Row>,
    /// Load of the machine before and after (1 minute's average).
    pub load: [f64; 2],
    /// All of them, the worst of the first client first.
    pub samples: Vec<Sample>,
}

impl BesideKernel {
    /// The sets: 1 to 100 Mbit/s, round-trip times of 2 to 400 ms, queues of 5 to 1000 ms, 1 to 100 MB, all log-uniform; sizes are no more than
    /// the better path carries in [`BesideKernel::most_seconds`].
    #[must_use]
    pub(crate) fn draw(&self) -> Vec<Set> {
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
            let bytes = (megabytes.min(best / 8.0 * self.most_seconds).max(1.0) * 1e6) as u64;
            Set { links, bytes }
        };
        latin_hypercube(self.sets, FACTORS, self.seed).iter().map(set).collect()
    }

    /// Runs everything; `on_sample` is told of each.
    ///
    /// # Errors
    /// What is missing: root, iproute2, the kernel's Multipath TCP.
    pub(crate) async fn run(
        &self,
        mut on_sample: impl FnMut(&Sample),
    ) -> Result<BesideKernelResult, BenchError> {
        let load_before = load();
        let mut samples = Vec::new();
        for (number, set) in self.draw().into_iter().enumerate() {
            let sample = self.sample(number, set).await?;
            on_sample(&sample);
            samples.push(sample);
        }
        samples.sort_by(|one, other| one.first_benefit().total_cmp(&other.first_benefit()));
        let rows: Vec<Row> = self.runs().filter_map(|(client, way)| Row::of(client, way, &samples)).collect();
        let first = rows.first().ok_or_else(|| io::Error::other("nothing was asked for"))?;
        let kernel = rows.iter().find(|row| row.client == Client::Kernel && row.way == first.way);
        Ok(BesideKernelResult {
            peer: "kernel",
            congestion: self.congestion.clone(),
            sets: self.sets,
            seed: self.seed,
            share_held: first.share_held,
            median: first.benefit.median,
            kernel_median: kernel.map_or(f64::NAN, |row| row.benefit.median),
            load: [load_before, load()],
            rows,
            samples,
        })
    }

    fn runs(&self) -> impl Iterator<Item = (Client, Way)> {
        let runs = self.ways.iter().flat_map(|&way| self.clients.iter().map(move |&client| (client, way)));
        // Who sends has nothing to judge.
        runs.filter(|run| *run != (Client::OursJudging, Way::Send))
    }

    async fn sample(&self, number: usize, set: Set) -> Result<Sample, BenchError> {
        let alone = self.scene(&set)?.alone(set.bytes, Duration::from_secs(120)).await?;
        let alone_bps: Vec<f64> = alone.iter().map(Transfer::goodput_bps).collect();
        let best_bps = alone_bps.iter().copied().fold(0.0, f64::max);
        let limit = Duration::from_secs_f64(PATIENCE * set.bytes as f64 * 8.0 / best_bps.max(1e3) + 5.0);
        let mut runs = Vec::new();
        for (client, way) in self.runs() {
            let (transfer, set_aside) = self.transfer(&set, client, way, limit).await?;
            let benefit = aggregation_benefit(transfer.goodput_bps(), &alone_bps);
            runs.push(Run { client, way, transfer, benefit, set_aside });
        }
        Ok(Sample { number, set, alone_bps, runs })
    }

    async fn transfer(
        &self,
        set: &Set,
        client: Client,
        way: Way,
        limit: Duration,
    ) -> Result<(Transfer, u64), BenchError> {
        let scene = self.scene(set)?;
        let judge_paths = match client {
            Client::Ours => stack::default_connection().judge_paths,
            Client::OursJudging => JudgePaths::Foreign,
            Client::Kernel => {
                scene.announce_paths(|namespace: &Namespace, arguments: &[&str]| {
                    run_ip(namespace, arguments).map_err(io::Error::other)
                })?;
                return Ok((scene.by_kernel(way, set.bytes, limit).await?, 0));
            }
            Client::Tcp => {
                let alone = scene.alone(set.bytes, limit).await?;
                let best =
                    alone.into_iter().max_by(|one, other| one.goodput_bps().total_cmp(&other.goodput_bps()));
                return Ok((best.unwrap_or_default(), 0));
            }
        };
        let connection = polypath_mptcp::ConnectionConfig { judge_paths, ..stack::default_connection() };
        let counted = |stack: &polypath_stack::Stack| stack.counters().paths_set_aside;
        Ok(scene.by_us(connection, way, set.bytes, limit, counted).await?)
    }

    fn scene(&self, set: &Set) -> Result<Scene, BenchError> {
        if !rustix::process::geteuid().is_root() {
            return Err(BenchError::Namespaces(io::ErrorKind::PermissionDenied.into()));
        }
        Ok(Scene::new(&set.links, &self.congestion)?)
    }
}

impl Sample {
    fn first_benefit(&self) -> f64 {
        self.runs.first().map_or(0.0, |run| run.benefit)
    }
}

impl Row {
    fn of(client: Client, way: Way, samples: &[Sample]) -> Option<Self> {
        let runs = samples.iter().flat_map(|sample| &sample.runs);
        let benefits: Vec<f64> =
            runs.filter(|run| run.client == client && run.way == way).map(|run| run.benefit).collect();
        let held = benefits.iter().filter(|benefit| **benefit >= HELD).count();
        let share_held = held as f64 / benefits.len().max(1) as f64;
        Some(Self { client, way, share_held, benefit: Distribution::of(benefits)? })
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
        let congestion = "cubic".to_owned();
        let (ways, clients) = (vec![Way::Receive], vec![Client::Ours]);
        BesideKernel { sets, seed: 1, ways, clients, congestion, most_seconds: 10.0 }
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
            assert!(*bytes >= 1_000_000 && (seconds <= 10.01 || *bytes == 1_000_000));
        }
        let large = sets.iter().filter(|set| set.bytes > 10_000_000).count();
        assert!((40..=110).contains(&large), "{large}");
        assert_eq!(sets, comparison(200).draw(), "the seed says which");
    }

    #[test]
    fn shares_and_medians_are_those_of_one_client_and_one_way() {
        let run =
            |client, way, benefit| Run { client, way, transfer: Transfer::default(), benefit, set_aside: 0 };
        let sample = |ours, kernel| Sample {
            number: 0,
            set: Set { links: Vec::new(), bytes: 1 },
            alone_bps: Vec::new(),
            runs: vec![
                run(Client::Ours, Way::Receive, ours),
                run(Client::Kernel, Way::Receive, kernel),
                run(Client::Ours, Way::Send, 1.0),
            ],
        };
        let samples = [sample(-0.3, -0.4), sample(-0.05, -0.06), sample(0.5, 0.1)];
        let ours = Row::of(Client::Ours, Way::Receive, &samples).unwrap();
        let kernel = Row::of(Client::Kernel, Way::Receive, &samples).unwrap();
        assert!((ours.share_held - 2.0 / 3.0).abs() < 1e-9 && (kernel.share_held - 1.0 / 3.0).abs() < 1e-9);
        assert!((ours.benefit.median + 0.05).abs() < 1e-9 && (kernel.benefit.median + 0.06).abs() < 1e-9);
        assert!((ours.benefit.min + 0.3).abs() < 1e-9);
        assert!(Row::of(Client::Kernel, Way::Send, &samples).is_none());
    }
}
