use polypath_link::{Jitter, JitterKind};

use super::*;
use crate::run::{DatagramOutcome, Line, PathSpec};

/// Paths of these rates and one-way delays, with room for 20 packets.
fn set(kbps_and_ms: [(u64, u64); 2]) -> PathSet {
    let path = |(kbps, ms): (u64, u64)| {
        let rate = BitRate::from_kbps(kbps);
        let (rtt, queue) = (Duration::from_millis(2 * ms), rate.time_to_send(20 * 1480));
        PathSpec { rate, rtt, queue, loss: 0.0, change: None }
    };
    PathSet::from(kbps_and_ms.map(path).to_vec())
}

fn variant(aggregator: &str) -> Variant {
    let aggregation = aggregator.parse().expect("an aggregator");
    let policy = polypath_mptcp::scheduler::Policy::default();
    Variant { aggregation, ..Variant::multipath(aggregator, policy, polypath_congestion::CUBIC) }
}

/// Six Mbit/s for so long.
fn traffic(seconds: u64) -> DatagramTraffic {
    DatagramTraffic {
        rate: BitRate::from_mbps(6),
        packet_bytes: 1480,
        duration: Duration::from_secs(seconds),
        burst_bytes: Some(1600),
        redrawn: None,
    }
}

fn run(set: &PathSet, aggregator: &str, traffic: DatagramTraffic) -> (Outcome, DatagramOutcome) {
    let outcome = datagrams_over(set, &variant(aggregator), traffic, 1, None);
    assert_eq!(outcome, datagrams_over(set, &variant(aggregator), traffic, 1, None), "equal seeds");
    let datagrams = outcome.datagrams.expect("datagrams");
    (outcome, datagrams)
}

#[test]
fn a_stream_below_what_the_paths_carry_arrives_whole() {
    let wide = set([(4000, 5), (4000, 5)]);
    for burst_bytes in [None, Some(1600)] {
        let traffic = DatagramTraffic { burst_bytes, ..traffic(5) };
        let (outcome, datagrams) = run(&wide, "round-robin", traffic);
        // 506.8 packets a second.
        assert_eq!((datagrams.sent, datagrams.received), (2534, 2534));
        assert_eq!((datagrams.reordered, datagrams.in_place, datagrams.entropy), (0.0, 1.0, 0.0));
        assert!((outcome.goodput_bps / 6e6 - 1.0).abs() < 1e-3, "{outcome:?}");
        assert_eq!(outcome.paths.iter().map(|path| path.delivered_packets).collect::<Vec<_>>(), [1267, 1267]);
        let of_all = &outcome.series[0].values;
        assert!((of_all[3] / 6e6 - 1.0).abs() < 0.01, "{of_all:?}");
    }
}

#[test]
fn what_a_path_cannot_carry_is_lost_unless_somebody_follows_the_rates() {
    let uneven = set([(1000, 5), (5000, 5)]);
    let lost = |aggregator| {
        let (outcome, datagrams) = run(&uneven, aggregator, traffic(20));
        let drops: u64 = outcome.paths.iter().map(|path| path.queue_drops).sum();
        let lost = datagrams.sent - datagrams.received;
        // Probes are lost, too.
        assert!(lost == drops || lost < drops && aggregator == "nama", "{aggregator}");
        lost as f64 / datagrams.sent as f64
    };
    // Two of three that the slow path is given.
    assert!((lost("round-robin") - 1.0 / 3.0).abs() < 0.01);
    assert!(lost("nama") < 0.02);
    assert!(lost("send-vector") < 0.01);
}

#[test]
fn rates_that_are_drawn_have_the_same_sum_and_the_same_luck_for_all() {
    let even = set([(3000, 5), (3000, 5)]);
    let traffic = DatagramTraffic { redrawn: Some(Duration::from_secs(10)), ..traffic(30) };
    let changes = redrawn(&even, traffic, 7);
    assert_eq!(changes.len(), 3);
    assert!(
        changes.iter().all(|(_, rates)| rates.iter().map(|rate| rate.as_bps()).sum::<u64>() == 6_000_000)
    );
    assert!(changes.iter().rev().map(|(at, _)| at.as_millis()).eq([0, 10_000, 20_000]));
    assert_ne!(changes[0].1, changes[1].1);
    let (_, by_turns) = run(&even, "round-robin", traffic);
    let (_, nama) = run(&even, "nama", traffic);
    assert!(nama.received > by_turns.received, "{nama:?} {by_turns:?}");
    assert!(nama.adaptation_s.is_some(), "{nama:?}");
}

#[test]
fn jitter_is_of_its_path() {
    let plain = set([(100_000, 10), (100_000, 10)]);
    let (_, alike) = run(&plain, "round-robin", traffic(5));
    assert_eq!(alike.reordered, 0.0);
    let jitter = |kind, millis| Jitter { kind, amount: Duration::from_millis(millis), keep_order: false };
    let jitters = vec![Jitter::NONE, jitter(JitterKind::Uniform, 8)];
    let line = Line { jitters, ..Line::default() };
    let (_, varied) = run(&PathSet { line, ..plain }, "round-robin", traffic(5));
    assert!(varied.reordered > 0.1 && varied.received == varied.sent, "{varied:?}");
}
