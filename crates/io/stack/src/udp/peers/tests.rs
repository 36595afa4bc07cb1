//! Owners and attackers against the table, in virtual time.

use polypath_tcp::source_prefix;

use super::super::address::OwnPath;
use super::super::datagram::{Header, Kind, OVERHEAD_BYTES, RETRY_BYTES};
use super::super::keys::HostSecret;
use super::super::own::OwnPaths;
use super::*;

/// Our header, and TCP's with as many options as fit.
const LONGEST_SYN_ACK_BYTES: usize = 72;

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
    let limits = PeerLimits {
        paths,
        paths_of_source: of_source,
        waiting: 64,
        waiting_of_source: 4,
        ..PeerLimits::default()
    };
    Peers::new(limits, [9; 32])
}

/// The SYN of a path.
fn opening(path: PathId, route: Route) -> Came {
    Came { path, route, len_bytes: OPENING_BYTES, is_syn: true }
}

/// A keep-alive of a path.
fn keep_alive(path: PathId, route: Route) -> Came {
    Came { path, route, len_bytes: CHALLENGE_BYTES, is_syn: false }
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
        let reaction = peers
            .handle_segment(now, Came { path: self.path, route, len_bytes: OPENING_BYTES, is_syn: true });
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
    let reaction = peers.handle_segment(at(0), opening(owner.path, route(1, 1)));
    assert!(reaction.is_accepted && reaction.is_stranger);
    assert_eq!(peers.counts(), (0, 1));
    // The SYN/ACK leaves at once all the same: no round trip is added.
    assert_eq!(peers.route(owner.path, LONGEST_SYN_ACK_BYTES), Some(route(1, 1)));
    assert!(owner.answer(&mut peers, at(20), route(1, 1), reaction));
    assert_eq!(peers.counts(), (1, 0));
    assert_eq!(peers.route(owner.path, 1 << 20), Some(route(1, 1)));
}

#[test]
fn an_identifier_from_elsewhere_takes_nothing() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    owner.connect(&mut peers, at(0), route(1, 1));
    let (home, thief) = (route(1, 1), route(66, 666));
    for millis in 0..1000 {
        let now = at(millis);
        peers.handle_segment(now, Came { path: owner.path, route: thief, len_bytes: 32, is_syn: false });
        let reaction = peers.handle_keep_alive(now, keep_alive(owner.path, thief));
        assert!(!reaction.is_accepted, "no answer before a proof");
        assert_eq!(peers.route(owner.path, 1400), Some(home));
        let Some(challenge) = reaction.challenge else { continue };
        // It receives its challenges, and knows everything but the key.
        assert!(!peers.handle_proof(now, owner.path, thief, challenge, Proof([0; 16])));
        assert!(!peers.handle_introduction(now, owner.path, thief, challenge, PathKey([0; 16])));
        // It makes the owner answer, whose answer comes from where the owner is.
        assert!(!owner.answer(&mut peers, now, home, Reaction { is_stranger: false, ..reaction }));
        assert_eq!(peers.route(owner.path, 1400), Some(home));
    }
    assert_eq!(peers.counters().route_changes, 0);
}

#[test]
fn the_owner_takes_its_path_along() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    owner.connect(&mut peers, at(0), route(1, 1));
    let elsewhere = route(2, 7);
    let reaction = peers.handle_keep_alive(at(50), keep_alive(owner.path, elsewhere));
    assert_eq!(peers.route(owner.path, 1400), Some(route(1, 1)), "until the answer");
    assert!(owner.answer(&mut peers, at(80), elsewhere, reaction));
    assert_eq!(peers.route(owner.path, 1400), Some(elsewhere));
    assert!(peers.handle_keep_alive(at(90), keep_alive(owner.path, elsewhere)).is_accepted);
    // Others who try at the same time do not keep it from that.
    let third = route(3, 8);
    let mut latest = None;
    for millis in 100..200 {
        peers.handle_segment(
            at(millis),
            Came { path: owner.path, route: route(66, millis as u16), len_bytes: 32, is_syn: false },
        );
        let reaction = peers.handle_segment(
            at(millis),
            Came { path: owner.path, route: third, len_bytes: 1400, is_syn: false },
        );
        latest = reaction.challenge.map(|_| reaction).or(latest);
    }
    assert!(owner.answer(&mut peers, at(200), third, latest.expect("a challenge")));
    assert_eq!(peers.route(owner.path, 1400), Some(third));
}

