//! The runs of an experiment, by number.

use polypath_fetch::schedule::Sizing;
use serde::{Deserialize, Serialize};

use super::{Experiment, Pace, Setting, Topology, Traffic};
use crate::run::{
    DatagramTraffic, Observation, Outcome, PathSet, PathSpec, StreamTraffic, Variant, Watch, Workload,
    observe_set, run_ring, run_timeline,
};

/// Which run of an experiment: indices of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunKey {
    /// Of the sets.
    pub set: usize,
    /// Of the points of the sweep.
    pub point: usize,
    /// Of the variants.
    pub variant: usize,
    /// Of the repeats.
    pub repeat: usize,
}

/// One run, ready to go.
#[derive(Clone, Debug)]
pub struct Job {
    /// Which run it is.
    pub key: RunKey,
    /// The paths, or the bottlenecks.
    pub set: PathSet,
    /// Who sends.
    pub variant: Variant,
    /// What is sent.
    pub workload: Workload,
    /// Equal for all variants of a set, so that they meet the same luck.
    pub seed: u64,
    /// How the paths are put together.
    pub topology: Topology,
    /// What is looked at on the way, if anything.
    pub(crate) observation: Option<Observation>,
}

impl Experiment {
    /// Run number `index`, below [`Experiment::run_count`]. The variants of a set are neighbours.
    #[must_use]
    pub fn job(&self, index: usize) -> Job {
        self.job_of(self.key(index))
    }

    /// Which one run number `index` is.
    pub(super) fn key(&self, index: usize) -> RunKey {
        let (rest, variant) = (index / self.variants.len(), index % self.variants.len());
        let (rest, repeat) = (rest / self.repeats, rest % self.repeats);
        let (set, point) = (rest / self.points.len(), rest % self.points.len());
        RunKey { set, point, variant, repeat }
    }

    /// This run.
    #[must_use]
    pub fn job_of(&self, key: RunKey) -> Job {
        let mut set = self.sets[key.set].set.clone();
        let mut variant = self.variants[key.variant].clone();
        let is_baseline = key.variant >= self.variants.len() - self.baseline_variants;
        if !is_baseline {
            self.sets[key.set].levels.iter().for_each(|level| level.apply(&mut variant));
        }
        for setting in &self.points[key.point].settings {
            match *setting {
                Setting::Buffer(buffer) => variant.buffer = buffer,
                Setting::Initial(initial) if !is_baseline => variant.initial = initial,
                Setting::Loss(loss) => set.paths.iter_mut().for_each(|path| path.loss = loss),
                Setting::Segment(bytes) => {
                    if let Sizing::Fixed { segment_bytes: size, .. }
                    | Sizing::Proportional { mean_bytes: size, .. } = &mut variant.sizing
                    {
                        *size = bytes;
                    }
                }
                Setting::Initial(_) | Setting::Bytes(_) | Setting::Load(_) | Setting::Rate(_) => {}
            }
        }
        let seed = seed_of(&self.name, self.sets[key.set].design, key.set, key.repeat);
        let observes = self.records_windows || self.metrics.iter().any(super::Metric::needs_observation);
        Job {
            key,
            workload: self.traffic_at(key.point).workload(&set),
            set,
            variant,
            seed,
            topology: self.topology.clone(),
            observation: observes.then_some(Observation { windows: self.records_windows }),
        }
    }
}

impl Experiment {
    /// What is sent at a point of the sweep, by number.
    #[must_use]
    pub fn traffic_at(&self, point: usize) -> Traffic {
        let mut traffic = self.traffic;
        for setting in &self.points[point].settings {
            match (*setting, &mut traffic) {
                (Setting::Bytes(size), Traffic::Transfer { bytes, .. } | Traffic::Download { bytes, .. }) => {
                    *bytes = size;
                }
                (Setting::Load(load), Traffic::Blocks { pace, .. }) => *pace = Pace::Load(load),
                (Setting::Rate(rate), Traffic::Datagrams(traffic)) => traffic.rate = rate,
                _ => {}
            }
        }
        traffic
    }
}

impl Job {
    /// Runs it.
    #[must_use]
    pub fn run(&self) -> Outcome {
        self.carry_out(None)
    }

    /// The same, and records it. The outcome is that of [`Job::run`].
    #[must_use]
    pub fn run_watched(&self, watch: &mut Watch) -> Outcome {
        self.carry_out(Some(watch))
    }

