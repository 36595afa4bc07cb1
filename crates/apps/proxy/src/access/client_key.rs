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

/// An address by which it is known again: of a site of IPv6 the first.
impl From<ClientKey> for IpAddr {
    fn from(key: ClientKey) -> Self {
        match key {
            ClientKey::V4(bits) => Self::V4(bits.into()),
            ClientKey::V6(bits) => Self::V6((u128::from(bits) << 72).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_again_by_its_address() {
        for (text, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:0:1ff::1", "2001:db8:0:100::"),
        ] {
            let key = ClientKey::from(text.parse::<IpAddr>().unwrap());
            let address = IpAddr::from(key);
            assert_eq!((address, ClientKey::from(address)), (expected.parse().unwrap(), key));
        }
    }
}
