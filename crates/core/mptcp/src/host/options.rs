//! Settings of live connections.

use polypath_tcp::{ConnectionId, ConnectionOption};
use polypath_units::Instant;

use super::Host;

impl Host {
    /// Changes a setting of a live connection, as `setsockopt` does. What it says of TCP holds for each subflow, and for those
    /// to come; buffers are the connection's. With [`ConnectionOption::UserTimeout`], a connection that has lost its last subflow
    /// waits as long for another.
    pub fn set_option(&mut self, now: Instant, id: ConnectionId, option: ConnectionOption) {
        self.with(now, id, |connection, _| connection.set_option(now, option));
    }
}
