//! `IPPROTO_MPTCP` sockets as an engine (Linux 5.6 and newer).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use polypath_mptcp::SubflowInfo;
use polypath_system::Namespace;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::kernel_buffers::{
    growing_receive_buffer_bytes, hold_receive_buffer, most_receive_buffer_bytes, release_receive_buffer,
    unacknowledged_bytes,
};
use super::kernel_congestion::choose_congestion;
use super::kernel_fast_open::{accept_fast, connect_fast};
use super::kernel_info::{
    is_all_acknowledged, is_all_acknowledged_by_tcp, is_multipath, stream_info, tcp_info,
};
use super::meter::{Meter, SharedTally};
use super::stream_info::StreamInfo;
use crate::connect_options::ConnectOptions;
use crate::keepalive::Keepalive;
use crate::stack::Figures;
use crate::tally::Tally;

/// Connections waiting to be accepted.
const BACKLOG: i32 = 4096;

/// The kernel's Multipath TCP; plain TCP where it is switched off.
#[derive(Clone, Debug, Default)]
pub struct KernelEngine {
    is_plain_tcp: bool,
    is_transparent: bool,
    listens_fast: bool,
    namespace: Option<Namespace>,
    keepalive: Keepalive,
    congestion: Option<String>,
    tally: SharedTally,
    options: SocketOptions,
}

/// Options that only sockets of the kernel have; those of connections are set before they begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Largest segment in bytes (`TCP_MAXSEG`).
    pub mss_bytes: Option<u32>,
    /// Send and receive buffer in bytes (`SO_SNDBUF`, `SO_RCVBUF`); the kernel takes twice as much.
    pub buffer_bytes: Option<usize>,
    /// Type of service (`IP_TOS`, `IPV6_TCLASS`).
    pub tos: Option<u8>,
}

impl SocketOptions {
    /// Sets what is given.
    pub fn set(&self, socket: &SockRef<'_>) -> io::Result<()> {
        let named = |name: &'static str| {
            move |error: io::Error| {
                io::Error::new(error.kind(), format!("the kernel refuses {name}: {error}"))
            }
        };
        if let Some(bytes) = self.mss_bytes {
            socket.set_tcp_mss(bytes).map_err(named("TCP_MAXSEG"))?;
        }
        if let Some(bytes) = self.buffer_bytes {
            socket.set_send_buffer_size(bytes).map_err(named("SO_SNDBUF"))?;
            socket.set_recv_buffer_size(bytes).map_err(named("SO_RCVBUF"))?;
        }
        if let Some(tos) = self.tos {
            let for_v4 = socket.set_tos_v4(tos.into());
            if socket.domain()? == Domain::IPV6 {
                // A socket for both families takes both, and one of Multipath TCP only that of IPv4.
                let for_v6 = socket.set_tclass_v6(tos.into());
                for_v4.or(for_v6).map_err(named("IPV6_TCLASS"))?;
            } else {
                for_v4.map_err(named("IP_TOS"))?;
            }
        }
        Ok(())
    }
}

impl KernelEngine {
    /// Multipath TCP sockets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Plain TCP sockets, to compare with.
    #[must_use]
    pub fn plain_tcp() -> Self {
        Self { is_plain_tcp: true, ..Self::default() }
    }

    /// Whether its sockets are of plain TCP.
    #[must_use]
    pub fn is_plain_tcp(&self) -> bool {
        self.is_plain_tcp
    }

    /// The same with other keep-alives.
    #[must_use]
    pub fn with_keepalive(mut self, keepalive: Keepalive) -> Self {
        self.keepalive = keepalive;
        self
    }

    /// The same with this congestion control from the first packet on, by the kernel's name for it; otherwise it is the namespace's.
    #[must_use]
    pub fn with_congestion(mut self, name: impl Into<String>) -> Self {
        self.congestion = Some(name.into());
        self
    }

