use alloc::collections::BTreeMap;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use polypath_wire::Endpoint;

use crate::slab::{Key, Slab};

/// Names a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub(crate) Key);

/// Settings of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenConfig {
    /// Most connections whose handshake is not complete. A SYN beyond them is dropped, and counted as
    /// `ListenDrops`; its sender tries again. Default 1024.
    pub backlog: usize,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self { backlog: 1024 }
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
#[derive(Debug, Default)]
pub struct Listeners {
    by_endpoint: BTreeMap<Endpoint, ListenerId>,
    catch_all: Option<ListenerId>,
    listeners: Slab<Listener>,
}

/// One listener and what it has under way.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    /// Where it listens; an unspecified address stands for all.
    pub endpoint: Endpoint,
    /// Its settings.
    pub config: ListenConfig,
    /// Connections whose handshake is not complete. The host counts them.
    pub half_open: usize,
}

impl Listeners {
    /// Listens on one address and port. The address `0.0.0.0` stands for every IPv4 address, `::` for every
    /// address of both families, and a listener on a named address goes before them.
    pub fn insert(&mut self, endpoint: Endpoint, config: ListenConfig) -> Result<ListenerId, ListenError> {
        if endpoint.port == 0 {
            return Err(ListenError::PortZero);
        }
        if self.by_endpoint.contains_key(&endpoint) {
            return Err(ListenError::AddressInUse);
        }
        let id = ListenerId(self.listeners.insert(Listener { endpoint, config, half_open: 0 }));
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
        let id = ListenerId(self.listeners.insert(Listener { endpoint, config, half_open: 0 }));
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

    /// A listener to be changed, unless it was removed.
    #[must_use]
    pub fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.listeners.get_mut(id.0)
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
    use super::*;

    fn v4(last: u8, port: u16) -> Endpoint {
        Endpoint::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port)
    }

    #[test]
    fn the_most_specific_listener_answers() {
        let mut listeners = Listeners::default();
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
}
