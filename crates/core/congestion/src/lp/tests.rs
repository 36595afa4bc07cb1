use super::*;
use crate::testing::{Connection, ack, assert_close};

/// In congestion avoidance, with delays from 100 to 200 ms known, and the smoothed one close to the least.
fn connection(packets: f64) -> Connection {
    let mut connection = Connection::new(crate::Policy::by_name("lp").expect("in the table"), &[100]);
    let mut lp = Lp::new(&Config::default());
    lp.delays = Some(Delays { least: 100.0, longest: 200.0, outlier: 200.0, smoothed: 100.0, last: 1e9 });
    connection.controllers[0] = Box::new(lp);
    connection.avoid_congestion_from(0, packets);
    connection
}

fn sample(connection: &mut Connection, at_ms: u64, rtt_ms: u64, packets: u64) {
    let rtt = Duration::from_millis(rtt_ms);
    let srtt = Duration::from_millis(100);
    connection.ack_as(0, &Ack { srtt, ..ack(Instant::from_millis(at_ms), packets, rtt) });
}

#[test]
fn fifteen_percent_of_the_range_is_the_threshold() {
    // A sample moves the smoothed delay by an eighth: from 100 to 115 and, in whole milliseconds, 116.
    for (rtt_ms, left) in [(220, 100.0), (228, 50.0)] {
        let mut connection = connection(100.0);
        sample(&mut connection, 0, rtt_ms, 0);
        assert_close(connection.packets(0), left, 0.001, "window");
    }
}

#[test]
fn an_indication_halves_and_stops_growth_for_three_round_trips() {
    let mut connection = connection(100.0);
    sample(&mut connection, 1000, 240, 0);
    assert_eq!(connection.packets(0), 50.0);
    sample(&mut connection, 1100, 110, 50);
    sample(&mut connection, 1299, 110, 50);
    assert_eq!(connection.packets(0), 50.0, "the inference phase");
    sample(&mut connection, 1300, 110, 50);
    assert_close(connection.packets(0), 51.0, 0.001, "Reno's growth after it");
}

#[test]
fn a_second_indication_in_that_time_leaves_one_segment() {
    for (at_ms, left) in [(1299, 1.0), (1300, 25.0)] {
        let mut connection = connection(100.0);
        sample(&mut connection, 1000, 240, 0);
        // The range began anew at the smoothed delay of 117.5 ms; the threshold is at 135.
        sample(&mut connection, 1010, 250, 0);
        assert_eq!(connection.packets(0), 50.0, "smoothed 134 ms");
        sample(&mut connection, at_ms, 250, 0);
        assert_eq!(connection.packets(0), left, "smoothed 148 ms, {at_ms}");
    }
}

#[test]
fn one_longest_delay_is_an_outlier() {
    let mut delays = Delays::new(100.0);
    for (delay, least, longest) in
        [(900.0, 100.0, 100.0), (300.0, 100.0, 300.0), (1000.0, 100.0, 900.0), (50.0, 50.0, 900.0)]
    {
        delays.widen(delay);
        assert_eq!((delays.least, delays.longest), (least, longest), "{delay}");
    }
}

#[test]
fn neither_a_delayed_acknowledgment_nor_a_queue_that_is_gone_tells_of_others() {
    let mut delays = Delays { longest: 100.0, outlier: 100.0, ..Delays::new(40.0) };
    for _ in 0..100 {
        assert!(!delays.sample(80.0), "the one before was not delayed");
        assert!(!delays.sample(40.0));
    }
    // Smoothed over a full queue, which then is empty at once.
    delays.smoothed = 90.0;
    for _ in 0..100 {
        assert!(!delays.sample(40.0));
    }
    let long = (0..100).find(|_| delays.sample(80.0));
    // 40 + 40·(1 - (7/8)^n) is beyond 49 with the third that counts.
    assert_eq!(long, Some(3), "a queue that stays");
}

#[test]
fn an_indication_ends_slow_start() {
    let mut connection = connection(100.0);
    connection.controllers[0].set_window(100 * 1460, Some(u64::MAX));
    sample(&mut connection, 0, 100, 10);
    assert_eq!(connection.packets(0), 110.0);
    sample(&mut connection, 10, 240, 0);
    assert_eq!(connection.packets(0), 110.0, "one sample may be delayed by the receiver");
    sample(&mut connection, 10, 240, 0);
    assert_eq!(connection.packets(0), 55.0);
    assert!(!connection.controllers[0].in_slow_start());
}

#[test]
fn jitter_below_a_millisecond_is_no_queue() {
    let mut connection = Connection::new(crate::Policy::by_name("lp").expect("in the table"), &[40]);
    connection.avoid_congestion_from(0, 100.0);
    for i in 0..200 {
        let rtt = Duration::from_micros(40_050 + 37 * (i % 20));
        connection.ack_as(0, &ack(Instant::from_millis(i), 1, rtt));
    }
    assert_close(connection.packets(0), 101.97, 0.05, "Reno's growth");
}

#[test]
fn loss_and_timeouts_are_renos() {
    let mut connection = connection(100.0);
    connection.lose(0);
    assert_eq!(connection.packets(0), 50.0);
    connection.ack(0, 0);
    connection.time_out(0);
    assert_eq!((connection.packets(0), connection.controllers[0].ssthresh_bytes()), (1.0, 25 * 1460));
}
