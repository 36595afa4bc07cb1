//! Rows of a report: each of ours beside the others, and whether it is as good as it is to be.

use std::collections::BTreeMap;

use serde::Serialize;

use super::client::Service;
use super::system::System;
use crate::bench::Spread;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    SynMedian,
    SynP99,
    FirstByteMedian,
    FirstByteP99,
    EchoMedian,
    EchoP99,
    OneConnection,
    CpuPerGb,
    MachinePerGb,
    HundredConnections,
    Requests1k,
    Requests100k,
    Memory,
}

impl Figure {
    pub(crate) const ALL: [Self; 13] = [
        Self::SynMedian,
        Self::SynP99,
        Self::FirstByteMedian,
        Self::FirstByteP99,
        Self::EchoMedian,
        Self::EchoP99,
        Self::OneConnection,
        Self::CpuPerGb,
        Self::MachinePerGb,
        Self::HundredConnections,
        Self::Requests1k,
        Self::Requests100k,
        Self::Memory,
    ];

    /// As in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SynMedian => "syn-delay-us-median",
            Self::SynP99 => "syn-delay-us-p99",
            Self::FirstByteMedian => "first-byte-delay-us-median",
            Self::FirstByteP99 => "first-byte-delay-us-p99",
            Self::EchoMedian => "echo-delay-us-median",
            Self::EchoP99 => "echo-delay-us-p99",
            Self::OneConnection => "one-connection-gbit",
            Self::CpuPerGb => "cpu-s-per-gb",
            Self::MachinePerGb => "machine-s-per-gb",
            Self::HundredConnections => "hundred-connections-gbit",
            Self::Requests1k => "requests-1k-per-s",
            Self::Requests100k => "requests-100k-per-s",
            Self::Memory => "memory-per-connection-bytes",
        }
    }

    /// Whether more is better.
    const fn is_rate(self) -> bool {
        matches!(self, Self::OneConnection | Self::HundredConnections | Self::Requests1k | Self::Requests100k)
    }

    /// Whether that of a proxy is what it adds to the time that it takes without one.
    const fn is_added(self) -> bool {
        matches!(
            self,
            Self::SynMedian
                | Self::SynP99
                | Self::FirstByteMedian
                | Self::FirstByteP99
                | Self::EchoMedian
                | Self::EchoP99
        )
    }
}

/// What each system showed in each round; without a service what there was without a proxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(BTreeMap<(Option<Service>, System), BTreeMap<Figure, Vec<f64>>>);

impl Samples {
    pub(super) fn add(&mut self, service: Option<Service>, system: System, figure: Figure, value: f64) {
        self.0.entry((service, system)).or_default().entry(figure).or_default().push(value);
    }

    fn spread(&self, service: Option<Service>, system: System, figure: Figure) -> Option<Spread> {
        Spread::of(self.0.get(&(service, system))?.get(&figure)?.iter().copied())
    }

    /// What there was without a proxy.
    pub(super) fn direct(&self) -> BTreeMap<&'static str, Spread> {
        let spread = |figure: Figure| Some((figure.name(), self.spread(None, System::Direct, figure)?));
        Figure::ALL.into_iter().filter_map(spread).collect()
    }

    /// All rows that something was measured for.
    pub(super) fn rows(&self) -> Vec<Row> {
        let all = Service::ALL.into_iter().flat_map(|service| Figure::ALL.map(|figure| (service, figure)));
        all.flat_map(|(service, figure)| self.rows_of(service, figure)).collect()
    }

    fn rows_of(&self, service: Service, figure: Figure) -> Vec<Row> {
        let spreads = System::ALL
            .into_iter()
            .filter_map(|system| Some((system, self.spread(Some(service), system, figure)?)));
        let (ours, mut peers): (BTreeMap<_, _>, BTreeMap<_, _>) =
            spreads.partition(|(system, _)| system.is_ours());
        if ours.is_empty() && peers.is_empty() {
            return Vec::new();
        }
        let measure = reference(figure, &peers);
        if !figure.is_added() {
            let direct = self.spread(None, System::Direct, figure);
            peers.extend(direct.map(|direct| (System::Direct, direct)));
        }
        let row = |ours: Option<(System, Spread)>| {
            let bound = ours.zip(measure).map(|((system, _), measure)| match figure.is_rate() {
                true => measure / factor(system),
                false => measure * factor(system),
            });
            let is_held = |(_, ours): (System, Spread), bound: f64| match figure.is_rate() {
                true => ours.median >= bound,
                false => ours.median <= bound,
            };
            let system = ours.map(|(system, _)| system);
            let words = [service.name(), figure.name()].into_iter().chain(system.map(System::name));
            Row {
                name: words.collect::<Vec<_>>().join(" "),
                service,
                figure: figure.name(),
                system,
                ours: ours.map(|(_, spread)| spread.median),
                peers: peers.iter().map(|(peer, spread)| (peer.name(), spread.median)).collect(),
                spreads: ours
                    .iter()
                    .chain(&peers.iter().map(|(a, b)| (*a, *b)).collect::<Vec<_>>())
                    .map(|(system, spread)| (system.name(), *spread))
                    .collect(),
                bound,
                held: ours.zip(bound).map(|(ours, bound)| is_held(ours, bound)),
            }
        };
        if ours.is_empty() { vec![row(None)] } else { ours.into_iter().map(|ours| row(Some(ours))).collect() }
    }
}

