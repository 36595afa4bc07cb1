//! The addresses of the Multipath TCP connections between the two ends. No host has them: they say which path a packet takes.
//!
//! An end calls from the address of a path, and is called at the one address of the service. Both ends use the same ones: who calls is
//! told by which of them is whose. They are of the range that no host has, 240.0.0.0/4.

use std::net::{IpAddr, Ipv4Addr};

use polypath_wire::Endpoint;

use crate::noise::PathId;

/// Where an end is called.
pub(super) const SERVICE: Endpoint = Endpoint::new(IpAddr::V4(Ipv4Addr::new(240, 0, 0, 0)), 1);

/// What an end calls from over a path.
pub(super) fn caller(path: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(240, 0, 0, path as u8 + 1))
}

/// The path of a packet: one of its two addresses names it.
pub(super) fn path_between(source: IpAddr, destination: IpAddr) -> Option<PathId> {
    [source, destination].into_iter().find_map(|address| match address {
        IpAddr::V4(address) => PathId::new(address.octets()[3].checked_sub(1)?),
        IpAddr::V6(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_addresses_names_the_path() {
        for path in 0..8 {
            assert_eq!(path_between(caller(path), SERVICE.addr), PathId::new(path as u8));
            assert_eq!(path_between(SERVICE.addr, caller(path)), PathId::new(path as u8));
        }
        assert_eq!(path_between(SERVICE.addr, SERVICE.addr), None);
        assert_eq!(path_between([240, 0, 0, 200].into(), SERVICE.addr), None);
    }
}
