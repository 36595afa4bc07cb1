//! Traffic: what runs on the hosts.

mod pattern;
mod stack;
mod traffic;

use std::fmt;

use polypath_tcp::ConnectionId;
use polypath_units::Instant;

pub use pattern::{Mismatch, Pattern};
pub use stack::{Stack, StackInfo, StreamEvent};
pub use traffic::{ExchangePlan, SendPlan, Traffic, TrafficPlan, TrafficReport};

/// A program on a host with one connection.
///
/// It is called for each event of its connection, and at the instants that it asks for.
pub trait Application<S: Stack>: fmt::Debug {
    /// Something happened to the connection.
    fn handle_event(&mut self, now: Instant, stack: &mut S, id: ConnectionId, event: StreamEvent);

    /// When [`Application::handle_timeout`] is to be called, if ever.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The instant of [`Application::poll_timeout`] came.
    fn handle_timeout(&mut self, _now: Instant, _stack: &mut S, _id: ConnectionId) {}
}

/// The applications that hosts run; the usual ones without a virtual call.
#[derive(Debug)]
pub enum App<S: Stack> {
    /// Planned traffic.
    Traffic(Box<Traffic>),
    /// Anything else.
    Custom(Box<dyn Application<S>>),
}

impl<S: Stack> App<S> {
    /// The planned traffic that it is, if it is.
    pub(crate) fn traffic(&self) -> Option<&Traffic> {
        match self {
            Self::Traffic(app) => Some(app),
            Self::Custom(_) => None,
        }
    }

    /// The connection could not even be opened.
    pub(crate) fn refuse(&mut self, now: Instant) {
        if let Self::Traffic(app) = self {
            app.refuse(now);
        }
    }

    #[inline]
    pub(crate) fn handle_event(&mut self, now: Instant, stack: &mut S, id: ConnectionId, event: StreamEvent) {
        match self {
            Self::Traffic(app) => app.handle_event(now, stack, id, event),
            Self::Custom(app) => app.handle_event(now, stack, id, event),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Traffic(app) => Application::<S>::poll_timeout(&**app),
            Self::Custom(app) => app.poll_timeout(),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, stack: &mut S, id: ConnectionId) {
        match self {
            Self::Traffic(app) => app.handle_timeout(now, stack, id),
            Self::Custom(app) => app.handle_timeout(now, stack, id),
        }
    }
}
