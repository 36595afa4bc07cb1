//! Where clients enter a proxy, or how long those within may still be there once it ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::report::ListenerReport;

/// Copies are of the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Stage(Arc<Mutex<Now>>);

#[derive(Clone, Debug)]
enum Now {
    Open(Vec<ListenerReport>),
    /// Nobody enters any more.
    Ending(Instant),
}

impl Default for Now {
    fn default() -> Self {
        Self::Open(Vec::new())
    }
}

impl Stage {
    /// Clients enter there.
    pub(super) fn open(&self, listeners: Vec<ListenerReport>) {
        self.set(Now::Open(listeners));
    }

    /// Nobody enters any more, and those within have so long.
    pub(super) fn end(&self, within: Duration) {
        self.set(Now::Ending(Instant::now() + within));
    }

    /// Where clients enter, and how long those within have, if it ends.
    pub(super) fn now(&self) -> (Vec<ListenerReport>, Option<Duration>) {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Now::Open(listeners) => (listeners, None),
            Now::Ending(at) => (Vec::new(), Some(at.saturating_duration_since(Instant::now()))),
        }
    }

    fn set(&self, now: Now) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}
