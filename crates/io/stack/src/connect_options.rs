use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use polypath_mptcp::ConnectionConfig;

/// Choices for one connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Where the first subflow starts. Default: the engine's first path of the remote's family.
    pub local: Option<SocketAddr>,
    /// Scheduler, congestion control, path manager, buffers; the engine's own if there is none. The kernel's engine
    /// takes from it whether Multipath TCP is asked for at all.
    pub config: Option<Arc<ConnectionConfig>>,
    /// Gives up with [`std::io::ErrorKind::TimedOut`] after this time. Default: when the stack does, after minutes.
    pub timeout: Option<Duration>,
}
