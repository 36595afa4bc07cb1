//! The sockets outside.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use polypath_system::in_context;
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

use crate::transmit::{LocalId, Transmit};

/// Buffers of the kernel: some milliseconds at 10 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;
/// What one receive buffer takes: joined datagrams.
const RECEIVE_BYTES: usize = 1 << 16;
/// Own addresses that one socket may be reached at.
const MOST_LOCALS: usize = 4_096;

/// Number of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId(usize);

struct Bound {
    socket: Socket,
    state: UdpSocketState,
    is_of_interface: bool,
    is_v4: bool,
    /// The network may cut what it sends now.
    may_fragment: bool,
}

impl Bound {
    /// Whether the network may cut what is sent from now on.
    fn set_may_fragment(&mut self, may_fragment: bool) {
        use rustix::net::sockopt::{self, set_ip_mtu_discover, set_ipv6_mtu_discover};
        use sockopt::{Ipv4PathMtuDiscovery as V4, Ipv6PathMtuDiscovery as V6};
        if self.may_fragment == may_fragment {
            return;
        }
        self.may_fragment = may_fragment;
        // A system that refuses leaves it as it was, which is no worse.
        let _ = match (self.is_v4, may_fragment) {
            (true, true) => set_ip_mtu_discover(&self.socket, V4::DONT),
            (true, false) => set_ip_mtu_discover(&self.socket, V4::PROBE),
            (false, true) => set_ipv6_mtu_discover(&self.socket, V6::DONT),
            (false, false) => set_ipv6_mtu_discover(&self.socket, V6::PROBE),
        };
    }
}

/// Where the engine sends from: a socket, and the own address if it has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Local {
    socket: usize,
    address: Option<IpAddr>,
}

/// Takes the datagrams of one sender, each to be changed in place.
pub(super) type Take<'a> = dyn FnMut(LocalId, SocketAddr, &mut dyn Iterator<Item = &mut [u8]>) + 'a;

pub(super) struct Sockets {
    sockets: Vec<Option<Bound>>,
    locals: Vec<Local>,
    buffers: Vec<Vec<u8>>,
    /// Datagrams that the kernel did not take.
    unsent: u64,
}

impl Sockets {
    pub(super) fn new() -> Self {
        Self {
            sockets: Vec::new(),
            locals: Vec::new(),
            buffers: vec![vec![0; RECEIVE_BYTES]; BATCH_SIZE],
            unsent: 0,
        }
    }

