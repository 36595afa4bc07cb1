//! The policies at work: in the laboratory, and in hosts and links of the simulator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use policies::{LARGEST, Latecomer, RESCUE, every_tenth, steady};
use polypath::link::middlebox::Chain;
use polypath::link::{LinkConfig, QueueLimit};
use polypath::mptcp::{ConnectionConfig, HostConfig};
use polypath::units::{BitRate, Duration, Instant};
use polypath::wire::Endpoint;
use polypath_lab::{PathSet, PathSpec, Variant, Workload, run_set};
use polypath_sim::conversation::Conversation;
use polypath_sim::network::BoxPosition;
use polypath_sim::topologies::{PathConfig, parallel_paths};

fn spec(mbps: u64, rtt_ms: u64) -> PathSpec {
    PathSpec {
        rate: BitRate::from_mbps(mbps),
        rtt: Duration::from_millis(rtt_ms),
        queue: Duration::from_millis(50),
        loss: 0.0,
        change: None,
    }
}

#[test]
fn the_laboratory_runs_a_scheduler_and_a_congestion_control_from_outside() {
    let set = PathSet::from(vec![spec(10, 20), spec(10, 40)]);
    let bulk = Workload::Bulk { duration: Duration::from_secs(5) };
    let outcome = run_set(&set, &Variant::multipath("both", LARGEST, polypath::congestion::CUBIC), &bulk, 1);
    assert!(outcome.goodput_bps > 15e6, "{}", outcome.goodput_bps);
    // 30 segments of some 1440 bytes in 20 and in 40 ms: more than the first path carries, and 8.6 Mbit/s over the second.
    let outcome = run_set(&set, &Variant::multipath("steady", LARGEST, steady()), &bulk, 1);
    assert!((16e6..19e6).contains(&outcome.goodput_bps), "{}", outcome.goodput_bps);
}

/// Bytes that arrive in ten seconds over two paths, the first of which is as given.
fn received_bytes(first: PathConfig, connection: ConnectionConfig) -> (u64, usize) {
    let second = LinkConfig::new(
        BitRate::from_mbps(10),
        Duration::from_millis(10),
        QueueLimit::Delay(Duration::from_millis(50)),
    );
    let config = || HostConfig { connection: Arc::new(connection.clone()), ..HostConfig::default() };
    let (builder, net) =
        parallel_paths(1, [first, PathConfig::symmetric("second", second)], config(), config());
    let mut network = builder.build();
    let (opener, acceptor) = Conversation::plans(1, Some(5_000_000), None);
    let ends = network.converse(Conversation {
        from: net.client,
        local: net.client_addrs[0],
        to: net.server,
        remote: Endpoint::new(net.server_addr, 80),
        start: Instant::ZERO,
        config: None,
        opener,
        acceptor,
    });
    network.run_for(Duration::from_millis(1500));
    let client = network.host(net.client);
    let subflows = client
        .connection(ends.opener.app)
        .and_then(|id| client.stack.info(id))
        .map_or(0, |info| info.subflows.len());
    network.run_for(Duration::from_millis(8500));
    (network.report(ends.acceptor).received_bytes, subflows)
}

fn link() -> LinkConfig {
    LinkConfig::new(
        BitRate::from_mbps(10),
        Duration::from_millis(5),
        QueueLimit::Delay(Duration::from_millis(50)),
    )
}

#[test]
fn a_host_takes_a_path_manager_from_outside() {
    let rescue = ConnectionConfig { path_manager: RESCUE, race: false, ..ConnectionConfig::default() };
    let (bytes, subflows) = received_bytes(PathConfig::symmetric("first", link()), rescue);
    assert_eq!((bytes, subflows), (5_000_000, 1), "nothing failed, so that no second path was opened");
    let (bytes, subflows) =
        received_bytes(PathConfig::symmetric("first", link()), ConnectionConfig::default());
    assert_eq!((bytes, subflows), (5_000_000, 2));
}

#[test]
fn a_link_takes_a_queue_and_a_middlebox_from_outside() {
    let lost_packets = Arc::new(AtomicU64::new(0));
    let lossy = LinkConfig { discipline: every_tenth(Arc::clone(&lost_packets)), ..link() };
    let (bytes, _) = received_bytes(PathConfig::symmetric("lossy", lossy), ConnectionConfig::default());
    assert_eq!(bytes, 5_000_000);
    assert!(lost_packets.load(Ordering::Relaxed) > 10, "{lost_packets:?}");
    let chain = Chain::from(Box::new(Latecomer::new(Duration::from_secs(1))) as Box<_>);
    let late =
        PathConfig { boxes: Some((BoxPosition::First, chain)), ..PathConfig::symmetric("late", link()) };
    let (bytes, _) = received_bytes(late, ConnectionConfig { race: false, ..ConnectionConfig::default() });
    assert_eq!(bytes, 5_000_000, "the handshake began again");
}