#[test]
fn a_challenge_holds_for_its_route_and_some_seconds() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    owner.connect(&mut peers, at(0), route(1, 1));
    let reaction = peers
        .handle_segment(at(0), Came { path: owner.path, route: route(2, 2), len_bytes: 1400, is_syn: false });
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
    let reaction = peers.handle_segment(at(0), opening(owner.path, route(1, 1)));
    let challenge = reaction.challenge.expect("a challenge");
    let answer = other.own.answer(at(0), other.path, other.server, challenge, true).expect("an answer");
    let Kind::Introduction(_, key) = answer.kind else { panic!("{answer:?}") };
    assert!(!peers.handle_introduction(at(0), owner.path, route(1, 1), challenge, key));
    assert_eq!((peers.counts(), peers.counters().failed_proofs), ((0, 1), 1));
}

#[test]
fn an_unproven_address_gets_no_more_bytes_than_it_sends() {
    let mut peers = peers();
    let path = Owner::new(1).path;
    let (mut received, mut sent) = (0, 0);
    let on_the_wire = |len: usize| len + OVERHEAD_BYTES;
    for millis in 0..5000 {
        if millis % 500 == 0 {
            let len = if millis == 2000 { 32 } else { OPENING_BYTES };
            received += on_the_wire(len);
            let reaction = peers
                .handle_segment(at(millis), Came { path, route: route(1, 1), len_bytes: len, is_syn: true });
            sent += reaction.challenge.map_or(0, |_| on_the_wire(CHALLENGE_BYTES));
        }
        sent += peers.route(path, LONGEST_SYN_ACK_BYTES).map_or(0, |_| on_the_wire(LONGEST_SYN_ACK_BYTES));
        assert!(sent <= received, "{sent} for {received}");
        assert!(millis > 0 || sent > on_the_wire(LONGEST_SYN_ACK_BYTES), "both are sent at once");
    }
    assert!(peers.counters().unproven_drops > 0);
    // A SYN that is shorter than it has to be is not taken, and its challenge is no longer.
    let reaction = peers.handle_segment(
        at(0),
        Came { path: PathId(4), route: route(1, 1), len_bytes: OPENING_BYTES - 1, is_syn: true },
    );
    assert!(!reaction.is_accepted && reaction.challenge.is_some());
    const { assert!(RETRY_BYTES < 32, "no SYN is shorter") };
    // A datagram that is no longer than a challenge causes none where nothing is known.
    let short = Came { path: PathId(5), route: route(1, 1), len_bytes: 12, is_syn: false };
    assert_eq!(peers.handle_keep_alive(at(0), short).challenge, None);
    assert_eq!(
        peers
            .handle_segment(at(0), Came { path: PathId(5), route: route(1, 1), len_bytes: 19, is_syn: false })
            .challenge,
        None
    );
}

