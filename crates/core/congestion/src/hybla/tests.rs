use super::*;
use crate::testing::{Connection, ack, assert_close};

fn connection(rtt_ms: u64) -> Connection {
    Connection::new(crate::Policy::by_name("hybla").expect("in the table"), &[rtt_ms])
}

#[test]
fn slow_start_adds_two_to_the_rho_less_one() {
    for (rtt_ms, growth) in [(10, 1.0), (25, 1.0), (50, 3.0), (75, 7.0), (100, 15.0)] {
        let mut connection = connection(rtt_ms);
        connection.ack(0, 1);
        assert_close(connection.packets(0), 10.0 + growth, 0.001, "one acknowledged segment");
    }
    assert_close(slow_start_packets(1.5), 1.828_427, 1e-6, "2^1.5 - 1");
    assert_eq!(slow_start_packets(24.0), 65_535.0, "a satellite's is limited");
}

#[test]
fn congestion_avoidance_adds_rho_squared_a_round() {
    for (rtt_ms, growth) in [(10, 1.0), (25, 1.0), (50, 4.0), (250, 100.0)] {
        let mut connection = connection(rtt_ms);
        connection.avoid_congestion_from(0, 400.0);
        connection.ack(0, 400);
        assert_close(connection.packets(0) - 400.0, growth, 0.001, "a whole window acknowledged");
    }
}

#[test]
fn what_is_beyond_the_threshold_is_congestion_avoidance() {
    let mut connection = connection(50);
    connection.controllers[0].set_window(100 * 1460, Some(106 * 1460));
    // Two segments reach the threshold by threes, the other two add 4/106 each.
    connection.ack(0, 4);
    assert_close(connection.packets(0), 106.0 + 2.0 * 4.0 / 106.0, 0.001, "both phases");
    assert!(!connection.controllers[0].in_slow_start());
}

/// Equation 5: the rate in segments per second grows as that of the reference, whatever the round-trip time.
#[test]
fn rates_grow_alike_at_all_round_trip_times() {
    for rtt_ms in [25, 100, 500] {
        let mut connection = connection(rtt_ms);
        let rate = |connection: &Connection| connection.packets(0) * 1e3 / rtt_ms as f64;
        connection.avoid_congestion_from(0, 8.0 * rtt_ms as f64);
        let before = rate(&connection);
        for _ in 0..2000 / rtt_ms {
            connection.round(0);
        }
        // In two seconds 80 segments per 25 ms more: 3200 per second.
        assert_close(rate(&connection) - before, 3200.0, 160.0, "growth of the rate");
    }
}

#[test]
fn rho_is_that_of_the_least_smoothed_round_trip_time() {
    let mut connection = connection(100);
    connection.avoid_congestion_from(0, 1000.0);
    for (srtt_ms, growth) in [(0, 1.0), (100, 16.0), (300, 16.0), (50, 4.0), (0, 4.0), (100, 4.0)] {
        let before = connection.packets(0);
        connection.ack_as(0, &ack(Instant::ZERO, before as u64, Duration::from_millis(srtt_ms)));
        assert_close(connection.packets(0) - before, growth, 0.02, "growth");
    }
}

#[test]
fn the_window_stays_below_its_limit_and_is_halved_by_loss() {
    let mut connection = connection(600);
    connection.ack(0, 10);
    connection.ack(0, 10);
    assert_eq!(connection.packets(0), 65_535.0);
    connection.lose(0);
    assert_eq!(connection.packets(0), 32_767.5);
    // A window from outside stays.
    connection.controllers[0].set_window(70_000 * 1460, Some(1460));
    connection.ack(0, 10);
    assert_eq!(connection.packets(0), 70_000.0);
}

#[test]
fn an_unused_window_does_not_grow() {
    for slow in [true, false] {
        let mut connection = connection(250);
        if !slow {
            connection.avoid_congestion_from(0, 10.0);
        }
        let unused = Ack { window_limited: false, ..ack(Instant::ZERO, 5, Duration::from_millis(250)) };
        connection.ack_as(0, &unused);
        assert_eq!(connection.packets(0), 10.0);
    }
}
