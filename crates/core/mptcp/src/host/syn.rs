//! What a SYN asks for.

use polypath_wire::{MpCapable, MpCapableKeys, MptcpVersion};

use crate::config::ConnectionConfig;
use crate::identifiers::AddressId;

/// What an MP_JOIN in a SYN says.
#[derive(Clone, Copy, Debug)]
pub(super) struct JoinSyn {
    pub(super) token: u32,
    pub(super) nonce: u32,
    pub(super) address_id: AddressId,
    pub(super) backup: bool,
}

/// The version that a client asks for with its SYN, if a server with this configuration can answer in it.
pub(super) fn version_of(capable: &MpCapable, config: &ConnectionConfig) -> Option<MptcpVersion> {
    match (capable.version, capable.keys) {
        _ if !config.mptcp => None,
        (0, MpCapableKeys::Sender(_)) => Some(MptcpVersion::V0),
        (1, MpCapableKeys::None) => Some(MptcpVersion::V1),
        _ => None,
    }
}