    /// The same with these options of sockets that connect or listen.
    #[must_use]
    pub fn with_options(mut self, options: SocketOptions) -> Self {
        self.options = options;
        self
    }

    /// The same with listeners that take connections to others' addresses, where the system's rules hand them over (`IP_TRANSPARENT`):
    /// what is accepted has the address that its client wanted to reach. Needs CAP_NET_ADMIN.
    #[must_use]
    pub fn with_transparent_listeners(mut self) -> Self {
        self.is_transparent = true;
        self
    }

    /// The same with listeners that take bytes with the SYN (TCP Fast Open, RFC 7413), where `net.ipv4.tcp_fastopen` lets them. Those of Multipath TCP
    /// do not: Linux keeps what is written before the end of the handshake, and forgets to send it then (seen in 6.18).
    #[must_use]
    pub fn with_fast_open_listeners(mut self) -> Self {
        self.listens_fast = true;
        self
    }

    /// The same with sockets in another network namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = Some(namespace);
        self
    }

    fn socket(&self, like: SocketAddr, is_plain_tcp: bool) -> io::Result<TcpSocket> {
        let protocol = if is_plain_tcp { Protocol::TCP } else { Protocol::MPTCP };
        let open = || {
            let socket = Socket::new(Domain::for_address(like), Type::STREAM.nonblocking(), Some(protocol));
            let socket = socket.map_err(|error| match error.raw_os_error() {
                Some(libc::EPROTONOSUPPORT | libc::ENOPROTOOPT) => io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this kernel has Multipath TCP switched off; set net.mptcp.enabled=1 with sysctl, or choose another engine",
                ),
                _ => error,
            })?;
            if let Some(name) = &self.congestion {
                choose_congestion(&SockRef::from(&socket), name)?;
            }
            Ok::<_, io::Error>(socket)
        };
        let socket = match &self.namespace {
            Some(namespace) => namespace.run(open)?,
            None => open(),
        }?;
        self.options.set(&SockRef::from(&socket))?;
        Ok(TcpSocket::from_std_stream(socket.into()))
    }

    /// Opens a connection.
    pub async fn connect(&self, remote: SocketAddr, options: &ConnectOptions) -> io::Result<KernelStream> {
        let wants_plain = options.config.as_ref().is_some_and(|config| !config.mptcp);
        let is_plain = self.is_plain_tcp || wants_plain;
        let socket = self.socket(remote, is_plain)?;
        if let Some(local) = options.local {
            socket.bind(local)?;
        }
        if !options.defers_keepalive {
            self.keepalive.set(SockRef::from(&socket));
        }
        if options.fast_open {
            // Without it, it connects as others do.
            let _ = connect_fast(&socket);
        }
        let inner = options.in_time(remote, None, socket.connect(remote)).await?;
        let mut stream = KernelStream::new(inner, remote, is_plain, &self.tally);
        stream.deferred_keepalive = options.defers_keepalive.then_some(self.keepalive);
        Ok(stream)
    }

    /// What the connections have carried so far, by the address of this end.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally.read()
    }

    /// What was counted since the start, over connections that are open and those that have ended. What is sent and received
    /// counts from when the kernel was asked last: within a fifth of a second where data moves.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.tally.figures()
    }

    /// How many connections are open, and their subflows when the kernel was asked last.
    #[must_use]
    pub fn open(&self) -> (usize, Vec<SubflowInfo>) {
        self.tally.open()
    }

    /// Listens. Errors: [`NoRuntime`](crate::stack::NoRuntime) outside of a tokio runtime, and what the kernel says.
    pub fn listen(&self, local: SocketAddr) -> io::Result<KernelListener> {
        crate::stack::current_runtime()?;
        let socket = self.socket(local, self.is_plain_tcp)?;
        socket.set_reuseaddr(true)?;
        let refused = |error: io::Error| {
            let expected = match error.kind() {
                // Where a stack of ours listens, the kernel's list has nothing.
                io::ErrorKind::AddrInUse => {
                    "; expected another port, or the end of who has it (`ss -ltnp` shows programs, `polypath ss -l` engine tun)"
                }
                io::ErrorKind::AddrNotAvailable => "; expected an address of this host (`ip addr`)",
                _ => "",
            };
            io::Error::new(error.kind(), format!("can't listen at {local}: {error}{expected}"))
        };
        if self.is_transparent {
            let option = SockRef::from(&socket);
            let set = match local {
                SocketAddr::V4(_) => option.set_ip_transparent_v4(true),
                SocketAddr::V6(_) => option.set_ip_transparent_v6(true),
            };
            set.map_err(refused)?;
        }
        socket.bind(local).map_err(refused)?;
        self.keepalive.set(SockRef::from(&socket));
        self.listen_fast(&socket, self.is_plain_tcp);
        let listener = socket.listen(BACKLOG as u32).and_then(TcpListener::into_std).map_err(refused)?;
        self.listener(listener, !self.is_plain_tcp)
    }

    /// Where that can't be, clients connect as others do.
    fn listen_fast(&self, listener: &impl AsFd, is_plain_tcp: bool) {
        if self.listens_fast && is_plain_tcp {
            let _ = accept_fast(listener);
        }
    }

    /// Goes on with a socket that listens already, such as one that a service manager opened. Whether Multipath TCP is spoken there is as that
    /// was opened. Errors: as for [`KernelEngine::listen`], and `InvalidInput` for a socket that does not listen.
    pub fn adopt(&self, listener: std::net::TcpListener) -> io::Result<KernelListener> {
        crate::stack::current_runtime()?;
        let socket = SockRef::from(&listener);
        if !socket.is_listener()? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "this socket does not listen"));
        }
        let wants_multipath = socket.protocol()? == Some(Protocol::MPTCP);
        self.keepalive.set(socket);
        self.listen_fast(&listener, !wants_multipath);
        listener.set_nonblocking(true)?;
        self.listener(listener, wants_multipath)
    }

    fn listener(&self, listener: std::net::TcpListener, wants_multipath: bool) -> io::Result<KernelListener> {
        // SAFETY: the listener owns its descriptor, which stays open and the same as long as the `AsyncFd`.
        #[allow(unsafe_code)]
        let inner = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE)? };
        Ok(KernelListener { inner, keepalive: self.keepalive, tally: self.tally.clone(), wants_multipath })
    }
}

