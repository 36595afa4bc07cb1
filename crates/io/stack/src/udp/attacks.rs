//! What strangers get out of the table of peers and of the receive buffers, in figures: for `polypath bench attacks`.

use std::net::SocketAddr;

use polypath_units::{Duration, Instant};
use polypath_wire::Segment;

use super::address::{OwnPath, PathId};
use super::datagram::{CHALLENGE_BYTES, Kind, OPENING_BYTES, OVERHEAD_BYTES, RETRY_BYTES};
use super::driver::{RECEIVE_BUFFER_BYTES, compact};
use super::keys::{HostSecret, PathKey, Proof};
use super::own::OwnPaths;
use super::peers::{Came, PeerLimits, Peers, Reaction};
use super::route::Route;
use crate::stack::BufferPool;

const HONEST: u16 = 100;
const SYN_ACK_BYTES: usize = 72;

fn at(millis: u64) -> Instant {
    Instant::from_secs(1000) + Duration::from_millis(millis)
}

fn route(remote: impl Into<SocketAddr>) -> Route {
    Route { socket: 0, remote: remote.into(), local: Some([192, 0, 2, 1].into()) }
}

fn honest_route(number: u16) -> Route {
    route(([198, 51, 100, 1], 1000 + number))
}

/// A host that opens one path.
struct Owner {
    own: OwnPaths,
    path: PathId,
    server: SocketAddr,
}

impl Owner {
    fn new(number: u16) -> Self {
        let mut secret = [7; 32];
        secret[..2].copy_from_slice(&number.to_be_bytes());
        let server = ([192, 0, 2, 1], 6824).into();
        let mut own = OwnPaths::new(HostSecret(secret));
        let path = own.note_sent(at(0), (OwnPath(1), server), true);
        Self { own, path, server }
    }

    /// Answers a challenge from `route`; true if the path leads there now.
    fn answers(&mut self, peers: &mut Peers, now: Instant, route: Route, reaction: Reaction) -> bool {
        let Some(challenge) = reaction.challenge else { return false };
        let answer = self.own.answer(now, self.path, self.server, challenge, reaction.is_stranger);
        match answer.map(|answer| answer.kind) {
            Some(Kind::Introduction(challenge, key)) => {
                peers.handle_introduction(now, self.path, route, challenge, key)
            }
            Some(Kind::Proof(challenge, proof)) => {
                peers.handle_proof(now, self.path, route, challenge, proof)
            }
            _ => false,
        }
    }

    fn connects(&mut self, peers: &mut Peers, now: Instant, route: Route) -> bool {
        let reaction = peers
            .handle_segment(now, Came { path: self.path, route, len_bytes: OPENING_BYTES, is_syn: true });
        self.answers(peers, now, route, reaction)
    }
}

/// Somebody who knows the identifier of a path sends 2000 datagrams with it from an address of its own, answers each challenge with
/// what it can make up, and has the owner answer them: datagrams for the path that would go there then. `None` if the owner has
/// no path to begin with.
#[must_use]
pub fn datagrams_to_a_thief() -> Option<usize> {
    let (mut peers, mut owner) = (Peers::new(PeerLimits::default(), [9; 32]), Owner::new(1));
    let (home, thief) = (honest_route(1), route(([203, 0, 113, 66], 666)));
    if !owner.connects(&mut peers, at(0), home) {
        return None;
    }
    let mut stolen = 0;
    for millis in 0..1000 {
        let now = at(millis);
        let segment = peers
            .handle_segment(now, Came { path: owner.path, route: thief, len_bytes: 1400, is_syn: false });
        let keep_alive = peers.handle_keep_alive(
            now,
            Came { path: owner.path, route: thief, len_bytes: CHALLENGE_BYTES, is_syn: false },
        );
        for reaction in [segment, keep_alive] {
            if let Some(challenge) = reaction.challenge {
                peers.handle_proof(now, owner.path, thief, challenge, Proof([0; 16]));
                peers.handle_introduction(now, owner.path, thief, challenge, PathKey([0; 16]));
                owner.answers(&mut peers, now, home, Reaction { is_stranger: false, ..reaction });
            }
            stolen += usize::from(peers.route(owner.path, 1400) != Some(home));
        }
    }
    Some(stolen)
}