/// What ours is measured by: the best of the others, but for what is added to times: nginx there, if it takes part.
fn reference(figure: Figure, peers: &BTreeMap<System, Spread>) -> Option<f64> {
    let medians = || peers.values().map(|spread| spread.median);
    let best = match figure.is_rate() {
        true => medians().max_by(f64::total_cmp),
        false => medians().min_by(f64::total_cmp),
    };
    let nginx = peers.get(&System::Nginx).filter(|_| figure.is_added());
    nginx.map(|spread| spread.median).or(best)
}

/// So many times worse ours may be: a stack in user space does by itself what the kernel does for the others.
const fn factor(ours: System) -> f64 {
    match ours {
        System::PolypathTun => 2.0,
        _ => 1.0,
    }
}

/// One figure of one of ours, or of the others alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Service, figure and system.
    pub(crate) name: String,
    pub(crate) service: Service,
    pub(crate) figure: &'static str,
    /// Which of ours.
    pub(crate) system: Option<System>,
    /// Medians of the rounds.
    pub(crate) ours: Option<f64>,
    pub(crate) peers: BTreeMap<&'static str, f64>,
    /// Of ours and peers, with least and most.
    pub(crate) spreads: BTreeMap<&'static str, Spread>,
    /// Most that ours is to have, or least of what is a rate.
    pub(crate) bound: Option<f64>,
    pub(crate) held: Option<bool>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn samples(values: &[(Option<Service>, System, Figure, &[f64])]) -> Samples {
        let mut samples = Samples::default();
        for (service, system, figure, values) in values {
            values.iter().for_each(|value| samples.add(*service, *system, *figure, *value));
        }
        samples
    }

    #[test]
    fn a_row_has_medians_bound_and_verdict() {
        let forward = Some(Service::Forward);
        let rows = samples(&[
            (forward, System::PolypathTcp, Figure::SynMedian, &[50.0, 60.0, 70.0]),
            (forward, System::PolypathTun, Figure::SynMedian, &[125.0]),
            (forward, System::Nginx, Figure::SynMedian, &[62.0]),
            (forward, System::Haproxy, Figure::SynMedian, &[10.0]),
            (None, System::Direct, Figure::SynMedian, &[20.0]),
        ])
        .rows();
        let row = json!({
            "name": "forward syn-delay-us-median polypath-tcp",
            "service": "forward",
            "figure": "syn-delay-us-median",
            "system": "polypath-tcp",
            "ours": 60.0,
            "peers": {"nginx": 62.0, "haproxy": 10.0},
            "spreads": {
                "polypath-tcp": {"median": 60.0, "min": 50.0, "max": 70.0},
                "nginx": {"median": 62.0, "min": 62.0, "max": 62.0},
                "haproxy": {"median": 10.0, "min": 10.0, "max": 10.0},
            },
            "bound": 62.0,
            "held": true,
        });
        assert_eq!(serde_json::to_value(&rows[0]).expect("JSON"), row);
        assert_eq!((rows[1].bound, rows[1].held), (Some(124.0), Some(false)));
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn of_rates_more_is_better_and_the_best_peer_counts() {
        let socks = Some(Service::Socks);
        let rows = samples(&[
            (socks, System::PolypathKernel, Figure::OneConnection, &[5.0]),
            (socks, System::PolypathTun, Figure::OneConnection, &[3.0]),
            (socks, System::Dante, Figure::OneConnection, &[6.0]),
            (socks, System::Microsocks, Figure::OneConnection, &[4.0]),
            (None, System::Direct, Figure::OneConnection, &[14.0]),
        ])
        .rows();
        let verdicts: Vec<_> = rows.iter().map(|row| (row.bound, row.held)).collect();
        assert_eq!(verdicts, [(Some(6.0), Some(false)), (Some(3.0), Some(true))]);
        assert_eq!(rows[0].peers["direct"], 14.0);
    }

    #[test]
    fn nginx_counts_alone_for_times_only() {
        let forward = Some(Service::Forward);
        let rows = samples(&[
            (forward, System::PolypathTcp, Figure::EchoMedian, &[15.0]),
            (forward, System::Nginx, Figure::EchoMedian, &[16.0]),
            (forward, System::Haproxy, Figure::EchoMedian, &[14.0]),
            (forward, System::PolypathTcp, Figure::Memory, &[7.0]),
            (forward, System::Nginx, Figure::Memory, &[9.0]),
            (forward, System::Haproxy, Figure::Memory, &[3.0]),
        ])
        .rows();
        let verdicts: Vec<_> = rows.iter().map(|row| (row.bound, row.held)).collect();
        assert_eq!(verdicts, [(Some(16.0), Some(true)), (Some(3.0), Some(false))]);
    }

    #[test]
    fn without_one_of_ours_or_a_peer_nothing_is_judged() {
        let connect = Some(Service::Connect);
        let rows = samples(&[(connect, System::Squid, Figure::Memory, &[9.0])]).rows();
        assert_eq!((rows.len(), rows[0].ours, rows[0].held), (1, None, None));
        let rows = samples(&[(connect, System::PolypathTcp, Figure::Memory, &[9.0])]).rows();
        assert_eq!((rows.len(), rows[0].bound, rows[0].held), (1, None, None));
        assert_eq!(rows[0].name, "connect memory-per-connection-bytes polypath-tcp");
        let direct = samples(&[(None, System::Direct, Figure::OneConnection, &[14.0])]);
        assert!(direct.rows().is_empty() && direct.direct().contains_key("one-connection-gbit"));
    }
}
