//! The sets in which a variant does worst: where to look when the end of a distribution is not as it should be.

use std::fmt::Write;

use serde::Serialize;

use super::Analysis;
use crate::experiment::NamedSet;

/// One of the worst sets of a variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorstSet {
    /// The variant.
    pub variant: String,
    /// The value of the sweep; empty without one.
    pub point: String,
    /// The metric's name.
    pub metric: &'static str,
    /// The set's name, or its number.
    pub set: String,
    /// Its paths, in words.
    pub paths: String,
    /// What the variant has there.
    pub value: f64,
}

impl Analysis<'_> {
    /// The `count` worst sets of each variant but the baseline's, by each metric and point; the worst first.
    #[must_use]
    pub fn worst_sets(&self, count: usize) -> Vec<WorstSet> {
        let experiment = self.experiment;
        let own = experiment.variants.len() - experiment.baseline_variants;
        let mut worst = Vec::new();
        for (index, metric) in experiment.metrics.iter().enumerate() {
            for (point, sweep) in experiment.points.iter().enumerate() {
                for (number, variant) in experiment.variants.iter().enumerate().take(own) {
                    let values = self.sets(index, number, point);
                    let mut sets: Vec<_> = experiment
                        .sets
                        .iter()
                        .zip(values.iter().copied())
                        .filter(|(_, v)| !v.is_nan())
                        .collect();
                    let badness = |value: &f64| metric.better.badness(*value);
                    sets.sort_by(|(_, one), (_, other)| badness(other).total_cmp(&badness(one)));
                    worst.extend(sets.into_iter().take(count).map(|(set, value)| WorstSet {
                        variant: variant.name.clone(),
                        point: sweep.label.clone(),
                        metric: metric.name,
                        set: set.name.clone(),
                        paths: paths(set),
                        value,
                    }));
                }
            }
        }
        worst
    }
}

/// `10 Mbit/s, 20 ms, queue 50 ms, loss 1 %`, path by path.
fn paths(set: &NamedSet) -> String {
    let mut text = String::new();
    for path in &set.set.paths {
        let separator = if text.is_empty() { "" } else { "; " };
        let (rate, rtt_ms, queue_ms) =
            (path.rate.as_mbps_f64(), path.rtt.as_millis_f64(), path.queue.as_millis_f64());
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{rate:.2} Mbit/s, {rtt_ms:.0} ms, queue {queue_ms:.0} ms");
        if path.loss > 0.0 {
            let _ = write!(text, ", loss {:.2} %", path.loss * 100.0);
        }
    }
    text
}
