use alloc::vec;
use alloc::vec::Vec;

use polypath_units::Duration;

use super::*;
use crate::Policy;
use crate::testing::{Connection, MSS, Random, assert_close};

fn olia() -> Policy {
    crate::Policy::by_name("olia").expect("in the table")
}

/// The equations in segments and seconds, straight from the draft.
struct Reference {
    cwnd: f64,
    rtt: f64,
    /// Segments since the last loss, and between the two before.
    since: f64,
    between: f64,
}

impl Reference {
    fn quality(&self) -> f64 {
        self.since.max(self.between) / (self.rtt * self.rtt)
    }
}

/// By integer windows and rounded qualities, so that ties are ties.
fn reference_alpha(flows: &[Reference], own: usize) -> f64 {
    let largest = flows.iter().map(|flow| flow.cwnd).fold(0.0, f64::max);
    let best = flows.iter().map(Reference::quality).fold(0.0, f64::max);
    let m: Vec<usize> = (0..flows.len()).filter(|&r| flows[r].cwnd == largest).collect();
    let b_not_m: Vec<usize> =
        (0..flows.len()).filter(|r| flows[*r].quality() > best * (1.0 - 1e-12) && !m.contains(r)).collect();
    let n = flows.len() as f64;
    if b_not_m.is_empty() {
        0.0
    } else if b_not_m.contains(&own) {
        1.0 / (n * b_not_m.len() as f64)
    } else if m.contains(&own) {
        -1.0 / (n * m.len() as f64)
    } else {
        0.0
    }
}

fn reference_growth(flows: &[Reference], own: usize) -> f64 {
    let total: f64 = flows.iter().map(|flow| flow.cwnd / flow.rtt).sum();
    let flow = &flows[own];
    flow.cwnd / (flow.rtt * flow.rtt) / (total * total) + reference_alpha(flows, own) / flow.cwnd
}

/// A connection in congestion avoidance: for each subflow its window and intervals between losses, in segments.
fn connection(flows: &[Reference]) -> Connection {
    let rtts_ms: Vec<u64> = flows.iter().map(|flow| (flow.rtt * 1e3) as u64).collect();
    let mut connection = Connection::new(olia(), &rtts_ms);
    for (r, flow) in flows.iter().enumerate() {
        connection.avoid_congestion_from(r, flow.cwnd);
        connection.views[r].acked_since_loss_bytes = (flow.since * f64::from(MSS)) as u64;
        connection.views[r].acked_between_losses_bytes = (flow.between * f64::from(MSS)) as u64;
    }
    connection
}

fn flow(cwnd: f64, rtt_ms: u64, since: f64, between: f64) -> Reference {
    Reference { cwnd, rtt: rtt_ms as f64 / 1e3, since, between }
}

/// Growth by a window's worth of acknowledged segments, over what it was with one, in segments.
fn growth(flows: &[Reference], own: usize) -> f64 {
    let mut connection = connection(flows);
    let packets = flows[own].cwnd as u64;
    connection.ack(own, packets);
    (connection.packets(own) - flows[own].cwnd) / packets as f64
}

#[test]
fn grows_by_the_equation_whatever_the_windows_and_losses() {
    let mut random = Random(1);
    let mut below = |n: u64| 1.0 + (random.next() % n) as f64;
    let (mut positive, mut negative, mut zero) = (0, 0, 0);
    for _ in 0..3_000 {
        let flows: Vec<Reference> = (0..2 + below(3) as usize - 1)
            .map(|_| flow(9.0 + below(200), 4 + below(300) as u64, below(5_000), below(5_000)))
            .collect();
        for own in 0..flows.len() {
            let alpha = reference_alpha(&flows, own);
            positive += i32::from(alpha > 0.0);
            negative += i32::from(alpha < 0.0);
            zero += i32::from(alpha == 0.0);
            let packets = flows[own].cwnd;
            // The window is in whole bytes.
            let exact = 2.0 / (f64::from(MSS) * packets);
            assert_close(growth(&flows, own), reference_growth(&flows, own), exact, "growth");
        }
    }
    assert!(positive > 500 && negative > 500 && zero > 500, "{positive} {negative} {zero}");
}

#[test]
fn window_moves_from_the_largest_to_the_best() {
    // Equal round trips: Σw/rtt = 60/rtt, so the coupled term is w/3600.
    let flows = [flow(40.0, 50, 100.0, 100.0), flow(20.0, 50, 400.0, 300.0)];
    assert_close(growth(&flows, 0), 40.0 / 3600.0 - 0.5 / 40.0, 1e-4, "largest, not best: -1/(n·|M|)");
    assert_close(growth(&flows, 1), 20.0 / 3600.0 + 0.5 / 20.0, 1e-4, "best, not largest: 1/(n·|B∖M|)");
}

#[test]
fn nothing_moves_where_the_best_is_the_largest() {
    let flows = [flow(40.0, 50, 400.0, 100.0), flow(20.0, 50, 100.0, 300.0)];
    assert_close(growth(&flows, 0), 40.0 / 3600.0, 1e-4, "largest and best");
    assert_close(growth(&flows, 1), 20.0 / 3600.0, 1e-4, "neither");
}

