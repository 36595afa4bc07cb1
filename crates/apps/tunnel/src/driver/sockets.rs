//! The sockets outside.

use std::collections::{BTreeMap, VecDeque};
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

/// Number of a socket. No other one ever has it.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Local {
    socket: usize,
    address: Option<IpAddr>,
}

/// What the engine calls them.
#[derive(Debug, Default)]
struct Locals {
    /// By the engine's number.
    known: Vec<Local>,
    numbers: BTreeMap<Local, u16>,
    /// Numbers of sockets that were closed. The engine may still hold them: they are for others only once there are no new ones, the
    /// first that was closed first.
    free: VecDeque<u16>,
}

impl Locals {
    fn number(&mut self, local: Local) -> LocalId {
        if let Some(&number) = self.numbers.get(&local) {
            return LocalId(number);
        }
        let number = if self.known.len() < MOST_LOCALS {
            self.known.push(local);
            (self.known.len() - 1) as u16
        } else {
            let Some(number) = self.free.pop_front() else { return LocalId(0) };
            self.known[usize::from(number)] = local;
            number
        };
        self.numbers.insert(local, number);
        LocalId(number)
    }

    fn get(&self, id: LocalId) -> Option<Local> {
        self.known.get(usize::from(id.0)).copied()
    }

    /// A socket is closed.
    fn forget(&mut self, socket: usize) {
        let free = &mut self.free;
        self.numbers.retain(|local, number| {
            let stays = local.socket != socket;
            if !stays {
                free.push_back(*number);
            }
            stays
        });
    }
}

/// Takes the datagrams of one sender, each to be changed in place.
pub(super) type Take<'a> = dyn FnMut(LocalId, SocketAddr, &mut dyn Iterator<Item = &mut [u8]>) + 'a;

pub(super) struct Sockets {
    sockets: BTreeMap<usize, Bound>,
    /// How many were opened.
    opened: usize,
    locals: Locals,
    buffers: Vec<Vec<u8>>,
    /// Datagrams that the kernel did not take.
    unsent: u64,
}

impl Sockets {
    pub(super) fn new() -> Self {
        Self {
            sockets: BTreeMap::new(),
            opened: 0,
            locals: Locals::default(),
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
        let number = self.opened;
        self.opened += 1;
        self.sockets.insert(number, bound);
        Ok(SocketId(number))
    }

    pub(super) fn close(&mut self, socket: SocketId) {
        self.sockets.remove(&socket.0);
        self.locals.forget(socket.0);
    }

    pub(super) fn port(&self, socket: SocketId) -> io::Result<u16> {
        let bound = self.sockets.get(&socket.0).ok_or(io::ErrorKind::NotConnected)?;
        Ok(bound.socket.local_addr()?.as_socket().map_or(0, |addr| addr.port()))
    }

    /// The engine's number for a socket, and one of its addresses.
    pub(super) fn local_id(&mut self, socket: SocketId, address: Option<IpAddr>) -> LocalId {
        self.locals.number(Local { socket: socket.0, address })
    }

    /// Reads a batch of each socket. False if there was none.
    pub(super) fn receive(&mut self, take: &mut Take<'_>) -> io::Result<bool> {
        let mut had_some = false;
        for (&at, bound) in &self.sockets {
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
                let local = self.locals.number(Local { socket: at, address });
                let stride = meta.stride.max(1);
                take(local, meta.addr, &mut buffer[..meta.len].chunks_mut(stride));
            }
        }
        Ok(had_some)
    }

    pub(super) fn send(&mut self, transmit: &Transmit, contents: &[u8]) {
        let Some(local) = self.locals.get(transmit.local) else { return };
        let Some(bound) = self.sockets.get_mut(&local.socket) else { return };
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
        self.sockets.values().map(|bound| bound.socket.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{Ipv4PathMtuDiscovery, ip_mtu_discover};

    use super::*;

    #[test]
    fn what_had_a_closed_sockets_number_does_not_send_from_another() {
        let mut sockets = Sockets::new();
        let first = sockets.open(true, 0, None).unwrap();
        let before = sockets.local_id(first, None);
        sockets.close(first);
        let second = sockets.open(true, 0, None).unwrap();
        assert_ne!(first, second);
        assert_ne!(sockets.local_id(second, None), before);
        assert!(sockets.port(first).is_err() && sockets.port(second).is_ok());
        assert_eq!(sockets.descriptors().count(), 1);
    }

    #[test]
    fn numbers_of_closed_sockets_are_given_again_only_when_there_are_no_others() {
        let mut locals = Locals::default();
        let local = |socket| Local { socket, address: None };
        for socket in 0..MOST_LOCALS {
            assert_eq!(locals.number(local(socket)), LocalId(socket as u16));
            if socket > 0 {
                locals.forget(socket);
            }
        }
        for socket in 0..5 {
            let new = local(MOST_LOCALS + socket);
            assert_eq!(
                locals.number(new),
                LocalId(socket as u16 + 1),
                "the first that was closed is the first"
            );
            assert_eq!(locals.get(LocalId(socket as u16 + 1)), Some(new));
        }
        assert_eq!(locals.number(local(0)), LocalId(0), "one that is open keeps its number");
    }

    #[test]
    fn the_network_may_cut_only_what_says_so() {
        let mut sockets = Sockets::new();
        let socket = sockets.open(true, 0, None).unwrap();
        let local = sockets.local_id(socket, None);
        let remote = (Ipv4Addr::LOCALHOST, sockets.port(socket).unwrap()).into();
        for may_fragment in [false, true, false] {
            let transmit = Transmit { local, remote, len_bytes: 3, segment_bytes: None, may_fragment };
            sockets.send(&transmit, b"abc");
            let mode = ip_mtu_discover(&sockets.sockets[&socket.0].socket).unwrap();
            assert_eq!(mode == Ipv4PathMtuDiscovery::DONT, may_fragment);
        }
        assert_eq!(sockets.unsent(), 0);
    }
}
