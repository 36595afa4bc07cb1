//! What runs mean: metrics of each set, their distributions, and the comparison with the document.

mod compare;
mod effects;
mod worst;

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

pub use compare::{CompareError, Comparison, Difference, LeftOut, LeftOutReason, compare};
pub use effects::Effect;
pub use worst::WorstSet;

use crate::experiment::{Claim, Experiment, Group, Metric, MetricKind, RunKey, SweepPoint};
use crate::metrics::{Distribution, aggregation_benefit, sensitivity};
use crate::run::{DatagramOutcome, Outcome, PathSpec, Workload};

/// The metrics of every set, repeats reduced to their median.
#[derive(Debug)]
pub struct Analysis<'a> {
    experiment: &'a Experiment,
    /// By metric, variant, point and set; not a number where a run is missing or has no such metric.
    values: Vec<f64>,
    /// The repeat whose value is nearest to that, in the same order.
    typical: Vec<usize>,
}

/// A claim and what was found.
#[derive(Clone, Debug, Serialize)]
pub struct Finding<'a> {
    /// What was to be found.
    pub claim: &'a Claim,
    /// The variant's name.
    pub variant: &'a str,
    /// The metric's name and the statistic, in words.
    pub measure: String,
    /// What was found; none for claims without a counterpart here, or left out of the short form.
    pub measured: Option<f64>,
    /// What is to hold here does; none if nothing is demanded.
    pub holds: Option<bool>,
}

/// The distribution of one metric of one variant at one point of the sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The variant.
    pub variant: String,
    /// The value of the sweep; empty without one.
    pub point: String,
    /// The same by parameter, in the file's words.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sweep: BTreeMap<String, String>,
    /// What is sent there.
    pub traffic: String,
    /// The metric's name.
    pub metric: &'static str,
    /// The metric's unit.
    pub unit: &'static str,
    /// Over all sets.
    pub distribution: Distribution,
    /// Standard deviation of the 5th, 25th, 50th, 75th and 95th percentiles over the designs, if there are several.
    pub sensitivity: Option<[f64; 5]>,
}

fn by_parameter(point: &SweepPoint) -> BTreeMap<String, String> {
    point.swept.iter().map(|swept| (swept.parameter.clone(), swept.text.clone())).collect()
}

impl<'a> Analysis<'a> {
    /// Computes the metrics of all runs that are there.
    #[must_use]
    pub fn new(experiment: &'a Experiment, runs: &BTreeMap<RunKey, Outcome>) -> Self {
        let (mut values, mut typical) = (Vec::new(), Vec::new());
        for metric in &experiment.metrics {
            for variant in 0..experiment.variants.len() {
                for point in 0..experiment.points.len() {
                    for set in 0..experiment.sets.len() {
                        let repeats = (0..experiment.repeats).filter_map(|repeat| {
                            let key = RunKey { set, point, variant, repeat };
                            let outcome = runs.get(&key)?;
                            Some((repeat, value(experiment, runs, *metric, key, outcome)))
                        });
                        let repeats: Vec<(usize, f64)> = repeats.collect();
                        let median = Distribution::of(repeats.iter().map(|(_, value)| *value));
                        let median = median.map_or(f64::NAN, |all| all.median);
                        let distance =
                            |value: f64| if value == median { 0.0 } else { (value - median).abs() };
                        let nearest = repeats
                            .iter()
                            .min_by(|(_, one), (_, other)| distance(*one).total_cmp(&distance(*other)));
                        typical.push(nearest.map_or(0, |(repeat, _)| *repeat));
                        values.push(median);
                    }
                }
            }
        }
        Self { experiment, values, typical }
    }

