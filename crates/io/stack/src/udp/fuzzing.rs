//! What the fuzz target of the peers' table does, shared with the seeded run in the tests. It panics where the table's promises
//! are broken.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use polypath_units::{Duration, Instant};

use super::address::{OwnPath, PathId};
use super::datagram::{CHALLENGE_BYTES, Header, Kind, OPENING_BYTES, OVERHEAD_BYTES, RETRY_BYTES};
use super::keys::{Challenge, HostSecret, PathKey, Proof};
use super::own::OwnPaths;
use super::peers::{Came, PeerLimits, Peers, Reaction};
use super::route::Route;

const OWNERS: u8 = 4;
const LIMITS: PeerLimits = PeerLimits {
    paths: 3,
    paths_of_source: 2,
    waiting: 8,
    waiting_of_source: 2,
    unproven_per_second: 8,
    unproven_per_second_of_source: 4,
    challenges_per_second: 100,
    challenges_per_second_of_source: 50,
};

/// Any bytes as a plan of owners and attackers who share routes, in virtual time.
pub fn paths(plan: &[u8]) {
    let mut world = World::new();
    let mut plan = plan.iter().copied();
    while let (Some(what), Some(who), Some(how)) = (plan.next(), plan.next(), plan.next()) {
        world.step(what, who, how);
        world.check();
    }
}

/// An owner of one path, which wanders from route to route.
struct Owner {
    own: OwnPaths,
    path: PathId,
    route: Route,
    /// Challenges that reached it.
    challenges: Vec<(Challenge, bool)>,
    /// The route that it proved last.
    proven: Option<Route>,
}

struct World {
    now: Instant,
    peers: Peers,
    owners: Vec<Owner>,
    /// Challenges that reached an attacker, and where.
    captured: Vec<(PathId, Challenge, Route)>,
    /// What owners said so far; attackers say it again from elsewhere.
    said: Vec<Header>,
    /// Bytes from each route and to it, of routes that nobody proved.
    received: HashMap<Route, usize>,
    sent: HashMap<Route, usize>,
    proven: HashSet<Route>,
}

fn server() -> SocketAddr {
    ([192, 0, 2, 1], 6824).into()
}

/// Routes of owners are even, those of attackers odd; neighbours share a network.
fn route(number: u8) -> Route {
    let remote = ([198, 51, number / 4 % 4, number % 4], 1000 + u16::from(number % 16)).into();
    Route { socket: usize::from(number / 128), remote, local: Some(server().ip()) }
}

impl World {
    fn new() -> Self {
        let now = Instant::from_secs(100);
        let owner = |number: u8| {
            let mut own = OwnPaths::new(HostSecret([number; 32]));
            let path = own.note_sent(now, (OwnPath(1), server()), true);
            Owner { own, path, route: route(number * 2), challenges: Vec::new(), proven: None }
        };
        Self {
            now,
            peers: Peers::new(LIMITS, [5; 32]),
            owners: (0..OWNERS).map(owner).collect(),
            captured: Vec::new(),
            said: Vec::new(),
            received: HashMap::new(),
            sent: HashMap::new(),
            proven: HashSet::new(),
        }
    }

    fn step(&mut self, what: u8, who: u8, how: u8) {
        let owner = usize::from(who % OWNERS);
        let elsewhere = route(how | 1);
        match what % 12 {
            0 => self.now += Duration::from_millis(u64::from(how) * u64::from(who)),
            1 => {
                let (path, route) = (self.owners[owner].path, self.owners[owner].route);
                self.owners[owner].own.note_sent(self.now, (OwnPath(1), server()), true);
                self.segment(path, route, OPENING_BYTES, true);
            }
            2 => self.segment(self.owners[owner].path, self.owners[owner].route, 1400, false),
            3 => self.keep_alive(self.owners[owner].path, self.owners[owner].route, CHALLENGE_BYTES),
            4 => self.owners[owner].route = route(how & !1),
            5 => self.answer(owner),
            6 => self.segment(self.owners[owner].path, elsewhere, 32, false),
            7 => self.segment(self.owners[owner].path, elsewhere, 32 + usize::from(who), true),
            8 => self.keep_alive(self.owners[owner].path, elsewhere, usize::from(how % 40)),
            9 => self.forge(how, elsewhere),
            // An identifier that nobody owns, as often as places go around.
            10 => self.segment(PathId(u64::from(who)), elsewhere, OPENING_BYTES, true),
            _ => self.census(how),
        }
        // The stack sends whatever it wants to whom it wants.
        if let Some(route) = self.peers.route(self.owners[owner].path, 72) {
            self.note_sent(route, 72);
        }
    }

    fn note_sent(&mut self, route: Route, len_bytes: usize) {
        *self.sent.entry(route).or_default() += len_bytes + OVERHEAD_BYTES;
    }

