//! Two ends and what is between them.

use std::collections::VecDeque;
use std::net::SocketAddr;

use polypath_units::{Duration, Instant};

use crate::key::PrivateKey;
use crate::noise::PathId;
use crate::path::PathSettings;
use crate::rules::{FlowPolicy, Rule, Rules};
use crate::transmit::LocalId;
use crate::{Engine, EngineConfig, PACKET_ROOM_BYTES, PeerConfig, PeerId};

pub(super) const UPLINKS: usize = 4;
/// What is on the wire, and what a listener remembers.
const MOST_ON_WIRE: usize = 64;
/// Time that a datagram takes once those before it have come.
const TAKES: Duration = Duration::from_micros(50);
/// Most that leaves at one moment.
const MOST_AT_ONCE: usize = 20_000;
/// An end that is asked when to call it, and is called then, has something else to say after so many times.
const MOST_TIMEOUTS: usize = 200;
/// What a peer's bounds add up to: packets of a window, of all paths, and of what waits.
const MOST_HELD_ITEMS: usize = 100_000;
const MOST_HELD_BYTES: usize = 64 << 20;

/// A datagram on its way.
#[derive(Clone)]
pub(super) struct OnWire {
    pub(super) to: usize,
    pub(super) uplink: usize,
    pub(super) from: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) ends: [Engine; 2],
    /// How often each end's process began.
    begun: [u64; 2],
    /// How often each uplink's address changed.
    pub(super) mappings: [[u16; UPLINKS]; 2],
    pub(super) wire: VecDeque<OnWire>,
    pub(super) seen: VecDeque<OnWire>,
    /// Packets that left the tunnel.
    pub(super) came: [u64; 2],
}

/// Who has never sent anything authentic.
pub(super) fn stranger() -> SocketAddr {
    ([203, 0, 113, 7], 4_444).into()
}

fn key(end: usize) -> PrivateKey {
    PrivateKey::from_random([1 + end as u8 * 8; 32])
}

pub(super) fn peer_of(end: usize) -> PeerConfig {
    let mut peer = PeerConfig::new(key(1 - end).public_key());
    peer.allowed_ips.push(crate::Network::host([10, 0, 0, 2 - end as u8].into()));
    let of_port = |port: u16, policy| Rule { ports: Some(port..=port), ..Rule::all(policy) };
    let pinned = FlowPolicy::Pinned(PathId::new(8).expect("a path"));
    let protected = Rule { fec: true, ..of_port(3, FlowPolicy::Aggregate) };
    let (redundant, split) = (of_port(1, FlowPolicy::Redundant), of_port(4, FlowPolicy::SplitTcp));
    peer.rules = Rules::new(vec![redundant, of_port(2, pinned), protected, split]);
    peer
}

impl Pair {
    pub(super) fn new() -> Self {
        let mut pair = Self {
            now: Instant::from_secs(1),
            ends: [0, 1].map(|end| Self::engine(end, 0)),
            begun: [1; 2],
            mappings: [[0; UPLINKS]; 2],
            wire: VecDeque::new(),
            seen: VecDeque::new(),
            came: [0; 2],
        };
        pair.add_path(0, 0);
        pair.add_path(0, 1);
        pair
    }

    fn engine(end: usize, begun: u64) -> Engine {
        // A generator of its own: what is random here must only differ.
        let mut state = (begun << 1 | end as u64) + 1;
        let random = move |bytes: &mut [u8]| {
            for byte in bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
        };
        let config = EngineConfig { peers: vec![peer_of(end)], ..EngineConfig::new(key(end)) };
        Engine::new(config, Duration::from_secs(1_700_000_000), Box::new(random))
    }

    /// The process of an end ends without a word, and another begins.
    pub(super) fn restart(&mut self, end: usize) {
        self.ends[end] = Self::engine(end, self.begun[end]);
        self.begun[end] += 1;
    }

    pub(super) fn address(&self, end: usize, uplink: usize) -> SocketAddr {
        ([192, 0, uplink as u8, end as u8 + 1], 1_000 + self.mappings[end][uplink]).into()
    }

    pub(super) fn peer(&self, end: usize) -> Option<PeerId> {
        self.ends[end].peer_ids().next()
    }

