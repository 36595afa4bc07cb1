use alloc::vec::Vec;

use polypath_units::Duration;

use crate::Policy;
use crate::testing::{Connection, MSS, Random, assert_close};

fn balia() -> Policy {
    crate::Policy::by_name("balia").expect("in the table")
}

/// The equations in segments and seconds: `(growth per acknowledged segment, decrease at a loss)`.
fn reference(flows: &[(f64, f64)], own: usize) -> (f64, f64) {
    let x = |r: usize| flows[r].0 / flows[r].1;
    let total: f64 = (0..flows.len()).map(x).sum();
    let alpha = (0..flows.len()).map(x).fold(0.0, f64::max) / x(own);
    let increase = x(own) / (flows[own].1 * total * total) * ((1.0 + alpha) / 2.0) * ((4.0 + alpha) / 5.0);
    (increase, flows[own].0 / 2.0 * alpha.min(1.5))
}

fn connection(flows: &[(f64, f64)]) -> Connection {
    let rtts_ms: Vec<u64> = flows.iter().map(|flow| (flow.1 * 1e3) as u64).collect();
    let mut connection = Connection::new(balia(), &rtts_ms);
    for (r, flow) in flows.iter().enumerate() {
        connection.avoid_congestion_from(r, flow.0);
    }
    connection
}

#[test]
fn grows_and_shrinks_by_the_equations() {
    let mut random = Random(2);
    let mut below = |n: u64| 1.0 + (random.next() % n) as f64;
    let mut capped = 0;
    for _ in 0..3_000 {
        let flows: Vec<(f64, f64)> =
            (0..1 + below(3) as usize).map(|_| (9.0 + below(200), (4.0 + below(300)) / 1e3)).collect();
        for own in 0..flows.len() {
            let (increase, decrease) = reference(&flows, own);
            let w = flows[own].0;
            let mut connection = connection(&flows);
            connection.ack(own, w as u64);
            let grown = (connection.packets(own) - w) / w;
            assert_close(grown, increase, 2.0 / (f64::from(MSS) * w), "growth");
            connection = self::connection(&flows);
            connection.lose(own);
            capped += i32::from(decrease == w * 0.75);
            assert_close(w - connection.packets(own), decrease, 0.001, "decrease");
        }
    }
    assert!(capped > 500, "the cap is met: {capped}");
}

#[test]
fn by_hand() {
    // x = 400 and 100: α = 1 and 4.
    let flows = [(20.0, 0.05), (10.0, 0.1)];
    let mut connection = connection(&flows);
    connection.ack(0, 20);
    assert_close(connection.packets(0) - 20.0, 20.0 * 400.0 / (0.05 * 250_000.0), 0.01, "α = 1: coupled");
    connection = self::connection(&flows);
    connection.ack(1, 10);
    let coupled = 100.0 / (0.1 * 250_000.0);
    assert_close(connection.packets(1) - 10.0, 10.0 * coupled * 2.5 * 1.6, 0.01, "α = 4");
    connection = self::connection(&flows);
    connection.lose(0);
    connection.lose(1);
    assert_close(connection.packets(0), 10.0, 0.001, "half");
    assert_close(connection.packets(1), 2.5, 0.001, "a quarter is left, no less");
}

#[test]
fn equal_paths_have_the_increase_of_one_tcp() {
    // n paths of w: x/(rtt·(nx)²) = 1/(n²·w).
    for n in 1..5 {
        let flows: Vec<(f64, f64)> = (0..n).map(|_| (50.0, 0.04)).collect();
        let mut connection = connection(&flows);
        connection.ack(0, 50);
        assert_close(connection.packets(0) - 50.0, 1.0 / (n * n) as f64, 0.001, "in a round");
    }
}

#[test]
fn never_grows_faster_than_reno() {
    let mut random = Random(7);
    for _ in 0..2_000 {
        let rtts_ms: Vec<_> = (0..1 + random.next() % 4).map(|_| 1 + random.next() % 500).collect();
        let mut balia = Connection::new(balia(), &rtts_ms);
        let mut reno = Connection::new(crate::RENO, &rtts_ms);
        for flow in 0..rtts_ms.len() {
            let packets = 1.0 + (random.next() % 1000) as f64;
            balia.avoid_congestion_from(flow, packets);
            reno.avoid_congestion_from(flow, packets);
        }
        for _ in 0..50 {
            balia.ack(0, 2);
            reno.ack(0, 2);
        }
        assert!(balia.packets(0) <= reno.packets(0));
    }
}

#[test]
fn a_single_flow_is_reno() {
    let mut balia = Connection::new(balia(), &[30]);
    let mut reno = Connection::new(crate::RENO, &[30]);
    for i in 0..3_000 {
        for connection in [&mut balia, &mut reno] {
            connection.ack(0, 1 + i % 3);
            match i % 700 {
                699 => connection.lose(0),
                350 => connection.time_out(0),
                _ => {}
            }
        }
        assert_eq!(balia.packets(0), reno.packets(0));
    }
}

#[test]
fn the_threshold_may_go_down_to_one_segment_with_several_subflows() {
    for (rtts_ms, floor) in [(&[20][..], 2.0), (&[20, 20], 1.0)] {
        let mut connection = Connection::new(balia(), rtts_ms);
        for _ in 0..10 {
            connection.lose(0);
        }
        assert_eq!(connection.packets(0), floor);
        connection.ack(0, 1);
        connection.time_out(0);
        assert_eq!(connection.controllers[0].ssthresh_bytes(), floor as u64 * u64::from(MSS));
    }
}

#[test]
fn subflows_without_a_round_trip_time_are_left_out() {
    let mut with_new = Connection::new(balia(), &[20, 40, 0]);
    let mut without = Connection::new(balia(), &[20, 40]);
    for connection in [&mut with_new, &mut without] {
        connection.avoid_congestion_from(0, 20.0);
        connection.avoid_congestion_from(1, 30.0);
        for _ in 0..1000 {
            connection.ack(0, 1);
        }
        connection.lose(1);
    }
    assert_eq!(with_new.packets(0), without.packets(0));
    assert_eq!(with_new.packets(1), without.packets(1));
    // Its own first loss is Reno's.
    with_new.avoid_congestion_from(2, 30.0);
    with_new.lose(2);
    assert_eq!(with_new.packets(2), 15.0);
}

#[test]
fn spurious_events_are_undone() {
    let mut connection = Connection::new(balia(), &[20, 40]);
    connection.avoid_congestion_from(1, 33.0);
    connection.ack(1, 1);
    let before = connection.controllers[1].window_bytes();
    connection.lose(1);
    assert!(connection.controllers[1].window_bytes() < before);
    connection.controllers[1].on_spurious(connection.now + Duration::from_millis(1));
    assert_eq!(connection.controllers[1].window_bytes(), before);
}
