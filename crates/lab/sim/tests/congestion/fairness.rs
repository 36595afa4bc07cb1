//! Connections that share a bottleneck.

use polypath_link::{Jitter, LinkConfig, QueueLimit};
use polypath_sim::network::{LinkSpec, Network, NetworkBuilder};
use polypath_units::{BitRate, Duration, Instant};

use crate::network::{Random, add_pair, goodput, settings, wire};

/// Goodput of a connection with two subflows over that of one TCP with Reno, at a bottleneck which both share: 20 Mbit/s,
/// 40 ms, and a queue of one bandwidth-delay product.
fn share_of_one_tcp(congestion: &str, seed: u64) -> f64 {
    let mut random = Random(seed);
    let mut builder = NetworkBuilder::new(seed);
    let routers = [builder.router("left"), builder.router("right")];
    let delay = Duration::from_millis(15);
    let queue = QueueLimit::Delay(Duration::from_millis(40));
    let shared = LinkConfig::new(BitRate::from_mbps(20), delay, queue);
    builder.link(LinkSpec::new("shared", routers, [None, None]).with(shared.clone(), shared));
    // Without some jitter the same flow always finds the queue full, as if there were one clock for all.
    let mut access = || {
        let delay = Duration::from_millis(4) + random.micros_below(2_000);
        LinkConfig { jitter: Jitter::uniform(Duration::from_millis(1)), ..wire(delay) }
    };
    let ways = [(routers[0], access()), (routers[0], access())];
    let multi = add_pair(&mut builder, 1, settings(congestion, true), &ways, &routers[1..]);
    let single = add_pair(&mut builder, 2, settings("reno", false), &[(routers[0], access())], &routers[1..]);
    let mut network = builder.build();
    let starts = [0, 1].map(|_| Instant::ZERO + random.micros_below(2_000_000));
    let ends = [multi.start(&mut network, 0, starts[0]), single.start(&mut network, 1, starts[1])];
    let bytes = goodput(&mut network, &ends, 20, 200);
    assert_eq!(network.report(ends[0].opener).subflows_established, 2);
    bytes[0] / bytes[1]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn two_subflows_share_a_bottleneck_with_one_tcp_as_one_would() {
    for congestion in ["lia", "olia", "balia"] {
        let shares: Vec<f64> = (1..=5).map(|seed| share_of_one_tcp(congestion, seed)).collect();
        let median = median(shares.clone());
        println!("{congestion}: {median:.3} of one TCP, of {shares:.2?}");
        assert!((0.8..=1.2).contains(&median), "{congestion}: {shares:?}");
    }
    // What the coupling is for.
    let uncoupled = share_of_one_tcp("reno", 1);
    println!("reno: {uncoupled:.3} of one TCP");
    assert!(uncoupled > 1.5, "{uncoupled}");
}

/// A connection over two paths of 10 Mbit/s; on the second, `rivals` plain TCPs compete. The second path's share of what
/// the connection sends.
fn share_of_second_path(congestion: &str, rivals: u8) -> f64 {
    let mut random = Random(5);
    let mut builder = NetworkBuilder::new(5);
    let queue = QueueLimit::Delay(Duration::from_millis(60));
    let line = LinkConfig::new(BitRate::from_mbps(10), Duration::from_millis(20), queue);
    let sides: Vec<_> = ["first", "second"]
        .map(|name| {
            let routers = [builder.router(format!("{name} left")), builder.router(format!("{name} right"))];
            builder.link(LinkSpec::new(name, routers, [None, None]).with(line.clone(), line.clone()));
            routers
        })
        .to_vec();
    let mut access = || {
        let delay = Duration::from_millis(8) + random.micros_below(2_000);
        LinkConfig { jitter: Jitter::uniform(Duration::from_millis(1)), ..wire(delay) }
    };
    let ways = [(sides[0][0], access()), (sides[1][0], access())];
    let multi = add_pair(&mut builder, 1, settings(congestion, true), &ways, &[sides[0][1], sides[1][1]]);
    let single: Vec<_> = (0..rivals)
        .map(|i| {
            let ways = [(sides[1][0], access())];
            add_pair(&mut builder, 2 + i, settings("reno", false), &ways, &[sides[1][1]])
        })
        .collect();
    let mut network = builder.build();
    let ends = multi.start(&mut network, 0, Instant::ZERO);
    for (number, pair) in (1..).zip(&single) {
        pair.start(&mut network, number, Instant::from_millis(100 * number));
    }
    let sent = |network: &Network| -> Vec<u64> {
        let info = network.connection_info(ends.opener).expect("it is open");
        info.subflows.iter().map(|subflow| subflow.tcp.bytes_acked).collect()
    };
    network.run_until(Instant::from_secs(20));
    let before = sent(&network);
    network.run_until(Instant::from_secs(80));
    let bytes: Vec<u64> = sent(&network).iter().zip(before).map(|(after, before)| after - before).collect();
    bytes[1] as f64 / (bytes[0] + bytes[1]) as f64
}

#[test]
fn traffic_leaves_a_congested_path() {
    let uncoupled = share_of_second_path("reno", 3);
    for (congestion, most) in [("lia", 0.8), ("olia", 0.6), ("balia", 0.7), ("wvegas", 0.8)] {
        let alone = share_of_second_path(congestion, 0);
        let crowded = share_of_second_path(congestion, 3);
        println!(
            "{congestion}: {alone:.3} of the traffic on the second path, {crowded:.3} beside three TCPs ({uncoupled:.3} uncoupled)"
        );
        assert!((0.4..0.6).contains(&alone), "{congestion}: {alone}");
        assert!(crowded < most * uncoupled, "{congestion}: {crowded} of {uncoupled}");
    }
}

/// Two plain TCPs at one bottleneck of 20 Mbit/s and 40 ms: goodput of the first over that of the second.
fn one_beside_another(first: &str, second: &str) -> f64 {
    let mut builder = NetworkBuilder::new(3);
    let routers = [builder.router("left"), builder.router("right")];
    let queue = QueueLimit::Delay(Duration::from_millis(60));
    let shared = LinkConfig::new(BitRate::from_mbps(20), Duration::from_millis(15), queue);
    builder.link(LinkSpec::new("shared", routers, [None, None]).with(shared.clone(), shared));
    let mut pair = |site, congestion| {
        let access = LinkConfig {
            jitter: Jitter::uniform(Duration::from_millis(1)),
            ..wire(Duration::from_millis(4))
        };
        add_pair(&mut builder, site, settings(congestion, false), &[(routers[0], access)], &routers[1..])
    };
    let pairs = [pair(1, first), pair(2, second)];
    let mut network = builder.build();
    let ends = [0, 1].map(|i| pairs[i].start(&mut network, i as u64, Instant::from_millis(700 * i as u64)));
    let bytes = goodput(&mut network, &ends, 20, 120);
    bytes[0] / bytes[1]
}

#[test]
fn low_priority_leaves_the_line_to_others() {
    let beside_reno = one_beside_another("lp", "reno");
    let beside_itself = one_beside_another("lp", "lp");
    println!("lp: {beside_reno:.3} of reno, {beside_itself:.3} of another lp");
    assert!(beside_reno < 0.3, "{beside_reno}");
    assert!((0.3..3.0).contains(&beside_itself), "{beside_itself}");
}