#[test]
fn nothing_from_an_unproven_address_reaches_the_stack_and_nothing_goes_there() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    owner.connect(&mut peers, at(0), route(1, 1));
    for (millis, is_syn) in (0..1000).zip([false, true].into_iter().cycle()) {
        let thief = route(66, millis as u16 % 3);
        let reaction = peers.handle_segment(
            at(millis),
            Came { path: owner.path, route: thief, len_bytes: OPENING_BYTES, is_syn },
        );
        assert!(!reaction.is_accepted);
        assert_eq!(peers.route(owner.path, 1400), Some(route(1, 1)));
        assert!(
            peers
                .handle_segment(
                    at(millis),
                    Came { path: owner.path, route: route(1, 1), len_bytes: 1400, is_syn: false }
                )
                .is_accepted
        );
    }
    // While the path waits, too.
    let mut late = Owner::new(2);
    let reaction = peers.handle_segment(at(0), opening(late.path, route(1, 1)));
    for is_syn in [true, false] {
        let stolen = peers.handle_segment(
            at(1),
            Came { path: late.path, route: route(66, 1), len_bytes: OPENING_BYTES, is_syn },
        );
        assert!(!stolen.is_accepted);
    }
    assert_eq!(peers.route(late.path, LONGEST_SYN_ACK_BYTES), Some(route(1, 1)));
    assert!(late.answer(&mut peers, at(20), route(1, 1), reaction));
}

#[test]
fn a_syn_from_a_new_address_is_taken_behind_the_proof() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    owner.connect(&mut peers, at(0), route(1, 1));
    let elsewhere = route(1, 2);
    // Each is challenged, however many come: its owner waits.
    for _ in 0..3 {
        let reaction = peers.handle_segment(at(9000), opening(owner.path, elsewhere));
        assert!(!reaction.is_accepted && !reaction.is_stranger && reaction.challenge.is_some());
    }
    let reaction = peers.handle_segment(at(9000), opening(owner.path, elsewhere));
    assert!(owner.answer(&mut peers, at(9020), elsewhere, reaction));
    assert!(peers.handle_segment(at(9020), opening(owner.path, elsewhere)).is_accepted);
    assert_eq!(peers.route(owner.path, 1400), Some(elsewhere));
}

/// A second of SYNs from addresses that `spoofed` makes up, and an honest connect every ten milliseconds: how many of those needed
/// one round trip, and how many two.
fn connects_beside_a_flood(per_second: u64, spoofed: impl Fn(u64) -> Route) -> (usize, usize) {
    let mut peers = peers();
    let (mut in_one, mut in_two, mut reached_the_stack) = (0, 0, 0);
    for number in 0..per_second {
        let now = at(0) + Duration::from_nanos(number * 1_000_000_000 / per_second);
        let syn = peers.handle_segment(now, opening(PathId(number), spoofed(number)));
        reached_the_stack += u32::from(syn.is_accepted);
        if number % (per_second / 100) == 0 {
            let (mut owner, home) = (Owner::new(number), route(1, number as u16));
            let reaction = peers.handle_segment(now, opening(owner.path, home));
            in_one += usize::from(reaction.is_accepted);
            if !reaction.is_accepted && owner.answer(&mut peers, now, home, reaction) {
                let again = peers.handle_segment(now, opening(owner.path, home));
                in_two += usize::from(again.is_accepted);
            }
        }
    }
    let limits = PeerLimits::default();
    assert!(reached_the_stack <= 2 * limits.unproven_per_second, "{reached_the_stack}");
    assert!(peers.counts().1 <= limits.waiting);
    (in_one, in_two)
}

#[test]
fn honest_connects_beside_a_flood_need_one_more_round_trip_at_most() {
    let one_address = |number: u64| route(66, number as u16);
    let made_up = |number: u64| {
        let bits = (number as u32).wrapping_mul(2_654_435_761);
        Route { remote: (bits.to_be_bytes(), 9).into(), ..route(0, 0) }
    };
    // One network spends its own share only.
    assert_eq!(connects_beside_a_flood(5000, one_address), (100, 0));
    assert_eq!(connects_beside_a_flood(70_000, one_address), (100, 0));
    for per_second in [5000, 70_000] {
        let (in_one, in_two) = connects_beside_a_flood(per_second, made_up);
        assert_eq!(in_one + in_two, 100, "{per_second} a second: {in_one} in one, {in_two} in two");
    }
}

