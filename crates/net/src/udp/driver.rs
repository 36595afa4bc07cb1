use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use polypath_wire::{FourTuple, Packet};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::datagram::{self, Header, Kind, Merger, PathId, network_addr, stack_addr};
use super::peers::{Peers, Route};
use crate::stack::{BufferPool, Receive, Transmit};

/// Buffers of the kernel for each socket. A millisecond at 10 Gbit/s must fit; with room for more, all that may be under way stands
/// there, out of the processor's caches, which halves the rate of a local path.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

/// Most of a datagram train that one system call sends.
const MOST_SENT_BYTES: usize = 65_000;

/// A datagram train that the kernel hands over fits this.
const RECEIVE_BUFFER_BYTES: usize = 65_536;

/// An interface's, or everybody's, sockets.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) socket: UdpSocket,
    state: UdpSocketState,
    /// The path of ours that uses it, if it is one from which connections are opened.
    pub(super) path: Option<PathId>,
    is_v4: bool,
}

impl Port {
    /// A socket bound to a port, and to an interface if one is named.
    pub(super) fn open(
        is_v4: bool,
        port: u16,
        interface: Option<&str>,
        path: Option<PathId>,
    ) -> io::Result<Self> {
        let domain = if is_v4 { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if !is_v4 {
            socket.set_only_v6(true)?;
        }
        // Without CAP_NET_ADMIN the kernel grants what net.core.rmem_max and wmem_max allow; less only costs speed.
        if set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER_BYTES).is_err() {
            let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
        }
        if set_socket_send_buffer_size_force(&socket, SOCKET_BUFFER_BYTES).is_err() {
            let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
        }
        if let Some(interface) = interface {
            socket.bind_device(Some(interface.as_bytes())).map_err(|error| {
                io::Error::new(error.kind(), format!("can't use the interface {interface}: {error}"))
            })?;
        }
        let any: SocketAddr =
            if is_v4 { (Ipv4Addr::UNSPECIFIED, port).into() } else { (Ipv6Addr::UNSPECIFIED, port).into() };
        socket
            .bind(&any.into())
            .map_err(|error| io::Error::new(error.kind(), format!("can't use UDP port {port}: {error}")))?;
        let socket = UdpSocket::from_std(socket.into())?;
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Self { socket, state, path, is_v4 })
    }

    fn send(
        &self,
        remote: SocketAddr,
        local: Option<std::net::IpAddr>,
        contents: &[u8],
        size: Option<usize>,
    ) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: remote,
            ecn: None,
            contents,
            segment_size: size,
            src_ip: local,
        };
        match self.socket.try_io(Interest::WRITABLE, || self.state.try_send((&self.socket).into(), &transmit))
        {
            // No room, or no way just now: the datagrams are lost as they may be anywhere on their way.
            Err(error) if is_fatal(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

fn is_fatal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK | libc::EINVAL | libc::EFAULT))
}

/// What the halves of the driver share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ports: Vec<Port>,
    /// The UDP port of peers that are dialled.
    pub(super) remote_port: u16,
    pub(super) traffic: Mutex<Traffic>,
}

#[derive(Debug, Default)]
pub(super) struct Traffic {
    peers: Peers,
    /// For each path of ours: where it sent last, and when.
    pub(super) sent: Vec<(PathId, SocketAddr, Instant)>,
}

impl Shared {
    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a packet goes, and the header that it gets.
    fn route(&self, packet: &Packet) -> Option<(Route, Header)> {
        let (src, dst) = (packet.ip.src, packet.ip.dst);
        if let Some(path) = PathId::of(src) {
            let remote = SocketAddr::new(network_addr(dst), self.remote_port);
            let is_it = |port: &Port| port.path == Some(path) && port.is_v4 == remote.is_ipv4();
            let socket = self.ports.iter().position(is_it)?;
            let mut traffic = self.traffic();
            let now = Instant::now();
            match traffic.sent.iter_mut().find(|(known, ..)| *known == path) {
                Some(sent) => *sent = (path, remote, now),
                None => traffic.sent.push((path, remote, now)),
            }
            let header = Header { kind: Kind::Segment, to_owner: false, path };
            return Some((Route { socket, remote, local: None }, header));
        }
        let path = PathId::of(dst)?;
        let route = self.traffic().peers.route(path)?;
        Some((route, Header { kind: Kind::Segment, to_owner: true, path }))
    }

    /// Keeps bindings of translators alive on paths that were silent for `silence`.
    pub(super) fn keep_alive(&self, silence: Duration) {
        let silent: Vec<(PathId, SocketAddr)> = self
            .traffic()
            .sent
            .iter_mut()
            .filter(|(_, _, at)| at.elapsed() >= silence)
            .map(|(path, remote, at)| {
                *at = Instant::now();
                (*path, *remote)
            })
            .collect();
        for (path, remote) in silent {
            let is_it = |port: &&Port| port.path == Some(path) && port.is_v4 == remote.is_ipv4();
            let header = Header { kind: Kind::KeepAlive, to_owner: false, path };
            if let Some(port) = self.ports.iter().find(is_it) {
                // The next one comes in time.
                let _ = port.send(remote, None, &header.emit(), None);
            }
        }
    }
}