    /// The experiment.
    #[must_use]
    pub fn experiment(&self) -> &'a Experiment {
        self.experiment
    }

    /// The values of a metric, by set.
    #[must_use]
    pub fn sets(&self, metric: usize, variant: usize, point: usize) -> &[f64] {
        &self.values[self.places(metric, variant, point)]
    }

    fn places(&self, metric: usize, variant: usize, point: usize) -> Range<usize> {
        let Experiment { variants, points, sets, .. } = self.experiment;
        let start = ((metric * variants.len() + variant) * points.len() + point) * sets.len();
        start..start + sets.len()
    }

    /// The name of the run that has the value of a set, or the next to it.
    fn run_of(&self, metric: usize, variant: usize, point: usize, set: usize) -> String {
        let repeat = self.typical[self.places(metric, variant, point)][set];
        self.experiment.run_name(RunKey { set, point, variant, repeat })
    }

    /// The distribution of a metric over all sets; none if there is no value.
    #[must_use]
    pub fn distribution(&self, metric: usize, variant: usize, point: usize) -> Option<Distribution> {
        Distribution::of(self.sets(metric, variant, point).iter().copied())
    }

    /// How much its percentiles depend on the choice of the design.
    #[must_use]
    pub fn sensitivity(&self, metric: usize, variant: usize, point: usize) -> Option<[f64; 5]> {
        let designs = self.experiment.design_count();
        if designs < 2 {
            return None;
        }
        let values = self.sets(metric, variant, point);
        let of_design = |design| {
            let sets = self.experiment.sets.iter().zip(values);
            Distribution::of(sets.filter(|(set, _)| set.design == design).map(|(_, value)| *value))
        };
        sensitivity(&(0..designs).map(of_design).collect::<Option<Vec<_>>>()?)
    }

    /// Every distribution there is.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let Experiment { metrics, variants, points, .. } = self.experiment;
        let mut rows = Vec::new();
        for (index, metric) in metrics.iter().enumerate() {
            for (point, sweep) in points.iter().enumerate() {
                for (number, variant) in variants.iter().enumerate() {
                    let Some(distribution) = self.distribution(index, number, point) else { continue };
                    rows.push(Row {
                        variant: variant.name.clone(),
                        point: sweep.label.clone(),
                        sweep: by_parameter(sweep),
                        traffic: self.experiment.traffic_at(point).to_string(),
                        metric: metric.name,
                        unit: metric.unit,
                        distribution,
                        sensitivity: self.sensitivity(index, number, point),
                    });
                }
            }
        }
        rows
    }

    /// The claims with what was found.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding<'a>> {
        self.experiment.claims.iter().map(|claim| self.finding(claim)).collect()
    }

    fn finding(&self, claim: &'a Claim) -> Finding<'a> {
        let metric = self.experiment.metrics[claim.metric];
        let points: Vec<usize> = match claim.points.as_slice() {
            [] => (0..self.experiment.points.len()).collect(),
            // One that was left out has no runs.
            points => points.iter().copied().flatten().collect(),
        };
        let measured = claim.variant.and_then(|variant| {
            let statistic = |group: Option<&Group>| {
                let is_meant = |set: usize| {
                    claim.set.is_none_or(|wanted| wanted == set)
                        && group.is_none_or(|group| group.sets().binary_search(&set).is_ok())
                };
                let values = points.iter().flat_map(|point| {
                    let sets = self.sets(claim.metric, variant, *point).iter().enumerate();
                    sets.filter(|(set, _)| is_meant(*set)).map(|(_, value)| *value)
                });
                Distribution::of(values).map(|distribution| claim.statistic.of(&distribution))
            };
            let of_sets = statistic(claim.among.as_ref())?;
            match &claim.against {
                None => Some(of_sets),
                Some(others) => Some(of_sets - statistic(Some(others))?),
            }
        });
        let demands = claim.at_least.is_some() || claim.at_most.is_some();
        let holds = measured.filter(|_| demands).map(|measured| {
            claim.at_least.is_none_or(|least| measured >= least)
                && claim.at_most.is_none_or(|most| measured <= most)
        });
        Finding {
            claim,
            variant: claim.variant.map_or("", |variant| &self.experiment.variants[variant].name),
            measure: measure(claim, metric),
            measured,
            holds,
        }
    }
}

