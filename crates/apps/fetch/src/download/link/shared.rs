//! A connection that somebody reads and writes while others look at its round trip.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::download::way::Wire;

/// One of several hands on a connection. All are in one task, so none waits for another.
#[derive(Clone)]
pub(super) struct Shared {
    wire: Arc<Mutex<Box<dyn Wire>>>,
}

impl Shared {
    pub(super) fn new(wire: Box<dyn Wire>) -> Self {
        Self { wire: Arc::new(Mutex::new(wire)) }
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.lock().round_trip()
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn Wire>> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Shared {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.lock()).poll_read(cx, buf)
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut **self.lock()).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut **self.lock()).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.lock()).poll_shutdown(cx)
    }
}