/// Sends packets as datagrams.
#[derive(Debug)]
pub(super) struct UdpTransmit {
    pub(super) shared: Arc<Shared>,
    pub(super) train: Vec<u8>,
}

impl Transmit for UdpTransmit {
    fn transmit(&mut self, packet: Packet) -> io::Result<()> {
        let Some((route, header)) = self.shared.route(&packet) else { return Ok(()) };
        let Some(port) = self.shared.ports.get(route.socket) else { return Ok(()) };
        self.train.clear();
        let Some(size) = datagram::emit(header, &packet, &mut self.train) else { return Ok(()) };
        if size >= self.train.len() {
            return port.send(route.remote, route.local, &self.train, None);
        }
        let most = port.state.max_gso_segments().min(MOST_SENT_BYTES / size).max(1);
        for part in self.train.chunks(most * size) {
            port.send(route.remote, route.local, part, Some(size))?;
        }
        Ok(())
    }
}

/// Receives datagrams of one socket as packets.
#[derive(Debug)]
pub(super) struct UdpReceive {
    shared: Arc<Shared>,
    port: usize,
    pool: BufferPool,
}

impl UdpReceive {
    pub(super) fn new(shared: Arc<Shared>, port: usize) -> Self {
        Self { shared, port, pool: BufferPool::new(RECEIVE_BUFFER_BYTES, 4 * BATCH_SIZE) }
    }

    /// Takes what is there with one system call.
    fn receive(&self, packets: &mut Vec<Packet>) -> io::Result<()> {
        let port = &self.shared.ports[self.port];
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
            let bytes = buffer.freeze(meta.len);
            self.take(&bytes, &meta, packets);
        }
        Ok(())
    }

    fn take(&self, bytes: &Bytes, meta: &RecvMeta, packets: &mut Vec<Packet>) {
        let mut merger = Merger::default();
        let stride = meta.stride.max(1);
        for at in (0..bytes.len()).step_by(stride) {
            let datagram = bytes.slice(at..bytes.len().min(at + stride));
            match Header::parse(&datagram) {
                Some(Header { kind: Kind::Segment, .. }) => {
                    if let Some(done) = merger.push(&datagram) {
                        packets.extend(self.packet(done, meta));
                    }
                }
                Some(Header { kind: Kind::KeepAlive, to_owner: false, path }) => self.answer(path, meta),
                _ => {}
            }
        }
        packets.extend(merger.finish().and_then(|done| self.packet(done, meta)));
    }

    /// A segment with the addresses that the stack knows; none if nobody is to know of it.
    fn packet(&self, (header, segment): (Header, polypath_wire::Segment), meta: &RecvMeta) -> Option<Packet> {
        let (own, peer) = if header.to_owner {
            // Ours: did we make the identifier, and does this socket serve it?
            let ours = self.shared.ports[self.port].path == Some(header.path);
            ours.then(|| (header.path.addr(), stack_addr(meta.addr.ip())))?
        } else {
            let local = meta.dst_ip;
            let route = Route { socket: self.port, remote: meta.addr, local };
            let is_syn = segment.flags.syn() && !segment.flags.ack();
            let is_known = self.shared.traffic().peers.learn(header.path, route, is_syn);
            is_known.then_some((stack_addr(local?), header.path.addr()))?
        };
        let tuple = FourTuple {
            local: polypath_wire::Endpoint::new(peer, segment.src_port),
            remote: polypath_wire::Endpoint::new(own, segment.dst_port),
        };
        Some(Packet::tcp(tuple, segment))
    }

    /// A keep-alive shows where its path is now.
    fn answer(&self, path: PathId, meta: &RecvMeta) {
        let route = Route { socket: self.port, remote: meta.addr, local: meta.dst_ip };
        if self.shared.traffic().peers.learn(path, route, false) {
            let header = Header { kind: Kind::KeepAliveAnswer, to_owner: true, path };
            // The peer asks again.
            let _ = self.shared.ports[self.port].send(meta.addr, meta.dst_ip, &header.emit(), None);
        }
    }
}

impl Receive for UdpReceive {
    fn poll_receive(&mut self, cx: &mut Context<'_>, packets: &mut Vec<Packet>) -> Poll<io::Result<()>> {
        loop {
            std::task::ready!(self.shared.ports[self.port].socket.poll_recv_ready(cx))?;
            match self.receive(packets) {
                Ok(()) if packets.is_empty() => {}
                Ok(()) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // What the network reports of datagrams sent before concerns TCP's timers, not the socket.
                Err(error) if !is_fatal(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
