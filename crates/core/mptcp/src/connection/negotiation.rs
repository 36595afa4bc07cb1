//! Keys of both ends, and what the first handshake agreed on (RFC 8684 §3.1).

use polypath_units::Instant;
use polypath_wire::{AddAddr, DataSeq, MpCapable, MpCapableKeys, MptcpOption, MptcpVersion};

use crate::config::ConnectionConfig;
use crate::crypto::{
    Hmac160, Key, add_addr_hmac, join_hmac, truncated, verify_add_addr_hmac, verify_join_hmac,
};
use crate::identifiers::AddressId;

/// Who the ends are, and what both have agreed to use.
#[derive(Debug)]
pub(super) struct Negotiation {
    /// When the first SYN left, as far as its round trip tells.
    opened_at: Instant,
    local_key: Key,
    remote_key: Option<Key>,
    local_token: u32,
    remote_token: u32,
    version: MptcpVersion,
    is_client: bool,
    has_checksum: bool,
    /// The peer set flag C.
    no_join_initial: bool,
    is_confirmed: bool,
}

impl Negotiation {
    pub(super) fn new(is_client: bool, version: MptcpVersion, local_key: Key) -> Self {
        let (local_token, _) = local_key.derive(version);
        Self {
            opened_at: Instant::ZERO,
            local_key,
            remote_key: None,
            local_token,
            remote_token: 0,
            version,
            is_client,
            has_checksum: false,
            no_join_initial: false,
            is_confirmed: false,
        }
    }

    // ---- what the peer says

    /// The flags of its MP_CAPABLE.
    pub(super) fn handle_flags(&mut self, config: &ConnectionConfig, flags: u8) {
        self.has_checksum = config.checksum || flags & MpCapable::CHECKSUM != 0;
        self.no_join_initial |= flags & MpCapable::NO_JOIN_INITIAL_ADDRESS != 0;
    }

    /// Its key. Returns the number of its first byte of data.
    pub(super) fn handle_key(&mut self, key: Key) -> DataSeq {
        let (token, idsn) = key.derive(self.version);
        self.remote_key = Some(key);
        self.remote_token = token;
        idsn.add(1)
    }

    /// Both ends have the keys since `opened_at` and a round trip.
    pub(super) fn handle_open(&mut self, opened_at: Instant) {
        self.opened_at = opened_at;
    }

    /// A DSS arrived, or a join succeeded: the path lets options through (RFC 8684 §3.1, §3.7).
    #[inline]
    pub(super) fn confirm(&mut self) {
        self.is_confirmed = true;
    }

    /// What the peer has said so far counts no more: it begins again.
    pub(super) fn forget_peer(&mut self, config: &ConnectionConfig) {
        self.remote_key = None;
        self.remote_token = 0;
        self.has_checksum = config.checksum;
        self.no_join_initial = false;
    }

    // ---- what holds

    pub(super) const fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// This end opened the connection.
    #[inline]
    pub(super) const fn is_client(&self) -> bool {
        self.is_client
    }

    #[inline]
    pub(super) const fn version(&self) -> MptcpVersion {
        self.version
    }

    /// The version as MP_CAPABLE has it.
    pub(super) const fn version_number(&self) -> u8 {
        match self.version {
            MptcpVersion::V0 => 0,
            MptcpVersion::V1 => 1,
        }
    }

    /// The DSS checksum is in use.
    #[inline]
    pub(super) const fn has_checksum(&self) -> bool {
        self.has_checksum
    }

    /// The peer takes no subflow to its initial address (flag C).
    pub(super) const fn no_join_initial(&self) -> bool {
        self.no_join_initial
    }

    /// See [`Negotiation::confirm`].
    #[inline]
    pub(super) const fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Token by which the peer addresses this end.
    pub(super) const fn local_token(&self) -> u32 {
        self.local_token
    }

    /// Token by which this end addresses the peer.
    pub(super) const fn remote_token(&self) -> u32 {
        self.remote_token
    }

    /// The peer's key is known.
    #[inline]
    pub(super) const fn knows_peer(&self) -> bool {
        self.remote_key.is_some()
    }

