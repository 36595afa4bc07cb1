//! A socket of the driver.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::task::{Context, Waker};

use polypath_system::in_context;
use quinn_udp::UdpSocketState;
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::address::OwnPath;
use super::error::UdpError;
use super::refusals::next_refusal;

/// Buffers of the kernel for each socket. A millisecond at 10 Gbit/s must fit; with room for more, all that may be under way stands
/// there, out of the processor's caches, which halves the rate of a local path.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

/// Most of a datagram train that one system call sends.
const MOST_SENT_BYTES: usize = 65_000;

/// An interface's, or everybody's, socket. Its interface may come late, or go and come again as another one of the same name: then
/// it is opened again, since the kernel binds a socket to the interface that had the name.
#[derive(Debug)]
pub(super) struct Port {
    socket: RwLock<Option<Arc<PortSocket>>>,
    /// Counts how often it was opened again.
    generation: AtomicU64,
    /// The task that receives.
    receiver: Mutex<Option<Waker>>,
    /// The path of ours that uses it, if it is one from which connections are opened.
    pub(super) path: Option<OwnPath>,
    pub(super) is_v4: bool,
    /// None where routes lead, and where the interface is not known yet.
    interface: RwLock<Option<String>>,
    /// Whether it may be opened again.
    may_change: bool,
}

impl Port {
    /// A socket bound to a port, and to an interface if one is named.
    pub(super) fn open(
        is_v4: bool,
        port: u16,
        interface: Option<&str>,
        path: Option<OwnPath>,
    ) -> io::Result<Self> {
        let opened = Self::without_socket(is_v4, interface, path);
        opened.bind(port)?;
        Ok(opened)
    }

    /// For an interface that does not exist yet.
    pub(super) fn without_socket(is_v4: bool, interface: Option<&str>, path: Option<OwnPath>) -> Self {
        Self {
            socket: RwLock::new(None),
            generation: AtomicU64::new(0),
            receiver: Mutex::new(None),
            path,
            is_v4,
            interface: RwLock::new(interface.map(str::to_owned)),
            may_change: interface.is_some(),
        }
    }

    /// For an interface that nobody knows yet: [`Port::give`] names it.
    pub(super) fn spare(is_v4: bool, path: OwnPath) -> Self {
        Self { may_change: true, ..Self::without_socket(is_v4, None, Some(path)) }
    }

    /// The interface to which it is bound when it is opened again.
    pub(super) fn give(&self, interface: &str) {
        *self.interface.write().unwrap_or_else(PoisonError::into_inner) = Some(interface.to_owned());
    }

    /// Whether it has an interface of its own.
    pub(super) fn is_bound(&self) -> bool {
        self.interface.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Opens it anew, bound to the interface that has the name now. To be called where the interface is, within a tokio runtime.
    pub(super) fn open_again(&self) -> io::Result<()> {
        self.bind(0)?;
        self.generation.fetch_add(1, Ordering::Release);
        if let Some(receiver) = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take() {
            receiver.wake();
        }
        Ok(())
    }

    /// Gives it a socket with this port; 0 for any.
    fn bind(&self, port: u16) -> io::Result<()> {
        let interface = self.interface.read().unwrap_or_else(PoisonError::into_inner).clone();
        let socket = PortSocket::open(self.is_v4, port, interface.as_deref(), self.path.is_some())?;
        *self.socket.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(socket));
        Ok(())
    }

    /// How often it was opened again. The task is woken when that changes.
    pub(super) fn generation(&self, cx: &Context<'_>) -> u64 {
        if self.may_change {
            let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
            if !receiver.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
                *receiver = Some(cx.waker().clone());
            }
        }
        self.generation.load(Ordering::Acquire)
    }

    /// The socket; none where the interface has not come yet.
    pub(super) fn socket(&self) -> Option<Arc<PortSocket>> {
        self.current().clone()
    }

    fn current(&self) -> RwLockReadGuard<'_, Option<Arc<PortSocket>>> {
        self.socket.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the kernel has had no route for a datagram, and has taken none since.
    pub(super) fn has_no_route(&self) -> bool {
        self.current().as_ref().is_some_and(|socket| socket.has_no_route.load(Ordering::Relaxed))
    }

    /// As [`PortSocket::send`]. Without a socket the datagrams are lost.
    pub(super) fn send(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
        contents: &[u8],
        size: Option<usize>,
    ) -> io::Result<()> {
        self.current().as_ref().map_or(Ok(()), |socket| socket.send(remote, local, contents, size))
    }

    /// As [`PortSocket::send_train`]. Without a socket the datagrams are lost.
    pub(super) fn send_train(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
        train: &[u8],
        size: usize,
    ) -> io::Result<()> {
        self.current().as_ref().map_or(Ok(()), |socket| socket.send_train(remote, local, train, size))
    }
}