#[test]
fn a_flood_of_syns_evicts_no_known_path_and_locks_nobody_out() {
    let mut peers = peers();
    let mut owners: Vec<Owner> = (0..100).map(Owner::new).collect();
    for (owner, port) in owners.iter_mut().zip(1..) {
        assert!(owner.connect(&mut peers, at(0), route(1, port)));
    }
    let mut late = Owner::new(1000);
    let reaction = peers.handle_segment(at(0), opening(late.path, route(2, 1)));
    for number in 0..70_000_u64 {
        let spoofed = ([10, (number >> 16) as u8, (number >> 8) as u8, number as u8], 9).into();
        let spoofed = Route { remote: spoofed, ..route(0, 0) };
        peers.handle_segment(at(number / 100), opening(PathId(number), spoofed));
        assert!(peers.counts().1 <= PeerLimits::default().waiting);
    }
    for (owner, port) in owners.iter().zip(1..) {
        assert_eq!(peers.route(owner.path, 1400), Some(route(1, port)));
    }
    // Its place is gone, or not: its answer counts all the same, since the challenge needs no memory.
    peers.waiting.remove(late.path);
    assert!(late.answer(&mut peers, at(100), route(2, 1), reaction));
    assert_eq!(peers.route(late.path, 1400), Some(route(2, 1)));
}

#[test]
fn one_source_takes_its_share_of_the_waiting_room_only() {
    let mut peers = peers();
    let owner = Owner::new(1);
    peers.handle_segment(at(0), opening(owner.path, route(1, 1)));
    for number in 0..70_000_u64 {
        peers.handle_segment(
            at(0),
            Came {
                path: PathId(number),
                route: route(66, number as u16),
                len_bytes: OPENING_BYTES,
                is_syn: true,
            },
        );
    }
    assert!(peers.counts().1 <= 1 + PeerLimits::default().waiting_of_source);
    assert!(peers.route(owner.path, LONGEST_SYN_ACK_BYTES).is_some());
}

#[test]
fn who_lost_its_place_and_its_challenge_is_asked_again() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    let segment = Came { path: owner.path, route: route(1, 1), len_bytes: 1400, is_syn: false };
    let reaction = peers.handle_segment(at(0), segment);
    assert!(reaction.is_accepted && reaction.is_stranger, "the stack may have to reset it");
    assert!(owner.answer(&mut peers, at(20), route(1, 1), reaction));
    let reaction = peers.handle_segment(at(40), segment);
    assert!(reaction.is_accepted && !reaction.is_stranger);
    // At most so many of what belongs to nothing are answered.
    let of_nobody = |path| Came { path: PathId(path), route: route(66, 1), ..segment };
    let (mut accepted, mut challenged) = (0, 0);
    for path in 0..20_000 {
        let reaction = peers.handle_segment(at(50), of_nobody(path));
        accepted += u32::from(reaction.is_accepted);
        challenged += u32::from(reaction.challenge.is_some());
    }
    let limits = PeerLimits::default();
    assert_eq!(accepted, limits.unproven_per_second_of_source);
    assert_eq!(challenged, accepted + limits.challenges_per_second_of_source);
}

