//! Multipath TCP hosts in simulated networks: what arrives, over which paths, and what is left behind.

use std::net::IpAddr;
use std::sync::Arc;

use polypath_congestion::Unlimited;
use polypath_link::{Change, LinkConfig, QueueLimit};
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_sim::app::{ExchangePlan, SendPlan, TrafficPlan};
use polypath_sim::conversation::{Conversation, Ends};
use polypath_sim::network::{LinkSpec, Network, NetworkBuilder};
use polypath_sim::topologies::{ParallelPaths, PathConfig, dumbbell, parallel_paths};
use polypath_sim::trace::TraceOutputs;
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::{Endpoint, MptcpVersion};

fn host(config: ConnectionConfig) -> HostConfig {
    HostConfig { connection: Arc::new(config), ..HostConfig::default() }
}

fn line(mbps: u64, one_way_ms: u64) -> LinkConfig {
    let queue = QueueLimit::Delay(Duration::from_millis(50));
    LinkConfig::new(BitRate::from_mbps(mbps), Duration::from_millis(one_way_ms), queue)
}

fn path(name: &str, mbps: u64, one_way_ms: u64) -> PathConfig {
    PathConfig::symmetric(name, line(mbps, one_way_ms))
}

/// WiFi-like and LTE-like.
fn two_paths(config: ConnectionConfig) -> (Network, ParallelPaths) {
    let paths = [path("wifi", 40, 10), path("lte", 20, 30)];
    let (builder, net) = parallel_paths(1, paths, host(config.clone()), host(config));
    (builder.build(), net)
}

fn converse(network: &mut Network, net: &ParallelPaths, opener: TrafficPlan, acceptor: TrafficPlan) -> Ends {
    network.converse(Conversation {
        from: net.client,
        local: net.client_addrs[0],
        to: net.server,
        remote: Endpoint::new(net.server_addr, 80),
        start: Instant::ZERO,
        config: None,
        opener,
        acceptor,
    })
}

#[track_caller]
fn assert_clean(network: &mut Network, net: &ParallelPaths) {
    network.run_for(Duration::from_secs(300));
    for node in [net.client, net.server] {
        let stack = &network.host(node).stack;
        assert_eq!(
            (stack.population().connections, stack.population().flows, stack.token_count()),
            (0, 0, 0)
        );
    }
}

#[test]
fn a_transfer_both_ways_uses_both_paths_and_leaves_nothing() {
    for version in [MptcpVersion::V0, MptcpVersion::V1] {
        let (mut network, net) = two_paths(ConnectionConfig { version, ..ConnectionConfig::default() });
        let (opener, acceptor) = Conversation::plans(0, Some(3_000_000), Some(5_000_000));
        let ends = converse(&mut network, &net, opener, acceptor);
        network.run_until(Instant::from_secs(20));
        let [client, server] = [ends.opener, ends.acceptor].map(|end| network.report(end).clone());
        assert_eq!((server.received_bytes, client.received_bytes), (3_000_000, 5_000_000));
        assert_eq!((server.mismatch, client.mismatch), (None, None));
        assert_eq!(client.closed.map(|(_, in_order, _)| in_order), Some(true), "{client:?}");
        // 5 MB at 60 Mbit/s take 0.7 s; slow start and the handshakes take the rest.
        assert!(client.last_received_at.unwrap() < Instant::from_secs(2), "{client:?}");
        for link in &net.links {
            assert!(network.channel_stats(link.backward()).delivered_bytes > 1_000_000);
        }
        assert_clean(&mut network, &net);
    }
}

#[test]
fn plain_tcp_stays_on_its_path() {
    let (mut network, net) = two_paths(ConnectionConfig { mptcp: false, ..ConnectionConfig::default() });
    let (opener, acceptor) = Conversation::plans(0, None, Some(2_000_000));
    let ends = converse(&mut network, &net, opener, acceptor);
    network.run_until(Instant::from_secs(20));
    assert_eq!(network.report(ends.opener).received_bytes, 2_000_000);
    assert_eq!(network.channel_stats(net.links[1].backward()).delivered_packets, 0);
    assert_clean(&mut network, &net);
}

