//! Who owns a path: keys, the identifiers that follow from them, and proofs.
//!
//! A path key follows from a secret of the host, the number of the path and the address that is dialled. Who is dialled
//! learns the key of its own path and nothing of any other: HMAC-SHA256 tells nothing of the secret.

use std::net::{IpAddr, SocketAddr};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::address::{OwnPath, PathId};

/// Set these apart from whatever else may be hashed with the same keys.
const KEY_LABEL: &[u8] = b"polypath udp path key";
const ID_LABEL: &[u8] = b"polypath udp path identifier";
const PROOF_LABEL: &[u8] = b"polypath udp path proof";

/// What a host's path keys follow from. It never leaves the host.
#[derive(Clone, Copy)]
pub(super) struct HostSecret(pub(super) [u8; 32]);

impl std::fmt::Debug for HostSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostSecret")
    }
}

/// The key of a path: the owner makes it, and tells it to the peer of the path alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathKey(pub(super) [u8; 16]);

/// A nonce that a peer sends to an address, which only who is there can give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Challenge(pub(super) [u8; 8]);

/// What only who has a path's key can say to a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proof(pub(super) [u8; 16]);

impl PathKey {
    /// The key of a path to a peer.
    pub(super) fn derive(secret: &HostSecret, path: OwnPath, remote: SocketAddr) -> Self {
        let addr = addr_bytes(remote.ip());
        let mac = keyed(&secret.0, &[KEY_LABEL, &[path.0], &addr, &remote.port().to_be_bytes()]);
        Self(first(&mac.finalize().into_bytes()))
    }

    /// The identifier of the path.
    pub(super) fn id(&self) -> PathId {
        let hash = Sha256::new().chain_update(ID_LABEL).chain_update(self.0).finalize();
        PathId(u64::from_be_bytes(first(&hash)))
    }

    /// The answer to a challenge.
    pub(super) fn prove(&self, challenge: Challenge) -> Proof {
        Proof(first(&keyed(&self.0, &[PROOF_LABEL, &challenge.0]).finalize().into_bytes()))
    }

    /// Whether that is the answer, in constant time.
    pub(super) fn is_proof(&self, challenge: Challenge, proof: Proof) -> bool {
        keyed(&self.0, &[PROOF_LABEL, &challenge.0]).verify_truncated_left(&proof.0).is_ok()
    }
}

fn keyed(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// An address in 16 bytes, those of IPv4 as IPv6 maps them (RFC 4291 §2.5.5.2).
pub(super) fn addr_bytes(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    }
}

/// The first `N` bytes of a hash, which is longer.
fn first<const N: usize>(hash: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.iter_mut().zip(hash).for_each(|(byte, from)| *byte = *from);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: u8, path: u8, remote: [u8; 4]) -> PathKey {
        PathKey::derive(&HostSecret([secret; 32]), OwnPath(path), (remote, 6824).into())
    }

    #[test]
    fn every_peer_and_path_has_an_identifier_of_its_own() {
        let one = key(1, 1, [192, 0, 2, 1]);
        assert_eq!(one, key(1, 1, [192, 0, 2, 1]));
        for other in [key(1, 1, [192, 0, 2, 2]), key(1, 2, [192, 0, 2, 1]), key(2, 1, [192, 0, 2, 1])] {
            assert_ne!((one, one.id()), (other, other.id()));
            assert_ne!(one.id(), other.id());
        }
    }

    #[test]
    fn a_proof_holds_for_its_key_and_challenge_only() {
        let (one, other) = (key(1, 1, [192, 0, 2, 1]), key(1, 1, [192, 0, 2, 2]));
        let proof = one.prove(Challenge([1; 8]));
        assert!(one.is_proof(Challenge([1; 8]), proof));
        assert!(!one.is_proof(Challenge([2; 8]), proof) && !other.is_proof(Challenge([1; 8]), proof));
    }
}
