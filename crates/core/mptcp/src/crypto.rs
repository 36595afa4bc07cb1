//! Keys, tokens, initial data sequence numbers and the HMACs of MP_JOIN and ADD_ADDR, for both versions.

use core::net::IpAddr;

use hmac::{Hmac, KeyInit, Mac};
use polypath_wire::{DataSeq, MptcpVersion};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::identifiers::AddressId;

/// A host's key for one connection (RFC 8684 §3.1): 64 random bits, sent in the clear once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(pub u64);

impl Key {
    /// Token and initial data sequence number: the first 32 and the last 64 bits of the key's hash (RFC 8684 §3.2 and
    /// §3.3; SHA-256 in version 1, SHA-1 in version 0).
    #[must_use]
    pub fn derive(self, version: MptcpVersion) -> (u32, DataSeq) {
        let key = self.0.to_be_bytes();
        match version {
            MptcpVersion::V1 => token_and_idsn(&Sha256::digest(key)),
            MptcpVersion::V0 => token_and_idsn(&Sha1::digest(key)),
        }
    }
}

fn token_and_idsn(hash: &[u8]) -> (u32, DataSeq) {
    let token = hash.iter().take(4).fold(0u32, |acc, byte| acc << 8 | u32::from(*byte));
    let idsn =
        hash.iter().skip(hash.len().saturating_sub(8)).fold(0u64, |acc, byte| acc << 8 | u64::from(*byte));
    (token, DataSeq(idsn))
}

/// The leftmost 160 bits of an HMAC: all of HMAC-SHA1, the part of HMAC-SHA256 that MP_JOIN carries.
pub(crate) type Hmac160 = [u8; 20];

/// The MP_JOIN HMAC of the host that owns `own` (RFC 8684 §3.2): keyed with `own ‖ peer`, over `own_nonce ‖ peer_nonce`.
#[must_use]
pub(crate) fn join_hmac(
    version: MptcpVersion,
    own: Key,
    peer: Key,
    own_nonce: u32,
    peer_nonce: u32,
) -> Hmac160 {
    let mut message = [0; 8];
    message[..4].copy_from_slice(&own_nonce.to_be_bytes());
    message[4..].copy_from_slice(&peer_nonce.to_be_bytes());
    keyed(version, own, peer, &[&message])
}

/// Whether `hmac` is the first bytes of what [`join_hmac`] gives: 20 in the third ACK, 8 in the SYN/ACK. Takes the same time
/// whatever they are, so that nobody can try them out one after the other.
#[must_use]
pub(crate) fn verify_join_hmac(
    version: MptcpVersion,
    own: Key,
    peer: Key,
    own_nonce: u32,
    peer_nonce: u32,
    hmac: &[u8],
) -> bool {
    let key = key_bytes(own, peer);
    let nonces = [own_nonce.to_be_bytes(), peer_nonce.to_be_bytes()];
    let parts = nonces.as_flattened();
    match version {
        MptcpVersion::V1 => mac::<Hmac<Sha256>>(&key, &[parts]).verify_truncated_left(hmac).is_ok(),
        MptcpVersion::V0 => mac::<Hmac<Sha1>>(&key, &[parts]).verify_truncated_left(hmac).is_ok(),
    }
}

/// Whether `hmac` is what [`add_addr_hmac`] gives, in a time that does not depend on it.
#[must_use]
pub(crate) fn verify_add_addr_hmac(
    own: Key,
    peer: Key,
    address_id: AddressId,
    addr: IpAddr,
    port: Option<u16>,
    hmac: u64,
) -> bool {
    let port = port.unwrap_or(0).to_be_bytes();
    let key = key_bytes(own, peer);
    let mac = match addr {
        IpAddr::V4(addr) => mac::<Hmac<Sha256>>(&key, &[&[address_id.0], &addr.octets(), &port]),
        IpAddr::V6(addr) => mac::<Hmac<Sha256>>(&key, &[&[address_id.0], &addr.octets(), &port]),
    };
    mac.verify_truncated_right(&hmac.to_be_bytes()).is_ok()
}

fn mac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// The leftmost 64 bits, as the SYN/ACK carries them.
#[must_use]
pub(crate) fn truncated(hmac: &Hmac160) -> u64 {
    hmac.iter().take(8).fold(0, |acc, byte| acc << 8 | u64::from(*byte))
}

