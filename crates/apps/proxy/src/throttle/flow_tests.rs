use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use polypath_units::{BitRate, Duration};
use proptest::prelude::*;

use super::*;
use crate::throttle::{Budget, Direction, MinuteOfDay, Selector};

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn at(now: Instant) -> Moment {
    Moment { now, minute: MinuteOfDay::new(12, 0).unwrap() }
}

fn key(client: u8, port: u16) -> FlowKey {
    let address = [198, 51, 100, 1].into();
    FlowKey {
        client: [192, 0, 2, client].into(),
        user: None,
        target: std::net::SocketAddr::new(address, port).into(),
        address,
        interface: None,
        local: None,
        direction: Direction::Down,
    }
}

fn limit(name: &str, rate: BitRate) -> Limit {
    Limit { rate: Some(rate), ..Limit::new(name) }
}

fn of_port(limit: Limit, port: u16) -> Limit {
    Limit { flows: Selector { ports: vec![port.into()], ..Selector::default() }, ..limit }
}

/// A connection that has `wanted` octets to move every so often, or always.
struct Source {
    flow: Flow,
    wanted: u64,
    every: Duration,
    left: u64,
    moved: u64,
    /// When its task runs next, and how much later than it should.
    next: Instant,
    late: Duration,
    given: Instant,
    longest: Duration,
}

impl Source {
    fn greedy(throttle: &Throttle, key: FlowKey) -> Self {
        Self::new(throttle, key, 1 << 20, Duration::ZERO)
    }

    fn new(throttle: &Throttle, key: FlowKey, wanted: u64, every: Duration) -> Self {
        let flow = throttle.open(key);
        let (next, late) = (Instant::ZERO, Duration::from_micros(300));
        Self {
            flow,
            wanted,
            every,
            left: wanted,
            moved: 0,
            next,
            late,
            given: Instant::ZERO,
            longest: Duration::ZERO,
        }
    }

    fn step(&mut self) {
        match self.flow.poll_grant(at(self.next), self.left, Waker::noop()) {
            Grant::Wait(until) => {
                assert!(until > self.next, "it would ask at once again");
                self.next = until + self.late;
            }
            Grant::Octets(octets) => {
                assert!(octets > 0 && octets <= self.left);
                self.moved += octets;
                self.left -= octets;
                if self.left == 0 {
                    self.longest = self.longest.max(self.next - self.given);
                    self.left = self.wanted;
                    self.next = self.next.max(self.given + self.every);
                    self.given = self.next;
                }
            }
        }
    }

    fn rate(&self, over: Duration) -> f64 {
        BitRate::from_bytes_over(self.moved, over).as_mbps_f64()
    }
}

fn run(sources: &mut [Source], until: Instant) {
    while let Some(first) =
        sources.iter_mut().min_by_key(|source| source.next).filter(|source| source.next < until)
    {
        first.step();
    }
}

#[track_caller]
fn assert_near(is: f64, wanted: f64) {
    assert!((is - wanted).abs() <= wanted * 0.05, "{is} rather than {wanted}");
}

const TEN_SECONDS: Instant = Instant::from_secs(10);

#[test]
fn flows_of_no_limit_are_free() {
    let throttle = Throttle::new();
    throttle.set(Instant::ZERO, of_port(limit("web", BitRate::from_mbps(1)), 80));
    let mut flow = throttle.open(key(1, 443));
    assert_eq!(flow.poll_grant(at(Instant::ZERO), u64::MAX, Waker::noop()), Grant::Octets(u64::MAX));
    assert!(flow.limits().is_empty());
    assert_eq!(throttle.limits()[0].flows, 0);
}

#[test]
fn one_flow_has_the_whole_rate_and_no_more() {
    for mbps in [1, 8, 100, 10_000] {
        let throttle = Throttle::new();
        throttle.set(Instant::ZERO, limit("all", BitRate::from_mbps(mbps)));
        let mut sources = [Source::greedy(&throttle, key(1, 443))];
        run(&mut sources, TEN_SECONDS);
        assert_near(sources[0].rate(Duration::from_secs(10)), mbps as f64);
    }
}

