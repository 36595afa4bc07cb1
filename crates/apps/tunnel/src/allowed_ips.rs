//! Which peer has which addresses: where packets go, and from whom they may come.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network: an address and how many of its first bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// Text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network: expected an address, or one with a prefix, like 10.0.0.0/24 or fd00::/64")]
pub struct NetworkError(String);

impl Network {
    /// `None` if the address has fewer bits than the prefix. The bits behind the prefix become zero.
    #[must_use]
    pub fn new(address: IpAddr, prefix_bits: u8) -> Option<Self> {
        (prefix_bits <= bits_of(address)).then(|| Self { address: mask(address, prefix_bits), prefix_bits })
    }

    /// The network of one address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self { address, prefix_bits: bits_of(address) }
    }

    /// Its first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits all its addresses share.
    #[must_use]
    pub const fn prefix_bits(&self) -> u8 {
        self.prefix_bits
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && mask(address, self.prefix_bits) == self.address
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let mistake = || NetworkError(text.to_owned());
        let Some((address, prefix)) = text.split_once('/') else {
            return text.parse().map(Self::host).map_err(|_| mistake());
        };
        let (Ok(address), Ok(prefix)) = (address.parse(), prefix.parse()) else { return Err(mistake()) };
        Self::new(address, prefix).ok_or_else(mistake)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn mask(address: IpAddr, prefix_bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_bits)).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_bits)).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

/// Networks, each with what belongs to it. The longest prefix wins.
#[derive(Clone, Debug)]
pub(crate) struct AllowedIps<T> {
    owners: BTreeMap<Network, T>,
    /// Lengths of prefixes that occur, longest first: for each address family one look-up each.
    lengths: [Vec<u8>; 2],
}

impl<T: Copy + PartialEq> AllowedIps<T> {
    pub(crate) fn new() -> Self {
        Self { owners: BTreeMap::new(), lengths: [Vec::new(), Vec::new()] }
    }

    /// Gives a network to an owner; the one who had it before loses it.
    pub(crate) fn insert(&mut self, network: Network, owner: T) {
        self.owners.insert(network, owner);
        let lengths = &mut self.lengths[usize::from(network.address.is_ipv6())];
        if !lengths.contains(&network.prefix_bits) {
            lengths.push(network.prefix_bits);
            lengths.sort_unstable_by(|one, other| other.cmp(one));
        }
    }

    /// Takes all of an owner's networks away.
    pub(crate) fn remove(&mut self, owner: T) {
        self.owners.retain(|_, other| *other != owner);
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    pub(crate) fn find(&self, address: IpAddr) -> Option<T> {
        let lengths = &self.lengths[usize::from(address.is_ipv6())];
        lengths.iter().find_map(|&prefix_bits| {
            self.owners.get(&Network { address: mask(address, prefix_bits), prefix_bits }).copied()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn the_longest_prefix_wins() {
        let mut table = AllowedIps::new();
        for (text, owner) in [("0.0.0.0/0", 1), ("10.0.0.0/8", 2), ("10.1.2.3", 3), ("fd00::/8", 4)] {
            table.insert(network(text), owner);
        }
        let find = |table: &AllowedIps<i32>, text: &str| table.find(text.parse().unwrap());
        assert_eq!(find(&table, "8.8.8.8"), Some(1));
        assert_eq!(find(&table, "10.9.9.9"), Some(2));
        assert_eq!(find(&table, "10.1.2.3"), Some(3));
        assert_eq!(find(&table, "fd12::1"), Some(4));
        assert_eq!(find(&table, "2001:db8::1"), None);
        table.remove(3);
        assert_eq!(find(&table, "10.1.2.3"), Some(2));
    }

    #[test]
    fn networks_are_read_and_written() {
        assert_eq!(network("10.1.2.3/24").to_string(), "10.1.2.0/24");
        assert_eq!(network("::1").to_string(), "::1/128");
        for text in ["10.0.0.0/33", "10.0.0", "/8", "10.0.0.0/", "fd00::/129"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
