//! The paths of a tunnel that runs, as the interfaces give them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use polypath_tunnel::driver::{Driver, SocketId};
use polypath_tunnel::{Engine, LocalId, PathId, PathSettings, PathStatus, PeerId};
use polypath_units::Instant;

use super::uplinks::Wanted;

/// An interface, the peer's address, and the peer.
type Key = (String, SocketAddr, PeerId);

/// UDP and IP around a datagram.
const OUTER_V4_BYTES: u64 = 28;
const OUTER_V6_BYTES: u64 = 48;

/// What has sockets and an engine.
pub(super) trait Carrier {
    type Socket: Copy;

    /// A socket of an interface.
    fn open(&mut self, is_v4: bool, interface: &str) -> io::Result<Self::Socket>;
    fn close(&mut self, socket: Self::Socket);
    /// What the engine calls a socket.
    fn local_id(&mut self, socket: Self::Socket) -> LocalId;
    fn engine(&mut self) -> (&mut Engine, Instant);
}

impl Carrier for Driver {
    type Socket = SocketId;

    fn open(&mut self, is_v4: bool, interface: &str) -> io::Result<SocketId> {
        self.open_socket(is_v4, 0, Some(interface))
    }

    fn close(&mut self, socket: SocketId) {
        self.close_socket(socket);
    }

    fn local_id(&mut self, socket: SocketId) -> LocalId {
        self.local_id(socket)
    }

    fn engine(&mut self) -> (&mut Engine, Instant) {
        self.engine()
    }
}

/// One path.
struct Known {
    path: PathId,
    is_up: bool,
    /// Which time of all that paths ended it was when this did.
    ended: u64,
    settings: PathSettings,
    /// What went over it when it was last looked at.
    seen_bytes: u64,
}

/// A socket of an interface, which it has as long as it is the same interface.
struct Bound<S> {
    socket: S,
    link: u32,
}

/// Follows the interfaces of this machine.
pub(super) struct Follower<S> {
    sockets: BTreeMap<(String, bool), Bound<S>>,
    paths: BTreeMap<Key, Known>,
    /// How often paths have ended.
    ends: u64,
    /// What went over paths that were given back, and nobody has asked for yet.
    left_bytes: BTreeMap<String, u64>,
}

impl<S: Copy> Follower<S> {
    pub(super) const fn new() -> Self {
        Self { sockets: BTreeMap::new(), paths: BTreeMap::new(), ends: 0, left_bytes: BTreeMap::new() }
    }

