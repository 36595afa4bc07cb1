//! Where the paths of peers lead: which socket and which address of the network a path identifier stands for now.
//!
//! A state machine without sockets, clock and randomness of its own. It believes addresses as QUIC does (RFC 9000 §8 and
//! §9), with keys in the place of encryption:
//!
//! - A path that nobody knows *waits*: its SYN goes to the stack, and the stack's answers go back by the way that the SYN
//!   came, no more bytes than came (RFC 9000 §8.1 allows three times as many). Waiting costs a place in a small table in which
//!   each network of sources has its share, and what loses its place loses nothing but this.
//! - With the SYN/ACK goes a challenge. Who gives it back from the same address, with a key from which the identifier follows,
//!   has its path *known*. The challenge is a keyed hash of identifier, route and time, so nothing is kept for it.
//! - A segment of a path that nobody knows goes to the stack likewise, which resets what it does not know: so the peers of an
//!   end that was restarted hear it.
//! - Only so many segments a second reach the stack from addresses that are not proven. A SYN beyond that costs one hash: it
//!   is dropped for a challenge, and comes again behind the answer. That takes its owner one more round trip.
//! - A datagram of a known path by another route is challenged there, and dropped. Nothing is sent there before a proof with
//!   the path's key comes back from there; until then the old route stays in use.
//! - A challenge is never longer than the datagram that caused it, and only so many a second leave.
//! - A known path is forgotten only when there is no room, and only if no flow uses it; its owner introduces itself again.
//! - The stack's address of a path tells the network that the path was first proven in, and stays when the path moves. What comes
//!   of a path that was proven elsewhere meanwhile has another address, and reaches no flow of that one.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use polypath_units::{Duration, Instant};

use super::address::{PathId, SourceTag};
use super::allowance::Allowance;
use super::datagram::{CHALLENGE_BYTES, OPENING_BYTES, RESET_BYTES};
use super::keys::{Challenge, PathKey, Proof};
use super::route::{CHALLENGE_INTERVAL, Route};
use super::secrets::PeerSecrets;
use super::waiting::Waiting;

/// Bounds on what the paths of peers may take.
#[derive(Clone, Copy, Debug)]
pub struct PeerLimits {
    /// Paths that are known at a time, about 200 bytes each. Default 65 536.
    pub paths: usize,
    /// Of those, paths from one network of sources (`source_prefix`). Default 8192.
    pub paths_of_source: usize,
    /// Paths that wait to be known, about 150 bytes each. Default 8192.
    pub waiting: usize,
    /// Of those, paths from one network of sources, and maybe some others that share its place. Default 64.
    pub waiting_of_source: usize,
    /// Segments that reach the stack from addresses that are not proven, in a second. A SYN beyond that takes its owner one more
    /// round trip. Default 1000: about a hundredth of a processor.
    pub unproven_per_second: u32,
    /// Of those, segments from one network of sources, and maybe some others that share its place. Default 100.
    pub unproven_per_second_of_source: u32,
    /// Challenges in a second. Default 100 000.
    pub challenges_per_second: u32,
    /// Of those, challenges to one network of sources, and maybe some others that share its place. Default 10 000.
    pub challenges_per_second_of_source: u32,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self {
            paths: 65_536,
            paths_of_source: 8192,
            waiting: 8192,
            waiting_of_source: 64,
            unproven_per_second: 1000,
            unproven_per_second_of_source: 100,
            challenges_per_second: 100_000,
            challenges_per_second_of_source: 10_000,
        }
    }
}

/// A challenge holds for one to two of these.
const CHALLENGE_EPOCH: Duration = Duration::from_secs(8);

/// A path without a flow is kept for so long after its last SYN: a flow may come of it.
const GRACE: Duration = Duration::from_secs(10);

/// So often, at the most, is it worth asking which paths are in use.
const CENSUS_INTERVAL: Duration = Duration::from_secs(1);

