//! The paths of this end to those whom it dials: identifiers, and answers to challenges.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use polypath_units::{Duration, Instant};

use super::address::{OwnPath, PathId};
use super::datagram::{Header, Kind, Ports, syn_ports};
use super::keys::{Challenge, HostSecret, PathKey};

/// For so long after a SYN this end tells a peer the key of the path.
const INTRODUCES_FOR: Duration = Duration::from_secs(60);

/// So often, at the most, are flows of a path acknowledged because of challenges, ...
const ACKNOWLEDGMENT_INTERVAL: Duration = Duration::from_millis(200);

/// ... and by a peer that does not know the path, which challenges each segment, maybe. Longer than a round trip, so that the two
/// do not go on for ever. What comes so soon after a SYN is a part of its handshake.
const STRANGER_INTERVAL: Duration = Duration::from_secs(1);

/// A path that falls silent is asked so much earlier than bindings of translators need it, until it answers.
const EARLIER: u64 = 5;

/// A path that no flow uses is forgotten when it was silent for so long. It has the same identifier when it is used again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Answers to challenges in a second, for one path.
const ANSWERS_PER_SECOND: u32 = 100;

/// SYNs that may have to be sent again, for one path: about 200 bytes each.
const KEPT_SYNS: usize = 200;

/// So often, at the most, is a SYN sent again because a peer asks for it.
const MOST_REPEATS: u8 = 3;

/// A path to a peer: by which path of ours, and to which address.
pub(super) type Way = (OwnPath, SocketAddr);

/// The paths of this end.
#[derive(Debug)]
pub(super) struct OwnPaths {
    secret: HostSecret,
    paths: HashMap<Way, OwnState>,
    ways: HashMap<PathId, Way>,
}

#[derive(Debug)]
struct OwnState {
    key: PathKey,
    id: PathId,
    sent_at: Instant,
    /// The peer has answered a keep-alive since the last segment left.
    is_answered: bool,
    /// Where the peer's latest segment came.
    local: Option<Local>,
    syn_at: Option<Instant>,
    acknowledged_at: Option<Instant>,
    /// The second of the latest answer, and how many there were in it.
    answers: (u64, u32),
    /// The latest ones that left, in that order.
    syns: VecDeque<SentSyn>,
}

/// Where this end is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Local {
    pub(super) addr: IpAddr,
    /// The index of the interface, where the system tells.
    pub(super) interface: Option<u32>,
}

#[derive(Debug)]
struct SentSyn {
    ports: Ports,
    datagram: Vec<u8>,
    repeats: u8,
}

impl OwnPaths {
    /// No paths yet.
    pub(super) fn new(secret: HostSecret) -> Self {
        Self { secret, paths: HashMap::new(), ways: HashMap::new() }
    }

    /// A segment leaves by a way; gives its path.
    pub(super) fn note_sent(&mut self, now: Instant, way: Way, is_syn: bool) -> PathId {
        let state = self.paths.entry(way).or_insert_with(|| {
            let key = PathKey::derive(&self.secret, way.0, way.1);
            let id = key.id();
            self.ways.insert(id, way);
            OwnState::new(now, key, id)
        });
        (state.sent_at, state.is_answered) = (now, false);
        if is_syn {
            state.syn_at = Some(now);
        }
        state.id
    }

    /// A datagram with a SYN leaves by a way; the peer may not take it, and ask for it again.
    pub(super) fn keep_syn(&mut self, way: Way, datagram: &[u8]) {
        let Some((state, ports)) = self.paths.get_mut(&way).zip(syn_ports(datagram)) else { return };
        if let Some(before) = state.syns.iter().rposition(|syn| syn.ports == ports) {
            state.syns.remove(before);
        } else if state.syns.len() >= KEPT_SYNS {
            state.syns.pop_front();
        }
        state.syns.push_back(SentSyn { ports, datagram: datagram.to_vec(), repeats: 0 });
    }

