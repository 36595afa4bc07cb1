//! An end's state, and what comes and leaves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use polypath_units::{Duration, Instant};

use super::config::{EngineConfig, PeerId};
use super::counts::EngineCounts;
use super::flood::Flood;

use crate::allowed_ips::AllowedIps;
use crate::frame::DATA_HEADER_BYTES;
use crate::inner_packet::InnerPacket;
use crate::key::PublicKey;
use crate::noise::{CookieJar, Identity, Index, Message, PathId, parse};
use crate::path::PathSettings;
use crate::peer::{PathEnds, Peer, Shared, Source};
use crate::tcp_split::SplitMemory;
use crate::transmit::{LocalId, Transmit};

/// Bytes that a packet for [`Engine::handle_packet`] leaves free in front of it.
pub const PACKET_ROOM_BYTES: usize = DATA_HEADER_BYTES;

/// Random bytes.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// A tunnel's end.
pub struct Engine {
    pub(super) identity: Identity,
    pub(super) public_key: PublicKey,
    /// A number is given once: a driver may still have that of a peer that is gone.
    pub(super) peers: Vec<Option<Box<Peer>>>,
    pub(super) by_key: BTreeMap<PublicKey, PeerId>,
    pub(super) by_index: BTreeMap<[u8; 4], PeerId>,
    pub(super) allowed: AllowedIps<PeerId>,
    pub(super) shared: Arc<Shared>,
    pub(super) random: Random,
    /// Since 1970, when [`Instant::ZERO`] was.
    pub(super) zero_since_1970: Duration,
    pub(super) jar: CookieJar,
    pub(super) flood: Flood,
    /// Peers that may have something to send.
    pub(super) ready: VecDeque<PeerId>,
    pub(super) is_ready: BTreeSet<PeerId>,
    /// Peers by their next timeout; those that changed since are in `changed`.
    pub(super) timeouts: BTreeSet<(Instant, PeerId)>,
    pub(super) timeout_of: BTreeMap<PeerId, Instant>,
    pub(super) changed: BTreeSet<PeerId>,
    /// Answers to strangers.
    pub(super) answers: VecDeque<(PathEnds, Vec<u8>)>,
    pub(super) counts: EngineCounts,
}

impl Engine {
    /// An end with these settings and peers. `zero_since_1970` is the wall clock's time at [`Instant::ZERO`].
    #[must_use]
    pub fn new(config: EngineConfig, zero_since_1970: Duration, mut random: Random) -> Self {
        let mut number = || {
            let mut bytes = [0; 8];
            random(&mut bytes);
            u64::from_le_bytes(bytes)
        };
        let shared = Shared {
            policy: config.congestion,
            mtu_bytes: config.mtu_bytes,
            has_fast_aes: config.has_fast_aes,
            flow_key: number(),
            split_memory: config.tcp_split.map(SplitMemory::new),
        };
        let mut engine = Self {
            public_key: config.private_key.public_key(),
            identity: Identity::new(config.private_key),
            peers: Vec::new(),
            by_key: BTreeMap::new(),
            by_index: BTreeMap::new(),
            allowed: AllowedIps::new(),
            shared: Arc::new(shared),
            random,
            zero_since_1970,
            jar: CookieJar::new(),
            flood: Flood::default(),
            ready: VecDeque::new(),
            is_ready: BTreeSet::new(),
            timeouts: BTreeSet::new(),
            timeout_of: BTreeMap::new(),
            changed: BTreeSet::new(),
            answers: VecDeque::new(),
            counts: EngineCounts::default(),
        };
        for peer in config.peers {
            engine.add_peer(peer);
        }
        engine
    }

    /// The peer with a key.
    #[must_use]
    pub fn peer_by_key(&self, key: &PublicKey) -> Option<PeerId> {
        self.by_key.get(key).copied()
    }

    /// A path to a peer, from one of the driver's sockets. Its end that has paths begins handshakes. `None` for a peer that is gone, or
    /// has 8 paths from here.
    pub fn add_path(
        &mut self,
        now: Instant,
        peer: PeerId,
        local: LocalId,
        remote: SocketAddr,
        settings: PathSettings,
    ) -> Option<PathId> {
        self.touch(peer);
        self.peer_mut(peer)?.add_link(now, PathEnds { local, remote }, settings)
    }

    /// Takes a path away. What was under way on it goes over others.
    pub fn remove_path(&mut self, now: Instant, peer: PeerId, path: PathId) {
        self.touch(peer);
        if let Some(peer) = self.peer_mut(peer) {
            peer.remove_link(now, path);
        }
    }

    /// The path's interface works, or does not.
    pub fn set_path_up(&mut self, now: Instant, peer: PeerId, path: PathId, is_up: bool) {
        self.touch(peer);
        if let Some(peer) = self.peer_mut(peer) {
            peer.set_link_up(now, path, is_up);
        }
    }

    /// The path of ours is for something else than before. The peer is told.
    pub fn set_path_settings(&mut self, now: Instant, peer: PeerId, path: PathId, settings: PathSettings) {
        self.touch(peer);
        if let Some(peer) = self.peer_mut(peer) {
            peer.set_link_settings(now, path, settings);
        }
    }

    /// The path has another socket or another address of the peer.
    pub fn move_path(
        &mut self,
        now: Instant,
        peer: PeerId,
        path: PathId,
        local: LocalId,
        remote: SocketAddr,
    ) {
        self.touch(peer);
        if let Some(link) = self.peer_mut(peer).and_then(|peer| peer.link_mut(path)) {
            link.move_to(now, PathEnds { local, remote });
        }
    }