/// A datagram of a path that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub(super) path: PathId,
    /// By which way.
    pub(super) route: Route,
    pub(super) len_bytes: usize,
    /// It holds a SYN without an acknowledgment.
    pub(super) is_syn: bool,
}

/// What is to be done with a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reaction {
    /// It is the stack's, or to be answered.
    pub(super) is_accepted: bool,
    /// Is to be sent back by the way that it came, ...
    pub(super) challenge: Option<Challenge>,
    /// ... as to one whose path is unknown.
    pub(super) is_stranger: bool,
}

/// What happened, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PeerCounters {
    /// Challenges sent.
    pub(super) challenges: u64,
    /// Paths that became known.
    pub(super) introductions: u64,
    /// Routes that changed.
    pub(super) route_changes: u64,
    /// Proofs and introductions that were wrong, late or from elsewhere.
    pub(super) failed_proofs: u64,
    /// Introductions for which there was no room.
    pub(super) no_room: u64,
    /// Datagrams not sent since an address was not proven and had sent too little.
    pub(super) unproven_drops: u64,
}

#[derive(Debug)]
struct Known {
    key: PathKey,
    route: Route,
    /// The network of sources of its first route.
    source: SourceTag,
    /// When a flow may last have begun.
    fresh_at: Instant,
    /// Another route, of late. The challenge needs no memory of it; that it is not repeated too soon does.
    candidate: Option<Box<Candidate>>,
}

/// Another route by which datagrams of a known path came.
#[derive(Debug)]
struct Candidate {
    route: Route,
    challenged_at: Instant,
}

/// The paths of all peers.
#[derive(Debug)]
pub(super) struct Peers {
    limits: PeerLimits,
    secrets: PeerSecrets,
    known: HashMap<PathId, Known>,
    /// How many known paths there are of each source.
    of_source: HashMap<u64, usize>,
    waiting: Waiting,
    /// Segments for the stack from addresses that are not proven.
    unproven: Allowance,
    challenges: Allowance,
    wants_census: bool,
    last_census: Option<Instant>,
    counters: PeerCounters,
}

impl Peers {
    /// No paths yet. `seed` must be secret and random outside of tests.
    pub(super) fn new(limits: PeerLimits, seed: [u8; 32]) -> Self {
        Self {
            limits,
            secrets: PeerSecrets::new(seed),
            known: HashMap::new(),
            of_source: HashMap::new(),
            waiting: Waiting::new(limits.waiting, limits.waiting_of_source),
            unproven: Allowance::new(limits.unproven_per_second, limits.unproven_per_second_of_source),
            challenges: Allowance::new(limits.challenges_per_second, limits.challenges_per_second_of_source),
            wants_census: false,
            last_census: None,
            counters: PeerCounters::default(),
        }
    }

    /// What happened so far.
    pub(super) fn counters(&self) -> PeerCounters {
        self.counters
    }

    /// A segment came.
    pub(super) fn handle_segment(&mut self, now: Instant, came: Came) -> Reaction {
        match self.known.get_mut(&came.path) {
            Some(known) if known.route == came.route => {
                if came.is_syn {
                    known.fresh_at = now;
                }
                Reaction { is_accepted: true, ..Reaction::default() }
            }
            Some(_) => self.challenge_candidate(now, came),
            None => self.handle_stranger(now, came),
        }
    }

    /// Nobody knows the path. It lost its place, this end forgot it, or it is new: who shows its key is known.
    fn handle_stranger(&mut self, now: Instant, came: Came) -> Reaction {
        let Came { path, route, len_bytes, is_syn } = came;
        let place = self.secrets.place(route.source());
        let is_expected = match self.waiting.route(path) {
            Some(waiting) => waiting == route,
            None => !is_syn || len_bytes >= OPENING_BYTES,
        };
        let is_accepted = is_expected && self.unproven.take(now, place);
        let is_due = if is_accepted {
            // The stack resets what it does not know: that is worth more than a challenge, if there is room for one of them.
            let reserved_bytes = if is_syn { 0 } else { RESET_BYTES };
            self.waiting.note(now, place, (path, route), len_bytes, reserved_bytes)
        } else {
            self.may_challenge(now, route, len_bytes)
        };
        let challenge = self.challenge(now, path, route, is_due);
        Reaction { is_accepted, challenge, is_stranger: true }
    }

