//! Downloads over two random paths, beside the better of both alone: two are never slower.

use polypath_fetch::schedule::Sizing;
use polypath_units::{BitRate, Duration};
use rand_core::{Rng, SeedableRng};
use serde::Serialize;

use super::{Download, run_download};
use crate::run::{PathSet, PathSpec};

/// One that takes longer alone is not looked at.
const LONGEST: Duration = Duration::from_secs(120);
/// When the slower path alone is given up.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// What pairs may be like: the logarithms of all are spread evenly.
#[derive(Clone, Debug, PartialEq)]
pub struct PairRanges {
    /// Least and most bytes of a file.
    pub bytes: [f64; 2],
    /// Least and most rate of a path in Mbit/s.
    pub mbit_per_s: [f64; 2],
    /// Least and longest round-trip time of a path in milliseconds.
    pub rtt_ms: [f64; 2],
    /// Least and longest time that a packet waits in a full queue, in milliseconds.
    pub queue_ms: [f64; 2],
}

impl Default for PairRanges {
    /// 1 to 200 MB; 0.5 to 100 Mbit/s, 2 to 400 ms, queues of 20 to 400 ms.
    fn default() -> Self {
        Self { bytes: [1e6, 200e6], mbit_per_s: [0.5, 100.0], rtt_ms: [2.0, 400.0], queue_ms: [20.0, 400.0] }
    }
}

/// One pair, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// Bytes of the file.
    pub bytes: u64,
    /// Each path: rate in Mbit/s, round-trip time and queue in milliseconds.
    pub paths: [[f64; 3]; 2],
    /// Seconds over the better path alone.
    pub alone_s: f64,
    /// Seconds over both; none if it did not end.
    pub both_s: Option<f64>,
    /// Every byte was the right one, each time.
    pub is_right: bool,
}

impl Pair {
    /// How much faster both are than the better one alone, as a part of its time: below zero they are slower.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.both_s.map_or(-1.0, |both_s| 1.0 - both_s / self.alone_s)
    }
}

/// So many pairs, by a seed.
#[must_use]
pub fn run_pairs(count: usize, ranges: &PairRanges, seed: u64) -> Vec<Pair> {
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut uniform = |[low, high]: [f64; 2]| {
        let part = f64::from(random.next_u32()) / f64::from(u32::MAX);
        (low.ln() + part * (high / low).ln()).exp()
    };
    let mut pairs = Vec::with_capacity(count);
    while pairs.len() < count {
        let paths = [(); 2].map(|()| {
            let numbers = [uniform(ranges.rtt_ms), uniform(ranges.mbit_per_s), uniform(ranges.queue_ms)];
            let [rtt_ms, mbit_per_s, queue_ms] = numbers;
            let path = PathSpec {
                rate: BitRate::from_bps((mbit_per_s * 1e6) as u64),
                rtt: Duration::from_millis(rtt_ms as u64),
                queue: Duration::from_millis(queue_ms as u64),
                loss: 0.0,
                change: None,
            };
            ([mbit_per_s, rtt_ms, queue_ms], path)
        });
        let bytes = uniform(ranges.bytes) as u64;
        let fastest = paths.iter().map(|(_, path)| path.rate).max().unwrap_or_default();
        if fastest.time_to_send(bytes) > LONGEST {
            continue;
        }
        pairs.push(run_pair(bytes, &paths.map(|(_, path)| path), paths.map(|(numbers, _)| numbers), seed));
    }
    pairs
}

fn run_pair(bytes: u64, specs: &[PathSpec; 2], paths: [[f64; 3]; 2], seed: u64) -> Pair {
    let mut is_right = true;
    let mut took = |specs: &[PathSpec]| {
        let download = Download { total_bytes: bytes, sizing: Sizing::for_files(), timeout: TIMEOUT };
        let downloaded = run_download(&PathSet::from(specs.to_vec()), &download, seed);
        is_right &= downloaded.is_right;
        downloaded.took.map(Duration::as_secs_f64)
    };
    let alone_s = specs.iter().filter_map(|path| took(&[*path])).fold(f64::INFINITY, f64::min);
    let both_s = took(specs);
    Pair { bytes, paths, alone_s, both_s, is_right }
}
