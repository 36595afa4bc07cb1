//! Owners and attackers against the table, in virtual time.

use super::super::datagram::{Header, Kind, OwnPath};
use super::super::keys::HostSecret;
use super::super::own::OwnPaths;
use super::*;

const SYN_BYTES: usize = 72;
const SYN_ACK_BYTES: usize = 72;
const PORTS: Ports = Ports { owner: 50_000, own: 443 };

fn at(millis: u64) -> Instant {
    Instant::from_secs(1000) + Duration::from_millis(millis)
}

fn route(net: u8, port: u16) -> Route {
    Route { socket: 0, remote: ([198, 51, net, 1], port).into(), local: Some([192, 0, 2, 1].into()) }
}

fn peers() -> Peers {
    Peers::new(PeerLimits::default(), [9; 32])
}

fn small(paths: usize, of_source: usize) -> Peers {
    let limits = PeerLimits { paths, paths_of_source: of_source, waiting: 64, waiting_of_source: 4 };
    Peers::new(limits, [9; 32])
}

/// An owner of one path, and the path.
struct Owner {
    own: OwnPaths,
    path: PathId,
    server: SocketAddr,
}

impl Owner {
    fn new(number: u64) -> Self {
        let mut secret = [7; 32];
        secret[..8].copy_from_slice(&number.to_be_bytes());
        let server = ([192, 0, 2, 1], 6824).into();
        let mut own = OwnPaths::new(HostSecret(secret));
        let path = own.note_sent(at(0), (OwnPath(1), server), true);
        Self { own, path, server }
    }

    /// Answers a challenge that the table sent to `route`, from there.
    fn answer(&mut self, peers: &mut Peers, now: Instant, route: Route, reaction: Reaction) -> bool {
        let challenge = reaction.challenge.expect("a challenge");
        let stranger = reaction.is_stranger;
        let answer = self.own.answer(now, self.path, self.server, challenge, stranger).expect("an answer");
        hand_in(peers, now, route, answer)
    }

    /// Opens a connection; true if the path is known then.
    fn connect(&mut self, peers: &mut Peers, now: Instant, route: Route) -> bool {
        let reaction = peers.handle_segment(now, self.path, route, SYN_BYTES, Some(PORTS));
        assert!(reaction.is_accepted);
        self.answer(peers, now, route, reaction)
    }
}

fn hand_in(peers: &mut Peers, now: Instant, route: Route, header: Header) -> bool {
    match header.kind {
        Kind::Introduction(challenge, key) => {
            peers.handle_introduction(now, header.path, route, challenge, key)
        }
        Kind::Proof(challenge, proof) => peers.handle_proof(now, header.path, route, challenge, proof),
        kind => panic!("{kind:?} is no answer"),
    }
}

#[test]
fn a_path_is_known_when_its_owner_answers_and_not_before() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    let reaction = peers.handle_segment(at(0), owner.path, route(1, 1), SYN_BYTES, Some(PORTS));
    assert!(reaction.is_accepted && reaction.is_stranger);
    assert_eq!(peers.counts(), (0, 1));
    // The SYN/ACK leaves at once all the same: no round trip is added.
    assert_eq!(peers.route(owner.path, SYN_ACK_BYTES, Some(PORTS)), Some(route(1, 1)));
    assert!(owner.answer(&mut peers, at(20), route(1, 1), reaction));
    assert_eq!(peers.counts(), (1, 0));
    assert_eq!(peers.route(owner.path, 1 << 20, None), Some(route(1, 1)));
}

#[test]
fn an_identifier_from_elsewhere_takes_nothing() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    owner.connect(&mut peers, at(0), route(1, 1));
    let (home, thief) = (route(1, 1), route(66, 666));
    for millis in 0..1000 {
        let now = at(millis);
        peers.handle_segment(now, owner.path, thief, 32, None);
        let reaction = peers.handle_keep_alive(now, owner.path, thief, CHALLENGE_BYTES);
        assert!(!reaction.is_accepted, "no answer before a proof");
        assert_eq!(peers.route(owner.path, 1400, None), Some(home));
        let Some(challenge) = reaction.challenge else { continue };
        // It receives its challenges, and knows everything but the key.
        assert!(!peers.handle_proof(now, owner.path, thief, challenge, Proof([0; 16])));
        assert!(!peers.handle_introduction(now, owner.path, thief, challenge, PathKey([0; 16])));
        // It makes the owner answer, whose answer comes from where the owner is.
        assert!(!owner.answer(&mut peers, now, home, Reaction { is_stranger: false, ..reaction }));
        assert_eq!(peers.route(owner.path, 1400, None), Some(home));
    }
    assert_eq!(peers.counters().route_changes, 0);
}

