//! Main effects: what the sets of each level of a parameter have on average.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Analysis;

/// The sets at one level of a parameter, or of several together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The variant.
    pub variant: String,
    /// The value of the sweep; empty without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub point: String,
    /// The parameter; with several, one after the other.
    pub parameter: String,
    /// Its level, or that of each.
    pub level: String,
    /// How many sets.
    pub sets: usize,
    /// Mean of the first metric.
    pub mean: f64,
    /// Half the width of the confidence interval of 95 % around it (normal approximation).
    pub error: f64,
}

impl Analysis<'_> {
    /// The effects of the parameters on the first metric, the best level of each first; none where sets have no parameters.
    #[must_use]
    pub fn effects(&self) -> Vec<Effect> {
        let experiment = self.experiment;
        let mut effects = Vec::new();
        let alone = experiment.parameters.iter().map(|(name, _)| vec![*name]);
        let together = (!experiment.together.is_empty()).then(|| experiment.together.clone());
        for names in alone.chain(together) {
            for (point, sweep) in experiment.points.iter().enumerate() {
                for (number, variant) in experiment.compared_variants().iter().enumerate() {
                    let mut levels: BTreeMap<String, Vec<f64>> = BTreeMap::new();
                    for (set, value) in experiment.sets.iter().zip(self.sets(0, number, point)) {
                        if let Some(level) = set.level_of(&names).filter(|_| !value.is_nan()) {
                            levels.entry(level).or_default().push(*value);
                        }
                    }
                    let mut of_levels: Vec<Effect> = levels
                        .into_iter()
                        .map(|(level, values)| {
                            let (mean, error) = mean_and_error(&values);
                            Effect {
                                variant: variant.name.clone(),
                                point: sweep.label.clone(),
                                parameter: names.join(", "),
                                level,
                                sets: values.len(),
                                mean,
                                error,
                            }
                        })
                        .collect();
                    let badness = |effect: &Effect| experiment.metrics[0].better.badness(effect.mean);
                    of_levels.sort_by(|one, other| badness(one).total_cmp(&badness(other)));
                    effects.extend(of_levels);
                }
            }
        }
        effects
    }
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (mean, 1.96 * (squares / (count - 1.0).max(1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_narrows_with_the_root_of_the_count() {
        let few: Vec<f64> = (0..10).map(|number| f64::from(number % 2)).collect();
        let many: Vec<f64> = (0..1000).map(|number| f64::from(number % 2)).collect();
        let ((mean, wide), (_, narrow)) = (mean_and_error(&few), mean_and_error(&many));
        assert!((mean - 0.5).abs() < 1e-12);
        assert!((wide / narrow - (999.0_f64 / 9.0).sqrt()).abs() < 1e-9, "{wide} {narrow}");
        assert_eq!(mean_and_error(&[3.0]), (3.0, 0.0));
    }
}
