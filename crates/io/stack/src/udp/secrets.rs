//! What this end keeps to itself about the paths of peers.

use siphasher::sip::SipHasher24;

use super::address::{PathId, SourceTag};
use super::keys::{Challenge, addr_bytes};
use super::route::Route;

/// Keys of hashes that peers can't foresee.
#[derive(Debug)]
pub(super) struct PeerSecrets {
    challenge: SipHasher24,
    place: SipHasher24,
}

impl PeerSecrets {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        let (challenge, place) = seed.split_at(16);
        let hasher = |key: &[u8]| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(key);
            SipHasher24::new_with_key(&bytes)
        };
        Self { challenge: hasher(challenge), place: hasher(place) }
    }

    /// What a path is challenged with by a route in an epoch.
    pub(super) fn challenge(&self, path: PathId, route: Route, epoch: u64) -> Challenge {
        let mut bytes = [0; 58];
        bytes[..8].copy_from_slice(&path.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&epoch.to_be_bytes());
        bytes[16..24].copy_from_slice(&(route.socket as u64).to_be_bytes());
        bytes[24..40].copy_from_slice(&addr_bytes(route.remote.ip()));
        bytes[40..42].copy_from_slice(&route.remote.port().to_be_bytes());
        bytes[42..].copy_from_slice(&route.local.map(addr_bytes).unwrap_or_default());
        Challenge(self.challenge.hash(&bytes).to_be_bytes())
    }

    /// By what the stack tells a network of sources from others.
    pub(super) fn tag(&self, source: u64) -> SourceTag {
        SourceTag::new(self.place(source))
    }

    /// Where a network of sources has its share of a table.
    pub(super) fn place(&self, source: u64) -> u64 {
        self.place.hash(&source.to_be_bytes())
    }
}
