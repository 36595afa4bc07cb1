use polypath_wire::Endpoint;

use crate::CloseReason;
use crate::listener::ListenerId;

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// A peer has connected. The connection is the application's from here on: it calls
    /// [`super::Host::release`] in the end.
    Accepted {
        /// The listener it came to.
        listener: ListenerId,
        /// The endpoint that its peer asked for.
        local: Endpoint,
    },
    /// A connection opened from here is established.
    Connected,
    /// There is data to [`super::Host::recv`]. Once until it is polled, however much arrives.
    Readable,
    /// There is space in the send buffer again after [`super::Host::send`] took less than all.
    Writable,
    /// The peer sends no more: after the data that is still to be read comes the end.
    PeerFinished,
    /// The connection has ended, or waits in TIME-WAIT. Data that arrived before can still be read.
    Closed(CloseReason),
}

/// Why a connection can't be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// An address is unspecified, the families differ, or the remote port is zero.
    #[error("invalid address")]
    InvalidAddress,
    /// There is a connection, or TIME-WAIT, with those addresses and ports.
    #[error("address in use")]
    AddressInUse,
    /// Every ephemeral port is in use towards that peer.
    #[error("no ephemeral port is free")]
    NoFreePort,
    /// The host has as many connections as it may.
    #[error("too many connections")]
    TooManyConnections,
}

/// Why data can't be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The host does not know the connection, or the application has released it.
    #[error("no such connection")]
    UnknownConnection,
    /// The application has finished sending, or the connection has ended.
    #[error("closed for sending")]
    Closed,
}
