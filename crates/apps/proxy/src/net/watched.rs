//! A connection that somebody else has, and that can be looked at meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polypath_stack::engine::{Stream, StreamInfo};

/// Copies are of the same connection, which is closed when it is taken and dropped.
#[derive(Clone, Debug)]
pub(super) struct Watched(Arc<Mutex<Option<Stream>>>);

impl Watched {
    pub(super) fn new(stream: Stream) -> Self {
        Self(Arc::new(Mutex::new(Some(stream))))
    }

    /// Taken from all copies.
    pub(super) fn take(&self) -> Option<Stream> {
        self.lock().take()
    }

    /// What is known of it, while it is there.
    pub(super) fn info(&self) -> Option<StreamInfo> {
        self.lock().as_ref().map(|stream| stream.info().unwrap_or_default())
    }

    /// Who moves bytes and who looks are seldom there at once.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Stream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
