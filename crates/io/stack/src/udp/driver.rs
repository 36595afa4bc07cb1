use std::collections::HashSet;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll};

use polypath_system::WallClock;
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, FourTuple, IcmpMessage, IpHeader, Packet, Segment, SeqNumber, Transport};
use quinn_udp::{BATCH_SIZE, RecvMeta};
use rustix::net::netdevice::index_to_name;
use tokio::io::Interest;

use super::address::{OwnPath, PathId, network_addr, stack_addr};
use super::datagram::{self, Header, Kind, Merged, Merger, Ports, Strange};
use super::keys::{Challenge, HostSecret};
use super::options::UdpOptions;
use super::own::{Local, OwnPaths};
use super::peers::{Came, Peers, Reaction};
use super::port::{Port, PortSocket, is_fatal};
use super::route::Route;
use crate::stack::{Buffer, BufferPool, Receive, Transmit};
use crate::{Stack, WeakStack};

/// A datagram train that the kernel hands over fits this.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 65_536;

/// The code of RFC 792.
const PORT_UNREACHABLE: u8 = 3;

/// Payload that is less than one part in so many of its buffer is copied out.
const LEAST_SHARE: usize = 8;

/// Flows of a path that say what they have received when it is challenged. Others do so the next time.
const MOST_ACKNOWLEDGED: usize = 32;

/// What the halves of the driver share.
#[derive(Debug)]
pub(super) struct DriverShared {
    ports: Vec<Port>,
    /// The interfaces of this end's paths, in their order.
    names: RwLock<Vec<Option<String>>>,
    /// The UDP port of peers that are dialled.
    remote_port: u16,
    traffic: Mutex<Traffic>,
    clock: WallClock,
    /// Knows which paths are in use.
    stack: OnceLock<WeakStack>,
    counters: Counters,
}

/// Datagrams that are not understood.
#[derive(Debug, Default)]
struct Counters {
    version: AtomicU64,
    malformed: AtomicU64,
}

#[derive(Debug)]
struct Traffic {
    peers: Peers,
    own: OwnPaths,
}