    pub(super) fn add_path(&mut self, end: usize, uplink: usize) {
        let (to, settings) = (self.address(1 - end, uplink), PathSettings::default());
        if let Some(peer) = self.peer(end) {
            self.ends[end].add_path(self.now, peer, LocalId(uplink as u16), to, settings);
        }
    }

    /// The numbers of an end's paths.
    pub(super) fn paths(&self, end: usize) -> Vec<PathId> {
        let status = self.peer(end).and_then(|peer| self.ends[end].peer_status(self.now, peer));
        status.map(|status| status.paths.iter().map(|path| path.id).collect()).unwrap_or_default()
    }

    pub(super) fn send(&mut self, end: usize, port: u16, number: u32, len_bytes: usize) {
        let len_bytes = len_bytes.max(32);
        let mut frame = vec![0; PACKET_ROOM_BYTES + len_bytes];
        let packet = &mut frame[PACKET_ROOM_BYTES..];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(len_bytes as u16).to_be_bytes());
        packet[9] = 17;
        packet[12..16].copy_from_slice(&[10, 0, 0, end as u8 + 1]);
        packet[16..20].copy_from_slice(&[10, 0, 0, 2 - end as u8]);
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        packet[28..32].copy_from_slice(&number.to_be_bytes());
        self.ends[end].handle_packet(self.now, frame.into());
    }

    /// A datagram comes to an end, whoever sent it.
    pub(super) fn deliver(&mut self, one: &OnWire) {
        let mut bytes = one.bytes.clone();
        let came = &mut self.came[one.to];
        let local = LocalId(one.uplink as u16);
        self.ends[one.to].handle_datagram(self.now, local, one.from, &mut bytes, &mut |_| *came += 1);
        self.flush();
    }

    /// What both ends have to send is on the wire then, or is lost where its address leads nowhere.
    pub(super) fn flush(&mut self) {
        for end in 0..2 {
            let (mut count, mut buffer) = (0, Vec::new());
            loop {
                buffer.clear();
                let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut buffer) else { break };
                assert_eq!(buffer.len(), transmit.len_bytes);
                count += 1;
                assert!(count < MOST_AT_ONCE, "an end that never stops sending");
                let uplink = usize::from(transmit.local.0);
                for bytes in buffer.chunks(transmit.segment_bytes.unwrap_or(buffer.len())) {
                    if transmit.remote == stranger() {
                        assert_eq!(bytes.len(), crate::noise::COOKIE_REPLY_BYTES, "an answer to a stranger");
                    }
                    let from = self.address(end, uplink);
                    let one = OnWire { to: 1 - end, uplink, from, bytes: bytes.to_vec() };
                    self.seen.push_back(one.clone());
                    if transmit.remote == self.address(1 - end, uplink) {
                        self.wire.push_back(one);
                    }
                }
            }
            self.wire.drain(..self.wire.len().saturating_sub(MOST_ON_WIRE * 8));
            self.seen.drain(..self.seen.len().saturating_sub(MOST_ON_WIRE));
        }
    }

    /// Time passes, as far as this; all timers that go off meanwhile are looked at.
    pub(super) fn run_until(&mut self, until: Instant, delivers: bool) {
        let mut at_this_moment = 0;
        loop {
            self.flush();
            if delivers && let Some(one) = self.wire.pop_front() {
                self.now += TAKES;
                self.deliver(&one);
                continue;
            }
            let next = self.ends.iter_mut().filter_map(Engine::poll_timeout).min();
            let Some(next) = next.filter(|&at| at <= until) else { break };
            at_this_moment = if next > self.now { 0 } else { at_this_moment + 1 };
            assert!(at_this_moment < MOST_TIMEOUTS, "a timer that spins");
            self.now = self.now.max(next);
            for end in 0..2 {
                let came = &mut self.came[end];
                self.ends[end].handle_timeout(self.now, &mut |_| *came += 1);
            }
        }
        self.now = self.now.max(until);
    }

    /// What the ends hold is bounded.
    pub(super) fn check(&self) {
        for engine in &self.ends {
            let held = engine.weighed();
            // Three sessions and a handshake each.
            assert!(held.sessions <= 4 * held.peers && held.answers <= 1_024, "{held:?}");
            assert!(held.items <= MOST_HELD_ITEMS && held.bytes <= MOST_HELD_BYTES, "{held:?}");
        }
    }
}