#[test]
fn flows_share_a_limit_fairly() {
    for count in [2, 5, 50] {
        let throttle = Throttle::new();
        throttle.set(Instant::ZERO, limit("all", BitRate::from_mbps(20)));
        let mut sources: Vec<Source> = (0..count).map(|_| Source::greedy(&throttle, key(1, 443))).collect();
        // One asks for a packet at a time, one comes later than the others after each wait.
        sources[0].wanted = 1000;
        sources[0].left = 1000;
        sources[1].late = Duration::from_millis(3);
        // Until the first of them has used what nobody else was there for.
        run(&mut sources, Instant::from_secs(1));
        sources.iter_mut().for_each(|source| source.moved = 0);
        run(&mut sources, Instant::from_secs(11));
        for source in &sources {
            assert_near(source.rate(Duration::from_secs(10)), 20.0 / f64::from(count));
        }
    }
}

#[test]
fn what_wants_little_does_not_wait_behind_what_wants_all() {
    let throttle = Throttle::new();
    throttle.set(Instant::ZERO, limit("all", BitRate::from_mbps(10)));
    let mut sources: Vec<Source> = (0..10).map(|_| Source::greedy(&throttle, key(1, 443))).collect();
    sources.push(Source::new(&throttle, key(1, 443), 1000, Duration::from_millis(50)));
    run(&mut sources, TEN_SECONDS);
    let small = sources.pop().unwrap();
    assert_near(small.rate(Duration::from_secs(10)), 0.16);
    assert!(small.longest <= Duration::from_millis(25), "{}", small.longest);
    let rest: f64 = sources.iter().map(|source| source.rate(Duration::from_secs(10))).sum();
    assert_near(rest, 9.84);
}

#[test]
fn the_least_of_several_limits_holds_and_the_rest_is_for_others() {
    let throttle = Throttle::new();
    throttle.set(Instant::ZERO, limit("all", BitRate::from_mbps(10)));
    throttle.set(Instant::ZERO, of_port(limit("web", BitRate::from_mbps(2)), 80));
    let mut sources = [Source::greedy(&throttle, key(1, 80)), Source::greedy(&throttle, key(1, 443))];
    let names: Vec<_> = sources[0].flow.limits();
    assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["all", "web"]);
    run(&mut sources, TEN_SECONDS);
    assert_near(sources[0].rate(Duration::from_secs(10)), 2.0);
    assert_near(sources[1].rate(Duration::from_secs(10)), 8.0);
}

#[test]
fn two_limits_that_both_are_short_leave_nobody_behind() {
    let throttle = Throttle::new();
    throttle.set(Instant::ZERO, limit("all", BitRate::from_mbps(10)));
    throttle.set(Instant::ZERO, of_port(limit("web", BitRate::from_mbps(4)), 80));
    let mut sources: Vec<Source> =
        [80, 80, 80, 443, 443].map(|port| Source::greedy(&throttle, key(1, port))).into();
    run(&mut sources, TEN_SECONDS);
    let rates: Vec<f64> = sources.iter().map(|source| source.rate(Duration::from_secs(10))).collect();
    // By turns in the first, three would have 6, and the second leaves them 4.
    assert!(rates[..3].iter().all(|rate| (1.2..1.4).contains(rate)), "{rates:?}");
    assert!(rates[3..].iter().all(|rate| (2.8..3.2).contains(rate)), "{rates:?}");
}