#[test]
fn a_cut_path_does_not_stop_the_transfer() {
    let (mut network, net) = two_paths(ConnectionConfig::default());
    let (opener, acceptor) = Conversation::plans(0, None, Some(20_000_000));
    let ends = converse(&mut network, &net, opener, acceptor);
    network.run_until(Instant::from_secs(1));
    for channel in [net.links[0].forward(), net.links[0].backward()] {
        network.change(channel, Change::Down);
    }
    network.run_until(Instant::from_secs(3));
    let at_cut = network.report(ends.opener).received_bytes;
    network.run_until(Instant::from_secs(5));
    let later = network.report(ends.opener).received_bytes;
    // LTE alone carries 5 MB in two seconds.
    assert!(later - at_cut > 4_000_000, "{at_cut} then {later}");
    for channel in [net.links[0].forward(), net.links[0].backward()] {
        network.change(channel, Change::Up);
    }
    network.run_until(Instant::from_secs(30));
    let report = network.report(ends.opener);
    assert_eq!((report.received_bytes, report.mismatch), (20_000_000, None));
    assert_clean(&mut network, &net);
}

#[test]
fn requests_are_answered_in_turn() {
    let (mut network, net) = two_paths(ConnectionConfig::default());
    let exchange = ExchangePlan { initiates: true, request_bytes: 300, response_bytes: 20_000, count: 10 };
    let (opener, acceptor) = Conversation::plans(0, None, None);
    let opener = TrafficPlan { send: SendPlan::Exchange(exchange), ..opener };
    let answer = SendPlan::Exchange(ExchangePlan { initiates: false, ..exchange });
    let acceptor = TrafficPlan { send: answer, ..acceptor };
    let ends = converse(&mut network, &net, opener, acceptor);
    network.run_until(Instant::from_secs(20));
    let client = network.report(ends.opener);
    assert_eq!((client.exchanges, client.received_bytes, client.mismatch), (10, 200_000, None));
    assert_clean(&mut network, &net);
}

#[test]
fn blocks_are_timed_from_their_making() {
    let (mut network, net) = two_paths(ConnectionConfig::default());
    let (opener, acceptor) = Conversation::plans(0, None, None);
    let send =
        SendPlan::Blocks { block_bytes: 8000, rate: Some(BitRate::from_mbps(4)), total_bytes: 800_000 };
    let ends = converse(&mut network, &net, TrafficPlan { send, ..opener }, acceptor);
    network.run_until(Instant::from_secs(20));
    let [client, server] = [ends.opener, ends.acceptor].map(|end| network.report(end));
    let delays: Vec<Duration> = server.block_delays(client).collect();
    assert_eq!(delays.len(), 100);
    // One way over WiFi takes 10 ms and the sending time; over LTE 30 ms.
    assert!(delays.iter().all(|delay| (11..60).contains(&delay.as_millis())), "{delays:?}");
}

#[test]
fn an_abort_ends_both_ends() {
    let (mut network, net) = two_paths(ConnectionConfig::default());
    let (opener, acceptor) = Conversation::plans(0, Some(u64::MAX), Some(u64::MAX));
    let opener = TrafficPlan { abort_at: Some(Instant::from_millis(700)), ..opener };
    let ends = converse(&mut network, &net, opener, acceptor);
    network.run_until(Instant::from_secs(5));
    let [client, server] = [ends.opener, ends.acceptor].map(|end| network.report(end));
    assert!(client.aborted && client.closed.is_some() && server.closed.is_some());
    assert_eq!((client.mismatch, server.mismatch), (None, None));
    assert_clean(&mut network, &net);
}

#[test]
fn flows_share_a_bottleneck() {
    let config = ConnectionConfig { mptcp: false, ..ConnectionConfig::default() };
    let net = dumbbell(1, line(20, 5), [line(100, 5), line(100, 5)], &host(config));
    let mut network = net.builder.build();
    let ends: Vec<Ends> = (0..2)
        .map(|pair| {
            let (opener, acceptor) = Conversation::plans(pair as u64, Some(u64::MAX), None);
            network.converse(Conversation {
                from: net.left[pair].0,
                local: net.left[pair].1,
                to: net.right[pair].0,
                remote: Endpoint::new(net.right[pair].1, 80),
                start: Instant::ZERO,
                config: None,
                opener,
                acceptor,
            })
        })
        .collect();
    network.run_until(Instant::from_secs(20));
    let received: Vec<u64> = ends.iter().map(|ends| network.report(ends.acceptor).received_bytes).collect();
    // 20 Mbit/s over 20 s are 50 MB.
    assert!(received.iter().sum::<u64>() > 44_000_000, "{received:?}");
    assert!(received.iter().all(|bytes| *bytes > 15_000_000), "{received:?}");
}