    pub(super) fn open(&mut self, is_v4: bool, port: u16, interface: Option<&str>) -> io::Result<SocketId> {
        let domain = if is_v4 { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if !is_v4 {
            socket.set_only_v6(true)?;
        }
        // Without CAP_NET_ADMIN the kernel grants less, which only costs speed.
        use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};
        if set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
            let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
        }
        if set_socket_send_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
            let _ = socket.set_send_buffer_size(BUFFER_BYTES);
        }
        if let Some(interface) = interface {
            socket
                .bind_device(Some(interface.as_bytes()))
                .map_err(|error| in_context(format!("can't use the interface {interface}"), error))?;
        }
        let any: IpAddr = if is_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        socket
            .bind(&SocketAddr::new(any, port).into())
            .map_err(|error| in_context(format!("can't use UDP port {port}"), error))?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let is_of_interface = interface.is_some();
        let bound = Bound { socket, state, is_of_interface, is_v4, may_fragment: false };
        let at = self.sockets.iter().position(Option::is_none).unwrap_or(self.sockets.len());
        if at == self.sockets.len() {
            self.sockets.push(None);
        }
        self.sockets[at] = Some(bound);
        Ok(SocketId(at))
    }

    pub(super) fn close(&mut self, socket: SocketId) {
        self.sockets[socket.0] = None;
    }

    pub(super) fn port(&self, socket: SocketId) -> io::Result<u16> {
        let bound = self.sockets[socket.0].as_ref().ok_or(io::ErrorKind::NotConnected)?;
        Ok(bound.socket.local_addr()?.as_socket().map_or(0, |addr| addr.port()))
    }

    /// The engine's number for a socket, and one of its addresses.
    pub(super) fn local_id(&mut self, socket: SocketId, address: Option<IpAddr>) -> LocalId {
        Self::number(&mut self.locals, Local { socket: socket.0, address })
    }

    fn number(locals: &mut Vec<Local>, local: Local) -> LocalId {
        let at = locals.iter().position(|known| *known == local).unwrap_or_else(|| {
            if locals.len() == MOST_LOCALS {
                return 0;
            }
            locals.push(local);
            locals.len() - 1
        });
        LocalId(at as u16)
    }

    /// Reads a batch of each socket. False if there was none.
    pub(super) fn receive(&mut self, take: &mut Take<'_>) -> io::Result<bool> {
        let mut had_some = false;
        for at in 0..self.sockets.len() {
            let Some(bound) = &self.sockets[at] else { continue };
            let mut metas = [RecvMeta::default(); BATCH_SIZE];
            let mut slices: Vec<IoSliceMut<'_>> =
                self.buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            let count = match bound.state.recv(UdpSockRef::from(&bound.socket), &mut slices, &mut metas) {
                Ok(count) => count,
                // None, or what the network said of an earlier datagram.
                Err(_) => continue,
            };
            drop(slices);
            had_some = true;
            let is_of_interface = bound.is_of_interface;
            for (meta, buffer) in metas.iter().zip(&mut self.buffers).take(count) {
                let address = meta.dst_ip.filter(|_| !is_of_interface);
                let local = Self::number(&mut self.locals, Local { socket: at, address });
                let stride = meta.stride.max(1);
                take(local, meta.addr, &mut buffer[..meta.len].chunks_mut(stride));
            }
        }
        Ok(had_some)
    }

    pub(super) fn send(&mut self, transmit: &Transmit, contents: &[u8]) {
        let Some(local) = self.locals.get(usize::from(transmit.local.0)) else { return };
        let Some(bound) = &mut self.sockets[local.socket] else { return };
        if bound.is_v4 != transmit.remote.is_ipv4() {
            return;
        }
        bound.set_may_fragment(transmit.may_fragment);
        let send = |contents: &[u8], segment_size: Option<usize>| {
            let datagrams = quinn_udp::Transmit {
                destination: transmit.remote,
                ecn: None,
                contents,
                segment_size,
                src_ip: local.address,
            };
            // What the kernel does not take is lost, as anywhere on its way.
            bound.state.try_send(UdpSockRef::from(&bound.socket), &datagrams)
        };
        let Some(size) = transmit.segment_bytes else {
            self.unsent += u64::from(send(contents, None).is_err());
            return;
        };
        let most = bound.state.max_gso_segments().max(1) * size;
        for part in contents.chunks(most) {
            if send(part, (part.len() > size).then_some(size)).is_err() {
                self.unsent += part.len().div_ceil(size) as u64;
            }
        }
    }

    /// Datagrams that the kernel did not take.
    pub(super) fn unsent(&self) -> u64 {
        self.unsent
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().flatten().map(|bound| bound.socket.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{Ipv4PathMtuDiscovery, ip_mtu_discover};

    use super::*;

    #[test]
    fn the_network_may_cut_only_what_says_so() {
        let mut sockets = Sockets::new();
        let socket = sockets.open(true, 0, None).unwrap();
        let local = sockets.local_id(socket, None);
        let remote = (Ipv4Addr::LOCALHOST, sockets.port(socket).unwrap()).into();
        for may_fragment in [false, true, false] {
            let transmit = Transmit { local, remote, len_bytes: 3, segment_bytes: None, may_fragment };
            sockets.send(&transmit, b"abc");
            let mode = ip_mtu_discover(&sockets.sockets[socket.0].as_ref().unwrap().socket).unwrap();
            assert_eq!(mode == Ipv4PathMtuDiscovery::DONT, may_fragment);
        }
        assert_eq!(sockets.unsent(), 0);
    }
}