#[test]
fn one_that_does_not_come_to_its_turn_holds_nobody_up() {
    let throttle = Throttle::new();
    throttle.set(Instant::ZERO, limit("all", BitRate::from_mbps(10)));
    let mut sources: Vec<Source> = (0..20).map(|_| Source::greedy(&throttle, key(1, 443))).collect();
    run(&mut sources, Instant::from_secs(1));
    // All but one stop asking, and are still there.
    sources[1..].iter_mut().for_each(|source| source.next = Instant::FAR_FUTURE);
    let before = sources[0].moved;
    run(&mut sources, Instant::from_secs(11));
    assert_near(
        BitRate::from_bytes_over(sources[0].moved - before, Duration::from_secs(10)).as_mbps_f64(),
        10.0,
    );
    assert_eq!(throttle.limits()[0].flows, 20);
    drop(sources);
    assert_eq!(throttle.limits()[0].flows, 0);
}

#[test]
fn limits_change_while_flows_live_and_wake_those_that_wait() {
    let throttle = Throttle::new();
    throttle.set(Instant::ZERO, limit("all", BitRate::ZERO));
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut flow = throttle.open(key(1, 443));
    let is_granted =
        |flow: &mut Flow, now| matches!(flow.poll_grant(at(now), 1000, &waker), Grant::Octets(1000));
    assert_eq!(flow.poll_grant(at(Instant::ZERO), 1000, &waker), Grant::Wait(Instant::from_secs(1)));
    assert_eq!(throttle.limits()[0].waiting, 1);
    throttle.set(Instant::ZERO, limit("all", BitRate::from_mbps(8)));
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    assert_eq!(flow.poll_grant(at(Instant::ZERO), 1000, &waker), Grant::Wait(Instant::from_millis(1)));
    assert!(is_granted(&mut flow, Instant::from_millis(1)));
    while is_granted(&mut flow, Instant::from_millis(1)) {}
    assert!(throttle.remove("all"));
    assert!(!throttle.remove("all"));
    assert_eq!(bell.0.load(Ordering::Relaxed), 2);
    assert!(is_granted(&mut flow, Instant::from_millis(1)));
    throttle.set(Instant::from_millis(1), of_port(limit("other", BitRate::ZERO), 80));
    throttle.set(Instant::from_millis(1), of_port(limit("this", BitRate::ZERO), 443));
    assert_eq!(*flow.limits(), [Arc::from("this")]);
}

#[test]
fn a_limit_holds_in_its_hours() {
    let throttle = Throttle::new();
    let night =
        Limit { hours: Some("22:00-06:00".parse().unwrap()), ..limit("night", BitRate::from_mbps(1)) };
    throttle.set(Instant::ZERO, night);
    let mut flow = throttle.open(key(1, 443));
    let mut ask = |now, hour| {
        let moment = Moment { now, minute: MinuteOfDay::new(hour, 0).unwrap() };
        flow.poll_grant(moment, 1_000_000, Waker::noop())
    };
    assert_eq!(ask(Instant::ZERO, 21), Grant::Octets(1_000_000));
    while matches!(ask(Instant::ZERO, 22), Grant::Octets(_)) {}
    assert!(matches!(ask(Instant::ZERO, 5), Grant::Wait(_)));
    assert_eq!(ask(Instant::ZERO, 6), Grant::Octets(1_000_000));
}

#[test]
fn a_budget_ends_and_begins_again() {
    let throttle = Throttle::new();
    let budget = Budget { octets: 100_000, period: Duration::from_secs(60), then: BitRate::ZERO };
    throttle.set(Instant::ZERO, Limit { budget: Some(budget), ..Limit::new("volume") });
    let mut flow = throttle.open(key(1, 443));
    let mut ask = |now, wanted| flow.poll_grant(at(now), wanted, Waker::noop());
    let second = Instant::from_secs;
    assert_eq!(ask(second(5), 60_000), Grant::Octets(60_000));
    assert_eq!(ask(second(6), 60_000), Grant::Octets(40_000));
    assert_eq!(throttle.limits()[0].used, 100_000);
    assert_eq!(ask(second(7), 60_000), Grant::Wait(second(8)));
    assert_eq!(ask(Instant::from_millis(64_500), 60_000), Grant::Wait(second(65)));
    assert_eq!(ask(second(65), 60_000), Grant::Octets(60_000));
    assert_eq!(throttle.limits()[0].used, 60_000);
    throttle
        .set(second(66), Limit { budget: Some(Budget { octets: 70_000, ..budget }), ..Limit::new("volume") });
    assert_eq!(ask(second(66), 60_000), Grant::Octets(10_000));
    assert_eq!(throttle.limits()[0].ends, Some(second(125)));
}

