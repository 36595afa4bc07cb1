//! Path managers at work: handovers, further subflows, outages.

use alloc::boxed::Box;
use core::net::IpAddr;
use std::vec::Vec;

use bytes::Bytes;
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, Options};

use super::network::{Network, PORT, Way, client_addr, pattern, segment_mut, server_addr};
use crate::path_manager::{Budget, LocalEndpoint, Policy};
use crate::{
    CloseReason, ConnectionConfig, ConnectionId, Event, Host, HostConfig, LiaOnSharedAccess, SubflowInfo,
    scheduler,
};

const TICK: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// A client with the path manager `manager`; the priority of each endpoint is the number of its path.
fn network(delays_ms: &[u64], manager: &str, scheduler: &str) -> Network {
    let config = ConnectionConfig {
        path_manager: manager.parse().expect("a path manager"),
        scheduler: scheduler::Policy::by_name(scheduler).expect("a scheduler"),
        ..ConnectionConfig::default()
    };
    let mut network = Network::new(delays_ms, config, ConnectionConfig::default(), 1);
    for path in 0..delays_ms.len() {
        network.client.add_endpoint(network.now, endpoint(path));
    }
    network
}

fn endpoint(path: usize) -> LocalEndpoint {
    LocalEndpoint::subflow(client_addr(path), path as u8 + 1).priority(path as u8)
}

/// A client that sends 10 KB every 10 ms to a server that reads them.
struct Upload {
    client: ConnectionId,
    sent: usize,
    received: usize,
    last_arrival: Instant,
    /// Longest time in which nothing arrived.
    longest_gap: Duration,
}

impl Upload {
    fn start(network: &mut Network) -> Self {
        let client = network.connect();
        network.run_until(network.now + SECOND);
        let last_arrival = network.now;
        Self { client, sent: 0, received: 0, last_arrival, longest_gap: Duration::ZERO }
    }

    fn run_for(&mut self, network: &mut Network, time: Duration) {
        let end = network.now + time;
        let server = network.accepted();
        while network.now < end {
            let block = Bytes::from(pattern(self.sent, 10_000));
            self.sent += network.client.send(self.client, block).expect("the connection lives");
            self.tick(network, server);
        }
    }

    fn tick(&mut self, network: &mut Network, server: ConnectionId) {
        network.run_until(network.now + TICK);
        while let Some(data) = network.server.recv(server) {
            assert!(data.to_vec() == pattern(self.received, data.len()), "at {}", self.received);
            self.received += data.len();
            self.last_arrival = network.now;
        }
        self.longest_gap = self.longest_gap.max(network.now.since(self.last_arrival));
    }

    /// Everything arrives.
    #[track_caller]
    fn finish(&mut self, network: &mut Network) {
        let (server, end) = (network.accepted(), network.now + SECOND * 5);
        while self.received < self.sent && network.now < end {
            self.tick(network, server);
        }
        assert_eq!(self.received, self.sent, "{}", network.log.join("\n"));
    }

    fn subflows(&self, network: &Network) -> Vec<SubflowInfo> {
        network.client.info(self.client).expect("the connection lives").subflows
    }

    fn addresses(&self, network: &Network) -> Vec<(IpAddr, IpAddr)> {
        let subflows = self.subflows(network);
        let mut pairs: Vec<_> = subflows.iter().map(|s| (s.tuple.local.addr, s.tuple.remote.addr)).collect();
        pairs.sort_unstable();
        pairs
    }
}

/// Data segments that went to the server and arrived, on each path, from line `from` of the log on.
fn carried(network: &Network, from: usize) -> Vec<usize> {
    let mut counts = std::vec![0; network.cut.len()];
    for line in network.log.iter().skip(from).filter(|line| !line.ends_with("lost")) {
        let words: Vec<&str> = line.split(' ').collect();
        if let Some(path) = words[1].strip_suffix('>')
            && words[3] != "0"
        {
            counts[path.parse::<usize>().expect("a path")] += 1;
        }
    }
    counts
}

/// The paths that carried nearly all of the data.
fn users(network: &Network, from: usize) -> Vec<usize> {
    let counts = carried(network, from);
    let all: usize = counts.iter().sum();
    (0..counts.len()).filter(|path| counts[*path] * 20 > all).collect()
}

