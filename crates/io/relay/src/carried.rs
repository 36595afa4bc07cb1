use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use polypath_mptcp::ConnectionId;
use polypath_stack::engine::StreamInfo;
use polypath_stack::stack::{StackStream, WeakStack};
use polypath_system::errno_of;
use polypath_wire::FourTuple;
use socket2::SockRef;

use super::settings::Settings;

/// A connection of the stack, and what a program that holds its socket may ask about it.
#[derive(Debug)]
pub struct CarriedConnection {
    stack: WeakStack,
    remote: SocketAddr,
    state: Mutex<State>,
    /// The program has ended its half, and the stack has all of it.
    is_finished: AtomicBool,
    /// What the program chose, as far as the stack knows it.
    settings: Mutex<Settings>,
}

#[derive(Clone, Debug)]
enum State {
    Connecting,
    Open { id: ConnectionId, first: Option<FourTuple> },
    Ended,
    Failed { errno: i32, message: Arc<str> },
}

impl CarriedConnection {
    pub(super) fn connecting(stack: WeakStack, remote: SocketAddr) -> Self {
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        Self {
            stack,
            remote,
            state: Mutex::new(State::Connecting),
            is_finished: AtomicBool::new(false),
            settings: Mutex::default(),
        }
    }

    pub(super) fn opened(&self, stream: &StackStream) {
        self.set(State::Open { id: stream.id(), first: stream.first_subflow() });
    }

    pub(super) fn ended(&self) {
        self.set(State::Ended);
    }

    pub(super) fn failed(&self, error: &io::Error) {
        self.set(State::Failed { errno: errno(error), message: error.to_string().into() });
    }

    pub(super) fn finished(&self) {
        self.is_finished.store(true, Ordering::Release);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Acquire)
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nothing will happen to it any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state(), State::Ended | State::Failed { .. })
    }

    /// Tells the stack what the program chose for its socket, once the connection is open.
    pub(super) fn follow(&self, program: &SockRef<'_>) -> io::Result<()> {
        let State::Open { id, .. } = self.state() else { return Ok(()) };
        let Some(stack) = self.stack.upgrade() else { return Ok(()) };
        let mut known = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = Settings::of(program)?;
        let options = settings.options_since(*known, &stack.connection_config());
        options.into_iter().for_each(|option| stack.set_option(id, option));
        *known = settings;
        Ok(())
    }

    /// Whether it is there: no longer connecting, and not at its end.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state(), State::Open { .. })
    }

    /// The peer.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The addresses of its first subflow, as the stack knows them, while it is open.
    fn first(&self) -> io::Result<FourTuple> {
        match self.state() {
            State::Open { first: Some(first), .. } => Ok(first),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// This end, as peers see it who are in no need of translation: with the uplink's address, where the stack has one of
    /// its own behind it.
    pub fn seen_local(&self) -> io::Result<SocketAddr> {
        let first = self.first()?;
        let seen = self.stack.upgrade().map_or(first, |stack| stack.seen_subflow(first));
        Ok(seen.local.into())
    }

    /// The number of errno that says why it failed, if it did.
    #[must_use]
    pub fn error(&self) -> Option<i32> {
        match self.state() {
            State::Failed { errno, .. } => Some(errno),
            _ => None,
        }
    }

    /// The same in words.
    #[must_use]
    pub fn failure(&self) -> Option<io::Error> {
        match self.state() {
            State::Failed { errno, message } => Some(numbered(errno, &message)),
            _ => None,
        }
    }

    /// The interface of the subflow that [`CarriedConnection::info`] gives with these addresses, as long as the stack knows it.
    #[must_use]
    pub fn path_name(&self, local: SocketAddr, remote: SocketAddr) -> Option<String> {
        let stack = self.stack.upgrade()?;
        let State::Open { id, .. } = self.state() else { return None };
        let wanted = FourTuple { local: local.into(), remote: remote.into() };
        let mut subflows = stack.connection(id)?.subflows.into_iter().map(|subflow| subflow.tuple);
        let own = subflows.find(|tuple| stack.seen_subflow(*tuple) == wanted)?;
        stack.subflow_path_name(own)
    }

    /// State of the connection and its subflows, while it is open, with the addresses that the network knows them by.
    pub fn info(&self) -> io::Result<StreamInfo> {
        let State::Open { id, .. } = self.state() else { return Err(io::ErrorKind::NotConnected.into()) };
        let stack = self.stack.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        let mut info = StreamInfo::from(stack.connection(id).ok_or(io::ErrorKind::NotConnected)?);
        for subflow in &mut info.subflows {
            subflow.tuple = stack.seen_subflow(subflow.tuple);
        }
        Ok(info)
    }
}

/// Why a connection failed. The kinds of [`io::Error`] are fewer than the numbers.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Reason {
    errno: i32,
    message: Arc<str>,
}

/// An error with words of its own.
pub(super) fn numbered(errno: i32, message: &str) -> io::Error {
    let kind = io::Error::from_raw_os_error(errno).kind();
    io::Error::new(kind, Reason { errno, message: message.into() })
}

/// The number of errno for an error of the stack, or of the system.
#[must_use]
pub fn errno(error: &io::Error) -> i32 {
    let reason = || error.get_ref()?.downcast_ref().map(|reason: &Reason| reason.errno);
    let of_cause = || polypath_system::errno_of(error);
    error.raw_os_error().or_else(reason).or_else(of_cause).unwrap_or(match error.kind() {
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
        // Such as that descriptors have run out.
        _ => errno_of(error).unwrap_or(libc::EIO),
    })
}
