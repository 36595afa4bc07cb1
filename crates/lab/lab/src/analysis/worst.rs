//! The sets in which a variant does worst: where to look when the end of a distribution is not as it should be.

use serde::Serialize;

use super::Analysis;

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
    /// The run that has it, or the next to it, by name.
    pub run: String,
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
                    let mut sets: Vec<(usize, f64)> =
                        values.iter().copied().enumerate().filter(|(_, value)| !value.is_nan()).collect();
                    let badness = |value: &f64| metric.better.badness(*value);
                    sets.sort_by(|(_, one), (_, other)| badness(other).total_cmp(&badness(one)));
                    worst.extend(sets.into_iter().take(count).map(|(set, value)| WorstSet {
                        variant: variant.name.clone(),
                        point: sweep.label.clone(),
                        metric: metric.name,
                        set: experiment.sets[set].name.clone(),
                        paths: experiment.sets[set].words(),
                        value,
                        run: self.run_of(index, number, point, set),
                    }));
                }
            }
        }
        worst
    }
}