/// Which subflows of the server are backups, by path.
fn backups_at_server(network: &Network) -> Vec<usize> {
    let info = network.server.info(network.accepted()).expect("the connection lives");
    let backups = info.subflows.iter().filter(|subflow| subflow.is_backup());
    let path = |addr| (0..network.cut.len()).find(|path| client_addr(*path) == addr).expect("a client's");
    let mut paths: Vec<usize> = backups.map(|subflow| path(subflow.tuple.remote.addr)).collect();
    paths.sort_unstable();
    paths
}

#[test]
fn make_before_break_hands_over_without_a_gap() {
    let mut network = network(&[10, 30, 50], "make-before-break", "default");
    let mut upload = Upload::start(&mut network);
    upload.run_for(&mut network, SECOND);
    assert_eq!(upload.subflows(&network).len(), 3);
    assert_eq!((users(&network, 0), backups_at_server(&network)), (std::vec![0], std::vec![1, 2]));

    // The address of the one in use goes.
    let start = network.log.len();
    upload.longest_gap = Duration::ZERO;
    network.client.remove_endpoint(network.now, client_addr(0));
    upload.run_for(&mut network, SECOND);
    // A round trip of the next: what was in flight goes again, before what is new.
    assert!(upload.longest_gap <= Duration::from_millis(80), "{:?}", upload.longest_gap);
    assert_eq!((users(&network, start), backups_at_server(&network)), (std::vec![1], std::vec![2]));

    // The path of the next dies silently: what it holds goes elsewhere after a timeout, then the roles change.
    network.cut[1] = true;
    upload.longest_gap = Duration::ZERO;
    upload.run_for(&mut network, SECOND * 5);
    assert!(upload.longest_gap <= Duration::from_millis(600), "{:?}", upload.longest_gap);
    assert_eq!((network.client.counters().subflow_stale, network.client.counters().subflow_recover), (1, 0));
    let subflows = upload.subflows(&network);
    let last = subflows.iter().find(|s| s.tuple.local.addr == client_addr(2)).expect("the third subflow");
    assert!(!last.is_backup() && backups_at_server(&network).is_empty());

    // It comes back, and so does the first, which is the best of all.
    network.cut[1] = false;
    upload.run_for(&mut network, SECOND * 2);
    let start = network.log.len();
    upload.run_for(&mut network, SECOND);
    assert_eq!((users(&network, start), backups_at_server(&network)), (std::vec![1], std::vec![2]));
    network.client.add_endpoint(network.now, endpoint(0));
    upload.run_for(&mut network, SECOND);
    let start = network.log.len();
    upload.longest_gap = Duration::ZERO;
    upload.run_for(&mut network, SECOND);
    assert!(upload.longest_gap <= Duration::from_millis(50), "{:?}", upload.longest_gap);
    assert_eq!((users(&network, start), backups_at_server(&network)), (std::vec![0], std::vec![1, 2]));
    upload.finish(&mut network);
}

#[test]
fn break_before_make_has_one_subflow_at_a_time() {
    let mut network = network(&[10, 20], "break-before-make", "default");
    let mut upload = Upload::start(&mut network);
    upload.run_for(&mut network, SECOND);
    assert_eq!(upload.addresses(&network), [(client_addr(0), server_addr(0))]);

    network.cut[0] = true;
    upload.run_for(&mut network, SECOND * 5);
    assert_eq!(upload.addresses(&network), [(client_addr(1), server_addr(0))]);
    // The peer could not hear of the end of the first but on the second.
    let info = network.server.info(network.accepted()).expect("the connection lives");
    assert_eq!(info.subflows.len(), 1, "{}", network.log.join("\n"));

    network.cut[0] = false;
    network.client.remove_endpoint(network.now, client_addr(1));
    upload.run_for(&mut network, SECOND);
    assert_eq!(upload.addresses(&network), [(client_addr(0), server_addr(0))]);
    upload.finish(&mut network);
    let established = |(_, event): &&(ConnectionId, Event)| matches!(event, Event::SubflowEstablished { .. });
    assert_eq!(network.client_events.iter().filter(established).count(), 3);
}

