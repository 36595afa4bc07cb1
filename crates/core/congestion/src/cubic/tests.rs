use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::testing::{Connection, MSS, Random, ack, assert_close};

/// RFC 9438 §4 in segments and seconds, one acknowledged segment after the other.
#[derive(Clone, Copy)]
struct Reference {
    cwnd: f64,
    ssthresh: f64,
    w_max: f64,
    cwnd_prior: f64,
    w_est: f64,
    k: f64,
    t_epoch: Option<f64>,
}

impl Reference {
    fn new() -> Self {
        Self {
            cwnd: 10.0,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            cwnd_prior: 0.0,
            w_est: 0.0,
            k: 0.0,
            t_epoch: None,
        }
    }

    fn on_packet_acked(&mut self, now: f64, rtt: f64) {
        let mut acked = 1.0;
        if self.cwnd < self.ssthresh {
            let grown = (self.ssthresh - self.cwnd).min(1.0);
            self.cwnd += grown;
            acked -= grown;
            if acked <= 0.0 {
                return;
            }
        }
        if self.t_epoch.is_none() {
            self.t_epoch = Some(now);
            self.w_max = self.w_max.max(self.cwnd);
            self.k = ((self.w_max - self.cwnd) / 0.4).cbrt();
            self.w_est = self.cwnd;
            if self.cwnd_prior == 0.0 {
                self.cwnd_prior = self.cwnd;
            }
        }
        let t = now - self.t_epoch.unwrap_or(now);
        let alpha = if self.w_est >= self.cwnd_prior { 1.0 } else { 3.0 * (1.0 - 0.7) / (1.0 + 0.7) };
        self.w_est += alpha * acked / self.cwnd;
        let w_cubic = |t: f64| 0.4 * (t - self.k).powi(3) + self.w_max;
        if w_cubic(t) < self.w_est {
            self.cwnd = self.cwnd.max(self.w_est);
        } else {
            let target = w_cubic(t + rtt).clamp(self.cwnd, 1.5 * self.cwnd);
            self.cwnd += acked * (target - self.cwnd) / self.cwnd;
        }
    }

    fn on_congestion(&mut self) {
        self.w_max = if self.cwnd < self.w_max { self.cwnd * (1.0 + 0.7) / 2.0 } else { self.cwnd };
        self.cwnd_prior = self.cwnd;
        self.ssthresh = (self.cwnd * 0.7).max(2.0);
        self.cwnd = self.ssthresh;
        self.t_epoch = None;
    }

    fn on_timeout(&mut self) {
        self.cwnd_prior = self.cwnd;
        self.ssthresh = (self.cwnd * 0.7).max(2.0);
        self.cwnd = 1.0;
        self.w_max = 0.0;
        self.t_epoch = None;
    }
}

#[test]
fn follows_the_equations_through_losses_and_timeouts() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let rtt_ms = [5, 20, 80, 300][seed as usize % 4];
        let mut connection = Connection::new(crate::CUBIC, &[rtt_ms]);
        let mut reference = Reference::new();
        for step in 0..6_000 {
            connection.now += Duration::from_micros(rtt_ms * 1000 / (1 + connection.packets(0) as u64));
            connection.ack(0, 1);
            reference.on_packet_acked(connection.now.as_secs_f64(), rtt_ms as f64 / 1e3);
            if random.one_in(500) {
                connection.lose(0);
                reference.on_congestion();
            } else if random.one_in(2500) {
                connection.time_out(0);
                reference.on_timeout();
            }
            let what = alloc::format!("seed {seed} step {step} rtt {rtt_ms} ms");
            assert_close(connection.packets(0), reference.cwnd, 0.02, &what);
        }
    }
}

/// A flow of this many segments that has just had a loss.
fn after_loss(packets: f64, rtt_ms: u64) -> Connection {
    let mut connection = Connection::new(crate::CUBIC, &[rtt_ms]);
    connection.avoid_congestion_from(0, packets);
    connection.ack(0, 1);
    connection.avoid_congestion_from(0, packets);
    connection.lose(0);
    connection
}

