//! A stream that sends no faster than it may.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::throttle::{ByteRate, Flow, Shared};

/// How fast answers may leave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    /// All together.
    pub all: Option<ByteRate>,
    /// Of each connection.
    pub each: Option<ByteRate>,
}

/// What all connections have in common.
#[derive(Clone, Debug)]
pub(super) struct Throttle {
    rates: Rates,
    shared: Option<Arc<Shared>>,
    begin: Instant,
}

impl Throttle {
    pub(super) fn new(rates: Rates) -> Self {
        let shared = rates.all.map(|rate| Arc::new(Shared::new(rate)));
        Self { rates, shared, begin: Instant::now() }
    }

    /// A stream that is held to it.
    pub(super) fn hold<S: Rests>(&self, inner: S) -> Throttled<S> {
        let is_held = self.rates.all.is_some() || self.rates.each.is_some();
        let held = is_held.then(|| {
            let flow = Flow::new(self.rates.each, self.rates.all);
            Box::new(Held { flow, shared: self.shared.clone(), begin: self.begin, timer: None })
        });
        Throttled { inner, held, held_up: Arc::default() }
    }
}

/// A stream that can be told that nobody waits for it.
pub(super) trait Rests {
    fn rest(&mut self);
}

#[derive(Debug)]
struct Held {
    flow: Flow,
    shared: Option<Arc<Shared>>,
    begin: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            self.flow.end(shared);
        }
    }
}

impl Held {
    /// How much of so many bytes may leave.
    fn poll_ask(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<usize> {
        loop {
            match self.flow.ask(wanted as u64, self.shared.as_deref(), self.begin.elapsed()) {
                Ok(bytes) => return Poll::Ready(usize::try_from(bytes).unwrap_or(wanted)),
                Err(from) => {
                    let from = self.begin + from;
                    let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(from)));
                    timer.as_mut().reset(from);
                    ready!(timer.as_mut().poll(cx));
                }
            }
        }
    }
}

/// A stream that sends no faster than it may. What comes is not held up.
#[derive(Debug)]
pub(super) struct Throttled<S> {
    inner: S,
    /// None if it may send as it likes.
    held: Option<Box<Held>>,
    held_up: Arc<AtomicBool>,
}

impl<S: Rests> Throttled<S> {
    /// Says whenever it has kept somebody waiting.
    pub(super) fn held_up(&self) -> Arc<AtomicBool> {
        self.held_up.clone()
    }

    /// Who waits for us does not wait for the peer.
    fn poll_ask(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let Some(held) = &mut self.held else { return Poll::Ready(wanted) };
        let asked = held.poll_ask(wanted, cx);
        if asked.is_pending() {
            self.held_up.store(true, Ordering::Relaxed);
            self.inner.rest();
        }
        asked
    }

    fn sent(&mut self, sent: &Poll<io::Result<usize>>) {
        if let (Some(held), Poll::Ready(Ok(bytes))) = (&mut self.held, sent) {
            held.flow.sent(*bytes as u64);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Throttled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Rests + Unpin> AsyncWrite for Throttled<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let most = ready!(self.poll_ask(buf.len(), cx));
        let sent = Pin::new(&mut self.inner).poll_write(cx, &buf[..most]);
        self.sent(&sent);
        sent
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = pieces.iter().map(|piece| piece.len()).sum();
        if all > 0 && ready!(self.poll_ask(all, cx)) < all {
            let first = pieces.iter().find(|piece| !piece.is_empty()).map_or(&[][..], |piece| piece);
            return self.poll_write(cx, first);
        }
        let sent = Pin::new(&mut self.inner).poll_write_vectored(cx, pieces);
        self.sent(&sent);
        sent
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    impl Rests for DuplexStream {
        fn rest(&mut self) {}
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_arrive_in_order_and_by_the_rate() {
        let rates = Rates { all: ByteRate::new(100_000), each: None };
        let throttle = Throttle::new(rates);
        let content: Vec<u8> = (0..1_000_000_u32).map(|at| (at >> 3) as u8).collect();
        let mut sending = Vec::new();
        for _ in 0..2 {
            let (near, mut far) = duplex(4096);
            let (mut near, content) = (throttle.hold(near), content.clone());
            sending.push(tokio::spawn(async move {
                let write = async {
                    near.write_all(&content).await.expect("room");
                    near.shutdown().await.expect("an end");
                };
                let mut read = Vec::new();
                tokio::join!(write, async { far.read_to_end(&mut read).await.expect("bytes") });
                assert!(read == content);
            }));
        }
        let began = Instant::now();
        for sending in sending {
            sending.await.expect("no panic");
        }
        // The clock is that of the test.
        let took = began.elapsed();
        assert!((Duration::from_secs(19)..Duration::from_secs(21)).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_rates_nothing_waits() {
        let throttle = Throttle::new(Rates::default());
        let (near, mut far) = duplex(1 << 20);
        let mut near = throttle.hold(near);
        near.write_all(&[7; 1 << 20]).await.expect("room");
        drop(near);
        let mut read = Vec::new();
        assert_eq!(far.read_to_end(&mut read).await.expect("bytes"), 1 << 20);
    }
}
