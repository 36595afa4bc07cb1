//! A connection that somebody else has, and that can be looked at meanwhile.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polypath_stack::engine::StreamInfo;

use super::leg::{Leg, until_broken};

/// Copies are of the same connection, which is closed when it is taken and dropped.
#[derive(Clone, Debug)]
pub(super) struct Watched(Arc<Mutex<Option<Leg>>>);

impl Watched {
    pub(super) fn new(leg: Leg) -> Self {
        Self(Arc::new(Mutex::new(Some(leg))))
    }

    /// Taken from all copies.
    pub(super) fn take(&self) -> Option<Leg> {
        self.lock().take()
    }

    /// What is known of it, while it is there.
    pub(super) fn info(&self) -> Option<StreamInfo> {
        self.lock().as_ref().map(Leg::info)
    }

    /// Waits until the connection is broken, as long as it is there.
    pub(super) async fn broken(&self) -> io::Error {
        until_broken(|| self.is_broken()).await
    }

    /// Whether the connection is broken, as long as it is there.
    pub(super) fn is_broken(&self) -> bool {
        self.lock().as_ref().is_some_and(Leg::is_broken)
    }

    /// Who moves bytes and who looks are seldom there at once.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Leg>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
