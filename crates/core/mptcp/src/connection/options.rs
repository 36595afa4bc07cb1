//! What can be changed while a connection lives.

use alloc::sync::Arc;

use polypath_tcp::ConnectionOption;
use polypath_units::Instant;

use super::Connection;
use crate::scheduler;

impl Connection {
    /// Changes a setting, for every subflow and for those to come.
    pub(crate) fn set_option(&mut self, now: Instant, option: ConnectionOption) {
        let option = match option {
            ConnectionOption::ReceiveBufferBytes(bytes) => {
                // What has been promised stays promised: the window's right edge never moves back (RFC 8684 §3.3.4).
                let promised_bytes = self.stream.receive.window_bytes(&self.stream.config)
                    + self.stream.receive.unread_bytes();
                ConnectionOption::ReceiveBufferBytes(bytes.max(promised_bytes))
            }
            other => other,
        };
        let config = Arc::make_mut(&mut self.stream.config);
        let tcp = Arc::make_mut(&mut config.tcp);
        match option {
            ConnectionOption::NoDelay(no_delay) => tcp.no_delay = no_delay,
            // What a cork holds back waits here, where it grows, and not in a subflow.
            ConnectionOption::Cork(corked) => self.scheduling.cork(corked),
            ConnectionOption::UserTimeout(limit) => {
                tcp.user_timeout = limit;
                self.stream.lifecycle.stop_watching();
            }
            ConnectionOption::SendBufferBytes(bytes) => tcp.send_buffer_bytes = bytes,
            ConnectionOption::ReceiveBufferBytes(bytes) => tcp.receive_buffer_bytes = bytes,
            ConnectionOption::Keepalive { idle, interval, probes } => {
                (tcp.keepalive_idle, tcp.keepalive_interval, tcp.keepalive_probes) = (idle, interval, probes);
            }
            _ => {}
        }
        if !matches!(option, ConnectionOption::Cork(_)) {
            self.subflows.iter_mut().for_each(|subflow| subflow.tcp.set_option(now, option));
        }
        self.scheduling.request();
    }

    /// Another scheduler decides from now on.
    pub(crate) fn set_scheduler(&mut self, policy: &scheduler::Policy) {
        self.scheduling.replace(policy.build());
    }
}
