//! Two hosts whose packets an aggregator carries over several paths, as a tunnel between two sites does.
//!
//! The hosts have one address each and know nothing of it. Beside each is one end of the aggregator. What it sends goes over a path as
//! a datagram of UDP, between addresses that stand for the path.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use polypath_mptcp::HostConfig;
use polypath_sim::network::{LinkSpec, NetworkBuilder, Node, Prefix};
use polypath_sim::topologies::{ParallelPaths, PathConfig};
use polypath_tunnel::aggregator::Aggregator;
use polypath_units::Instant;
use polypath_wire::{Checksums, Datagram, IpHeader, Packet, Transport};

const HOSTS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))];
const PORT: u16 = 51_820;
/// Longest packets of the hosts: with all that a tunnel puts around them, they fit into 1500 bytes.
pub(super) const MTU_BYTES: u16 = 1_400;

/// The address of an end on a path.
fn address_of(end: usize, path: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(10 << 24 | (1 + end as u32) << 16 | (1 + path as u32)))
}

/// One end of the aggregator, and what leaves it for its host and for the paths.
#[derive(Debug)]
struct Carrier {
    end: usize,
    aggregator: Box<dyn Aggregator>,
    /// The paths that the aggregator has, by its own numbers.
    paths: Vec<usize>,
    leaving: VecDeque<Packet>,
}

impl Carrier {
    fn poll_aggregator(&mut self, now: Instant) {
        while let Some(transmit) = self.aggregator.poll_transmit(now) {
            let Some(&path) = self.paths.get(transmit.path) else { continue };
            let payload = transmit.datagram.into();
            let datagram = Datagram { src_port: PORT, dst_port: PORT, payload };
            let ip = IpHeader::new(address_of(self.end, path), address_of(1 - self.end, path));
            self.leaving.push_back(Packet { ip, transport: Transport::Udp(datagram) });
        }
        while let Some(packet) = self.aggregator.poll_packet(now) {
            self.leaving.extend(Packet::parse_with(packet, Checksums::Ignore));
        }
    }
}

impl Node for Carrier {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        match packet.transport {
            Transport::Udp(datagram) => {
                let comes_over = |path: &usize| address_of(self.end, *path) == packet.ip.dst;
                if let Some(path) = self.paths.iter().position(comes_over) {
                    self.aggregator.handle_datagram(now, path, Bytes::from(datagram.payload.to_vec()));
                }
            }
            _ => {
                let mut bytes = Vec::new();
                packet.emit(&mut bytes);
                self.aggregator.handle_packet(now, bytes.into());
            }
        }
        self.poll_aggregator(now);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet> {
        self.leaving.pop_front()
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.aggregator.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.poll_aggregator(now);
    }
}

/// The paths, of which the aggregator has those that `used` names; `ends` are its ends, beside the client and beside the server.
pub(super) fn carried_over(
    seed: u64,
    paths: Vec<PathConfig>,
    used: &[usize],
    ends: [Box<dyn Aggregator>; 2],
    host: HostConfig,
) -> (NetworkBuilder, ParallelPaths) {
    let mut builder = NetworkBuilder::new(seed);
    let client = builder.host("client 0", host.clone());
    let server = builder.host("server 0", host);
    let count = paths.len();
    let mut end = 0;
    let carriers = ends.map(|aggregator| {
        let carrier = Carrier { end, aggregator, paths: used.to_vec(), leaving: VecDeque::new() };
        end += 1;
        builder.custom(format!("end {end}"), Box::new(carrier))
    });
    let links: Vec<_> = (0..)
        .zip(paths)
        .map(|(number, path)| {
            let addresses = [0, 1].map(|end| Some(address_of(end, number)));
            let mut spec = LinkSpec::new(path.name, carriers, addresses).with(path.up, path.down);
            spec.boxes = path.boxes;
            builder.link(spec)
        })
        .collect();
    for (end, host) in [client, server].into_iter().enumerate() {
        let name = ["client", "server"][end];
        let access = LinkSpec::new(name, [host, carriers[end]], [Some(HOSTS[end]), None]);
        let access = builder.link(access);
        builder.route(host, Prefix::host(HOSTS[1 - end]), access);
        builder.route(carriers[end], Prefix::host(HOSTS[end]), access);
        for (path, link) in links.iter().enumerate() {
            builder.route(carriers[end], Prefix::host(address_of(1 - end, path)), *link);
        }
    }
    let client_addrs = vec![HOSTS[0]; count];
    (builder, ParallelPaths { client, server, client_addrs, server_addr: HOSTS[1], links })
}

#[cfg(test)]
mod tests {
    use polypath_units::{BitRate, Duration};

    use crate::run::{InitialPath, PathSet, PathSpec, Variant, Workload, run_set};

    fn set() -> PathSet {
        let path = |rtt_ms, rate| PathSpec {
            rate: BitRate::from_mbps(rate),
            rtt: Duration::from_millis(rtt_ms),
            queue: Duration::from_millis(100),
            loss: 0.0,
            change: None,
        };
        PathSet::from(vec![path(20, 20), path(60, 10)])
    }

    fn variant(over: InitialPath, single: bool, congestion: &str) -> Variant {
        let congestion = congestion.parse().unwrap();
        let variant = Variant::carried("tunnel", "tunnel:1400".parse().unwrap(), congestion);
        let variant = variant.opened_over(over);
        if single { variant.alone() } else { variant }
    }

    const WORKLOAD: Workload = Workload::Bulk { duration: Duration::from_secs(20) };

    #[test]
    fn one_path_carries_what_headers_leave() {
        for path in [0, 1] {
            let variant = variant(InitialPath::Number(path), true, "cubic");
            let outcome = run_set(&set(), &variant, &WORKLOAD, 1);
            let share = outcome.goodput_bps / set().paths[path].rate.as_bps() as f64;
            // 1348 bytes of 1457 at most; after losses the window grows slowly.
            assert!((0.8..=0.925).contains(&share), "path {path}: {share}");
            assert_eq!(outcome.paths[1 - path].delivered_packets, 0);
        }
    }

    #[test]
    fn one_connection_has_both_paths() {
        let variant = variant(InitialPath::Number(0), false, "cubic");
        let outcome = run_set(&set(), &variant, &WORKLOAD, 1);
        // Datagrams counted whole.
        let share = outcome.goodput_bps * 1457.0 / 1348.0 / 30e6;
        assert!(share >= 0.9, "{share}");
        assert_eq!(outcome, run_set(&set(), &variant, &WORKLOAD, 1));
    }

    #[test]
    fn multipath_tcp_between_the_ends_is_never_slower_than_a_long_fast_path_alone() {
        let mut set = set();
        set.paths[0].rate = BitRate::from_mbps(2);
        set.paths[1].rtt = Duration::from_millis(200);
        let (split, cubic) = ("tunnel-split:1400".parse().unwrap(), "cubic".parse().unwrap());
        let split = Variant::carried("split", split, cubic).opened_over(InitialPath::Number(0));
        let split = run_set(&set, &split, &WORKLOAD, 1).goodput_bps;
        let alone = variant(InitialPath::Number(1), true, "cubic");
        let alone = run_set(&set, &alone, &WORKLOAD, 1).goodput_bps;
        assert!(split >= 0.95 * alone, "{split} and {alone} alone");
    }
}
