//! The event loop, with nodes that play ping-pong over UDP.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use polypath_link::LinkConfig;
use polypath_units::BitRate;
use polypath_wire::{Datagram, Payload};

use super::*;
use crate::trace::TraceOutputs;

/// Sends `pings` datagrams, one each `interval`, answers what it did not ask for, and notes when answers
/// came.
#[derive(Debug)]
struct Ping {
    own: IpAddr,
    peer: IpAddr,
    pings: u16,
    sent: u16,
    interval: Duration,
    next_at: Instant,
    out: Vec<Packet>,
    log: Rc<RefCell<Vec<(u64, u16)>>>,
}

const REQUEST_PORT: u16 = 7;

impl Ping {
    fn datagram(&self, dst_port: u16, number: u16) -> Packet {
        let payload = Payload::from(number.to_be_bytes().to_vec());
        Packet {
            ip: IpHeader::new(self.own, self.peer),
            transport: Transport::Udp(Datagram { src_port: 1, dst_port, payload }),
        }
    }
}

impl Node for Ping {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        match packet.transport {
            Transport::Udp(datagram) => {
                let bytes = datagram.payload.to_vec();
                let number = u16::from_be_bytes([bytes[0], bytes[1]]);
                if datagram.dst_port == REQUEST_PORT {
                    let answer = self.datagram(8, number);
                    self.out.push(answer);
                } else {
                    self.log.borrow_mut().push((now.as_micros(), number));
                }
            }
            _ => self.log.borrow_mut().push((now.as_micros(), u16::MAX)),
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet> {
        self.out.pop()
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        (self.sent < self.pings).then_some(self.next_at)
    }

    fn handle_timeout(&mut self, now: Instant) {
        while self.sent < self.pings && self.next_at <= now {
            let ping = self.datagram(REQUEST_PORT, self.sent);
            self.out.insert(0, ping);
            self.sent += 1;
            self.next_at += self.interval;
        }
    }
}

type Log = Rc<RefCell<Vec<(u64, u16)>>>;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ping(own: &str, peer: &str, pings: u16) -> (Box<Ping>, Log) {
    let log = Log::default();
    let node = Ping {
        own: ip(own),
        peer: ip(peer),
        pings,
        sent: 0,
        interval: Duration::from_millis(1),
        next_at: Instant::ZERO,
        out: Vec::new(),
        log: log.clone(),
    };
    (Box::new(node), log)
}

fn link_of(rate_mbps: u64, delay_ms: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(BitRate::from_mbps(rate_mbps)),
        delay: Duration::from_millis(delay_ms),
        ..LinkConfig::default()
    }
}

/// client - r1 - r2 - server, with delay on the last link only where `wires`.
fn routed(pings: u16, peer: &str, wires: bool) -> (NetworkBuilder, [NodeId; 4], Log) {
    let mut builder = NetworkBuilder::new(7);
    let (client, log) = ping("10.0.1.1", peer, pings);
    let client = builder.custom("client", client);
    let r1 = builder.router("r1");
    let r2 = builder.router("r2");
    let (server, _) = ping("10.0.9.1", "10.0.1.1", 0);
    let server = builder.custom("server", server);
    let delay = link_of(10, 5);
    for (nodes, addrs) in [
        ([client, r1], [Some(ip("10.0.1.1")), None]),
        ([r1, r2], [None, None]),
        ([r2, server], [None, Some(ip("10.0.9.1"))]),
    ] {
        let last = nodes[1] == server;
        let spec = LinkSpec::new(format!("link {}", nodes[0].index()), nodes, addrs);
        builder.link(if last || !wires { spec.with(delay.clone(), delay.clone()) } else { spec });
    }
    (builder, [client, r1, r2, server], log)
}

#[test]
fn round_trips_take_the_time_that_the_links_take() {
    // 30 bytes at 10 Mbit/s are 24 µs, and the delay is 5 ms, each way.
    for (wires, links) in [(true, 1), (false, 3)] {
        let (builder, [_, r1, ..], log) = routed(3, "10.0.9.1", wires);
        let mut network = builder.build();
        network.run_until(Instant::from_secs(1));
        let expected: Vec<(u64, u16)> = (0..3).map(|n| (2 * links * 5024 + 1000 * u64::from(n), n)).collect();
        assert_eq!(*log.borrow(), expected);
        assert_eq!(network.router_stats(r1).forwarded, 6);
        assert_eq!(network.now(), Instant::from_secs(1));
    }
}

#[test]
fn a_router_says_that_there_is_no_route() {
    let (builder, [_, _, r2, _], log) = routed(1, "192.0.2.77", false);
    let mut network = builder.build();
    network.run_until(Instant::from_secs(1));
    // The client has no way at all: the packet never leaves.
    assert_eq!(network.unroutable_packets(), 1);
    assert!(log.borrow().is_empty());

    // A default route of r1 leads to r2, which knows nothing.
    let (mut builder, [client, r1, ..], log) = routed(1, "192.0.2.77", false);
    builder.route(client, "0.0.0.0/0".parse().unwrap(), LinkId(0));
    builder.route(r1, "192.0.2.0/24".parse().unwrap(), LinkId(1));
    let mut network = builder.build();
    network.run_until(Instant::from_secs(1));
    assert_eq!(network.router_stats(r2).unroutable, 1);
    assert_eq!(log.borrow().iter().map(|(_, number)| *number).collect::<Vec<_>>(), [u16::MAX]);
}

#[test]
fn a_loop_of_routes_ends_with_the_time_to_live() {
    let (mut builder, [_, r1, r2, _], _) = routed(1, "10.0.9.1", true);
    builder.route(r2, Prefix::host(ip("10.0.9.1")), LinkId(1));
    let mut network = builder.build();
    network.run_until(Instant::from_secs(1));
    let [one, two] = [r1, r2].map(|router| network.router_stats(router));
    assert_eq!(one.forwarded + two.forwarded, 63);
    assert_eq!(one.ttl_expired + two.ttl_expired, 1);
}

#[test]
fn equal_seeds_give_equal_traces_and_the_traces_are_readable() {
    let run = |pings| {
        let (builder, _, _) = routed(pings, "10.0.9.1", false);
        let outputs = TraceOutputs { hash: true, ..TraceOutputs::default() };
        let tracer = builder.tracer(outputs).unwrap();
        let mut network = builder.build();
        network.set_tracer(Some(tracer));
        network.run_until(Instant::from_secs(1));
        network.trace_hash().unwrap()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn scheduled_actions_run_in_order_at_their_time() {
    let (builder, _, _) = routed(0, "10.0.9.1", false);
    let mut network = builder.build();
    let log = Log::default();
    for (at, number) in [(20, 2), (10, 0), (10, 1)] {
        let log = log.clone();
        network.schedule(Instant::from_millis(at), move |network| {
            log.borrow_mut().push((network.now().as_millis(), number));
        });
    }
    network.run_until(Instant::from_secs(1));
    assert_eq!(*log.borrow(), [(10, 0), (10, 1), (20, 2)]);
}
