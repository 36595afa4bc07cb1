//! What carries an application's connections: our own stack behind a driver, or the kernel's Multipath TCP.
//!
//! Programs are written against [`Engine`], [`Listener`] and [`Stream`], and the engine is a choice at start.

#[cfg(feature = "kernel")]
mod kernel;
#[cfg(feature = "kernel")]
mod kernel_buffers;
#[cfg(feature = "kernel")]
mod kernel_congestion;
#[cfg(feature = "kernel")]
mod kernel_fast_open;
#[cfg(feature = "kernel")]
mod kernel_info;
#[cfg(feature = "kernel")]
mod kernel_option;
#[cfg(feature = "kernel")]
mod meter;
mod stream_info;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

#[cfg(feature = "kernel")]
pub use kernel::{KernelArrival, KernelEngine, KernelListener, KernelStream, SocketOptions, socket_info};
#[cfg(feature = "kernel")]
pub use kernel_congestion::{CongestionRefused, choose_congestion};
#[cfg(feature = "kernel")]
pub use kernel_info::is_multipath;
pub use polypath_mptcp::SubflowInfo;
pub use stream_info::StreamInfo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub use crate::connect_options::ConnectOptions;
pub use crate::keepalive::Keepalive;
use crate::stack::{Stack, StackListener, StackStream};
use crate::tally::Tally;

/// A stack that carries connections. Cheap to clone.
///
/// Our own stack ends with the tokio runtime, and what has not arrived by then is lost: a program calls [`Engine::drain`] before
/// it ends.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Engine {
    /// Our own stack.
    Stack(Stack),
    /// The kernel's Multipath TCP.
    #[cfg(feature = "kernel")]
    Kernel(KernelEngine),
}

impl From<Stack> for Engine {
    fn from(stack: Stack) -> Self {
        Self::Stack(stack)
    }
}

#[cfg(feature = "kernel")]
impl From<KernelEngine> for Engine {
    fn from(engine: KernelEngine) -> Self {
        Self::Kernel(engine)
    }
}

impl Engine {
    /// Opens a connection.
    ///
    /// Errors: [`io::ErrorKind::ConnectionRefused`], [`io::ErrorKind::TimedOut`], and what the driver says.
    pub async fn connect(&self, remote: SocketAddr, options: &ConnectOptions) -> io::Result<Stream> {
        match self {
            Self::Stack(stack) => stack.connect(remote, options).await.map(Stream::Stack),
            #[cfg(feature = "kernel")]
            Self::Kernel(engine) => engine.connect(remote, options).await.map(Stream::Kernel),
        }
    }

    /// In words, that `remote` has not answered so far, and what it must be to answer.
    #[must_use]
    pub fn describe_silence(&self, remote: SocketAddr) -> String {
        let expected = self.expected_of_peers().map(|expected| format!("; expected {expected}"));
        format!("no answer from {remote} yet{}", expected.unwrap_or_default())
    }

    fn expected_of_peers(&self) -> Option<String> {
        match self {
            Self::Stack(stack) => stack.expected_of_peers(),
            #[cfg(feature = "kernel")]
            Self::Kernel(_) => None,
        }
    }

    /// Listens at an address of one of the engine's paths, or at all of them if it is unspecified.
    pub async fn listen(&self, local: SocketAddr) -> io::Result<Listener> {
        match self {
            Self::Stack(stack) => stack.listen(local).map(Listener::Stack),
            #[cfg(feature = "kernel")]
            Self::Kernel(engine) => engine.listen(local).map(Listener::Kernel),
        }
    }

    /// Listens at all addresses: of both families, where there are both.
    pub async fn listen_everywhere(&self, port: u16) -> io::Result<Listener> {
        match self.listen((Ipv6Addr::UNSPECIFIED, port).into()).await {
            // No IPv6 here.
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                self.listen((Ipv4Addr::UNSPECIFIED, port).into()).await
            }
            result => result,
        }
    }

    /// The paths that peers were asked not to use, since they held up the rest or would have. The kernel asks nobody.
    #[must_use]
    pub fn paths_set_aside(&self) -> Vec<String> {
        match self {
            Self::Stack(stack) => stack.paths_set_aside(),
            #[cfg(feature = "kernel")]
            Self::Kernel(_) => Vec::new(),
        }
    }

    /// What the connections have carried since the engine was started, by path.
    #[must_use]
    pub fn tally(&self) -> Tally {
        match self {
            Self::Stack(stack) => stack.tally(),
            #[cfg(feature = "kernel")]
            Self::Kernel(engine) => engine.tally(),
        }
    }

    /// Waits until every connection has ended at both ends, so that all that was written has arrived; at most `limit`. Returns
    /// whether it has. The kernel needs no waiting, and true is its answer. For the end of a program, once its streams are dropped.
    pub async fn drain(&self, limit: Duration) -> bool {
        match self {
            Self::Stack(stack) => stack.drain(limit).await,
            #[cfg(feature = "kernel")]
            Self::Kernel(_) => true,
        }
    }
}

