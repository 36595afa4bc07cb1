//! The engine as one of the laboratory's aggregators: both ends know each other from the beginning.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use polypath_units::{Duration, Instant};

use crate::aggregator::{self, Aggregator};
use crate::allowed_ips::Network;
use crate::engine::{Engine, EngineConfig, PACKET_ROOM_BYTES, PeerConfig, PeerId, Random};
use crate::key::PrivateKey;
use crate::path::PathSettings;
use crate::rules::{FlowPolicy, Rule, Rules};
use crate::transmit::LocalId;

/// IPv4 and UDP around a datagram.
const OUTER_BYTES: u16 = 28;
/// Handshakes need a wall clock; any time will do.
const ZERO_SINCE_1970: Duration = Duration::from_secs(1_700_000_000);

/// One end. Both ends have the same key, as nobody else is there to tell them from.
pub(crate) struct United {
    engine: Engine,
    peer: PeerId,
    paths: usize,
    /// Paths are added when time is known.
    has_begun: bool,
    leaving: VecDeque<aggregator::Transmit>,
    arrived: VecDeque<Bytes>,
    timeout: Option<Instant>,
}

impl United {
    pub(crate) fn new(paths: usize, mtu_bytes: usize, policy: FlowPolicy) -> Self {
        let key = PrivateKey::from_random([7; 32]);
        let mut peer = PeerConfig::new(key.public_key());
        peer.allowed_ips = [IpAddr::from([0; 4]), IpAddr::from([0_u16; 8])]
            .into_iter()
            .filter_map(|all| Network::new(all, 0))
            .collect();
        peer.rules = Rules::new(vec![Rule::all(policy)]);
        let config = EngineConfig { mtu_bytes, peers: vec![peer], ..EngineConfig::new(key) };
        let engine = Engine::new(config, ZERO_SINCE_1970, counting());
        let peer = engine.peer_ids().next().expect("it was just added");
        let (leaving, arrived) = (VecDeque::new(), VecDeque::new());
        Self { engine, peer, paths, has_begun: false, leaving, arrived, timeout: Some(Instant::ZERO) }
    }

    fn begin(&mut self, now: Instant) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        for path in 0..self.paths {
            let settings = PathSettings::default();
            self.engine.add_path(now, self.peer, LocalId(path as u16), remote(path), settings);
        }
    }

    /// Lets time have its effect, and takes what leaves.
    fn advance(&mut self, now: Instant) {
        self.begin(now);
        let arrived = &mut self.arrived;
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now, &mut |packet| arrived.push_back(Bytes::copy_from_slice(packet)));
        }
        let mut buffer = Vec::new();
        while let Some(transmit) = self.engine.poll_transmit(now, &mut buffer) {
            let size = transmit.segment_bytes.unwrap_or(transmit.len_bytes);
            let path = usize::from(transmit.local.0);
            let datagrams = buffer.chunks(size).map(Bytes::copy_from_slice);
            self.leaving.extend(datagrams.map(|datagram| aggregator::Transmit {
                path,
                datagram,
                header_bytes: OUTER_BYTES,
            }));
            buffer.clear();
        }
        self.timeout = self.engine.poll_timeout();
    }
}

fn remote(path: usize) -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, path as u8 + 1), 51_820).into()
}

/// Bytes that differ each time and are the same in each run.
fn counting() -> Random {
    let mut state = 0_u64;
    Box::new(move |bytes| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
    })
}

impl Aggregator for United {
    fn handle_packet(&mut self, now: Instant, packet: Bytes) {
        self.begin(now);
        let mut frame = vec![0; PACKET_ROOM_BYTES + packet.len()];
        frame[PACKET_ROOM_BYTES..].copy_from_slice(&packet);
        self.engine.handle_packet(now, frame.into());
        self.advance(now);
    }

    fn handle_datagram(&mut self, now: Instant, path: usize, datagram: Bytes) {
        self.begin(now);
        let (local, mut datagram) = (LocalId(path as u16), datagram.to_vec());
        let arrived = &mut self.arrived;
        self.engine.handle_datagram(now, local, remote(path), &mut datagram, &mut |packet| {
            arrived.push_back(Bytes::copy_from_slice(packet));
        });
        self.advance(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<aggregator::Transmit> {
        if self.leaving.is_empty() {
            self.advance(now);
        }
        self.leaving.pop_front()
    }

    fn poll_packet(&mut self, _now: Instant) -> Option<Bytes> {
        self.arrived.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timeout
    }
}

impl fmt::Debug for United {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("United").field("paths", &self.paths).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u8) -> Bytes {
        let mut packet = vec![number; 200];
        packet[..4].copy_from_slice(&[0x45, 0, 0, 200]);
        packet[9] = 17;
        packet.into()
    }

    #[test]
    fn packets_cross_between_two_that_are_alike() {
        let mut ends =
            [United::new(2, 1_500, FlowPolicy::Aggregate), United::new(2, 1_500, FlowPolicy::Aggregate)];
        let mut flying: VecDeque<(Instant, usize, aggregator::Transmit)> = VecDeque::new();
        let mut came = Vec::new();
        for millis in 1_000..3_000 {
            let now = Instant::from_millis(millis);
            if millis % 100 == 0 {
                ends[0].handle_packet(now, packet((millis / 100) as u8));
            }
            while flying.front().is_some_and(|(at, ..)| *at <= now) {
                let Some((_, to, transmit)) = flying.pop_front() else { break };
                ends[to].handle_datagram(now, transmit.path, transmit.datagram);
            }
            for (from, end) in ends.iter_mut().enumerate() {
                while let Some(transmit) = end.poll_transmit(now) {
                    flying.push_back((now + Duration::from_millis(5), 1 - from, transmit));
                }
            }
            came.extend(std::iter::from_fn(|| ends[1].poll_packet(now)).map(|packet| packet[50]));
        }
        assert_eq!(came, (10..30).collect::<Vec<u8>>());
    }
}
