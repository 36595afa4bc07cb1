use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use polypath_units::BitRate;

use super::*;
use crate::throttle::{Budget, Limit, MinuteOfDay};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn at(ms: u64) -> Moment {
    Moment { now: Instant::from_millis(ms), minute: MinuteOfDay::new(12, 0).unwrap() }
}

fn server(number: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, number], 53))
}

fn up(flows: &mut DatagramFlows<usize>, ms: u64, to: SocketAddr, octets: usize) -> bool {
    flows.goes_up(|| at(ms), (&to.into(), to.ip()), octets, || octets)
}

fn down(flows: &mut DatagramFlows<usize>, ms: u64, from: SocketAddr, octets: usize) -> bool {
    flows.goes_down(|| at(ms), from, octets, || octets)
}

fn limited(limit: Limit) -> (Throttle, DatagramFlows<usize>) {
    let throttle = Throttle::new();
    throttle.set(Instant::ZERO, limit);
    let flows = DatagramFlows::new(&throttle, CLIENT, None);
    (throttle, flows)
}

fn rate(kbps: u64, burst: u64) -> Limit {
    Limit { rate: Some(BitRate::from_kbps(kbps)), burst: Some(burst), ..Limit::new("slow") }
}

/// Octets of those that come out until then.
fn drain(flows: &mut DatagramFlows<usize>, from: u64, until: u64) -> Vec<(u64, usize)> {
    let (mut ms, mut out) = (from, Vec::new());
    loop {
        while let Some((_, octets)) = flows.poll(at(ms), Waker::noop()) {
            out.push((ms, octets));
        }
        match flows.poll_timeout() {
            Some(next) if next <= Instant::from_millis(until) => ms = next.as_nanos().div_ceil(1_000_000),
            _ => return out,
        }
    }
}

#[test]
fn without_limits_nothing_waits_and_no_clock_is_asked() {
    let throttle = Throttle::new();
    let mut flows = DatagramFlows::<()>::new(&throttle, CLIENT, None);
    for number in 0..10 {
        let to = server(number);
        assert!(flows.goes_up(|| panic!("a clock"), (&to.into(), to.ip()), 1000, || panic!("a copy")));
        assert!(flows.goes_down(|| panic!("a clock"), to, 1000, || panic!("a copy")));
    }
    assert!(!flows.are_waiting());
}

#[test]
fn few_wait_for_a_short_time_and_the_rest_are_dropped() {
    // 1000 bytes each 100 ms.
    let (throttle, mut flows) = limited(rate(80, 3000));
    let gone = (0..40).filter(|_| up(&mut flows, 0, server(1), 1000)).count();
    let state = |throttle: &Throttle| {
        let state = throttle.limits().remove(0);
        (state.flows, state.waiting, state.dropped_datagrams)
    };
    assert_eq!((gone, state(&throttle)), (3, (2, 1, 5)));
    // The other way has a queue of its own, but the limit is of both together.
    assert!(!down(&mut flows, 0, server(1), 1000));
    let passed = drain(&mut flows, 0, 5000);
    assert!(passed.iter().all(|(ms, _)| *ms < 1000) && (9..=10).contains(&passed.len()), "{passed:?}");
    let dropped = 41 - 3 - passed.len() as u64;
    assert_eq!((state(&throttle), flows.are_waiting()), ((2, 0, dropped), false));
    // What was saved meanwhile is the burst.
    assert_eq!((0..9).filter(|_| up(&mut flows, 9000, server(1), 1000)).count(), 3);
}

#[test]
fn datagrams_of_any_size_pass_at_the_rate() {
    for (octets, kbps) in [(1, 8), (100, 80), (1400, 1000), (60_000, 1000), (65_507, 3000)] {
        let (_, mut flows) = limited(rate(kbps, 2000));
        let (mut passed, until) = (0, 20_000);
        for ms in 0..until {
            // As much as there is room for.
            for _ in 0..3 {
                passed += u64::from(up(&mut flows, ms, server(1), octets)) * octets as u64;
            }
            while let Some((_, octets)) = flows.poll(at(ms), Waker::noop()) {
                passed += octets as u64;
            }
        }
        let most = kbps * 125 * until / 1000 + 2000;
        assert!(
            passed <= most && passed + 66_000 >= most * 95 / 100,
            "{octets} at {kbps}: {passed} of {most}"
        );
    }
}