#[test]
fn the_owner_takes_its_path_along() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    owner.connect(&mut peers, at(0), route(1, 1));
    let elsewhere = route(2, 7);
    let reaction = peers.handle_keep_alive(at(50), owner.path, elsewhere, CHALLENGE_BYTES);
    assert_eq!(peers.route(owner.path, 1400, None), Some(route(1, 1)), "until the answer");
    assert!(owner.answer(&mut peers, at(80), elsewhere, reaction));
    assert_eq!(peers.route(owner.path, 1400, None), Some(elsewhere));
    assert!(peers.handle_keep_alive(at(90), owner.path, elsewhere, CHALLENGE_BYTES).is_accepted);
    // Others who try at the same time do not keep it from that.
    let third = route(3, 8);
    let mut latest = None;
    for millis in 100..200 {
        peers.handle_segment(at(millis), owner.path, route(66, millis as u16), 32, None);
        let reaction = peers.handle_segment(at(millis), owner.path, third, 1400, None);
        latest = reaction.challenge.map(|_| reaction).or(latest);
    }
    assert!(owner.answer(&mut peers, at(200), third, latest.expect("a challenge")));
    assert_eq!(peers.route(owner.path, 1400, None), Some(third));
}

#[test]
fn a_challenge_holds_for_its_route_and_some_seconds() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    owner.connect(&mut peers, at(0), route(1, 1));
    let reaction = peers.handle_segment(at(0), owner.path, route(2, 2), 1400, None);
    let challenge = reaction.challenge.expect("a challenge");
    let answer = owner.own.answer(at(0), owner.path, owner.server, challenge, false).expect("an answer");
    assert!(!hand_in(&mut peers, at(0), route(2, 3), answer), "another port");
    assert!(!hand_in(&mut peers, at(0), Route { socket: 1, ..route(2, 2) }, answer), "another socket");
    assert!(!hand_in(&mut peers, at(16_001), route(2, 2), answer), "late");
    assert!(hand_in(&mut peers, at(7_999), route(2, 2), answer));
}

#[test]
fn nobody_introduces_a_path_whose_key_is_not_theirs() {
    let (mut peers, owner, mut other) = (peers(), Owner::new(1), Owner::new(2));
    let reaction = peers.handle_segment(at(0), owner.path, route(1, 1), SYN_BYTES, Some(PORTS));
    let challenge = reaction.challenge.expect("a challenge");
    let answer = other.own.answer(at(0), other.path, other.server, challenge, true).expect("an answer");
    let Kind::Introduction(_, key) = answer.kind else { panic!("{answer:?}") };
    assert!(!peers.handle_introduction(at(0), owner.path, route(1, 1), challenge, key));
    assert_eq!((peers.counts(), peers.counters().failed_proofs), ((0, 1), 1));
}

#[test]
fn an_unproven_address_gets_three_bytes_for_one_at_most() {
    let mut peers = peers();
    let path = Owner::new(1).path;
    let (mut received, mut sent) = (0, 0);
    for millis in 0..5000 {
        if millis % 500 == 0 {
            received += SYN_BYTES;
            let reaction = peers.handle_segment(at(millis), path, route(1, 1), SYN_BYTES, Some(PORTS));
            sent += reaction.challenge.map_or(0, |_| CHALLENGE_BYTES);
        }
        sent += peers.route(path, SYN_ACK_BYTES, Some(PORTS)).map_or(0, |_| SYN_ACK_BYTES);
        assert!(sent <= 3 * received, "{sent} for {received}");
    }
    assert!(peers.counters().unproven_drops > 0);
    // A datagram that is no longer than a challenge causes none where nothing is known.
    assert_eq!(peers.handle_keep_alive(at(0), PathId(5), route(1, 1), 12), Reaction::default());
    assert_eq!(peers.handle_segment(at(0), PathId(5), route(1, 1), 19, None).challenge, None);
}

#[test]
fn the_answer_to_a_syn_from_a_new_address_goes_there() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    owner.connect(&mut peers, at(0), route(1, 1));
    let elsewhere = route(1, 2);
    let ports = Ports { owner: 50_001, ..PORTS };
    let reaction = peers.handle_segment(at(9000), owner.path, elsewhere, SYN_BYTES, Some(ports));
    assert_eq!(peers.route(owner.path, SYN_ACK_BYTES, Some(ports)), Some(elsewhere));
    // Only that, and not for ever.
    assert_eq!(peers.route(owner.path, SYN_ACK_BYTES, Some(PORTS)), Some(route(1, 1)));
    assert_eq!(peers.route(owner.path, SYN_ACK_BYTES, None), Some(route(1, 1)));
    let more = (0..9).filter(|_| peers.route(owner.path, SYN_ACK_BYTES, Some(ports)) == Some(elsewhere));
    assert!(more.count() < 3);
    assert!(owner.answer(&mut peers, at(9020), elsewhere, reaction));
    assert_eq!(peers.route(owner.path, 1400, None), Some(elsewhere));
}

