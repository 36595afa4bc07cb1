//! A connection that somebody else has, and that can be looked at meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polypath_stack::engine::StreamInfo;

use super::leg::Leg;

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

    /// Who moves bytes and who looks are seldom there at once.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Leg>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