    /// Makes the driver's paths those that are wanted. Returns what is to be told.
    pub(super) fn follow(&mut self, driver: &mut impl Carrier<Socket = S>, wanted: &[Wanted]) -> Vec<String> {
        let mut told = Vec::new();
        for (key, known) in &mut self.paths {
            let is_wanted = wanted.iter().any(|want| key_of(want) == *key);
            if known.is_up && !is_wanted {
                known.is_up = false;
                self.ends += 1;
                known.ended = self.ends;
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
        self.close_sockets(driver);
        told
    }

    fn take(
        &mut self,
        driver: &mut impl Carrier<Socket = S>,
        want: &Wanted,
        told: &mut Vec<String>,
    ) -> io::Result<()> {
        let is_v4 = want.remote.is_ipv4();
        let place = (want.interface.clone(), is_v4);
        let is_same = self.sockets.get(&place).is_some_and(|bound| bound.link == want.link);
        if !is_same {
            if let Some(before) = self.sockets.remove(&place) {
                driver.close(before.socket);
            }
            let socket = driver.open(is_v4, &want.interface)?;
            self.sockets.insert(place.clone(), Bound { socket, link: want.link });
        }
        let local = driver.local_id(self.sockets[&place].socket);
        let key = key_of(want);
        if !self.paths.contains_key(&key) {
            self.readdress(&key);
        }
        let (engine, now) = driver.engine();
        let Some(known) = self.paths.get_mut(&key) else {
            let mut path = engine.add_path(now, want.peer, local, want.remote, want.settings);
            if path.is_none() && self.give_back(engine, now, want.peer) {
                path = engine.add_path(now, want.peer, local, want.remote, want.settings);
            }
            let path =
                path.ok_or_else(|| io::Error::other("no further path: one end has 8 to a peer at most"))?;
            let known = Known { path, is_up: true, ended: 0, settings: want.settings, seen_bytes: 0 };
            self.paths.insert(key, known);
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

    /// Gives the number of the peer's path that ended first back, of those that are not wanted now. False if there is none.
    fn give_back(&mut self, engine: &mut Engine, now: Instant, peer: PeerId) -> bool {
        let ended = self.paths.iter().filter(|(key, known)| key.2 == peer && !known.is_up);
        let Some(key) = ended.min_by_key(|(_, known)| known.ended).map(|(key, _)| key.clone()) else {
            return false;
        };
        if let Some(known) = self.paths.remove(&key) {
            let status = engine.peer_status(now, peer);
            let path = status.and_then(|status| status.paths.into_iter().find(|path| path.id == known.path));
            let bytes = path.map_or(0, |path| all_bytes(&path, &key).saturating_sub(known.seen_bytes));
            engine.remove_path(now, peer, known.path);
            *self.left_bytes.entry(key.0).or_default() += bytes;
        }
        true
    }

    /// Those of interfaces over which no path leads, not even one that ended: such a path finds its way back by the same socket, which
    /// translators of addresses on the way may know.
    fn close_sockets(&mut self, driver: &mut impl Carrier<Socket = S>) {
        let paths = &self.paths;
        self.sockets.retain(|(interface, is_v4), bound| {
            let is_used = paths.keys().any(|key| key.0 == *interface && key.1.is_ipv4() == *is_v4);
            if !is_used {
                driver.close(bound.socket);
            }
            is_used
        });
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
    pub(super) fn take_bytes(&mut self, driver: &mut impl Carrier<Socket = S>) -> BTreeMap<String, u64> {
        let (engine, now) = driver.engine();
        let mut bytes = std::mem::take(&mut self.left_bytes);
        let mut statuses = BTreeMap::new();
        for (key, known) in &mut self.paths {
            let status = statuses.entry(key.2).or_insert_with(|| engine.peer_status(now, key.2));
            let path =
                status.as_ref().and_then(|status| status.paths.iter().find(|path| path.id == known.path));
            let Some(path) = path else { continue };
            let all = all_bytes(path, key);
            *bytes.entry(key.0.clone()).or_default() += all.saturating_sub(known.seen_bytes);
            known.seen_bytes = all;
        }
        bytes
    }
}

fn key_of(want: &Wanted) -> Key {
    (want.interface.clone(), want.remote, want.peer)
}

/// What went over a path until now, with the headers of UDP and IP.
fn all_bytes(path: &PathStatus, key: &Key) -> u64 {
    let outer = if key.1.is_ipv4() { OUTER_V4_BYTES } else { OUTER_V6_BYTES };
    path.sent.1 + path.received.1 + outer * (path.sent.0 + path.received.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use polypath_tunnel::driver::{system_random, zero_since_1970};
    use polypath_tunnel::key::PrivateKey;
    use polypath_tunnel::{EngineConfig, PeerConfig};

    use super::*;

    /// An engine with sockets that are numbers.
    struct Bench {
        engine: Engine,
        opened: u16,
        open: BTreeSet<u16>,
    }

    impl Bench {
        fn new() -> (Self, PeerId) {
            let mut config = EngineConfig::new(PrivateKey::from_random([1; 32]));
            config.peers.push(PeerConfig::new(PrivateKey::from_random([2; 32]).public_key()));
            let engine = Engine::new(config, zero_since_1970(), system_random());
            let peer = engine.peer_ids().next().unwrap();
            (Self { engine, opened: 0, open: BTreeSet::new() }, peer)
        }
    }

    impl Carrier for Bench {
        type Socket = u16;

        fn open(&mut self, _: bool, _: &str) -> io::Result<u16> {
            self.opened += 1;
            self.open.insert(self.opened);
            Ok(self.opened)
        }

        fn close(&mut self, socket: u16) {
            assert!(self.open.remove(&socket));
        }

        fn local_id(&mut self, socket: u16) -> LocalId {
            LocalId(socket)
        }

        fn engine(&mut self) -> (&mut Engine, Instant) {
            (&mut self.engine, Instant::from_secs(1))
        }
    }

    fn want(peer: PeerId, interface: &str, link: u32) -> Wanted {
        let (remote, settings) = ("192.0.2.1:7".parse().unwrap(), PathSettings::default());
        Wanted { interface: interface.into(), link, remote, peer, settings }
    }

    #[test]
    fn the_path_that_ended_first_gives_its_number_to_a_new_one() {
        let ((mut bench, peer), mut follower) = (Bench::new(), Follower::new());
        let mut numbers = Vec::new();
        for number in 0..20 {
            let name = format!("usb{number}");
            let told = follower.follow(&mut bench, &[want(peer, "eth0", 1), want(peer, &name, number + 2)]);
            assert!(told.contains(&format!("{name} leads to 192.0.2.1:7")), "{told:?}");
            let status = bench.engine.peer_status(Instant::from_secs(1), peer).unwrap();
            let path = status.paths.iter().find(|path| path.local == LocalId(bench.opened)).unwrap();
            assert_eq!(follower.interface_of(peer, path.id), Some(name.as_str()));
            numbers.push(path.id);
            assert!(status.paths.len() <= 8 && bench.open.len() == status.paths.len(), "{:?}", bench.open);
        }
        // The first has one of eight.
        assert_eq!(numbers[7..14], numbers[..7]);
        assert_eq!(numbers[..7].iter().collect::<BTreeSet<_>>().len(), 7);
        assert!(bench.open.contains(&1), "the one that stays has its socket");
    }

    #[test]
    fn eight_paths_that_are_wanted_keep_their_numbers() {
        let ((mut bench, peer), mut follower) = (Bench::new(), Follower::new());
        let wanted: Vec<_> = (0..9).map(|number| want(peer, &format!("eth{number}"), number)).collect();
        follower.follow(&mut bench, &wanted[..8]);
        let told = follower.follow(&mut bench, &wanted);
        assert_eq!(told, ["eth8: no further path: one end has 8 to a peer at most"]);
        assert_eq!(bench.open.len(), 8, "the ninth has no socket");
        // One that comes back has the socket that it had.
        follower.follow(&mut bench, &wanted[1..8]);
        let told = follower.follow(&mut bench, &wanted[..8]);
        assert_eq!((told, bench.opened), (vec!["eth0 leads to 192.0.2.1:7 again".to_owned()], 9));
        follower.forget(peer);
        follower.follow(&mut bench, &[]);
        assert!(bench.open.is_empty(), "nobody wants them");
    }
}
