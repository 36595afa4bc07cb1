use super::*;
use crate::testing::{Connection, ack, assert_close};

const BASE_MS: u64 = 40;

/// In congestion avoidance, with the base round-trip time known.
fn connection(packets: f64) -> Connection {
    let mut connection = Connection::new(crate::Policy::by_name("veno").expect("in the table"), &[BASE_MS]);
    for _ in 0..3 {
        connection.ack(0, 0);
    }
    connection.avoid_congestion_from(0, packets);
    connection
}

/// A sample at which the window has this backlog; acknowledges nothing.
fn sample(connection: &mut Connection, backlog_packets: f64) {
    let window = connection.packets(0);
    let rtt = Duration::from_millis(BASE_MS).mul_f64(window / (window - backlog_packets));
    let ack = ack(connection.now, 0, rtt);
    connection.ack_as(0, &ack);
}

#[test]
fn a_loss_at_a_short_queue_takes_a_fifth_and_at_a_long_one_half() {
    for (backlog, left) in [(0.0, 80.0), (2.9, 80.0), (3.1, 50.0), (20.0, 50.0)] {
        let mut connection = connection(100.0);
        sample(&mut connection, backlog);
        connection.lose(0);
        assert_close(connection.packets(0), left, 0.001, "left");
    }
}

#[test]
fn a_long_queue_halves_growth() {
    for (backlog, growth) in [(2.9, 1.0), (3.1, 0.5)] {
        let mut connection = connection(100.0);
        sample(&mut connection, backlog);
        // No new sample.
        connection.ack_as(0, &Ack { rtt: None, ..ack(Instant::ZERO, 100, Duration::from_millis(BASE_MS)) });
        assert_close(connection.packets(0) - 100.0, growth, 0.001, "growth");
    }
}

#[test]
fn a_timeout_halves_the_threshold_whatever_the_queue() {
    let mut connection = connection(100.0);
    sample(&mut connection, 0.0);
    connection.time_out(0);
    assert_eq!(connection.packets(0), 1.0);
    assert_eq!(connection.controllers[0].ssthresh_bytes(), 50 * 1460);
}

#[test]
fn before_three_samples_it_is_reno() {
    let mut connection = Connection::new(crate::Policy::by_name("veno").expect("in the table"), &[BASE_MS]);
    connection.avoid_congestion_from(0, 100.0);
    for _ in 0..2 {
        connection.ack(0, 0);
        let mut lossy = connection.controllers[0].clone();
        lossy.on_congestion(Instant::ZERO, 0, &Flows::single(&crate::FlowView::default()));
        assert_eq!(lossy.window_bytes(), 50 * 1460);
    }
    connection.ack(0, 0);
    connection.lose(0);
    assert_eq!(connection.packets(0), 80.0);
}

#[test]
fn slow_start_is_renos_and_sees_the_queue() {
    let mut connection = connection(1.0);
    connection.controllers[0].set_window(50 * 1460, Some(u64::MAX));
    sample(&mut connection, 10.0);
    connection.ack_as(0, &Ack { rtt: None, ..ack(Instant::ZERO, 50, Duration::from_millis(BASE_MS)) });
    assert_eq!(connection.packets(0), 100.0);
    connection.lose(0);
    assert_eq!(connection.packets(0), 50.0);
}