impl DriverShared {
    /// Sockets, and a secret from which all that must not be guessed follows.
    pub(super) fn new(
        ports: Vec<Port>,
        names: Vec<Option<String>>,
        options: &UdpOptions,
        secret: &[u8; 64],
    ) -> Self {
        let (own, peers) = secret.split_at(32);
        let half = |bytes: &[u8]| std::array::from_fn(|at| bytes.get(at).copied().unwrap_or_default());
        let peers = Peers::new(options.peers, half(peers));
        let own = OwnPaths::new(HostSecret(half(own)));
        Self {
            ports,
            names: RwLock::new(names),
            remote_port: options.port,
            traffic: Mutex::new(Traffic { peers, own }),
            clock: WallClock::starting_at(Instant::from_secs(60)),
            stack: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// Names the stack that the driver carries.
    pub(super) fn belongs_to(&self, stack: WeakStack) {
        // Called once.
        let _ = self.stack.set(stack);
    }

    /// One receiver for each socket.
    pub(super) fn receivers(self: &Arc<Self>, most_held_bytes: usize) -> Vec<UdpReceive> {
        let pool = BufferPool::new(RECEIVE_BUFFER_BYTES, 4 * BATCH_SIZE);
        let receiver = |port: usize| UdpReceive {
            shared: self.clone(),
            port,
            socket: None,
            generation: None,
            pool: pool.clone(),
            most_held_bytes,
            refusal: None,
        };
        (0..self.ports.len()).map(receiver).collect()
    }

    /// The interfaces of this end's paths, in their order.
    pub(super) fn names(&self) -> Vec<Option<String>> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A path has another interface.
    pub(super) fn rename(&self, OwnPath(number): OwnPath, interface: Option<String>) {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        let at = usize::from(number).saturating_sub(1);
        if names.len() <= at {
            names.resize(at + 1, None);
        }
        names[at] = interface;
    }

    /// The ports.
    pub(super) fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// That nobody listens where a datagram went, as the stack is told it. Only who saw the datagram can make up its identifier
    /// and sequence number (RFC 5927).
    fn refused(&self, quoted: &[u8]) -> Option<Packet> {
        let Header { kind: Kind::Segment, to_owner: false, path } = Header::parse(quoted).ok()? else {
            return None;
        };
        let (ports, seq) = datagram::quoted_flow(quoted)?;
        let (own, remote) = self.traffic().own.way_of(path)?;
        let flow = FourTuple {
            local: Endpoint::new(own.addr(), ports.owner),
            remote: Endpoint::new(stack_addr(remote.ip()), ports.peer),
        };
        let message = IcmpMessage::Unreachable { code: PORT_UNREACHABLE, flow, seq: SeqNumber(seq) };
        let ip = IpHeader::new(flow.remote.addr, flow.local.addr);
        Some(Packet { ip, transport: Transport::Icmp(message) })
    }

    /// What happened, by name.
    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let peers = self.traffic().peers.counters();
        vec![
            ("UdpVersionUnknown", self.counters.version.load(Ordering::Relaxed)),
            ("UdpMalformed", self.counters.malformed.load(Ordering::Relaxed)),
            ("UdpChallengeTx", peers.challenges),
            ("UdpPathAdmitted", peers.introductions),
            ("UdpPathMoved", peers.route_changes),
            ("UdpProofFailed", peers.failed_proofs),
            ("UdpPathNoRoom", peers.no_room),
            ("UdpUnprovenDrop", peers.unproven_drops),
        ]
    }

    /// Where a peer that dialled this end is now, if the stack's address is that of one.
    pub(super) fn remote(&self, addr: IpAddr) -> Option<SocketAddr> {
        self.traffic().peers.remote(addr)
    }

    /// Where a peer reaches a path of ours; the latest one, if none is named. None before something came.
    pub(super) fn local_of(&self, path: OwnPath, peer: Option<IpAddr>) -> Option<Local> {
        self.traffic().own.local_of(path, peer)
    }

    /// The interface by which the datagrams of a peer come, on a path that follows the system's routes.
    pub(super) fn routed_interface(&self, path: OwnPath, peer: IpAddr) -> Option<String> {
        let port = self.port_of(path, true).filter(|port| !port.is_bound())?;
        let index = self.local_of(path, Some(peer))?.interface?;
        index_to_name(&port.socket()?.socket, index).ok()
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The socket of a path of ours for a family of addresses.
    fn port_of(&self, path: OwnPath, is_v4: bool) -> Option<&Port> {
        self.ports.iter().find(|port| port.path == Some(path) && port.is_v4 == is_v4)
    }

    /// There may be no way at all to addresses of a family: the kernel has had no route for some, or no sockets.
    pub(super) fn may_lack_family(&self, is_v4: bool) -> bool {
        let mut of_family =
            self.ports.iter().filter(|port| port.path.is_some() && port.is_v4 == is_v4).peekable();
        of_family.peek().is_none() || of_family.any(Port::has_no_route)
    }

    /// Keeps bindings of translators alive on paths in use that were silent for `silence`.
    pub(super) fn keep_alive(&self, silence: Duration) {
        if self.traffic().own.is_empty() {
            return;
        }
        let flows = self.flows();
        let in_use: HashSet<(OwnPath, IpAddr)> = flows
            .iter()
            .filter_map(|flow| Some((OwnPath::of(flow.local.addr)?, network_addr(flow.remote.addr))))
            .collect();
        let silent = self.traffic().own.take_silent(self.clock.now(), silence, &in_use);
        for (path, (own, remote)) in silent {
            let header = Header { kind: Kind::KeepAlive, to_owner: false, path };
            if let Some(port) = self.port_of(own, remote.is_ipv4()) {
                // The next one comes in time.
                let _ = port.send(remote, None, &header.to_bytes(), None);
            }
        }
    }

    /// Makes room among the paths of peers, if there is too little.
    fn make_room(&self) {
        let now = self.clock.now();
        if !self.traffic().peers.wants_census(now) {
            return;
        }
        let in_use = self.flows().iter().filter_map(|flow| PathId::of(flow.remote.addr)).collect();
        self.traffic().peers.handle_census(now, &in_use);
    }

    /// Both ends of every flow of the stack. Not to be asked while the stack's or the traffic's lock is held.
    fn flows(&self) -> Vec<FourTuple> {
        self.stack().map(|stack| stack.flows()).unwrap_or_default()
    }

    /// The stack that the driver carries, as long as it is there.
    pub(super) fn stack(&self) -> Option<Stack> {
        self.stack.get().and_then(WeakStack::upgrade)
    }
}

/// Sends packets as datagrams.
#[derive(Debug)]
pub(super) struct UdpTransmit {
    shared: Arc<DriverShared>,
    train: Vec<u8>,
}

impl UdpTransmit {
    pub(super) fn new(shared: Arc<DriverShared>) -> Self {
        Self { shared, train: Vec::new() }
    }

    /// To a peer that this end dialled.
    fn transmit_to_peer(&mut self, own: OwnPath, segment: &Segment, packet: &Packet) -> io::Result<()> {
        let shared = &self.shared;
        let remote = SocketAddr::new(network_addr(packet.ip.dst), shared.remote_port);
        let Some(port) = shared.port_of(own, remote.is_ipv4()) else { return Ok(()) };
        let is_syn = segment.flags.syn();
        let path = shared.traffic().own.note_sent(shared.clock.now(), (own, remote), is_syn);
        let header = Header { kind: Kind::Segment, to_owner: false, path };
        let Some(size) = datagram::emit(header, packet, &mut self.train) else { return Ok(()) };
        if is_syn {
            datagram::pad_opening(&mut self.train);
            shared.traffic().own.keep_syn((own, remote), &self.train);
            return port.send(remote, None, &self.train, None);
        }
        port.send_train(remote, None, &self.train, size)
    }

    /// To a peer that dialled this end.
    fn transmit_to_owner(&mut self, path: PathId, packet: &Packet) -> io::Result<()> {
        let header = Header { kind: Kind::Segment, to_owner: true, path };
        let Some(size) = datagram::emit(header, packet, &mut self.train) else { return Ok(()) };
        let route = {
            let peers = &mut self.shared.traffic().peers;
            peers.path(packet.ip.dst).and_then(|path| peers.route(path, self.train.len()))
        };
        let Some(route) = route else { return Ok(()) };
        let Some(port) = self.shared.ports.get(route.socket) else { return Ok(()) };
        port.send_train(route.remote, route.local, &self.train, size)
    }
}

impl Transmit for UdpTransmit {
    fn transmit(&mut self, packet: Packet) -> io::Result<()> {
        let Transport::Tcp(segment) = &packet.transport else { return Ok(()) };
        self.train.clear();
        if let Some(own) = OwnPath::of(packet.ip.src) {
            return self.transmit_to_peer(own, segment, &packet);
        }
        match PathId::of(packet.ip.dst) {
            Some(path) => self.transmit_to_owner(path, &packet),
            None => Ok(()),
        }
    }
}

/// Lets go of a buffer that is much larger than the payload in it, or of any if more than `most_held_bytes` are held: the stack
/// counts payload, and what it holds must not be many times that.
pub(super) fn compact(segment: &mut Segment, pool: &BufferPool, most_held_bytes: usize) {
    let len = segment.payload.len();
    let is_small = len < RECEIVE_BUFFER_BYTES / LEAST_SHARE;
    if len > 0 && (is_small || pool.held_bytes() > most_held_bytes) {
        segment.payload = segment.payload.to_vec().into();
    }
}

/// Receives datagrams of one socket as packets.
pub(super) struct UdpReceive {
    shared: Arc<DriverShared>,
    port: usize,
    /// The port's socket, of this generation.
    socket: Option<Arc<PortSocket>>,
    generation: Option<u64>,
    pool: BufferPool,
    most_held_bytes: usize,
    refusal: Option<Refusal>,
}

/// The next word of the network that a peer's port is closed, with what it quotes.
type Refusal = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>;

/// The path whose datagrams pass without asking, while those of one route are handled: it is known by that route.
#[derive(Debug, Default)]
struct Gate {
    open_for: Option<PathId>,
}

impl UdpReceive {
    /// Takes what is there with one system call.
    fn receive(&self, port: &PortSocket, packets: &mut Vec<Packet>) -> io::Result<()> {
        let mut buffers: [_; BATCH_SIZE] = std::array::from_fn(|_| self.pool.take());
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let count = {
            let mut slices: Vec<IoSliceMut<'_>> =
                buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            port.socket.try_io(Interest::READABLE, || {
                port.state.recv((&port.socket).into(), &mut slices, &mut metas)
            })?
        };
        for (buffer, meta) in buffers.into_iter().zip(metas).take(count) {
            self.take(buffer, &meta, packets);
        }
        self.shared.make_room();
        Ok(())
    }

    /// Handles the datagrams in a buffer, all of which came by one route. What is not for the stack costs no allocation.
    fn take(&self, buffer: Buffer, meta: &RecvMeta, packets: &mut Vec<Packet>) {
        let stride = meta.stride.max(1);
        let starts = (0..meta.len).step_by(stride);
        let range = |at: usize| at..meta.len.min(at + stride);
        let mut gate = Gate::default();
        let admitted: Vec<usize> =
            starts.filter(|&at| self.is_for_stack(&buffer[range(at)], meta, &mut gate)).collect();
        if admitted.is_empty() {
            return;
        }
        let bytes = buffer.freeze(meta.len);
        let mut merger = Merger::default();
        for at in admitted {
            if let Some(done) = merger.push(&bytes.slice(range(at))) {
                packets.extend(self.packet(done, meta));
            }
        }
        packets.extend(merger.finish().and_then(|done| self.packet(done, meta)));
    }

    /// Whether a datagram holds a segment that the stack is to have. Whatever else it asks for is done.
    fn is_for_stack(&self, datagram: &[u8], meta: &RecvMeta, gate: &mut Gate) -> bool {
        let header = match Header::parse(datagram) {
            Ok(header) => header,
            Err(strange) => {
                self.count(strange);
                return false;
            }
        };
        if header.kind != Kind::Segment {
            self.handle_control(header, datagram.len(), meta);
            return false;
        }
        // Whether a path is ours, its way tells once the segment is read.
        if header.to_owner || gate.open_for == Some(header.path) {
            return true;
        }
        let syn = datagram::syn_ports(datagram);
        let (route, now) = (self.route_of(meta), self.shared.clock.now());
        let peers = &mut self.shared.traffic().peers;
        let reaction = peers.handle_segment(
            now,
            Came { path: header.path, route, len_bytes: datagram.len(), is_syn: syn.is_some() },
        );
        if reaction.is_accepted && !reaction.is_stranger {
            gate.open_for = Some(header.path);
        }
        self.challenge(header.path, reaction, syn, meta);
        reaction.is_accepted
    }

    fn count(&self, strange: Strange) {
        let counter = match strange {
            Strange::Version => &self.shared.counters.version,
            Strange::Malformed => &self.shared.counters.malformed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn route_of(&self, meta: &RecvMeta) -> Route {
        Route { socket: self.port, remote: meta.addr, local: meta.dst_ip }
    }

    /// A segment with the addresses that the stack knows; none if nobody is to know of it.
    fn packet(&self, merged: Merged, meta: &RecvMeta) -> Option<Packet> {
        let Merged { header, mut segment } = merged;
        let (own, peer) = if header.to_owner {
            // Ours: is it of that peer, and does this socket serve it?
            let mut traffic = self.shared.traffic();
            let (path, remote) = traffic.own.way(header.path, meta.addr)?;
            let ours = self.shared.ports[self.port].path == Some(path);
            if ours {
                let interface = meta.interface_index;
                let local = meta.dst_ip.map(|addr| Local { addr, interface });
                traffic.own.note_local((path, remote), local);
            }
            ours.then(|| (path.addr(), stack_addr(remote.ip())))?
        } else {
            let local = meta.dst_ip?;
            let peer = self.shared.traffic().peers.addr(header.path, self.route_of(meta));
            (stack_addr(local), peer)
        };
        compact(&mut segment, &self.pool, self.most_held_bytes);
        let tuple = FourTuple {
            local: Endpoint::new(peer, segment.src_port),
            remote: Endpoint::new(own, segment.dst_port),
        };
        Some(Packet::tcp(tuple, segment))
    }

    /// Takes the port's socket, if that is another one now.
    fn follow_port(&mut self, cx: &Context<'_>) {
        let port = &self.shared.ports[self.port];
        let generation = Some(port.generation(cx));
        if self.generation != generation {
            (self.generation, self.socket) = (generation, port.socket());
            self.refusal = self.next_refusal();
        }
    }

    /// Waits for the next word of the network on the socket: none for those that only answer.
    fn next_refusal(&self) -> Option<Refusal> {
        let socket = self.socket.clone()?;
        let is_waited_for = self.shared.ports[self.port].path.is_some();
        is_waited_for.then(|| -> Refusal { Box::pin(async move { socket.refusal().await }) })
    }

    /// Adds what the network says of datagrams that it could not deliver; true if there was something.
    fn poll_refusals(&mut self, cx: &mut Context<'_>, packets: &mut Vec<Packet>) -> io::Result<bool> {
        let Some(Poll::Ready(quoted)) = self.refusal.as_mut().map(|refusal| refusal.as_mut().poll(cx)) else {
            return Ok(false);
        };
        self.refusal = self.next_refusal();
        packets.extend(self.shared.refused(&quoted?));
        // The new wait has to be polled, too.
        cx.waker().wake_by_ref();
        Ok(!packets.is_empty())
    }

    fn handle_control(&self, header: Header, len_bytes: usize, meta: &RecvMeta) {
        let (shared, path) = (&self.shared, header.path);
        let (route, now) = (self.route_of(meta), shared.clock.now());
        match header.kind {
            Kind::KeepAlive => {
                let reaction = shared
                    .traffic()
                    .peers
                    .handle_keep_alive(now, Came { path, route, len_bytes, is_syn: false });
                self.challenge(path, reaction, None, meta);
                if reaction.is_accepted {
                    self.reply(Header { kind: Kind::KeepAliveAnswer, to_owner: true, path }, meta);
                }
            }
            Kind::Introduction(challenge, key) => {
                shared.traffic().peers.handle_introduction(now, path, route, challenge, key);
            }
            Kind::Proof(challenge, proof) => {
                shared.traffic().peers.handle_proof(now, path, route, challenge, proof);
            }
            Kind::Challenge(challenge) => {
                self.answer(path, challenge, false, meta);
                self.acknowledge(path, false, meta);
            }
            Kind::ChallengeOfStranger(challenge) => {
                self.answer(path, challenge, true, meta);
                self.acknowledge(path, true, meta);
            }
            Kind::Retry(challenge, syn, is_stranger) => {
                self.answer(path, challenge, is_stranger, meta);
                self.repeat_syn(path, syn, meta);
            }
            Kind::KeepAliveAnswer => shared.traffic().own.handle_keep_alive_answer(path, meta.addr),
            // That is no control.
            Kind::Segment => {}
        }
    }

    /// Gives back a challenge of a path of ours, if there is something to say.
    fn answer(&self, path: PathId, challenge: Challenge, is_stranger: bool, meta: &RecvMeta) {
        let (shared, now) = (&self.shared, self.shared.clock.now());
        let answer = shared.traffic().own.answer(now, path, meta.addr, challenge, is_stranger);
        if let Some(answer) = answer {
            self.reply(answer, meta);
        }
    }

    /// Says again, behind the answer to a challenge, what flows of a path of ours have received: the peer dropped what it challenged.
    fn acknowledge(&self, path: PathId, is_stranger: bool, meta: &RecvMeta) {
        let (shared, now) = (&self.shared, self.shared.clock.now());
        let way = shared.traffic().own.acknowledges(now, path, meta.addr, is_stranger);
        let Some((own, remote)) = way else { return };
        let (local, peer) = (own.addr(), stack_addr(remote.ip()));
        if let Some(stack) = shared.stack() {
            stack.acknowledge(MOST_ACKNOWLEDGED, |flow| flow.local.addr == local && flow.remote.addr == peer);
        }
    }

    /// Sends a SYN again that the peer did not take.
    fn repeat_syn(&self, path: PathId, syn: Ports, meta: &RecvMeta) {
        let datagram = self.shared.traffic().own.syn_again(path, meta.addr, syn);
        if let Some(datagram) = datagram {
            let _ = self.shared.ports[self.port].send(meta.addr, None, &datagram, None);
        }
    }

    /// Challenges whoever sent a datagram, which held `syn`, if that is due.
    fn challenge(&self, path: PathId, reaction: Reaction, syn: Option<Ports>, meta: &RecvMeta) {
        let Some(challenge) = reaction.challenge else { return };
        let kind = match syn {
            Some(ports) if !reaction.is_accepted => Kind::Retry(challenge, ports, reaction.is_stranger),
            _ if reaction.is_stranger => Kind::ChallengeOfStranger(challenge),
            _ => Kind::Challenge(challenge),
        };
        self.reply(Header { kind, to_owner: true, path }, meta);
    }

    /// Back by the way that a datagram came. What is lost is asked for again.
    fn reply(&self, header: Header, meta: &RecvMeta) {
        let port = &self.shared.ports[self.port];
        let local = if port.path.is_some() { None } else { meta.dst_ip };
        let _ = port.send(meta.addr, local, &header.to_bytes(), None);
    }
}

impl Receive for UdpReceive {
    fn poll_receive(&mut self, cx: &mut Context<'_>, packets: &mut Vec<Packet>) -> Poll<io::Result<()>> {
        self.follow_port(cx);
        if self.poll_refusals(cx, packets)? {
            return Poll::Ready(Ok(()));
        }
        // Without a socket it is woken when there is one.
        let Some(socket) = self.socket.clone() else { return Poll::Pending };
        loop {
            std::task::ready!(socket.socket.poll_recv_ready(cx))?;
            match self.receive(&socket, packets) {
                // Nothing for the stack: a flood of strangers does not keep the task from its timer.
                Ok(()) if packets.is_empty() => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(()) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // What the network reports of datagrams sent before concerns TCP's timers, not the socket.
                Err(error) if !is_fatal(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
