use alloc::vec;
use alloc::vec::Vec;

use polypath_units::Duration;

use crate::Policy;
use crate::testing::{Connection, MSS, Random, assert_close};

/// RFC 6356 §3 in segments, one acknowledged segment after the other.
struct Reference {
    cwnd: f64,
    ssthresh: f64,
    rtt: f64,
}

fn alpha(flows: &[Reference]) -> f64 {
    let total: f64 = flows.iter().map(|flow| flow.cwnd).sum();
    let best = flows.iter().map(|flow| flow.cwnd / (flow.rtt * flow.rtt)).fold(0.0, f64::max);
    let sum: f64 = flows.iter().map(|flow| flow.cwnd / flow.rtt).sum();
    total * best / (sum * sum)
}

fn on_packet_acked(flows: &mut [Reference], own: usize) {
    let total: f64 = flows.iter().map(|flow| flow.cwnd).sum();
    let coupled = alpha(flows) / total;
    let flow = &mut flows[own];
    let room = flow.ssthresh - flow.cwnd;
    if room >= 1.0 {
        flow.cwnd += 1.0;
    } else if room > 0.0 {
        flow.cwnd = flow.ssthresh + (1.0 - room) * coupled.min(1.0 / flow.ssthresh);
    } else {
        flow.cwnd += coupled.min(1.0 / flow.cwnd);
    }
}

#[test]
fn follows_the_equations_over_several_subflows() {
    for (seed, rtts_ms) in
        [vec![20, 60], vec![20, 40, 300], vec![7, 7, 7, 7], vec![1000, 1], vec![35]].into_iter().enumerate()
    {
        let mut random = Random(seed as u64);
        let mut connection = Connection::new(crate::LIA, &rtts_ms);
        let floor = if rtts_ms.len() > 1 { 1.0 } else { 2.0 };
        let mut reference: Vec<_> = rtts_ms
            .iter()
            .map(|&rtt_ms| Reference { cwnd: 10.0, ssthresh: f64::INFINITY, rtt: rtt_ms as f64 / 1e3 })
            .collect();
        for step in 0..20_000 {
            let own = random.next() as usize % rtts_ms.len();
            connection.ack(own, 1);
            on_packet_acked(&mut reference, own);
            if random.one_in(300 << own) {
                connection.lose(own);
                let flow = &mut reference[own];
                flow.ssthresh = (flow.cwnd / 2.0).max(floor);
                flow.cwnd = flow.ssthresh;
            } else if random.one_in(4000) {
                connection.time_out(own);
                let flow = &mut reference[own];
                flow.ssthresh = (flow.cwnd / 2.0).max(floor);
                flow.cwnd = 1.0;
            }
            for (flow, reference) in reference.iter().enumerate() {
                let what = alloc::format!("paths {rtts_ms:?} step {step} flow {flow}");
                assert_close(connection.packets(flow), reference.cwnd, 0.01, &what);
            }
        }
    }
}

#[test]
fn windows_at_the_end_of_rounds() {
    // Two rounds of 20 ms for each of 40 ms; the first path loses after 10 rounds of the second.
    let mut connection = Connection::new(crate::LIA, &[20, 40]);
    connection.avoid_congestion_from(0, 20.0);
    connection.avoid_congestion_from(1, 30.0);
    let mut windows = Vec::new();
    for round in 1..=40 {
        connection.round(0);
        connection.round(0);
        connection.round(1);
        if round == 10 {
            connection.lose(0);
        }
        if round % 5 == 0 {
            windows.push([connection.packets(0), connection.packets(1)]);
        }
    }
    for (i, (actual, expected)) in windows.iter().zip(VECTOR).enumerate() {
        for flow in 0..2 {
            assert_close(actual[flow], expected[flow], 0.002, &alloc::format!("round {}", 5 * (i + 1)));
        }
    }
}

/// In segments after every fifth round, computed from the equations.
const VECTOR: [[f64; 2]; 8] = [
    [23.282, 32.368],
    [13.398, 34.711],
    [15.294, 37.134],
    [17.34, 39.584],
    [19.528, 42.041],
    [21.85, 44.513],
    [24.322, 46.972],
    [26.925, 49.418],
];

#[test]
fn never_grows_faster_than_reno() {
    let mut random = Random(7);
    for _ in 0..2_000 {
        let rtts_ms: Vec<_> = (0..1 + random.next() % 4).map(|_| 1 + random.next() % 500).collect();
        let mut lia = Connection::new(crate::LIA, &rtts_ms);
        let mut reno = Connection::new(crate::RENO, &rtts_ms);
        for flow in 0..rtts_ms.len() {
            let packets = 1.0 + (random.next() % 1000) as f64;
            lia.avoid_congestion_from(flow, packets);
            reno.avoid_congestion_from(flow, packets);
        }
        for _ in 0..50 {
            lia.ack(0, 2);
            reno.ack(0, 2);
        }
        assert!(lia.packets(0) <= reno.packets(0));
    }
}

