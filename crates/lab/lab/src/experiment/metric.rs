use std::fmt;

use serde::Serialize;

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// The larger.
    More,
    /// The smaller.
    Less,
    /// Those nearer to this one, from either side.
    Nearest(f64),
}

impl Better {
    /// How bad a value is, in the metric's unit: the smaller the better.
    #[must_use]
    pub(crate) fn badness(self, value: f64) -> f64 {
        match self {
            Self::More => -value,
            Self::Less => value,
            Self::Nearest(target) => (value - target).abs(),
        }
    }

    /// A value as good as this one, on one side of the best: so that a median of values does not lie between those that are too
    /// small and those that are too large.
    #[must_use]
    pub(crate) fn one_sided(self, value: f64) -> f64 {
        match self {
            Self::More | Self::Less => value,
            Self::Nearest(target) => target + (value - target).abs(),
        }
    }
}

impl fmt::Display for Better {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::More => write!(f, "more is better"),
            Self::Less => write!(f, "less is better"),
            Self::Nearest(target) => write!(f, "nearest to {target} is best"),
        }
    }
}

/// A number that is computed from a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// The name by which files choose it.
    pub name: &'static str,
    /// What axes say.
    pub title: &'static str,
    /// Unit; empty for ratios.
    pub unit: &'static str,
    /// Which values are better.
    pub better: Better,
    /// Two values are compared by their difference; otherwise by their ratio.
    pub(crate) absolute: bool,
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
    StartupLatency,
    RequiredBuffer,
    Blocked,
    Smooth,
    TopQuality,
    QualityRate,
    StallTime,
    DatagramLoss,
    Reordered,
    InPlace,
    Displacement,
    ReorderEntropy,
    ReorderBufferP50,
    ReorderBufferP95,
    ReorderBufferP99,
    AdaptationTime,
}

