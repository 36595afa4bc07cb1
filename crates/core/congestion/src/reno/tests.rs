use alloc::boxed::Box;
use alloc::vec::Vec;

use polypath_units::{Duration, Instant};

use super::*;
use crate::testing::{Connection, MSS, Random, ack, assert_close};
use crate::{Ack, Algorithm, FlowView};

const RTT: Duration = Duration::from_millis(50);

/// RFC 5681 in segments, one acknowledged segment after the other.
struct Reference {
    cwnd: f64,
    ssthresh: f64,
}

impl Reference {
    fn on_packet_acked(&mut self) {
        let room = self.ssthresh - self.cwnd;
        if room >= 1.0 {
            self.cwnd += 1.0;
        } else if room > 0.0 {
            self.cwnd = self.ssthresh + (1.0 - room) / self.ssthresh;
        } else {
            self.cwnd += 1.0 / self.cwnd;
        }
    }

    fn on_congestion(&mut self) {
        self.ssthresh = (self.cwnd / 2.0).max(2.0);
        self.cwnd = self.ssthresh;
    }

    fn on_timeout(&mut self) {
        self.ssthresh = (self.cwnd / 2.0).max(2.0);
        self.cwnd = 1.0;
    }
}

fn single(window_packets: u64) -> Connection {
    let mut connection = Connection::new(Algorithm::RENO, &[50]);
    connection.avoid_congestion_from(0, window_packets as f64);
    connection
}

#[test]
fn follows_the_equations_through_losses_and_timeouts() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut connection = Connection::new(Algorithm::RENO, &[50]);
        let mut reference = Reference { cwnd: 10.0, ssthresh: f64::INFINITY };
        for step in 0..5_000 {
            connection.ack(0, 1);
            reference.on_packet_acked();
            if random.one_in(400) {
                connection.lose(0);
                reference.on_congestion();
            } else if random.one_in(1500) {
                connection.time_out(0);
                reference.on_timeout();
            }
            assert_close(
                connection.packets(0),
                reference.cwnd,
                0.005,
                &alloc::format!("seed {seed} step {step}"),
            );
        }
    }
}

#[test]
fn windows_at_the_end_of_rounds() {
    let mut connection = Connection::new(Algorithm::RENO, &[50]);
    let mut windows = Vec::new();
    for round in 1..=20 {
        connection.round(0);
        match round {
            3 => connection.lose(0),
            8 => connection.time_out(0),
            _ => {}
        }
        windows.push(connection.packets(0));
    }
    for (round, (actual, expected)) in windows.iter().zip(VECTOR).enumerate() {
        assert_close(*actual, expected, 0.002, &alloc::format!("round {}", round + 1));
    }
}

/// In segments, computed from the equations: initial window 10, a loss after round 3, a timeout after round 8.
const VECTOR: [f64; 20] = [
    20.0, 40.0, 40.0, 40.988, 41.953, 42.919, 43.887, 1.0, 2.0, 4.0, 8.0, 16.0, 22.851, 23.796, 24.744,
    25.696, 26.652, 27.611, 28.573, 29.537,
];

#[test]
fn slow_start_counts_bytes_and_the_rest_goes_to_congestion_avoidance() {
    let mut connection = Connection::new(Algorithm::RENO, &[50]);
    connection.controllers[0].set_window(10 * u64::from(MSS), Some(12 * u64::from(MSS)));
    let half = Ack { acked_bytes: 700, ..ack(Instant::ZERO, 1, RTT) };
    connection.ack_as(0, &half);
    assert_eq!(connection.controllers[0].window_bytes(), 10 * 1460 + 700);
    // 4 segments: 2220 bytes reach the threshold, 3620 are left for congestion avoidance.
    connection.ack(0, 4);
    assert_eq!(connection.controllers[0].window_bytes(), 12 * 1460 + 3620 / 12);
    assert!(!connection.controllers[0].in_slow_start());
}

#[test]
fn one_acknowledgment_at_most_doubles_the_window() {
    let mut connection = Connection::new(Algorithm::RENO, &[50]);
    connection.ack(0, 1_000_000);
    assert_eq!(connection.packets(0), 20.0);
    let mut connection = single(100);
    connection.ack(0, 1_000_000);
    assert_eq!(connection.packets(0), 101.0);
}

#[test]
fn does_not_grow_while_the_application_limits() {
    for mut connection in [Connection::new(Algorithm::RENO, &[50]), single(30)] {
        let before = connection.packets(0);
        for _ in 0..1000 {
            connection.ack_as(0, &Ack { window_limited: false, ..ack(Instant::ZERO, 1, RTT) });
        }
        assert_eq!(connection.packets(0), before);
    }
}

#[test]
fn fractions_of_a_byte_are_not_lost() {
    // At 100 000 segments, one acknowledged byte is worth a hundred-thousandth of a byte; half a byte more than ten.
    let mut connection = single(100_000);
    let byte = Ack { acked_bytes: 1, ..ack(Instant::ZERO, 1, RTT) };
    for _ in 0..1_050_000 {
        connection.ack_as(0, &byte);
    }
    assert_eq!(connection.controllers[0].window_bytes(), 146_000_000 + 10);
}