#[test]
fn what_was_used_before_counts() {
    let throttle = Throttle::new();
    let budget = Budget { octets: 100_000, period: Duration::from_secs(60), then: BitRate::ZERO };
    throttle.set(Instant::ZERO, Limit { budget: Some(budget), ..Limit::new("volume") });
    let used = |limit: &str, octets, ends| Used { limit: limit.into(), client: None, octets, ends };
    throttle.set_used(Instant::ZERO, &used("volume", 90_000, Instant::from_secs(7)));
    throttle.set_used(Instant::ZERO, &used("none", 90_000, Instant::from_secs(7)));
    let of_client = Used { client: Some([192, 0, 2, 1].into()), ..used("volume", 1, Instant::from_secs(7)) };
    throttle.set_used(Instant::ZERO, &of_client);
    assert_eq!(throttle.used(Instant::ZERO), [used("volume", 90_000, Instant::from_secs(7))]);
    let mut flow = throttle.open(key(1, 443));
    let mut ask = |now| flow.poll_grant(at(now), 60_000, Waker::noop());
    assert_eq!(ask(Instant::from_secs(5)), Grant::Octets(10_000));
    assert_eq!(ask(Instant::from_secs(6)), Grant::Wait(Instant::from_secs(7)));
    assert_eq!(ask(Instant::from_secs(7)), Grant::Octets(60_000));
    throttle.set_used(Instant::from_secs(8), &used("volume", 1, Instant::FAR_FUTURE));
    assert_eq!(throttle.limits()[0].ends, Some(Instant::from_secs(68)));
    assert_eq!(throttle.used(Instant::from_secs(68)), []);
}

#[test]
fn what_each_client_used_before_counts_for_it() {
    let throttle = Throttle::new();
    let budget = Budget { octets: 100_000, period: Duration::from_secs(60), then: BitRate::ZERO };
    let each = Limit { budget: Some(budget), is_of_each_client: true, ..Limit::new("each") };
    throttle.set(Instant::ZERO, each);
    let ends = Instant::from_secs(7);
    let used = Used { limit: "each".into(), client: Some(key(1, 443).client), octets: 90_000, ends };
    throttle.set_used(Instant::ZERO, &used);
    // One for all says nothing of a client.
    throttle.set_used(Instant::ZERO, &Used { client: None, ..used.clone() });
    assert_eq!(throttle.used(Instant::ZERO), std::slice::from_ref(&used));
    let mut flows = [1, 2].map(|client| throttle.open(key(client, 443)));
    let mut ask = |flow: usize| flows[flow].poll_grant(at(Instant::ZERO), 60_000, Waker::noop());
    assert_eq!([ask(0), ask(1)], [Grant::Octets(10_000), Grant::Octets(60_000)]);
    let all = throttle.used(Instant::ZERO);
    assert_eq!(all[0], Used { octets: 100_000, ..used });
    assert_eq!((all.len(), all[1].octets), (2, 60_000));
}