#[test]
fn ties_share_what_moves() {
    // M = {0, 1}, B∖M = {2, 3}, and one subflow in neither: n = 5.
    let flows = [
        flow(60.0, 50, 100.0, 1.0),
        flow(60.0, 50, 90.0, 1.0),
        flow(20.0, 50, 400.0, 1.0),
        flow(30.0, 50, 1.0, 400.0),
        flow(10.0, 50, 300.0, 300.0),
    ];
    let total = 180.0 * 180.0;
    for (own, alpha) in [-0.1, -0.1, 0.1, 0.1, 0.0].into_iter().enumerate() {
        let w = flows[own].cwnd;
        assert_close(growth(&flows, own), w / total + alpha / w, 1e-4, &alloc::format!("subflow {own}"));
    }
    // A best path that ties with one of the largest windows: B∖M is the other only.
    let flows = [flow(60.0, 50, 400.0, 1.0), flow(20.0, 50, 400.0, 1.0)];
    assert_close(growth(&flows, 0), 60.0 / 6400.0 - 0.5 / 60.0, 1e-4, "best and largest, another is best");
    assert_close(growth(&flows, 1), 20.0 / 6400.0 + 0.5 / 20.0, 1e-4, "best only");
}

/// The square of what a TCP carries that loses a segment in each ℓ, in segments a second: √(1.5 · ℓ)/rtt (Mathis et al. 1997).
fn squared_rate_of_a_tcp(flow: &Reference) -> f64 {
    1.5 * flow.since.max(flow.between) / (flow.rtt * flow.rtt)
}

#[test]
fn the_better_path_is_that_on_which_a_tcp_is_faster() {
    let mut random = Random(7);
    let mut below = |n: u64| 1.0 + (random.next() % n) as f64;
    let (mut best, mut disagrees) = (0, 0);
    for _ in 0..2_000 {
        let mut path = |cwnd| flow(cwnd, 4 + below(300) as u64, below(5_000), below(5_000));
        let flows = [path(20.0), path(40.0)];
        let (own, other) = (squared_rate_of_a_tcp(&flows[0]), squared_rate_of_a_tcp(&flows[1]));
        if (own / other - 1.0).abs() < 0.01 {
            continue;
        }
        // Window moves to the smaller subflow only if it has the better path.
        let total = 20.0 / flows[0].rtt + 40.0 / flows[1].rtt;
        let coupled = 20.0 / (flows[0].rtt * flows[0].rtt) / (total * total);
        let alpha = if own > other { 0.5 } else { 0.0 };
        assert_close(growth(&flows, 0), coupled + alpha / 20.0, 1e-4, "growth");
        best += i32::from(own > other);
        // The draft's order, for which the docs say why it is not taken.
        let by_draft = |flow: &Reference| flow.since.max(flow.between).powi(2) / flow.rtt;
        disagrees += i32::from((own > other) != (by_draft(&flows[0]) > by_draft(&flows[1])));
    }
    assert!(best > 500 && disagrees > 200, "{best} {disagrees}");
}

#[test]
fn a_single_flow_is_reno() {
    let mut olia = Connection::new(olia(), &[30]);
    let mut reno = Connection::new(crate::RENO, &[30]);
    for i in 0..3_000 {
        for connection in [&mut olia, &mut reno] {
            connection.ack(0, 1 + i % 3);
            match i % 700 {
                699 => connection.lose(0),
                350 => connection.time_out(0),
                _ => {}
            }
        }
        assert_eq!(olia.packets(0), reno.packets(0));
    }
}

#[test]
fn loss_halves_down_to_one_segment_with_several_subflows() {
    for (rtts_ms, floor) in [(&[20][..], 2.0), (&[20, 20], 1.0)] {
        let mut connection = Connection::new(olia(), rtts_ms);
        connection.avoid_congestion_from(0, 40.0);
        connection.lose(0);
        assert_eq!(connection.packets(0), 20.0);
        for _ in 0..10 {
            connection.lose(0);
        }
        assert_eq!(connection.packets(0), floor);
    }
}

#[test]
fn the_window_never_shrinks_below_one_segment() {
    let flows = [flow(1.0, 50, 1.0, 1.0), flow(1.0, 50, 1.0, 1.0), flow(0.9, 50, 900.0, 900.0)];
    let mut connection = connection(&flows);
    for _ in 0..50 {
        connection.ack(0, 1);
        assert!(connection.packets(0) >= 1.0);
    }
}

#[test]
fn subflows_without_a_round_trip_time_count_in_nothing() {
    let with_new = [flow(20.0, 50, 90.0, 0.0), flow(40.0, 50, 10.0, 0.0), flow(80.0, 0, 0.0, 0.0)];
    let without = [flow(20.0, 50, 90.0, 0.0), flow(40.0, 50, 10.0, 0.0)];
    for own in 0..2 {
        assert_eq!(growth(&with_new, own), growth(&without, own));
    }
    assert_close(growth(&[flow(20.0, 0, 0.0, 0.0), flow(10.0, 0, 0.0, 0.0)], 0), 1.0 / 20.0, 1e-4, "as Reno");
}

#[test]
fn spurious_events_are_undone() {
    let mut connection = Connection::new(olia(), &[20, 40]);
    connection.avoid_congestion_from(0, 33.0);
    connection.ack(0, 1);
    let before = connection.controllers[0].window_bytes();
    connection.lose(0);
    connection.controllers[0].on_spurious(connection.now + Duration::from_millis(1));
    assert_eq!(connection.controllers[0].window_bytes(), before);
}

#[test]
fn all_alphas_sum_up_to_zero() {
    let flows = vec![flow(60.0, 50, 10.0, 1.0), flow(60.0, 70, 9.0, 1.0), flow(20.0, 40, 400.0, 1.0)];
    let views = connection(&flows).views;
    let mut views: Vec<FlowView> = views;
    for (view, flow) in views.iter_mut().zip(&flows) {
        view.window_bytes = (flow.cwnd * f64::from(MSS)) as u64;
    }
    let sum: f64 = (0..3).map(|own| alpha(&views[own], &Flows { all: &views, own })).sum();
    assert_close(sum, 0.0, 1e-12, "sum");
}
