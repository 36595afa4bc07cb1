//! Datagrams on their way out.

use std::net::SocketAddr;

/// Number of a driver's socket, chosen by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalId(pub u16);

/// Datagrams to send: one, or several of one length behind each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// From which of the driver's sockets.
    pub local: LocalId,
    /// Where to.
    pub remote: SocketAddr,
    /// Length in all.
    pub len_bytes: usize,
    /// Length of each but the last, which may be shorter; `None` if it is one.
    pub segment_bytes: Option<usize>,
    /// The network may cut it: nobody finds out how long datagrams to a stock WireGuard may be, which sends so itself.
    pub may_fragment: bool,
}
