//! Two hosts, some paths, a virtual clock: what the scenario tests of this crate run on.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use std::format;
use std::string::String;

use bytes::Bytes;
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, FourTuple, MptcpOption, Packet, Segment, SeqNumber, Transport};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::path_manager::LocalEndpoint;
use crate::{ConnectionConfig, ConnectionId, Event, Host, HostConfig};

pub(super) const PORT: u16 = 80;

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    ToServer,
    ToClient,
}

/// Sees each packet before it travels; what it returns arrives.
pub(super) type Meddle = Box<dyn FnMut(Way, Packet) -> Vec<Packet>>;

/// What a test does to the hosts and paths midway.
type Happen = fn(&mut Network);

/// A client at 10.0.N.1 and a server at 10.0.N.2 on each path N.
pub(super) struct Network {
    pub(super) now: Instant,
    pub(super) client: Host,
    pub(super) server: Host,
    pub(super) delays: Vec<Duration>,
    pub(super) loss_percent: u32,
    pub(super) cut: Vec<bool>,
    pub(super) meddle: Meddle,
    /// What happens when, in order.
    pub(super) plan: VecDeque<(Instant, Happen)>,
    random: ChaCha8Rng,
    travelling: BTreeMap<(Instant, u64), (Way, Packet)>,
    sent: u64,
    /// By the client's address and port.
    acknowledged: BTreeMap<(IpAddr, u16), SeqNumber>,
    /// One line a packet, for failures and for exchanges.
    pub(super) log: Vec<String>,
    pub(super) client_events: Vec<(ConnectionId, Event)>,
    pub(super) server_events: Vec<(ConnectionId, Event)>,
}

pub(super) fn client_addr(path: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, path as u8, 1).into()
}

pub(super) fn server_addr(path: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, path as u8, 2).into()
}

pub(super) fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

impl Network {
    pub(super) fn new(
        delays_ms: &[u64],
        client: ConnectionConfig,
        server: ConnectionConfig,
        seed: u64,
    ) -> Self {
        let endpoints = |addr: fn(usize) -> IpAddr| -> Vec<LocalEndpoint> {
            (0..delays_ms.len()).map(|path| LocalEndpoint::subflow(addr(path), path as u8 + 1)).collect()
        };
        let host = |config: ConnectionConfig, addr, seed| {
            let config = HostConfig {
                connection: Arc::new(config),
                endpoints: endpoints(addr),
                ..HostConfig::default()
            };
            Host::new(config, seed)
        };
        let mut server_host = host(server, server_addr, seed * 2 + 1);
        server_host.listen(Endpoint::new(Ipv4Addr::UNSPECIFIED.into(), PORT)).expect("the port is free");
        Self {
            now: Instant::from_secs(1),
            client: host(client, client_addr, seed * 2),
            server: server_host,
            delays: delays_ms.iter().map(|ms| Duration::from_millis(*ms)).collect(),
            loss_percent: 0,
            cut: delays_ms.iter().map(|_| false).collect(),
            meddle: Box::new(|_, packet| std::vec![packet]),
            plan: VecDeque::new(),
            random: ChaCha8Rng::seed_from_u64(seed),
            travelling: BTreeMap::new(),
            sent: 0,
            acknowledged: BTreeMap::new(),
            log: Vec::new(),
            client_events: Vec::new(),
            server_events: Vec::new(),
        }
    }

    /// Replaces the server by one that listens with this backlog.
    pub(super) fn listen_with(&mut self, backlog: usize) {
        self.serve_with(HostConfig { backlog, ..self.server.config().clone() });
    }

    /// Replaces the server.
    pub(super) fn serve_with(&mut self, config: HostConfig) {
        self.server = Host::new(config, 77);
        self.server.listen(Endpoint::new(Ipv4Addr::UNSPECIFIED.into(), PORT)).expect("the port is free");
    }

    /// What the server acknowledged last on a flow of its own.
    pub(super) fn last_acknowledged(&self, tuple: FourTuple) -> Option<SeqNumber> {
        self.acknowledged.get(&(tuple.remote.addr, tuple.remote.port)).copied()
    }

    pub(super) fn connect(&mut self) -> ConnectionId {
        let (local, remote) = (Endpoint::new(client_addr(0), 0), Endpoint::new(server_addr(0), PORT));
        self.client.connect(self.now, local, remote, None).expect("nothing is in the way")
    }

