//! A connection while hyper has it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::leg::Leg;
use super::super::pump::Ahead;
use super::super::watched::Watched;
use super::outgoing::Outgoing;

/// What hyper holds of a message that passes, at most: what it reads at once, and what it has yet to write.
const HYPER_BYTES: u32 = 480 << 10;

/// Dropping it resets the connection if a message was cut off: its end would look like the end of the message.
#[derive(Debug)]
pub(super) struct HeldStream {
    stream: Watched,
    /// What was read of it before.
    early: Bytes,
    outgoing: Arc<Outgoing>,
    taker: Taker,
    ahead: Ahead,
}

impl HeldStream {
    /// What is read of it is for this taker.
    pub(super) fn new(stream: Watched, early: Bytes, outgoing: Arc<Outgoing>, taker: Taker) -> Self {
        Self { stream, early, outgoing, taker, ahead: Ahead::with_others(HYPER_BYTES) }
    }

    pub(super) fn into_leg(mut self) -> Option<Leg> {
        self.ahead.end(&self.stream);
        self.stream.take()
    }

    /// So many bytes were read.
    fn was_read(&mut self, count: usize) {
        if let Some(taker) = self.taker.get() {
            self.ahead.moved(count, &self.stream, &taker);
        }
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

/// Who takes what is read: nobody before the first request has reached a server. Copies are of the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Taker(Arc<Mutex<Option<Watched>>>);

impl Taker {
    pub(super) fn set(&self, stream: Watched) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }

    fn get(&self) -> Option<Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl From<Watched> for Taker {
    fn from(stream: Watched) -> Self {
        Self(Arc::new(Mutex::new(Some(stream))))
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
        if buf.filled().len() > before {
            this.was_read(buf.filled().len() - before);
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