#[test]
fn a_budget_is_used_up_and_comes_again() {
    let mut limit = Limit::new("little");
    limit.budget = Some(Budget { octets: 2500, period: Duration::from_secs(10), then: BitRate::ZERO });
    let (throttle, mut flows) = limited(limit);
    assert!(up(&mut flows, 0, server(1), 1000) && down(&mut flows, 0, server(1), 1000));
    assert!(!up(&mut flows, 0, server(1), 1000));
    assert_eq!((throttle.limits()[0].used, throttle.limits()[0].waiting), (2500, 1));
    assert_eq!(drain(&mut flows, 0, 9000), []);
    assert_eq!((throttle.limits()[0].dropped_datagrams, throttle.limits()[0].waiting), (1, 0));
    // A part of the next one was paid for.
    assert!(up(&mut flows, 10_000, server(1), 1000));
    assert_eq!(throttle.limits()[0].used, 500);
}

#[test]
fn limits_are_of_those_that_they_name() {
    let mut limit = rate(8, 1500);
    limit.flows.hosts = vec!["example.org".parse().unwrap()];
    limit.flows.direction = Some(Direction::Down);
    let (throttle, mut flows) = limited(limit);
    let named: Target = "example.org:53".parse().unwrap();
    let goes = flows.goes_up(|| at(0), (&named, server(1).ip()), 60_000, || 0);
    assert!(goes && up(&mut flows, 0, server(2), 60_000), "up is free");
    assert!(down(&mut flows, 0, server(2), 60_000), "another server");
    assert!(!down(&mut flows, 0, server(1), 60_000), "what the client called so");
    assert_eq!((throttle.limits()[0].flows, throttle.limits()[0].waiting), (1, 1));
    let mut others = DatagramFlows::<usize>::new(&throttle, CLIENT, None);
    assert!(down(&mut others, 0, server(1), 60_000), "nobody has called it so there");
}

#[test]
fn each_client_has_a_limit_for_itself_that_says_so() {
    let mut limit = rate(8, 1500);
    limit.is_of_each_client = true;
    let (throttle, mut flows) = limited(limit);
    let mut others = DatagramFlows::<usize>::new(&throttle, "192.0.2.2".parse().unwrap(), None);
    assert!(up(&mut flows, 0, server(1), 1500) && !up(&mut flows, 0, server(2), 1500));
    assert!(up(&mut others, 0, server(1), 1500) && !up(&mut others, 0, server(1), 1500));
    assert_eq!(throttle.limits()[0].clients, Some(2));
}

#[test]
fn places_and_what_waits_for_them_are_bounded() {
    let (throttle, mut flows) = limited(rate(8, 1500));
    for number in 0..200 {
        up(&mut flows, 0, server(number), 1000);
        assert!(throttle.limits()[0].flows <= 2 * MOST_PLACES);
        let [held, _] = flows.held;
        assert!(held.datagrams <= MOST_WAITING && held.octets <= MOST_WAITING_OCTETS);
    }
    // The first that waited were of places that are forgotten.
    assert!(flows.are_waiting());
    drop(flows);
    assert_eq!((throttle.limits()[0].flows, throttle.limits()[0].waiting), (0, 0));
}

#[test]
fn what_waits_goes_when_the_limit_is_gone() {
    let (throttle, mut flows) = limited(rate(8, 1500));
    assert!(up(&mut flows, 0, server(1), 1500));
    assert!(!up(&mut flows, 0, server(1), 1500) && !up(&mut flows, 0, server(1), 1500));
    let bell = Arc::new(Bell::default());
    assert!(flows.poll(at(0), &bell.clone().into()).is_none() && flows.poll_timeout().is_some());
    assert!(throttle.remove("slow"));
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    assert_eq!(drain(&mut flows, 0, 0), [(0, 1500), (0, 1500)]);
    assert!(up(&mut flows, 0, server(1), 1500) && !flows.are_waiting());
}
