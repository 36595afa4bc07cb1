//! Where the paths of peers lead: which socket and which address of the network a path identifier stands for now.
//!
//! A state machine without sockets, clock and randomness of its own. It believes addresses as QUIC does (RFC 9000 §8 and
//! §9), with keys in the place of encryption:
//!
//! - A path that nobody knows *waits*: its SYN goes to the stack, and the stack's answers go back by the way that the SYN
//!   came, at most three times as many bytes as came (RFC 9000 §8.1). Waiting costs a place in a small table in which each
//!   network of sources has its share, and what loses its place loses nothing but this.
//! - With the SYN/ACK goes a challenge. Who gives it back from the same address, with a key from which the identifier follows,
//!   has its path *known*. The challenge is a keyed hash of identifier, route and time, so nothing is kept for it.
//! - A datagram of a known path by another route is challenged there. Nothing but the answer to a SYN that came so is sent
//!   there before a proof with the path's key comes back from there; until then the old route stays in use.
//! - A challenge is never longer than the datagram that caused it.
//! - A known path is forgotten only when there is no room, and only if no flow uses it; its owner introduces itself again.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use polypath_units::{Duration, Instant};

use super::datagram::{CHALLENGE_BYTES, PathId};
use super::keys::{Challenge, PathKey, Proof};
use super::secrets::PeerSecrets;
use super::waiting::Waiting;

/// Bounds on what the paths of peers may take.
#[derive(Clone, Copy, Debug)]
pub struct PeerLimits {
    /// Paths that are known at a time, about 200 bytes each. Default 65 536.
    pub paths: usize,
    /// Of those, paths from one network of sources: a /24 of IPv4 or a /56 of IPv6. Default 8192.
    pub paths_of_source: usize,
    /// Paths that wait to be known, about 150 bytes each. Default 8192.
    pub waiting: usize,
    /// Of those, paths from one network of sources, and maybe some others that share its place. Default 64.
    pub waiting_of_source: usize,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self { paths: 65_536, paths_of_source: 8192, waiting: 8192, waiting_of_source: 64 }
    }
}

/// What may be sent to an address that is not proven, for each byte from there (RFC 9000 §8.1).
pub(super) const AMPLIFICATION: usize = 3;

/// A challenge holds for one to two of these.
const CHALLENGE_EPOCH: Duration = Duration::from_secs(8);

/// By the same route a path is challenged so often at the most.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(20);

/// A path without a flow is kept for so long after its last SYN: a flow may come of it.
const GRACE: Duration = Duration::from_secs(10);

/// So often, at the most, is it worth asking which paths are in use.
const CENSUS_INTERVAL: Duration = Duration::from_secs(1);

/// Challenges of datagrams that belong to nothing, in a second.
const STRAYS_PER_SECOND: u32 = 1000;

/// How a peer's path is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Route {
    /// Our socket.
    pub(super) socket: usize,
    /// The peer, or the last translator before us.
    pub(super) remote: SocketAddr,
    /// The address of ours at which it reaches us.
    pub(super) local: Option<IpAddr>,
}

impl Route {
    /// The network that the peer's address belongs to: what one attacker can easily have many addresses of.
    pub(super) fn source(&self) -> Source {
        match self.remote.ip().to_canonical() {
            IpAddr::V4(addr) => Source(u64::from(addr.to_bits() >> 8)),
            // Never one of the above: the first bits of addresses in use aren't zero.
            IpAddr::V6(addr) => Source((addr.to_bits() >> 72) as u64 | 1 << 63),
        }
    }
}

/// A network of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Source(pub(super) u64);

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
    /// Ports of the SYN that came by it last. Its answer goes back there, as if the path were unknown.
    syn: Option<Ports>,
    /// What may still be sent there.
    room_bytes: usize,
}

/// Ports of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    /// Of the path's owner.
    pub(super) owner: u16,
    /// Of this end.
    pub(super) own: u16,
}

