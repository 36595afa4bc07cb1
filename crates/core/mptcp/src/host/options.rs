//! Settings of live connections.

use alloc::sync::Arc;

use polypath_tcp::{ConnectionId, ConnectionOption};
use polypath_units::Instant;

use super::Host;
use crate::path_manager::{Limits, PathEvent};
use crate::scheduler;

impl Host {
    /// Changes a setting of a live connection, as `setsockopt` does. What it says of TCP holds for each subflow, and for those
    /// to come; buffers are the connection's. With [`ConnectionOption::UserTimeout`], a connection that has lost its last subflow
    /// waits as long for another.
    pub fn set_option(&mut self, now: Instant, id: ConnectionId, option: ConnectionOption) {
        self.with(now, id, |connection, _| connection.set_option(now, option));
    }

    /// Changes the limits of path managers, for all connections: what they allow now is opened, and what is there stays.
    pub fn set_limits(&mut self, now: Instant, limits: Limits) {
        self.resources.config.limits = limits;
        self.path_event(now, PathEvent::Wake);
    }

    /// Changes the scheduler of all connections, and of those to come that bring no settings of their own. What was given to a
    /// subflow stays there.
    pub fn set_scheduler(&mut self, now: Instant, policy: &scheduler::Policy) {
        Arc::make_mut(&mut self.resources.config.connection).scheduler = policy.clone();
        self.each_connection(now, |connection, _| connection.set_scheduler(policy));
    }
}
