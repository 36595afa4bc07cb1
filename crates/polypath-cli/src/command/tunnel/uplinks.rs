//! Which interfaces lead to the peers, and the paths over them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use polypath_system::SystemState;
use polypath_tunnel::driver::{Driver, SocketId};
use polypath_tunnel::{PathId, PathSettings, PeerId};

use super::file::Uplinks;

/// An interface, the peer's address, and the peer.
type Key = (String, SocketAddr, usize);

/// One path.
struct Known {
    path: PathId,
    is_up: bool,
}

/// A socket of an interface, which it has as long as it is the same interface.
struct Bound {
    socket: SocketId,
    link: u32,
}

/// Follows the interfaces of this machine.
#[derive(Default)]
pub(super) struct Follower {
    sockets: BTreeMap<(String, bool), Bound>,
    paths: BTreeMap<Key, Known>,
}

/// A path that should be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) interface: String,
    pub(super) link: u32,
    pub(super) remote: SocketAddr,
    pub(super) peer: usize,
    pub(super) is_backup: bool,
}

/// The paths to `endpoints` (address and peer) that the interfaces give, without the tunnel's own device.
pub(super) fn wanted(
    state: &SystemState,
    own: &str,
    uplinks: &Uplinks,
    endpoints: &[(SocketAddr, usize)],
) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for link in &state.links {
        let name = &link.name;
        let is_named =
            uplinks.only.is_empty() || uplinks.only.contains(name) || uplinks.backup.contains(name);
        if link.is_loopback || !link.is_running || name == own || !is_named {
            continue;
        }
        for &(remote, peer) in endpoints {
            let has_address = link.addresses.iter().any(|address| address.is_ipv4() == remote.is_ipv4());
            if has_address && state.leads_to(link.index, remote.ip()) {
                let is_backup = uplinks.backup.contains(name);
                wanted.push(Wanted { interface: name.clone(), link: link.index, remote, peer, is_backup });
            }
        }
    }
    wanted
}

impl Follower {
    /// Makes the driver's paths those that are wanted. Returns what is to be told.
    pub(super) fn follow(&mut self, driver: &mut Driver, peers: &[PeerId], wanted: &[Wanted]) -> Vec<String> {
        let mut told = Vec::new();
        for (key, known) in &mut self.paths {
            let is_wanted = wanted.iter().any(|want| key_of(want) == *key);
            if known.is_up && !is_wanted {
                known.is_up = false;
                let (engine, now) = driver.engine();
                engine.set_path_up(now, peers[key.2], known.path, false);
                told.push(format!("{} is gone", key.0));
            }
        }
        for want in wanted {
            if let Err(error) = self.take(driver, peers[want.peer], want, &mut told) {
                told.push(format!("{}: {error}", want.interface));
            }
        }
        told
    }

    fn take(
        &mut self,
        driver: &mut Driver,
        peer: PeerId,
        want: &Wanted,
        told: &mut Vec<String>,
    ) -> std::io::Result<()> {
        let is_v4 = want.remote.is_ipv4();
        let place = (want.interface.clone(), is_v4);
        let is_same = self.sockets.get(&place).is_some_and(|bound| bound.link == want.link);
        if !is_same {
            if let Some(before) = self.sockets.remove(&place) {
                driver.close_socket(before.socket);
            }
            let socket = driver.open_socket(is_v4, 0, Some(&want.interface))?;
            self.sockets.insert(place.clone(), Bound { socket, link: want.link });
        }
        let local = driver.local_id(self.sockets[&place].socket);
        let key = key_of(want);
        let (engine, now) = driver.engine();
        match self.paths.get_mut(&key) {
            Some(known) => {
                engine.move_path(now, peer, known.path, local, want.remote);
                if !known.is_up {
                    known.is_up = true;
                    engine.set_path_up(now, peer, known.path, true);
                    told.push(format!("{} is back", want.interface));
                }
            }
            None => {
                let settings = PathSettings { backup: want.is_backup, ..PathSettings::default() };
                let Some(path) = engine.add_path(now, peer, local, want.remote, settings) else {
                    return Err(std::io::Error::other("no further path: one end has 8 to a peer at most"));
                };
                self.paths.insert(key, Known { path, is_up: true });
                told.push(format!("{} leads to {}", want.interface, want.remote));
            }
        }
        Ok(())
    }

    /// The name of a path's interface.
    pub(super) fn interface_of(&self, peer: usize, path: PathId) -> Option<&str> {
        let found = self.paths.iter().find(|(key, known)| key.2 == peer && known.path == path);
        found.map(|(key, _)| key.0.as_str())
    }
}

fn key_of(want: &Wanted) -> Key {
    (want.interface.clone(), want.remote, want.peer)
}