    /// The peer's key, as MP_FASTCLOSE carries it.
    pub(super) fn remote_key(&self) -> Option<u64> {
        self.remote_key.map(|key| key.0)
    }

    pub(super) fn is_local_key(&self, key: u64) -> bool {
        key == self.local_key.0
    }

    pub(super) fn is_remote_key(&self, key: u64) -> bool {
        self.remote_key == Some(Key(key))
    }

    /// The number of the first byte that this end sends (RFC 8684 §3.1).
    pub(super) fn first_data_seq(&self) -> DataSeq {
        let (_, idsn) = self.local_key.derive(self.version);
        idsn.add(1)
    }

    /// The number of the first byte that the owner of `key` sends.
    pub(super) fn first_data_seq_of(&self, key: u64) -> DataSeq {
        let (_, idsn) = Key(key).derive(self.version);
        idsn.add(1)
    }

    // ---- options

    /// MP_CAPABLE with these keys.
    pub(super) fn capable(&self, config: &ConnectionConfig, keys: MpCapableKeys) -> MptcpOption {
        let flags = capable_flags(config, self.has_checksum);
        MptcpOption::Capable(MpCapable { version: self.version_number(), flags, keys })
    }

    /// The key that a SYN or SYN/ACK of ours carries.
    pub(super) const fn own_key(&self) -> MpCapableKeys {
        MpCapableKeys::Sender(self.local_key.0)
    }

    /// Ours and the peer's, as the third ACK carries them.
    pub(super) fn both_keys(&self) -> (u64, u64) {
        (self.local_key.0, self.remote_key.map_or(0, |key| key.0))
    }

    /// The HMAC that this end sends in the third ACK of an MP_JOIN with these nonces (RFC 8684 §3.2).
    pub(super) fn join_hmac(&self, local_nonce: u32, remote_nonce: u32) -> Hmac160 {
        let peer = self.remote_key.unwrap_or(Key(0));
        join_hmac(self.version, self.local_key, peer, local_nonce, remote_nonce)
    }

    /// What a SYN/ACK has of it.
    pub(super) fn truncated_join_hmac(&self, local_nonce: u32, remote_nonce: u32) -> u64 {
        truncated(&self.join_hmac(local_nonce, remote_nonce))
    }

    /// The peer made `hmac`, or what is given of it, for an MP_JOIN with these nonces.
    pub(super) fn is_join_hmac(&self, local_nonce: u32, remote_nonce: u32, hmac: &[u8]) -> bool {
        let Some(peer) = self.remote_key else { return false };
        verify_join_hmac(self.version, peer, self.local_key, remote_nonce, local_nonce, hmac)
    }

    /// ADD_ADDR for an address of ours, with the HMAC that version 1 asks for (RFC 8684 §3.4.1); none before the keys are known.
    pub(super) fn add_addr(
        &self,
        id: AddressId,
        addr: core::net::IpAddr,
        port: Option<u16>,
    ) -> Option<AddAddr> {
        let (version, peer) = (self.version, self.remote_key?);
        let is_signed = version == MptcpVersion::V1;
        let hmac = is_signed.then(|| add_addr_hmac(self.local_key, peer, id, addr, port));
        Some(AddAddr { version, echo: false, address_id: id.0, addr, port, hmac })
    }

    /// The HMAC of an ADD_ADDR is the peer's; version 0 has none.
    pub(super) fn is_genuine(&self, add: &AddAddr) -> bool {
        let (local, Some(remote)) = (self.local_key, self.remote_key) else { return false };
        let AddAddr { address_id, addr, port, hmac, .. } = *add;
        let is_signed = |hmac| verify_add_addr_hmac(remote, local, AddressId(address_id), addr, port, hmac);
        self.version == MptcpVersion::V0 || hmac.is_some_and(is_signed)
    }
}

/// Flags of an MP_CAPABLE from an end with this configuration; with `checksum` its peer requires the checksum.
pub(crate) fn capable_flags(config: &ConnectionConfig, checksum: bool) -> u8 {
    let mut flags = MpCapable::HMAC;
    if checksum || config.checksum {
        flags |= MpCapable::CHECKSUM;
    }
    if config.no_join_initial {
        flags |= MpCapable::NO_JOIN_INITIAL_ADDRESS;
    }
    flags
}