    fn carry_out(&self, watch: Option<&mut Watch>) -> Outcome {
        let Self { set, variant, workload, seed, observation, .. } = self;
        match &self.topology {
            Topology::Parallel => observe_set(set, variant, workload, *seed, *observation, watch),
            Topology::Ring => run_ring(set, variant, workload, *seed, watch),
            Topology::Shared(timeline) => run_timeline(set, variant, timeline, *seed, watch),
        }
    }

    /// About how much work it is: bytes that are sent.
    #[must_use]
    pub fn cost(&self) -> u64 {
        // A run has a cost of its own, too.
        100_000 + self.payload_bytes()
    }

    /// About how many packets of data it sends: none has the end of one message and the begin of another.
    #[must_use]
    pub fn packets(&self) -> u64 {
        let packets = |bytes: u64| bytes.div_ceil(PathSpec::PAYLOAD_BYTES);
        match self.workload {
            Workload::Bulk { .. }
            | Workload::Transfer { .. }
            | Workload::Download { .. }
            | Workload::Stream(_)
            | Workload::Blocks { rate: None, .. } => packets(self.payload_bytes()),
            Workload::Blocks { block_bytes, rate: Some(_), .. } => {
                self.payload_bytes().div_ceil(block_bytes.max(1)) * packets(block_bytes)
            }
            Workload::Datagrams(DatagramTraffic { packet_bytes, .. }) => {
                self.payload_bytes().div_ceil(packet_bytes.max(1))
            }
            Workload::Requests { request_bytes, response_bytes, count, .. } => {
                count * (packets(request_bytes) + packets(response_bytes))
            }
        }
    }

    /// What is sent, as if paths that may be full are full all the time.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let used = match self.variant.kind {
            crate::run::VariantKind::Multipath | crate::run::VariantKind::SplitPackets => {
                self.set.paths.as_slice()
            }
            crate::run::VariantKind::SinglePath => {
                let path = self.variant.initial_path(&self.set, &self.workload, self.seed);
                &self.set.paths[path..=path]
            }
        };
        match self.workload {
            Workload::Bulk { duration } | Workload::Blocks { rate: None, duration, .. } => {
                used.iter().map(|path| path.rate.bytes_in(duration)).sum()
            }
            Workload::Transfer { bytes, .. } | Workload::Download { bytes, .. } => bytes,
            Workload::Stream(StreamTraffic { duration, .. }) => {
                used.iter().map(|path| path.rate.bytes_in(duration)).sum()
            }
            Workload::Blocks { rate: Some(rate), duration, .. }
            | Workload::Datagrams(DatagramTraffic { rate, duration, .. }) => rate.bytes_in(duration),
            Workload::Requests { request_bytes, response_bytes, count, .. } => {
                (request_bytes + response_bytes) * count
            }
        }
    }
}

impl Traffic {
    /// What is sent over these paths.
    fn workload(self, set: &PathSet) -> Workload {
        match self {
            Self::Bulk { duration } => Workload::Bulk { duration },
            Self::Transfer { bytes, timeout } => Workload::Transfer { bytes, timeout },
            Self::Blocks { block_bytes, pace, duration } => {
                let rate = match pace {
                    Pace::Rate(rate) => Some(rate),
                    Pace::Unlimited => None,
                    Pace::Load(load) => {
                        let sum: f64 = set.paths.iter().map(crate::run::PathSpec::capacity_bps).sum();
                        Some(polypath_units::BitRate::from_bps((sum * load).round().max(1.0) as u64))
                    }
                };
                Workload::Blocks { block_bytes, rate, duration }
            }
            Self::Requests { request_bytes, response_bytes, count, timeout } => {
                Workload::Requests { request_bytes, response_bytes, count, timeout }
            }
            Self::Download { bytes, timeout, player } => Workload::Download { bytes, timeout, player },
            Self::Stream(traffic) => Workload::Stream(traffic),
            Self::Datagrams(traffic) => Workload::Datagrams(traffic),
        }
    }
}

/// The seed of a run.
fn seed_of(name: &str, design: usize, set: usize, repeat: usize) -> u64 {
    // FNV-1a; any stable hash would do.
    let numbers = [design as u64, set as u64, repeat as u64];
    let bytes = name.bytes().chain(numbers.into_iter().flat_map(u64::to_le_bytes));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
