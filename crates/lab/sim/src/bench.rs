//! How fast the simulator is: two paths of 100 Mbit/s with round trips of 20 and 40 ms and queues of 40 ms,
//! one connection (or several, each with two paths of its own), coupled congestion control, segment by
//! segment.

use std::sync::Arc;

use polypath_congestion as congestion;
use polypath_link::{LinkConfig, QueueLimit};
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Endpoint;
use serde::Serialize;

use crate::app::{SendPlan, TrafficPlan};
use crate::conversation::{Conversation, Ends};
use crate::network::{LinkId, Network, NetworkBuilder};
use crate::topologies::{PathConfig, add_parallel_paths};

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchConfig {
    /// Connections, each between hosts of its own over two paths of its own.
    pub connections: usize,
    /// Simulated time.
    pub simulated: Duration,
    /// Simulated time that is left out of utilisation and goodput: slow start.
    pub warm_up: Duration,
    /// Congestion control.
    pub congestion: congestion::Policy,
    /// Multipath TCP, or plain TCP over the first path.
    pub mptcp: bool,
    /// Seed.
    pub seed: u64,
}

impl Default for BenchConfig {
    fn default() -> Self {
        Self {
            connections: 1,
            simulated: Duration::from_secs(100),
            warm_up: Duration::from_secs(5),
            congestion: polypath_congestion::LIA,
            mptcp: true,
            seed: 1,
        }
    }
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct BenchResult {
    /// Simulated seconds.
    pub(crate) simulated_s: f64,
    /// Connections.
    pub connections: usize,
    /// Packets with data that arrived.
    pub data_packets: u64,
    /// Wall-clock seconds, set-up left out.
    pub wall_s: f64,
    /// Data packets per wall-clock second.
    pub packets_per_s: f64,
    /// Most memory that the process ever held, in kilobytes; 0 where the system does not say.
    pub peak_rss_kb: u64,
    /// Events that the simulator processed.
    pub(crate) events: u64,
    /// Share of each path's rate that was filled after the warm-up, IP headers included, by connection and
    /// path.
    pub path_utilisation: Vec<f64>,
    /// Bytes that reached the applications after the warm-up, as a rate in bits per second, over all
    /// connections.
    pub(crate) goodput_bps: f64,
}

const PATH_RATE: BitRate = BitRate::from_mbps(100);

struct Measured {
    ends: Ends,
    links: Vec<LinkId>,
}

/// Runs the benchmark.
pub fn run(config: &BenchConfig) -> BenchResult {
    let (mut network, measured) = build(config);
    let started = std::time::Instant::now();
    network.run_until(Instant::ZERO + config.warm_up);
    let before = snapshot(&network, &measured);
    network.run_until(Instant::ZERO + config.simulated);
    let wall_s = started.elapsed().as_secs_f64();
    let after = snapshot(&network, &measured);

    let span = config.simulated.saturating_sub(config.warm_up);
    let possible = PATH_RATE.bytes_in(span).max(1) as f64;
    let data_packets = after.paths.iter().map(|(packets, _)| packets).sum();
    BenchResult {
        simulated_s: config.simulated.as_secs_f64(),
        connections: config.connections,
        data_packets,
        wall_s,
        packets_per_s: data_packets as f64 / wall_s.max(1e-9),
        peak_rss_kb: peak_rss_kb(),
        events: network.events(),
        path_utilisation: std::iter::zip(&after.paths, &before.paths)
            .map(|((_, after), (_, before))| (after - before) as f64 / possible)
            .collect(),
        goodput_bps: BitRate::from_bytes_over(after.received_bytes - before.received_bytes, span).as_bps()
            as f64,
    }
}

fn build(config: &BenchConfig) -> (Network, Vec<Measured>) {
    let congestion = config.congestion.clone();
    let mut connection = ConnectionConfig { mptcp: config.mptcp, congestion, ..ConnectionConfig::default() };
    let mut tcp = (*connection.tcp).clone();
    // Segment by segment, as the peers that this is compared with; and buffers that never limit.
    tcp.max_aggregate_bytes = 0;
    tcp.receive_buffer_bytes = 16 << 20;
    tcp.send_buffer_bytes = 16 << 20;
    connection.tcp = Arc::new(tcp);
    let host = HostConfig { connection: Arc::new(connection), ..HostConfig::default() };

    let mut builder = NetworkBuilder::new(config.seed);
    let mut nets = Vec::new();
    for number in 0..config.connections {
        let paths = [(10, "short"), (20, "long")].map(|(delay_ms, name)| {
            let queue = QueueLimit::Delay(Duration::from_millis(40));
            let link = LinkConfig::new(PATH_RATE, Duration::from_millis(delay_ms), queue);
            PathConfig::symmetric(format!("{name} {number}"), link)
        });
        nets.push(add_parallel_paths(&mut builder, number, paths, host.clone(), host.clone()));
    }
    let mut network = builder.build();
    let measured = (0..).zip(nets).map(|(number, net)| {
        let (opener, acceptor) = Conversation::plans(number, None, None);
        let ends = network.converse(Conversation {
            from: net.client,
            local: net.client_addrs[0],
            to: net.server,
            remote: Endpoint::new(net.server_addr, 80),
            start: Instant::ZERO,
            config: None,
            opener: TrafficPlan { send: SendPlan::Bytes(u64::MAX), ..opener },
            acceptor: TrafficPlan { verify: false, ..acceptor },
        });
        Measured { ends, links: net.links }
    });
    let measured = measured.collect();
    (network, measured)
}

struct Snapshot {
    /// Packets and bytes that arrived, by connection and path.
    paths: Vec<(u64, u64)>,
    received_bytes: u64,
}

fn snapshot(network: &Network, measured: &[Measured]) -> Snapshot {
    let links = measured.iter().flat_map(|measured| &measured.links);
    let paths = links.map(|link| {
        let stats = network.channel_stats(link.forward());
        (stats.delivered_packets, stats.delivered_bytes)
    });
    Snapshot {
        paths: paths.collect(),
        received_bytes: measured.iter().map(|one| network.report(one.ends.acceptor).received_bytes).sum(),
    }
}

/// The peak resident set of this process, from the system's account.
fn peak_rss_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_paths_are_full_after_slow_start() {
        let config = BenchConfig { simulated: Duration::from_secs(20), ..BenchConfig::default() };
        let result = run(&config);
        for utilisation in &result.path_utilisation {
            assert!(*utilisation > 0.97, "{result:?}");
        }
        assert!(result.goodput_bps > 180e6, "{result:?}");
    }
}
