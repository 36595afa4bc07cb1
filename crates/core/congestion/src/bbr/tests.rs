use polypath_units::{BitRate, Duration, Instant};

use super::cycle::State;
use super::*;
use crate::{Config, FlowView, RateSample};

const MSS: u64 = 1500;
const RTT: Duration = Duration::from_millis(40);
/// 1000 segments a second, 40 a round trip.
const RATE: BitRate = BitRate::from_mbps(12);

/// A sender and a pipe of which every acknowledgment of a segment is made by hand.
struct Pipe {
    bbr: Bbr,
    now: Instant,
    delivered: u64,
    lost: u64,
    in_flight: u64,
    rate: BitRate,
    rtt: Duration,
    srtt: Option<Duration>,
}

impl Pipe {
    fn new() -> Self {
        let config = Config { mss_bytes: MSS as u32, ..Config::default() };
        Self {
            bbr: Bbr::new(&config),
            now: Instant::from_secs(1),
            delivered: 0,
            lost: 0,
            in_flight: 0,
            rate: RATE,
            rtt: RTT,
            srtt: None,
        }
    }

    fn state(&self) -> State {
        self.bbr.cycle.state
    }

    /// A round trip of `packets` acknowledgments; of the flight that they end, `lost` segments were lost.
    fn round(&mut self, packets: u64, lost: u64) {
        self.round_seen(packets, lost, |_| {});
    }

    fn round_seen(&mut self, packets: u64, lost: u64, mut see: impl FnMut(&Self)) {
        let start = self.delivered;
        let lost_before = self.lost;
        for i in 0..packets {
            self.now += self.rtt / packets;
            self.delivered += MSS;
            if i < lost {
                self.lost += MSS;
                if i == 0 {
                    self.bbr.on_congestion(self.now, self.in_flight, &Flows::single(&FlowView::default()));
                }
            }
            let prior = (start + i * MSS).saturating_sub(packets * MSS);
            self.acknowledge(prior, lost_before, packets * MSS);
            see(self);
        }
        if lost > 0 {
            self.bbr.on_recovery_end(self.now);
        }
    }

    fn acknowledge(&mut self, prior: u64, lost_before: u64, tx_in_flight: u64) {
        let rate = RateSample {
            delivery_rate: self.rate,
            app_limited: false,
            prior_delivered_bytes: prior,
            delivered_bytes: self.delivered,
            tx_in_flight_bytes: tx_in_flight,
            in_flight_bytes: self.in_flight,
            lost_bytes: self.lost - lost_before,
            total_lost_bytes: self.lost,
        };
        let ack = Ack {
            now: self.now,
            acked_bytes: MSS,
            in_flight_bytes: self.in_flight,
            rtt: Some(self.rtt),
            srtt: self.srtt.unwrap_or(self.rtt),
            min_rtt: RTT,
            window_limited: true,
            round_ended: false,
            rate: Some(rate),
        };
        self.bbr.on_ack(&ack, &Flows::single(&FlowView::default()));
    }

    /// Through Startup and Drain, at a steady rate.
    fn fill(&mut self) {
        self.in_flight = 100 * MSS;
        for _ in 0..6 {
            self.round(40, 0);
        }
        self.in_flight = 40 * MSS;
        self.round(40, 0);
        assert!(self.state().is_probe_bandwidth(), "{:?}", self.state());
    }

    /// Rounds until the state is that one, or too many.
    fn until(&mut self, state: State) {
        for _ in 0..200 {
            if self.state() == state {
                return;
            }
            let mut reached = false;
            self.round_seen(40, 0, |pipe| reached |= pipe.state() == state);
            if reached && self.state() != state {
                return;
            }
        }
        panic!("{state:?} never came, but {:?}", self.state());
    }

    fn pacing_over_bandwidth(&self) -> f64 {
        self.bbr.pacing_rate / (RATE.as_bps() as f64 / 8.0)
    }
}