#[test]
fn a_window_that_was_not_used_is_not_what_a_reduction_starts_from() {
    let mut connection = single(100);
    let segments = |packets: u64| packets * u64::from(MSS);
    let slack = |round_ended| Ack {
        in_flight_bytes: segments(30),
        window_limited: false,
        round_ended,
        ..ack(Instant::ZERO, 1, RTT)
    };
    // The window limited the sender a round ago: still the window.
    connection.ack(0, 1);
    connection.ack_as(0, &slack(true));
    let mut used = connection.controllers[0].clone();
    used.on_congestion(Instant::ZERO, segments(10), &Flows::single(&FlowView::default()));
    assert_eq!(used.window_bytes(), segments(50) + 7);
    // Two rounds with 30 segments in flight: half of those.
    connection.ack_as(0, &slack(true));
    connection.lose(0);
    assert_eq!(connection.packets(0), 15.0);
}

#[test]
fn a_second_timeout_of_the_same_flight_holds_the_threshold() {
    let mut connection = single(40);
    connection.ack(0, 1);
    connection.time_out(0);
    assert_eq!((connection.packets(0), connection.controllers[0].ssthresh_bytes()), (1.0, 20 * 1460 + 18));
    connection.time_out(0);
    assert_eq!((connection.packets(0), connection.controllers[0].ssthresh_bytes()), (1.0, 20 * 1460 + 18));
    // Progress, and a timeout of the next flight.
    for _ in 0..4 {
        connection.ack(0, 1);
    }
    connection.time_out(0);
    assert_eq!((connection.packets(0), connection.controllers[0].ssthresh_bytes()), (1.0, 2 * 1460 + 730));
}

#[test]
fn a_timeout_that_ends_recovery_holds_the_threshold() {
    let mut connection = single(40);
    connection.lose(0);
    connection.time_out(0);
    assert_eq!((connection.packets(0), connection.controllers[0].ssthresh_bytes()), (1.0, 20 * 1460));
    // The timeout alone was spurious: the congestion event stays.
    connection.controllers[0].on_spurious(Instant::ZERO);
    assert_eq!(connection.packets(0), 20.0);
}

#[test]
fn spurious_events_are_undone() {
    type Event = fn(&mut Connection);
    let events: [Event; 3] = [
        |connection| connection.lose(0),
        |connection| connection.time_out(0),
        |connection| {
            connection.time_out(0);
            connection.time_out(0);
            connection.ack(0, 2);
        },
    ];
    for event in events {
        for mut connection in [Connection::new(Algorithm::RENO, &[50]), single(33)] {
            connection.ack(0, 5);
            let before = connection.controllers[0].clone();
            event(&mut connection);
            let after = &mut connection.controllers[0];
            assert!(after.window_bytes() < before.window_bytes());
            after.on_spurious(Instant::ZERO);
            assert_eq!(after.window_bytes(), before.window_bytes());
            assert_eq!(after.ssthresh_bytes(), before.ssthresh_bytes());
            // Once only.
            after.set_window(5000, Some(4000));
            after.on_spurious(Instant::ZERO);
            assert_eq!((after.window_bytes(), after.ssthresh_bytes()), (5000, 4000));
        }
    }
}

#[test]
fn the_threshold_has_a_floor() {
    for (min_ssthresh_packets, floor) in [(2, 2.0), (1, 1.0)] {
        let config = Config { min_ssthresh_packets, ..Config::default() };
        let mut connection = Connection::with(Algorithm::RENO, &[50], &config);
        for _ in 0..10 {
            connection.lose(0);
        }
        assert_eq!(connection.packets(0), floor);
    }
}

#[test]
fn idle_restart_falls_back_to_the_initial_window_and_remembers_the_threshold() {
    let mut connection = single(100);
    connection.controllers[0].on_idle_restart(Instant::from_secs(9));
    assert_eq!(connection.packets(0), 10.0);
    assert_eq!(connection.controllers[0].ssthresh_bytes(), 100 * 1460);
    // A small window stays; so does the absence of a threshold.
    let mut connection = single(4);
    connection.controllers[0].on_idle_restart(Instant::from_secs(9));
    assert_eq!(connection.packets(0), 4.0);
    let mut connection = Connection::new(Algorithm::RENO, &[50]);
    connection.ack(0, 10);
    connection.controllers[0].on_idle_restart(Instant::from_secs(9));
    assert_eq!(connection.packets(0), 10.0);
    assert_eq!(connection.controllers[0].ssthresh_bytes(), u64::MAX);
    // What was grown after the last reduction counts.
    let mut connection = single(40);
    for _ in 0..80 {
        connection.round(0);
    }
    let grown = connection.controllers[0].window_bytes();
    connection.controllers[0].on_idle_restart(Instant::from_secs(9));
    assert_eq!(connection.controllers[0].ssthresh_bytes(), grown / 4 * 3);
}

#[test]
fn a_new_segment_size_rescales_only_a_window_that_was_never_used() {
    let mut controller: Box<dyn Controller> = Algorithm::RENO.build(&Config::default());
    controller.on_mss(1400);
    assert_eq!(controller.window_bytes(), 14_000);
    controller.on_ack(&ack(Instant::ZERO, 1, RTT), &Flows::single(&FlowView::default()));
    controller.on_mss(1000);
    assert_eq!(controller.window_bytes(), 15_460);
    controller.on_mss(20_000);
    assert_eq!(controller.window_bytes(), 20_000);
}

#[test]
fn set_window_keeps_a_segment_and_leaves_the_threshold_unless_told() {
    let mut connection = single(50);
    let controller = &mut connection.controllers[0];
    controller.set_window(20 * 1460, None);
    assert_eq!((controller.window_bytes(), controller.ssthresh_bytes()), (20 * 1460, 50 * 1460));
    controller.set_window(0, Some(0));
    assert_eq!((controller.window_bytes(), controller.ssthresh_bytes()), (1460, 1460));
    controller.set_window(u64::MAX, None);
    assert_eq!(controller.window_bytes(), 1 << 40);
}
