//! A connection while hyper has it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use polypath_stack::engine::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::outgoing::Outgoing;

/// Dropping it resets the connection if a message was cut off: its end would look like the end of the message.
#[derive(Debug)]
pub(super) struct HeldStream {
    stream: Option<Stream>,
    /// What was read of it before.
    early: Bytes,
    outgoing: Arc<Outgoing>,
}

impl HeldStream {
    pub(super) fn new(stream: Stream, early: Bytes, outgoing: Arc<Outgoing>) -> Self {
        Self { stream: Some(stream), early, outgoing }
    }

    pub(super) fn into_stream(mut self) -> Option<Stream> {
        self.stream.take()
    }

    fn stream(self: Pin<&mut Self>) -> io::Result<Pin<&mut Stream>> {
        self.get_mut().stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for HeldStream {
    fn drop(&mut self) {
        if self.outgoing.is_in_the_middle()
            && let Some(stream) = self.stream.take()
        {
            stream.abort();
        }
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
        Pin::new(this).stream()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for HeldStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Asked when hyper has handed over all that it had.
        self.outgoing.is_written();
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Where a message was cut off, no end is sent before the reset.
        if self.outgoing.is_in_the_middle() { Poll::Ready(Ok(())) } else { self.stream()?.poll_shutdown(cx) }
    }
}
