//! Two ends of a tunnel with paths between them, in virtual time.

#![allow(dead_code)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

use polypath_tunnel::key::PrivateKey;
use polypath_tunnel::{
    Engine, EngineConfig, LocalId, PACKET_ROOM_BYTES, PathId, PathSettings, PeerConfig, PeerId, Random,
};
use polypath_units::{BitRate, Duration, Instant};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// UDP and IPv4 around a datagram.
const OUTER_BYTES: u64 = 28;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PathConfig {
    pub(crate) rate: BitRate,
    pub(crate) delay: Duration,
    pub(crate) queue_bytes: u64,
    pub(crate) loss: f64,
    /// So much passes at once after idleness, as a token bucket lets it.
    pub(crate) burst_bytes: u64,
    /// Each packet takes up to so much longer, by chance: packets overtake each other.
    pub(crate) jitter: Duration,
}

impl PathConfig {
    /// With a queue of 100 ms.
    pub(crate) fn new(mbps: u64, delay_ms: u64) -> Self {
        let rate = BitRate::from_mbps(mbps);
        let queue_bytes = rate.bytes_in(Duration::from_millis(100)).max(15_000);
        Self {
            rate,
            delay: Duration::from_millis(delay_ms),
            queue_bytes,
            loss: 0.0,
            burst_bytes: 0,
            jitter: Duration::ZERO,
        }
    }
}

struct Path {
    config: PathConfig,
    is_up: bool,
    /// When the link is free, each way.
    free_at: [Instant; 2],
}

enum Event {
    Datagram { to: usize, path: usize, from: SocketAddr, bytes: Vec<u8> },
    Inside { at: usize, packet: Vec<u8> },
}

/// Of a datagram: from which end, path, contents, when.
pub(crate) type Filter = Box<dyn FnMut(usize, usize, &[u8], Instant) -> bool>;

/// What came out of the tunnel at an end.
#[derive(Debug, Clone)]
pub(crate) struct Delivered {
    pub(crate) at: Instant,
    pub(crate) packet: Vec<u8>,
}

pub(crate) struct Network {
    pub(crate) now: Instant,
    pub(crate) ends: [Engine; 2],
    pub(crate) peers: [PeerId; 2],
    pub(crate) delivered: [Vec<Delivered>; 2],
    pub(crate) ids: Vec<PathId>,
    paths: Vec<Path>,
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    pending: BTreeMap<u64, Event>,
    number: u64,
    random: Pcg64Mcg,
    /// Moments at which something happened.
    pub(crate) steps: u64,
    /// Every datagram that was sent, if wanted.
    pub(crate) wire: Option<Vec<(usize, usize, Vec<u8>)>>,
    /// False for what is to be lost.
    pub(crate) filter: Option<Filter>,
    /// Timeouts in a row that were over already.
    spins: u32,
    /// The processes of both ends get a processor only so often.
    pub(crate) nap: Duration,
    awake_at: [Instant; 2],
    /// Where datagrams went that reach neither end.
    pub(crate) astray: Vec<SocketAddr>,
    /// More are a mistake.
    /// Timeouts that are due come before what is to be sent, as in the driver.
    pub(crate) timeouts_first: bool,
    pub(crate) most_spins: u32,
}

fn engine_random(seed: u64) -> Random {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    Box::new(move |bytes| random.fill_bytes(bytes))
}

pub(crate) fn private_key(number: u8) -> PrivateKey {
    PrivateKey::from_random([number; 32])
}

pub(crate) fn engine(number: u8, other: u8, seed: u64) -> (Engine, PeerId) {
    let mut config = EngineConfig::new(private_key(number));
    let mut peer = PeerConfig::new(private_key(other).public_key());
    peer.allowed_ips.push(format!("10.0.0.{other}/32").parse().unwrap());
    config.peers.push(peer);
    let engine = Engine::new(config, Duration::from_secs(1_700_000_000), engine_random(seed));
    let peer = engine.peer_ids().next().unwrap();
    (engine, peer)
}

/// The same, on a processor that has AES or lacks it.
pub(crate) fn engine_with_aes(number: u8, other: u8, has_fast_aes: bool) -> (Engine, PeerId) {
    let mut config = EngineConfig::new(private_key(number));
    config.has_fast_aes = has_fast_aes;
    let mut peer = PeerConfig::new(private_key(other).public_key());
    peer.allowed_ips.push(format!("10.0.0.{other}/32").parse().unwrap());
    config.peers.push(peer);
    let engine = Engine::new(config, Duration::from_secs(1_700_000_000), engine_random(number.into()));
    let peer = engine.peer_ids().next().unwrap();
    (engine, peer)
}

