//! Two hosts on a virtual wire, and an application on each.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use polypath_units::Duration;
use polypath_wire::Transport;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::super::*;
use crate::Config;

pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;
pub(super) const PORT: u16 = 80;

/// What goes wrong on the wire, each per thousand packets.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) loss: u32,
    pub(super) duplication: u32,
    /// Delayed by up to another latency.
    pub(super) reordering: u32,
}

pub(super) struct Network {
    pub(super) now: Instant,
    pub(super) hosts: [Host; 2],
    pub(super) apps: [App; 2],
    pub(super) faults: Faults,
    pub(super) latency: Duration,
    /// Packets that the wire has carried or lost.
    pub(super) packets: u64,
    /// A digest of all that went over the wire, and when.
    pub(super) digest: u64,
    /// Cleared to keep all packets from arriving.
    pub(super) connected: bool,
    wire: BTreeMap<(Instant, u64), (usize, Packet)>,
    random: ChaCha8Rng,
}

/// What an application does with every connection: send, finish, read to the end, release.
#[derive(Default)]
pub(super) struct App {
    pub(super) streams: BTreeMap<ConnectionId, Stream>,
    /// What it sends on connections that it accepts.
    pub(super) answer: Bytes,
    /// It finishes when all is sent, and not only after its peer has.
    pub(super) finishes_first: bool,
    /// It neither finishes nor releases a connection by itself.
    pub(super) holds: bool,
    pub(super) events: Vec<(ConnectionId, HostEvent)>,
    pub(super) finished: Vec<Stream>,
}

#[derive(Default)]
pub(super) struct Stream {
    pub(super) to_send: Bytes,
    pub(super) received: Vec<u8>,
    pub(super) peer_finished: bool,
    pub(super) closed: bool,
}

impl App {
    fn run(&mut self, host: &mut Host) {
        while let Some((id, event)) = host.poll() {
            self.events.push((id, event));
            let stream = self.streams.entry(id).or_default();
            match event {
                HostEvent::Accepted { .. } => stream.to_send = self.answer.clone(),
                HostEvent::PeerFinished => stream.peer_finished = true,
                HostEvent::Closed(_) => stream.closed = true,
                HostEvent::Connected | HostEvent::Readable | HostEvent::Writable => {}
            }
            self.drive(host, id);
        }
    }

    fn drive(&mut self, host: &mut Host, id: ConnectionId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        while let Some(payload) = host.recv(id) {
            stream.received.extend(payload.to_vec());
        }
        if !stream.to_send.is_empty()
            && let Ok(count) = host.send(id, stream.to_send.clone())
        {
            let _ = stream.to_send.split_to(count);
        }
        if self.holds {
            return;
        }
        if stream.to_send.is_empty() && (self.finishes_first || stream.peer_finished) {
            host.shutdown(id);
        }
        if stream.closed || (stream.peer_finished && stream.to_send.is_empty()) {
            host.release(id);
            self.finished.extend(self.streams.remove(&id));
        }
    }
}

pub(super) fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + host as u8))
}

pub(super) fn endpoint(host: usize, port: u16) -> Endpoint {
    Endpoint::new(address(host), port)
}

/// Bytes that differ from place to place.
pub(super) fn pattern(len: usize) -> Bytes {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect::<Vec<u8>>().into()
}