/// Where connections arrive.
#[derive(Debug)]
#[non_exhaustive]
pub enum Listener {
    /// At our own stack.
    Stack(StackListener),
    /// At the kernel's Multipath TCP.
    #[cfg(feature = "kernel")]
    Kernel(KernelListener),
}

impl Listener {
    /// The next connection, and the peer's address.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (arrival, peer) = self.arrival().await?;
        arrival.drive().map(|stream| (stream, peer))
    }

    /// As [`Listener::accept`], for a program with several runtimes: any of them may drive it.
    pub async fn arrival(&self) -> io::Result<(Arrival, SocketAddr)> {
        match self {
            Self::Stack(listener) => {
                listener.accept().await.map(|(stream, peer)| (Arrival::Stack(stream), peer))
            }
            #[cfg(feature = "kernel")]
            Self::Kernel(listener) => {
                listener.arrival().await.map(|(arrival, peer)| (Arrival::Kernel(arrival), peer))
            }
        }
    }

    /// Where it listens, as the network knows it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Stack(listener) => Ok(listener.stack().seen_at(listener.local_addr())),
            #[cfg(feature = "kernel")]
            Self::Kernel(listener) => listener.local_addr(),
        }
    }
}

/// A connection that has arrived. One of the kernel has no runtime yet, and is reset if it never gets one.
#[derive(Debug)]
#[non_exhaustive]
pub enum Arrival {
    /// At our own stack, whose runtime goes on to drive it.
    Stack(StackStream),
    /// At the kernel's Multipath TCP.
    #[cfg(feature = "kernel")]
    Kernel(KernelArrival),
}

impl Arrival {
    /// From now on the runtime drives it that this is called in. Errors: the runtime can watch no more sockets.
    pub fn drive(self) -> io::Result<Stream> {
        match self {
            Self::Stack(stream) => Ok(Stream::Stack(stream)),
            #[cfg(feature = "kernel")]
            Self::Kernel(arrival) => arrival.drive().map(Stream::Kernel),
        }
    }
}

/// A connection: a stream of bytes both ways. Shutting it down (`AsyncWriteExt::shutdown`) ends this side's half.
///
/// Neither a write nor a shutdown waits for the peer. Our own stack delivers the rest as long as the tokio runtime lives:
/// [`Engine::drain`] waits for that before a program ends.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stream {
    /// Carried by our own stack.
    Stack(StackStream),
    /// Carried by the kernel.
    #[cfg(feature = "kernel")]
    Kernel(KernelStream),
}

impl Stream {
    /// This end of the first subflow, as the network knows it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Stack(stream) => stream.local_addr().map(|local| stream.stack().seen_at(local)),
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => stream.local_addr(),
        }
    }

    /// The peer's end of the first subflow.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Stack(stream) => stream.peer_addr(),
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => stream.peer_addr(),
        }
    }

    /// State of the connection and its subflows, with the addresses that the network knows them by.
    pub fn info(&self) -> io::Result<StreamInfo> {
        match self {
            Self::Stack(stream) => stream
                .connection_info()
                .map(|info| StreamInfo::from(info).seen_from(stream.stack()))
                .ok_or_else(|| io::ErrorKind::NotConnected.into()),
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => stream.info(),
        }
    }

    /// Ends this side's stream, and still receives. As `AsyncWriteExt::shutdown`, for who has only a reference.
    pub fn finish_writing(&self) -> io::Result<()> {
        match self {
            Self::Stack(stream) => stream.finish_writing(),
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => stream.finish_writing(),
        }
    }

    /// Begins with keep-alives, if [`ConnectOptions::defers_keepalive`] has put them off.
    pub fn keep_alive(&self) {
        match self {
            // It has them from the beginning: they cost no call.
            Self::Stack(_) => {}
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => stream.keep_alive(),
        }
    }

    /// Whether the peer has acknowledged all that was sent, an end included; none where that is not told, as of a stack of ours.
    pub fn is_all_acknowledged(&self) -> Option<bool> {
        match self {
            Self::Stack(_) => None,
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => stream.is_all_acknowledged(),
        }
    }

    /// Whether the peer sees a reset instead of an end when this is dropped, also with the process: of a program that is killed, the system closes
    /// what it has, which looks as if all had been sent. To be taken back before the end. For a stack of ours it changes nothing.
    #[cfg_attr(
        not(feature = "kernel"),
        expect(unused_variables, reason = "a stack of ours has no use for it")
    )]
    pub fn set_reset_when_dropped(&self, is_reset: bool) {
        match self {
            Self::Stack(_) => {}
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => stream.set_reset_when_dropped(is_reset),
        }
    }

    /// Ends the connection at once; the peer sees a reset.
    pub fn abort(self) {
        match self {
            Self::Stack(stream) => stream.abort(),
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => stream.abort(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Stack(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Stack(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Stack(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Stack(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(feature = "kernel")]
            Self::Kernel(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