/// The ADD_ADDR HMAC of the host that owns `own` (RFC 8684 §3.4.1, version 1 only): the *rightmost* 64 bits of
/// HMAC-SHA256 keyed with `own ‖ peer`, over address id, address and port (zero if the option has none).
#[must_use]
pub(crate) fn add_addr_hmac(
    own: Key,
    peer: Key,
    address_id: AddressId,
    addr: IpAddr,
    port: Option<u16>,
) -> u64 {
    let port = port.unwrap_or(0).to_be_bytes();
    let hash = match addr {
        IpAddr::V4(addr) => hmac_sha256(own, peer, &[&[address_id.0], &addr.octets(), &port]),
        IpAddr::V6(addr) => hmac_sha256(own, peer, &[&[address_id.0], &addr.octets(), &port]),
    };
    hash.iter().skip(24).fold(0, |acc, byte| acc << 8 | u64::from(*byte))
}

fn keyed(version: MptcpVersion, own: Key, peer: Key, parts: &[&[u8]]) -> Hmac160 {
    let mut out = [0; 20];
    match version {
        MptcpVersion::V1 => out.copy_from_slice(&hmac_sha256(own, peer, parts)[..20]),
        MptcpVersion::V0 => {
            let mac = mac::<Hmac<Sha1>>(&key_bytes(own, peer), parts);
            out.copy_from_slice(&mac.finalize().into_bytes());
        }
    }
    out
}

fn hmac_sha256(own: Key, peer: Key, parts: &[&[u8]]) -> [u8; 32] {
    mac::<Hmac<Sha256>>(&key_bytes(own, peer), parts).finalize().into_bytes().into()
}

fn key_bytes(own: Key, peer: Key) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&own.0.to_be_bytes());
    key[8..].copy_from_slice(&peer.0.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    // The hash of eight zero bytes is a published constant of either function.
    #[test]
    fn token_is_the_head_and_idsn_the_tail_of_the_hash() {
        // SHA-256(0^8) = af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc
        assert_eq!(Key(0).derive(MptcpVersion::V1), (0xaf55_70f5, DataSeq(0xe5b2_328d_e0e8_3dfc)));
        // SHA-1(0^8) = 05fe405753166f125559e7c9ac558654f107c7e9
        assert_eq!(Key(0).derive(MptcpVersion::V0), (0x05fe_4057, DataSeq(0xac55_8654_f107_c7e9)));
    }

    #[test]
    fn the_two_ends_compute_each_others_hmac() {
        for version in [MptcpVersion::V0, MptcpVersion::V1] {
            let (a, b) = (Key(0x0102_0304_0506_0708), Key(0x1112_1314_1516_1718));
            assert_eq!(join_hmac(version, a, b, 1, 2), join_hmac(version, a, b, 1, 2));
            assert_ne!(join_hmac(version, a, b, 1, 2), join_hmac(version, b, a, 2, 1));
            assert_ne!(join_hmac(version, a, b, 1, 2), join_hmac(version, a, b, 1, 3));
        }
        assert_eq!(truncated(&[1; 20]), 0x0101_0101_0101_0101);
    }

    #[test]
    fn what_differs_in_any_bit_is_refused() {
        let (own, peer) = (Key(0x0102_0304_0506_0708), Key(0x1112_1314_1516_1718));
        for version in [MptcpVersion::V0, MptcpVersion::V1] {
            let right = join_hmac(version, own, peer, 1, 2);
            let verify = |hmac: &[u8]| verify_join_hmac(version, own, peer, 1, 2, hmac);
            assert!(verify(&right) && verify(&truncated(&right).to_be_bytes()) && !verify(&[]));
            for bit in 0..160 {
                let mut wrong = right;
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert!(!verify(&wrong) && verify(&wrong[..8]) == (bit >= 64), "bit {bit}");
            }
            assert!(!verify_join_hmac(version, own, peer, 2, 1, &right));
            assert!(!verify_join_hmac(version, peer, own, 1, 2, &right));
        }
        for addr in [IpAddr::from([10, 0, 0, 1]), IpAddr::from([7u16; 8])] {
            let right = add_addr_hmac(own, peer, AddressId(3), addr, Some(80));
            let verify = |hmac| verify_add_addr_hmac(own, peer, AddressId(3), addr, Some(80), hmac);
            assert!(verify(right) && (0..64).all(|bit| !verify(right ^ 1 << bit)));
            assert!(!verify_add_addr_hmac(own, peer, AddressId(3), addr, None, right));
        }
    }
}
