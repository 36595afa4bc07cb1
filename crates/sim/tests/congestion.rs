//! Coupled congestion control in whole networks: fairness at a shared bottleneck, the way out of congestion, and the
//! fixed points of the fluid models.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use polypath_congestion::by_name;
use polypath_link::{Jitter, LinkConfig, QueueLimit};
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_sim::app::{SendPlan, TrafficPlan};
use polypath_sim::conversation::{Conversation, Ends};
use polypath_sim::network::{LinkSpec, Network, NetworkBuilder, NodeId};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Endpoint;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn micros_below(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.next() % below)
    }
}

fn addr(site: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, site, 0, host))
}

/// Segment by segment, with buffers that never limit.
fn settings(congestion: &str, mptcp: bool) -> HostConfig {
    let mut connection = ConnectionConfig {
        mptcp,
        congestion: by_name(congestion).expect("an algorithm"),
        ..ConnectionConfig::default()
    };
    let mut tcp = (*connection.tcp).clone();
    tcp.max_aggregate_bytes = 0;
    tcp.receive_buffer_bytes = 16 << 20;
    tcp.send_buffer_bytes = 16 << 20;
    connection.tcp = Arc::new(tcp);
    HostConfig { connection: Arc::new(connection), ..HostConfig::default() }
}

fn wire(delay: Duration) -> LinkConfig {
    let jitter = Jitter::uniform(Duration::from_micros(std::env::var("JIT").map_or(1000, |s| s.parse().unwrap())));
    LinkConfig { jitter, ..LinkConfig::new(BitRate::from_mbps(1000), delay, QueueLimit::Unlimited) }
}

/// A client and a server of one connection that never ends. `ways` are the routers at which the client's subflows enter
/// and their one-way delays.
fn add_pair(
    builder: &mut NetworkBuilder,
    site: u8,
    mut config: HostConfig,
    ways: &[(NodeId, Duration)],
    exits: &[NodeId],
) -> Pair {
    let addrs: Vec<IpAddr> = (0..ways.len() as u8).map(|way| addr(site, 2 + way)).collect();
    config.endpoints = (1..).zip(&addrs).map(|(id, addr)| LocalEndpoint::subflow(*addr, id)).collect();
    let server_addr = addr(site, 1);
    let server = builder.host(format!("server {site}"), HostConfig { endpoints: Vec::new(), ..config.clone() });
    let client = builder.host(format!("client {site}"), config);
    for ((router, delay), addr) in ways.iter().zip(&addrs) {
        let spec = LinkSpec::new(format!("in {addr}"), [client, *router], [Some(*addr), None]);
        builder.link(spec.with(wire(*delay), wire(*delay)));
    }
    for router in exits {
        let spec = LinkSpec::new(format!("out {site}"), [*router, server], [None, Some(server_addr)]);
        builder.link(spec.with(wire(Duration::from_millis(1)), wire(Duration::from_millis(1))));
    }
    Pair { client, client_addr: addrs[0], server, server_addr }
}

struct Pair {
    client: NodeId,
    client_addr: IpAddr,
    server: NodeId,
    server_addr: IpAddr,
}

impl Pair {
    fn start(&self, network: &mut Network, number: u64, start: Instant) -> Ends {
        let (opener, acceptor) = Conversation::plans(number, None, None);
        network.converse(Conversation {
            from: self.client,
            local: self.client_addr,
            to: self.server,
            remote: Endpoint::new(self.server_addr, 80),
            start,
            config: None,
            opener: TrafficPlan { send: SendPlan::Bytes(u64::MAX), ..opener },
            acceptor: TrafficPlan { verify: false, ..acceptor },
        })
    }
}

fn received(network: &Network, ends: &[Ends]) -> Vec<f64> {
    ends.iter().map(|ends| network.report(ends.acceptor).received_bytes as f64).collect()
}

/// Bytes that each connection received between two instants.
fn goodput(network: &mut Network, ends: &[Ends], from_s: u64, until_s: u64) -> Vec<f64> {
    network.run_until(Instant::from_secs(from_s));
    let before = received(network, ends);
    network.run_until(Instant::from_secs(until_s));
    received(network, ends).iter().zip(before).map(|(after, before)| after - before).collect()
}

/// Goodput of a connection with two subflows over that of one TCP with Reno, at a bottleneck which both share: 20 Mbit/s,
/// 40 ms, and a queue of one bandwidth-delay product.
fn share_of_one_tcp(congestion: &str, seed: u64) -> f64 {
    let mut random = Random(seed);
    let mut builder = NetworkBuilder::new(seed);
    let routers = [builder.router("left"), builder.router("right")];
    let delay = Duration::from_millis(15);
    let queue = QueueLimit::Delay(Duration::from_millis(40));
    let shared = LinkConfig::new(BitRate::from_mbps(20), delay, queue);
    builder.link(LinkSpec::new("shared", routers, [None, None]).with(shared.clone(), shared));
    // Flows of exactly equal round-trip times lose in step, one always before the other.
    let mut access = || Duration::from_millis(4) + random.micros_below(2_000);
    let ways = [(routers[0], access()), (routers[0], access())];
    let multi = add_pair(&mut builder, 1, settings(congestion, true), &ways, &routers[1..]);
    let single = add_pair(&mut builder, 2, settings("reno", false), &[(routers[0], access())], &routers[1..]);
    let mut network = builder.build();
    let starts = [0, 1].map(|_| Instant::ZERO + random.micros_below(2_000_000));
    let ends = [multi.start(&mut network, 0, starts[0]), single.start(&mut network, 1, starts[1])];
    let bytes = goodput(&mut network, &ends, 20, 200);
    assert_eq!(network.report(ends[0].opener).subflows_established, 2);
    bytes[0] / bytes[1]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn two_subflows_share_a_bottleneck_with_one_tcp_as_one_would() {
    for congestion in ["reno", "lia", "olia", "balia"] {
        let shares: Vec<f64> = (1..=5).map(|seed| share_of_one_tcp(congestion, seed)).collect();
        println!("{congestion}: {shares:.2?} median {:.3}", median(shares.clone()));
    }
}