/// What is looked at, in words.
fn measure(claim: &Claim, metric: Metric) -> String {
    let among = claim.among.as_ref().map(|group| format!(" with {group}")).unwrap_or_default();
    let against = claim.against.as_ref().map(|group| format!(", less that with {group}")).unwrap_or_default();
    format!("{} of {}{among}{against}", claim.statistic.name(), metric.name)
}

/// Every metric of one run alone; none for those that compare it with others.
#[must_use]
pub fn run_values(experiment: &Experiment, key: RunKey, outcome: &Outcome) -> Vec<(Metric, Option<f64>)> {
    let alone = BTreeMap::from([(key, outcome.clone())]);
    let values = experiment.metrics.iter().map(|metric| {
        let value = value(experiment, &alone, *metric, key, outcome);
        (*metric, Some(value).filter(|_| !metric.needs_other_runs() && !value.is_nan()))
    });
    values.collect()
}

/// One metric of one run.
fn value(
    experiment: &Experiment,
    runs: &BTreeMap<RunKey, Outcome>,
    metric: Metric,
    key: RunKey,
    outcome: &Outcome,
) -> f64 {
    let job = experiment.job_of(key);
    let milliseconds = |seconds: Option<f64>| seconds.map_or(f64::NAN, |seconds| seconds * 1e3);
    match metric.kind {
        MetricKind::AggregationBenefit => {
            let capacities: Vec<f64> = job.set.paths.iter().map(PathSpec::capacity_bps).collect();
            aggregation_benefit(outcome.goodput_bps, &capacities)
        }
        MetricKind::BenefitOverTcp => {
            let capacities = baseline(experiment, runs, key, |outcome| outcome.goodput_bps);
            // Without all of its paths, a set says nothing.
            if capacities.len() < job.set.paths.len() {
                return f64::NAN;
            }
            aggregation_benefit(outcome.goodput_bps, &capacities)
        }
        MetricKind::Goodput => outcome.goodput_bps / 1e6,
        MetricKind::Completion => outcome.completion_s.unwrap_or(f64::INFINITY),
        MetricKind::CompletionRatio => {
            let times =
                baseline(experiment, runs, key, |outcome| outcome.completion_s.unwrap_or(f64::INFINITY));
            let best = times.iter().copied().fold(f64::INFINITY, f64::min);
            outcome.completion_s.unwrap_or(f64::INFINITY) / best
        }
        MetricKind::LoadBalancing => {
            outcome.goodput_bps / job.set.paths.iter().map(PathSpec::capacity_bps).sum::<f64>()
        }
        MetricKind::Fairness => outcome.fairness.unwrap_or(f64::NAN),
        MetricKind::DelayMedian => milliseconds(outcome.blocks.map(|blocks| blocks.median_s)),
        MetricKind::DelayP99 | MetricKind::DelayIncrease | MetricKind::WorstDelayIncrease => {
            outcome.blocks.map_or(f64::NAN, |blocks| {
                let increase = |delay_s: f64| (delay_s - blocks.min_s) / blocks.min_s * 100.0;
                match metric.kind {
                    // What did not arrive is late without end.
                    _ if blocks.arrived < blocks.made => f64::INFINITY,
                    MetricKind::DelayP99 => blocks.p99_s * 1e3,
                    MetricKind::DelayIncrease => increase(blocks.p99_s),
                    _ => increase(blocks.max_s),
                }
            })
        }
        MetricKind::ReceiveBuffer => {
            outcome.receive_buffer_bytes.map_or(f64::NAN, |bytes| bytes as f64 / 1e6)
        }
        MetricKind::StartupLatency => outcome.playback.map_or(f64::INFINITY, |playback| playback.startup_s),
        MetricKind::RequiredBuffer => {
            outcome.playback.map_or(f64::INFINITY, |playback| playback.buffer_bytes as f64 / 1e6)
        }
        MetricKind::Blocked => {
            outcome.playback.map_or(f64::INFINITY, |playback| playback.blocked_bytes as f64 / 1e6)
        }
        MetricKind::Smooth => {
            let startup_s = match job.workload {
                Workload::Download { player: Some(player), .. } => player.startup.as_secs_f64(),
                _ => 0.0,
            };
            let is_smooth = outcome.playback.is_some_and(|playback| playback.startup_s <= startup_s);
            if is_smooth { 1.0 } else { 0.0 }
        }
        MetricKind::TopQuality => outcome
            .stream
            .map_or(0.0, |stream| stream.top_segments as f64 / stream.planned_segments.max(1) as f64),
        MetricKind::QualityRate => outcome.stream.map_or(0.0, |stream| stream.mean_bps / 1e6),
        // What did not come is waited for without end.
        MetricKind::StallTime => outcome
            .stream
            .filter(|stream| stream.segments == stream.planned_segments)
            .map_or(f64::INFINITY, |stream| stream.stalled_s),
        MetricKind::DatagramLoss
        | MetricKind::Reordered
        | MetricKind::InPlace
        | MetricKind::Displacement
        | MetricKind::ReorderEntropy
        | MetricKind::ReorderBufferP50
        | MetricKind::ReorderBufferP95
        | MetricKind::ReorderBufferP99 => {
            outcome.datagrams.map_or(f64::NAN, |datagrams| datagram_value(metric.kind, &datagrams))
        }
        MetricKind::AdaptationTime => {
            let of_datagrams = outcome.datagrams.and_then(|datagrams| datagrams.adaptation_s);
            outcome.adaptation_s.or(of_datagrams).unwrap_or(f64::NAN)
        }
        MetricKind::SlowStart => milliseconds(outcome.slow_start_s),
        MetricKind::SlowStartLag => {
            let reference = experiment.references[key.variant].map(|variant| RunKey { variant, ..key });
            let other = reference.and_then(|key| runs.get(&key)).and_then(|outcome| outcome.slow_start_s);
            let lag_s = outcome.slow_start_s.zip(other).map(|(own_s, other_s)| own_s - other_s);
            milliseconds(lag_s)
        }
    }
}