impl Network {
    /// With single segments where the seed is even, with aggregates of up to 64 KB where it is odd.
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let max_aggregate_bytes = if seed.is_multiple_of(2) { 0 } else { 65_000 };
        let connection = Arc::new(Config { max_aggregate_bytes, ..Config::default() });
        Self::with_config(seed, faults, HostConfig { connection, ..HostConfig::default() })
    }

    pub(super) fn with_config(seed: u64, faults: Faults, config: HostConfig) -> Self {
        Self {
            now: Instant::from_secs(1),
            hosts: [Host::new(config.clone(), 2 * seed), Host::new(config, 2 * seed + 1)],
            apps: [App { finishes_first: true, ..App::default() }, App::default()],
            faults,
            latency: Duration::from_millis(10),
            packets: 0,
            digest: 0,
            connected: true,
            wire: BTreeMap::new(),
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    pub(super) fn listen(&mut self, backlog: usize) -> ListenerId {
        let any = Endpoint::new(Ipv4Addr::UNSPECIFIED.into(), PORT);
        self.hosts[SERVER].listen(any, ListenConfig { backlog, backlog_per_source: backlog }).unwrap()
    }

    /// Opens a connection from the client, which sends `data`.
    pub(super) fn connect(&mut self, data: Bytes) -> ConnectionId {
        let to = endpoint(SERVER, PORT);
        let id = self.hosts[CLIENT].connect(self.now, endpoint(CLIENT, 0), to).unwrap();
        let stream = Stream { to_send: data, ..Stream::default() };
        self.apps[CLIENT].streams.insert(id, stream);
        id
    }

    /// Runs the applications and puts on the wire what the hosts have to send.
    pub(super) fn flush(&mut self) {
        for host in [CLIENT, SERVER] {
            self.apps[host].run(&mut self.hosts[host]);
            while let Some(packet) = self.hosts[host].poll_transmit(self.now) {
                self.carry(1 - host, packet);
            }
            self.apps[host].run(&mut self.hosts[host]);
        }
    }

    pub(super) fn carry(&mut self, to: usize, packet: Packet) {
        self.packets += 1;
        if let Transport::Tcp(segment) = &packet.transport {
            for word in [self.now.as_nanos(), u64::from(segment.seq.0), u64::from(segment.ack.0)] {
                self.digest = (self.digest ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23);
            }
        }
        let Faults { loss, duplication, reordering } = self.faults;
        let [lost, doubled, delayed] =
            [loss, duplication, reordering].map(|per_thousand| self.random.next_u32() % 1000 < per_thousand);
        if lost || !self.connected {
            return;
        }
        let mut at = self.now + self.latency;
        if delayed {
            at += Duration::from_nanos(self.random.next_u64() % self.latency.as_nanos());
        }
        if doubled {
            self.wire.insert((at + self.latency, self.packets << 1 | 1), (to, packet.clone()));
        }
        self.wire.insert((at, self.packets << 1), (to, packet));
    }

    /// When something happens next; only after [`Network::flush`].
    pub(super) fn next(&self) -> Option<Instant> {
        let wire = self.wire.first_key_value().map(|((at, _), _)| *at);
        [wire, self.hosts[CLIENT].poll_timeout(), self.hosts[SERVER].poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Goes on to the next thing that happens; false if nothing ever will.
    pub(super) fn step(&mut self) -> bool {
        self.flush();
        let Some(next) = self.next() else { return false };
        self.now = self.now.max(next);
        for host in &mut self.hosts {
            host.handle_timeout(self.now);
        }
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to, packet) = entry.remove();
            self.hosts[to].handle_packet(self.now, packet);
        }
        self.flush();
        true
    }

    /// Goes on until `until` or until nothing happens any more.
    pub(super) fn run_until(&mut self, until: Instant) {
        self.flush();
        while self.next().is_some_and(|next| next <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    pub(super) fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    /// Goes on until nothing happens any more, which must be within a simulated hour.
    pub(super) fn run_to_end(&mut self) {
        let limit = self.now + Duration::from_secs(3600);
        while self.step() {
            assert!(self.now < limit, "not at rest after an hour: {:?}", self.hosts);
        }
    }

    /// Delivers a packet to a host at once, from outside.
    pub(super) fn inject(&mut self, to: usize, tuple_of_sender: FourTuple, segment: polypath_wire::Segment) {
        self.hosts[to].handle_packet(self.now, Packet::tcp(tuple_of_sender, segment));
    }

    #[track_caller]
    pub(super) fn assert_nothing_left(&self) {
        for host in &self.hosts {
            let population = host.population();
            assert_eq!(population, Population { listeners: population.listeners, ..Population::default() });
            assert!(
                !host.core.has_ready() && host.core.strangers().reply_count() == 0 && host.events.is_empty()
            );
            for listener in [host.core.listeners().find(endpoint(SERVER, PORT))].into_iter().flatten() {
                assert_eq!(host.core.listeners().get(listener).map(|listener| listener.half_open()), Some(0));
            }
        }
    }
}