#[test]
fn a_budget_that_was_given_up_begins_anew() {
    let second = Instant::from_secs;
    for is_of_each_client in [false, true] {
        let throttle = Throttle::new();
        let budget = Budget { octets: 100_000, period: Duration::from_secs(3), then: BitRate::ZERO };
        let with = Limit { budget: Some(budget), is_of_each_client, ..Limit::new("volume") };
        let without = Limit { is_of_each_client, ..limit("volume", BitRate::from_mbps(100)) };
        throttle.set(second(0), with.clone());
        let mut flow = throttle.open(key(1, 443));
        let mut ask = |now| flow.poll_grant(at(now), 1 << 20, Waker::noop());
        assert_eq!(ask(second(0)), Grant::Octets(100_000));
        assert!(matches!(ask(second(0)), Grant::Wait(_)));
        throttle.set(second(1), without);
        let state = &throttle.limits()[0];
        assert_eq!((state.used, state.ends), (0, None), "it has no budget of which it could be");
        throttle.set(second(2), with.clone());
        assert_eq!(ask(second(2)), Grant::Octets(100_000));
        assert!(matches!(ask(second(2)), Grant::Wait(_)));
        // A budget that is only changed stays used, and its period ends.
        throttle.set(second(3), with);
        assert!(matches!(ask(second(3)), Grant::Wait(until) if until <= second(5)));
        assert_eq!(ask(second(5)), Grant::Octets(100_000));
    }
}

#[test]
fn what_comes_after_the_budget_is_slower() {
    let throttle = Throttle::new();
    let budget =
        Budget { octets: 10_000_000, period: Duration::from_secs(3600), then: BitRate::from_mbps(1) };
    throttle.set(Instant::ZERO, Limit { budget: Some(budget), ..limit("volume", BitRate::from_mbps(80)) });
    let mut sources = [Source::greedy(&throttle, key(1, 443))];
    run(&mut sources, Instant::from_secs(1));
    assert_near(sources[0].moved as f64, 10_000_000.0);
    let before = sources[0].moved;
    run(&mut sources, Instant::from_secs(11));
    assert_near(
        BitRate::from_bytes_over(sources[0].moved - before, Duration::from_secs(10)).as_mbps_f64(),
        1.0,
    );
}

#[test]
fn what_is_given_back_is_there_for_others() {
    let throttle = Throttle::new();
    let budget = Budget { octets: 1_000_000, period: Duration::from_secs(60), then: BitRate::ZERO };
    throttle.set(Instant::ZERO, Limit { budget: Some(budget), ..limit("all", BitRate::from_mbps(8)) });
    let mut flow = throttle.open(key(1, 443));
    let mut other = throttle.open(key(1, 443));
    let all = |flow: &mut Flow| {
        let mut octets = 0;
        while let Grant::Octets(more) = flow.poll_grant(at(Instant::ZERO), 5000, Waker::noop()) {
            octets += more;
        }
        octets
    };
    assert_eq!(flow.poll_grant(at(Instant::ZERO), 5000, Waker::noop()), Grant::Octets(5000));
    flow.give_back(3000);
    flow.give_back(3000);
    assert_eq!(throttle.limits()[0].used, 0);
    // What comes in 50 ms.
    assert_eq!(all(&mut other), 50_000);
    // It was told to wait since.
    other.give_back(u64::MAX);
    assert_eq!(throttle.limits()[0].used, 50_000);
}

#[test]
fn nothing_is_given_back_to_a_budget_that_was_not_used() {
    let second = Instant::from_secs;
    let throttle = Throttle::new();
    let budget = Budget { octets: 1_000_000, period: Duration::from_secs(60), then: BitRate::ZERO };
    let volume = Limit { budget: Some(budget), ..limit("all", BitRate::from_mbps(8)) };
    throttle.set(second(0), volume.clone());
    let mut flow = throttle.open(key(1, 443));
    let mut other = throttle.open(key(1, 443));
    let ask = |flow: &mut Flow, now| flow.poll_grant(at(now), 5000, Waker::noop());
    let used = || throttle.limits()[0].used;
    assert_eq!(ask(&mut flow, second(1)), Grant::Octets(5000));
    assert_eq!(used(), 5000);
    // What passes while there is no budget.
    throttle.set(second(2), limit("all", BitRate::from_mbps(8)));
    assert_eq!(ask(&mut flow, second(2)), Grant::Octets(5000));
    flow.give_back(3000);
    throttle.set(second(3), volume.clone());
    assert_eq!(ask(&mut other, second(3)), Grant::Octets(5000));
    flow.give_back(1000);
    assert_eq!(used(), 5000);
    // What was used in a period that is over.
    assert_eq!(ask(&mut flow, second(4)), Grant::Octets(5000));
    assert_eq!(used(), 10_000);
    assert_eq!(ask(&mut other, second(64)), Grant::Octets(5000));
    flow.give_back(4000);
    assert_eq!(used(), 5000);
    other.give_back(4000);
    assert_eq!(used(), 1000);
    // What was used of a limit that was there before.
    assert_eq!(ask(&mut flow, second(65)), Grant::Octets(5000));
    throttle.remove("all");
    throttle.set(second(66), volume);
    assert_eq!(ask(&mut other, second(66)), Grant::Octets(5000));
    flow.give_back(4000);
    assert_eq!(used(), 5000);
}

