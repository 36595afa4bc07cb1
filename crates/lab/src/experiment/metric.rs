use serde::Serialize;

/// A number that is computed from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// The name by which files choose it.
    pub name: &'static str,
    /// What axes say.
    pub title: &'static str,
    /// Unit; empty for ratios.
    pub unit: &'static str,
    /// More is better.
    pub higher_is_better: bool,
    /// Two values are compared by their difference; otherwise by their ratio.
    pub absolute: bool,
    /// What it is.
    #[serde(skip)]
    pub(crate) kind: MetricKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    AggregationBenefit,
    BenefitOverTcp,
    Goodput,
    Completion,
    CompletionRatio,
    LoadBalancing,
    Fairness,
    DelayMedian,
    DelayP99,
    DelayIncrease,
    WorstDelayIncrease,
    ReceiveBuffer,
    SlowStart,
    SlowStartLag,
}

impl Metric {
    /// Every metric that files can name. A new one is one entry here and one arm where values are computed.
    pub const ALL: &'static [Self] = &[
        Self {
            name: "aggregation-benefit",
            title: "Aggregation benefit",
            unit: "",
            higher_is_better: true,
            absolute: true,
            kind: MetricKind::AggregationBenefit,
        },
        // The same, where what a path can give is what plain TCP gets there.
        Self {
            name: "benefit-over-tcp",
            title: "Aggregation benefit over what TCP gets on each path",
            unit: "",
            higher_is_better: true,
            absolute: true,
            kind: MetricKind::BenefitOverTcp,
        },
        Self {
            name: "goodput",
            title: "Goodput",
            unit: "Mbit/s",
            higher_is_better: true,
            absolute: false,
            kind: MetricKind::Goodput,
        },
        Self {
            name: "completion-time",
            title: "Completion time",
            unit: "s",
            higher_is_better: false,
            absolute: false,
            kind: MetricKind::Completion,
        },
        // Over the time that plain TCP needs on the best path.
        Self {
            name: "completion-ratio",
            title: "Completion time over that of TCP on the best path",
            unit: "",
            higher_is_better: false,
            absolute: true,
            kind: MetricKind::CompletionRatio,
        },
        // Goodput of all connections over the sum of the bottlenecks' capacities, which is the most that one-hop
        // subflows alone can have.
        Self {
            name: "load-balancing",
            title: "Aggregate goodput over the upper bound",
            unit: "",
            higher_is_better: true,
            absolute: true,
            kind: MetricKind::LoadBalancing,
        },
        // While all send, and after the first seconds; 1 is an equal share.
        Self {
            name: "fairness",
            title: "Goodput over that of plain TCP on the same path",
            unit: "",
            higher_is_better: true,
            absolute: true,
            kind: MetricKind::Fairness,
        },
        Self {
            name: "delay",
            title: "Median application delay",
            unit: "ms",
            higher_is_better: false,
            absolute: false,
            kind: MetricKind::DelayMedian,
        },
        Self {
            name: "delay-p99",
            title: "99th percentile of the application delay",
            unit: "ms",
            higher_is_better: false,
            absolute: false,
            kind: MetricKind::DelayP99,
        },
        // As Paasch 2014, §3.2.4 has it.
        Self {
            name: "delay-increase",
            title: "99th percentile of the application delay above the lowest",
            unit: "%",
            higher_is_better: false,
            absolute: false,
            kind: MetricKind::DelayIncrease,
        },
        // As Paasch 2014, Fig. 4.21 has it.
        Self {
            name: "delay-increase-worst",
            title: "Longest application delay above the lowest",
            unit: "%",
            higher_is_better: false,
            absolute: false,
            kind: MetricKind::WorstDelayIncrease,
        },
        Self {
            name: "receive-buffer",
            title: "Largest receive buffer",
            unit: "MB",
            higher_is_better: false,
            absolute: false,
            kind: MetricKind::ReceiveBuffer,
        },
        // Paasch 2014, §4.2.2: T_A or T_F.
        Self {
            name: "slow-start",
            title: "Time until the fastest path's window is as large as slow start makes it",
            unit: "ms",
            higher_is_better: false,
            absolute: false,
            kind: MetricKind::SlowStart,
        },
        // T_A − T_F.
        Self {
            name: "slow-start-lag",
            title: "The same, later than with the reference",
            unit: "ms",
            higher_is_better: false,
            absolute: true,
            kind: MetricKind::SlowStartLag,
        },
    ];

    /// The metric of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|metric| metric.name == name)
    }

    /// It compares with what plain TCP gets.
    #[must_use]
    pub fn needs_baseline(&self) -> bool {
        matches!(self.kind, MetricKind::CompletionRatio | MetricKind::BenefitOverTcp)
    }

    /// It looks at blocks.
    #[must_use]
    pub fn needs_blocks(&self) -> bool {
        matches!(
            self.kind,
            MetricKind::DelayMedian
                | MetricKind::DelayP99
                | MetricKind::DelayIncrease
                | MetricKind::WorstDelayIncrease
        )
    }

    /// The ends of a transfer are to be looked at while it goes on.
    #[must_use]
    pub fn needs_observation(&self) -> bool {
        matches!(self.kind, MetricKind::ReceiveBuffer | MetricKind::SlowStart | MetricKind::SlowStartLag)
    }

    /// By how much `new` is worse than `old`: a difference, or a share of `old`. Negative is better.
    #[must_use]
    pub fn worsening(&self, old: f64, new: f64) -> f64 {
        let difference = if self.higher_is_better { old - new } else { new - old };
        // Equal infinities: neither arrived.
        if old == new {
            0.0
        } else if self.absolute {
            difference
        } else {
            difference / old.abs().max(1e-12)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worse_is_worse_in_the_direction_of_the_metric() {
        let worsening = |name, old, new| Metric::by_name(name).unwrap().worsening(old, new);
        assert!((worsening("aggregation-benefit", 0.9, 0.8) - 0.1).abs() < 1e-12);
        assert!((worsening("goodput", 10.0, 9.0) - 0.1).abs() < 1e-12);
        assert!((worsening("completion-time", 10.0, 9.0) + 0.1).abs() < 1e-12);
        assert_eq!(worsening("completion-time", f64::INFINITY, f64::INFINITY), 0.0);
        assert_eq!(Metric::by_name("speed"), None);
    }
}