    /// Lets everything that is due happen, then moves to the next instant at which something is; false if nothing is.
    pub(super) fn step(&mut self) -> bool {
        self.flush();
        let travelling = self.travelling.first_key_value().map(|((at, _), _)| *at);
        let timeouts = [self.client.poll_timeout(), self.server.poll_timeout()];
        let planned = self.plan.front().map(|(at, _)| *at);
        let Some(next) = timeouts.into_iter().flatten().chain(travelling).chain(planned).min() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some((_, happen)) = self.plan.pop_front_if(|(at, _)| *at <= self.now) {
            happen(self);
        }
        while let Some(entry) = self.travelling.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (way, packet) = entry.remove();
            match way {
                Way::ToServer => self.server.handle_packet(self.now, packet),
                Way::ToClient => self.client.handle_packet(self.now, packet),
            }
            self.flush();
        }
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        self.flush();
        true
    }

    pub(super) fn run_until(&mut self, end: Instant) {
        while self.now < end {
            self.flush();
            let travelling = self.travelling.first_key_value().map(|((at, _), _)| *at);
            let timeouts = [self.client.poll_timeout(), self.server.poll_timeout()];
            if timeouts.into_iter().flatten().chain(travelling).min().is_none_or(|at| at > end) {
                self.now = end;
                break;
            }
            self.step();
        }
    }

    pub(super) fn flush(&mut self) {
        while let Some(packet) = self.client.poll_transmit(self.now) {
            self.travel(Way::ToServer, packet);
        }
        while let Some(packet) = self.server.poll_transmit(self.now) {
            self.travel(Way::ToClient, packet);
        }
        while let Some(event) = self.client.poll() {
            self.client_events.push(event);
        }
        while let Some(event) = self.server.poll() {
            self.server_events.push(event);
        }
    }

    /// Sends a packet on its way; what is for an address that nobody has is gone.
    pub(super) fn travel(&mut self, way: Way, packet: Packet) {
        for packet in (self.meddle)(way, packet) {
            if let (Way::ToClient, Transport::Tcp(segment)) = (way, &packet.transport) {
                self.acknowledged.insert((packet.ip.dst, segment.dst_port), segment.ack);
            }
            let addr = if way == Way::ToServer { packet.ip.src } else { packet.ip.dst };
            let path = match addr {
                IpAddr::V4(addr) => match addr.octets() {
                    [10, 0, path, _] => usize::from(path),
                    _ => continue,
                },
                IpAddr::V6(_) => 0,
            };
            let lost = self.random.next_u32() % 100 < self.loss_percent || self.cut[path];
            self.log.push(describe(self.now, way, path, &packet, lost));
            if !lost {
                self.sent += 1;
                self.travelling.insert((self.now + self.delays[path], self.sent), (way, packet));
            }
        }
    }

    pub(super) fn accepted(&self) -> ConnectionId {
        let accepted = self.server_events.iter().find(|(_, event)| matches!(event, Event::Accepted { .. }));
        accepted.unwrap_or_else(|| panic!("no connection was accepted:\n{}", self.log.join("\n"))).0
    }

    /// Both applications send `len` bytes of a pattern, read all, and close. Returns what each received.
    pub(super) fn exchange(&mut self, upload: usize, download: usize, limit: Duration) -> (Vec<u8>, Vec<u8>) {
        let client = self.connect();
        let deadline = self.now + limit;
        let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
        let (mut sent_up, mut sent_down) = (0, 0);
        let mut server = None;
        while self.now < deadline {
            sent_up += write(&mut self.client, self.now, client, sent_up, upload);
            if server.is_none() && self.server_events.iter().any(|(_, e)| matches!(e, Event::Accepted { .. }))
            {
                server = Some(self.accepted());
            }
            read(&mut self.client, client, &mut at_client);
            if let Some(id) = server {
                sent_down += write(&mut self.server, self.now, id, sent_down, download);
                read(&mut self.server, id, &mut at_server);
            }
            let done = at_server.len() >= upload && at_client.len() >= download;
            let ended =
                |events: &[(ConnectionId, Event)]| events.iter().any(|(_, e)| matches!(e, Event::Closed(_)));
            if done && ended(&self.client_events) && ended(&self.server_events) || !self.step() {
                break;
            }
        }
        self.client.release(self.now, client);
        if let Some(id) = server {
            self.server.release(self.now, id);
        }
        (at_server, at_client)
    }
}

fn write(host: &mut Host, now: Instant, id: ConnectionId, sent: usize, total: usize) -> usize {
    if sent < total {
        let chunk = pattern(sent, (total - sent).min(10_000));
        return host.send(id, Bytes::from(chunk)).unwrap_or(0);
    }
    host.shutdown(now, id);
    0
}

fn read(host: &mut Host, id: ConnectionId, into: &mut Vec<u8>) {
    while let Some(data) = host.recv(id) {
        into.extend(data.to_vec());
    }
}

pub(super) fn segment(packet: &Packet) -> &Segment {
    match &packet.transport {
        Transport::Tcp(segment) => segment,
        _ => panic!("not TCP"),
    }
}

pub(super) fn segment_mut(packet: &mut Packet) -> &mut Segment {
    match &mut packet.transport {
        Transport::Tcp(segment) => segment,
        _ => panic!("not TCP"),
    }
}

/// `1.020s 0> S mp_capable`: time, path and direction, flags, payload, what Multipath TCP says.
fn describe(now: Instant, way: Way, path: usize, packet: &Packet, lost: bool) -> String {
    let arrow = if way == Way::ToServer { '>' } else { '<' };
    let Transport::Tcp(segment) = &packet.transport else { return format!("{now} {path}{arrow} icmp") };
    let mut line = format!("{now} {path}{arrow} {:?} {}", segment.flags, segment.payload.len());
    if let Some(dss) = &segment.options.dss {
        line += if dss.data_fin { " dss+fin" } else { " dss" };
        if dss.mapping.is_some_and(|mapping| mapping.len == 0) {
            line += "+infinite";
        }
    }
    for option in segment.options.mptcp() {
        line += match option {
            MptcpOption::Capable(_) => " capable",
            MptcpOption::Join(_) => " join",
            MptcpOption::AddAddr(add) if add.echo => " add-echo",
            MptcpOption::AddAddr(_) => " add",
            MptcpOption::RemoveAddr(_) => " remove",
            MptcpOption::Prio { .. } => " prio",
            MptcpOption::Fail { .. } => " fail",
            MptcpOption::Fastclose { .. } => " fastclose",
            MptcpOption::Reset { .. } => " reset",
            _ => " other",
        };
    }
    if lost { line + " lost" } else { line }
}