/// The server uses the address that the connection began at no more, and then again.
#[test]
fn the_initial_address_of_the_server_comes_back() {
    let mut network = network(&[10, 20], "endpoints", "round-robin");
    let signal = |path: usize| LocalEndpoint::signal(server_addr(path), path as u8 + 1);
    for path in 0..2 {
        network.server.add_endpoint(network.now, signal(path));
    }
    let mut upload = Upload::start(&mut network);
    upload.run_for(&mut network, SECOND);
    let all = upload.addresses(&network);
    let is_initial = |pair: &(IpAddr, IpAddr)| pair.1 == server_addr(0);
    assert!(all.iter().any(is_initial) && !all.iter().all(is_initial), "{all:?}");
    for _ in 0..3 {
        network.server.remove_endpoint(network.now, server_addr(0));
        upload.run_for(&mut network, SECOND * 5);
        assert!(!upload.addresses(&network).iter().any(is_initial), "{}", network.log.join("\n"));
        network.server.add_endpoint(network.now, signal(0));
        upload.run_for(&mut network, SECOND);
        assert_eq!(upload.addresses(&network), all, "{}", network.log.join("\n"));
    }
    upload.finish(&mut network);
}

#[test]
fn a_connection_lives_through_a_time_without_any_path() {
    let mut network = network(&[10, 20], "break-before-make", "default");
    network.client.remove_endpoint(network.now, client_addr(1));
    let mut upload = Upload::start(&mut network);
    upload.run_for(&mut network, SECOND);
    network.cut[0] = true;
    network.client.remove_endpoint(network.now, client_addr(0));
    upload.run_for(&mut network, SECOND * 20);
    network.client.add_endpoint(network.now, endpoint(1));
    upload.run_for(&mut network, SECOND);
    assert_eq!(upload.addresses(&network), [(client_addr(1), server_addr(0))]);
    upload.finish(&mut network);
}

/// The server has all and said all, but its last acknowledgment is lost, and the subflow with it. Whoever joins to hear it
/// again is told, and not that there is no such connection.
#[test]
fn who_missed_the_last_acknowledgment_hears_it_on_the_next_subflow() {
    let mut network = network(&[10, 20], "break-before-make", "default");
    let client = network.connect();
    network.run_until(network.now + SECOND);
    let server = network.accepted();
    network.server.shutdown(network.now, server);
    network.run_until(network.now + SECOND);
    network.meddle = std::boxed::Box::new(|way, packet| {
        if way == Way::ToClient && packet.ip.dst == client_addr(0) { std::vec![] } else { std::vec![packet] }
    });
    network.client.send(client, Bytes::from(pattern(0, 5_000))).expect("the connection lives");
    network.client.shutdown(network.now, client);
    network.run_until(network.now + SECOND * 20);
    let log = network.log.join("\n");
    let mut received = Vec::new();
    while let Some(data) = network.server.recv(server) {
        received.extend(data.to_vec());
    }
    assert!(received == pattern(0, 5_000), "{log}");
    for events in [&network.client_events, &network.server_events] {
        assert_eq!(
            events.last().map(|(_, event)| *event),
            Some(Event::Closed(CloseReason::Finished)),
            "{log}"
        );
    }
}

#[test]
fn ndiffports_opens_its_number_over_each_pair() {
    let mut network = network(&[10, 20], "ndiffports:2", "round-robin");
    let mut upload = Upload::start(&mut network);
    let (first, second) = ((client_addr(0), server_addr(0)), (client_addr(1), server_addr(0)));
    assert_eq!(upload.addresses(&network), [first, first, second, second]);
    upload.run_for(&mut network, SECOND);
    let subflows = upload.subflows(&network);
    let mut ports: Vec<_> = subflows.iter().map(|s| s.tuple.local).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 4, "a path of its own for each");
    assert!(subflows.iter().all(|subflow| subflow.tcp.bytes_acked > 0));
    upload.finish(&mut network);
}

