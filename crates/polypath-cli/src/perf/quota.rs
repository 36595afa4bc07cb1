//! How much of an amount is left.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;
use tokio::time::Instant;

/// What is left of an amount in one direction, for all its data connections together.
#[derive(Debug)]
pub(super) struct Quota {
    left: AtomicU64,
    /// Not while a beginning is omitted.
    counts: AtomicBool,
    /// Since when nothing is left.
    over: watch::Sender<Option<Instant>>,
}

impl Quota {
    pub(super) fn new(bytes: u64, counts: bool) -> Self {
        Self { left: bytes.into(), counts: counts.into(), over: watch::Sender::new(None) }
    }

    pub(super) fn begin_to_count(&self) {
        self.counts.store(true, Ordering::Relaxed);
    }

    /// Takes at most `most` bytes.
    pub(super) fn take(&self, most: usize) -> usize {
        if !self.counts.load(Ordering::Relaxed) {
            return most;
        }
        let less = |left: u64| Some(left.saturating_sub(most as u64));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.unwrap_or_default().min(most as u64) as usize
    }

    /// Bytes have arrived.
    pub(super) fn arrived(&self, bytes: usize) {
        self.take(bytes);
        if self.left.load(Ordering::Relaxed) == 0 {
            self.end();
        }
    }

    pub(super) fn end(&self) {
        self.over.send_if_modified(|over| over.replace(over.unwrap_or_else(Instant::now)).is_none());
    }

    pub(super) fn over_at(&self) -> Option<Instant> {
        *self.over.borrow()
    }

    pub(super) async fn wait(&self) {
        // The sender is alive as long as this is.
        let _ = self.over.subscribe().wait_for(Option::is_some).await;
    }
}
