//! The paths of a tunnel that runs, as the interfaces give them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use polypath_tunnel::driver::{Driver, SocketId};
use polypath_tunnel::{PathId, PathSettings, PeerId};

use super::uplinks::Wanted;

/// An interface, the peer's address, and the peer.
type Key = (String, SocketAddr, PeerId);

/// UDP and IP around a datagram.
const OUTER_V4_BYTES: u64 = 28;
const OUTER_V6_BYTES: u64 = 48;

/// One path.
struct Known {
    path: PathId,
    is_up: bool,
    settings: PathSettings,
    /// What went over it when it was last looked at.
    seen_bytes: u64,
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

impl Follower {
    /// Makes the driver's paths those that are wanted. Returns what is to be told.
    pub(super) fn follow(&mut self, driver: &mut Driver, wanted: &[Wanted]) -> Vec<String> {
        let mut told = Vec::new();
        for (key, known) in &mut self.paths {
            let is_wanted = wanted.iter().any(|want| key_of(want) == *key);
            if known.is_up && !is_wanted {
                known.is_up = false;
                let (engine, now) = driver.engine();
                engine.set_path_up(now, key.2, known.path, false);
                told.push(format!("{} leads to {} no more", key.0, key.1));
            }
        }
        for want in wanted {
            if let Err(error) = self.take(driver, want, &mut told) {
                told.push(format!("{}: {error}", want.interface));
            }
        }
        told
    }

    fn take(&mut self, driver: &mut Driver, want: &Wanted, told: &mut Vec<String>) -> std::io::Result<()> {
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
        if !self.paths.contains_key(&key) {
            self.readdress(&key);
        }
        let (engine, now) = driver.engine();
        let Some(known) = self.paths.get_mut(&key) else {
            let Some(path) = engine.add_path(now, want.peer, local, want.remote, want.settings) else {
                return Err(std::io::Error::other("no further path: one end has 8 to a peer at most"));
            };
            self.paths.insert(key, Known { path, is_up: true, settings: want.settings, seen_bytes: 0 });
            told.push(format!("{} leads to {}", want.interface, want.remote));
            return Ok(());
        };
        engine.move_path(now, want.peer, known.path, local, want.remote);
        if known.settings != want.settings {
            known.settings = want.settings;
            engine.set_path_settings(now, want.peer, known.path, want.settings);
        }
        if !known.is_up {
            known.is_up = true;
            engine.set_path_up(now, want.peer, known.path, true);
            told.push(format!("{} leads to {} again", want.interface, want.remote));
        }
        Ok(())
    }

    /// A path that is not wanted any more goes on at another address of the peer, rather than taking up a number for nothing.
    fn readdress(&mut self, to: &Key) {
        let is_free = |(key, known): &(&Key, &Known)| key.2 == to.2 && key.0 == to.0 && !known.is_up;
        let Some(from) = self.paths.iter().find(is_free).map(|(key, _)| key.clone()) else { return };
        if let Some(known) = self.paths.remove(&from) {
            self.paths.insert(to.clone(), known);
        }
    }

    /// The peer is gone, and its paths with it.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.paths.retain(|key, _| key.2 != peer);
    }

    /// The name of a path's interface.
    pub(super) fn interface_of(&self, peer: PeerId, path: PathId) -> Option<&str> {
        let found = self.paths.iter().find(|(key, known)| key.2 == peer && known.path == path);
        found.map(|(key, _)| key.0.as_str())
    }

    /// Bytes that went over each interface since this was asked last, with the headers of UDP and IP.
    pub(super) fn take_bytes(&mut self, driver: &mut Driver) -> BTreeMap<String, u64> {
        let (engine, now) = driver.engine();
        let mut bytes = BTreeMap::new();
        let mut statuses = BTreeMap::new();
        for (key, known) in &mut self.paths {
            let status = statuses.entry(key.2).or_insert_with(|| engine.peer_status(now, key.2));
            let path =
                status.as_ref().and_then(|status| status.paths.iter().find(|path| path.id == known.path));
            let Some(path) = path else { continue };
            let outer = if key.1.is_ipv4() { OUTER_V4_BYTES } else { OUTER_V6_BYTES };
            let (sent, received) = (path.sent, path.received);
            let all = sent.1 + received.1 + outer * (sent.0 + received.0);
            *bytes.entry(key.0.clone()).or_default() += all.saturating_sub(known.seen_bytes);
            known.seen_bytes = all;
        }
        bytes
    }
}

fn key_of(want: &Wanted) -> Key {
    (want.interface.clone(), want.remote, want.peer)
}
