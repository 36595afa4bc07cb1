//! A connection by TLS, both ways of which are moved by who has a reference.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use polypath_stack::engine::Stream;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

/// Pieces that come to no more are written together.
const TOGETHER_BYTES: usize = 4 << 10;

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

    /// Each message of a handshake is a piece. What is left to say when a handshake fails is written once: if only the first piece went, the peer
    /// would not learn why.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut together = [0; TOGETHER_BYTES];
        let mut length = 0;
        for piece in pieces {
            let Some(room) = together[length..].get_mut(..piece.len()) else { break };
            room.copy_from_slice(piece);
            length += piece.len();
        }
        let long = pieces.iter().find(|piece| !piece.is_empty()).filter(|_| length == 0);
        let bytes = long.map_or(&together[..length], |piece| piece);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use polypath_stack::Engine;
    use polypath_stack::engine::{ConnectOptions, KernelEngine};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn short_pieces_are_written_together_and_long_ones_as_they_are() {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(here).await.expect("a listener");
        let at = listener.local_addr().expect("its address");
        let engine = Engine::from(KernelEngine::plain_tcp());
        let stream = engine.connect(at, &ConnectOptions::default()).await.expect("a connection");
        let (mut peer, _) = listener.accept().await.expect("the same");
        let mut raw = Raw::new(stream, Bytes::new());
        let (fitting, long) = (vec![1; TOGETHER_BYTES - 3], vec![2; TOGETHER_BYTES + 1]);
        let [none, one, two] = [&b""[..], b"one", b"two"];
        for (pieces, expected) in [
            (vec![], 0),
            (vec![none, one, none, two], 6),
            (vec![one, &fitting, two], TOGETHER_BYTES),
            (vec![one, &long], 3),
            (vec![none, &long, two], TOGETHER_BYTES + 1),
        ] {
            let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            assert_eq!(raw.write_vectored(&slices).await.expect("room"), expected);
            let mut heard = vec![0; expected];
            peer.read_exact(&mut heard).await.expect("all of it");
            assert!(pieces.concat().starts_with(&heard), "{expected}");
        }
    }
}
