//! How it ended, for each who was connected through the proxy.

use std::net::SocketAddr;
use std::sync::Arc;

use super::flow::Flow;
use crate::access::Overload;
use crate::failure::ConnectFailure;
use crate::negotiation::Refusal;
use crate::proxy_protocol::ProxyHeaderError;
use crate::target::Target;

/// How a session ended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Ending {
    /// Both sides ended their streams, and each has what the other sent.
    #[error("ended")]
    Finished,
    /// The server was not reached.
    #[error("{0}")]
    NotReached(ConnectFailure),
    /// The certificate of the proxy on the way is for other names than this one, by which it is called here.
    #[error(
        "the proxy on the way shows a certificate that is not taken here: it is for other names than {0}"
    )]
    Misnamed(Arc<str>),
    /// What the client said led to nothing.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The client said too little in the time for it, or left before it asked for anything.
    #[error("the client said nothing that can be answered")]
    Unasked,
    /// The client left before there was a handshake of TLS, or there was none in the time for it.
    #[error("{0}")]
    NoHandshake(&'static str),
    /// The client has not come through the handshake of TLS, for this reason.
    #[error("refused: {0}")]
    NotSecured(Arc<str>),
    /// Who sent it there said nothing of who it is.
    #[error("{0}")]
    NoProxyHeader(ProxyHeaderError),
    /// The client, or all together, have as much as they may have.
    #[error("refused: {0}")]
    Overloaded(Overload),
    /// The client's connection broke.
    #[error("the client's connection broke: {0}")]
    ClientBroke(Arc<str>),
    /// The server's connection broke.
    #[error("the server's connection broke: {0}")]
    ServerBroke(Arc<str>),
    /// Nothing moved for as long as that is allowed.
    #[error("nothing moved for too long")]
    Idle,
    /// The proxy ended before it.
    #[error("the proxy ended")]
    Stopped,
}

/// One that is over.
#[derive(Debug)]
pub struct SessionEnd<'a> {
    /// The name of its protocol.
    pub protocol: &'static str,
    /// The client.
    pub client: SocketAddr,
    /// Who asked, if that was said.
    pub user: Option<&'a str>,
    /// What it asked for, if it did.
    pub target: Option<&'a Target>,
    /// Where that was.
    pub server: Option<SocketAddr>,
    /// Which of the connections are of Multipath TCP: the client's, and the server's, if one was reached.
    pub is_multipath: Option<(bool, bool)>,
    /// What it moved.
    pub flow: &'a Flow,
    /// How it ended.
    pub ending: &'a Ending,
}
