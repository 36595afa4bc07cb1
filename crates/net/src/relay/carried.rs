use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use polypath_mptcp::ConnectionId;

use crate::engine::StreamInfo;
use crate::stack::{StackStream, WeakStack};

/// A connection of the stack, and what a program that holds its socket may ask about it.
#[derive(Debug)]
pub struct Carried {
    stack: WeakStack,
    remote: SocketAddr,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Connecting,
    Open { id: ConnectionId, local: Option<SocketAddr> },
    Ended,
    Failed { errno: i32 },
}

impl Carried {
    pub(super) fn connecting(stack: WeakStack, remote: SocketAddr) -> Self {
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        Self { stack, remote, state: Mutex::new(State::Connecting) }
    }

    pub(super) fn opened(&self, stream: &StackStream) {
        self.set(State::Open { id: stream.id(), local: stream.local_addr().ok() });
    }

    pub(super) fn ended(&self) {
        self.set(State::Ended);
    }

    pub(super) fn failed(&self, error: &io::Error) {
        self.set(State::Failed { errno: errno(error) });
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn state(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing will happen to it any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state(), State::Ended | State::Failed { .. })
    }

    /// The peer.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// This end, as the stack knows it.
    pub fn local(&self) -> io::Result<SocketAddr> {
        match self.state() {
            State::Open { local: Some(local), .. } => {
                Ok(SocketAddr::new(local.ip().to_canonical(), local.port()))
            }
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The number of errno that says why it failed, if it did.
    #[must_use]
    pub fn error(&self) -> Option<i32> {
        match self.state() {
            State::Failed { errno } => Some(errno),
            _ => None,
        }
    }

    /// State of the connection and its subflows, while it is open.
    pub fn info(&self) -> io::Result<StreamInfo> {
        let State::Open { id, .. } = self.state() else { return Err(io::ErrorKind::NotConnected.into()) };
        let info = self.stack.upgrade().and_then(|stack| stack.connection(id));
        info.map(StreamInfo::from).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// The number of errno for an error of the stack, or of the system.
#[must_use]
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        io::ErrorKind::ConnectionReset => libc::ECONNRESET,
        io::ErrorKind::ConnectionAborted => libc::ECONNABORTED,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::NotConnected => libc::ENOTCONN,
        io::ErrorKind::BrokenPipe => libc::EPIPE,
        io::ErrorKind::AddrInUse => libc::EADDRINUSE,
        io::ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        io::ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
        io::ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
        io::ErrorKind::PermissionDenied => libc::EPERM,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::InvalidData => libc::EPROTO,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        io::ErrorKind::NotFound => libc::ENOENT,
        _ => libc::EIO,
    })
}
