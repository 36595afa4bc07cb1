use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use polypath_wire::Endpoint;
use rand_core::Rng;
use siphasher::sip::SipHasher24;

use crate::slab::{Key, Slab};

/// Names a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub(crate) Key);

/// Settings of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenConfig {
    /// Most connections whose handshake is not complete, about 2 KB each. A SYN beyond them is answered with a cookie
    /// ([`crate::SynCookies`]), for which nothing is held. With 0 every SYN is. Default 1024.
    pub backlog: usize,
    /// Most of them from one source, which is an IPv4 network of 24 bits or an IPv6 network of 56 bits: so one that opens
    /// connections without end leaves room for others. Default 256.
    pub backlog_per_source: usize,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self { backlog: 1024, backlog_per_source: 256 }
    }
}

/// Why a host can't listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another listener has that address and port.
    #[error("address in use")]
    AddressInUse,
    /// Port zero names no service.
    #[error("port zero")]
    PortZero,
}

/// The listeners of a host, by endpoint. Only segments without a connection come here.
#[derive(Debug)]
pub struct Listeners {
    by_endpoint: BTreeMap<Endpoint, ListenerId>,
    catch_all: Option<ListenerId>,
    listeners: Slab<Listener>,
    hash: SipHasher24,
}

/// One listener and what it has under way.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Where it listens; an unspecified address stands for all.
    pub endpoint: Endpoint,
    /// Its settings.
    pub config: ListenConfig,
    half_open: usize,
    sources: SourceCounts,
}

impl Listener {
    fn new(endpoint: Endpoint, config: ListenConfig) -> Self {
        Self { endpoint, config, half_open: 0, sources: SourceCounts::default() }
    }

    /// Connections whose handshake is not complete.
    #[must_use]
    pub const fn half_open(&self) -> usize {
        self.half_open
    }
}

/// Half-open connections of a listener by source, in 4 KB whatever the number of sources: where two share a place, they share the
/// bound too, and get a cookie earlier. Nobody can choose whose place to share, as the hash has a key.
#[derive(Clone, Debug, Default)]
struct SourceCounts {
    /// [`SOURCE_PLACES`] of them once there was one.
    counts: Vec<u32>,
}

const SOURCE_PLACES: usize = 1024;

impl SourceCounts {
    fn of(&mut self, hash: &SipHasher24, addr: IpAddr) -> Option<&mut u32> {
        if self.counts.is_empty() {
            self.counts.resize(SOURCE_PLACES, 0);
        }
        let place = hash.hash(&source_prefix(addr).to_be_bytes()) as usize % SOURCE_PLACES;
        self.counts.get_mut(place)
    }
}

/// What counts as one source: an IPv4 network of 24 bits, or an IPv6 network of 56, which is what one household is given (RFC 6177
/// §2). Who has one address of it can easily have many. An IPv4 address that IPv6 maps counts as what it is.
#[must_use]
pub fn source_prefix(addr: IpAddr) -> u64 {
    match addr.to_canonical() {
        IpAddr::V4(addr) => u64::from(addr.to_bits() >> 8),
        // Never one of the above.
        IpAddr::V6(addr) => (addr.to_bits() >> 72) as u64 | 1 << 63,
    }
}

impl Listeners {
    /// No listener. The secret by which sources are spread over the places of their counts comes from `random`.
    #[must_use]
    pub fn new(random: &mut impl Rng) -> Self {
        Self {
            by_endpoint: BTreeMap::new(),
            catch_all: None,
            listeners: Slab::new(),
            hash: SipHasher24::new_with_keys(random.next_u64(), random.next_u64()),
        }
    }

    /// Listens on one address and port. The address `0.0.0.0` stands for every IPv4 address, `::` for every
    /// address of both families, and a listener on a named address goes before them.
    pub fn insert(&mut self, endpoint: Endpoint, config: ListenConfig) -> Result<ListenerId, ListenError> {
        if endpoint.port == 0 {
            return Err(ListenError::PortZero);
        }
        if self.by_endpoint.contains_key(&endpoint) {
            return Err(ListenError::AddressInUse);
        }
        let id = ListenerId(self.listeners.insert(Listener::new(endpoint, config)));
        self.by_endpoint.insert(endpoint, id);
        Ok(id)
    }