#[test]
fn a_flood_of_syns_evicts_no_known_path_and_locks_nobody_out() {
    let mut peers = peers();
    let mut owners: Vec<Owner> = (0..100).map(Owner::new).collect();
    for (owner, port) in owners.iter_mut().zip(1..) {
        assert!(owner.connect(&mut peers, at(0), route(1, port)));
    }
    let mut late = Owner::new(1000);
    let reaction = peers.handle_segment(at(0), late.path, route(2, 1), SYN_BYTES, Some(PORTS));
    for number in 0..70_000_u64 {
        let spoofed = ([10, (number >> 16) as u8, (number >> 8) as u8, number as u8], 9).into();
        let spoofed = Route { remote: spoofed, ..route(0, 0) };
        peers.handle_segment(at(number / 100), PathId(number), spoofed, SYN_BYTES, Some(PORTS));
        assert!(peers.counts().1 <= PeerLimits::default().waiting);
    }
    for (owner, port) in owners.iter().zip(1..) {
        assert_eq!(peers.route(owner.path, 1400, None), Some(route(1, port)));
    }
    // Its place is gone, or not: its answer counts all the same, since the challenge needs no memory.
    peers.waiting.remove(late.path);
    assert!(late.answer(&mut peers, at(100), route(2, 1), reaction));
    assert_eq!(peers.route(late.path, 1400, None), Some(route(2, 1)));
}

#[test]
fn one_source_takes_its_share_of_the_waiting_room_only() {
    let mut peers = peers();
    let owner = Owner::new(1);
    peers.handle_segment(at(0), owner.path, route(1, 1), SYN_BYTES, Some(PORTS));
    for number in 0..70_000_u64 {
        peers.handle_segment(at(0), PathId(number), route(66, number as u16), SYN_BYTES, Some(PORTS));
    }
    assert!(peers.counts().1 <= 1 + PeerLimits::default().waiting_of_source);
    assert!(peers.route(owner.path, SYN_ACK_BYTES, Some(PORTS)).is_some());
}

#[test]
fn who_lost_its_place_and_its_challenge_is_asked_again() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    let reaction = peers.handle_segment(at(0), owner.path, route(1, 1), 1400, None);
    assert!(!reaction.is_accepted && reaction.is_stranger);
    assert!(owner.answer(&mut peers, at(20), route(1, 1), reaction));
    assert!(peers.handle_segment(at(40), owner.path, route(1, 1), 1400, None).is_accepted);
    // At most so many of what belongs to nothing are answered.
    let answered = (0..5000).filter(|&path| {
        peers.handle_segment(at(50), PathId(path), route(66, 1), 1400, None).challenge.is_some()
    });
    assert!(answered.count() <= STRAYS_PER_SECOND as usize);
}

#[test]
fn a_full_table_forgets_what_no_flow_uses_and_nothing_else() {
    let mut peers = small(8, 8);
    let mut owners: Vec<Owner> = (0..20).map(Owner::new).collect();
    for (owner, net) in owners.iter_mut().zip(0..8) {
        assert!(owner.connect(&mut peers, at(0), route(net, 1)));
    }
    let in_use = owners[..3].iter().map(|owner| owner.path).collect();
    assert!(!peers.wants_census(at(0)));
    let reaction = peers.handle_segment(at(5000), owners[9].path, route(9, 1), SYN_BYTES, Some(PORTS));
    assert!(!owners[9].answer(&mut peers, at(5000), route(9, 1), reaction), "full");
    assert!(peers.wants_census(at(5000)));
    peers.handle_census(at(5000), &in_use);
    assert_eq!(peers.counts().0, 8, "a flow may come of each still");
    // A new SYN says so too.
    peers.handle_segment(at(9000), owners[4].path, route(4, 1), SYN_BYTES, Some(PORTS));
    assert!(!owners[9].connect(&mut peers, at(10_500), route(9, 1)));
    assert!(peers.wants_census(at(10_500)));
    peers.handle_census(at(10_500), &in_use);
    let left: Vec<usize> = (0..8).filter(|&number| peers.known.contains_key(&owners[number].path)).collect();
    assert_eq!(left, [0, 1, 2, 4]);
    assert!(owners[9].connect(&mut peers, at(10_520), route(9, 1)));
    // Who was forgotten introduces itself again.
    assert!(owners[5].connect(&mut peers, at(10_530), route(5, 1)));
}

#[test]
fn one_source_cannot_fill_the_table() {
    let mut peers = small(100, 4);
    let mut known = 0;
    for number in 0..50 {
        known += usize::from(Owner::new(number).connect(&mut peers, at(0), route(66, number as u16)));
    }
    assert_eq!(known, 4);
    let mut owner = Owner::new(1000);
    assert!(owner.connect(&mut peers, at(0), route(1, 1)));
    // Moving does not get around it for long: the share follows.
    let reaction = peers.handle_segment(at(0), owner.path, route(2, 1), SYN_BYTES, None);
    assert!(owner.answer(&mut peers, at(0), route(2, 1), reaction));
    assert_eq!(peers.of_source.values().sum::<usize>(), peers.known.len());
    assert!(!peers.of_source.contains_key(&route(1, 1).source()));
}