#[test]
fn over_one_access_link_lia_takes_the_place_of_the_default_congestion_control_alone() {
    let of_both = |congestion: Option<&str>, lia_on_shared_access| {
        let default = ConnectionConfig::default();
        let congestion = congestion.map_or(default.congestion.clone(), |name| name.parse().expect("a name"));
        let path_manager = "ndiffports:2".parse().expect("a path manager");
        let client = ConnectionConfig { congestion, lia_on_shared_access, path_manager, ..default };
        let mut network = Network::new(&[10], client, ConnectionConfig::default(), 1);
        let upload = Upload::start(&mut network);
        let subflows = upload.subflows(&network);
        [0, 1].map(|at| subflows[at].tcp.congestion.unwrap_or_default())
    };
    assert_eq!(of_both(None, LiaOnSharedAccess::WithDefault), ["cubic", "lia"]);
    assert_eq!(of_both(Some("reno"), LiaOnSharedAccess::WithDefault), ["reno", "reno"]);
    assert_eq!(of_both(Some("reno"), LiaOnSharedAccess::Always), ["reno", "lia"]);
    assert_eq!(of_both(Some("cubic"), LiaOnSharedAccess::Never), ["cubic", "cubic"]);
}

#[test]
fn fullmesh_joins_announced_addresses_from_everywhere_and_none_joins_nothing() {
    let mesh = [(0, 0), (0, 1), (1, 0), (1, 1)];
    for (manager, pairs) in [("fullmesh", &mesh[..]), ("none", &mesh[..1])] {
        let mut network = network(&[10, 20], manager, "default");
        network.server.add_endpoint(network.now, LocalEndpoint::signal(server_addr(1), 7));
        let mut upload = Upload::start(&mut network);
        let pairs: Vec<_> = pairs.iter().map(|(c, s)| (client_addr(*c), server_addr(*s))).collect();
        assert_eq!(upload.addresses(&network), pairs, "{manager}");
        upload.run_for(&mut network, SECOND);
        upload.finish(&mut network);
    }
}

#[test]
fn a_path_that_comes_back_is_used_within_little_more_than_a_second() {
    for path in 0..2 {
        let mut network = network(&[10, 20], "endpoints", "round-robin");
        let mut upload = Upload::start(&mut network);
        upload.run_for(&mut network, SECOND);
        assert_eq!(users(&network, 0), [0, 1]);

        network.cut[path] = true;
        upload.run_for(&mut network, SECOND * 10);
        let is_stale = |upload: &Upload, network: &Network| -> Vec<usize> {
            let subflows = upload.subflows(network);
            let stale =
                subflows.iter().filter(|subflow| subflow.multipath.as_ref().is_some_and(|of| of.stale));
            stale.map(|s| if s.tuple.local.addr == client_addr(0) { 0 } else { 1 }).collect()
        };
        assert_eq!(is_stale(&upload, &network), [path]);
        assert_eq!(
            (network.client.counters().subflow_stale, network.client.counters().subflow_recover),
            (1, 0)
        );

        network.cut[path] = false;
        upload.run_for(&mut network, Duration::from_millis(1200));
        assert_eq!(is_stale(&upload, &network), [] as [usize; 0]);
        assert_eq!(
            (network.client.counters().subflow_stale, network.client.counters().subflow_recover),
            (1, 1)
        );
        let start = network.log.len();
        upload.run_for(&mut network, Duration::from_millis(300));
        assert_eq!(users(&network, start), [0, 1], "new data goes over both");
        let mtus: Vec<u32> = upload.subflows(&network).iter().map(|s| s.tcp.pmtu_bytes).collect();
        assert_eq!(mtus, [1500, 1500], "an outage says nothing of the size");
        upload.finish(&mut network);
    }
}

/// Another subflow is tried beside a stale one, and the path comes back for both.
#[test]
fn of_a_stale_subflow_that_recovers_and_its_replacement_one_stays() {
    for path in 0..2 {
        for back_after in [12_000, 12_900, 13_100, 14_500, 16_000, 20_000, 27_500] {
            let mut network = network(&[10, 20], "endpoints", "round-robin");
            let mut upload = Upload::start(&mut network);
            upload.run_for(&mut network, SECOND);
            let before = upload.addresses(&network);
            network.cut[path] = true;
            upload.run_for(&mut network, Duration::from_millis(back_after));
            network.cut[path] = false;
            upload.run_for(&mut network, SECOND * 60);
            upload.finish(&mut network);
            assert_eq!(upload.addresses(&network), before, "path {path}, back after {back_after} ms");
            let known = network.server.info(network.accepted()).expect("the connection lives").subflows;
            assert_eq!(known.len(), 2, "the server's, path {path}, back after {back_after} ms");
        }
    }
}

