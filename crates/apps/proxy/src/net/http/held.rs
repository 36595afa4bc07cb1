//! A connection while hyper has it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use polypath_stack::engine::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::leg::Leg;
use super::super::pump::Ahead;
use super::super::watched::Watched;
use super::outgoing::Outgoing;

/// An answer that is longer has a bound for what is received ahead of its client.
const MANY_BYTES: usize = 16 << 10;

/// Dropping it resets the connection if a message was cut off: its end would look like the end of the message.
#[derive(Debug)]
pub(super) struct HeldStream {
    stream: Watched,
    /// What was read of it before.
    early: Bytes,
    outgoing: Arc<Outgoing>,
    taker: Option<Taker>,
}

impl HeldStream {
    pub(super) fn new(stream: Watched, early: Bytes, outgoing: Arc<Outgoing>) -> Self {
        Self { stream, early, outgoing, taker: None }
    }

    /// What is read of it is for that one.
    pub(super) fn with_taker(mut self, taker: Watched) -> Self {
        self.taker = Some(Taker { stream: taker, read_bytes: 0, ahead: None });
        self
    }

    pub(super) fn into_leg(self) -> Option<Leg> {
        self.stream.take()
    }

    fn poll<T>(&self, work: impl FnOnce(Pin<&mut Leg>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match self.stream.lock().as_mut() {
            Some(stream) => work(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl Drop for HeldStream {
    fn drop(&mut self) {
        // Whoever looks at it keeps it no longer.
        let Some(leg) = self.stream.take() else { return };
        if self.outgoing.is_in_the_middle() {
            leg.abort();
        } else {
            // hyper may end it without a word, as after a CONNECT that led nowhere.
            leg.finish_now();
        }
    }
}

/// Who takes what is read.
#[derive(Debug)]
struct Taker {
    stream: Watched,
    read_bytes: usize,
    /// Once bytes are many.
    ahead: Option<Ahead>,
}

impl Taker {
    /// So many bytes were read there. What hyper holds of them counts as taken: it is less than what a taker has to show.
    fn was_read(&mut self, count: usize, source: &Watched) {
        self.read_bytes = self.read_bytes.saturating_add(count);
        if self.read_bytes < MANY_BYTES {
            return;
        }
        let (source, taker) = (source.lock(), self.stream.lock());
        let [Some(Leg::Plain(Stream::Kernel(from))), Some(Leg::Plain(Stream::Kernel(to)))] =
            [source.as_ref(), taker.as_ref()]
        else {
            return;
        };
        self.ahead.get_or_insert_with(|| Ahead::hold(from, to)).moved(count, from, to);
    }
}

impl AsyncRead for HeldStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.early.is_empty() {
            let count = this.early.len().min(buf.remaining());
            buf.put_slice(&this.early.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = this.poll(|stream| stream.poll_read(cx, buf));
        if let Some(taker) = this.taker.as_mut().filter(|_| buf.filled().len() > before) {
            taker.was_read(buf.filled().len() - before, &this.stream);
        }
        polled
    }
}

impl AsyncWrite for HeldStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(|stream| stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Asked when hyper has handed over all that it had; of TLS, some may be here still.
        ready!(self.poll(|stream| stream.poll_flush(cx)))?;
        self.outgoing.is_written();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Where a message was cut off, no end is sent before the reset.
        if self.outgoing.is_in_the_middle() {
            return Poll::Ready(Ok(()));
        }
        self.poll(|stream| stream.poll_shutdown(cx))
    }
}
