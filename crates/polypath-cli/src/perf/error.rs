use std::io;
use std::net::SocketAddr;

use super::wire::WireError;

/// What iperf3 says then.
pub(super) const INTERRUPTED: &str = "interrupt - the client has terminated";

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The parameters are out of bounds.
    #[error("{0}")]
    Parameters(String),
    /// The server can't be reached.
    #[error("can't connect to {address}: {source}; expected `polypath perf -s` or `iperf3 -s` there")]
    Connect {
        /// The server's address.
        address: SocketAddr,
        /// What the engine says.
        source: io::Error,
    },
    /// No connection can be taken there.
    #[error("{0}")]
    Listen(io::Error),
    /// The server says no.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// What came is not this protocol.
    #[error("the peer does not speak iperf3's protocol ({0}); expected polypath perf or iperf3 there")]
    Protocol(String),
    /// The control connection or a data connection ended too early.
    #[error("lost the {what}: {source}")]
    Lost {
        /// Which.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// One end's own user ended it; in iperf3's words.
    #[error("{}", INTERRUPTED)]
    Interrupted,
    /// The server's user ended it.
    #[error("the server has terminated")]
    Terminated,
    /// Nothing has moved for the limit.
    #[error("the peer is silent: nothing has moved for {0:?}")]
    Stalled(std::time::Duration),
    /// The choice of congestion control was not accepted.
    #[error("congestion control \"{name}\" can't be used: {source}; expected one that both ends have")]
    Congestion {
        /// Its name.
        name: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// A socket does not take an option.
    #[error("{option} can't be used here: {source}")]
    Option {
        /// As it is written on the command line.
        option: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn lost(what: impl Into<String>, source: io::Error) -> Self {
        let source = match source.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(source.kind(), "the peer ended it"),
            _ => source,
        };
        Self::Lost { what: what.into(), source }
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        Self::Protocol(error.to_string())
    }
}