#[test]
fn an_address_that_comes_back_is_probed_at_once() {
    let mut network = network(&[10], "endpoints", "default");
    let mut upload = Upload::start(&mut network);
    upload.run_for(&mut network, SECOND);
    network.cut[0] = true;
    network.client.remove_endpoint(network.now, client_addr(0));
    upload.run_for(&mut network, SECOND * 21);
    network.cut[0] = false;
    let before = upload.received;
    network.client.add_endpoint(network.now, endpoint(0));
    upload.run_for(&mut network, Duration::from_millis(50));
    assert!(upload.received > before);
    upload.finish(&mut network);
}

#[test]
fn a_stale_loss_count_of_zero_means_never() {
    let mut config = ConnectionConfig { stale_loss_count: 0, ..ConnectionConfig::default() };
    config.path_manager = Policy::by_name("break-before-make").expect("a path manager");
    let mut network = Network::new(&[10, 20], config, ConnectionConfig::default(), 1);
    let mut upload = Upload::start(&mut network);
    network.cut[0] = true;
    upload.run_for(&mut network, SECOND * 10);
    assert_eq!(network.client.counters().subflow_stale, 0);
    assert_eq!(upload.addresses(&network), [(client_addr(0), server_addr(0))]);
}

/// Never less connected than TCP, and not over a removed address for longer than that takes.
#[test]
fn the_last_subflow_of_a_removed_address_ends_as_soon_as_another_is_established() {
    for manager in ["endpoints", "fullmesh", "make-before-break", "break-before-make"] {
        for (last, next) in [(0, 1), (1, 0)] {
            let mut network = network(&[10, 20], manager, "round-robin");
            let mut upload = Upload::start(&mut network);
            network.client.remove_endpoint(network.now, client_addr(next));
            upload.run_for(&mut network, SECOND);
            network.client.remove_endpoint(network.now, client_addr(last));
            let start = network.log.len();
            upload.run_for(&mut network, SECOND);
            assert_eq!(users(&network, start), [last], "{manager}: nothing else is there");

            // The identifier is free again, too.
            let came = LocalEndpoint { id: endpoint(last).id, ..endpoint(next) };
            network.client.add_endpoint(network.now, came);
            upload.run_for(&mut network, SECOND);
            for (host, id) in [(&network.client, upload.client), (&network.server, network.accepted())] {
                let subflows = host.info(id).expect("the connection lives").subflows;
                let ends = subflows.iter().map(|of| (of.tuple.local.addr, of.tuple.remote.addr));
                let ends: Vec<_> = ends.collect();
                assert!(ends.len() == 1, "{manager}: {ends:?}\n{}", network.log.join("\n"));
                assert!([ends[0].0, ends[0].1].contains(&client_addr(next)), "{manager}: {ends:?}");
            }
            let start = network.log.len();
            upload.run_for(&mut network, SECOND);
            assert_eq!(users(&network, start), [next], "{manager}");
            upload.finish(&mut network);
        }
    }
}

#[test]
fn the_last_subflow_of_an_address_that_comes_back_as_a_backup_becomes_one() {
    let mut network = network(&[10, 20], "endpoints", "round-robin");
    let mut upload = Upload::start(&mut network);
    for path in [1, 0] {
        network.client.remove_endpoint(network.now, client_addr(path));
    }
    upload.run_for(&mut network, SECOND);
    network.client.add_endpoint(network.now, endpoint(0).backup());
    network.client.add_endpoint(network.now, endpoint(1));
    upload.run_for(&mut network, SECOND);
    assert_eq!(upload.addresses(&network).len(), 2, "it is not removed any more");
    assert_eq!(backups_at_server(&network), [0]);
    let start = network.log.len();
    upload.run_for(&mut network, SECOND);
    assert_eq!(users(&network, start), [1]);
    upload.finish(&mut network);
}

