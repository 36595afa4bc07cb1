//! `polypath bench backends`: do the laboratory's simulator and its network namespaces agree?
//!
//! Sets of two paths from a WSP design. Over each, one bulk transfer in the simulator, one by the same stack behind TUN
//! devices over emulated paths, and one by the kernel's Multipath TCP over the same. All three count what the receiving
//! application got from the opening of the connection to the end of the time.

use polypath_congestion as congestion;
use polypath_lab::design::wsp;
use polypath_lab::run::{BackendError, Buffer};
use polypath_lab::{Outcome, PathSet, PathSpec, Variant, Workload, run_set};
use polypath_mptcp::scheduler;
use polypath_units::{BitRate, Duration};
use serde::Serialize;

use super::Spread;
use super::netns::{Endpoints, Netns};

/// Rate, round-trip time and queue of a path.
const FACTORS: usize = 3;
const PATHS: usize = 2;

/// How far goodputs may be apart.
const BAR: f64 = 0.05;

/// What to compare.
#[derive(Clone, Debug)]
pub(crate) struct BackendsConfig {
    /// Sets of two paths.
    pub sets: usize,
    /// Only the set of this number.
    pub only: Option<usize>,
    /// How long each transfer takes.
    pub duration: Duration,
    /// Congestion control of our stack.
    pub congestion: congestion::Policy,
    /// Scheduler of our stack.
    pub scheduler: scheduler::Policy,
    /// Probability of loss on each path, 0 to 1.
    pub loss: f64,
    /// Runs of each set; medians count.
    pub repeats: u64,
    /// Let the kernel run too.
    pub kernel: bool,
    /// Seed of the design and of the runs.
    pub seed: u64,
}

/// A path of a set, in JSON.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PathRow {
    /// Its rate.
    pub rate_mbit_per_s: f64,
    /// Round-trip time of the empty path.
    pub rtt_ms: f64,
    /// How long a full queue takes to empty.
    pub queue_ms: f64,
}

/// One set.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BackendsRow {
    /// Its number.
    pub set: usize,
    /// Its paths.
    pub paths: Vec<PathRow>,
    /// What both paths could carry.
    pub capacity_mbit_per_s: f64,
    /// Goodput in the simulator.
    pub sim_mbit_per_s: Spread,
    /// Goodput between namespaces, of the same stack.
    pub netns_mbit_per_s: Spread,
    /// Between namespaces over in the simulator, of the medians.
    pub ratio: f64,
    /// Goodput of the kernel's Multipath TCP between namespaces.
    pub kernel_mbit_per_s: Option<Spread>,
    /// Packets that queues dropped: in the simulator, between namespaces (first run), of the kernel (first run).
    pub queue_drops: [u64; 3],
}

/// The comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BackendsResult {
    /// Seconds of each transfer.
    pub seconds: f64,
    /// Congestion control of our stack.
    pub congestion: String,
    /// Its scheduler.
    pub scheduler: String,
    /// Probability of loss on each path.
    pub loss: f64,
    /// Runs of each set between namespaces.
    pub repeats: u64,
    /// Seed.
    pub seed: u64,
    /// One for each set.
    pub rows: Vec<BackendsRow>,
    /// Of the ratios.
    pub median_ratio: f64,
    /// The ratio that is farthest from 1.
    pub worst_ratio: f64,
    /// Sets whose ratio is within 5 % of 1.
    pub sets_within_bar: usize,
    /// All of them are.
    pub is_within_bar: bool,
}

impl BackendsConfig {
    /// The sets: rates of 1 to 50 Mbit/s, round-trip times of 5 to 100 ms, queues of 20 to 200 ms.
    #[must_use]
    pub(crate) fn path_sets(&self) -> Vec<PathSet> {
        let within = |from: f64, to: f64, place: f64| from + (to - from) * place;
        let path = |factors: &[f64]| PathSpec {
            rate: BitRate::from_bps(within(1e6, 50e6, factors[0]) as u64),
            rtt: Duration::from_secs_f64(within(0.005, 0.1, factors[1])),
            queue: Duration::from_secs_f64(within(0.02, 0.2, factors[2])),
            loss: self.loss,
            change: None,
        };
        let points = wsp(self.sets, PATHS * FACTORS, self.seed);
        points
            .iter()
            .map(|point| PathSet::from(point.chunks(FACTORS).map(path).collect::<Vec<_>>()))
            .collect()
    }

