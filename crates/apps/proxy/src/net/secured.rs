//! A connection by TLS, both ways of which are moved by who has a reference.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use polypath_stack::engine::Stream;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

/// A connection by TLS. Dropping it says no end: the peer knows then that bytes may be missing.
pub struct Secured(Mutex<TlsStream<Raw>>);

impl fmt::Debug for Secured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secured").finish_non_exhaustive()
    }
}

/// What is below TLS, and what was read of that before.
#[derive(Debug)]
pub(super) struct Raw {
    early: Bytes,
    stream: Stream,
}

impl Raw {
    pub(super) fn new(stream: Stream, early: Bytes) -> Self {
        Self { early, stream }
    }

    /// Without TLS.
    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }
}

impl Secured {
    pub(super) fn new(stream: impl Into<TlsStream<Raw>>) -> Self {
        Self(Mutex::new(stream.into()))
    }

    /// The certificate that the peer has shown.
    pub(super) fn peer_certificate(&self) -> Option<CertificateDer<'static>> {
        let stream = self.lock();
        let (_, state) = stream.get_ref();
        state.peer_certificates()?.first().map(|shown| shown.clone().into_owned())
    }

    /// What carries it.
    pub(super) fn with<T>(&self, look: impl FnOnce(&Stream) -> T) -> T {
        look(&self.lock().get_ref().0.stream)
    }

    pub(super) fn into_stream(self) -> Stream {
        let raw = match self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            TlsStream::Client(stream) => stream.into_inner().0,
            TlsStream::Server(stream) => stream.into_inner().0,
        };
        raw.into_stream()
    }

    /// All of them, down to what carries it.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = poll_fn(|cx| self.poll_write(cx, bytes)).await?;
            bytes.advance(count);
        }
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    pub(super) async fn finish_writing(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_shutdown(cx)).await
    }

    pub(super) fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_read(cx, buf).map_err(|error| match error.kind() {
            // TLS has a long word for it.
            io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "it ended without a word of TLS"),
            _ => error,
        })
    }

    pub(super) fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write(cx, buf)
    }

    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_flush(cx)
    }

    pub(super) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_shutdown(cx)
    }

    /// One task moves both ways, and who looks is seldom there at once.
    fn lock(&self) -> MutexGuard<'_, TlsStream<Raw>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Raw {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.early.is_empty() {
            let count = self.early.len().min(buf.remaining());
            buf.put_slice(&self.early.split_to(count));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Raw {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
