//! How a connection begins with TLS.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate::Certificate;

/// The first byte of TLS: the type of a record that holds a handshake.
const HANDSHAKE: u8 = 22;
/// HTTP/2 as TLS names it.
const HTTP2: &[u8] = b"h2";
/// What is said to who speaks HTTP without TLS.
const REFUSAL: &str = "this port speaks HTTPS; expected https:// in the URL\n";
/// How long the one who is refused may go on.
const MOST_REFUSED: Duration = Duration::from_secs(2);
/// The same in bytes.
const MOST_REFUSED_BYTES: u64 = 64 << 10;

/// What connections with TLS have in common. The certificate can be renewed while it is in use.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ServerConfig>,
    shown: Arc<Shown>,
}

/// The certificate that clients are shown.
#[derive(Debug)]
struct Shown(RwLock<Certificate>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).signing())
    }
}

impl Tls {
    /// With TLS 1.2 and 1.3, and no client that shows a certificate.
    pub(crate) fn new(certificate: Certificate) -> Result<Self, rustls::Error> {
        let shown = Arc::new(Shown(RwLock::new(certificate)));
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let versions = builder.with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        let mut config = versions.with_no_client_auth().with_cert_resolver(shown.clone());
        config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), shown })
    }

    /// Who comes from now on is shown this one.
    pub(crate) fn renew(&self, certificate: Certificate) {
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = certificate;
    }

    /// None if it did not come about. Who speaks HTTP without TLS is told.
    pub(super) async fn accept<S>(&self, stream: S) -> Option<TlsStream<FirstByte<S>>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let accepting = TlsAcceptor::from(self.config.clone()).accept(FirstByte::new(stream));
        match accepting.into_fallible().await {
            Ok(stream) => Some(stream),
            Err((_, stream)) => {
                if stream.seen.is_some_and(|byte| byte.is_ascii_uppercase()) {
                    // Whoever does not listen has no answer.
                    let _ = tokio::time::timeout(MOST_REFUSED, refuse(stream.inner)).await;
                }
                None
            }
        }
    }
}

/// Whether both ends agreed on it.
pub(super) fn is_http2<S>(stream: &TlsStream<S>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP2)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("shown", &self.shown).finish_non_exhaustive()
    }
}

async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{REFUSAL}",
        REFUSAL.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // What is closed with something unread is reset, and the answer is lost.
    tokio::io::copy(&mut stream.take(MOST_REFUSED_BYTES), &mut tokio::io::sink()).await.map(drop)
}

/// A stream of which nothing is read behind a first byte that is none of TLS.
#[derive(Debug)]
pub(super) struct FirstByte<S> {
    inner: S,
    seen: Option<u8>,
}

impl<S> FirstByte<S> {
    fn new(inner: S) -> Self {
        Self { inner, seen: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstByte<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        if self.seen.is_none() {
            self.seen = buf.filled().get(before).copied();
        }
        match self.seen {
            Some(byte) if byte != HANDSHAKE => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstByte<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
