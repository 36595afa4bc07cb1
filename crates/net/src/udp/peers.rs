//! Where paths lead: which socket and which address of the network a path identifier of a peer stands for now.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::datagram::PathId;

/// Paths of peers that are remembered.
const MOST_PEERS: usize = 65_536;

/// How a peer's path is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// Our socket.
    pub(super) socket: usize,
    /// The peer, or the last translator before us.
    pub(super) remote: SocketAddr,
    /// The address of ours at which it reaches us.
    pub(super) local: Option<IpAddr>,
}

/// The paths of all peers.
#[derive(Debug, Default)]
pub(super) struct Peers {
    routes: HashMap<PathId, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    route: Route,
    used: u64,
}

impl Peers {
    /// How to reach a path.
    pub(super) fn route(&self, path: PathId) -> Option<Route> {
        self.routes.get(&path).map(|entry| entry.route)
    }

    /// A datagram of a path came by a route; false if it is to be ignored. Only a SYN makes a path known, so that nothing
    /// else takes memory. A known path follows its datagrams: the identifier proves whose they are.
    pub(super) fn learn(&mut self, path: PathId, route: Route, is_syn: bool) -> bool {
        self.clock += 1;
        if let Some(entry) = self.routes.get_mut(&path) {
            *entry = Entry { route, used: self.clock };
            return true;
        }
        if !is_syn {
            return false;
        }
        if self.routes.len() >= MOST_PEERS {
            self.forget_oldest();
        }
        self.routes.insert(path, Entry { route, used: self.clock });
        true
    }

    /// Makes room: half of the paths, those that were silent longest.
    fn forget_oldest(&mut self) {
        let mut used: Vec<u64> = self.routes.values().map(|entry| entry.used).collect();
        let middle = used.len() / 2;
        let (_, median, _) = used.select_nth_unstable(middle);
        let median = *median;
        self.routes.retain(|_, entry| entry.used > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(port: u16) -> Route {
        Route { socket: 0, remote: ([192, 0, 2, 1], port).into(), local: None }
    }

    #[test]
    fn a_path_becomes_known_by_a_syn_and_follows_its_datagrams() {
        let mut peers = Peers::default();
        assert!(!peers.learn(PathId(1), route(1), false) && peers.route(PathId(1)).is_none());
        assert!(peers.learn(PathId(1), route(1), true));
        assert!(peers.learn(PathId(1), route(2), false));
        assert_eq!(peers.route(PathId(1)), Some(route(2)));
        assert!(!peers.learn(PathId(2), route(3), false));
    }

    #[test]
    fn memory_is_bounded_and_the_silent_go_first() {
        let mut peers = Peers::default();
        for id in 0..MOST_PEERS as u64 + 1 {
            peers.learn(PathId(id), route(1), true);
            peers.learn(PathId(0), route(1), false);
        }
        assert!(peers.routes.len() <= MOST_PEERS);
        assert!(peers.route(PathId(0)).is_some() && peers.route(PathId(1)).is_none());
    }
}