#[test]
fn begins_with_the_initial_window_over_the_first_round_trip() {
    let mut pipe = Pipe::new();
    assert_eq!((pipe.bbr.window_bytes(), pipe.bbr.pacing_rate()), (10 * MSS, None));
    assert!(pipe.bbr.steers_recovery() && pipe.bbr.needs_rate_samples() && pipe.bbr.in_slow_start());
    pipe.rate = BitRate::from_kbps(1);
    pipe.round(1, 0);
    let expected = 2.77 * 10.0 * 1500.0 / 0.04;
    assert!((pipe.bbr.pacing_rate / expected - 1.0).abs() < 1e-9, "{}", pipe.bbr.pacing_rate);
}

/// A first segment that was sent again shows a rate of a few bytes in a timeout, and no round trip.
#[test]
fn begins_no_pacing_before_the_first_round_trip() {
    let mut pipe = Pipe::new();
    (pipe.srtt, pipe.rate) = (Some(Duration::ZERO), BitRate::from_bps(3));
    pipe.delivered = 1;
    pipe.acknowledge(0, 0, 1);
    assert_eq!(pipe.bbr.pacing_rate(), None);
    pipe.srtt = None;
    pipe.delivered += MSS;
    pipe.acknowledge(1, 0, MSS);
    let initial = cycle::STARTUP_PACING_GAIN * (10 * MSS) as f64 / 0.04 * 8.0;
    let rate = pipe.bbr.pacing_rate().map_or(0.0, |rate| rate.as_bps() as f64);
    assert!((rate / initial - 1.0).abs() < 0.01, "{rate}, not {initial}");
}

#[test]
fn rounds_of_unknown_rate_do_not_end_startup() {
    let mut pipe = Pipe::new();
    pipe.rate = BitRate::from_kbps(1);
    pipe.round(40, 0);
    pipe.rate = BitRate::from_bps(0);
    for _ in 0..10 {
        pipe.round(40, 0);
    }
    assert_eq!(pipe.state(), State::Startup);
}

#[test]
fn a_segment_leaves_every_second_however_slow_the_path_seemed() {
    let mut pipe = Pipe::new();
    pipe.rate = BitRate::from_bps(6);
    pipe.in_flight = 100 * MSS;
    for _ in 0..6 {
        pipe.round(40, 0);
    }
    assert_ne!(pipe.state(), State::Startup);
    assert_eq!(pipe.bbr.pacing_rate(), Some(BitRate::from_bps(MSS * 8)));
}

#[test]
fn startup_doubles_until_three_rounds_bring_no_quarter_more() {
    let mut pipe = Pipe::new();
    pipe.in_flight = 200 * MSS;
    for mbps in [1, 2, 4, 8, 12] {
        pipe.rate = BitRate::from_mbps(mbps);
        pipe.round(40, 0);
        assert_eq!(pipe.state(), State::Startup, "at {mbps} Mbit/s");
        let paced = pipe.bbr.pacing_rate * 8.0 / 1e6;
        assert!(paced >= 2.77 * 0.99 * mbps as f64 * 0.999, "{paced}");
    }
    // 14 is less than a quarter more than 12: three such rounds, counted at their first acknowledgment.
    pipe.rate = BitRate::from_mbps(14);
    pipe.round(40, 0);
    pipe.round(40, 0);
    assert_eq!(pipe.state(), State::Startup);
    pipe.round(40, 0);
    assert_eq!(pipe.state(), State::Drain);
    assert!(!pipe.bbr.in_slow_start());
    let paced = pipe.bbr.pacing_rate * 8.0 / 1e6;
    assert!((paced - 0.5 * 14.0 * 0.99).abs() < 1e-6, "{paced}");
}

#[test]
fn application_limited_rounds_say_nothing_of_a_full_pipe() {
    let mut pipe = Pipe::new();
    pipe.bbr.model.app_limited_until_bytes = u64::MAX;
    for _ in 0..20 {
        pipe.round(40, 0);
    }
    assert_eq!(pipe.state(), State::Startup);
}