/// 70 000 SYNs a second from made-up addresses: paths of 100 owners that lead to them no more, and of as many that come meanwhile,
/// those that find no way in.
#[must_use]
pub fn paths_lost_in_a_flood() -> (usize, usize) {
    let mut peers = Peers::new(PeerLimits::default(), [9; 32]);
    let known: Vec<PathId> = (0..HONEST)
        .filter_map(|number| {
            let mut owner = Owner::new(number);
            owner.connects(&mut peers, at(0), honest_route(number)).then_some(owner.path)
        })
        .collect();
    let mut locked_out = 0;
    for number in 0..70_000_u32 {
        let spoofed = route((number.wrapping_mul(2_654_435_761).to_be_bytes(), 9));
        let now = at(u64::from(number) / 70);
        peers.handle_segment(
            now,
            Came { path: PathId(number.into()), route: spoofed, len_bytes: OPENING_BYTES, is_syn: true },
        );
        if number % 700 == 350 {
            let late = HONEST + (number / 700) as u16;
            locked_out += usize::from(!Owner::new(late).connects(&mut peers, now, honest_route(late)));
        }
    }
    let leads_home = |(number, path): (u16, &PathId)| {
        peers.known_route(*path).is_some_and(|known| known == honest_route(number))
    };
    let left = (0..).zip(&known).filter(|known| leads_home(*known)).count();
    (usize::from(HONEST) - left, locked_out)
}

/// A second of 5000 SYNs from one network, or from made-up addresses, with paths that nobody has: how many of them reach the stack,
/// how many bytes they get for one that they send, and how many round trips the slowest of 100 honest connects needs meanwhile
/// (infinitely many, if one does not connect).
#[must_use]
pub fn strange_syns(are_addresses_made_up: bool) -> StrangeSyns {
    let mut peers = Peers::new(PeerLimits::default(), [9; 32]);
    let (mut reached_stack, mut sent_bytes, mut most_round_trips) = (0, 0, 0.0_f64);
    for number in 0..5000_u32 {
        let now = at(u64::from(number) / 5);
        let made_up = if are_addresses_made_up { number.wrapping_mul(2_654_435_761) } else { number & 0xff };
        let stranger = route((made_up.to_be_bytes(), number as u16));
        let path = PathId(number.into());
        let reaction =
            peers.handle_segment(now, Came { path, route: stranger, len_bytes: OPENING_BYTES, is_syn: true });
        reached_stack += usize::from(reaction.is_accepted);
        let challenge_bytes = if reaction.is_accepted { CHALLENGE_BYTES } else { RETRY_BYTES };
        sent_bytes += reaction.challenge.map_or(0, |_| challenge_bytes + OVERHEAD_BYTES);
        // Whatever the stack has to say, as often as there is room for.
        while peers.route(path, SYN_ACK_BYTES).is_some() {
            sent_bytes += SYN_ACK_BYTES + OVERHEAD_BYTES;
        }
        if number % 50 == 25 {
            let honest = (number / 50) as u16;
            most_round_trips = most_round_trips.max(round_trips(&mut peers, now, honest));
        }
    }
    let bytes_for_one = sent_bytes as f64 / (5000 * (OPENING_BYTES + OVERHEAD_BYTES)) as f64;
    StrangeSyns { reached_stack, bytes_for_one, most_round_trips }
}

/// What strange SYNs got.
#[derive(Clone, Copy, Debug)]
pub struct StrangeSyns {
    /// SYNs that the stack saw.
    pub reached_stack: usize,
    /// Bytes for one byte, with headers of IP and UDP.
    pub bytes_for_one: f64,
    /// Round trips of the slowest honest connect.
    pub most_round_trips: f64,
}

/// Round trips until an owner's SYN is the stack's.
fn round_trips(peers: &mut Peers, now: Instant, number: u16) -> f64 {
    let (mut owner, home) = (Owner::new(number), honest_route(number));
    for count in 1..=2 {
        let reaction = peers.handle_segment(
            now,
            Came { path: owner.path, route: home, len_bytes: OPENING_BYTES, is_syn: true },
        );
        if reaction.is_accepted {
            return f64::from(count);
        }
        owner.answers(peers, now, home, reaction);
    }
    f64::INFINITY
}

/// Memory that 33 330 datagrams of ten bytes hold, for each byte of their payload.
#[must_use]
pub fn memory_of_small_datagrams() -> f64 {
    const COUNT: usize = 33_330;
    const LEN_BYTES: usize = 10;
    let pool = BufferPool::new(RECEIVE_BUFFER_BYTES, 64);
    let held: Vec<Segment> = (0..COUNT)
        .map(|_| {
            let payload = pool.take().freeze(LEN_BYTES).into();
            let mut segment = Segment { payload, ..Segment::default() };
            compact(&mut segment, &pool, usize::MAX);
            segment
        })
        .collect();
    let payload_bytes: usize = held.iter().map(|segment| segment.payload.len()).sum();
    (pool.held_bytes() + payload_bytes) as f64 / payload_bytes as f64
}
