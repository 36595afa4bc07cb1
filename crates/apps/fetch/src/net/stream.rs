use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use polypath_stack::engine::socket_info;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::Protocol;

/// A connection, with TLS or without. Where TLS ends without a word (close_notify), reading fails with `UnexpectedEof`.
#[derive(Debug)]
pub struct Stream {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self { inner: Inner::Plain(stream) }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { inner: Inner::Tls(Box::new(stream)) }
    }

    fn tcp(&self) -> &TcpStream {
        match &self.inner {
            Inner::Plain(stream) => stream,
            Inner::Tls(stream) => stream.get_ref().0,
        }
    }

    /// The kernel's smoothed round-trip time (to the proxy, if there is one); none before the first measurement.
    pub fn round_trip_time(&self) -> io::Result<Option<Duration>> {
        let info = socket_info(self.tcp())?;
        let srtt = info.subflows.first().map(|subflow| Duration::from_nanos(subflow.tcp.srtt.as_nanos()));
        Ok(srtt.filter(|srtt| !srtt.is_zero()))
    }

    /// Our address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp().local_addr()
    }

    /// The server's address, or the proxy's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp().peer_addr()
    }

    /// The version of HTTP that was agreed on.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        match &self.inner {
            Inner::Plain(_) => Protocol::Http1,
            Inner::Tls(stream) => Protocol::agreed(stream.get_ref().1).unwrap_or_default(),
        }
    }

    /// Whether the connection has TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self.inner, Inner::Tls(_))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Inner::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Inner::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Inner::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.inner {
            Inner::Plain(stream) => stream.is_write_vectored(),
            Inner::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Inner::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Inner::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
