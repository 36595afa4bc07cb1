use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use polypath_mptcp::ConnectionConfig;

/// Choices for one connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Where the first subflow starts. Default: the engine's first path of the remote's family. Over UDP this is the host's own
    /// address on a path's interface, or the path's address as [`Stack::paths`](crate::stack::Stack::paths) has it; the address of
    /// the network is then the one that the system's routes choose there.
    pub local: Option<SocketAddr>,
    /// Scheduler, congestion control, path manager, buffers; the engine's own if there is none, which
    /// [`Stack::connection_config`](crate::stack::Stack::connection_config) gives to start from. Its MTU is at most the
    /// engine's. The kernel's engine takes from it whether Multipath TCP is asked for at all.
    pub config: Option<Arc<ConnectionConfig>>,
    /// Gives up with [`io::ErrorKind::TimedOut`] after this time. Default: when the stack does, after minutes.
    pub timeout: Option<Duration>,
    /// Keep-alives of the kernel begin when [`Stream::keep_alive`](crate::engine::Stream::keep_alive) asks for them: a connection that
    /// ends before costs four calls less.
    pub defers_keepalive: bool,
    /// The kernel sends the first bytes that are written with the SYN, once the server has given a cookie (TCP Fast Open, RFC 7413). Connecting waits
    /// for nothing then: that nobody answers comes with the first read. The server may get those bytes twice (RFC 7413).
    pub fast_open: bool,
}

impl ConnectOptions {
    /// What comes of `connecting`, unless that takes longer than the caller waits.
    pub(crate) async fn in_time<T>(
        &self,
        remote: SocketAddr,
        expected: Option<String>,
        connecting: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let Some(limit) = self.timeout else { return connecting.await };
        tokio::time::timeout(limit, connecting).await.unwrap_or_else(|_| {
            let expected = expected.map(|expected| format!("; expected {expected}")).unwrap_or_default();
            let text = format!("{remote} did not answer within {limit:?}{expected}");
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        })
    }
}