#[test]
fn windows_at_the_end_of_rounds() {
    let mut connection = after_loss(100.0, 100);
    let mut windows = Vec::new();
    for round in 1..=70 {
        connection.round(0);
        if round % 5 == 0 {
            windows.push(connection.packets(0));
        }
    }
    for (i, (actual, expected)) in windows.iter().zip(VECTOR).enumerate() {
        assert_close(*actual, expected, 0.005, &alloc::format!("round {}", 5 * (i + 1)));
    }
}

/// In segments after every fifth round of 100 ms that follows a loss at 100 segments, computed from the equations.
const VECTOR: [f64; 14] = [
    79.37, 86.618, 91.932, 95.603, 97.949, 99.262, 99.842, 99.992, 100.012, 100.2, 100.857, 102.799, 107.739,
    112.685,
];

#[test]
fn is_at_the_old_maximum_after_k_concave_before_and_convex_after() {
    // Large and far enough for the cubic region: K = cbrt(1000 · 0.3 / 0.4) = 9.09 s.
    let mut connection = after_loss(1000.0, 100);
    let k_secs = libm::cbrt(1000.0 * 0.3 / 0.4);
    let start = connection.now;
    let mut windows = vec![connection.packets(0)];
    while connection.now.since(start).as_secs_f64() < 1.6 * k_secs {
        connection.round(0);
        windows.push(connection.packets(0));
    }
    let rounds_to_k = (k_secs / 0.1) as usize;
    assert_close(windows[rounds_to_k], 1000.0, 1.0, "the window after K");
    let growth: Vec<f64> = windows.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The first rounds run up to the curve.
    assert!(growth[3..rounds_to_k - 3].is_sorted_by(|a, b| a > b), "concave below");
    assert!(growth[rounds_to_k + 3..].is_sorted_by(|a, b| a < b), "convex above");
}

#[test]
fn is_reno_friendly_on_short_and_thin_paths() {
    // 20 segments over 10 ms: K = 2.47 s is far off, and 0.53 segments per round trip are more.
    let mut connection = after_loss(20.0, 10);
    let mut expected = connection.packets(0);
    for _ in 0..10 {
        // A round is a whole number of segments.
        expected += 3.0 * 0.3 / 1.7 * expected.floor() / expected;
        connection.round(0);
        assert_close(connection.packets(0), expected, 0.1, "below the old window");
    }
    while connection.packets(0) < 20.0 {
        connection.round(0);
    }
    let before = connection.packets(0);
    for _ in 0..10 {
        connection.round(0);
    }
    assert_close(connection.packets(0) - before, 10.0, 0.4, "above it grows like Reno");
}

#[test]
fn grows_at_most_by_half_in_a_round() {
    // Long after K the curve is far above: the target is bounded.
    let mut connection = after_loss(100.0, 100);
    connection.round(0);
    connection.now += Duration::from_secs(100);
    let before = connection.packets(0);
    for _ in 0..before as u64 {
        connection.ack(0, 1);
    }
    let factor = connection.packets(0) / before;
    assert!((1.45..1.65).contains(&factor), "{factor}");
}

#[test]
fn fast_convergence_gives_way_when_the_maximum_shrinks() {
    let mut connection = after_loss(100.0, 100);
    connection.ack(0, 1);
    connection.lose(0);
    let cubic = |connection: &Connection| {
        let any: &dyn core::any::Any = &*connection.controllers[0];
        any.downcast_ref::<Cubic>().expect("cubic").curve
    };
    let w_max_packets = cubic(&connection).w_max_bytes / f64::from(MSS);
    assert_close(w_max_packets, 70.0 * 0.85, 0.2, "below the last maximum");
    connection.avoid_congestion_from(0, 200.0);
    connection.lose(0);
    assert_close(cubic(&connection).w_max_bytes / f64::from(MSS), 200.0, 0.001, "above it");
}

#[test]
fn after_a_timeout_the_curve_starts_at_its_turning_point() {
    let mut connection = after_loss(100.0, 100);
    connection.round(0);
    connection.time_out(0);
    assert_eq!(connection.packets(0), 1.0);
    let ssthresh_packets = connection.controllers[0].ssthresh_bytes() as f64 / f64::from(MSS);
    while connection.controllers[0].in_slow_start() {
        connection.round(0);
    }
    // K = 0: the first rounds after it hardly grow but for the Reno-friendly part.
    let before = connection.packets(0);
    assert_close(before, ssthresh_packets, 1.0, "slow start ends at the threshold");
    connection.round(0);
    assert_close(connection.packets(0) - before, ALPHA, 0.05, "growth in the first round");
}

