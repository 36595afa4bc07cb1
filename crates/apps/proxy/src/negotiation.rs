//! What a client and a proxy say to each other before bytes pass through.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::failure::ConnectFailure;
use crate::http::RequestError;
use crate::target::Target;

/// What is wanted of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A connection to the target.
    Connect,
    /// Datagrams are passed on (RFC 1928 §4). The target is where they will come from, if the client knows it.
    Associate,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is wanted.
    pub command: Command,
    /// Where to.
    pub target: Target,
    /// Who asks, if that had to be said. Known to be true.
    pub user: Option<Box<str>>,
}

/// Why a client's bytes lead to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// They are not of the protocol. Says what was found, and what was expected.
    #[error("{0}")]
    Malformed(&'static str),
    /// They are a request that can't be read, for this reason.
    #[error("no request that can be read: {0}")]
    Unreadable(Arc<str>),
    /// They are a request of HTTP that is not passed on.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// It did not show who it is, or not rightly.
    #[error("no user name and password that are known here")]
    Unauthorized,
    /// It wants something that this proxy does not do.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// More of the client's bytes are needed.
    Wait,
    /// This goes to the client; what comes next is asked at once.
    Send(Bytes),
    /// The client asks for this. Answered by [`Negotiation::handle_connected`] or [`Negotiation::handle_failed`]. What is left of the client's
    /// bytes is for the server.
    Ask(Request),
    /// This goes to the client, then the connection is closed.
    Refuse(Bytes, Refusal),
}

/// What one client says before bytes pass through, in one protocol. What it holds is bounded: it takes no more of the client's bytes than a
/// request can have.
pub trait Negotiation {
    /// Takes what it understands from the front of `input`.
    fn poll_step(&mut self, input: &mut BytesMut) -> Step;

    /// The server agreed on Multipath TCP. Said before [`Negotiation::handle_connected`].
    fn handle_multipath(&mut self) {}

    /// The server is reached, from this address: what the client is told.
    fn handle_connected(&mut self, local: SocketAddr) -> Bytes;

    /// The server is not reached: what the client is told.
    fn handle_failed(&mut self, failure: ConnectFailure) -> Bytes;
}

/// Who knows which users there are.
pub trait Authority: Send + Sync {
    /// Whether there is a user of this name who has this password. How long the answer takes must tell nothing of either.
    fn knows(&self, name: &[u8], password: &[u8]) -> bool;
}

impl<F: Fn(&[u8], &[u8]) -> bool + Send + Sync> Authority for F {
    fn knows(&self, name: &[u8], password: &[u8]) -> bool {
        self(name, password)
    }
}