/// What the kernel tells of a connection whose socket someone else holds.
pub fn socket_info(socket: &impl AsFd) -> io::Result<StreamInfo> {
    let address = |address: socket2::SockAddr| address.as_socket().ok_or(io::ErrorKind::Unsupported);
    let socket_ref = socket2::SockRef::from(socket);
    let (local, peer) = (address(socket_ref.local_addr()?)?, address(socket_ref.peer_addr()?)?);
    stream_info(socket, local, peer)
}

/// A listening socket of the kernel.
#[derive(Debug)]
pub struct KernelListener {
    inner: AsyncFd<std::net::TcpListener>,
    keepalive: Keepalive,
    tally: SharedTally,
    wants_multipath: bool,
}

impl KernelListener {
    /// The next connection.
    pub async fn accept(&self) -> io::Result<(KernelStream, SocketAddr)> {
        let (arrival, peer) = self.arrival().await?;
        arrival.drive().map(|stream| (stream, peer))
    }

    /// The next connection, which any runtime may drive.
    pub async fn arrival(&self) -> io::Result<(KernelArrival, SocketAddr)> {
        let accept = |listener: &std::net::TcpListener| {
            let (socket, peer) = acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
            let peer = peer.ok_or(io::ErrorKind::Unsupported)?;
            Ok((std::net::TcpStream::from(socket), SocketAddr::try_from(peer)?))
        };
        let (socket, peer) = self.inner.async_io(Interest::READABLE, accept).await?;
        // Those of plain TCP have it from the one that listens.
        if self.wants_multipath {
            self.keepalive.set(SockRef::from(&socket));
        }
        let (socket, is_plain, tally) = (Some(socket), !self.wants_multipath, self.tally.clone());
        Ok((KernelArrival { socket, peer, is_plain, tally }, peer))
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.get_ref().local_addr()
    }
}

