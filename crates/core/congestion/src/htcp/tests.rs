use super::*;
use crate::testing::{Connection, ack, assert_close};

const RTT: Duration = Duration::from_millis(100);

fn connection(rtt_ms: u64, packets: f64) -> Connection {
    let mut connection = Connection::new(crate::Policy::by_name("htcp").expect("in the table"), &[rtt_ms]);
    connection.avoid_congestion_from(0, packets);
    connection
}

#[test]
fn growth_follows_the_time_since_congestion() {
    // 1 + 10(Δ-1) + ((Δ-1)/2)², with β = 1/2 and 100 ms.
    for (millis, growth) in
        [(0, 1.0), (1000, 1.0), (1500, 6.0625), (2000, 11.25), (5000, 45.0), (11_000, 126.0)]
    {
        assert_close(growth_packets(Duration::from_millis(millis), RTT, 0.5), growth, 1e-9, "α");
    }
    // 2(1-β).
    assert_close(growth_packets(Duration::from_secs(2), RTT, 0.8), 0.4 * 11.25, 1e-9, "α");
}

#[test]
fn growth_is_scaled_by_the_round_trip_time() {
    for (rtt_ms, growth) in
        [(100, 11.25), (50, 5.625), (200, 22.5), (400, 22.5), (20, 2.25), (10, 1.125), (1, 1.125)]
    {
        let rtt = Duration::from_millis(rtt_ms);
        assert_close(growth_packets(Duration::from_secs(2), rtt, 0.5), growth, 1e-9, "α");
    }
    assert_close(
        growth_packets(Duration::ZERO, Duration::from_millis(10), 0.5),
        1.0,
        1e-9,
        "at least Reno's",
    );
    assert_close(growth_packets(Duration::from_secs(2), Duration::ZERO, 0.5), 11.25, 1e-9, "not known yet");
}

#[test]
fn a_round_adds_alpha() {
    let mut connection = connection(100, 1000.0);
    connection.ack(0, 0);
    connection.now = Instant::from_secs(2);
    connection.ack(0, 1000);
    assert_close(connection.packets(0), 1011.25, 0.001, "two seconds from the first");
    // Since the end of recovery it is a second.
    connection.lose(0);
    connection.controllers[0].on_recovery_end(Instant::from_secs(9));
    let before = connection.packets(0);
    connection.now = Instant::from_secs(10);
    connection.ack(0, before as u64);
    assert_close(connection.packets(0) - before, 1.0, 0.01, "Reno's");
}

/// A flow from the end of one recovery to the next loss: a window each least round-trip time, in halves. The smoothed round-trip time
/// goes up to the longest and back.
fn epoch(connection: &mut Connection, packets: f64, [least_ms, longest_ms]: [u64; 2]) {
    let window_bytes = (packets * 1460.0) as u64;
    connection.controllers[0].on_recovery_end(connection.now);
    connection.avoid_congestion_from(0, packets);
    for srtt_ms in [least_ms, longest_ms, longest_ms, least_ms] {
        for _ in 0..10 {
            connection.now += Duration::from_millis(least_ms) / 2;
            let half = ack(connection.now, 0, Duration::from_millis(srtt_ms));
            connection.ack_as(0, &Ack { acked_bytes: window_bytes / 2, ..half });
            connection.controllers[0].set_window(window_bytes, None);
        }
    }
    connection.lose(0);
}

#[test]
fn once_the_rate_is_steady_a_loss_leaves_the_least_over_the_longest_round_trip() {
    for (rtts_ms, beta) in
        [([60, 75], 0.8), ([50, 70], 50.0 / 70.0), ([22, 42], 22.0 / 42.0), ([100, 105], 0.8)]
    {
        let mut connection = connection(100, 100.0);
        // The first rate is new, the second steady: both times half.
        for _ in 0..2 {
            epoch(&mut connection, 100.0, rtts_ms);
            assert_eq!(connection.packets(0), 50.0);
        }
        epoch(&mut connection, 100.0, rtts_ms);
        assert_close(connection.packets(0), 100.0 * beta, 0.05, "left");
    }
}

#[test]
fn a_rate_that_changed_by_more_than_a_fifth_asks_for_half() {
    for (packets, half) in [(119.0, false), (121.0, true), (81.0, false), (79.0, true)] {
        let mut connection = connection(100, 100.0);
        for _ in 0..3 {
            epoch(&mut connection, 100.0, [50, 60]);
        }
        epoch(&mut connection, packets, [50, 60]);
        let left = connection.packets(0) / packets;
        assert_close(left, if half { 0.5 } else { 0.8 }, 0.001, "left");
    }
}

#[test]
fn a_short_round_trip_says_nothing_of_the_queue() {
    let mut connection = connection(100, 100.0);
    for _ in 0..4 {
        epoch(&mut connection, 100.0, [10, 12]);
        assert_eq!(connection.packets(0), 50.0);
    }
}

#[test]
fn a_far_outlier_is_not_the_longest_and_the_longest_fades() {
    let mut trips = RoundTrips { least: Duration::ZERO, longest: Duration::ZERO };
    let millis = Duration::from_millis;
    for (srtt_ms, longest_ms) in [(0, 0), (50, 50), (71, 50), (70, 70), (91, 70), (60, 70)] {
        trips.sample(millis(srtt_ms), false);
        assert_eq!(trips.longest, millis(longest_ms), "{srtt_ms}");
    }
    trips.sample(millis(80), true);
    assert_eq!(trips.longest, millis(70), "not while a loss is repaired");
    trips.fade();
    assert_eq!(trips.longest, millis(69), "50 + 20 · 0.95");
    assert_close(trips.unqueued(), 50.0 / 69.0, 1e-9, "β");
    for (longest_ms, beta) in [(50, 0.8), (62, 0.8), (99, 50.0 / 99.0), (101, 0.5), (500, 0.5)] {
        let trips = RoundTrips { least: millis(50), longest: millis(longest_ms) };
        assert_close(trips.unqueued(), beta, 1e-9, "β, from 0.5 to 0.8");
    }
}

#[test]
fn a_spurious_event_is_undone_and_a_timeout_counts_once() {
    let mut connection = connection(100, 1000.0);
    connection.ack(0, 0);
    connection.now = Instant::from_secs(5);
    connection.time_out(0);
    connection.time_out(0);
    assert_eq!((connection.packets(0), connection.controllers[0].ssthresh_bytes()), (1.0, 500 * 1460));
    connection.controllers[0].on_spurious(connection.now);
    assert_eq!(connection.packets(0), 1000.0);
    connection.ack(0, 1000);
    // 1 + 10·4 + 2².
    assert_close(connection.packets(0) - 1000.0, 45.0, 0.001, "as if nothing had been");
}