/// Where nothing but a budget makes the difference between paths.
const SOFT: Budget = Budget { bytes: 500_000, is_hard: false, pool: 0 };

#[test]
fn a_spent_budget_makes_a_backup_in_all_connections() {
    let mut network = network(&[10, 20], "endpoints", "round-robin");
    network.client.add_endpoint(network.now, endpoint(0).budget(SOFT));
    let idle = Upload::start(&mut network);
    let mut upload = Upload::start(&mut network);
    // `accepted` is the server's end of the idle one; this one's data is read by its own.
    let server =
        network.server_events.iter().rev().find(|(_, event)| matches!(event, Event::Accepted { .. }));
    let server = server.expect("a second connection").0;
    let end = network.now + SECOND * 2;
    while network.now < end {
        let block = Bytes::from(pattern(upload.sent, 10_000));
        upload.sent += network.client.send(upload.client, block).expect("it lives");
        upload.tick(&mut network, server);
    }
    let used = network.client.budget_used_bytes(client_addr(0)).expect("a budget");
    assert!((500_000..550_000).contains(&used), "{used}");
    for connection in [&idle, &upload] {
        let subflows = connection.subflows(&network);
        let backups: Vec<_> = subflows.iter().filter(|s| s.is_backup()).map(|s| s.tuple.local.addr).collect();
        assert_eq!(backups, [client_addr(0)]);
    }
    let info = network.server.info(server).expect("the connection lives");
    assert_eq!(info.subflows.iter().filter(|subflow| subflow.is_backup()).count(), 1, "the peer knows");
    let start = network.log.len();
    let before = upload.received;
    for _ in 0..50 {
        upload.sent +=
            network.client.send(upload.client, Bytes::from(pattern(upload.sent, 10_000))).expect("it lives");
        upload.tick(&mut network, server);
    }
    assert_eq!(users(&network, start), [1]);
    assert!(upload.received - before > 400_000);
}

#[test]
fn a_hard_budget_ends_what_goes_over_the_address_and_a_higher_one_brings_it_back() {
    let mut network = network(&[10, 20], "endpoints", "round-robin");
    let hard = |bytes| endpoint(1).budget(Budget { bytes, is_hard: true, pool: 0 });
    network.client.add_endpoint(network.now, hard(300_000));
    let mut upload = Upload::start(&mut network);
    upload.run_for(&mut network, SECOND * 2);
    assert_eq!(upload.addresses(&network), [(client_addr(0), server_addr(0))]);
    let used = network.client.budget_used_bytes(client_addr(1)).expect("a budget");
    assert!((300_000..310_000).contains(&used), "{used}");
    // The uplink goes and comes: that changes nothing.
    network.client.add_endpoint(network.now, hard(300_000));
    upload.run_for(&mut network, SECOND * 3);
    assert_eq!(upload.addresses(&network), [(client_addr(0), server_addr(0))]);
    network.client.add_endpoint(network.now, hard(u64::MAX));
    upload.run_for(&mut network, SECOND);
    assert_eq!(upload.addresses(&network).len(), 2);
    upload.finish(&mut network);
}

#[test]
fn make_before_break_moves_on_when_the_budget_is_spent() {
    let mut network = network(&[10, 20], "make-before-break", "default");
    network.client.add_endpoint(network.now, endpoint(0).budget(SOFT));
    let mut upload = Upload::start(&mut network);
    upload.run_for(&mut network, SECOND * 2);
    assert!(upload.longest_gap <= Duration::from_millis(50), "{:?}", upload.longest_gap);
    let start = network.log.len();
    upload.run_for(&mut network, SECOND);
    assert_eq!((users(&network, start), backups_at_server(&network)), (std::vec![1], std::vec![0]));
    upload.finish(&mut network);
}