impl Metric {
    /// Every metric that files can name. A new one is one entry here and one arm where values are computed.
    pub(crate) const ALL: &'static [Self] = &[
        Self {
            name: "aggregation-benefit",
            title: "Aggregation benefit",
            unit: "",
            better: Better::More,
            absolute: true,
            kind: MetricKind::AggregationBenefit,
        },
        // The same, where what a path can give is what plain TCP gets there.
        Self {
            name: "benefit-over-tcp",
            title: "Aggregation benefit over what TCP gets on each path",
            unit: "",
            better: Better::More,
            absolute: true,
            kind: MetricKind::BenefitOverTcp,
        },
        Self {
            name: "goodput",
            title: "Goodput",
            unit: "Mbit/s",
            better: Better::More,
            absolute: false,
            kind: MetricKind::Goodput,
        },
        Self {
            name: "completion-time",
            title: "Completion time",
            unit: "s",
            better: Better::Less,
            absolute: false,
            kind: MetricKind::Completion,
        },
        // Over the time that plain TCP needs on the best path.
        Self {
            name: "completion-ratio",
            title: "Completion time over that of TCP on the best path",
            unit: "",
            better: Better::Less,
            absolute: true,
            kind: MetricKind::CompletionRatio,
        },
        // Goodput of all connections over the sum of the bottlenecks' capacities, which is the most that one-hop
        // subflows alone can have.
        Self {
            name: "load-balancing",
            title: "Aggregate goodput over the upper bound",
            unit: "",
            better: Better::More,
            absolute: true,
            kind: MetricKind::LoadBalancing,
        },
        // While all send, and after the first seconds; 1 is an equal share.
        Self {
            name: "fairness",
            title: "Goodput over that of plain TCP on the same path",
            unit: "",
            better: Better::Nearest(1.0),
            absolute: true,
            kind: MetricKind::Fairness,
        },
        Self {
            name: "delay",
            title: "Median application delay",
            unit: "ms",
            better: Better::Less,
            absolute: false,
            kind: MetricKind::DelayMedian,
        },
        Self {
            name: "delay-p99",
            title: "99th percentile of the application delay",
            unit: "ms",
            better: Better::Less,
            absolute: false,
            kind: MetricKind::DelayP99,
        },
        // As Paasch 2014, §3.2.4 has it.
        Self {
            name: "delay-increase",
            title: "99th percentile of the application delay above the lowest",
            unit: "%",
            better: Better::Less,
            absolute: false,
            kind: MetricKind::DelayIncrease,
        },
        // As Paasch 2014, Fig. 4.21 has it.
        Self {
            name: "delay-increase-worst",
            title: "Longest application delay above the lowest",
            unit: "%",
            better: Better::Less,
            absolute: false,
            kind: MetricKind::WorstDelayIncrease,
        },
        Self {
            name: "receive-buffer",
            title: "Largest receive buffer",
            unit: "MB",
            better: Better::Less,
            absolute: false,
            kind: MetricKind::ReceiveBuffer,
        },
        // Paasch 2014, §4.2.2: T_A or T_F.
        Self {
            name: "slow-start",
            title: "Time until the fastest path's window is as large as slow start makes it",
            unit: "ms",
            better: Better::Less,
            absolute: false,
            kind: MetricKind::SlowStart,
        },
        // T_A − T_F.
        Self {
            name: "slow-start-lag",
            title: "The same, later than with the reference",
            unit: "ms",
            better: Better::Less,
            absolute: true,
            kind: MetricKind::SlowStartLag,
        },
        // Kaspar 2011, eq. 6.3.
        Self {
            name: "startup-latency",
            title: "Least startup latency without a pause later",
            unit: "s",
            better: Better::Less,
            absolute: false,
            kind: MetricKind::StartupLatency,
        },
        // Kaspar 2011, eq. 6.4.
        Self {
            name: "required-buffer",
            title: "Required buffer",
            unit: "MB",
            better: Better::Less,
            absolute: false,
            kind: MetricKind::RequiredBuffer,
        },
        Self {
            name: "blocked",
            title: "Most bytes behind a gap",
            unit: "MB",
            better: Better::Less,
            absolute: false,
            kind: MetricKind::Blocked,
        },
        // Kaspar 2011, Fig. 6.11: the mean is the share of downloads.
        Self {
            name: "smooth",
            title: "Played without a pause",
            unit: "",
            better: Better::More,
            absolute: true,
            kind: MetricKind::Smooth,
        },
        // Kaspar 2011, Fig. 6.14 to 6.16 have the number of segments; the movies are equally long.
        Self {
            name: "top-quality",
            title: "Share of segments in the highest quality",
            unit: "",
            better: Better::More,
            absolute: true,
            kind: MetricKind::TopQuality,
        },
        Self {
            name: "quality-rate",
            title: "Mean rate of the qualities",
            unit: "Mbit/s",
            better: Better::More,
            absolute: false,
            kind: MetricKind::QualityRate,
        },
        Self {
            name: "stall-time",
            title: "Time for which the player waits in the middle",
            unit: "s",
            better: Better::Less,
            absolute: true,
            kind: MetricKind::StallTime,
        },
        // Of streams of datagrams: Kaspar 2011, ch. 4.
        Self {
            name: "datagram-loss",
            title: "Packets that do not arrive",
            unit: "%",
            better: Better::Less,
            absolute: false,
            kind: MetricKind::DatagramLoss,
        },
        Self {
            name: "reordered",
            title: "Packets that arrive after one that was sent later",
            unit: "%",
            better: Better::Less,
            absolute: true,
            kind: MetricKind::Reordered,
        },
        Self {
            name: "in-place",
            title: "Packets that no other overtook",
            unit: "%",
            better: Better::More,
            absolute: true,
            kind: MetricKind::InPlace,
        },
        Self {
            name: "displacement",
            title: "Positions by which most late packets are displaced",
            unit: "packets",
            better: Better::Less,
            absolute: true,
            kind: MetricKind::Displacement,
        },
        Self {
            name: "reorder-entropy",
            title: "Reorder entropy",
            unit: "",
            better: Better::Less,
            absolute: true,
            kind: MetricKind::ReorderEntropy,
        },
        Self {
            name: "reorder-buffer-p50",
            title: "Median of the buffer that puts packets in order",
            unit: "packets",
            better: Better::Less,
            absolute: true,
            kind: MetricKind::ReorderBufferP50,
        },
        Self {
            name: "reorder-buffer-p95",
            title: "95th percentile of the buffer that puts packets in order",
            unit: "packets",
            better: Better::Less,
            absolute: true,
            kind: MetricKind::ReorderBufferP95,
        },
        Self {
            name: "reorder-buffer-p99",
            title: "99th percentile of the buffer that puts packets in order",
            unit: "packets",
            better: Better::Less,
            absolute: true,
            kind: MetricKind::ReorderBufferP99,
        },
        Self {
            name: "adaptation-time",
            title: "Longest time from a change of the paths until all that they carry arrives again",
            unit: "s",
            better: Better::Less,
            absolute: true,
            kind: MetricKind::AdaptationTime,
        },
    ];

    /// The metric of this name.
    #[must_use]
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|metric| metric.name == name)
    }

    /// It compares with what plain TCP gets.
    #[must_use]
    pub(crate) fn needs_baseline(&self) -> bool {
        matches!(self.kind, MetricKind::CompletionRatio | MetricKind::BenefitOverTcp)
    }

    /// It is of a run beside others.
    #[must_use]
    pub(crate) fn needs_other_runs(&self) -> bool {
        self.needs_baseline() || self.kind == MetricKind::SlowStartLag
    }

    /// It looks at when the last byte arrives.
    #[must_use]
    pub(crate) fn needs_end(&self) -> bool {
        matches!(self.kind, MetricKind::Completion | MetricKind::CompletionRatio)
    }

    /// It looks at blocks.
    #[must_use]
    pub(crate) fn needs_blocks(&self) -> bool {
        matches!(
            self.kind,
            MetricKind::DelayMedian
                | MetricKind::DelayP99
                | MetricKind::DelayIncrease
                | MetricKind::WorstDelayIncrease
        )
    }

    /// It looks at how a download could be played.
    #[must_use]
    pub(crate) fn needs_playback(&self) -> bool {
        matches!(
            self.kind,
            MetricKind::StartupLatency
                | MetricKind::RequiredBuffer
                | MetricKind::Blocked
                | MetricKind::Smooth
        )
    }

    /// It looks at an adaptive stream.
    #[must_use]
    pub(crate) fn needs_stream(&self) -> bool {
        matches!(self.kind, MetricKind::TopQuality | MetricKind::QualityRate | MetricKind::StallTime)
    }

    /// It looks at a stream of datagrams.
    #[must_use]
    pub(crate) fn needs_datagrams(&self) -> bool {
        matches!(
            self.kind,
            MetricKind::DatagramLoss
                | MetricKind::Reordered
                | MetricKind::InPlace
                | MetricKind::Displacement
                | MetricKind::ReorderEntropy
                | MetricKind::ReorderBufferP50
                | MetricKind::ReorderBufferP95
                | MetricKind::ReorderBufferP99
        )
    }

    /// The ends of a transfer are to be looked at while it goes on.
    #[must_use]
    pub(crate) fn needs_observation(&self) -> bool {
        matches!(self.kind, MetricKind::ReceiveBuffer | MetricKind::SlowStart | MetricKind::SlowStartLag)
    }

    /// By how much `new` is worse than `old`: a difference, or a share of `old`. Negative is better.
    #[must_use]
    pub(crate) fn worsening(&self, old: f64, new: f64) -> f64 {
        let (old_badness, new_badness) = (self.better.badness(old), self.better.badness(new));
        // Equal infinities: neither arrived.
        if old_badness == new_badness {
            0.0
        } else if self.absolute {
            new_badness - old_badness
        } else {
            (new_badness - old_badness) / old.abs().max(1e-12)
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

    #[test]
    fn a_fair_share_is_best_and_more_is_as_bad_as_less() {
        let fairness = Metric::by_name("fairness").unwrap();
        let worsening = |old, new| fairness.worsening(old, new);
        assert!((worsening(1.0, 1.2) - 0.2).abs() < 1e-12, "it takes from others");
        assert!((worsening(1.0, 0.8) - 0.2).abs() < 1e-12, "others take from it");
        assert!((worsening(1.5, 1.1) + 0.4).abs() < 1e-12);
        assert_eq!(worsening(0.75, 1.25), 0.0);
        assert_eq!(worsening(f64::INFINITY, f64::INFINITY), 0.0);
    }

    #[test]
    fn every_direction_has_words() {
        let words = |name| Metric::by_name(name).unwrap().better.to_string();
        assert_eq!(words("goodput"), "more is better");
        assert_eq!(words("delay"), "less is better");
        assert_eq!(words("fairness"), "nearest to 1 is best");
    }
}
