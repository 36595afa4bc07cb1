use super::*;
use crate::testing::{Connection, ack, assert_close, round_of_samples};

const BASE: Duration = Duration::from_millis(40);

/// In congestion avoidance, with the base round-trip time known.
fn connection(packets: f64) -> Connection {
    let mut connection = Connection::new(crate::Policy::by_name("vegas").expect("in the table"), &[40]);
    round_of_samples(&mut connection, 0, 0, BASE);
    connection.avoid_congestion_from(0, packets);
    connection
}

fn round(connection: &mut Connection, rtt: Duration) {
    round_of_samples(connection, 0, 1, rtt);
}

/// The round-trip time at which a window of so many segments has this backlog.
fn rtt_for(window_packets: f64, backlog_packets: f64) -> Duration {
    BASE.mul_f64(window_packets / (window_packets - backlog_packets))
}

#[test]
fn two_to_four_segments_are_kept_in_the_queue() {
    for (backlog, change) in [(0.0, 1.0), (1.9, 1.0), (2.1, 0.0), (3.9, 0.0), (4.1, -1.0), (30.0, -1.0)] {
        let mut connection = connection(50.0);
        round(&mut connection, rtt_for(50.0, backlog));
        assert_close(connection.packets(0), 50.0 + change, 0.001, "once a round");
    }
}

#[test]
fn the_least_round_trip_time_of_a_round_counts() {
    let mut connection = connection(50.0);
    for rtt in [rtt_for(50.0, 20.0), rtt_for(50.0, 1.0), rtt_for(50.0, 30.0)] {
        connection.ack_as(0, &ack(Instant::ZERO, 1, rtt));
    }
    connection.ack_as(0, &Ack { round_ended: true, rtt: None, ..ack(Instant::ZERO, 1, BASE) });
    assert_close(connection.packets(0), 51.0, 0.001, "a backlog of one");
}

#[test]
fn slow_start_ends_with_a_backlog_of_one() {
    let mut connection = connection(1.0);
    connection.controllers[0].set_window(60 * 1460, Some(u64::MAX));
    round(&mut connection, rtt_for(65.0, 0.9));
    assert_eq!(connection.packets(0), 65.0, "each acknowledged segment adds one");
    assert!(connection.controllers[0].in_slow_start());
    round(&mut connection, rtt_for(70.0, 14.0));
    // 56 of 70 fit the path, and one more.
    assert_close(connection.packets(0), 57.0, 0.001, "the queue is taken off");
    assert!(!connection.controllers[0].in_slow_start());
}

#[test]
fn no_queue_shrinks_the_window_below_two_segments() {
    // In congestion avoidance, nearly all of the window can be backlog.
    for (packets, left) in [(2.0, 3.0), (6.0, 4.0)] {
        let mut connection = connection(packets);
        for _ in 0..5 {
            round(&mut connection, BASE * 100);
        }
        assert_eq!(connection.packets(0), left, "a backlog of two to four");
    }
    let mut connection = connection(10.0);
    connection.controllers[0].set_window(10 * 1460, Some(u64::MAX));
    round_of_samples(&mut connection, 0, 0, BASE * 100);
    assert_eq!(connection.packets(0), 2.0, "1.1 would be without a queue");
}

#[test]
fn while_a_loss_is_repaired_it_is_reno() {
    let mut connection = connection(50.0);
    connection.time_out(0);
    connection.controllers[0].set_window(50 * 1460, Some(50 * 1460));
    connection.ack(0, 25);
    connection.ack(0, 25);
    assert_close(connection.packets(0), 51.0, 0.01, "one a round");
    round_of_samples(&mut connection, 0, 0, BASE * 2);
    assert_close(connection.packets(0), 51.0, 0.01, "no look at the queue");
    connection.controllers[0].on_recovery_end(Instant::ZERO);
    round_of_samples(&mut connection, 0, 0, BASE * 2);
    assert_close(connection.packets(0), 50.0, 0.01, "it looks again");
    connection.lose(0);
    assert_close(connection.packets(0), 25.0, 0.01, "loss halves");
}

#[test]
fn a_round_of_few_samples_is_renos_and_an_unused_one_grows_nothing() {
    let mut connection = connection(50.0);
    for round_ended in [false, true] {
        connection.ack_as(0, &Ack { round_ended, ..ack(Instant::ZERO, 1, BASE * 9) });
    }
    assert_eq!(connection.packets(0), 51.0);
    for round_ended in [false, false, false, true] {
        let unused = Ack { round_ended, window_limited: false, ..ack(Instant::ZERO, 1, BASE) };
        connection.ack_as(0, &unused);
    }
    assert_eq!(connection.packets(0), 51.0);
}

#[test]
fn a_silence_forgets_the_base() {
    let mut connection = connection(50.0);
    connection.controllers[0].on_idle_restart(Instant::from_secs(9));
    connection.avoid_congestion_from(0, 50.0);
    round(&mut connection, BASE * 3);
    assert_eq!(connection.packets(0), 51.0, "the path is longer now");
}