#[test]
fn heavy_loss_ends_startup_and_teaches_a_bound() {
    for (lost, state) in [(4, State::Startup), (8, State::Drain)] {
        let mut pipe = Pipe::new();
        pipe.in_flight = 200 * MSS;
        // The bandwidth still grows.
        for mbps in [1, 2, 4] {
            pipe.rate = BitRate::from_mbps(mbps);
            pipe.round(40, 0);
        }
        pipe.rate = BitRate::from_mbps(8);
        pipe.bbr.on_congestion(pipe.now, pipe.in_flight, &Flows::single(&FlowView::default()));
        let mut seen = State::Startup;
        let before = pipe.lost;
        let start = pipe.delivered;
        for i in 0..80 {
            pipe.now += RTT / 40;
            pipe.delivered += MSS;
            pipe.lost += if i < lost { MSS } else { 0 };
            pipe.acknowledge(start + i * MSS - 40 * MSS, before, 100 * MSS);
            seen = pipe.state();
            if seen != State::Startup {
                break;
            }
        }
        assert_eq!(seen, state, "{lost} losses");
        assert_eq!(pipe.bbr.model.long_term_bytes == u64::MAX, state == State::Startup);
    }
}

#[test]
fn drain_ends_when_the_queue_is_gone_or_after_three_rounds() {
    let mut pipe = Pipe::new();
    pipe.in_flight = 100 * MSS;
    while pipe.state() == State::Startup {
        pipe.round(40, 0);
    }
    pipe.in_flight = 41 * MSS;
    pipe.round(40, 0);
    assert_eq!(pipe.state(), State::Drain, "40 fill the pipe");
    pipe.in_flight = 40 * MSS;
    pipe.round(2, 0);
    assert!(pipe.state().is_probe_bandwidth());

    let mut pipe = Pipe::new();
    pipe.in_flight = 100 * MSS;
    while pipe.state() == State::Startup {
        pipe.round(40, 0);
    }
    let mut rounds = 0;
    while pipe.state() == State::Drain {
        pipe.round(40, 0);
        rounds += 1;
    }
    assert!((3..=5).contains(&rounds), "{rounds}");
}

#[test]
fn a_cycle_goes_down_cruises_refills_and_probes() {
    let mut pipe = Pipe::new();
    pipe.fill();
    pipe.until(State::ProbeCruise);
    assert!((pipe.pacing_over_bandwidth() - 0.99).abs() < 1e-9, "{}", pipe.pacing_over_bandwidth());
    // Two bandwidth-delay products.
    assert!((80..82).contains(&(pipe.bbr.window_bytes() / MSS)), "{}", pipe.bbr.window_bytes());
    let cruise = pipe.now;
    pipe.until(State::ProbeRefill);
    let waited = pipe.now.since(cruise);
    // At most as many rounds as there are segments in the pipe, so that Reno beside us has grown as much: 40.
    assert!(waited <= RTT * 41, "{waited}");
    assert!((pipe.pacing_over_bandwidth() - 0.99).abs() < 1e-9);
    pipe.until(State::ProbeUp);
    assert!((pipe.pacing_over_bandwidth() - 1.25 * 0.99).abs() < 1e-9);
    // Three rounds bring no more bandwidth.
    let up = pipe.now;
    pipe.in_flight = 60 * MSS;
    pipe.until(State::ProbeDown);
    assert!(pipe.now.since(up) >= RTT * 2, "{}", pipe.now.since(up));
    assert!((pipe.pacing_over_bandwidth() - 0.9 * 0.99).abs() < 1e-9);
}

#[test]
fn a_long_pipe_is_probed_after_two_to_three_seconds() {
    for offset_us in 0..5 {
        let mut pipe = Pipe::new();
        pipe.now += Duration::from_micros(offset_us);
        // 100 segments in a round trip: more rounds than fit the wait.
        pipe.rtt = Duration::from_millis(100);
        pipe.fill();
        let started_at = pipe.bbr.cycle.started_at;
        pipe.until(State::ProbeRefill);
        let waited = pipe.now.since(started_at);
        assert!((2000..3100).contains(&waited.as_millis()), "{waited}");
    }
}