#[test]
fn traces_are_equal_for_equal_seeds_and_pcapng_has_an_interface_for_each_link() {
    let run = |seed| {
        let config = ConnectionConfig::default();
        let paths = [path("wifi", 40, 10), path("lte", 20, 30)];
        let (builder, net) = parallel_paths(seed, paths, host(config.clone()), host(config));
        let file = std::env::temp_dir().join(format!("polypath-sim-{}-{seed}.pcapng", std::process::id()));
        let out = std::fs::File::create(&file).unwrap();
        let outputs = TraceOutputs { hash: true, pcapng: Some(Box::new(out)), ..TraceOutputs::default() };
        let tracer = builder.tracer(outputs).unwrap();
        let mut network = builder.build();
        network.set_tracer(Some(tracer));
        let (opener, acceptor) = Conversation::plans(0, None, Some(100_000));
        converse(&mut network, &net, opener, acceptor);
        network.run_until(Instant::from_secs(2));
        let hash = network.trace_hash().unwrap();
        network.take_tracer().unwrap().finish().unwrap();
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        (hash, bytes)
    };
    let (first, again, other) = (run(1), run(1), run(2));
    assert!(first == again, "two runs of one seed differ");
    assert_ne!(first.0, other.0);
    let text = String::from_utf8_lossy(&first.1);
    assert!(text.contains("wifi") && text.contains("lte") && first.1.len() > 100_000);
}

#[test]
fn plain_tcp_hosts_talk_to_each_other_and_to_multipath_hosts() {
    for multipath_client in [false, true] {
        let mut builder = NetworkBuilder::new(1);
        let client = match multipath_client {
            true => builder.host("client", HostConfig::default()),
            false => builder.tcp_host("client", polypath_tcp::HostConfig::default()),
        };
        let server = builder.tcp_host("server", polypath_tcp::HostConfig::default());
        let [local, remote]: [IpAddr; 2] = ["2001:db8::1", "2001:db8::2"].map(|addr| addr.parse().unwrap());
        let spec = LinkSpec::new("link", [client, server], [Some(local), Some(remote)]);
        builder.link(spec.with(line(40, 10), line(40, 10)));
        let mut network = builder.build();
        let (opener, acceptor) = Conversation::plans(0, Some(1_000_000), Some(2_000_000));
        let ends = network.converse(Conversation {
            from: client,
            local,
            to: server,
            remote: Endpoint::new(remote, 80),
            start: Instant::from_millis(5),
            config: None,
            opener,
            acceptor,
        });
        network.run_until(Instant::from_secs(20));
        let [client, acceptor] = [ends.opener, ends.acceptor].map(|end| network.report(end));
        assert_eq!((acceptor.received_bytes, client.received_bytes), (1_000_000, 2_000_000));
        assert_eq!((acceptor.mismatch, client.mismatch), (None, None));
        assert_eq!(client.fell_back.is_some(), multipath_client, "{client:?}");
        network.run_for(Duration::from_secs(300));
        let population = network.tcp_host(server).stack.population();
        assert_eq!((population.connections, population.flows, population.timers), (0, 0, 0));
    }
}

#[test]
fn a_congestion_window_without_bounds_ends_nothing() {
    let config = ConnectionConfig { congestion: Unlimited::ALGORITHM, ..ConnectionConfig::default() };
    let (mut network, net) = two_paths(config);
    let (opener, acceptor) = Conversation::plans(0, Some(3_000_000), Some(5_000_000));
    let ends = converse(&mut network, &net, opener, acceptor);
    // The queues are short, so that much is lost.
    network.run_until(Instant::from_secs(120));
    let [client, server] = [ends.opener, ends.acceptor].map(|end| network.report(end).clone());
    assert_eq!((server.received_bytes, client.received_bytes), (3_000_000, 5_000_000));
    assert_clean(&mut network, &net);
}
