//! Where peers are called: the addresses of their names, which may change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use polypath_tunnel::PeerId;

use super::super::complain;
use super::file::resolve;

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
}