/// A connection of the kernel that no runtime drives yet. It is reset if none ever does.
#[derive(Debug)]
pub struct KernelArrival {
    /// Until a runtime drives it.
    socket: Option<std::net::TcpStream>,
    peer: SocketAddr,
    is_plain: bool,
    tally: SharedTally,
}

impl KernelArrival {
    /// From now on the runtime drives it that this is called in. Errors: the runtime can watch no more sockets.
    pub fn drive(mut self) -> io::Result<KernelStream> {
        let socket = self.socket.take().ok_or(io::ErrorKind::NotConnected)?;
        let inner = TcpStream::from_std(socket)?;
        Ok(KernelStream::new(inner, self.peer, self.is_plain, &self.tally))
    }
}

impl Drop for KernelArrival {
    /// An end would look like an answer.
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }
}

/// A connection of the kernel.
#[derive(Debug)]
pub struct KernelStream {
    inner: TcpStream,
    /// By a socket of plain TCP: nothing of Multipath TCP is asked of it.
    is_plain: bool,
    peer: SocketAddr,
    /// Once it is known; it stays.
    local: OnceLock<SocketAddr>,
    meter: Mutex<Meter>,
    deferred_keepalive: Option<Keepalive>,
}

impl KernelStream {
    fn new(inner: TcpStream, peer: SocketAddr, is_plain: bool, tally: &SharedTally) -> Self {
        let meter = Mutex::new(tally.meter(!is_plain));
        Self { inner, is_plain, peer, local: OnceLock::new(), meter, deferred_keepalive: None }
    }

