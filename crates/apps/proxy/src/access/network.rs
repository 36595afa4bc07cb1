//! Networks, as rules name them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The addresses that begin alike, such as `192.0.2.0/24`. One address is a network too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network(IpNet);

/// Why something is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// It does not read as one.
    #[error("no network: expected an address or ADDRESS/LENGTH, such as 192.0.2.0/24 or 2001:db8::/32")]
    Malformed,
    /// The address is one within the network, so that it is not clear which of the two is meant.
    #[error("bits are set behind the length: the network is {0}")]
    HostBits(Network),
}

impl Network {
    pub(crate) const fn v4([a, b, c, d]: [u8; 4], length: u8) -> Self {
        Self(IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)))
    }

    pub(crate) const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], length: u8) -> Self {
        Self(IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length)))
    }

    /// Whether the address is one of it. An IPv4 address within IPv6 is an IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Its first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.0.network()
    }

    /// How many bits its addresses have in common.
    #[must_use]
    pub fn prefix_length(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether all addresses of the other are of this one too.
    pub(crate) fn contains_network(&self, other: &Self) -> bool {
        self.0.contains(&other.0)
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(address.to_canonical().into())
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(address.into());
        }
        let given = text.parse::<IpNet>().map_err(|_| NetworkError::Malformed)?;
        let network = given.trunc();
        if network != given {
            return Err(NetworkError::HostBits(Self(network)));
        }
        // Addresses are compared as IPv4 addresses where they are such.
        match (network.addr().to_canonical(), network.prefix_len().checked_sub(96)) {
            (IpAddr::V4(v4), Some(length)) if network.addr().is_ipv6() => Ipv4Net::new(v4, length)
                .map(|network| Self(network.into()))
                .map_err(|_| NetworkError::Malformed),
            _ => Ok(Self(network)),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            return self.0.addr().fmt(f);
        }
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_reads_as_it_is_written() {
        for text in ["192.0.2.0/24", "192.0.2.1", "2001:db8::/32", "2001:db8::1", "0.0.0.0/0", "::/0"] {
            assert_eq!(network(text).to_string(), text);
        }
        for (text, length) in [("192.0.2.0/24", 24), ("192.0.2.1", 32), ("::ffff:192.0.2.0/120", 24)] {
            assert_eq!(network(text).prefix_length(), length);
            assert!(network(text).address().is_ipv4(), "{text}");
        }
        assert_eq!(network("::ffff:192.0.2.0/120").to_string(), "192.0.2.0/24");
        assert_eq!(network("::ffff:192.0.2.1").to_string(), "192.0.2.1");
        assert_eq!("192.0.2.1/24".parse::<Network>(), Err(NetworkError::HostBits(network("192.0.2.0/24"))));
        for text in ["", "192.0.2.0/33", "192.0.2.0/", "192.0.2/24", "example.org", "192.0.2.0/24 "] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError::Malformed), "{text:?}");
        }
    }

    #[test]
    fn an_address_within_ipv6_is_of_the_ipv4_network() {
        assert!(network("192.0.2.0/24").contains("::ffff:192.0.2.9".parse().unwrap()));
        assert!(!network("::/0").contains("192.0.2.9".parse().unwrap()));
        assert!(!network("192.0.2.0/24").contains("192.0.3.0".parse().unwrap()));
    }
}
