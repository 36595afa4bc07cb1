//! Networks of connections that never end.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use polypath_link::{LinkConfig, Loss, QueueLimit};
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::scheduler::Policy;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_sim::app::{SendPlan, TrafficPlan};
use polypath_sim::conversation::{Conversation, Ends};
use polypath_sim::network::{LinkSpec, Network, NetworkBuilder, NodeId};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Endpoint;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn micros_below(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.next() % below)
    }
}

fn addr(site: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, site, 0, host))
}

/// Segment by segment, with buffers that never limit.
pub(crate) fn settings(congestion: &str, mptcp: bool) -> HostConfig {
    let mut connection = ConnectionConfig {
        mptcp,
        congestion: polypath_congestion::Policy::by_name(congestion).expect("an algorithm"),
        // Congestion control alone is looked at: subflows are in the order of addresses, and nothing is copied.
        scheduler: Policy::by_name("lowest-rtt").expect("a scheduler"),
        race: false,
        ..ConnectionConfig::default()
    };
    let mut tcp = (*connection.tcp).clone();
    tcp.max_aggregate_bytes = 0;
    tcp.receive_buffer_bytes = 16 << 20;
    tcp.send_buffer_bytes = 16 << 20;
    connection.tcp = Arc::new(tcp);
    HostConfig { connection: Arc::new(connection), ..HostConfig::default() }
}

/// A fast line, which never loses anything.
pub(crate) fn wire(delay: Duration) -> LinkConfig {
    LinkConfig::new(BitRate::from_mbps(1000), delay, QueueLimit::Unlimited)
}

/// A client and a server of one connection that never ends. `ways` are the routers at which the client's subflows enter
/// and the lines there, on the way back without loss.
pub(crate) fn add_pair(
    builder: &mut NetworkBuilder,
    site: u8,
    mut config: HostConfig,
    ways: &[(NodeId, LinkConfig)],
    exits: &[NodeId],
) -> Pair {
    let addrs: Vec<IpAddr> = (0..ways.len() as u8).map(|way| addr(site, 2 + way)).collect();
    config.endpoints = (1..).zip(&addrs).map(|(id, addr)| LocalEndpoint::subflow(*addr, id)).collect();
    let server_addr = addr(site, 1);
    let server =
        builder.host(format!("server {site}"), HostConfig { endpoints: Vec::new(), ..config.clone() });
    let client = builder.host(format!("client {site}"), config);
    for ((router, access), addr) in ways.iter().zip(&addrs) {
        let spec = LinkSpec::new(format!("in {addr}"), [client, *router], [Some(*addr), None]);
        let back = LinkConfig { loss: Loss::None, ..access.clone() };
        builder.link(spec.with(access.clone(), back));
    }
    for router in exits {
        let spec = LinkSpec::new(format!("out {site}"), [*router, server], [None, Some(server_addr)]);
        builder.link(spec.with(wire(Duration::from_millis(1)), wire(Duration::from_millis(1))));
    }
    Pair { client, client_addr: addrs[0], server, server_addr }
}

pub(crate) struct Pair {
    pub(crate) client: NodeId,
    pub(crate) client_addr: IpAddr,
    server: NodeId,
    pub(crate) server_addr: IpAddr,
}

impl Pair {
    pub(crate) fn start(&self, network: &mut Network, number: u64, start: Instant) -> Ends {
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
pub(crate) fn goodput(network: &mut Network, ends: &[Ends], from_s: u64, until_s: u64) -> Vec<f64> {
    network.run_until(Instant::from_secs(from_s));
    let before = received(network, ends);
    network.run_until(Instant::from_secs(until_s));
    received(network, ends).iter().zip(before).map(|(after, before)| after - before).collect()
}
