//! Where peers are called: the addresses of their names, which may change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use polypath_tunnel::PeerId;

/// Where peers are reached, unless an endpoint says otherwise.
pub(super) const PORT: u16 = 51_820;

/// A peer and one of its endpoints, as it is written.
pub(super) type Key = (PeerId, String);

/// The addresses of the peers' endpoints.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    asked: BTreeMap<PeerId, Vec<String>>,
    found: BTreeMap<Key, BTreeSet<SocketAddr>>,
    /// Names to be looked up.
    due: BTreeSet<Key>,
    /// Names that are being looked up.
    pending: BTreeSet<Key>,
    /// What was said of names that were not found at the last try.
    failed: BTreeMap<Key, String>,
    /// Peers that were found.
    known: BTreeSet<PeerId>,
}

/// What follows from a name that was looked up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// There are other addresses, or a peer is known.
    pub(super) has_changed: bool,
    /// What is to be told.
    pub(super) told: Option<String>,
}

impl Endpoints {
    /// These are asked for from now on. Addresses are known at once; what names mean is asked of [`Endpoints::take_due`].
    pub(super) fn ask(&mut self, asked: BTreeMap<PeerId, Vec<String>>) {
        self.asked = asked;
        let asked = &self.asked;
        let is_asked = |(peer, text): &Key| asked.get(peer).is_some_and(|texts| texts.contains(text));
        self.found.retain(|key, _| is_asked(key));
        self.failed.retain(|key, _| is_asked(key));
        self.due.retain(is_asked);
        self.known.retain(|peer| asked.contains_key(peer));
        for (peer, text) in asked.iter().flat_map(|(peer, texts)| texts.iter().map(move |text| (peer, text)))
        {
            let key = (*peer, text.clone());
            if let Some(address) = address_of(text) {
                self.found.insert(key, BTreeSet::from([address]));
            } else if !self.found.contains_key(&key) && !self.failed.contains_key(&key) {
                self.due.insert(key);
            }
        }
        self.learn();
    }

    /// Names that were not found are looked up again, and those of `silent` peers, which may have moved.
    pub(super) fn look_again(&mut self, silent: &[PeerId]) {
        self.due.extend(self.failed.keys().cloned());
        let of_silent = self.found.keys().filter(|(peer, text)| silent.contains(peer) && is_name(text));
        self.due.extend(of_silent.cloned());
    }

    /// Names to look up now: what becomes of each is for [`Endpoints::handle_found`].
    pub(super) fn take_due(&mut self) -> Vec<Key> {
        let pending = &mut self.pending;
        std::mem::take(&mut self.due).into_iter().filter(|key| pending.insert(key.clone())).collect()
    }

    /// A name was looked up.
    pub(super) fn handle_found(&mut self, key: Key, found: Result<Vec<SocketAddr>, String>) -> Outcome {
        self.pending.remove(&key);
        let mut outcome = Outcome::default();
        if !self.asked.get(&key.0).is_some_and(|texts| texts.contains(&key.1)) {
            return outcome;
        }
        match found {
            Ok(addresses) => {
                self.failed.remove(&key);
                let addresses: BTreeSet<_> = addresses.into_iter().collect();
                outcome.has_changed = self.found.get(&key) != Some(&addresses);
                self.found.insert(key, addresses);
            }
            // What was found before may still be true.
            Err(error) => {
                let is_told = self.failed.values().any(|told| *told == error);
                outcome.told = (!is_told).then(|| error.clone());
                self.failed.insert(key, error);
            }
        }
        outcome.has_changed |= self.learn();
        outcome
    }

    /// Who is known now. True if somebody is new.
    fn learn(&mut self) -> bool {
        let before = self.known.len();
        for (&peer, texts) in &self.asked {
            let key = |text: &String| (peer, text.clone());
            let is_found = |text: &String| self.found.contains_key(&key(text));
            let is_answered = |text: &String| {
                let key = key(text);
                let is_under_way = self.pending.contains(&key) || self.due.contains(&key);
                !is_under_way && (self.found.contains_key(&key) || self.failed.contains_key(&key))
            };
            // One that is found is enough, once the others had their try.
            if texts.iter().all(is_answered) && (texts.is_empty() || texts.iter().any(is_found)) {
                self.known.insert(peer);
            }
        }
        self.known.len() > before
    }