#[test]
fn the_maximum_of_bandwidth_is_that_of_two_cycles() {
    let mut pipe = Pipe::new();
    pipe.fill();
    let full = RATE.as_bps() as f64 / 8.0;
    pipe.rate = BitRate::from_mbps(6);
    let mut cycles = 0;
    let mut up = false;
    for _ in 0..400 {
        pipe.round(40, 0);
        let now_up = pipe.state() == State::ProbeUp;
        cycles += i32::from(up && !now_up);
        up = now_up;
        if cycles == 0 {
            assert_eq!(pipe.bbr.model.max_bandwidth(), full);
        }
        if cycles == 3 {
            assert_eq!(pipe.bbr.model.max_bandwidth(), full / 2.0);
            return;
        }
    }
    panic!("{cycles} cycles only");
}

#[test]
fn loss_while_cruising_lowers_the_short_term_bounds_by_three_tenths_at_most() {
    let mut pipe = Pipe::new();
    pipe.fill();
    pipe.until(State::ProbeCruise);
    let window = pipe.bbr.window_bytes();
    pipe.rate = BitRate::from_mbps(1);
    pipe.round(40, 1);
    pipe.round(40, 0);
    let model = &pipe.bbr.model;
    let full = RATE.as_bps() as f64 / 8.0;
    // What was delivered in the round before counts as well, if it is more; here it is the first time.
    assert!(model.short_term_bandwidth >= 0.7 * full - 1.0 && model.short_term_bandwidth <= full);
    assert!(model.short_term_bytes >= (window as f64 * 0.7) as u64);
    assert!(model.bandwidth < f64::MAX && model.short_term_bytes <= window);
    pipe.round(40, 1);
    pipe.round(40, 0);
    let lower = pipe.bbr.model.short_term_bandwidth;
    assert!((lower - 0.7 * full).abs() < 1.0 || (lower - 0.49 * full).abs() < 1.0, "{lower}");
    // Forgotten with the next probe.
    pipe.until(State::ProbeRefill);
    assert_eq!(pipe.bbr.model.short_term_bytes, u64::MAX);
}

#[test]
fn loss_beyond_two_percent_ends_a_probe_and_sets_the_long_term_bound() {
    let mut pipe = Pipe::new();
    pipe.fill();
    pipe.until(State::ProbeUp);
    // One of 100 lost: no reason to stop.
    let lost_before = pipe.lost;
    pipe.lost += MSS;
    pipe.now += RTT / 40;
    pipe.delivered += MSS;
    pipe.acknowledge(pipe.delivered - 40 * MSS, lost_before, 100 * MSS);
    assert_eq!((pipe.state(), pipe.bbr.model.long_term_bytes), (State::ProbeUp, u64::MAX));
    // Three of 100.
    pipe.lost += 2 * MSS;
    pipe.now += RTT / 40;
    pipe.delivered += MSS;
    pipe.acknowledge(pipe.delivered - 40 * MSS, lost_before, 100 * MSS);
    assert_eq!((pipe.state(), pipe.bbr.model.long_term_bytes), (State::ProbeDown, 100 * MSS));
    pipe.in_flight = 30 * MSS;
    pipe.until(State::ProbeCruise);
    assert_eq!(pipe.bbr.with_headroom_bytes(), 85 * MSS);
    assert!(pipe.bbr.window_bytes() <= 85 * MSS);
}

#[test]
fn a_spurious_loss_gives_back_bounds_and_probe() {
    let mut pipe = Pipe::new();
    pipe.fill();
    pipe.until(State::ProbeUp);
    let window = pipe.bbr.window_bytes();
    pipe.bbr.on_congestion(pipe.now, pipe.in_flight, &Flows::single(&FlowView::default()));
    let lost_before = pipe.lost;
    pipe.lost += 30 * MSS;
    pipe.now += RTT / 40;
    pipe.delivered += MSS;
    pipe.acknowledge(pipe.delivered - 40 * MSS, lost_before, 50 * MSS);
    assert_eq!(pipe.state(), State::ProbeDown);
    pipe.bbr.on_spurious(pipe.now);
    assert_eq!((pipe.state(), pipe.bbr.model.long_term_bytes), (State::ProbeRefill, u64::MAX));
    assert!(pipe.bbr.window_bytes() >= window);
}