#[test]
fn a_single_flow_is_reno() {
    let mut lia = Connection::new(crate::LIA, &[30]);
    let mut reno = Connection::new(crate::RENO, &[30]);
    for i in 0..3_000 {
        for connection in [&mut lia, &mut reno] {
            connection.ack(0, 1 + i % 3);
            if i % 700 == 699 {
                connection.lose(0);
            }
        }
        assert_eq!(lia.packets(0), reno.packets(0));
    }
}

/// Mean total window under random loss of one segment in `one_in`, every flow being acknowledged in proportion to its
/// window (equal round-trip times).
fn mean_total_packets(algorithm: Policy, rtts_ms: &[u64], one_in: u64) -> f64 {
    let mut random = Random(11);
    let mut connection = Connection::new(algorithm, rtts_ms);
    let mut sum = 0.0;
    let rounds = 12_000;
    for _ in 0..rounds {
        for flow in 0..rtts_ms.len() {
            for _ in 0..connection.packets(flow) as u64 {
                connection.ack(flow, 1);
                if random.one_in(one_in) {
                    connection.lose(flow);
                    break;
                }
            }
        }
        sum += connection.total_packets();
    }
    sum / f64::from(rounds)
}

#[test]
fn equal_paths_together_are_as_one_tcp() {
    let reno = mean_total_packets(crate::RENO, &[20], 1000);
    // Windows that differ by chance raise alpha, which follows the largest of them: a few percent per subflow.
    for (rtts_ms, most) in [(&[20, 20][..], 1.15), (&[20, 20, 20, 20], 1.35)] {
        let lia = mean_total_packets(crate::LIA, rtts_ms, 1000);
        assert!((0.9..most).contains(&(lia / reno)), "{rtts_ms:?}: {lia} against {reno}");
    }
    let uncoupled = mean_total_packets(crate::RENO, &[20, 20], 1000);
    assert!(uncoupled > 1.8 * reno, "{uncoupled} against {reno}");
}

#[test]
fn the_increase_of_equal_paths_is_that_of_one_tcp_with_the_same_decrease() {
    // n equal paths of w: each acknowledgment adds 1/(n²w), a loss takes w/2. At the loss rate at which a Reno of n·w is
    // in equilibrium, p = 2/(n·w)², so is each of them: 1/(n²w) = p·w/2.
    let (n, w) = (3, 40.0);
    let mut connection = Connection::new(crate::LIA, &[25; 3]);
    for flow in 0..n {
        connection.avoid_congestion_from(flow, w);
    }
    connection.ack(1, 1);
    // Below a byte at a time nothing shows: take a window's worth.
    for _ in 1..40 {
        connection.ack(1, 1);
    }
    assert_close(connection.packets(1) - w, 1.0 / (n * n) as f64, 0.001, "growth in a round");
}

#[test]
fn subflows_without_a_round_trip_time_are_left_out() {
    let mut with_new = Connection::new(crate::LIA, &[20, 40, 0]);
    let mut without = Connection::new(crate::LIA, &[20, 40]);
    for connection in [&mut with_new, &mut without] {
        connection.avoid_congestion_from(0, 20.0);
        connection.avoid_congestion_from(1, 30.0);
        for _ in 0..1000 {
            connection.ack(0, 1);
        }
    }
    assert_eq!(with_new.packets(0), without.packets(0));

    let mut none = Connection::new(crate::LIA, &[0, 0]);
    let mut reno = Connection::new(crate::RENO, &[0]);
    for connection in [&mut none, &mut reno] {
        connection.avoid_congestion_from(0, 20.0);
        for _ in 0..100 {
            connection.ack(0, 1);
        }
    }
    assert_eq!(none.packets(0), reno.packets(0));
}

#[test]
fn leaves_the_congested_path() {
    // The same round-trip time, ten times the loss: far less than half of the traffic stays.
    let mut random = Random(3);
    let mut connection = Connection::new(crate::LIA, &[30, 30]);
    let mut sums = [0.0; 2];
    for _ in 0..8_000 {
        for (flow, one_in) in [2000, 200].into_iter().enumerate() {
            for _ in 0..connection.packets(flow) as u64 {
                connection.ack(flow, 1);
                if random.one_in(one_in) {
                    connection.lose(flow);
                    break;
                }
            }
            sums[flow] += connection.packets(flow);
        }
    }
    assert!(sums[1] < 0.15 * (sums[0] + sums[1]), "{sums:?}");
}

#[test]
fn the_threshold_may_go_down_to_one_segment_with_several_subflows() {
    for (rtts_ms, floor) in [(&[20][..], 2.0), (&[20, 20], 1.0)] {
        let mut connection = Connection::new(crate::LIA, rtts_ms);
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
fn spurious_events_are_undone() {
    let mut connection = Connection::new(crate::LIA, &[20, 40]);
    connection.avoid_congestion_from(0, 33.0);
    connection.ack(0, 1);
    let before = connection.controllers[0].window_bytes();
    connection.lose(0);
    connection.controllers[0].on_spurious(connection.now + Duration::from_millis(1));
    assert_eq!(connection.controllers[0].window_bytes(), before);
    assert_eq!(connection.controllers[0].ssthresh_bytes(), 33 * u64::from(MSS));
}
