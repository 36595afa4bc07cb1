//! What the transfer is compared with: TCP on each path alone.

use std::io;

use polypath_mptcp::ConnectionConfig;
use serde::Serialize;

use super::{Clock, Cut, Demo, Outcome};

/// Where baselines were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Provenance {
    /// In virtual time, our stack at both ends.
    Simulator,
    /// Between network namespaces: the kernel sends, and the kernel's TCP receives.
    #[cfg_attr(
        not(feature = "full"),
        expect(dead_code, reason = "a build for a first look has no namespaces")
    )]
    Namespaces,
}

/// Goodputs of the same file without trouble, in bits per second.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Baselines {
    /// TCP on each path alone, by path.
    pub(crate) tcp_alone_bps: Vec<f64>,
    /// Multipath TCP on all paths, none of them cut.
    pub(crate) mptcp_bps: f64,
    /// A client on the kernel's Multipath TCP, where there is a kernel.
    pub(crate) kernel: Option<KernelBaselines>,
    /// Where this was measured.
    pub(crate) provenance: Provenance,
}

/// What a client on the kernel's Multipath TCP makes of the same paths.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct KernelBaselines {
    /// None of them cut.
    pub(crate) mptcp_bps: f64,
    /// With the cut, if there is one.
    pub(crate) with_cut_bps: Option<f64>,
    /// The longest time in which nothing arrived in that, in seconds.
    pub(crate) with_cut_longest_gap_s: Option<f64>,
}

impl Baselines {
    /// Which path TCP does best on, and how well.
    #[must_use]
    pub(crate) fn best(&self) -> Option<(usize, f64)> {
        let paths = self.tcp_alone_bps.iter().copied().enumerate();
        // The first of equals.
        paths.rev().max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// Aggregation benefit of `goodput_bps` over TCP on the paths alone.
    #[must_use]
    pub(crate) fn benefit(&self, goodput_bps: f64) -> f64 {
        aggregation_benefit(goodput_bps, &self.tcp_alone_bps)
    }
}

/// Aggregation benefit (Kaspar 3.6, Paasch 3.2): 1 is the sum of what single paths give, 0 the best of them, −1 nothing.
#[must_use]
pub(crate) fn aggregation_benefit(goodput: f64, single: &[f64]) -> f64 {
    let best = single.iter().copied().fold(0.0, f64::max);
    let sum: f64 = single.iter().sum();
    if goodput >= best {
        // With one path there is nothing to gain.
        if sum > best { (goodput - best) / (sum - best) } else { 0.0 }
    } else {
        (goodput - best) / best
    }
}

/// TCP on the best path, with the same file and under the same cut.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Beside {
    /// The path.
    pub(crate) path: usize,
    /// What came of it. Its samples have this path alone.
    pub(crate) outcome: Outcome,
}

impl Demo {
    /// The same over plain TCP on one path. It is cut if that path is to be cut.
    #[must_use]
    pub(crate) fn tcp_on(&self, path: usize) -> Self {
        let cut = self.cut.filter(|cut| cut.path == path).map(|cut| Cut { path: 0, ..cut });
        let connection = ConnectionConfig {
            mptcp: false,
            congestion: polypath_congestion::CUBIC,
            ..self.connection.clone()
        };
        let paths = self.paths.get(path).cloned().into_iter().collect();
        Self { paths, cut, connection, ..self.clone() }
    }
}

/// Measures the baselines in virtual time, with the demo's paths, content and settings.
///
/// # Errors
/// Only what [`Demo::run`] reports.
pub(crate) fn measure_baselines(demo: &Demo) -> io::Result<Baselines> {
    let undisturbed = Demo { cut: None, clock: Clock::Virtual, ..demo.clone() };
    let goodput = |demo: &Demo| demo.run().map(|outcome: Outcome| outcome.goodput_bps);
    let tcp_alone_bps = (0..demo.paths.len()).map(|path| goodput(&undisturbed.tcp_on(path)));
    Ok(Baselines {
        tcp_alone_bps: tcp_alone_bps.collect::<io::Result<_>>()?,
        mptcp_bps: goodput(&undisturbed)?,
        kernel: None,
        provenance: Provenance::Simulator,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benefit_has_its_three_fixed_points() {
        let single = [40.0, 20.0];
        for (goodput, benefit) in [(60.0, 1.0), (50.0, 0.5), (40.0, 0.0), (20.0, -0.5), (0.0, -1.0)] {
            assert!((aggregation_benefit(goodput, &single) - benefit).abs() < 1e-12);
        }
    }
}
