//! The figures of a stream that has ended, or of several together.

use std::collections::BTreeMap;

use polypath_tunnel::reordering::{Distribution, entropy};
use serde::{Serialize, Serializer};

/// What the metrics of RFC 4737 and RFC 5236 say of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Packets that came, without further copies: *L* of RFC 4737 §4.1.2.
    pub(crate) received: u64,
    /// Numbers between the first and the last that never came; none where numbers do not count packets one by one.
    pub(crate) lost: Option<u64>,
    /// Further copies.
    pub(crate) duplicates: u64,
    /// That came after they had been taken for lost.
    pub(crate) too_late: u64,
    pub(crate) reordered: u64,
    /// RFC 4737 §4.2.
    pub(crate) extents: Distribution,
    /// RFC 4737 §4.3.
    pub(crate) late_nanos: Distribution,
    /// RFC 4737 §5: at *n* − 1, the packets that are *n*-reordered.
    pub(crate) n_reordered: Vec<u64>,
    /// RFC 4737 §4.6: *x*, *a* and *q*.
    pub(crate) free_runs: u64,
    pub(crate) in_order: u64,
    pub(crate) sum_of_squares: u128,
    /// RFC 5236 §3.5: packets by displacement; early ones are negative.
    pub(crate) displaced: BTreeMap<i64, u64>,
    /// By more than the window: in no density.
    pub(crate) displaced_beyond: u64,
    /// RFC 5236 §3.10: arrivals by how many packets waited in the buffer then.
    pub(crate) waiting: BTreeMap<u64, u64>,
}

impl Figures {
    /// Those of another stream, too: each packet is compared with those of its own stream alone.
    pub(crate) fn absorb(&mut self, other: &Self) {
        self.received += other.received;
        self.lost = self.lost.zip(other.lost).map(|(one, more)| one + more);
        self.duplicates += other.duplicates;
        self.too_late += other.too_late;
        self.reordered += other.reordered;
        self.extents.absorb(&other.extents);
        self.late_nanos.absorb(&other.late_nanos);
        if self.n_reordered.len() < other.n_reordered.len() {
            self.n_reordered.resize(other.n_reordered.len(), 0);
        }
        self.n_reordered.iter_mut().zip(&other.n_reordered).for_each(|(sum, more)| *sum += more);
        self.free_runs += other.free_runs;
        self.in_order += other.in_order;
        self.sum_of_squares += other.sum_of_squares;
        other.displaced.iter().for_each(|(by, more)| *self.displaced.entry(*by).or_default() += more);
        self.displaced_beyond += other.displaced_beyond;
        other.waiting.iter().for_each(|(many, more)| *self.waiting.entry(*many).or_default() += more);
    }

    /// None yet: [`absorb`](Self::absorb) adds to it.
    pub(crate) fn none() -> Self {
        Self { lost: Some(0), ..Self::default() }
    }

    /// RFC 4737 §4.1.
    pub(crate) fn reordered_ratio(&self) -> f64 {
        share(self.reordered, self.received)
    }

    pub(crate) fn extent(&self) -> Option<Spread> {
        Spread::of_distribution(&self.extents, 1.0)
    }

    /// In seconds.
    pub(crate) fn late_time(&self) -> Option<Spread> {
        Spread::of_distribution(&self.late_nanos, 1e9)
    }

    /// The packets that are *n*-reordered.
    pub(crate) fn n_reordered(&self, n: usize) -> u64 {
        n.checked_sub(1).and_then(|index| self.n_reordered.get(index)).copied().unwrap_or(0)
    }

    /// *a*/*x* of RFC 4737 §4.6.3; none if no packet was reordered.
    pub(crate) fn mean_free_run(&self) -> Option<f64> {
        (self.free_runs > 0).then(|| self.in_order as f64 / self.free_runs as f64)
    }

