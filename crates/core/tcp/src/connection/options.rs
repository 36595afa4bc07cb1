//! What can be changed while a connection lives, as `setsockopt` does.

use alloc::sync::Arc;
use core::fmt::Debug;

use polypath_units::{Duration, Instant};

use super::Connection;

/// A setting of a live connection. It begins with the one of [`Config`](crate::Config).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionOption {
    /// Nagle's algorithm is off (`TCP_NODELAY`; RFC 9293 §3.7.4).
    NoDelay(bool),
    /// Nothing but full segments leaves (`TCP_CORK`). With nothing in flight, data is held back for one retransmission timeout
    /// at most: 200 ms on most paths, as in Linux.
    Cork(bool),
    /// The connection fails when data stays unacknowledged this long (`TCP_USER_TIMEOUT`; RFC 5482, RFC 9293 §3.8.3).
    UserTimeout(Option<Duration>),
    /// Send buffer in bytes (`SO_SNDBUF`). What it holds beyond that stays.
    SendBufferBytes(u64),
    /// Receive buffer in bytes (`SO_RCVBUF`). What has been promised to the peer stays promised; and the window scale of the
    /// handshake limits what can be promised (RFC 7323 §2.2).
    ReceiveBufferBytes(u64),
    /// Keep-alives (`SO_KEEPALIVE`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`; RFC 9293 §3.8.4).
    Keepalive {
        /// Idle time before the first probe; none sends no probes.
        idle: Option<Duration>,
        /// Time between probes.
        interval: Duration,
        /// Unanswered probes after which the connection fails.
        probes: u8,
    },
}

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// Changes a setting. Then call [`Connection::poll_transmit`], as after any command.
    pub fn set_option(&mut self, now: Instant, option: ConnectionOption) {
        match option {
            ConnectionOption::NoDelay(no_delay) => self.set_no_delay(no_delay),
            ConnectionOption::Cork(corked) => self.set_cork(corked),
            ConnectionOption::UserTimeout(limit) => Arc::make_mut(&mut self.config).user_timeout = limit,
            ConnectionOption::SendBufferBytes(bytes) => {
                Arc::make_mut(&mut self.config).send_buffer_bytes = bytes;
            }
            ConnectionOption::ReceiveBufferBytes(bytes) => {
                Arc::make_mut(&mut self.config).receive_buffer_bytes = bytes.max(1);
            }
            ConnectionOption::Keepalive { idle, interval, probes } => {
                self.set_keepalive(now, idle, interval, probes);
            }
        }
    }

    fn set_keepalive(&mut self, now: Instant, idle: Option<Duration>, interval: Duration, probes: u8) {
        let config = Arc::make_mut(&mut self.config);
        (config.keepalive_idle, config.keepalive_interval, config.keepalive_probes) =
            (idle, interval, probes);
        self.keepalive.restart(now, self.state().is_synchronized(), &self.config);
    }

    /// Nagle's algorithm off or on.
    pub fn set_no_delay(&mut self, no_delay: bool) {
        self.departure.set_no_delay(no_delay);
    }

    /// Holds back everything but full segments.
    pub fn set_cork(&mut self, corked: bool) {
        self.departure.set_cork(corked);
    }

    /// Most data that the application can have queued and unacknowledged.
    #[must_use]
    pub fn send_buffer_bytes(&self) -> u64 {
        self.config.send_buffer_bytes
    }

    /// The application let go of the connection: what it has to deliver waits no longer than [`Config::orphan_timeout`].
    ///
    /// [`Config::orphan_timeout`]: crate::Config::orphan_timeout
    pub fn orphan(&mut self, now: Instant) {
        self.stall.orphan(now, &self.config);
    }
}