#[test]
fn a_timeout_leaves_one_segment_and_recovery_gives_the_window_back() {
    let mut pipe = Pipe::new();
    pipe.fill();
    let window = pipe.bbr.window_bytes();
    pipe.bbr.on_timeout(pipe.now, pipe.in_flight, &Flows::single(&FlowView::default()));
    assert_eq!(pipe.bbr.window_bytes(), MSS);
    pipe.bbr.on_recovery_end(pipe.now);
    assert_eq!(pipe.bbr.window_bytes(), window);
}

#[test]
fn after_five_seconds_without_a_lower_round_trip_it_makes_room_for_one() {
    let mut pipe = Pipe::new();
    pipe.fill();
    pipe.rtt = Duration::from_millis(60);
    let started = pipe.now;
    pipe.until(State::ProbeRtt);
    let waited = pipe.now.since(started);
    assert!((4500..5200).contains(&waited.as_millis()), "{waited}");
    pipe.round(40, 0);
    // Half a bandwidth-delay product, of the round trip that the filter still knows.
    assert_eq!(pipe.bbr.window_bytes() / MSS, 20);
    // 200 ms from when so little is in flight.
    pipe.in_flight = 20 * MSS;
    let low = pipe.now;
    pipe.rtt = RTT;
    while pipe.state() == State::ProbeRtt {
        pipe.round(20, 0);
    }
    assert!((200..330).contains(&pipe.now.since(low).as_millis()), "{}", pipe.now.since(low));
    assert_eq!(pipe.state(), State::ProbeCruise);
    assert!((80..82).contains(&(pipe.bbr.window_bytes() / MSS)), "the window from before is back");
}

#[test]
fn the_least_round_trip_time_is_that_of_ten_seconds() {
    let mut pipe = Pipe::new();
    pipe.fill();
    pipe.rtt = Duration::from_millis(60);
    let started = pipe.now;
    while pipe.bbr.model.min_rtt == RTT {
        pipe.round(40, 0);
        assert!(pipe.now.since(started) < Duration::from_secs(20));
    }
    assert!(pipe.now.since(started) > Duration::from_secs(9), "{}", pipe.now.since(started));
    assert_eq!(pipe.bbr.model.min_rtt, pipe.rtt);
}

#[test]
fn idle_time_takes_neither_window_nor_model() {
    let mut pipe = Pipe::new();
    pipe.fill();
    let window = pipe.bbr.window_bytes();
    pipe.now += Duration::from_secs(6);
    pipe.bbr.on_idle_restart(pipe.now);
    assert_eq!(pipe.bbr.window_bytes(), window);
    assert!((pipe.pacing_over_bandwidth() - 0.99).abs() < 1e-9);
    // Silence emptied the queue: no ProbeRTT is needed.
    pipe.round(1, 0);
    assert_ne!(pipe.state(), State::ProbeRtt);
}

#[test]
fn bursts_of_acknowledgments_are_kept_on_top() {
    let mut pipe = Pipe::new();
    pipe.fill();
    let window = pipe.bbr.window_bytes();
    // 30 segments at once, after 30 ms of silence.
    for _ in 0..20 {
        pipe.now += Duration::from_millis(30);
        for _ in 0..30 {
            pipe.delivered += MSS;
            pipe.acknowledge(pipe.delivered - 40 * MSS, pipe.lost, 40 * MSS);
        }
    }
    let more = (pipe.bbr.window_bytes() - window) / MSS;
    assert!((10..=31).contains(&more), "{more}");
}

#[test]
fn is_built_by_its_name_and_is_equal_in_equal_runs() {
    assert_eq!(
        crate::Policy::by_name("bbr").map(|algorithm| algorithm.build_for(&Config::default()).name()),
        Some("bbr")
    );
    let run = || {
        let mut pipe = Pipe::new();
        pipe.fill();
        for _ in 0..100 {
            pipe.round(40, 0);
        }
        alloc::format!("{:?}", pipe.bbr)
    };
    assert_eq!(run(), run());
}