proptest! {
    #[test]
    fn no_limit_is_ever_exceeded(
        kbps in prop::collection::vec(0u64..50_000, 1..4),
        steps in prop::collection::vec((0usize..6, 0u64..30_000, 0u64..100_000, 0u64..10_000), 1..200),
    ) {
        let throttle = Throttle::new();
        for (index, kbps) in kbps.iter().enumerate() {
            let limit = limit(&index.to_string(), BitRate::from_kbps(*kbps));
            throttle.set(Instant::ZERO, if index == 0 { limit } else { of_port(limit, index as u16) });
        }
        let mut flows: Vec<Flow> = (0..6).map(|index| throttle.open(key(1, 1 + index % 3))).collect();
        let mut moved = vec![0u64; kbps.len()];
        let mut now = Instant::ZERO;
        for (who, micros, wanted, back) in steps {
            now += Duration::from_micros(micros);
            match flows[who].poll_grant(at(now), wanted, Waker::noop()) {
                Grant::Wait(until) => prop_assert!(until > now),
                Grant::Octets(octets) => {
                    prop_assert!(octets <= wanted);
                    let back = back.min(octets);
                    flows[who].give_back(back);
                    moved[0] += octets - back;
                    if let Some(of_port) = moved.get_mut(1 + who % 3) {
                        *of_port += octets - back;
                    }
                }
            }
            for (index, kbps) in kbps.iter().enumerate() {
                let rate = BitRate::from_kbps(*kbps);
                let burst = rate.bytes_in(Duration::from_millis(50)).max(1500);
                prop_assert!(moved[index] <= rate.bytes_in(now - Instant::ZERO) + burst);
            }
        }
    }
}

#[test]
fn each_client_has_a_limit_of_its_own() {
    let throttle = Throttle::new();
    let budget = Budget { octets: 10_000, period: Duration::from_secs(60), then: BitRate::ZERO };
    let each = Limit { budget: Some(budget), is_of_each_client: true, ..Limit::new("each") };
    throttle.set(Instant::ZERO, each.clone());
    let ask = |flow: &mut Flow| flow.poll_grant(at(Instant::from_secs(1)), 8_000, Waker::noop());
    let [mut one, mut again, mut other] = [1, 1, 2].map(|client| throttle.open(key(client, 443)));
    assert_eq!([&mut one, &mut again, &mut other].map(ask), [8_000, 2_000, 8_000].map(Grant::Octets));
    assert!(matches!(ask(&mut one), Grant::Wait(_)));
    let state = &throttle.limits()[0];
    assert_eq!((state.clients, state.flows, state.waiting, state.used), (Some(2), 3, 1, 18_000));
    // Who comes back has no more for it.
    drop((one, again));
    let mut back = throttle.open(key(1, 443));
    assert!(matches!(ask(&mut back), Grant::Wait(_)));
    // Once it is of all together, nothing of it is used.
    throttle.set(Instant::from_secs(1), Limit { is_of_each_client: false, ..each });
    assert_eq!(ask(&mut back), Grant::Octets(8_000));
    assert_eq!(ask(&mut other), Grant::Octets(2_000));
}
