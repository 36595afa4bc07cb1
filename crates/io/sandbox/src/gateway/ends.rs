use std::net::SocketAddr;

/// Both ends of a flow, as the program sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub(super) program: SocketAddr,
    pub(super) remote: SocketAddr,
}