/// The same with rules.
pub(crate) fn engine_with(
    number: u8,
    other: u8,
    seed: u64,
    rules: polypath_tunnel::Rules,
) -> (Engine, PeerId) {
    let mut config = EngineConfig::new(private_key(number));
    let mut peer = PeerConfig::new(private_key(other).public_key());
    peer.allowed_ips.push(format!("10.0.0.{other}/32").parse().unwrap());
    peer.rules = rules;
    config.peers.push(peer);
    let engine = Engine::new(config, Duration::from_secs(1_700_000_000), engine_random(seed));
    let peer = engine.peer_ids().next().unwrap();
    (engine, peer)
}

pub(crate) fn address(end: usize, path: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, path as u8, end as u8 + 1], 51_820))
}

impl Network {
    /// End 0, which is 10.0.0.1, begins.
    pub(crate) fn new(configs: &[PathConfig]) -> Self {
        Self::with_backups(configs, &[])
    }

    /// The same; paths of these numbers are backups.
    pub(crate) fn with_backups(configs: &[PathConfig], backups: &[usize]) -> Self {
        let now = Instant::from_secs(1);
        let (mut here, peer) = engine(1, 2, 11);
        let (there, other) = engine(2, 1, 12);
        let mut ids = Vec::new();
        for at in 0..configs.len() {
            let settings = PathSettings { backup: backups.contains(&at), ..PathSettings::default() };
            let id = here.add_path(now, peer, LocalId(at as u16), address(1, at), settings);
            ids.push(id.unwrap());
        }
        let paths = configs.iter().map(|&config| Path { config, is_up: true, free_at: [now; 2] }).collect();
        Self {
            now,
            ends: [here, there],
            peers: [peer, other],
            delivered: [Vec::new(), Vec::new()],
            ids,
            paths,
            events: BinaryHeap::new(),
            pending: BTreeMap::new(),
            number: 0,
            random: Pcg64Mcg::seed_from_u64(5),
            steps: 0,
            wire: None,
            filter: None,
            spins: 0,
            nap: Duration::ZERO,
            awake_at: [now; 2],
            astray: Vec::new(),
            most_spins: 2_000,
            timeouts_first: false,
        }
    }

    /// The process of an end ends without a word, and another begins.
    pub(crate) fn restart(&mut self, end: usize, engine: (Engine, PeerId), paths: usize) {
        let (mut engine, peer) = engine;
        for at in 0..paths {
            let to = address(1 - end, at);
            engine.add_path(self.now, peer, LocalId(at as u16), to, PathSettings::default()).unwrap();
        }
        self.ends[end] = engine;
        self.peers[end] = peer;
    }

    /// Other packets are lost.
    pub(crate) fn set_seed(&mut self, seed: u64) {
        self.random = Pcg64Mcg::seed_from_u64(seed);
    }

    pub(crate) fn set_up(&mut self, path: usize, is_up: bool) {
        self.paths[path].is_up = is_up;
    }

    pub(crate) fn set_config(&mut self, path: usize, config: PathConfig) {
        self.paths[path].config = config;
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.number += 1;
        self.pending.insert(self.number, event);
        self.events.push(Reverse((at, self.number)));
    }

    /// A packet enters the tunnel at an end at some time.
    pub(crate) fn send_at(&mut self, at: Instant, end: usize, packet: Vec<u8>) {
        self.schedule(at, Event::Inside { at: end, packet });
    }

    /// A datagram reaches an end, from wherever.
    pub(crate) fn inject(&mut self, to: usize, path: usize, from: SocketAddr, bytes: Vec<u8>) {
        let at = self.now;
        self.schedule(at, Event::Datagram { to, path, from, bytes });
    }

