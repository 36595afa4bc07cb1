//! Three connections over three bottlenecks in a ring: each has a subflow over one of them and one over the other two.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use polypath_mptcp::HostConfig;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_sim::conversation::{Conversation, Ends};
use polypath_sim::network::{LinkSpec, NetworkBuilder, NodeId, Prefix};
use polypath_sim::scenario::Recorded;
use polypath_units::{Duration, Instant};
use polypath_wire::Endpoint;

use super::outcome::{Outcome, PathOutcome};
use super::path_set::PathSet;
use super::variant::{Variant, VariantKind};
use super::watch::{self, MaybeWatched};
use super::workload::{DatagramTraffic, StreamTraffic, Workload};

const BOTTLENECKS: usize = 3;

/// Runs bulk transfers of three connections over three bottlenecks, which are the paths of `set`.
///
/// Connection i goes over bottleneck i, and over bottlenecks i + 1 and i + 2 one after the other. The bottleneck's
/// whole round-trip time is in the direction of the data; acknowledgments take no time and no capacity. The goodput of
/// the outcome is that of all connections together. A single-path variant uses the short way only.
#[must_use]
pub(crate) fn run_ring(
    set: &PathSet,
    variant: &Variant,
    workload: &Workload,
    seed: u64,
    mut watch: MaybeWatched<'_>,
) -> Outcome {
    let duration = match *workload {
        Workload::Bulk { duration } => duration,
        Workload::Transfer { timeout, .. }
        | Workload::Requests { timeout, .. }
        | Workload::Download { timeout, .. }
        | Workload::Stream(StreamTraffic { timeout, .. }) => timeout,
        Workload::Blocks { duration, .. } | Workload::Datagrams(DatagramTraffic { duration, .. }) => duration,
    };
    let config = Arc::new(variant.connection(set));
    let mut builder = NetworkBuilder::new(seed);
    let entries: Vec<NodeId> =
        (0..BOTTLENECKS).map(|at| builder.router(format!("entry {}", at + 1))).collect();
    let exits: Vec<NodeId> = (0..BOTTLENECKS).map(|at| builder.router(format!("exit {}", at + 1))).collect();
    let next = |at: usize, steps: usize| (at + steps) % BOTTLENECKS;
    let mut bottlenecks = Vec::new();
    let mut between = Vec::new();
    for at in 0..BOTTLENECKS {
        let mut spec =
            LinkSpec::new(format!("bottleneck {}", at + 1), [entries[at], exits[at]], [None, None]);
        // Sets of another shape use what there is of them.
        spec.forward = set.paths.get(at).map(|path| set.one_way_link(path, path.rtt));
        bottlenecks.push(builder.link(spec));
        let spec = LinkSpec::new(format!("on {}", at + 1), [exits[at], entries[next(at, 1)]], [None, None]);
        between.push(builder.link(spec));
    }
    let addr = |at: usize, host: u8| IpAddr::V4(Ipv4Addr::new(10, 0, at as u8, host));
    let mut hosts = Vec::new();
    for at in 0..BOTTLENECKS {
        let own = [addr(at, 1), addr(at, 2)];
        let endpoints = (1..).zip(own).map(|(id, addr)| LocalEndpoint::subflow(addr, id)).collect();
        let config = HostConfig { connection: config.clone(), ..HostConfig::default() };
        let client = builder.host(format!("client {}", at + 1), HostConfig { endpoints, ..config.clone() });
        let server = builder.host(format!("server {}", at + 1), config);
        let remote = addr(at, 3);
        for (entry, local) in [entries[at], entries[next(at, 1)]].into_iter().zip(own) {
            builder.link(LinkSpec::new(format!("in {}", at + 1), [client, entry], [Some(local), None]));
        }
        for exit in [exits[at], exits[next(at, 2)]] {
            builder.link(LinkSpec::new(format!("out {}", at + 1), [exit, server], [None, Some(remote)]));
        }
        // The long way goes on where the next bottleneck begins, not back where the shortest way may lie.
        builder.route(exits[next(at, 1)], Prefix::host(remote), between[next(at, 1)]);
        builder.route(entries[at], Prefix::host(remote), bottlenecks[at]);
        builder.route(entries[next(at, 1)], Prefix::host(remote), bottlenecks[next(at, 1)]);
        builder.route(entries[next(at, 2)], Prefix::host(remote), bottlenecks[next(at, 2)]);
        hosts.push((client, own[0], server, remote));
    }
    let mut network = watch::build(builder, &mut watch);
    let ends: Vec<Ends> = (0..)
        .zip(&hosts)
        .map(|(index, (client, local, server, remote))| {
            let (mut opener, mut acceptor) = workload.plans_of(index);
            (opener.verify, acceptor.verify) = (watch.is_some(), watch.is_some());
            // Connections that start in step may stay in step.
            let start = Instant::ZERO + Duration::from_millis(37) * index;
            let ends = network.converse(Conversation {
                from: *client,
                local: *local,
                to: *server,
                remote: Endpoint::new(*remote, 80),
                start,
                config: (variant.kind == VariantKind::SinglePath).then(|| config.clone()),
                opener,
                acceptor,
            });
            watch::add(&mut watch, || Recorded {
                name: format!("connection {}", index + 1),
                ends,
                config: config.clone(),
                start,
                planned_bytes: None,
                upload: true,
                download: false,
            });
            ends
        })
        .collect();
    watch::run_until(&mut network, Instant::ZERO + duration, &mut watch);
    watch::finish(&mut network, seed, &mut watch);
    let received: Vec<u64> = ends.iter().map(|ends| network.report(ends.acceptor).received_bytes).collect();
    let received_bytes = received.iter().sum::<u64>();
    Outcome {
        received_bytes,
        goodput_bps: received_bytes as f64 * 8.0 / duration.as_secs_f64().max(1e-9),
        flows_bps: received
            .iter()
            .map(|bytes| *bytes as f64 * 8.0 / duration.as_secs_f64().max(1e-9))
            .collect(),
        paths: bottlenecks.iter().map(|link| PathOutcome::of(&network, *link)).collect(),
        events: network.events(),
        ..Outcome::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::PathSpec;
    use polypath_mptcp::scheduler::Policy;
    use polypath_units::BitRate;

    fn ring(mbps: [u64; 3]) -> PathSet {
        let path = |mbps| PathSpec {
            rate: BitRate::from_mbps(mbps),
            rtt: Duration::from_millis(30),
            queue: Duration::from_millis(60),
            loss: 0.0,
            change: None,
        };
        PathSet::from(mbps.map(path).to_vec())
    }

    #[test]
    fn coupled_connections_fill_the_ring_and_uncoupled_ones_waste_it() {
        let workload = Workload::Bulk { duration: Duration::from_secs(30) };
        let share = |algorithm| {
            let outcome = run_ring(
                &ring([10, 10, 10]),
                &Variant::multipath("m", Policy::default(), algorithm),
                &workload,
                1,
                None,
            );
            // Every bottleneck is full, whoever fills it.
            for path in &outcome.paths {
                assert!(path.delivered_bytes > 33_000_000, "{outcome:?}");
            }
            assert_eq!(outcome.flows_bps.len(), 3);
            outcome.goodput_bps / 30e6
        };
        let (coupled, uncoupled) = (share(polypath_congestion::LIA), share(polypath_congestion::RENO));
        // Alone on the short ways, connections have everything; with equal shares of every bottleneck, two thirds.
        assert!((0.87..=0.97).contains(&coupled), "{coupled}");
        assert!((0.6..0.85).contains(&uncoupled), "{uncoupled}");
    }

    #[test]
    fn plain_tcp_has_the_short_way() {
        let workload = Workload::Bulk { duration: Duration::from_secs(10) };
        let outcome = run_ring(
            &ring([10, 5, 20]),
            &Variant::single_path(0, polypath_congestion::CUBIC),
            &workload,
            1,
            None,
        );
        for (flow, capacity) in outcome.flows_bps.iter().zip([10e6, 5e6, 20e6]) {
            assert!((0.85..=0.97).contains(&(flow / capacity)), "{outcome:?}");
        }
    }
}
