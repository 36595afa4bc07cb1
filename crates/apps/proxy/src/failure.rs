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
    /// The proxy through which servers are reached led to nothing.
    #[error("the proxy on the way {0}")]
    Upstream(UpstreamFailure),
}

/// Why a proxy on the way led to nothing. What it tells of the server is a [`ConnectFailure`] of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum UpstreamFailure {
    /// There is no connection to it.
    #[error("can't be reached")]
    Unreachable,
    /// It is this proxy, which would ask itself again and again.
    #[error("is this proxy itself")]
    Itself,
    /// No host has its name.
    #[error("has a name that no host has")]
    NameUnknown,
    /// Its name could not be looked up.
    #[error("has a name that could not be looked up")]
    NameLookupFailed,
    /// It ended the connection instead of an answer.
    #[error("ends the connection without an answer")]
    Silent,
    /// What it says is not of the protocol.
    #[error("answers with what makes no sense")]
    Garbled,
    /// It speaks no TLS where it should.
    #[error("does not speak TLS")]
    NoTls,
    /// It does not show a certificate that is taken here.
    #[error("shows a certificate that is not taken here: {0}")]
    Distrusted(Distrust),
    /// It does not know who asks.
    #[error("does not take who this is")]
    Unauthorized,
    /// Its rules do not allow it.
    #[error("does not allow this connection")]
    NotAllowed,
    /// It has as much as it may have, or has trouble, and is left alone for a while.
    #[error("takes no connections now")]
    Full,
    /// It does not do what is asked, or gives no reason.
    #[error("does not do this")]
    Unsupported,
    /// Its protocol has no place for such an address.
    #[error("can't be asked for an address of this kind")]
    Address,
}

/// Why a certificate is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Distrust {
    /// Nobody who is trusted here vouches for it, maybe somebody of the same name.
    #[error("no authority that is trusted here has signed it")]
    UnknownAuthority,
    /// It is not for the name or address by which its owner is called.
    #[error("it is for other names than the one that is asked for here")]
    OtherName,
    /// Its time is over.
    #[error("it has expired")]
    Expired,
    /// Its time has not come.
    #[error("it is not valid yet")]
    NotYetValid,
    /// A client's was shown by a server, or the other way round.
    #[error("it is for another purpose")]
    OtherPurpose,
    /// It can't be read, is an authority's own, or is of a kind that can't be used.
    #[error("it is an authority's own, malformed, or of a kind that can't be used")]
    Unusable,
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
