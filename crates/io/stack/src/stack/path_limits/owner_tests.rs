//! Limits hold for what a connection has to send when nobody holds it any more, in virtual time.

use std::net::IpAddr;
use std::sync::Arc;

use polypath_mptcp::{Event, HostConfig};
use polypath_units::{BitRate, Duration};
use polypath_wire::Endpoint;

use super::*;

/// Once limits have come down to their rates.
const BEGIN: Instant = Instant::from_secs(10);
const DELAY: Duration = Duration::from_millis(5);
const OBJECT_BYTES: usize = 1_000_000;
const RATE: BitRate = BitRate::from_mbps(1);
/// Of the object without headers.
const TIME_AT_RATE: Duration = Duration::from_secs(8);

/// On their way, with the time at which they are there: they arrive in the order in which they left.
type Wire = std::collections::VecDeque<(Instant, Packet)>;

/// A server behind limits, as a stack has it, and a client.
struct Pair {
    now: Instant,
    server: Host,
    limits: PathLimits,
    client: Host,
    to_client: Wire,
    to_server: Wire,
}

impl Pair {
    /// A connection between both, as each knows it.
    fn new(limits: PathLimits) -> (Self, ConnectionId, ConnectionId) {
        let at = Endpoint::new(IpAddr::from([10, 0, 0, 2]), 80);
        let (mut server, mut client) =
            (Host::new(HostConfig::default(), 1), Host::new(HostConfig::default(), 2));
        server.listen(at).expect("the port is free");
        let from = Endpoint::new(IpAddr::from([10, 0, 0, 1]), 0);
        let near = client.connect(BEGIN, from, at, None).expect("a free port");
        let (to_client, to_server) = Default::default();
        let mut pair = Self { now: BEGIN, server, limits, client, to_client, to_server };
        let far = loop {
            pair.step();
            let event = std::iter::from_fn(|| pair.server.poll())
                .find_map(|(id, event)| matches!(event, Event::Accepted { .. }).then_some(id));
            if let Some(id) = event {
                break id;
            }
        };
        (pair, near, far)
    }

    /// On to the next thing that happens, unless nothing does.
    fn step(&mut self) -> bool {
        let now = self.now;
        while let Some(packet) = self.limits.poll_received(now) {
            self.server.handle_packet(now, packet);
        }
        while let Some(packet) = self.server.poll_transmit(now) {
            let free = self.limits.handle_sent(now, packet);
            self.to_client.extend(free.map(|packet| (now + DELAY, packet)));
        }
        while let Some(packet) = self.limits.poll_sent(now) {
            self.to_client.push_back((now + DELAY, packet));
        }
        while let Some(packet) = self.client.poll_transmit(now) {
            self.to_server.push_back((now + DELAY, packet));
        }
        let question = self.limits.question();
        let unsorted = self.limits.take_unsorted(&mut self.server).into_iter();
        let sorted = unsorted.map(|Unsorted { tuple, connection, is_client, owner }| {
            let seen = SeenSubflow { connection, is_client, ends: tuple, path_name: None, owner };
            (tuple, question.sort(&seen))
        });
        let sorted = sorted.collect();
        self.limits.sort(now, &question, sorted);

        let arrivals = [&self.to_client, &self.to_server].map(|wire| wire.front().map(|(at, _)| *at));
        let timers = [self.server.poll_timeout(), self.client.poll_timeout(), self.limits.poll_timeout()];
        let Some(next) = arrivals.into_iter().chain(timers).flatten().min() else { return false };
        self.now = next.max(now);
        self.server.handle_timeout(self.now);
        self.client.handle_timeout(self.now);
        while let Some((_, packet)) = self.to_client.pop_front_if(|(at, _)| *at <= self.now) {
            self.client.handle_packet(self.now, packet);
        }
        while let Some((_, packet)) = self.to_server.pop_front_if(|(at, _)| *at <= self.now) {
            if let Some(free) = self.limits.handle_received(self.now, packet) {
                self.server.handle_packet(self.now, free);
            }
        }
        true
    }
}