    /// Answers at every address and port that no other listener has: for hosts that terminate the connections of
    /// others. Its endpoint is `[::]:0`.
    pub fn insert_catch_all(&mut self, config: ListenConfig) -> Result<ListenerId, ListenError> {
        if self.catch_all.is_some() {
            return Err(ListenError::AddressInUse);
        }
        let endpoint = Endpoint::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
        let id = ListenerId(self.listeners.insert(Listener::new(endpoint, config)));
        self.catch_all = Some(id);
        Ok(id)
    }

    /// Stops listening; returns what the listener was.
    pub fn remove(&mut self, id: ListenerId) -> Option<Listener> {
        let listener = self.listeners.remove(id.0)?;
        self.by_endpoint.remove(&listener.endpoint);
        self.catch_all = self.catch_all.filter(|catch_all| *catch_all != id);
        Some(listener)
    }

    /// The listener for a SYN to `local`.
    #[must_use]
    pub fn find(&self, local: Endpoint) -> Option<ListenerId> {
        let any_v4 = local.addr.is_ipv4().then_some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        [Some(local.addr), any_v4, Some(any)]
            .into_iter()
            .flatten()
            .find_map(|addr| self.by_endpoint.get(&Endpoint::new(addr, local.port)).copied())
            .or(self.catch_all)
    }

    /// A listener, unless it was removed.
    #[must_use]
    pub fn get(&self, id: ListenerId) -> Option<&Listener> {
        self.listeners.get(id.0)
    }

    /// True if a connection from `remote` may be half-open at this listener; it is counted then, until
    /// [`Listeners::leave`].
    #[must_use]
    pub fn admit(&mut self, id: ListenerId, remote: IpAddr) -> bool {
        let Some(listener) = self.listeners.get_mut(id.0) else { return false };
        let Some(count) = listener.sources.of(&self.hash, remote) else { return false };
        let ListenConfig { backlog, backlog_per_source } = listener.config;
        if listener.half_open >= backlog || *count as usize >= backlog_per_source {
            return false;
        }
        listener.half_open += 1;
        *count += 1;
        true
    }

    /// As [`Listeners::admit`] of a connection that is certain to be real, whatever the bounds.
    pub fn admit_always(&mut self, id: ListenerId, remote: IpAddr) {
        let Some(listener) = self.listeners.get_mut(id.0) else { return };
        listener.half_open += 1;
        if let Some(count) = listener.sources.of(&self.hash, remote) {
            *count += 1;
        }
    }

    /// A connection that was admitted is half-open no more.
    pub fn leave(&mut self, id: ListenerId, remote: IpAddr) {
        let Some(listener) = self.listeners.get_mut(id.0) else { return };
        listener.half_open = listener.half_open.saturating_sub(1);
        if let Some(count) = listener.sources.of(&self.hash, remote) {
            *count = count.saturating_sub(1);
        }
    }

    /// Listeners present.
    #[must_use]
    pub fn len(&self) -> usize {
        self.listeners.len()
    }

    /// True if nobody listens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;

    use super::*;

    fn listeners() -> Listeners {
        Listeners::new(&mut ChaCha8Rng::seed_from_u64(1))
    }

