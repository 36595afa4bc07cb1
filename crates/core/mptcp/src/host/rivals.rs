//! Which endpoints a first handshake is tried over.

use core::net::IpAddr;

use crate::path_manager::LocalEndpoint;

/// Endpoints that the first handshake is tried over, beside the address that it was asked for from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rivals {
    Regular,
    /// Those that are for when no regular one works.
    Backups,
}

impl Rivals {
    /// A connection to `remote` that is to be opened from `asked` may as well be opened from this endpoint.
    pub(crate) fn has(self, endpoint: &LocalEndpoint, asked: IpAddr, remote: IpAddr) -> bool {
        let addr = endpoint.addr;
        let is_kind = endpoint.backup == (self == Self::Backups);
        endpoint.subflow && is_kind && addr != asked && addr.is_ipv4() == remote.is_ipv4()
    }
}