    fn flush(&mut self, end: usize) {
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut buffer) else { break };
            assert_eq!(buffer.len(), transmit.len_bytes);
            let size = transmit.segment_bytes.unwrap_or(buffer.len());
            let path = usize::from(transmit.local.0);
            for datagram in buffer.chunks(size) {
                if let Some(wire) = &mut self.wire {
                    wire.push((end, path, datagram.to_vec()));
                }
                if transmit.remote == address(1 - end, path) {
                    self.send(end, path, datagram.to_vec());
                } else {
                    self.astray.push(transmit.remote);
                }
            }
        }
    }

    fn send(&mut self, end: usize, path: usize, bytes: Vec<u8>) {
        let time = self.now;
        if self.filter.as_mut().is_some_and(|filter| !filter(end, path, &bytes, time)) {
            return;
        }
        let chance = (self.random.next_u32() as f64) / f64::from(u32::MAX);
        let now = self.now;
        let link = &mut self.paths[path];
        let waiting = link.config.rate.bytes_in(link.free_at[end].since(now));
        if !link.is_up || chance < link.config.loss || waiting > link.config.queue_bytes {
            return;
        }
        let takes = link.config.rate.time_to_send(bytes.len() as u64 + OUTER_BYTES);
        let burst = link.config.rate.time_to_send(link.config.burst_bytes);
        link.free_at[end] = link.free_at[end].max(now - burst) + takes;
        let mut at = link.free_at[end].max(now) + link.config.delay;
        if !link.config.jitter.is_zero() {
            at += link.config.jitter.mul_f64(f64::from(self.random.next_u32()) / f64::from(u32::MAX));
        }
        self.schedule(at, Event::Datagram { to: 1 - end, path, from: address(end, path), bytes });
    }

    /// Its process has the processor now.
    fn is_awake(&self, end: usize) -> bool {
        self.awake_at[end] <= self.now
    }

    /// Processes that have done what there was lose the processor for a while.
    fn sleep(&mut self) {
        for end in 0..2 {
            if !self.nap.is_zero() && self.is_awake(end) {
                self.awake_at[end] = self.now + self.nap;
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn run_until(&mut self, until: Instant) {
        loop {
            for end in 0..2 {
                if self.is_awake(end) {
                    self.flush(end);
                }
            }
            let timeout = |end: usize| Some(self.ends[end].poll_timeout()?.max(self.awake_at[end]));
            let timeout = (0..2).filter_map(timeout).min();
            let event = self.events.peek().map(|Reverse((at, _))| *at);
            let next = [timeout, event].into_iter().flatten().min();
            let Some(next) = next.filter(|&at| at <= until) else { break };
            if next > self.now {
                self.sleep();
            }
            if timeout.is_some_and(|at| at <= self.now) && event.is_none_or(|at| at > self.now) {
                self.spins += 1;
                assert!(
                    self.spins < self.most_spins,
                    "spins at {}: timeouts {:?}",
                    self.now,
                    [self.ends[0].poll_timeout(), self.ends[1].poll_timeout()]
                );
            } else {
                self.spins = 0;
            }
            self.now = self.now.max(next);
            self.steps += 1;
            if event.is_some_and(|at| at <= self.now) {
                let Some(Reverse((_, number))) = self.events.pop() else { break };
                self.handle(number);
                if self.timeouts_first {
                    self.handle_timeouts();
                }
            } else {
                self.handle_timeouts();
            }
        }
        self.now = until;
    }

    fn handle_timeouts(&mut self) {
        for end in (0..2).filter(|&end| self.awake_at[end] <= self.now) {
            let (now, delivered) = (self.now, &mut self.delivered[end]);
            self.ends[end].handle_timeout(now, &mut |packet| {
                delivered.push(Delivered { at: now, packet: packet.to_vec() });
            });
        }
    }

    fn handle(&mut self, number: u64) {
        let now = self.now;
        match self.pending.remove(&number) {
            Some(event @ Event::Datagram { to, .. }) if self.awake_at[to] > now => {
                self.schedule(self.awake_at[to], event);
            }
            Some(Event::Datagram { to, path, from, mut bytes }) => {
                let delivered = &mut self.delivered[to];
                let local = LocalId(path as u16);
                self.ends[to].handle_datagram(now, local, from, &mut bytes, &mut |packet| {
                    delivered.push(Delivered { at: now, packet: packet.to_vec() });
                });
            }
            Some(Event::Inside { at, packet }) => {
                let mut frame = vec![0; PACKET_ROOM_BYTES];
                frame.extend_from_slice(&packet);
                self.ends[at].handle_packet(now, frame.into());
            }
            None => {}
        }
    }
}

/// A UDP packet of IPv4 between the ends, with a number in it.
pub(crate) fn packet(from: u8, to: u8, port: u16, number: u32, len_bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; len_bytes.max(32)];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len_bytes.max(32) as u16).to_be_bytes());
    packet[8] = 64;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&[10, 0, 0, from]);
    packet[16..20].copy_from_slice(&[10, 0, 0, to]);
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet[22..24].copy_from_slice(&9_000_u16.to_be_bytes());
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet
}

/// The numbers of what was delivered.
pub(crate) fn numbers(delivered: &[Delivered]) -> Vec<u32> {
    delivered.iter().map(|one| u32::from_be_bytes(one.packet[28..32].try_into().unwrap())).collect()
}