    /// A keep-alive came. It is answered if it came by the route of its path, and challenged otherwise.
    pub(super) fn handle_keep_alive(&mut self, now: Instant, came: Came) -> Reaction {
        match self.known.get(&came.path) {
            Some(known) if known.route == came.route => Reaction { is_accepted: true, ..Reaction::default() },
            Some(_) => self.challenge_candidate(now, came),
            None => self.challenge_stranger(now, came),
        }
    }

    /// Nobody knows the path of a keep-alive, as after a restart: its owner is to hear it.
    fn challenge_stranger(&mut self, now: Instant, came: Came) -> Reaction {
        let is_due = self.may_challenge(now, came.route, came.len_bytes);
        let challenge = self.challenge(now, came.path, came.route, is_due);
        Reaction { challenge, is_stranger: true, ..Reaction::default() }
    }

    /// A datagram of a known path came by another route. It is not accepted: who sends it has to prove itself first. The owner
    /// of a SYN waits for a challenge.
    fn challenge_candidate(&mut self, now: Instant, came: Came) -> Reaction {
        let Came { path, route, len_bytes, is_syn } = came;
        let is_new = self.known.get_mut(&path).is_some_and(|known| known.note_candidate(now, route));
        let is_due = (is_new || is_syn) && self.may_challenge(now, route, len_bytes);
        Reaction { challenge: self.challenge(now, path, route, is_due), ..Reaction::default() }
    }

    /// The owner of a path says who it is. True if the path is known now, by this route.
    pub(super) fn handle_introduction(
        &mut self,
        now: Instant,
        path: PathId,
        route: Route,
        challenge: Challenge,
        key: PathKey,
    ) -> bool {
        let is_right = self.is_ours(now, path, route, challenge) && key.id() == path;
        let is_owner = self.known.get(&path).is_none_or(|known| known.key == key);
        if !is_right || !is_owner {
            self.counters.failed_proofs += 1;
            return false;
        }
        if self.known.contains_key(&path) {
            self.change_route(path, route);
            return true;
        }
        let source = route.source();
        let of_source = self.of_source.get(&source).copied().unwrap_or(0);
        if self.known.len() >= self.limits.paths || of_source >= self.limits.paths_of_source {
            self.counters.no_room += 1;
            self.wants_census = true;
            return false;
        }
        self.counters.introductions += 1;
        self.waiting.remove(path);
        *self.of_source.entry(source).or_default() += 1;
        let tag = self.secrets.tag(source);
        self.known.insert(path, Known { key, route, source: tag, fresh_at: now, candidate: None });
        true
    }

    /// The owner of a path proves where it is. True if that is the route now.
    pub(super) fn handle_proof(
        &mut self,
        now: Instant,
        path: PathId,
        route: Route,
        challenge: Challenge,
        proof: Proof,
    ) -> bool {
        let is_right = self.is_ours(now, path, route, challenge)
            && self.known.get(&path).is_some_and(|known| known.key.is_proof(challenge, proof));
        if is_right {
            self.change_route(path, route);
        } else {
            self.counters.failed_proofs += 1;
        }
        is_right
    }

    /// Where `len_bytes` for a path may go.
    pub(super) fn route(&mut self, path: PathId, len_bytes: usize) -> Option<Route> {
        if let Some(known) = self.known.get(&path) {
            return Some(known.route);
        }
        let route = self.waiting.spend(path, len_bytes);
        self.counters.unproven_drops += u64::from(route.is_none());
        route
    }

    /// The address by which the stack knows a path of which something came by a route.
    pub(super) fn addr(&self, path: PathId, route: Route) -> IpAddr {
        let known = self.known.get(&path).map(|known| known.source);
        path.addr(known.unwrap_or_else(|| self.secrets.tag(route.source())))
    }