    /// (*q*/*a*)/(*a*/*x*) of RFC 4737 §4.6.3: one if all runs are alike.
    pub(crate) fn free_run_variation(&self) -> Option<f64> {
        let mean = self.mean_free_run().filter(|mean| *mean > 0.0)?;
        Some(self.sum_of_squares as f64 / self.in_order as f64 / mean)
    }

    /// RFC 5236 §3.6: displacement and share of packets.
    pub(crate) fn reorder_density(&self) -> Vec<(i64, f64)> {
        let all = self.displaced.values().sum();
        self.displaced.iter().map(|(by, packets)| (*by, share(*packets, all))).collect()
    }

    pub(crate) fn reorder_entropy(&self) -> f64 {
        entropy(self.reorder_density().into_iter().map(|(_, density)| density))
    }

    /// RFC 5236 §3.11: packets that waited and share of arrivals.
    pub(crate) fn buffer_density(&self) -> Vec<(u64, f64)> {
        let all = self.waiting.values().sum();
        self.waiting.iter().map(|(many, arrivals)| (*many, share(*arrivals, all))).collect()
    }

    pub(crate) fn buffer_packets(&self) -> Option<Spread> {
        Spread::of_counts(&self.waiting)
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

/// Where values lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) greatest: f64,
}

impl Spread {
    fn of_distribution(distribution: &Distribution, unit: f64) -> Option<Self> {
        let at = |share| distribution.percentile(share).map(|value| value as f64 / unit);
        Some(Self {
            mean: distribution.mean()? / unit,
            median: at(0.5)?,
            p95: at(0.95)?,
            p99: at(0.99)?,
            greatest: at(1.0)?,
        })
    }

    fn of_counts(counts: &BTreeMap<u64, u64>) -> Option<Self> {
        let all: u64 = counts.values().sum();
        let at = |share: f64| {
            let mut below = 0;
            let mut reached = counts.iter().filter(|(_, count)| {
                below += **count;
                below as f64 >= share * all as f64
            });
            reached.next().or(counts.iter().next_back()).map(|(value, _)| *value as f64)
        };
        let sum: u128 = counts.iter().map(|(value, count)| u128::from(*value) * u128::from(*count)).sum();
        Some(Self {
            mean: sum as f64 / all.max(1) as f64,
            median: at(0.5)?,
            p95: at(0.95)?,
            p99: at(0.99)?,
            greatest: at(1.0)?,
        })
    }
}

/// As it is printed.
#[derive(Serialize)]
struct Shown {
    packets: u64,
    lost: Option<u64>,
    duplicates: u64,
    too_late: u64,
    reordered: u64,
    reordered_ratio: f64,
    extent: Option<Spread>,
    late_seconds: Option<Spread>,
    n_reordered: Vec<u64>,
    free_runs: FreeRuns,
    reorder_density: Vec<(i64, f64)>,
    reorder_entropy: f64,
    displaced_beyond_window: u64,
    buffer_density: Vec<(u64, f64)>,
    buffer_packets: Option<Spread>,
}

#[derive(Serialize)]
struct FreeRuns {
    runs: u64,
    mean: Option<f64>,
    variation: Option<f64>,
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = Shown {
            packets: self.received,
            lost: self.lost,
            duplicates: self.duplicates,
            too_late: self.too_late,
            reordered: self.reordered,
            reordered_ratio: self.reordered_ratio(),
            extent: self.extent(),
            late_seconds: self.late_time(),
            n_reordered: self.n_reordered.clone(),
            free_runs: FreeRuns {
                runs: self.free_runs,
                mean: self.mean_free_run(),
                variation: self.free_run_variation(),
            },
            reorder_density: self.reorder_density(),
            reorder_entropy: self.reorder_entropy(),
            displaced_beyond_window: self.displaced_beyond,
            buffer_density: self.buffer_density(),
            buffer_packets: self.buffer_packets(),
        };
        shown.serialize(serializer)
    }
}