    /// Peers whose networks may lead through the tunnel: none of their names has to be looked up without it any more.
    pub(super) const fn known(&self) -> &BTreeSet<PeerId> {
        &self.known
    }

    /// Each address once, with its peer.
    pub(super) fn found(&self) -> Vec<(SocketAddr, PeerId)> {
        let all = self.found.iter().flat_map(|((peer, _), found)| found.iter().map(|addr| (*addr, *peer)));
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// An endpoint that needs no lookup.
fn address_of(endpoint: &str) -> Option<SocketAddr> {
    let with_port = || endpoint.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
    endpoint.parse().or_else(|_| with_port()).ok()
}

/// Whether an endpoint is a name, and not an address.
pub(super) fn is_name(endpoint: &str) -> bool {
    address_of(endpoint).is_none()
}

/// Splits an endpoint into a host and a port.
fn split_endpoint(text: &str) -> Result<(String, u16), String> {
    let mistake = || {
        format!(
            "{text:?} is no endpoint: expected a host, and maybe a port, like vpn.example.org:51820, 192.0.2.1 or [2001:db8::1]:51820"
        )
    };
    let (host, port) = if let Some(address) = address_of(text) {
        (address.ip().to_string(), address.port())
    } else {
        let (host, port) = match text.split_once(':') {
            None => (text, PORT),
            Some((host, port)) => (host, port.parse().map_err(|_| mistake())?),
        };
        let is_part_of_names = |c: char| !c.is_whitespace() && !c.is_control() && !"[]/\"'".contains(c);
        if host.is_empty() || !host.chars().all(is_part_of_names) {
            return Err(mistake());
        }
        (host.to_owned(), port)
    };
    if port == 0 { Err(mistake()) } else { Ok((host, port)) }
}

/// Whether it is one.
pub(super) fn check_endpoint(text: &str) -> Result<(), String> {
    split_endpoint(text).map(|_| ())
}

/// The addresses of an endpoint; names are looked up.
pub(super) fn resolve(text: &str) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = split_endpoint(text)?;
    let found = (host.as_str(), port).to_socket_addrs();
    found.map(Iterator::collect).map_err(|error| format!("{host} was not found: {error}"))
}

/// An endpoint with its port.
pub(super) fn with_port(text: &str, port: u16) -> String {
    match (text.parse::<SocketAddr>(), text.parse::<IpAddr>()) {
        (Ok(_), _) => text.to_owned(),
        (_, Ok(address)) => SocketAddr::new(address, port).to_string(),
        _ if text.contains(':') => text.to_owned(),
        _ => format!("{text}:{port}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use polypath_tunnel::driver::{system_random, zero_since_1970};
    use polypath_tunnel::key::PrivateKey;
    use polypath_tunnel::{Engine, EngineConfig, PeerConfig};

    use super::*;

    fn peers<const COUNT: usize>() -> [PeerId; COUNT] {
        let mut config = EngineConfig::new(PrivateKey::from_random([1; 32]));
        for number in 0..COUNT {
            let key = PrivateKey::from_random([2 + number as u8; 32]).public_key();
            config.peers.push(PeerConfig::new(key));
        }
        let engine = Engine::new(config, zero_since_1970(), system_random());
        engine.peer_ids().collect::<Vec<_>>().try_into().unwrap()
    }

    pub(in super::super) fn peer() -> PeerId {
        let [peer] = peers();
        peer
    }

    fn asked(of: &[(PeerId, &[&str])]) -> BTreeMap<PeerId, Vec<String>> {
        of.iter().map(|(peer, texts)| (*peer, texts.iter().map(|&text| text.to_owned()).collect())).collect()
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 7))
    }

    fn lasts(endpoints: &Endpoints) -> Vec<String> {
        endpoints.found().iter().map(|(addr, _)| addr.to_string()).collect()
    }

    #[test]
    fn names_of_silent_peers_are_looked_up_again() {
        let (peer, mut endpoints, mut told) = (peer(), Endpoints::default(), Vec::new());
        endpoints.ask(asked(&[(peer, &["vpn.test", "10.0.0.9:7"])]));
        assert_eq!(lasts(&endpoints), ["10.0.0.9:7"], "an address is known at once");
        let mut look = |silent: &[PeerId], last: Option<u8>| {
            endpoints.look_again(silent);
            let due = endpoints.take_due();
            for key in due.clone() {
                let found = last.map(|last| vec![address(last)]).ok_or(format!("{} was not found", key.1));
                told.extend(endpoints.handle_found(key, found).told);
            }
            (due.len(), lasts(&endpoints))
        };
        assert_eq!(look(&[], None), (1, vec!["10.0.0.9:7".to_owned()]));
        let (first, second) = ("10.0.0.1:7".to_owned(), "10.0.0.2:7".to_owned());
        assert_eq!(look(&[], None).0, 1, "it is told once");
        assert_eq!(look(&[], Some(1)), (1, vec![first.clone(), "10.0.0.9:7".into()]));
        assert_eq!(look(&[], Some(2)).0, 0, "nobody is silent");
        assert_eq!(look(&[peer], Some(2)), (1, vec![second.clone(), "10.0.0.9:7".into()]));
        // What can't be found now may still be where it was.
        assert_eq!(look(&[peer], None), (1, vec![second, "10.0.0.9:7".into()]));
        assert_eq!(told, ["vpn.test was not found"; 2]);
    }

    #[test]
    fn a_name_that_is_not_found_holds_nobody_up() {
        let ([one, other, caller], mut endpoints) = (peers(), Endpoints::default());
        endpoints.ask(asked(&[(one, &["slow.test"]), (other, &["fast.test", "10.0.0.9:7"]), (caller, &[])]));
        let known = |endpoints: &Endpoints| endpoints.known().iter().copied().collect::<Vec<_>>();
        assert_eq!(known(&endpoints), [caller], "who calls has no name");
        let due = endpoints.take_due();
        assert_eq!(due.len(), 2);
        assert!(endpoints.take_due().is_empty(), "they are under way");
        endpoints.look_again(&[]);
        assert!(endpoints.take_due().is_empty(), "they are under way");
        let fast = (other, "fast.test".to_owned());
        let outcome = endpoints.handle_found(fast, Err("fast.test was not found".into()));
        assert_eq!(outcome, Outcome { has_changed: true, told: Some("fast.test was not found".into()) });
        assert_eq!(known(&endpoints), [other, caller], "it has another endpoint");
        let slow = (one, "slow.test".to_owned());
        assert!(endpoints.handle_found(slow, Ok(vec![address(1)])).has_changed);
        assert_eq!(known(&endpoints), [one, other, caller]);
        // A name that nobody asks for any more.
        endpoints.look_again(&[one]);
        assert_eq!(endpoints.take_due().len(), 2);
        endpoints.ask(asked(&[(caller, &[])]));
        let late = endpoints.handle_found((one, "slow.test".into()), Ok(vec![address(2)]));
        assert_eq!((late, lasts(&endpoints).len(), known(&endpoints)), (Outcome::default(), 0, vec![caller]));
    }

    #[test]
    fn what_is_no_endpoint_is_told() {
        for text in ["vpn.example.org", "vpn:9", "192.0.2.1", "192.0.2.1:9", "2001:db8::1", "[2001:db8::1]:9"]
        {
            assert_eq!(check_endpoint(text), Ok(()));
        }
        for text in
            ["", ":9", "foo bar", "foo bar:9", "[2001:db8::1]", "vpn:port", "vpn:0", "192.0.2.1:0", "vpn:1:2"]
        {
            let message = check_endpoint(text).unwrap_err();
            assert!(message.starts_with(&format!("{text:?} is no endpoint: expected a host")), "{message}");
        }
    }

    #[test]
    fn endpoints_get_their_port() {
        assert_eq!(with_port("10.0.0.1", 7), "10.0.0.1:7");
        assert_eq!(with_port("2001:db8::1", 7), "[2001:db8::1]:7");
        assert_eq!(with_port("host:9", 7), "host:9");
        assert_eq!(with_port("host", 7), "host:7");
        assert_eq!(split_endpoint("vpn.example.org"), Ok(("vpn.example.org".into(), PORT)));
    }
}