#[test]
fn keep_alives_tell_a_dead_peer_from_a_silent_one() {
    let tcp = polypath_tcp::Config {
        keepalive_idle: Some(SECOND * 60),
        keepalive_interval: Duration::from_secs(10),
        keepalive_probes: 6,
        ..polypath_tcp::Config::default()
    };
    let client = ConnectionConfig { tcp: tcp.into(), ..ConnectionConfig::default() };
    let mut network = Network::new(&[10, 20], client, ConnectionConfig::default(), 1);
    network.connect();
    // Nobody says anything, and both are there.
    network.run_until(network.now + SECOND * 3600);
    let closed = |network: &Network| {
        network.client_events.iter().find_map(|(_, event)| match event {
            Event::Closed(reason) => Some(*reason),
            _ => None,
        })
    };
    assert_eq!(closed(&network), None);
    // The peer is gone, and nothing is in flight that would tell. It was heard less than a minute ago.
    network.cut.fill(true);
    network.run_until(network.now + SECOND * 59);
    assert_eq!(closed(&network), None);
    // The subflows are given up shortly after each other, and the first one had a successor that asked once more.
    network.run_until(network.now + SECOND * 72);
    assert_eq!(closed(&network), Some(CloseReason::TimedOut), "{}", network.log.join("\n"));
}

#[test]
fn what_a_subflow_held_that_is_reset_leaves_at_once_on_another() {
    let mut network = Network::new(&[5, 20], ConnectionConfig::default(), ConnectionConfig::default(), 1);
    let client = network.connect();
    network.run_until(network.now + SECOND);
    let server = network.accepted();
    // On the first path, options do not pass to the server, and nothing to the client.
    network.meddle = Box::new(|way, mut packet| {
        let is_first = [packet.ip.src, packet.ip.dst].contains(&server_addr(0))
            && [packet.ip.src, packet.ip.dst].contains(&client_addr(0));
        if is_first && way == Way::ToClient {
            return Vec::new();
        }
        if is_first {
            let options = &mut segment_mut(&mut packet).options;
            *options = Options { timestamps: options.timestamps, ..Options::default() };
        }
        std::vec![packet]
    });
    for (host, id) in [(&mut network.client, client), (&mut network.server, server)] {
        host.send(id, Bytes::from_static(b"x")).expect("the connection lives");
    }
    network.run_until(network.now + Duration::from_millis(40));
    let read = network.client.recv(client).expect("it left again when its subflow was reset");
    assert_eq!(read.to_vec(), b"x");
}

#[test]
fn the_address_that_is_joined_says_if_it_is_a_backup() {
    for max_half_open_joins in [8, 0] {
        for backup in [false, true] {
            let mut network = network(&[10, 10], "fullmesh", "default");
            let endpoints = std::vec![LocalEndpoint { backup, ..LocalEndpoint::subflow(server_addr(0), 1) }];
            let config = HostConfig { max_half_open_joins, endpoints, ..network.server.config().clone() };
            network.server = Host::new(config, 7);
            network.server.listen(Endpoint::new(server_addr(0), PORT)).expect("the port is free");
            let client = network.connect();
            network.run_until(network.now + SECOND);
            let info = network.client.info(client).expect("it is open");
            let joined = info.subflows.iter().find(|subflow| subflow.tuple.local.addr == client_addr(1));
            assert_eq!(joined.map(|subflow| subflow.is_backup()), Some(backup), "{}", network.log.join("\n"));
            assert_eq!(backups_at_server(&network), if backup { std::vec![1] } else { std::vec![] });
            assert_eq!(network.server.counters().syncookies_recv, u64::from(max_half_open_joins == 0));
        }
    }
}

/// The server has room for one subflow, and hears of the new one before it hears that the old one is over.
#[test]
fn a_peer_without_room_for_another_subflow_is_asked_again() {
    let mut network = network(&[10, 5], "break-before-make", "default");
    let limits = crate::path_manager::Limits { subflows: 0, ..network.server.config().limits };
    network.serve_with(HostConfig { limits, ..network.server.config().clone() });
    network.cut[1] = true;
    let mut upload = Upload::start(&mut network);
    upload.run_for(&mut network, SECOND);
    (network.cut[0], network.cut[1]) = (true, false);
    network.plan.push_back((network.now + SECOND * 2, |network| network.cut[0] = false));
    upload.run_for(&mut network, SECOND * 10);
    upload.finish(&mut network);
    let refused = network.client_events.iter().filter(|(_, event)| {
        let no_room = crate::SubflowError::Reset(Some(polypath_wire::ResetReason::NO_RESOURCES));
        matches!(event, Event::SubflowClosed { error: Some(error), .. } if *error == no_room)
    });
    assert!(refused.count() > 0, "{}", network.log.join("\n"));
}

