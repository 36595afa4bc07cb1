//! Why a server was not reached.

/// Why a server was not reached. Each protocol has codes of its own for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ConnectFailure {
    /// The rules do not allow it.
    #[error("the rules of this proxy do not allow it")]
    NotAllowed,
    /// The client, or all together, have as much as they may have.
    #[error("this proxy has as many connections as it may have")]
    Overloaded,
    /// No host has the name.
    #[error("no host has this name")]
    NameUnknown,
    /// The name could not be looked up.
    #[error("the name could not be looked up")]
    NameLookupFailed,
    /// The server answers that nobody listens there.
    #[error("the server refuses the connection")]
    Refused,
    /// The server ended the connection before it was there.
    #[error("the server reset the connection")]
    Reset,
    /// No way leads to the network.
    #[error("no way leads to the server's network")]
    NetworkUnreachable,
    /// The host is not there.
    #[error("the server's host is unreachable")]
    HostUnreachable,
    /// Nobody answered in time.
    #[error("the server does not answer")]
    TimedOut,
    /// What the server says makes no sense.
    #[error("the server's answer makes no sense")]
    Garbled,
    /// Something in this host, such as that descriptors have run out.
    #[error("this proxy can't open a connection now")]
    Local,
}

impl From<&std::io::Error> for ConnectFailure {
    fn from(error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => Self::Reset,
            ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => Self::NetworkUnreachable,
            ErrorKind::HostUnreachable => Self::HostUnreachable,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::PermissionDenied => Self::NotAllowed,
            _ => Self::Local,
        }
    }
}
