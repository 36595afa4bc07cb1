//! Where peers are called: the addresses of their names, which may change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use polypath_tunnel::PeerId;

use super::super::complain;

/// Where peers are reached, unless an endpoint says otherwise.
pub(super) const PORT: u16 = 51_820;

/// A peer and one of its endpoints, as it is written.
type Key = (PeerId, String);

/// The addresses of the peers' endpoints.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    found: BTreeMap<Key, Vec<SocketAddr>>,
    told: BTreeSet<String>,
    /// All that was asked for was found.
    is_complete: bool,
}

impl Endpoints {
    /// Looks up those of `asked` that are not known yet, which may take long, and again those of `silent` peers.
    pub(super) fn look_up(&mut self, asked: &[Key], silent: &[PeerId], is_quiet: bool) {
        self.look_up_by(asked, silent, resolve, |line| {
            if !is_quiet {
                complain(line);
            }
        });
    }

    fn look_up_by(
        &mut self,
        asked: &[Key],
        silent: &[PeerId],
        mut resolve: impl FnMut(&str) -> Result<Vec<SocketAddr>, String>,
        mut tell: impl FnMut(&str),
    ) {
        self.found.retain(|key, _| asked.contains(key));
        self.is_complete = true;
        for key in asked {
            let may_have_moved = silent.contains(&key.0) && is_name(&key.1);
            if self.found.contains_key(key) && !may_have_moved {
                continue;
            }
            match resolve(&key.1) {
                Ok(addresses) => {
                    self.told.clear();
                    self.found.insert(key.clone(), addresses);
                }
                Err(error) => {
                    // What was found before may still be true.
                    self.is_complete &= self.found.contains_key(key);
                    if self.told.insert(error.clone()) {
                        tell(&error);
                    }
                }
            }
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Each address once, with its peer.
    pub(super) fn found(&self) -> Vec<(SocketAddr, PeerId)> {
        let all = self.found.iter().flat_map(|((peer, _), found)| found.iter().map(|addr| (*addr, *peer)));
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Whether an endpoint is a name, and not an address.
pub(super) fn is_name(endpoint: &str) -> bool {
    endpoint.parse::<SocketAddr>().is_err() && endpoint.parse::<IpAddr>().is_err()
}

/// Splits an endpoint into a host and a port.
fn split_endpoint(text: &str) -> Result<(String, u16), String> {
    let mistake =
        || format!("{text:?} is no endpoint: expected a host, and maybe a port, like vpn.example.org:51820");
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok((address.ip().to_string(), address.port()));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address.to_string(), PORT));
    }
    match text.split_once(':') {
        None if !text.is_empty() && !text.contains(char::is_whitespace) => Ok((text.to_owned(), PORT)),
        Some((host, port)) if !host.is_empty() => Ok((host.to_owned(), port.parse().map_err(|_| mistake())?)),
        _ => Err(mistake()),
    }
}

/// Whether it is one.
pub(super) fn check_endpoint(text: &str) -> Result<(), String> {
    split_endpoint(text).map(|_| ())
}

/// The addresses of an endpoint; names are looked up.
fn resolve(text: &str) -> Result<Vec<SocketAddr>, String> {
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
mod tests {
    use polypath_tunnel::driver::{system_random, zero_since_1970};
    use polypath_tunnel::key::PrivateKey;
    use polypath_tunnel::{Engine, EngineConfig, PeerConfig};

    use super::*;

    fn peer() -> PeerId {
        let mut config = EngineConfig::new(PrivateKey::from_random([1; 32]));
        config.peers.push(PeerConfig::new(PrivateKey::from_random([2; 32]).public_key()));
        Engine::new(config, zero_since_1970(), system_random()).peer_ids().next().unwrap()
    }

    #[test]
    fn names_of_silent_peers_are_looked_up_again() {
        let (peer, mut endpoints, mut told) = (peer(), Endpoints::default(), Vec::new());
        let asked = [(peer, "vpn.test".to_owned()), (peer, "10.0.0.9:7".to_owned())];
        let mut look = |silent: &[PeerId], last: Option<u8>| {
            let mut names = 0;
            let resolve = |text: &str| {
                names += usize::from(is_name(text));
                let address = |last| SocketAddr::from(([10, 0, 0, last], 7));
                match last {
                    _ if !is_name(text) => Ok(vec![text.parse().unwrap()]),
                    Some(last) => Ok(vec![address(last)]),
                    None => Err(format!("{text} was not found")),
                }
            };
            endpoints.look_up_by(&asked, silent, resolve, |line| told.push(line.to_owned()));
            let mut found: Vec<_> = endpoints.found().iter().map(|(addr, _)| addr.to_string()).collect();
            found.sort();
            (endpoints.is_complete(), names, found)
        };
        assert_eq!(look(&[], None), (false, 1, vec!["10.0.0.9:7".to_owned()]));
        let (first, second) = ("10.0.0.1:7".to_owned(), "10.0.0.2:7".to_owned());
        assert_eq!(look(&[], Some(1)), (true, 1, vec![first.clone(), "10.0.0.9:7".into()]));
        assert_eq!(look(&[], Some(2)).1, 0, "nobody is silent");
        assert_eq!(look(&[peer], Some(2)), (true, 1, vec![second.clone(), "10.0.0.9:7".into()]));
        // What can't be found now may still be where it was.
        assert_eq!(look(&[peer], None), (true, 1, vec![second, "10.0.0.9:7".into()]));
        assert_eq!(told, ["vpn.test was not found"; 2]);
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