    /// Runs the comparison; `on_row` is told of each set when it is done.
    ///
    /// # Errors
    /// The first run that failed.
    pub(crate) fn run(&self, mut on_row: impl FnMut(&BackendsRow)) -> Result<BackendsResult, BackendError> {
        let sets = self.path_sets();
        let mut rows = Vec::new();
        for (number, set) in sets.iter().enumerate() {
            if self.only.is_none_or(|only| only == number) {
                let row = self.run_one(number, set)?;
                on_row(&row);
                rows.push(row);
            }
        }
        let ratios = || rows.iter().map(|row| row.ratio);
        let distance = |ratio: &f64| (ratio - 1.0).abs();
        let sets_within_bar = ratios().filter(|ratio| distance(ratio) <= BAR).count();
        Ok(BackendsResult {
            seconds: self.duration.as_secs_f64(),
            congestion: self.congestion.name().to_string(),
            scheduler: self.scheduler.to_string(),
            loss: self.loss,
            repeats: self.repeats,
            seed: self.seed,
            median_ratio: Spread::of(ratios()).map_or(f64::NAN, |spread| spread.median),
            worst_ratio: ratios()
                .max_by(|one, other| distance(one).total_cmp(&distance(other)))
                .unwrap_or(f64::NAN),
            sets_within_bar,
            is_within_bar: sets_within_bar == rows.len(),
            rows,
        })
    }

    fn run_one(&self, number: usize, set: &PathSet) -> Result<BackendsRow, BackendError> {
        let workload = Workload::Bulk { duration: self.duration };
        let variant = Variant::multipath("ours", self.scheduler.clone(), self.congestion.clone())
            .with_buffer(Buffer::Stack);
        let kernel = Variant::multipath("kernel", scheduler::Policy::default(), polypath_congestion::CUBIC);
        let mut sim = Vec::new();
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        for repeat in 0..self.repeats {
            let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(number as u64 * 1000 + repeat);
            sim.push(run_set(set, &variant, &workload, seed));
            ours.push(Netns { endpoints: Endpoints::Polypath }.run_set(set, &variant, &workload, seed)?);
            if self.kernel {
                theirs.push(Netns { endpoints: Endpoints::Kernel }.run_set(set, &kernel, &workload, seed)?);
            }
        }
        let goodput = |runs: &[Outcome]| Spread::of(runs.iter().map(|run| run.goodput_bps / 1e6));
        let drops = |runs: &[Outcome]| {
            runs.first().map_or(0, |run| run.paths.iter().map(|path| path.queue_drops).sum())
        };
        let nothing = Spread { median: 0.0, min: 0.0, max: 0.0 };
        let (sim_goodput, netns_goodput) =
            (goodput(&sim).unwrap_or(nothing), goodput(&ours).unwrap_or(nothing));
        let paths = set.paths.iter().map(|path| PathRow {
            rate_mbit_per_s: path.rate.as_bps() as f64 / 1e6,
            rtt_ms: path.rtt.as_millis_f64(),
            queue_ms: path.queue.as_millis_f64(),
        });
        Ok(BackendsRow {
            set: number,
            paths: paths.collect(),
            capacity_mbit_per_s: set.paths.iter().map(PathSpec::capacity_bps).sum::<f64>() / 1e6,
            sim_mbit_per_s: sim_goodput,
            netns_mbit_per_s: netns_goodput,
            ratio: netns_goodput.median / sim_goodput.median,
            kernel_mbit_per_s: goodput(&theirs),
            queue_drops: [drops(&sim), drops(&ours), drops(&theirs)],
        })
    }
}