/// The paths of all peers.
#[derive(Debug)]
pub(super) struct Peers {
    limits: PeerLimits,
    secrets: PeerSecrets,
    known: HashMap<PathId, Known>,
    /// How many known paths there are of each source.
    of_source: HashMap<Source, usize>,
    waiting: Waiting,
    strays: Strays,
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
            strays: Strays::default(),
            wants_census: false,
            last_census: None,
            counters: PeerCounters::default(),
        }
    }

    /// What happened so far.
    pub(super) fn counters(&self) -> PeerCounters {
        self.counters
    }

    /// A segment, or several as one, came by a route; `len_bytes` is what all datagrams of it held. `syn` is there if it is
    /// a SYN without an acknowledgment.
    pub(super) fn handle_segment(
        &mut self,
        now: Instant,
        path: PathId,
        route: Route,
        len_bytes: usize,
        syn: Option<Ports>,
    ) -> Reaction {
        if let Some(known) = self.known.get_mut(&path) {
            if syn.is_some() {
                known.fresh_at = now;
            }
            // As TCP, the stack believes sequence numbers from wherever they come; only answers need a proven address.
            let is_due = known.route != route && known.note_candidate(now, route, len_bytes, syn);
            return self.react(now, path, route, true, is_due);
        }
        if syn.is_some() || self.waiting.is_from(path, route) {
            let place = self.secrets.place(route.source());
            let is_due = self.waiting.note(now, place, path, route, len_bytes, CHALLENGE_INTERVAL);
            return Reaction { is_stranger: true, ..self.react(now, path, route, true, is_due) };
        }
        // It lost its place, or this end forgot it: who shows its key is known again.
        let is_due = len_bytes >= CHALLENGE_BYTES && self.strays.take(now);
        Reaction { is_stranger: true, ..self.react(now, path, route, false, is_due) }
    }

    /// A keep-alive of `len_bytes` came by a route. It is answered if it came by the route of its path.
    pub(super) fn handle_keep_alive(
        &mut self,
        now: Instant,
        path: PathId,
        route: Route,
        len_bytes: usize,
    ) -> Reaction {
        let Some(known) = self.known.get_mut(&path) else { return Reaction::default() };
        if known.route == route {
            return Reaction { is_accepted: true, ..Reaction::default() };
        }
        let is_due = len_bytes >= CHALLENGE_BYTES && known.note_candidate(now, route, len_bytes, None);
        self.react(now, path, route, false, is_due)
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
        self.known.insert(path, Known { key, route, fresh_at: now, candidate: None });
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

    /// Where `len_bytes` for a path may go; `syn_ack` is there if they are the answer to a SYN.
    pub(super) fn route(&mut self, path: PathId, len_bytes: usize, syn_ack: Option<Ports>) -> Option<Route> {
        if let Some(known) = self.known.get_mut(&path) {
            let elsewhere = syn_ack.and_then(|ports| known.candidate.as_mut()?.spend(len_bytes, ports));
            return Some(elsewhere.unwrap_or(known.route));
        }
        let route = self.waiting.spend(path, len_bytes);
        self.counters.unproven_drops += u64::from(route.is_none());
        route
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
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.known.len(), self.waiting.len())
    }

    fn react(
        &mut self,
        now: Instant,
        path: PathId,
        route: Route,
        is_accepted: bool,
        is_due: bool,
    ) -> Reaction {
        self.counters.challenges += u64::from(is_due);
        let challenge = is_due.then(|| self.secrets.challenge(path, route, epoch(now)));
        Reaction { is_accepted, challenge, is_stranger: false }
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
    fn note_candidate(&mut self, now: Instant, route: Route, len_bytes: usize, syn: Option<Ports>) -> bool {
        let room_bytes = len_bytes.saturating_mul(AMPLIFICATION);
        match self.candidate.as_deref_mut().filter(|candidate| candidate.route == route) {
            Some(candidate) => {
                let is_due = now.since(candidate.challenged_at) >= CHALLENGE_INTERVAL;
                if is_due {
                    candidate.challenged_at = now;
                }
                candidate.syn = syn.or(candidate.syn);
                let spent_bytes = if is_due { CHALLENGE_BYTES } else { 0 };
                candidate.room_bytes =
                    candidate.room_bytes.saturating_add(room_bytes).saturating_sub(spent_bytes);
                is_due
            }
            None => {
                let room_bytes = room_bytes.saturating_sub(CHALLENGE_BYTES);
                let candidate = Candidate { route, challenged_at: now, syn, room_bytes };
                self.candidate = Some(Box::new(candidate));
                true
            }
        }
    }
}

impl Candidate {
    /// The route, if an answer of `len_bytes` to a SYN may go there.
    fn spend(&mut self, len_bytes: usize, ports: Ports) -> Option<Route> {
        let left = self.room_bytes.checked_sub(len_bytes).filter(|_| self.syn == Some(ports))?;
        self.room_bytes = left;
        Some(self.route)
    }
}

/// How many stray datagrams may still be answered in this second.
#[derive(Debug, Default)]
struct Strays {
    second: u64,
    taken: u32,
}

impl Strays {
    fn take(&mut self, now: Instant) -> bool {
        let second = now.as_micros() / 1_000_000;
        if second != self.second {
            *self = Self { second, taken: 0 };
        }
        self.taken += 1;
        self.taken <= STRAYS_PER_SECOND
    }
}

fn epoch(now: Instant) -> u64 {
    now.as_nanos() / CHALLENGE_EPOCH.as_nanos()
}

fn leave(of_source: &mut HashMap<Source, usize>, source: Source) {
    if let Some(count) = of_source.get_mut(&source) {
        *count -= 1;
        if *count == 0 {
            of_source.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests;