    /// A SYN that left for `remote`, which asks for it again.
    pub(super) fn syn_again(&mut self, path: PathId, remote: SocketAddr, ports: Ports) -> Option<Vec<u8>> {
        let way = self.way(path, remote)?;
        let syns = &mut self.paths.get_mut(&way)?.syns;
        let syn = syns.iter_mut().rfind(|syn| syn.ports == ports && syn.repeats < MOST_REPEATS)?;
        syn.repeats += 1;
        Some(syn.datagram.clone())
    }

    /// A segment came by a way of ours, there.
    pub(super) fn note_local(&mut self, way: Way, local: Option<Local>) {
        if let Some(state) = self.paths.get_mut(&way) {
            state.local = local.or(state.local);
        }
    }

    /// Where a peer reaches a path of ours; the latest one, if none is named.
    pub(super) fn local_of(&self, path: OwnPath, peer: Option<IpAddr>) -> Option<Local> {
        let of_path = self.paths.iter().filter(|((own, remote), state)| {
            *own == path && peer.is_none_or(|peer| peer == remote.ip()) && state.local.is_some()
        });
        of_path.max_by_key(|(_, state)| state.sent_at).and_then(|(_, state)| state.local)
    }

    /// The way that a datagram of a path of ours came, if its other end is `remote`.
    pub(super) fn way(&self, path: PathId, remote: SocketAddr) -> Option<Way> {
        self.ways.get(&path).copied().filter(|way| is_same(way.1, remote))
    }

    /// The way of a path.
    pub(super) fn way_of(&self, path: PathId) -> Option<Way> {
        self.ways.get(&path).copied()
    }

    /// What to say to a challenge from `remote`, if anything.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        path: PathId,
        remote: SocketAddr,
        challenge: Challenge,
        is_stranger: bool,
    ) -> Option<Header> {
        let way = self.way(path, remote)?;
        let state = self.paths.get_mut(&way)?;
        let second = now.as_nanos() / 1_000_000_000;
        let count = if state.answers.0 == second { state.answers.1 + 1 } else { 1 };
        if count > ANSWERS_PER_SECOND {
            return None;
        }
        let kind = if is_stranger {
            // Whoever can make up the peer's address may ask; but not at any time.
            state.syn_at.filter(|at| now.since(*at) <= INTRODUCES_FOR)?;
            Kind::Introduction(challenge, state.key)
        } else {
            Kind::Proof(challenge, state.key.prove(challenge))
        };
        state.answers = (second, count);
        Some(Header { kind, to_owner: false, path })
    }

    /// The way of a path whose flows are to be acknowledged because a challenge for it came from `remote`. Who is challenged was
    /// not heard: the peer knows it by another address, or not at all. Then it may know nothing of the flows either, as after a
    /// restart, and resets them in its answers.
    pub(super) fn acknowledges(
        &mut self,
        now: Instant,
        path: PathId,
        remote: SocketAddr,
        is_stranger: bool,
    ) -> Option<Way> {
        let way = self.way(path, remote)?;
        let state = self.paths.get_mut(&way)?;
        let is_since = |at: Option<Instant>, span| at.is_some_and(|at| now.since(at) < span);
        let interval = if is_stranger { STRANGER_INTERVAL } else { ACKNOWLEDGMENT_INTERVAL };
        if is_since(state.acknowledged_at, interval) || is_stranger && is_since(state.syn_at, interval) {
            return None;
        }
        state.acknowledged_at = Some(now);
        Some(way)
    }

    /// An answer to a keep-alive of a path came from `remote`.
    pub(super) fn handle_keep_alive_answer(&mut self, path: PathId, remote: SocketAddr) {
        let state = self.way(path, remote).and_then(|way| self.paths.get_mut(&way));
        if let Some(state) = state {
            state.is_answered = true;
        }
    }

    /// Whether there is any.
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The paths in use for each of which a keep-alive leaves now: those that were silent for `silence`, or for a fifth of it
    /// where the peer was not heard to answer since the last segment. Forgets those that are not in use.
    pub(super) fn take_silent(
        &mut self,
        now: Instant,
        silence: Duration,
        in_use: &HashSet<(OwnPath, IpAddr)>,
    ) -> Vec<(PathId, Way)> {
        let mut silent = Vec::new();
        self.paths.retain(|way, state| {
            if !in_use.contains(&(way.0, way.1.ip())) {
                let stays = now.since(state.sent_at) < FORGOTTEN_AFTER;
                if !stays {
                    self.ways.remove(&state.id);
                }
                return stays;
            }
            let due = if state.is_answered { silence } else { silence / EARLIER };
            if now.since(state.sent_at) >= due {
                state.sent_at = now;
                silent.push((state.id, *way));
            }
            true
        });
        silent
    }
}

