//! The addresses that the stack sees instead of the network's.

use std::net::{IpAddr, Ipv6Addr};

/// A path identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PathId(pub(super) u64);

impl PathId {
    /// The address by which the stack knows the path of a peer. Each path is in a network of its own, since the stack gives each
    /// network of sources a share of what peers may take ([`polypath_tcp::source_prefix`]).
    pub(super) fn addr(self) -> IpAddr {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (self.0 >> shift) as u16);
        Ipv6Addr::new(STACK_NETWORK[0], STACK_NETWORK[1], a, b, PEER_GROUPS[0], PEER_GROUPS[1], c, d).into()
    }

    /// The path that such an address stands for.
    pub(super) fn of(addr: IpAddr) -> Option<Self> {
        let IpAddr::V6(addr) = addr else { return None };
        let [first, second, a, b, kind, zero, c, d] = addr.segments();
        let is_of_peer = [first, second] == STACK_NETWORK && [kind, zero] == PEER_GROUPS;
        let bits = [a, b, c, d].into_iter().fold(0, |bits, group| bits << 16 | u64::from(group));
        is_of_peer.then_some(Self(bits))
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
const STACK_NETWORK: [u16; 2] = [0xfd70, 0x6f6c];

/// ... and those of peers' paths have these groups between the halves of the identifier.
const PEER_GROUPS: [u16; 2] = [0x7971, 0];

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
        assert_eq!((PathId::of(PATH.addr()), OwnPath::of(PATH.addr())), (Some(PATH), None));
        assert_eq!((OwnPath::of(OwnPath(7).addr()), PathId::of(OwnPath(7).addr())), (Some(OwnPath(7)), None));
        assert_eq!(PathId::of(stack_addr([192, 0, 2, 1].into())), None);
        // Whatever identifier a peer chooses.
        for bits in [0, u64::MAX, 0x7971_0001_0000_0000, 0x7971_0001_0000_0001] {
            assert_eq!(
                (PathId::of(PathId(bits).addr()), OwnPath::of(PathId(bits).addr())),
                (Some(PathId(bits)), None)
            );
        }
    }

    #[test]
    fn what_one_path_takes_is_not_the_share_of_others() {
        let sources = [0x0123_4567_89ab_cdef, 0x1123_4567_89ab_cdef, 0x0123_f567_89ab_cdef];
        let sources = sources.map(|bits| polypath_tcp::source_prefix(PathId(bits).addr()));
        assert!(
            sources[0] != sources[1] && sources[1] != sources[2] && sources[0] != sources[2],
            "{sources:?}"
        );
    }

    #[test]
    fn addresses_are_translated() {
        assert_eq!(network_addr(stack_addr([192, 0, 2, 1].into())), IpAddr::from([192, 0, 2, 1]));
    }
}