#[test]
fn spurious_events_bring_the_curve_back() {
    type Event = fn(&mut Connection);
    let events: [Event; 2] = [
        |connection| connection.lose(0),
        |connection| {
            connection.time_out(0);
            connection.time_out(0);
            connection.ack(0, 2);
        },
    ];
    for event in events {
        let mut undone = after_loss(100.0, 100);
        for _ in 0..10 {
            undone.round(0);
        }
        let mut unharmed = Connection::new(crate::CUBIC, &[100]);
        unharmed.controllers[0] = undone.controllers[0].clone();
        unharmed.now = undone.now;
        event(&mut undone);
        undone.controllers[0].on_spurious(undone.now);
        for _ in 0..60 {
            unharmed.round(0);
            undone.round(0);
            assert_eq!(undone.packets(0), unharmed.packets(0));
        }
    }
}

#[test]
fn time_in_which_the_application_limits_does_not_count() {
    let mut paused = after_loss(100.0, 100);
    let mut busy = after_loss(100.0, 100);
    for connection in [&mut paused, &mut busy] {
        for _ in 0..5 {
            connection.round(0);
        }
    }
    let before = paused.packets(0);
    for _ in 0..100 {
        paused.now += Duration::from_millis(100);
        let slack = Ack { window_limited: false, ..ack(paused.now, 1, Duration::from_millis(100)) };
        paused.ack_as(0, &slack);
    }
    assert_eq!(paused.packets(0), before);
    for _ in 0..20 {
        paused.round(0);
        busy.round(0);
        assert_close(paused.packets(0), busy.packets(0), 0.001, "as if there had been no pause");
    }
}

/// Slow-start rounds at these round-trip times, the windows at their ends.
fn slow_start_packets(connection: &mut Connection, rtts_ms: &[u64]) -> Vec<f64> {
    let round = |&rtt_ms| {
        for i in 0..connection.packets(0) as u64 {
            let ack = Ack { round_ended: i == 0, ..ack(connection.now, 1, Duration::from_millis(rtt_ms)) };
            connection.ack_as(0, &ack);
        }
        connection.packets(0)
    };
    rtts_ms.iter().map(round).collect()
}

#[test]
fn hystart_slows_and_then_ends_slow_start_when_the_round_trip_time_rises() {
    let mut connection = Connection::new(crate::CUBIC, &[40]);
    let windows = slow_start_packets(&mut connection, &[40, 40, 50, 50, 50, 50, 50, 50]);
    assert_eq!(windows[..2], [20.0, 40.0]);
    // Seven acknowledgments of the third round still count in full, the other 33 by a quarter.
    assert_eq!(windows[2], 40.0 + 7.0 + 33.0 / 4.0);
    assert_close(windows[3], windows[2] * 1.25, 0.3, "conservative slow start");
    assert_close(windows[6], windows[2] * 1.25 * 1.25 * 1.25 * 1.25, 1.0, "conservative slow start");
    // Five rounds of it, the partial one included, and congestion avoidance begins.
    assert!(!connection.controllers[0].in_slow_start());
    let ssthresh_packets = connection.controllers[0].ssthresh_bytes() as f64 / f64::from(MSS);
    assert_close(ssthresh_packets, windows[6], 0.001, "threshold");

    let mut connection = Connection::new(crate::RENO, &[40]);
    let windows = slow_start_packets(&mut connection, &[40, 40, 50, 50]);
    assert_eq!(windows, [20.0, 40.0, 80.0, 160.0], "without it, nothing but loss ends slow start");
}

#[test]
fn hystart_is_left_out_after_the_initial_slow_start() {
    let mut connection = Connection::new(crate::CUBIC, &[40]);
    connection.controllers[0].set_window(u64::from(MSS), Some(1000 * u64::from(MSS)));
    let windows = slow_start_packets(&mut connection, &[40, 40, 40, 40, 60, 60, 60, 60]);
    assert_eq!(windows[7], 256.0);
}