/// This end was restarted: it knows nothing of a path whose flows are older than the time in which keys are told.
#[test]
fn who_forgot_a_path_can_reset_its_flows_and_says_so_to_keep_alives() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    let late = at(120_000);
    let keep_alive = keep_alive(owner.path, route(1, 1));
    let reaction = peers.handle_keep_alive(late, keep_alive);
    let challenge = reaction.challenge.expect("a challenge");
    assert!(!reaction.is_accepted && reaction.is_stranger);
    assert_eq!(
        owner.own.answer(late, owner.path, owner.server, challenge, true),
        None,
        "its key is not told"
    );
    assert_eq!(
        owner.own.acknowledges(late, owner.path, owner.server, true).map(|way| way.1),
        Some(owner.server)
    );
    // An acknowledgment without options gets a reset, and nothing more.
    let acknowledgment = Came { len_bytes: RESET_BYTES, ..keep_alive };
    for _ in 0..3 {
        let reaction = peers.handle_segment(late, acknowledgment);
        assert!(reaction.is_accepted && reaction.challenge.is_none());
        let back = [peers.route(owner.path, RESET_BYTES), peers.route(owner.path, RESET_BYTES)];
        assert_eq!(back, [Some(route(1, 1)), None]);
    }
    // Somebody else who knows the identifier is not taken for the owner.
    let elsewhere = Came { route: route(66, 1), ..acknowledgment };
    assert!(!peers.handle_segment(late, elsewhere).is_accepted);
    assert_eq!(
        peers.handle_keep_alive(late, Came { len_bytes: CHALLENGE_BYTES - 1, ..keep_alive }).challenge,
        None
    );
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
    let reaction = peers.handle_segment(at(5000), opening(owners[9].path, route(9, 1)));
    assert!(!owners[9].answer(&mut peers, at(5000), route(9, 1), reaction), "full");
    assert!(peers.wants_census(at(5000)));
    peers.handle_census(at(5000), &in_use);
    assert_eq!(peers.counts().0, 8, "a flow may come of each still");
    // A new SYN says so too.
    peers.handle_segment(at(9000), opening(owners[4].path, route(4, 1)));
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
    let reaction = peers.handle_segment(
        at(0),
        Came { path: owner.path, route: route(2, 1), len_bytes: OPENING_BYTES, is_syn: false },
    );
    assert!(owner.answer(&mut peers, at(0), route(2, 1), reaction));
    assert_eq!(peers.of_source.values().sum::<usize>(), peers.known.len());
    assert!(!peers.of_source.contains_key(&route(1, 1).source()));
}

#[test]
fn all_paths_of_a_source_are_one_source_to_the_stack() {
    let mut peers = peers();
    let mut source = |number: u64, route: Route| {
        let mut owner = Owner::new(number);
        assert!(owner.connect(&mut peers, at(0), route));
        source_prefix(peers.addr(owner.path, route))
    };
    let hog = source(0, route(66, 0));
    assert!((1..300).all(|number| source(number, route(66, number as u16)) == hog));
    assert!((0..60).all(|net| source(1000 + u64::from(net), route(net, 1)) != hog));
}

#[test]
fn an_address_of_the_stack_leads_to_the_source_that_it_tells() {
    let (mut peers, mut owner) = (peers(), Owner::new(1));
    let (of_another, home) = (route(1, 1), route(66, 666));
    let came = |route, is_syn| Came { path: owner.path, route, len_bytes: OPENING_BYTES, is_syn };
    let (syn, other) = (came(of_another, true), came(home, false));
    // The SYN has an address that is not its sender's; the introduction comes from where that is.
    assert!(peers.handle_segment(at(0), syn).is_accepted);
    let blamed = peers.addr(owner.path, of_another);
    assert_eq!((peers.path(blamed), peers.remote(blamed)), (Some(owner.path), Some(of_another.remote)));
    let reaction = peers.handle_segment(at(1), other);
    assert!(owner.answer(&mut peers, at(20), home, reaction));
    assert_eq!((peers.path(blamed), peers.remote(blamed)), (None, None));
    let own = peers.addr(owner.path, home);
    assert_ne!(source_prefix(own), source_prefix(blamed));
    // It stays when the path moves, so that flows live on; who asks is told where the peer is now.
    let elsewhere = route(2, 7);
    let reaction = peers.handle_segment(at(3000), Came { route: elsewhere, ..other });
    assert!(owner.answer(&mut peers, at(3020), elsewhere, reaction));
    assert_eq!((peers.addr(owner.path, elsewhere), peers.remote(own)), (own, Some(elsewhere.remote)));
}
