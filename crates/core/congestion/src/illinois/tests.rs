use super::*;
use crate::testing::{Connection, ack, assert_close, round_of_samples};

const BASE: Duration = Duration::from_millis(50);

/// In congestion avoidance, with a base of 50 ms and a longest queueing delay of 100 ms known.
fn connection(packets: f64) -> Connection {
    let mut connection = Connection::new(crate::Policy::by_name("illinois").expect("in the table"), &[50]);
    for rtt in [BASE, BASE * 3] {
        connection.ack_as(0, &ack(Instant::ZERO, 0, rtt));
    }
    connection.controllers[0].on_timeout(Instant::ZERO, 0, &Flows::single(&crate::FlowView::default()));
    connection.avoid_congestion_from(0, packets);
    connection
}

/// A round with this queueing delay.
fn round(connection: &mut Connection, delay_ms: u64) {
    round_of_samples(connection, 0, 0, BASE + Duration::from_millis(delay_ms));
}

fn growth(connection: &mut Connection) -> f64 {
    let before = connection.packets(0);
    connection.ack_as(0, &Ack { rtt: None, ..ack(Instant::ZERO, before as u64, BASE) });
    connection.packets(0) - before
}

#[test]
fn growth_falls_with_the_delay() {
    // By hand, of a longest delay of 100 ms: 99·10/(99 + (delay-1)·9.7/0.3).
    for (delay_ms, alpha) in
        [(1, 10.0), (2, 7.538_07), (11, 2.343_75), (51, 0.577_16), (90, 0.332_646), (100, 0.3)]
    {
        let mut connection = connection(1000.0);
        round(&mut connection, delay_ms);
        assert_close(growth(&mut connection), alpha, 0.002, "α");
    }
}

#[test]
fn decrease_rises_with_the_delay() {
    for (delay_ms, beta) in
        [(0, 0.125), (10, 0.125), (24, 0.2), (45, 0.3125), (66, 0.425), (80, 0.5), (100, 0.5)]
    {
        let mut connection = connection(1000.0);
        round(&mut connection, delay_ms);
        connection.lose(0);
        assert_close(connection.packets(0), 1000.0 * (1.0 - beta), 0.01, "β");
    }
}

#[test]
fn small_windows_are_renos() {
    for (packets, alpha, beta) in [(14.0, 1.0, 0.5), (16.0, 10.0, 0.125)] {
        let mut connection = connection(packets);
        round(&mut connection, 0);
        assert_close(growth(&mut connection), alpha, 0.001, "α");
        let before = connection.packets(0);
        connection.lose(0);
        assert_close(connection.packets(0) / before, 1.0 - beta, 0.001, "β");
    }
}

#[test]
fn after_a_longer_delay_five_short_rounds_bring_the_most_growth_back() {
    let mut connection = connection(1000.0);
    round(&mut connection, 51);
    for short_rounds in 1..=5 {
        round(&mut connection, 0);
        let alpha = if short_rounds < 5 { 0.577_16 } else { 10.0 };
        assert_close(growth(&mut connection), alpha, 0.01, "α");
    }
    round(&mut connection, 0);
    assert_close(growth(&mut connection), 10.0, 0.01, "and it stays");
}

#[test]
fn a_timeout_halves_and_is_renos_until_a_round_ends() {
    let mut connection = connection(1000.0);
    round(&mut connection, 0);
    connection.time_out(0);
    assert_eq!(connection.controllers[0].ssthresh_bytes(), 500 * 1460);
    connection.avoid_congestion_from(0, 1000.0);
    assert_close(growth(&mut connection), 1.0, 0.001, "α");
    round(&mut connection, 0);
    assert_close(growth(&mut connection), 10.0, 0.02, "α");
}

#[test]
fn the_curves_meet_the_constants_of_the_paper() {
    for longest in [1.0, 1e6, 1e9] {
        assert_close(curve(longest, longest), ALPHA_MIN, 1e-9, "α at the longest delay");
        assert_close(curve(D1 * longest, longest), ALPHA_MAX, 1e-9, "α at d1");
        assert_close(beta_at(D2 * longest * (1.0 + 1e-9), longest), BETA_MIN, 1e-6, "β at d2");
        assert_close(beta_at(D3 * longest * (1.0 - 1e-9), longest), BETA_MAX, 1e-6, "β at d3");
    }
}