#[test]
fn what_addresses_have_carried_outlives_subflows_and_connections_and_never_goes_back() {
    let mut network = network(&[10, 20], "endpoints", "round-robin");
    let mut last = Vec::new();
    let mut check = |network: &mut Network| {
        let now = network.client.carried();
        for (addr, old) in core::mem::take(&mut last) {
            let (_, new) = now.iter().find(|(known, _)| *known == addr).expect("an address keeps its place");
            let grows = |of: fn(&crate::Carried) -> u64| of(new) >= of(&old);
            assert!(grows(|it| it.sent_bytes) && grows(|it| it.subflows), "{old:?} {new:?}");
        }
        last = now.clone();
        now
    };
    let mut upload = Upload::start(&mut network);
    upload.run_for(&mut network, SECOND);
    let both = check(&mut network);
    assert_eq!(both.iter().map(|(_, carried)| carried.subflows).collect::<Vec<_>>(), [1, 1]);
    network.client.remove_endpoint(network.now, client_addr(1));
    upload.run_for(&mut network, SECOND);
    upload.finish(&mut network);
    let one = check(&mut network);
    assert!(one[1].1.sent_bytes >= both[1].1.sent_bytes && one[1].1.sent_bytes > 100_000, "{one:?}");
    network.client.release(network.now, upload.client);
    let server = network.accepted();
    network.run_until(network.now + SECOND);
    network.server.release(network.now, server);
    network.run_until(network.now + SECOND * 5);
    assert_eq!(network.client.population().connections, 0);
    let none = check(&mut network);
    let sent: u64 = none.iter().map(|(_, carried)| carried.sent_bytes - carried.retransmitted_bytes).sum();
    assert!(sent >= upload.sent as u64, "{none:?} {}", upload.sent);
}

#[test]
fn a_single_path_is_given_up_after_the_last_keep_alive_as_over_tcp() {
    let tcp = polypath_tcp::Config {
        keepalive_idle: Some(SECOND * 5),
        keepalive_interval: SECOND * 2,
        keepalive_probes: 3,
        ..polypath_tcp::Config::default()
    };
    let client = ConnectionConfig { tcp: tcp.into(), ..ConnectionConfig::default() };
    let mut network = Network::new(&[10], client, ConnectionConfig::default(), 1);
    network.connect();
    network.run_until(network.now + SECOND);
    network.cut.fill(true);
    let is_closed = |network: &Network| {
        network.client_events.iter().any(|(_, event)| *event == Event::Closed(CloseReason::TimedOut))
    };
    // The last segment came in the handshake, a second ago.
    network.run_until(network.now + SECOND * 9);
    assert!(!is_closed(&network), "{}", network.log.join("\n"));
    network.run_until(network.now + SECOND * 2);
    assert!(is_closed(&network), "{}", network.log.join("\n"));
}

/// As `tcp_retries2` of Linux bounds it, where the timeout grows to twice as much.
#[test]
fn what_a_dead_peer_never_acknowledges_is_given_up_in_a_quarter_of_an_hour() {
    // What fits into the window, and what does not.
    for bytes in [1, 8 << 20] {
        let mut network = Network::new(&[10], ConnectionConfig::default(), ConnectionConfig::default(), 1);
        let client = network.connect();
        network.run_until(network.now + SECOND);
        network.cut.fill(true);
        network.client.send(client, Bytes::from(std::vec![1; bytes])).expect("room for some");
        let gone = |network: &Network| {
            network.client_events.iter().any(|(_, event)| *event == Event::Closed(CloseReason::TimedOut))
        };
        network.run_until(network.now + SECOND * 300);
        assert!(!gone(&network), "an outage of minutes is no end");
        network.run_until(network.now + SECOND * 600);
        assert!(gone(&network), "{}", network.log.join("\n"));
    }
}
