//! Two results of one experiment, set by set.

use serde::Serialize;

use super::{Analysis, Row};
use crate::experiment::Better;
use crate::metrics::Distribution;

/// Why two results can't be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// Nothing in one has a counterpart in the other.
    #[error("nothing to compare: no variant and metric has a value of the same set in both results")]
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
    /// Sets that one of them has a value of: they are left out.
    pub one_sided_sets: usize,
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

/// Why a row is not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftOutReason {
    /// Only the first result has it.
    OnlyInOld,
    /// Only the second result has it.
    OnlyInNew,
    /// No set has a value in both.
    NoCommonSet,
}

/// A metric of a variant that could not be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The variant.
    pub variant: String,
    /// The value of the sweep; empty without one.
    pub point: String,
    /// The metric.
    pub metric: &'static str,
    /// Why.
    pub reason: LeftOutReason,
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
    /// What is not in that.
    pub left_out: Vec<LeftOut>,
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
                let old_sets = old.sets(old_metric, old_variant, old_point);
                let new_sets = new.sets(new_metric, new_variant, new_point);
                let pairs: Vec<(f64, f64)> = std::iter::zip(old_sets, new_sets)
                    .map(|(old, new)| (*old, *new))
                    .filter(|(old, new)| !old.is_nan() && !new.is_nan())
                    .collect();
                let of_one = |sets: &[f64]| sets.iter().filter(|value| !value.is_nan()).count() - pairs.len();
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
                    one_sided_sets: of_one(old_sets) + of_one(new_sets),
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
    let left_out = left_out(&old.rows(), &new.rows(), &differences);
    Ok(Comparison { threshold, regressed, differences, left_out })
}

/// The rows of which there is no difference.
fn left_out(old: &[Row], new: &[Row], differences: &[Difference]) -> Vec<LeftOut> {
    let is_of = |row: &Row, other: &Row| {
        (row.metric, &row.variant, &row.point) == (other.metric, &other.variant, &other.point)
    };
    let is_compared = |row: &Row| {
        differences.iter().any(|difference| {
            (row.metric, &row.variant, &row.point)
                == (difference.metric, &difference.variant, &difference.point)
        })
    };
    let entry = |row: &Row, reason| LeftOut {
        variant: row.variant.clone(),
        point: row.point.clone(),
        metric: row.metric,
        reason,
    };
    let of_old = old.iter().filter(|row| !is_compared(row)).map(|row| {
        let is_in_both = new.iter().any(|other| is_of(row, other));
        entry(row, if is_in_both { LeftOutReason::NoCommonSet } else { LeftOutReason::OnlyInOld })
    });
    let of_new = new.iter().filter(|row| !old.iter().any(|other| is_of(row, other)));
    of_old.chain(of_new.map(|row| entry(row, LeftOutReason::OnlyInNew))).collect()
}