/// A metric of a stream of datagrams.
fn datagram_value(kind: MetricKind, datagrams: &DatagramOutcome) -> f64 {
    match kind {
        MetricKind::DatagramLoss => {
            let lost = datagrams.sent.saturating_sub(datagrams.received);
            lost as f64 / datagrams.sent.max(1) as f64 * 100.0
        }
        MetricKind::Reordered => datagrams.reordered * 100.0,
        MetricKind::InPlace => datagrams.in_place * 100.0,
        MetricKind::Displacement => datagrams.displacement as f64,
        MetricKind::ReorderEntropy => datagrams.entropy,
        MetricKind::ReorderBufferP50 => datagrams.buffer_p50 as f64,
        MetricKind::ReorderBufferP95 => datagrams.buffer_p95 as f64,
        _ => datagrams.buffer_p99 as f64,
    }
}

/// A number of plain TCP on each path of a set, medians over repeats.
fn baseline(
    experiment: &Experiment,
    runs: &BTreeMap<RunKey, Outcome>,
    key: RunKey,
    number: fn(&Outcome) -> f64,
) -> Vec<f64> {
    let all = experiment.variants.len();
    (all - experiment.baseline_variants..all)
        .filter_map(|variant| {
            let repeats = (0..experiment.repeats)
                .filter_map(|repeat| runs.get(&RunKey { variant, repeat, ..key }).map(number));
            Distribution::of(repeats).map(|all| all.median)
        })
        .collect()
}

#[cfg(test)]
mod tests;