    /// Tells all peers that this end goes: what [`Engine::poll_transmit`] gives then is the last.
    pub fn leave(&mut self, now: Instant) {
        for id in self.peer_ids().collect::<Vec<_>>() {
            if let Some(peer) = self.peer_mut(id) {
                peer.leave(now);
            }
            self.touch(id);
        }
    }

    pub(crate) fn peer_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(id.index())?.as_deref_mut()
    }

    /// The peer may have something to send, and another timeout.
    pub(super) fn touch(&mut self, id: PeerId) {
        if self.is_ready.insert(id) {
            self.ready.push_back(id);
        }
        self.changed.insert(id);
    }

    /// A packet from inside, behind [`PACKET_ROOM_BYTES`] of room.
    pub fn handle_packet(&mut self, now: Instant, frame: Box<[u8]>) {
        let Some(inner) = frame.get(PACKET_ROOM_BYTES..).and_then(InnerPacket::parse) else {
            self.counts.malformed += 1;
            return;
        };
        if inner.len_bytes > self.shared.mtu_bytes {
            self.counts.too_long += 1;
            return;
        }
        let Some(id) = self.allowed.find(inner.destination) else {
            self.counts.no_peer += 1;
            return;
        };
        if let Some(peer) = self.peer_mut(id) {
            peer.handle_packet(now, &inner, frame);
            self.touch(id);
        }
    }

    /// A datagram from the network, which is decrypted in place. `deliver` gets the packets for the inside.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        local: LocalId,
        remote: SocketAddr,
        datagram: &mut [u8],
        deliver: &mut dyn FnMut(&[u8]),
    ) {
        let from = PathEnds { local, remote };
        match parse(datagram) {
            Some(Message::Initiation(message)) => {
                let message = *message;
                self.handle_initiation(now, from, &message);
            }
            Some(Message::Response(message)) => {
                let message = *message;
                self.handle_response(now, from, &message);
            }
            Some(Message::CookieReply(message)) => {
                let message = *message;
                self.handle_cookie_reply(now, &message);
            }
            Some(Message::Plain { receiver, counter }) => {
                self.handle_data(receiver, |peer, source| {
                    peer.handle_plain(now, (receiver, counter), from, datagram, source, deliver)
                });
            }
            Some(Message::OnPath { path, cipher, receiver, counter }) => {
                self.handle_data(receiver, |peer, source| {
                    peer.handle_on_path(
                        now,
                        (receiver, path, cipher, counter),
                        from,
                        datagram,
                        source,
                        deliver,
                    )
                });
            }
            None => self.counts.malformed += 1,
        }
    }

    fn handle_data(&mut self, receiver: Index, handle: impl FnOnce(&mut Peer, &Source<'_>) -> Option<Index>) {
        let Some(&id) = self.by_index.get(&receiver.to_bytes()) else {
            self.counts.unknown_session += 1;
            return;
        };
        let source = Source { allowed: &self.allowed, peer: id };
        let Some(peer) = self.peers[id.index()].as_mut() else { return };
        if let Some(forgotten) = handle(peer, &source) {
            self.by_index.remove(&forgotten.to_bytes());
        }
        self.touch(id);
    }

    /// The next datagram, or several of one length, written to the end of `into`.
    pub fn poll_transmit(&mut self, now: Instant, into: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((ends, datagram)) = self.answers.pop_front() {
            into.extend_from_slice(&datagram);
            let (local, remote) = (ends.local, ends.remote);
            let (len_bytes, segment_bytes) = (datagram.len(), None);
            return Some(Transmit { local, remote, len_bytes, segment_bytes, may_fragment: false });
        }
        while let Some(&id) = self.ready.front() {
            self.begin_handshake(now, id);
            let random = &mut self.random;
            let mut token = || {
                let mut bytes = [0; 8];
                random(&mut bytes);
                u64::from_le_bytes(bytes)
            };
            let transmit =
                self.peers[id.index()].as_mut().and_then(|peer| peer.poll_transmit(now, into, &mut token));
            if transmit.is_some() {
                self.changed.insert(id);
                // The next one is another peer's turn.
                self.ready.rotate_left(1);
                return transmit;
            }
            self.ready.pop_front();
            self.is_ready.remove(&id);
        }
        None
    }

    /// When to call [`Engine::handle_timeout`] at the latest.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        while let Some(id) = self.changed.pop_first() {
            if let Some(before) = self.timeout_of.remove(&id) {
                self.timeouts.remove(&(before, id));
            }
            let next = self.peers[id.index()].as_ref().and_then(|peer| peer.next_timeout());
            if let Some(at) = next {
                self.timeouts.insert((at, id));
                self.timeout_of.insert(id, at);
            }
        }
        self.timeouts.first().map(|&(at, _)| at)
    }

    /// Time passes. `deliver` gets packets that waited for others in vain.
    pub fn handle_timeout(&mut self, now: Instant, deliver: &mut dyn FnMut(&[u8])) {
        self.poll_timeout();
        while let Some(&(at, id)) = self.timeouts.first() {
            if at > now {
                break;
            }
            self.timeouts.pop_first();
            self.timeout_of.remove(&id);
            if let Some(peer) = self.peers[id.index()].as_mut() {
                for index in peer.handle_timeout(now, deliver) {
                    self.by_index.remove(&index.to_bytes());
                }
                self.touch(id);
            }
        }
    }
}
