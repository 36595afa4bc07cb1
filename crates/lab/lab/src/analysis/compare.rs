//! Two results of one experiment, set by set.

use serde::Serialize;

use super::Analysis;
use crate::experiment::Better;
use crate::metrics::Distribution;

/// Why two results can't be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// Nothing in one has a counterpart in the other.
    #[error("nothing to compare: the results have no variant and metric in common")]
    NothingInCommon,
    /// They are about different things.
    #[error("results of two experiments, {0} and {1}; expected two of one")]
    DifferentExperiments(String, String),
    /// Values of different sets say nothing about each other.
    #[error("the results have different sets: \"{0}\" is not the same in both")]
    DifferentSets(String),
}

/// One metric of one variant in two results.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The variant.
    pub variant: String,
    /// The value of the sweep; empty without one.
    pub point: String,
    /// The metric.
    pub metric: &'static str,
    /// Which of its values are better.
    pub better: Better,
    /// Sets that both have a value of.
    pub sets: usize,
    /// Median in the first result.
    pub old_median: f64,
    /// Median in the second result.
    pub new_median: f64,
    /// By how much the median is worse: a difference for ratios such as the aggregation benefit, else a share of the
    /// old one. Negative is better. Where values nearer to one are better, it is the median of how far they are from that.
    pub worse_by: f64,
    /// The same for each set, as a distribution over the sets.
    pub(crate) worse_by_set: Distribution,
    /// Share of the sets that became worse by more than the threshold.
    pub worse_share: f64,
    /// The median became worse by more than the threshold.
    pub regressed: bool,
}

/// Two results, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// More than this is a regression.
    pub(crate) threshold: f64,
    /// A metric's median became worse by more than the threshold.
    pub regressed: bool,
    /// Every metric of every variant that both have.
    pub differences: Vec<Difference>,
}

/// Compares the medians of each metric over the sets that both results have values of.
///
/// # Errors
/// If the sets are not the same, or nothing is in common.
pub fn compare(old: &Analysis<'_>, new: &Analysis<'_>, threshold: f64) -> Result<Comparison, CompareError> {
    let (first, second) = (old.experiment(), new.experiment());
    if first.name != second.name {
        return Err(CompareError::DifferentExperiments(first.name.clone(), second.name.clone()));
    }
    for (index, set) in first.sets.iter().enumerate() {
        if second.sets.get(index) != Some(set) {
            return Err(CompareError::DifferentSets(set.name.clone()));
        }
    }
    let mut differences = Vec::new();
    for (old_metric, metric) in first.metrics.iter().enumerate() {
        let Some(new_metric) = second.metrics.iter().position(|other| other == metric) else { continue };
        for (old_point, point) in first.points.iter().enumerate() {
            let Some(new_point) = second.points.iter().position(|other| other == point) else { continue };
            for (old_variant, variant) in first.variants.iter().enumerate() {
                let same = |other: &crate::Variant| other.name == variant.name;
                let Some(new_variant) = second.variants.iter().position(same) else { continue };
                let pairs: Vec<(f64, f64)> = std::iter::zip(
                    old.sets(old_metric, old_variant, old_point),
                    new.sets(new_metric, new_variant, new_point),
                )
                .map(|(old, new)| (*old, *new))
                .filter(|(old, new)| !old.is_nan() && !new.is_nan())
                .collect();
                let worse = pairs.iter().map(|(old, new)| metric.worsening(*old, *new));
                let median = |value: &dyn Fn(&(f64, f64)) -> f64| {
                    Distribution::of(pairs.iter().map(value)).map(|all| all.median)
                };
                let (Some(old_median), Some(new_median), Some(worse_by_set)) =
                    (median(&|(old, _)| *old), median(&|(_, new)| *new), Distribution::of(worse.clone()))
                else {
                    continue;
                };
                let worse_by = metric.worsening(
                    median(&|(old, _)| metric.better.one_sided(*old)).unwrap_or(old_median),
                    median(&|(_, new)| metric.better.one_sided(*new)).unwrap_or(new_median),
                );
                differences.push(Difference {
                    variant: variant.name.clone(),
                    point: point.label.clone(),
                    metric: metric.name,
                    better: metric.better,
                    sets: pairs.len(),
                    old_median,
                    new_median,
                    worse_by,
                    worse_by_set,
                    worse_share: worse.filter(|worse| *worse > threshold).count() as f64 / pairs.len() as f64,
                    regressed: worse_by > threshold,
                });
            }
        }
    }
    if differences.is_empty() {
        return Err(CompareError::NothingInCommon);
    }
    let regressed = differences.iter().any(|difference| difference.regressed);
    Ok(Comparison { threshold, regressed, differences })
}
