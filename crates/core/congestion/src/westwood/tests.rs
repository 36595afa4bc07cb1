use super::*;
use crate::testing::{Connection, ack, assert_close};
use crate::{FlowView, RateSample};
use polypath_units::BitRate;

const RTT: Duration = Duration::from_millis(100);

/// An acknowledgment after which so many bytes have been delivered in all.
fn delivered(at_ms: u64, delivered_bytes: u64, rtt: Duration) -> Ack {
    let rate = RateSample {
        delivery_rate: BitRate::ZERO,
        app_limited: false,
        prior_delivered_bytes: 0,
        delivered_bytes,
        tx_in_flight_bytes: 0,
        in_flight_bytes: 0,
        lost_bytes: 0,
        total_lost_bytes: 0,
    };
    Ack { rate: Some(rate), ..ack(Instant::from_millis(at_ms), 0, rtt) }
}

fn connection(packets: f64) -> Connection {
    let mut connection = Connection::new(crate::Policy::by_name("westwood").expect("in the table"), &[100]);
    connection.avoid_congestion_from(0, packets);
    connection
}

#[test]
fn each_of_the_filters_keeps_seven_eighths() {
    let first = Rate::filter(None, 800.0);
    assert_eq!((first.once_filtered, first.twice_filtered), (800.0, 800.0));
    let second = Rate::filter(Some(first), 1600.0);
    // (7·800 + 1600)/8 = 900, (7·800 + 900)/8 = 812.5
    assert_eq!((second.once_filtered, second.twice_filtered), (900.0, 812.5));
    let third = Rate::filter(Some(second), 0.0);
    // 7·900/8 = 787.5, (7·812.5 + 787.5)/8 = 809.375
    assert_eq!((third.once_filtered, third.twice_filtered), (787.5, 809.375));
}

#[test]
fn after_a_loss_the_window_is_what_the_path_holds() {
    let mut connection = connection(200.0);
    // 146 000 bytes in 101 ms; the least round trip is 60 ms: 59.4 segments.
    connection.ack_as(0, &delivered(0, 0, Duration::from_millis(60)));
    connection.ack_as(0, &delivered(50, 73_000, RTT));
    connection.ack_as(0, &delivered(101, 146_000, RTT));
    connection.lose(0);
    assert_close(connection.packets(0), 100.0 / 0.101 * 0.06, 0.001, "rate times least round trip");
    // The path held it all: a loss takes nothing.
    connection.avoid_congestion_from(0, 20.0);
    connection.lose(0);
    assert_eq!(connection.packets(0), 20.0);
}

#[test]
fn the_rate_is_measured_over_a_round_trip_and_50_ms() {
    for (rtt_ms, at_ms, is_sample) in
        [(100, 100, false), (100, 101, true), (10, 50, false), (10, 51, true), (10, 11, false)]
    {
        let mut connection = connection(200.0);
        let rtt = Duration::from_millis(rtt_ms);
        connection.ack_as(0, &delivered(0, 0, rtt));
        connection.ack_as(0, &delivered(at_ms, 14_600, rtt));
        let controller = &*connection.controllers[0] as &dyn core::any::Any;
        let rate = controller.downcast_ref::<Westwood>().expect("is Westwood+").rate;
        assert_eq!(rate.is_some(), is_sample, "{rtt_ms} {at_ms}");
    }
}

#[test]
fn a_timeout_lowers_the_threshold_alike_and_measures_the_least_round_trip_anew() {
    let mut connection = connection(200.0);
    connection.ack_as(0, &delivered(0, 0, Duration::from_millis(50)));
    connection.ack_as(0, &delivered(200, 292_000, Duration::from_millis(50)));
    connection.time_out(0);
    assert_eq!(connection.packets(0), 1.0);
    // 1000 segments a second, 50 ms.
    assert_eq!(connection.controllers[0].ssthresh_bytes(), 50 * 1460);
    connection.ack_as(0, &delivered(210, 292_000, Duration::from_millis(80)));
    connection.avoid_congestion_from(0, 200.0);
    connection.lose(0);
    assert_close(connection.packets(0), 80.0, 0.001, "80 ms");
}

#[test]
fn without_a_rate_it_is_reno() {
    let mut connection = connection(40.0);
    connection.ack(0, 40);
    assert_close(connection.packets(0), 41.0, 0.001, "one a round");
    connection.lose(0);
    assert_close(connection.packets(0), 20.5, 0.001, "half");
    assert!(connection.controllers[0].needs_rate_samples());
    assert!(!connection.controllers[0].steers_recovery());
}

#[test]
fn a_silence_is_no_slow_path() {
    let mut connection = connection(200.0);
    connection.ack_as(0, &delivered(0, 0, RTT));
    connection.ack_as(0, &delivered(146, 146_000, RTT));
    let before = connection.controllers[0].clone();
    connection.controllers[0].on_idle_restart(Instant::from_secs(60));
    connection.ack_as(0, &delivered(60_000, 146_000, RTT));
    for mut controller in [before, connection.controllers[0].clone()] {
        controller.set_window(200 * 1460, Some(200 * 1460));
        controller.on_congestion(Instant::from_secs(60), 0, &Flows::single(&FlowView::default()));
        assert_close(controller.window_bytes() as f64, 100_000.0, 1.0, "1 MB/s for 100 ms");
    }
}