/// A limit of whatever is sent, or of what is sent for somebody.
fn limits(of: Option<&'static str>) -> PathLimits {
    let mut limits = PathLimits::default();
    let set = limits.begin_set();
    let limit = PathLimit::new(RATE, move |seen: &SeenSubflow| {
        let owner = seen.owner.as_ref().and_then(|owner| owner.downcast_ref::<&'static str>());
        LimitedWays { sent: of.is_none() || of == owner.copied(), received: false }
    });
    let host = Host::new(HostConfig::default(), 3);
    limits.set(Instant::ZERO, (set, "slow"), limit, &host).expect("room");
    // Where nothing passes, it comes down at once.
    for ms in 0..2000 {
        while limits.poll_sent(Instant::from_millis(ms)).is_some() {}
    }
    limits
}

/// How long an object takes that its server has let go of.
fn time_of_object(of: Option<&'static str>, owner: Option<&'static str>) -> Duration {
    let (mut pair, near, far) = Pair::new(limits(of));
    let kept = owner.map(Arc::new);
    if let Some(owner) = &kept {
        pair.server.attach(far, owner.clone());
    }
    // Packets tell of their subflow by now; what is known of whose it is holds for the first of the object.
    pair.limits.look_again(pair.server.subflow_tuples().collect::<Vec<_>>().into_iter());
    pair.step();
    let begun = pair.now;
    let sent = pair.server.send(far, vec![7; OBJECT_BYTES].into()).expect("it is open");
    assert_eq!(sent, OBJECT_BYTES, "it fits into the send buffer");
    pair.server.release(pair.now, far);
    let mut received = 0;
    while received < OBJECT_BYTES {
        assert!(pair.step(), "{received} bytes came, and nothing happens any more");
        received += std::iter::from_fn(|| pair.client.recv(near)).map(|data| data.len()).sum::<usize>();
    }
    let took = pair.now.since(begun);
    pair.client.release(pair.now, near);
    while pair.server.population().connections > 0 {
        assert!(pair.step(), "it is not closed");
    }
    assert!(kept.is_none_or(|kept| Arc::strong_count(&kept) == 1), "no owner outlives the connection");
    took
}

#[test]
fn an_object_in_the_send_buffer_is_held_to_the_rate_whomever_the_limit_names() {
    for (of, owner) in [(None, None), (None, Some("alice")), (Some("alice"), Some("alice"))] {
        let took = time_of_object(of, owner);
        assert!(took >= TIME_AT_RATE && took < TIME_AT_RATE * 2, "{of:?} {owner:?}: {took:?}");
    }
    for owner in [None, Some("bob")] {
        let took = time_of_object(Some("alice"), owner);
        assert!(took < Duration::from_secs(1), "{owner:?}: {took:?}");
    }
}

#[test]
fn names_are_those_of_who_set_them() {
    let host = Host::new(HostConfig::default(), 1);
    let mut limits = PathLimits::default();
    let sets = [limits.begin_set(), limits.begin_set()];
    let limit = |mbps| PathLimit::new(BitRate::from_mbps(mbps), |_: &SeenSubflow| LimitedWays::default());
    let now = Instant::ZERO;
    for (set, mbps) in sets.into_iter().zip([1, 2]) {
        limits.set(now, (set, "slow"), limit(mbps), &host).expect("room");
    }
    let rates = |limits: &mut PathLimits| {
        sets.map(|set| limits.states(set, &host).iter().map(|state| state.rate).collect::<Vec<_>>())
    };
    let [one, two] = [1, 2].map(BitRate::from_mbps);
    assert_eq!(rates(&mut limits), [vec![one], vec![two]]);
    assert!(limits.remove(now, sets[0], Some("fast"), &host).is_empty());
    assert_eq!(limits.remove(now, sets[0], None, &host).len(), 1);
    assert_eq!(rates(&mut limits), [vec![], vec![two]]);
    assert_eq!(limits.remove(now, sets[1], Some("slow"), &host).len(), 1);
    assert!(!limits.is_active());
}
