//! The ways by which peers are reached.

use std::net::{IpAddr, SocketAddr};

use polypath_tcp::source_prefix;
use polypath_units::Duration;

/// By the same route a path is challenged so often at the most.
pub(super) const CHALLENGE_INTERVAL: Duration = Duration::from_millis(20);

/// How a peer's path is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Route {
    /// Our socket.
    pub(super) socket: usize,
    /// The peer, or the last translator before us.
    pub(super) remote: SocketAddr,
    /// The address of ours at which it reaches us.
    pub(super) local: Option<IpAddr>,
}

impl Route {
    /// The network of sources that the peer's address belongs to.
    pub(super) fn source(&self) -> u64 {
        source_prefix(self.remote.ip())
    }
}
