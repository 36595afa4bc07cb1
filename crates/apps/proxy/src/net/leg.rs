//! One of the two connections that the proxy joins.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use polypath_stack::engine::{Stream, StreamInfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

use super::at_once::send_at_once;
use super::secured::Secured;

/// How often is looked whether a connection is broken that cannot be waited for.
const LOOKING: Duration = Duration::from_millis(250);

/// A client's connection, or a server's: in the clear, or by TLS.
#[derive(Debug)]
pub enum Leg {
    /// As the bytes are.
    Plain(Stream),
    /// By TLS. Boxed, so that others are no larger for it.
    Tls(Box<Secured>),
}

impl From<Stream> for Leg {
    fn from(stream: Stream) -> Self {
        Self::Plain(stream)
    }
}

impl Leg {
    /// What carries it.
    pub(super) fn with<T>(&self, look: impl FnOnce(&Stream) -> T) -> T {
        match self {
            Self::Plain(stream) => look(stream),
            Self::Tls(secured) => secured.with(look),
        }
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.with(Stream::local_addr)
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.with(Stream::peer_addr)
    }

    pub(super) fn info(&self) -> StreamInfo {
        self.with(|stream| stream.info().unwrap_or_default())
    }

    pub(super) fn keep_alive(&self) {
        self.with(Stream::keep_alive);
    }

    pub(super) fn is_all_acknowledged(&self) -> Option<bool> {
        self.with(Stream::is_all_acknowledged)
    }

    pub(super) fn set_reset_when_dropped(&self, is_reset: bool) {
        self.with(|stream| stream.set_reset_when_dropped(is_reset));
    }

    pub(super) fn is_of_kernel(&self) -> bool {
        self.with(|stream| matches!(stream, Stream::Kernel(_)))
    }

    /// Ends this side's stream, and still receives. Of TLS, the peer is told that this is the end (RFC 8446 §6.1).
    pub(super) async fn finish_writing(&self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.finish_writing(),
            Self::Tls(secured) => Box::pin(secured.finish_writing()).await,
        }
    }

    /// Of TLS, tells the peer that this is the end, unless it has been told, or takes nothing now. What is in the clear ends by being dropped.
    pub(super) fn finish_now(self) {
        if let Self::Tls(secured) = self {
            let _ = secured.poll_shutdown(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Resets the connection. Of TLS, nothing is said before: the peer must not take it for the end.
    pub(super) fn abort(self) {
        match self {
            Self::Plain(stream) => stream.abort(),
            Self::Tls(secured) => secured.into_stream().abort(),
        }
    }

    /// Bytes leave when they come: who waits for more to send with them is a client or a server.
    pub(super) fn send_at_once(&self) {
        self.with(send_at_once);
    }

    /// Whether Multipath TCP is in use there.
    pub(super) fn is_multipath(&self) -> bool {
        self.with(|stream| match stream {
            Stream::Kernel(stream) => stream.is_multipath(),
            stream => stream.info().is_ok_and(|info| info.is_multipath),
        })
    }

    /// Whether the connection is broken, which can be asked where somebody else reads and writes.
    pub(super) fn is_broken(&self) -> bool {
        self.with(is_broken)
    }
}

pub(super) fn is_broken(stream: &Stream) -> bool {
    match stream {
        Stream::Kernel(stream) => {
            // An error is told without being asked for.
            let mut asked = [PollFd::new(stream.as_tokio(), PollFlags::empty())];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut asked, Some(&at_once)).is_ok() && asked[0].revents().contains(PollFlags::ERR)
        }
        // A stack of ours tells who reads.
        _ => false,
    }
}

/// Until what is asked is so, where nobody can wait for it. It is not asked at once: most have nothing to wait for by then.
pub(super) async fn until_broken(is_broken: impl Fn() -> bool) -> io::Error {
    loop {
        sleep(LOOKING).await;
        if is_broken() {
            break;
        }
    }
    io::ErrorKind::ConnectionReset.into()
}

impl AsyncRead for Leg {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(secured) => secured.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Leg {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(secured) => secured.poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(secured) => secured.poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(secured) => secured.poll_shutdown(cx),
        }
    }
}