    fn v4(last: u8, port: u16) -> Endpoint {
        Endpoint::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port)
    }

    #[test]
    fn the_most_specific_listener_answers() {
        let mut listeners = listeners();
        let config = ListenConfig::default();
        let both = listeners.insert(Endpoint::new(Ipv6Addr::UNSPECIFIED.into(), 80), config).unwrap();
        assert_eq!(listeners.find(v4(1, 80)), Some(both));
        let any_v4 = listeners.insert(Endpoint::new(Ipv4Addr::UNSPECIFIED.into(), 80), config).unwrap();
        let one = listeners.insert(v4(1, 80), config).unwrap();
        assert_eq!(listeners.insert(v4(1, 80), config), Err(ListenError::AddressInUse));
        assert_eq!(listeners.insert(v4(1, 0), config), Err(ListenError::PortZero));
        assert_eq!(listeners.find(v4(1, 80)), Some(one));
        assert_eq!(listeners.find(v4(2, 80)), Some(any_v4));
        assert_eq!(listeners.find(Endpoint::new(Ipv6Addr::LOCALHOST.into(), 80)), Some(both));
        assert_eq!(listeners.find(v4(1, 81)), None);
        let rest = listeners.insert_catch_all(config).unwrap();
        assert_eq!(listeners.find(v4(1, 81)), Some(rest));
        assert_eq!(listeners.insert_catch_all(config), Err(ListenError::AddressInUse));
        assert!(listeners.remove(rest).is_some());
        assert_eq!((listeners.find(v4(1, 80)), listeners.find(v4(1, 81))), (Some(one), None));
        assert!(listeners.remove(one).is_some() && listeners.remove(one).is_none());
        assert_eq!(listeners.find(v4(1, 80)), Some(any_v4));
        assert_eq!(listeners.len(), 2);
    }

    #[test]
    fn one_source_takes_its_share_and_no_more() {
        let mut listeners = listeners();
        let config = ListenConfig { backlog: 6, backlog_per_source: 4 };
        let id = listeners.insert(v4(1, 80), config).unwrap();
        let from = |network: u32, host: u32| IpAddr::V4(Ipv4Addr::from_bits(network << 8 | host));
        let admitted: Vec<bool> = (0..5).map(|host| listeners.admit(id, from(1, host))).collect();
        assert_eq!(admitted, [true, true, true, true, false]);
        assert!(listeners.admit(id, from(2, 0)) && listeners.admit(id, from(3, 0)));
        assert!(!listeners.admit(id, from(4, 0)), "the listener has its fill");
        listeners.admit_always(id, from(1, 9));
        listeners.leave(id, from(1, 9));
        listeners.leave(id, from(1, 0));
        assert!(listeners.admit(id, from(1, 0)) && !listeners.admit(id, from(1, 1)));
        assert_eq!(listeners.get(id).map(Listener::half_open), Some(6));
    }

    #[test]
    fn a_household_is_one_source() {
        let of = |text: &str| source_prefix(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:ff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:100::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.77"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_ne!(of("::1"), of("0.0.0.1"));
    }

    #[test]
    fn what_a_source_does_to_one_listener_is_nothing_to_another() {
        let mut listeners = listeners();
        let config = ListenConfig { backlog: 6, backlog_per_source: 2 };
        let ids = [80, 81].map(|port| listeners.insert(v4(1, port), config).unwrap());
        let remote = IpAddr::V4(Ipv4Addr::from_bits(77));
        for id in ids {
            let admitted: Vec<bool> = (0..3).map(|_| listeners.admit(id, remote)).collect();
            assert_eq!(admitted, [true, true, false]);
        }
        // Nor to one that takes the place of it.
        assert!(listeners.remove(ids[0]).is_some());
        let again = listeners.insert(v4(1, 80), config).unwrap();
        listeners.leave(ids[0], remote);
        assert!(listeners.admit(again, remote) && listeners.admit(again, remote));
        assert!(!listeners.admit(again, remote));
    }

    #[test]
    fn nobody_can_choose_whose_place_to_share() {
        let config = ListenConfig { backlog: 9, backlog_per_source: 1 };
        let locked_out = |seed: u64| -> Vec<u32> {
            let mut listeners = Listeners::new(&mut ChaCha8Rng::seed_from_u64(seed));
            let id = listeners.insert(v4(1, 80), config).unwrap();
            let from = |network: u32| IpAddr::V4(Ipv4Addr::from_bits(network << 8));
            assert!(listeners.admit(id, from(0)));
            let shares = |network: &u32| {
                let is_admitted = listeners.admit(id, from(*network));
                is_admitted.then(|| listeners.leave(id, from(*network))).is_none()
            };
            (1..20_000).filter(shares).collect()
        };
        let (one, other) = (locked_out(1), locked_out(2));
        assert!((5..60).contains(&one.len()) && (5..60).contains(&other.len()));
        assert!(one.iter().filter(|network| other.contains(network)).count() < 5);
    }
}