    /// The path that an address of the stack's stands for; none if the path is not known by that address now.
    pub(super) fn path(&self, addr: IpAddr) -> Option<PathId> {
        let path = PathId::of(addr)?;
        (self.addr(path, self.last_route(path)?) == addr).then_some(path)
    }

    /// Where the peer is that the stack knows by an address: where it has proven to be or, before that, where it came from.
    pub(super) fn remote(&self, addr: IpAddr) -> Option<SocketAddr> {
        self.last_route(self.path(addr)?).map(|route| route.remote)
    }

    fn last_route(&self, path: PathId) -> Option<Route> {
        self.known_route(path).or_else(|| self.waiting.route(path))
    }

    /// There was no room: it is time to say which paths flows use.
    pub(super) fn wants_census(&self, now: Instant) -> bool {
        let is_due = self.last_census.is_none_or(|last| now.since(last) >= CENSUS_INTERVAL);
        self.wants_census && is_due
    }

    /// Forgets the paths that no flow uses, but those that are so new that a flow may come of them.
    pub(super) fn handle_census(&mut self, now: Instant, in_use: &HashSet<PathId>) {
        (self.wants_census, self.last_census) = (false, Some(now));
        let of_source = &mut self.of_source;
        self.known.retain(|path, known| {
            let stays = in_use.contains(path) || now.since(known.fresh_at) < GRACE;
            if !stays {
                leave(of_source, known.route.source());
            }
            stays
        });
    }

    /// Where a path leads, if it is known.
    pub(super) fn known_route(&self, path: PathId) -> Option<Route> {
        self.known.get(&path).map(|known| known.route)
    }

    /// Known paths, and those that wait.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.known.len(), self.waiting.len())
    }

    /// Whether a datagram of `len_bytes` from an address that is not proven may be answered by a challenge.
    fn may_challenge(&mut self, now: Instant, route: Route, len_bytes: usize) -> bool {
        len_bytes >= CHALLENGE_BYTES && self.challenges.take(now, self.secrets.place(route.source()))
    }

    fn challenge(&mut self, now: Instant, path: PathId, route: Route, is_due: bool) -> Option<Challenge> {
        self.counters.challenges += u64::from(is_due);
        is_due.then(|| self.secrets.challenge(path, route, epoch(now)))
    }

    /// Whether this end challenged a path so, there, of late.
    fn is_ours(&self, now: Instant, path: PathId, route: Route, challenge: Challenge) -> bool {
        let now = epoch(now);
        [now, now.wrapping_sub(1)].iter().any(|&at| self.secrets.challenge(path, route, at) == challenge)
    }

    fn change_route(&mut self, path: PathId, route: Route) {
        let Some(known) = self.known.get_mut(&path) else { return };
        known.candidate = None;
        if known.route == route {
            return;
        }
        self.counters.route_changes += 1;
        let before = std::mem::replace(&mut known.route, route);
        leave(&mut self.of_source, before.source());
        *self.of_source.entry(route.source()).or_default() += 1;
    }
}

impl Known {
    /// A datagram came by another route; true if a challenge is due there.
    fn note_candidate(&mut self, now: Instant, route: Route) -> bool {
        let before = self.candidate.as_deref().filter(|candidate| candidate.route == route);
        let is_due = before.is_none_or(|candidate| now.since(candidate.challenged_at) >= CHALLENGE_INTERVAL);
        if is_due {
            self.candidate = Some(Box::new(Candidate { route, challenged_at: now }));
        }
        is_due
    }
}

fn epoch(now: Instant) -> u64 {
    now.as_nanos() / CHALLENGE_EPOCH.as_nanos()
}

fn leave(of_source: &mut HashMap<u64, usize>, source: u64) {
    if let Some(count) = of_source.get_mut(&source) {
        *count -= 1;
        if *count == 0 {
            of_source.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests;