    fn segment(&mut self, path: PathId, route: Route, len_bytes: usize, is_syn: bool) {
        *self.received.entry(route).or_default() += len_bytes + OVERHEAD_BYTES;
        let reaction = self.peers.handle_segment(self.now, Came { path, route, len_bytes, is_syn });
        let is_known = self.peers.known_route(path).is_some_and(|known| known == route);
        assert!(
            !reaction.is_accepted || reaction.is_stranger != is_known,
            "taken from an address that is not proven"
        );
        assert!(!is_known || reaction.is_accepted);
        let is_retry = is_syn && !reaction.is_accepted;
        self.take(path, route, reaction, if is_retry { RETRY_BYTES } else { CHALLENGE_BYTES });
    }

    fn keep_alive(&mut self, path: PathId, route: Route, len_bytes: usize) {
        *self.received.entry(route).or_default() += len_bytes + OVERHEAD_BYTES;
        let reaction = self.peers.handle_keep_alive(self.now, Came { path, route, len_bytes, is_syn: false });
        assert!(
            !reaction.is_accepted || self.proven.contains(&route),
            "answered to an address that is not proven"
        );
        self.take(path, route, reaction, CHALLENGE_BYTES);
    }

    /// A challenge goes where the datagram came from.
    fn take(&mut self, path: PathId, route: Route, reaction: Reaction, len_bytes: usize) {
        let Some(challenge) = reaction.challenge else { return };
        self.note_sent(route, len_bytes);
        match self.owners.iter_mut().find(|owner| owner.path == path && owner.route == route) {
            Some(owner) => owner.challenges.push((challenge, reaction.is_stranger)),
            None => self.captured.push((path, challenge, route)),
        }
    }

    fn answer(&mut self, number: usize) {
        let owner = &mut self.owners[number];
        let Some((challenge, is_stranger)) = owner.challenges.pop() else { return };
        let answer = owner.own.answer(self.now, owner.path, server(), challenge, is_stranger);
        let Some(answer) = answer else { return };
        self.said.push(answer);
        if hand_in(&mut self.peers, self.now, owner.route, answer) {
            owner.proven = Some(owner.route);
            self.proven.insert(owner.route);
        }
    }

    /// Who is at `elsewhere` claims paths: with keys made up, with challenges that it got, with what owners said.
    fn forge(&mut self, how: u8, elsewhere: Route) {
        for &(path, challenge, _) in &self.captured {
            let proof = Kind::Proof(challenge, Proof([how; 16]));
            let introduction = Kind::Introduction(challenge, PathKey([how; 16]));
            for kind in [proof, introduction] {
                let claim = Header { kind, to_owner: false, path };
                assert!(!hand_in(&mut self.peers, self.now, elsewhere, claim), "{claim:?}");
            }
        }
        for &claim in &self.said {
            assert!(!hand_in(&mut self.peers, self.now, elsewhere, claim), "{claim:?}");
        }
        // Owners can be made to answer challenges of others, but answer from where they are.
        for (path, challenge, route) in self.captured.split_off(self.captured.len().saturating_sub(2)) {
            let is_elsewhere = |owner: &&mut Owner| owner.path == path && owner.route != route;
            let Some(owner) = self.owners.iter_mut().find(is_elsewhere) else { continue };
            let answer = owner.own.answer(self.now, path, server(), challenge, false);
            let is_believed =
                answer.is_some_and(|answer| hand_in(&mut self.peers, self.now, owner.route, answer));
            assert!(!is_believed, "an answer to what was sent elsewhere");
        }
        self.captured.truncate(32);
        self.said.truncate(32);
    }

    fn census(&mut self, how: u8) {
        let in_use: HashSet<PathId> = (0..OWNERS)
            .filter(|number| how >> number & 1 == 1)
            .map(|number| self.owners[usize::from(number)].path)
            .collect();
        let known = |peers: &Peers| -> Vec<PathId> {
            in_use.iter().copied().filter(|path| peers.known_route(*path).is_some()).collect()
        };
        let before = known(&self.peers);
        self.peers.handle_census(self.now, &in_use);
        assert_eq!(known(&self.peers), before, "a path in use was forgotten");
    }

    fn check(&self) {
        for owner in &self.owners {
            let known = self.peers.known_route(owner.path);
            assert!(known.is_none() || known == owner.proven, "a path went astray");
        }
        for (route, sent) in self.sent.iter().filter(|(route, _)| !self.proven.contains(route)) {
            let received = self.received.get(route).copied().unwrap_or(0);
            assert!(*sent <= received, "{sent} bytes for {received} to {route:?}");
        }
        let (known, waiting) = self.peers.counts();
        assert!(known <= LIMITS.paths && waiting <= LIMITS.waiting);
    }
}

fn hand_in(peers: &mut Peers, now: Instant, route: Route, header: Header) -> bool {
    match header.kind {
        Kind::Introduction(challenge, key) => {
            peers.handle_introduction(now, header.path, route, challenge, key)
        }
        Kind::Proof(challenge, proof) => peers.handle_proof(now, header.path, route, challenge, proof),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn no_plan_breaks_a_promise() {
        for seed in 0..100 {
            let mut plan = vec![0; 3 * 2000];
            rand_chacha::ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut plan);
            paths(&plan);
        }
    }
}