impl OwnState {
    fn new(now: Instant, key: PathKey, id: PathId) -> Self {
        Self {
            key,
            id,
            sent_at: now,
            is_answered: false,
            local: None,
            syn_at: None,
            acknowledged_at: None,
            answers: (0, 0),
            syns: VecDeque::new(),
        }
    }
}

/// Scopes and flow labels of IPv6 aside.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.ip().to_canonical() == other.ip().to_canonical() && one.port() == other.port()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &[(OwnPath, IpAddr)] = &[];

    fn at(secs: u64) -> Instant {
        Instant::from_secs(secs)
    }

    fn way(last: u8) -> Way {
        (OwnPath(1), ([192, 0, 2, last], 6824).into())
    }

    fn own() -> OwnPaths {
        OwnPaths::new(HostSecret([1; 32]))
    }

    #[test]
    fn peers_cannot_link_the_paths_of_one_host() {
        let mut own = own();
        let (one, other) = (own.note_sent(at(1), way(1), true), own.note_sent(at(1), way(2), true));
        assert_ne!(one, other);
        assert_eq!(one, own.note_sent(at(2), way(1), false));
        assert_eq!(own.way(one, way(1).1), Some(way(1)));
        assert_eq!(own.way(one, way(2).1), None, "only its peer speaks of a path");
    }

    #[test]
    fn a_path_is_where_the_peer_that_is_meant_was_heard() {
        let mut own = own();
        let heard = |last| Local { addr: [10, 0, 0, last].into(), interface: Some(last.into()) };
        for last in [1, 2] {
            own.note_sent(at(last.into()), way(last), true);
            own.note_local(way(last), Some(heard(last)));
        }
        let local = |peer: Option<u8>| own.local_of(OwnPath(1), peer.map(|last| way(last).1.ip()));
        assert_eq!((local(Some(1)), local(Some(2))), (Some(heard(1)), Some(heard(2))));
        assert_eq!(
            (local(None), local(Some(3))),
            (Some(heard(2)), None),
            "the latest, and one that was not heard"
        );
    }

    #[test]
    fn a_key_is_told_after_a_syn_and_to_its_peer_only() {
        let mut own = own();
        let path = own.note_sent(at(1), way(1), false);
        let nonce = Challenge([5; 8]);
        assert_eq!(own.answer(at(1), path, way(1).1, nonce, true), None, "no SYN");
        own.note_sent(at(2), way(1), true);
        let answer = own.answer(at(60), path, way(1).1, nonce, true).expect("an introduction");
        let Kind::Introduction(back, key) = answer.kind else { panic!("{answer:?}") };
        assert_eq!((back, key.id(), answer.path), (nonce, path, path));
        assert_eq!(own.answer(at(60), path, way(2).1, nonce, true), None, "from elsewhere");
        assert_eq!(own.answer(at(63), path, way(1).1, nonce, true), None, "too late");
        let answer = own.answer(at(63), path, way(1).1, nonce, false).expect("a proof");
        assert!(matches!(answer.kind, Kind::Proof(_, proof) if key.is_proof(nonce, proof)));
    }

    #[test]
    fn a_syn_is_repeated_for_its_peer_and_a_few_times_only() {
        let mut own = own();
        let path = own.note_sent(at(1), way(1), true);
        let syn = |port: u8| {
            let mut datagram = Header { kind: Kind::Segment, to_owner: false, path }.to_bytes();
            datagram.extend_from_slice(&[0, port, 1, 187, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0, 0]);
            datagram
        };
        (0..=KEPT_SYNS as u8).for_each(|port| own.keep_syn(way(1), &syn(port)));
        let ports = |port: u8| Ports { owner: port.into(), peer: 443 };
        assert_eq!(own.syn_again(path, way(1).1, ports(0)), None, "too many at once");
        assert_eq!(own.syn_again(path, way(2).1, ports(1)), None, "another peer");
        let repeats: Vec<_> =
            std::iter::from_fn(|| own.syn_again(path, way(1).1, ports(1))).take(9).collect();
        assert_eq!(repeats, vec![syn(1); MOST_REPEATS.into()]);
    }

    #[test]
    fn flows_are_acknowledged_when_their_peer_challenges_and_not_too_often() {
        let mut own = own();
        let path = own.note_sent(at(1), way(1), true);
        let mut acknowledges =
            |secs, way: Way, is_stranger| own.acknowledges(at(secs), path, way.1, is_stranger);
        assert_eq!(acknowledges(1, way(1), true), None, "the SYN's own challenge");
        assert_eq!(acknowledges(1, way(1), false), Some(way(1)), "of a path that the peer knows");
        assert_eq!(acknowledges(2, way(2), true), None, "from elsewhere");
        assert_eq!(acknowledges(2, way(1), true), Some(way(1)));
        assert_eq!(acknowledges(2, way(1), false), None, "at once again");
        assert_eq!(acknowledges(3, way(1), false), Some(way(1)));
    }

    #[test]
    fn answers_are_limited() {
        let mut own = own();
        let path = own.note_sent(at(1), way(1), true);
        let mut answers = |now| {
            (0..1000).filter(|_| own.answer(now, path, way(1).1, Challenge([5; 8]), false).is_some()).count()
        };
        assert_eq!(answers(at(1)), ANSWERS_PER_SECOND as usize);
        assert_eq!(answers(at(2)), ANSWERS_PER_SECOND as usize);
    }

    #[test]
    fn paths_in_use_are_kept_alive_and_others_forgotten() {
        let mut own = own();
        let silence = Duration::from_secs(15);
        let used = own.note_sent(at(1), way(1), true);
        let unused = own.note_sent(at(1), way(2), true);
        let in_use = HashSet::from([(OwnPath(1), way(1).1.ip())]);
        assert!(own.take_silent(at(3), silence, &in_use).is_empty());
        // Soon, until it answers.
        assert_eq!(own.take_silent(at(4), silence, &in_use), [(used, way(1))]);
        assert_eq!(own.take_silent(at(7), silence, &in_use), [(used, way(1))]);
        own.handle_keep_alive_answer(used, way(2).1);
        assert_eq!(own.take_silent(at(10), silence, &in_use), [(used, way(1))], "another peer answered");
        own.handle_keep_alive_answer(used, way(1).1);
        assert!(own.take_silent(at(24), silence, &in_use).is_empty());
        assert_eq!(own.take_silent(at(25), silence, &in_use), [(used, way(1))]);
        own.take_silent(at(61), silence, &in_use);
        assert_eq!(own.way(unused, way(2).1), None);
        assert!(own.way(used, way(1).1).is_some());
        own.take_silent(at(200), silence, &NONE.iter().copied().collect());
        assert!(own.paths.is_empty() && own.ways.is_empty());
        assert_eq!(own.note_sent(at(201), way(2), true), unused, "the same when it is used again");
    }
}
