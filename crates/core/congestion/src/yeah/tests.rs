use super::*;
use crate::testing::{Connection, ack, assert_close, round_of_samples};

const BASE: Duration = Duration::from_millis(80);

/// In congestion avoidance, with the base round-trip time known.
fn connection(packets: f64) -> Connection {
    let mut connection = Connection::new(crate::Policy::by_name("yeah").expect("in the table"), &[80]);
    round_of_samples(&mut connection, 0, 0, BASE);
    connection.avoid_congestion_from(0, packets);
    connection
}

/// A round that acknowledges nothing, at the end of which the window has this backlog.
fn round(connection: &mut Connection, backlog_packets: f64) {
    let window = connection.packets(0);
    let rtt = BASE.mul_f64(window / (window - backlog_packets));
    round_of_samples(connection, 0, 0, rtt);
}

fn growth(connection: &mut Connection) -> f64 {
    let before = connection.packets(0);
    connection.ack_as(0, &Ack { rtt: None, ..ack(Instant::ZERO, before as u64, BASE) });
    connection.packets(0) - before
}

#[test]
fn fast_mode_is_scalable_and_slow_mode_reno() {
    // A queue of an eighth of the base is too long: of 1000 segments, those beyond 8/9 of them, 111.
    // 80 segments are too many before that.
    for (window, backlog, growing) in
        [(1000.0, 0.0, 10.0), (1000.0, 79.0, 10.0), (300.0, 33.0, 3.0), (300.0, 34.0, 1.0), (60.0, 0.0, 1.0)]
    {
        let mut connection = connection(window);
        round(&mut connection, backlog);
        assert_eq!(connection.packets(0), window, "nothing is taken off");
        assert_close(growth(&mut connection), growing, 0.001, "growth");
    }
}

#[test]
fn a_queue_of_more_than_80_segments_is_taken_off() {
    for (window, backlog, left) in [(1000.0, 100.0, 900.0), (1000.0, 81.0, 919.0), (300.0, 200.0, 150.0)] {
        let mut connection = connection(window);
        round(&mut connection, backlog);
        assert_close(connection.packets(0), left, 0.01, "at most half");
        assert_close(growth(&mut connection), 1.0, 0.001, "slow mode");
        round(&mut connection, 0.0);
        let packets = connection.packets(0);
        assert_close(growth(&mut connection), (packets / 100.0).max(1.0), 0.001, "fast again");
    }
}

#[test]
fn the_window_does_not_go_below_what_a_reno_would_have() {
    let mut connection = connection(1000.0);
    round(&mut connection, 100.0);
    // Reno's is half of 900 now, and grows by one each slow round.
    for reno in [450.0, 451.0, 452.0] {
        connection.avoid_congestion_from(0, 500.0);
        round(&mut connection, 120.0);
        assert_close(connection.packets(0), reno, 0.01, "Reno's");
    }
}

#[test]
fn a_loss_takes_the_queue_or_an_eighth_at_most_half() {
    for (backlog, left) in [(0.0, 350.0), (30.0, 350.0), (60.0, 340.0), (79.0, 321.0)] {
        let mut connection = connection(400.0);
        round(&mut connection, backlog);
        connection.lose(0);
        assert_close(connection.packets(0), left, 0.01, "left");
    }
    let mut connection = connection(100.0);
    round(&mut connection, 75.0);
    connection.lose(0);
    assert_close(connection.packets(0), 50.0, 0.01, "at most half");
}

#[test]
fn among_greedy_flows_a_loss_takes_half() {
    for (slow_rounds, left) in [(15, 340.0), (16, 200.0)] {
        let mut connection = connection(400.0);
        for _ in 0..slow_rounds {
            round(&mut connection, 60.0);
        }
        connection.lose(0);
        assert_close(connection.packets(0), left, 0.01, "left");
        // One fast round, and the greedy flows are forgotten.
        connection.avoid_congestion_from(0, 400.0);
        round(&mut connection, 0.0);
        round(&mut connection, 60.0);
        connection.lose(0);
        assert_close(connection.packets(0), 340.0, 0.01, "left");
    }
}

fn reno_packets(connection: &Connection) -> f64 {
    let controller = &*connection.controllers[0] as &dyn core::any::Any;
    controller.downcast_ref::<Yeah>().expect("is YeAH").reno_packets
}

#[test]
fn renos_window_is_halved_by_loss_and_forgotten_after_fifty_fast_rounds() {
    let mut connection = connection(400.0);
    round(&mut connection, 60.0);
    assert_close(reno_packets(&connection), 200.0, 0.01, "half of the window");
    connection.lose(0);
    assert_close(reno_packets(&connection), 100.0, 0.01, "halved");
    for fast_rounds in 1..=51 {
        round(&mut connection, 0.0);
        let reno = if fast_rounds <= 50 { 100.0 } else { 2.0 };
        assert_close(reno_packets(&connection), reno, 0.01, "Reno's");
    }
}