    /// This end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self.local.get() {
            Some(local) => Ok(*local),
            None => self.inner.local_addr().map(|local| *self.local.get_or_init(|| local)),
        }
    }

    /// The peer's end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }

    /// Whether Multipath TCP is in use.
    #[must_use]
    pub fn is_multipath(&self) -> bool {
        !self.is_plain && is_multipath(&self.inner)
    }

    /// The socket itself, for options that only the kernel has.
    #[must_use]
    pub fn as_tokio(&self) -> &TcpStream {
        &self.inner
    }

    /// Chooses the congestion control of all subflows, present and future, by the kernel's name for it.
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        choose_congestion(&SockRef::from(&self.inner), name)
    }

    /// Name of the congestion control.
    pub fn congestion(&self) -> io::Result<String> {
        let name = socket2::SockRef::from(&self.inner).tcp_congestion()?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    /// What the kernel tells of the connection.
    pub fn info(&self) -> io::Result<StreamInfo> {
        let local = self.local_addr().unwrap_or_else(|_| unspecified(self.peer));
        if self.is_plain {
            tcp_info(&self.inner, local, self.peer)
        } else {
            stream_info(&self.inner, local, self.peer)
        }
    }

    /// Begins with keep-alives, if [`ConnectOptions::defers_keepalive`] has put them off.
    pub fn keep_alive(&self) {
        if let Some(keepalive) = self.deferred_keepalive {
            keepalive.set(SockRef::from(&self.inner));
        }
    }

    /// Resets the connection.
    pub fn abort(self) {
        self.set_reset_when_dropped(true);
    }

    /// Whether the peer has acknowledged all that was sent, an end included; none where the kernel does not tell.
    pub fn is_all_acknowledged(&self) -> Option<bool> {
        // Multipath TCP that fell back is TCP to its peer, and the kernel answers for it as such.
        let multipath = if self.is_plain { None } else { is_all_acknowledged(&self.inner) };
        multipath.or_else(|| is_all_acknowledged_by_tcp(&self.inner))
    }

    /// How many bytes the kernel has now for what was received and not yet read, what it needs beside them included; none where that does not grow
    /// by itself, and before Linux 5.14.
    pub fn growing_receive_buffer_bytes(&self) -> Option<usize> {
        growing_receive_buffer_bytes(&self.inner)
    }

    /// As many bytes can be held or released at most, on this system.
    #[must_use]
    pub fn most_receive_buffer_bytes() -> usize {
        most_receive_buffer_bytes()
    }

    /// Holds the kernel to so many bytes for what was received and not yet read, until [`KernelStream::release_receive_buffer`]; returns how many it
    /// gives. To be called where [`KernelStream::growing_receive_buffer_bytes`] gives some, fewer than these. Errors: on a connection of Multipath TCP,
    /// and before Linux 5.14; nothing has changed then.
    pub fn hold_receive_buffer(&self, bytes: usize) -> io::Result<usize> {
        hold_receive_buffer(&self.inner, bytes)
    }

    /// What was held is so large now, and grows as the kernel sees fit. It has to be more than was held, or the kernel sees no reason.
    pub fn release_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        release_receive_buffer(&self.inner, bytes)
    }

    /// Writing waits while as many bytes were written and not yet sent (`TCP_NOTSENT_LOWAT`).
    pub fn set_most_unsent_bytes(&self, bytes: u32) -> io::Result<()> {
        SockRef::from(&self.inner).set_tcp_notsent_lowat(bytes)
    }

    /// Bytes that were written and that the peer has not acknowledged.
    pub fn unacknowledged_bytes(&self) -> io::Result<u64> {
        unacknowledged_bytes(&self.inner)
    }

    /// Whether closing it resets the connection. The system closes it, too, when the process ends.
    pub fn set_reset_when_dropped(&self, is_reset: bool) {
        // A linger time of zero makes close send a reset; if it can't be set, a plain close is all there is.
        let _ = SockRef::from(&self.inner).set_linger(is_reset.then_some(std::time::Duration::ZERO));
    }

    /// Ends this side's stream, and still receives.
    ///
    /// A peer of Multipath TCP may have taken all and closed every subflow before it: that is no error.
    pub fn finish_writing(&self) -> io::Result<()> {
        self.measure_before_end();
        match SockRef::from(&self.inner).shutdown(std::net::Shutdown::Write) {
            Err(error)
                if error.kind() == io::ErrorKind::NotConnected
                    && !self.is_plain
                    && is_all_acknowledged(&self.inner) == Some(true) =>
            {
                Ok(())
            }
            finished => finished,
        }
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what a side that has ended has carried. Subflows go with the end; TCP alone can be asked after it, which is done when the stream is
    /// dropped. For who moves bytes by [`KernelStream::as_tokio`].
    pub fn measure_before_end(&self) {
        if !self.is_plain {
            self.measure();
        }
    }

    fn measure(&self) {
        let info = self.info();
        self.meter().note(info);
    }

    /// Counts what the kernel has carried since it was asked last, if that was long ago. For who moves bytes by
    /// [`KernelStream::as_tokio`]; reading and writing do it by themselves.
    pub fn measure_if_due(&self) {
        if self.meter().is_due() {
            self.measure();
        }
    }
}

impl Drop for KernelStream {
    fn drop(&mut self) {
        self.measure();
    }
}

impl AsyncRead for KernelStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let result = Pin::new(&mut this.inner).poll_read(cx, buf);
        match &result {
            // At the end, before the subflows go.
            Poll::Ready(Ok(())) if buf.filled().len() == before => this.measure_before_end(),
            Poll::Ready(Ok(())) => this.measure_if_due(),
            _ => {}
        }
        result
    }
}

