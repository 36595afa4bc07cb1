//! How a silent peer is told from one that is gone.

use std::sync::Arc;
use std::time::Duration;

use polypath_mptcp::ConnectionConfig;
#[cfg(feature = "kernel")]
use socket2::{SockRef, TcpKeepalive};

/// Keep-alives (RFC 9293 §3.8.4), the same for every engine: when a connection has been idle, probes are sent, and if none
/// of them is answered, it fails.
///
/// RFC 1122 wants two hours of idle time where nobody has chosen. Clients and servers of ours have: somebody waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    idle: Option<Duration>,
}

/// Default idle time.
const IDLE: Duration = Duration::from_secs(60);
/// Time between probes.
const INTERVAL: Duration = Duration::from_secs(10);
/// Unanswered probes after which the peer is taken to be gone.
const PROBES: u8 = 6;
/// The kernel takes seconds, at least one and at most these (`MAX_TCP_KEEPIDLE`).
const MOST_IDLE: Duration = Duration::from_secs(32_767);

impl Default for Keepalive {
    /// The first probe after a minute; a peer that is gone is noticed within two.
    fn default() -> Self {
        Self { idle: Some(IDLE) }
    }
}

impl Keepalive {
    /// After another idle time; none sends no probes.
    #[must_use]
    pub fn after(idle: Option<Duration>) -> Self {
        Self { idle: idle.map(|idle| idle.clamp(Duration::from_secs(1), MOST_IDLE)) }
    }

    /// Idle time before the first probe, if there are any.
    #[must_use]
    pub fn idle(self) -> Option<Duration> {
        self.idle
    }

    /// For connections of our own stack.
    pub fn choose(self, connection: &mut ConnectionConfig) {
        let tcp = Arc::make_mut(&mut connection.tcp);
        tcp.keepalive_idle = self.idle.map(Into::into);
        tcp.keepalive_interval = INTERVAL.into();
        tcp.keepalive_probes = PROBES;
    }

    /// For a socket of the kernel. Multipath TCP sockets of older kernels take the switch and not the times; then the
    /// system's times count.
    #[cfg(feature = "kernel")]
    pub(crate) fn set(self, socket: SockRef<'_>) {
        let Some(idle) = self.idle else { return };
        let times = TcpKeepalive::new().with_time(idle).with_interval(INTERVAL).with_retries(PROBES.into());
        if socket.set_tcp_keepalive(&times).is_err() {
            // Data flows without it.
            let _ = socket.set_keepalive(true);
        }
    }
}
