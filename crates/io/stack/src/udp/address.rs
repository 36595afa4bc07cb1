//! The addresses that the stack sees instead of the network's.

use std::net::{IpAddr, Ipv6Addr};

/// A path identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PathId(pub(super) u64);

/// A network of sources that paths of peers belong to, as a hash of 24 bits. The stack gives each network a share of what peers may
/// take ([`source_prefix`](polypath_tcp::source_prefix)); where two have the same hash, they share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceTag(u32);

impl SourceTag {
    const BITS: u32 = 24;

    /// The last bits of a keyed hash of the network.
    pub(super) fn new(hash: u64) -> Self {
        Self(hash as u32 & ((1 << Self::BITS) - 1))
    }
}

impl PathId {
    /// The address by which the stack knows the path of a peer. All paths of one network of sources are in one network of the
    /// stack's, so that whoever has many paths has one share.
    pub(super) fn addr(self, source: SourceTag) -> IpAddr {
        let network = u64::from(STACK_NETWORK) << 32 | u64::from(source.0) << 8 | u64::from(PEER);
        Ipv6Addr::from_bits(u128::from(network) << 64 | u128::from(self.0)).into()
    }

    /// The path that such an address stands for.
    pub(super) fn of(addr: IpAddr) -> Option<Self> {
        let IpAddr::V6(addr) = addr else { return None };
        let network = (addr.to_bits() >> 64) as u64;
        let is_of_peer = (network >> 32) as u32 == STACK_NETWORK && network as u8 == PEER;
        is_of_peer.then_some(Self(addr.to_bits() as u64))
    }
}

/// A path of this end, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct OwnPath(pub(super) u8);

impl OwnPath {
    /// The first half of the addresses of this end's paths.
    const NETWORK: u128 = 0xfd70_6f6c_7971_0001;

    /// The address by which the stack knows the path.
    pub(super) fn addr(self) -> IpAddr {
        Ipv6Addr::from_bits(Self::NETWORK << 64 | u128::from(self.0)).into()
    }

    /// The path that such an address stands for.
    pub(super) fn of(addr: IpAddr) -> Option<Self> {
        let IpAddr::V6(addr) = addr else { return None };
        let number = u8::try_from(addr.to_bits() as u64).ok().map(Self);
        number.filter(|_| addr.to_bits() >> 64 == Self::NETWORK)
    }
}

/// Addresses of the stack that stand for paths begin so (RFC 4193 §3), ...
const STACK_NETWORK: u32 = 0xfd70_6f6c;

/// ... and have this before the identifier, if that is a peer's. The end's own have 1.
const PEER: u8 = 2;

/// An address of the network as the stack sees it: all are of IPv6, so that families mix.
pub(super) fn stack_addr(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(addr) => IpAddr::V6(addr.to_ipv6_mapped()),
        addr => addr,
    }
}

/// The address of the network behind it.
pub(super) fn network_addr(addr: IpAddr) -> IpAddr {
    addr.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathId = PathId(0x0123_4567_89ab_cdef);

    #[test]
    fn addresses_stand_for_paths_and_peers() {
        assert_eq!((PathId::of(OwnPath(7).addr()), OwnPath::of(OwnPath(7).addr())), (None, Some(OwnPath(7))));
        assert_eq!(PathId::of(stack_addr([192, 0, 2, 1].into())), None);
        // Whatever identifier a peer chooses, and wherever it is.
        for bits in [0, 7, PATH.0, u64::MAX] {
            for hash in [0, 0x79_7100, u64::MAX] {
                let addr = PathId(bits).addr(SourceTag::new(hash));
                assert_eq!((PathId::of(addr), OwnPath::of(addr)), (Some(PathId(bits)), None));
            }
        }
    }

    #[test]
    fn all_paths_of_a_source_have_one_share() {
        let prefix = |bits, hash| polypath_tcp::source_prefix(PathId(bits).addr(SourceTag::new(hash)));
        assert_eq!(prefix(0, 5), prefix(u64::MAX, 5));
        for bit in 0..SourceTag::BITS {
            assert_ne!(prefix(PATH.0, 5), prefix(PATH.0, 5 ^ 1 << bit), "{bit}");
        }
    }

    #[test]
    fn addresses_are_translated() {
        assert_eq!(network_addr(stack_addr([192, 0, 2, 1].into())), IpAddr::from([192, 0, 2, 1]));
    }
}