impl AsyncWrite for KernelStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.measure_if_due();
        Pin::new(&mut this.inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.measure_before_end();
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

/// The unspecified address of a family.
fn unspecified(like: SocketAddr) -> SocketAddr {
    let addr: std::net::IpAddr = if like.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    SocketAddr::new(addr, 0)
}

#[cfg(test)]
mod tests {
    use polypath_testbed::{Testbed, is_root_or_skip};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::stack::NoRuntime;

    #[test]
    fn listening_outside_of_a_runtime_is_an_error() {
        let listened = KernelEngine::plain_tcp().listen("127.0.0.1:0".parse().expect("an address"));
        let error = listened.expect_err("no runtime");
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<NoRuntime>());
        assert_eq!(inner, Some(&NoRuntime::Missing));
    }

    #[tokio::test]
    async fn an_address_of_others_is_told() {
        // RFC 5737 keeps it for documents.
        let listened = KernelEngine::plain_tcp().listen("198.51.100.1:0".parse().expect("an address"));
        let said = listened.expect_err("it is not here").to_string();
        assert!(said.ends_with("expected an address of this host (`ip addr`)"), "{said}");
    }

    #[tokio::test]
    async fn a_socket_that_listens_already_is_gone_on_with() {
        let (engine, here) = (KernelEngine::new(), "127.0.0.1:0".parse::<SocketAddr>().expect("an address"));
        let opened = std::net::TcpListener::bind(here).expect("a socket");
        let listener = engine.adopt(opened).expect("a listener");
        let to = listener.local_addr().expect("its address");
        let (options, client) = (ConnectOptions::default(), KernelEngine::plain_tcp());
        let (sent, accepted) = tokio::join!(client.connect(to, &options), listener.accept());
        drop(sent.expect("a connection"));
        assert!(accepted.expect("the same").0.is_plain, "it was opened for TCP");

        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let error = engine.adopt(socket.into()).expect_err("nobody can come");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[tokio::test]
    async fn sockets_keep_alive_at_both_ends() {
        for (engine, idle) in [
            (KernelEngine::plain_tcp(), Some(60)),
            (KernelEngine::plain_tcp().with_keepalive(Keepalive::after(None)), None),
            (
                KernelEngine::plain_tcp().with_keepalive(Keepalive::after(Some(std::time::Duration::ZERO))),
                Some(1),
            ),
        ] {
            let listener = engine.listen("127.0.0.1:0".parse().expect("an address")).expect("a listener");
            let (to, options) = (listener.local_addr().expect("its address"), ConnectOptions::default());
            let (sent, accepted) = tokio::join!(engine.connect(to, &options), listener.accept());
            let deferring = ConnectOptions { defers_keepalive: true, ..ConnectOptions::default() };
            let deferred = engine.connect(to, &deferring).await.expect("another");
            assert!(!SockRef::from(deferred.as_tokio()).keepalive().expect("an option"));
            deferred.keep_alive();
            for stream in [sent.expect("a connection"), accepted.expect("the same").0, deferred] {
                let socket = SockRef::from(stream.as_tokio());
                assert_eq!(socket.keepalive().expect("an option"), idle.is_some());
                if let Some(idle) = idle {
                    assert_eq!(socket.tcp_keepalive_time().expect("an option").as_secs(), idle);
                }
            }
        }
    }

    #[tokio::test]
    async fn two_namespaces_talk_through_the_kernel() {
        if !is_root_or_skip("kernel engine") {
            return;
        }
        let testbed = Testbed::new(1).expect("namespaces");
        let server = KernelEngine::new().in_namespace(testbed.server.clone());
        let listener = server.listen((Testbed::server_v4(0), 0).into()).expect("a listener");
        let to = listener.local_addr().expect("its address");
        let client = KernelEngine::new().in_namespace(testbed.client.clone());
        let options = ConnectOptions::default();
        let (sent, accepted) = tokio::join!(client.connect(to, &options), listener.accept());
        let (mut sent, (mut accepted, peer)) = (sent.unwrap(), accepted.unwrap());
        assert_eq!(peer.ip(), std::net::IpAddr::V4(Testbed::client_v4(0)));
        sent.write_all(b"hello").await.unwrap();
        sent.shutdown().await.unwrap();
        let mut received = Vec::new();
        accepted.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"hello");
    }
}