/// What a port sends and receives by.
#[derive(Debug)]
pub(super) struct PortSocket {
    pub(super) socket: UdpSocket,
    pub(super) state: UdpSocketState,
    /// Bound to an interface that is not the loopback.
    is_off_loopback: bool,
    /// The kernel has had no route for a datagram, and has taken none since.
    has_no_route: AtomicBool,
}

impl PortSocket {
    fn open(is_v4: bool, port: u16, interface: Option<&str>, hears_refusals: bool) -> io::Result<Self> {
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
                let kind = match error.raw_os_error() {
                    Some(libc::ENODEV) => io::ErrorKind::NotFound,
                    _ => error.kind(),
                };
                io::Error::new(kind, format!("can't use the interface {interface}: {error}"))
            })?;
        }
        let any: SocketAddr =
            if is_v4 { (Ipv4Addr::UNSPECIFIED, port).into() } else { (Ipv6Addr::UNSPECIFIED, port).into() };
        socket.bind(&any.into()).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => UdpError::PortInUse { port, source }.into(),
            _ => in_context(format!("can't use UDP port {port}"), source),
        })?;
        let socket = UdpSocket::from_std(socket.into())?;
        let state = UdpSocketState::new((&socket).into())?;
        if hears_refusals {
            // A peer that is not there shows at once.
            state.enable_transport_errors((&socket).into())?;
        }
        let is_off_loopback = interface.is_some_and(|name| name != "lo");
        Ok(Self { socket, state, is_off_loopback, has_no_route: AtomicBool::new(false) })
    }

    /// Sends datagrams of `size` bytes each, or one. Never waits: whether there is room, the kernel says, since tokio knows of a
    /// new socket's room only once it has polled it.
    fn send(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
        contents: &[u8],
        size: Option<usize>,
    ) -> io::Result<()> {
        if !self.may_reach(remote.ip()) {
            return Ok(());
        }
        let transmit = quinn_udp::Transmit {
            destination: remote,
            ecn: None,
            contents,
            segment_size: size,
            src_ip: local,
        };
        // What the network reported of an earlier datagram, it says instead of sending this one, once.
        let sent = match self.state.try_send((&self.socket).into(), &transmit) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.state.try_send((&self.socket).into(), &transmit)
            }
            sent => sent,
        };
        match sent {
            // No room, or no way just now: the datagrams are lost as they may be anywhere on their way.
            Err(error) if is_fatal(&error) => Err(error),
            Err(error) if has_no_route(&error) => {
                self.has_no_route.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(_) => Ok(()),
            Ok(()) => {
                // It is read far more often than it is set.
                if self.has_no_route.load(Ordering::Relaxed) {
                    self.has_no_route.store(false, Ordering::Relaxed);
                }
                Ok(())
            }
        }
    }

    /// Sends many datagrams of `size` bytes each, the last one shorter maybe, with as few system calls as possible.
    fn send_train(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
        train: &[u8],
        size: usize,
    ) -> io::Result<()> {
        if size >= train.len() {
            return self.send(remote, local, train, None);
        }
        let most = self.state.max_gso_segments().min(MOST_SENT_BYTES / size).max(1);
        for part in train.chunks(most * size) {
            self.send(remote, local, part, Some(size))?;
        }
        Ok(())
    }

    /// Waits until the network says that a peer's port is closed, and gives what it quotes of a datagram that went there.
    pub(super) async fn refusal(&self) -> io::Result<Vec<u8>> {
        loop {
            self.socket.ready(Interest::ERROR).await?;
            match self.socket.try_io(Interest::ERROR, || next_refusal(self.socket.as_fd())) {
                Ok(Some(quoted)) => return Ok(quoted),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// An interface does not lead to this host itself, and an address of one link means nothing without its link.
    fn may_reach(&self, addr: IpAddr) -> bool {
        let is_of_link = matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local());
        !(is_of_link || self.is_off_loopback && addr.is_loopback())
    }
}

/// The socket itself is of no use. An address with which the kernel can do nothing does not make it so: peers announce them.
pub(super) fn is_fatal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT))
}

fn has_no_route(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EADDRNOTAVAIL))
}
