//! Two hosts between which single packets take one of several paths, whatever connection they belong to (Kaspar 2011, §5.2).
//!
//! The hosts have one address each and know nothing of it. What leaves the client goes to whom divides it: packets of the first path
//! stay as they are, those of another are sent to an address that stands for it. At the other end whoever unites them puts the
//! server's address back, as the document does by network address translation. What the server sends goes over one path.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr};

use polypath_mptcp::HostConfig;
use polypath_sim::network::{LinkSpec, NetworkBuilder, Node, Prefix};
use polypath_sim::topologies::{ParallelPaths, PathConfig};
use polypath_tunnel::split::{PathView, Splitter};
use polypath_units::Instant;
use polypath_wire::Packet;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// The address to which packets of a path go on the way.
fn address_of(path: usize) -> IpAddr {
    if path == 0 { SERVER } else { IpAddr::V4(Ipv4Addr::from_bits(10 << 24 | 1 << 8 | path as u32)) }
}

/// Gives each packet that goes to the server to a path.
#[derive(Debug)]
struct Divider {
    splitter: Box<dyn Splitter>,
    paths: Vec<PathView>,
    waiting: VecDeque<Packet>,
}

impl Node for Divider {
    fn handle_packet(&mut self, _now: Instant, mut packet: Packet) {
        if packet.ip.dst == SERVER
            && let Some(path) = self.splitter.choose(&self.paths)
        {
            packet.ip.dst = address_of(path);
        }
        self.waiting.push_back(packet);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet> {
        self.waiting.pop_front()
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}

/// Gives packets of all paths to the server.
#[derive(Debug, Default)]
struct Uniter {
    waiting: VecDeque<Packet>,
}

impl Node for Uniter {
    fn handle_packet(&mut self, _now: Instant, mut packet: Packet) {
        if packet.ip.dst != CLIENT {
            packet.ip.dst = SERVER;
        }
        self.waiting.push_back(packet);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet> {
        self.waiting.pop_front()
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}

/// The paths, which `splitter` sees as `views`. What the server sends goes over the one of number `primary`.
pub(super) fn split_paths(
    seed: u64,
    paths: Vec<PathConfig>,
    views: Vec<PathView>,
    splitter: Box<dyn Splitter>,
    primary: usize,
    host: HostConfig,
) -> (NetworkBuilder, ParallelPaths) {
    let mut builder = NetworkBuilder::new(seed);
    let client = builder.host("client 0", host.clone());
    let server = builder.host("server 0", host);
    let count = paths.len();
    let divider =
        builder.custom("divider", Box::new(Divider { splitter, paths: views, waiting: VecDeque::new() }));
    let uniter = builder.custom("uniter", Box::<Uniter>::default());
    let links: Vec<_> = paths
        .into_iter()
        .map(|path| {
            let mut spec = LinkSpec::new(path.name, [divider, uniter], [None, None]).with(path.up, path.down);
            spec.boxes = path.boxes;
            builder.link(spec)
        })
        .collect();
    let at_client = builder.link(LinkSpec::new("client", [client, divider], [Some(CLIENT), None]));
    let at_server = builder.link(LinkSpec::new("server", [uniter, server], [None, Some(SERVER)]));
    builder.route(client, Prefix::host(SERVER), at_client);
    builder.route(divider, Prefix::host(CLIENT), at_client);
    builder.route(uniter, Prefix::host(SERVER), at_server);
    builder.route(server, Prefix::host(CLIENT), at_server);
    for (path, link) in links.iter().enumerate() {
        builder.route(divider, Prefix::host(address_of(path)), *link);
    }
    builder.route(uniter, Prefix::host(CLIENT), links[primary]);
    let net = ParallelPaths { client, server, client_addrs: vec![CLIENT; count], server_addr: SERVER, links };
    (builder, net)
}

#[cfg(test)]
mod tests {
    use polypath_congestion as congestion;
    use polypath_sim::conversation::Conversation;
    use polypath_units::{BitRate, Duration};
    use polypath_wire::Endpoint;

    use super::*;
    use crate::run::{Flavour, InitialPath, PathSet, PathSpec, Variant, Workload, run_set};

    fn set(rtts_ms: [u64; 2]) -> PathSet {
        let path = |rtt_ms, rate| PathSpec {
            rate: BitRate::from_kbps(rate),
            rtt: Duration::from_millis(rtt_ms),
            queue: Duration::from_millis(100),
            loss: 0.0,
            change: None,
        };
        PathSet::from(vec![path(rtts_ms[0], 4000), path(rtts_ms[1], 8000)])
    }

    fn split(primary: usize) -> Variant {
        Variant::split("split", Flavour::default(), congestion::CUBIC)
            .opened_over(InitialPath::Number(primary))
    }

    const WORKLOAD: Workload = Workload::Bulk { duration: Duration::from_secs(20) };

    #[test]
    fn one_connection_fills_both_paths_by_their_rates() {
        let outcome = run_set(&set([20, 20]), &split(0), &WORKLOAD, 1);
        assert!(outcome.goodput_bps > 10.4e6, "{}", outcome.goodput_bps);
        let sent: Vec<f64> = outcome.paths.iter().map(|path| path.delivered_bytes as f64).collect();
        assert!((sent[1] / sent[0] - 2.0).abs() < 0.15, "{sent:?}");
    }

    #[test]
    fn acknowledgments_return_over_the_primary_path() {
        for primary in [0, 1] {
            let set = set([20, 30]);
            let paths = set.paths.iter().map(|path| PathConfig::symmetric("path", set.link(path))).collect();
            let view = |path: &PathSpec| PathView { rate: path.rate, delay: Duration::ZERO };
            let (views, splitter) = (set.paths.iter().map(view).collect(), split(primary).splitter.build());
            let host = HostConfig::default();
            let (builder, net) = split_paths(1, paths, views, splitter, primary, host);
            let mut network = builder.build();
            let (opener, acceptor) = Conversation::plans(0, Some(100_000), None);
            let ends = network.converse(Conversation {
                from: net.client,
                local: net.client_addrs[primary],
                to: net.server,
                remote: Endpoint::new(net.server_addr, 80),
                start: Instant::ZERO,
                config: None,
                opener,
                acceptor,
            });
            network.run_for(Duration::from_secs(5));
            assert_eq!(network.report(ends.acceptor).received_bytes, 100_000);
            let sent = |channel| network.channel_stats(channel).sent_packets > 0;
            let (there, back) = (
                net.links.iter().map(|link| sent(link.forward())),
                net.links.iter().map(|link| sent(link.backward())),
            );
            assert!(there.eq([true, true]) && back.eq([primary == 0, primary == 1]));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let mut set = set([20, 150]);
        set.paths[0].loss = 0.001;
        let run = || run_set(&set, &split(0), &WORKLOAD, 7);
        assert_eq!(format!("{:?}", run()), format!("{:?}", run()));
    }
}
