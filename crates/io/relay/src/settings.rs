//! What a program chose for its socket with `setsockopt`, as far as it concerns the connection behind it.
//!
//! The kernel keeps the options of the program's own socket, tells them again, and does what they say on the way to us:
//! `TCP_NODELAY` and `TCP_CORK` gather there, `SO_LINGER` with no time resets there. The others are for the stack.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use polypath_mptcp::{ConnectionConfig, ConnectionOption};
use socket2::SockRef;

/// Which buffers were chosen by the program, and not by the kernel (`SO_BUF_LOCK`, Linux 5.15).
const SO_BUF_LOCK: libc::c_int = 72;
const SEND_LOCKED: libc::c_int = 1;
const RECEIVE_LOCKED: libc::c_int = 2;

/// What was chosen. What is none was not, and stays as the stack has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    user_timeout: Option<Duration>,
    keepalive: Option<Keepalive>,
    send_buffer_bytes: Option<u64>,
    receive_buffer_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Keepalive {
    idle: Duration,
    interval: Duration,
    probes: u8,
}

impl Settings {
    /// Those of a program's TCP socket.
    pub(super) fn of(program: &SockRef<'_>) -> io::Result<Self> {
        let keepalive = if program.keepalive()? {
            Some(Keepalive {
                idle: program.tcp_keepalive_time()?,
                interval: program.tcp_keepalive_interval()?,
                probes: u8::try_from(program.tcp_keepalive_retries()?).unwrap_or(u8::MAX),
            })
        } else {
            None
        };
        // An older kernel doesn't tell: then its own sizes hold back what they hold back.
        let locked = number(program, SO_BUF_LOCK).unwrap_or(0);
        // The kernel doubles what was asked for, to have room for its own structures (socket(7)).
        let asked = |bytes: usize| bytes as u64 / 2;
        let is = |flag: libc::c_int| locked & flag != 0;
        Ok(Self {
            user_timeout: program.tcp_user_timeout()?,
            keepalive,
            send_buffer_bytes: is(SEND_LOCKED).then(|| program.send_buffer_size().map(asked)).transpose()?,
            receive_buffer_bytes: is(RECEIVE_LOCKED)
                .then(|| program.recv_buffer_size().map(asked))
                .transpose()?,
        })
    }

    /// The options of a live connection by which `self` becomes what was `before`; `defaults` are the stack's own.
    pub(super) fn options_since(self, before: Self, defaults: &ConnectionConfig) -> Vec<ConnectionOption> {
        let tcp = &defaults.tcp;
        let mut options = Vec::new();
        if self.user_timeout != before.user_timeout {
            let limit = self.user_timeout.map(Into::into).or(tcp.user_timeout);
            options.push(ConnectionOption::UserTimeout(limit));
        }
        if self.keepalive != before.keepalive {
            options.push(match self.keepalive {
                Some(Keepalive { idle, interval, probes }) => {
                    ConnectionOption::Keepalive { idle: Some(idle.into()), interval: interval.into(), probes }
                }
                None => ConnectionOption::Keepalive {
                    idle: tcp.keepalive_idle,
                    interval: tcp.keepalive_interval,
                    probes: tcp.keepalive_probes,
                },
            });
        }
        if self.send_buffer_bytes != before.send_buffer_bytes {
            let bytes = self.send_buffer_bytes.unwrap_or(tcp.send_buffer_bytes);
            options.push(ConnectionOption::SendBufferBytes(bytes));
        }
        if self.receive_buffer_bytes != before.receive_buffer_bytes {
            let bytes = self.receive_buffer_bytes.unwrap_or(tcp.receive_buffer_bytes);
            options.push(ConnectionOption::ReceiveBufferBytes(bytes));
        }
        options
    }

    /// The settings of a connection that is yet to be opened: its receive buffer counts from the first SYN on.
    pub(super) fn choose(self, config: Arc<ConnectionConfig>) -> Arc<ConnectionConfig> {
        let Some(bytes) = self.receive_buffer_bytes else { return config };
        let mut config = (*config).clone();
        Arc::make_mut(&mut config.tcp).receive_buffer_bytes = bytes;
        Arc::new(config)
    }
}

#[allow(unsafe_code)]
fn number(program: &SockRef<'_>, name: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value and its length live through the call, and the length is the value's.
    let result = unsafe {
        libc::getsockopt(
            program.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, TcpKeepalive, Type};

    use super::*;

    #[test]
    fn what_a_program_sets_becomes_options_of_the_connection_and_back_again() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let defaults = polypath_stack::stack::default_connection();
        let untouched = Settings::of(&SockRef::from(&socket)).expect("its options");
        assert_eq!(untouched.options_since(Settings::default(), &defaults), []);
        let seconds = Duration::from_secs;
        socket.set_tcp_user_timeout(Some(seconds(7))).expect("an option");
        socket.set_recv_buffer_size(20_000).expect("an option");
        let times = TcpKeepalive::new().with_time(seconds(5)).with_interval(seconds(1)).with_retries(3);
        socket.set_tcp_keepalive(&times).expect("an option");
        let set = Settings::of(&SockRef::from(&socket)).expect("its options");
        let expected = [
            ConnectionOption::UserTimeout(Some(seconds(7).into())),
            ConnectionOption::Keepalive {
                idle: Some(seconds(5).into()),
                interval: seconds(1).into(),
                probes: 3,
            },
            ConnectionOption::ReceiveBufferBytes(20_000),
        ];
        assert_eq!(set.options_since(untouched, &defaults), expected);
        assert_eq!(set.choose(Arc::new(defaults.clone())).tcp.receive_buffer_bytes, 20_000);
        socket.set_keepalive(false).expect("an option");
        let off = Settings::of(&SockRef::from(&socket)).expect("its options");
        let tcp = &defaults.tcp;
        let own = ConnectionOption::Keepalive {
            idle: tcp.keepalive_idle,
            interval: tcp.keepalive_interval,
            probes: tcp.keepalive_probes,
        };
        assert_eq!(off.options_since(set, &defaults), [own]);
    }
}
