//! Whom a client is counted as.

use std::net::IpAddr;

/// One client: an IPv4 address, or what a site of IPv6 has, a /56, out of which it can take any address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientKey {
    V4(u32),
    V6(u64),
}

impl From<IpAddr> for ClientKey {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::V4(v4.to_bits()),
            IpAddr::V6(v6) => Self::V6((v6.to_bits() >> 72) as u64),
        }
    }
}
