//! Two stacks that talk in datagrams over namespaces.

use std::net::IpAddr;
use std::process::Command;

use polypath_testbed::{Testbed, is_root_or_skip};
use polypath_units::BitRate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::UplinkPreference;
use crate::engine::ConnectOptions;
use crate::stack::{LimitedWays, PathLimit, StackStream};

const PORT: u16 = 443;

fn client(testbed: &Testbed) -> Stack {
    client_with(testbed, UplinkPreference::default())
}

/// `preference` is for the second path.
fn client_with(testbed: &Testbed, preference: UplinkPreference) -> Stack {
    // The second path leads to the server's first address too.
    let add = ["route", "add", "10.77.0.2", "via", "10.77.1.2", "dev", "path1", "metric", "9"];
    testbed.client.run(|| Command::new("ip").args(add).status()).unwrap().unwrap();
    let path = |number| UdpPath { interface: Some(Testbed::interface(number)), ..UdpPath::default() };
    let keep_alive = Some(Duration::from_millis(60));
    let paths = vec![path(0), UdpPath { preference, ..path(1) }];
    let options = UdpOptions { paths, keep_alive, ..UdpOptions::default() };
    Stack::udp(&testbed.client, &options).expect("a stack")
}

fn server(testbed: &Testbed) -> Stack {
    for path in 0..testbed.paths() {
        testbed.server.set_variable(&format!("net/ipv4/conf/path{path}/rp_filter"), "0").expect("a variable");
    }
    let options = UdpOptions { paths: Vec::new(), is_reachable: true, ..UdpOptions::default() };
    Stack::udp(&testbed.server, &options).expect("a stack")
}

#[tokio::test]
async fn a_connect_is_given_up_after_the_time_that_its_options_name() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = silent.local_addr().expect("an address").port();
    let options = UdpOptions { port, ..UdpOptions::default() };
    let stack = Stack::udp(&Namespace::current().expect("this one"), &options).expect("a stack");
    let timeout = Some(Duration::from_millis(50));
    let options = ConnectOptions { timeout, ..ConnectOptions::default() };
    let error = stack.connect(([127, 0, 0, 1], 80).into(), &options).await.expect_err("nobody answers");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().starts_with("127.0.0.1:80 did not answer within 50ms; expected"), "{error}");
}

#[tokio::test]
async fn a_stack_that_only_listens_says_so_when_it_is_to_connect() {
    let here = Namespace::current().expect("this one");
    let options = UdpOptions { port: 0, ..UdpOptions::server() };
    let stack = Stack::udp(&here, &options).expect("a stack");
    let error = stack.connect(([127, 0, 0, 1], 80).into(), &ConnectOptions::default()).await;
    let error = error.expect_err("it has no path").to_string();
    assert_eq!(error, "this stack has no paths to connect over: it only listens");
}

#[tokio::test]
async fn a_peer_of_a_family_that_no_path_has_is_an_error_at_once() {
    if !is_root_or_skip("stack over UDP") {
        return;
    }
    let testbed = Testbed::new(1).expect("namespaces");
    let flush = ["-6", "addr", "flush", "dev", "path0", "scope", "global"];
    testbed.client.run(|| Command::new("ip").args(flush).status()).unwrap().unwrap();
    let path = UdpPath { interface: Some(Testbed::interface(0)), ..UdpPath::default() };
    for paths in [vec![path], vec![UdpPath::default()]] {
        let options = UdpOptions { paths, ..UdpOptions::default() };
        let client = Stack::udp(&testbed.client, &options).expect("a stack");
        let to = SocketAddr::from((Testbed::server_v6(0), PORT));
        let as_usual = ConnectOptions::default();
        let (first, second) = tokio::join!(client.connect(to, &as_usual), client.connect(to, &as_usual));
        for connected in [first, second] {
            let error = connected.expect_err("there is no IPv6");
            assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
            assert_eq!(error.to_string(), format!("no path has an IPv6 address, which {to} needs"));
        }
        assert!(client.connections().is_empty());
    }
}

async fn pair(client: &Stack, server: &Stack, to: IpAddr) -> (StackStream, StackStream) {
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    let options = ConnectOptions::default();
    let (connected, accepted) = tokio::join!(client.connect((to, PORT).into(), &options), listener.accept());
    (connected.expect("connects"), accepted.expect("is accepted").0)
}

async fn exchange(from: &mut StackStream, to: &mut StackStream, len: usize) {
    let data: Vec<u8> = (0..len).map(|at| (at * 7 + at / 253) as u8).collect();
    let mut received = vec![0; len];
    let (sent, got) = tokio::join!(from.write_all(&data), to.read_exact(&mut received));
    sent.expect("writes");
    got.expect("reads");
    assert!(received == data);
}

#[tokio::test]
async fn data_flows_in_datagrams_over_both_paths_and_families() {
    if !is_root_or_skip("stack over UDP") {
        return;
    }
    let testbed = Testbed::new(2).expect("namespaces");
    let (client, server) = (client(&testbed), server(&testbed));
    for to in [IpAddr::from(Testbed::server_v4(0)), Testbed::server_v6(0).into()] {
        let (mut near, mut far) = pair(&client, &server, to).await;
        exchange(&mut near, &mut far, 8 << 20).await;
        exchange(&mut far, &mut near, 8 << 20).await;
        let info = near.connection_info().expect("it lives");
        assert!(info.mptcp);
        let names = info.subflows.iter().map(|subflow| client.path_name(subflow.tuple.local.addr));
        assert!(names.flatten().any(|name| name == Testbed::interface(1)), "{info:?}");
        let busy = info.subflows.iter().filter(|subflow| subflow.tcp.bytes_acked > 100_000).count();
        if to.is_ipv4() {
            assert_eq!(busy, 2, "{:?}", info.subflows);
        }
    }
}

#[tokio::test]
async fn a_path_is_used_no_more_once_its_budget_is_spent() {
    if !is_root_or_skip("budgets over UDP") {
        return;
    }
    let testbed = Testbed::new(2).expect("namespaces");
    let preference = UplinkPreference { priority: 1, budget_bytes: Some(100_000), is_budget_hard: true };
    let (client, server) = (client_with(&testbed, preference), server(&testbed));
    assert_eq!(client.paths().len(), 2);
    let (mut near, mut far) = pair(&client, &server, Testbed::server_v4(0).into()).await;
    exchange(&mut near, &mut far, 8 << 20).await;
    assert_eq!(client.paths().len(), 1);
    exchange(&mut near, &mut far, 1 << 20).await;
    assert_eq!(near.connection_info().expect("it lives").subflows.len(), 1);
}

#[tokio::test]
async fn limits_of_paths_know_subflows_as_the_network_does() {
    if !is_root_or_skip("limits of paths over UDP") {
        return;
    }
    let testbed = Testbed::new(2).expect("namespaces");
    let (client, server) = (client(&testbed), server(&testbed));
    let (mut near, mut far) = pair(&client, &server, Testbed::server_v4(0).into()).await;
    while near.connection_info().expect("it lives").subflows.len() < 2 {
        exchange(&mut near, &mut far, 100_000).await;
    }
    let rate = BitRate::from_mbps(5);
    let both = |is_meant| LimitedWays { sent: is_meant, received: is_meant };
    let (second, its_client) = (Testbed::interface(1), IpAddr::from(Testbed::client_v4(1)));
    let by_interface = PathLimit::new(rate, move |subflow| {
        both(subflow.is_client && subflow.path_name.as_ref() == Some(&second))
    });
    let by_peer = PathLimit::new(rate, move |subflow| {
        both(!subflow.is_client && subflow.ends.remote.addr == its_client)
    });
    let (at_client, at_server) = (client.path_limit_set(), server.path_limit_set());
    at_client.set("interface", by_interface).expect("room");
    at_server.set("peer", by_peer).expect("room");
    // Where nothing passes, they come down at once.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before: Vec<u64> = carried(&near);
    exchange(&mut near, &mut far, 8 << 20).await;
    let bytes: Vec<u64> = carried(&near).iter().zip(before).map(|(after, before)| after - before).collect();
    assert!(bytes[1] < bytes[0] / 2, "{bytes:?}");
    for (set, name) in [(&at_client, "interface"), (&at_server, "peer")] {
        let limits = set.states();
        let [limit] = &limits[..] else { panic!("{limits:?}") };
        assert_eq!((limit.name.as_str(), limit.rate, limit.subflows), (name, rate, 1));
        let ways = [limit.sent, limit.received];
        assert!(ways.iter().all(|way| way.passed_packets > 0), "{limits:?}");
        assert!(set.remove(name) && !set.remove(name));
    }
    exchange(&mut far, &mut near, 8 << 20).await;
    assert!(at_client.states().is_empty());
}

/// What each subflow has carried to the other end.
fn carried(stream: &StackStream) -> Vec<u64> {
    let info = stream.connection_info().expect("it lives");
    info.subflows.iter().map(|subflow| subflow.tcp.bytes_acked).collect()
}

#[tokio::test]
async fn a_drain_does_not_wait_for_a_path_that_died() {
    if !is_root_or_skip("draining over UDP") {
        return;
    }
    let testbed = Testbed::new(2).expect("namespaces");
    let (client, server) = (client(&testbed), server(&testbed));
    let (mut near, mut far) = pair(&client, &server, Testbed::server_v4(0).into()).await;
    while near.connection_info().expect("it lives").subflows.len() < 2 {
        exchange(&mut near, &mut far, 100_000).await;
    }
    let cut = ["link", "set", "path1", "down"];
    testbed.server.run(|| Command::new("ip").args(cut).status()).unwrap().unwrap();
    drop((near, far));
    let drained = async { tokio::join!(client.drain(Duration::MAX), server.drain(Duration::MAX)) };
    // Its FINs are sent for a minute.
    let drained = tokio::time::timeout(Duration::from_secs(20), drained).await;
    assert_eq!(drained.expect("both ends have all"), (true, true));
    assert!(!client.flows().is_empty(), "there is a subflow whose FIN nobody acknowledges");
}

#[tokio::test]
async fn a_change_of_address_does_not_end_a_connection() {
    if !is_root_or_skip("roaming") {
        return;
    }
    let testbed = Testbed::new(1).expect("namespaces");
    let path = UdpPath { interface: Some(Testbed::interface(0)), ..UdpPath::default() };
    let keep_alive = Some(Duration::from_millis(60));
    let options = UdpOptions { paths: vec![path], keep_alive, ..UdpOptions::default() };
    let client = Stack::udp(&testbed.client, &options).expect("a stack");
    let server = server(&testbed);
    let (mut near, mut far) = pair(&client, &server, Testbed::server_v4(0).into()).await;
    exchange(&mut near, &mut far, 1 << 20).await;
    let script = "ip addr add 10.77.0.77/24 dev path0; ip addr del 10.77.0.1/24 dev path0; ip addr add 10.77.0.77/24 dev path0";
    testbed.client.run(|| Command::new("sh").args(["-c", script]).output()).unwrap().unwrap();
    // A keep-alive tells the server, which has data to send, where the client is now.
    tokio::time::sleep(Duration::from_millis(200)).await;
    exchange(&mut far, &mut near, 1 << 20).await;
    exchange(&mut near, &mut far, 1 << 20).await;
    assert_eq!(near.connection_info().expect("it lives").subflows.len(), 1);
}

#[tokio::test]
async fn a_server_announces_the_interfaces_that_it_was_given() {
    if !is_root_or_skip("announcing over UDP") {
        return;
    }
    let testbed = Testbed::new(2).expect("namespaces");
    let paths = |names: &[u8]| -> Vec<UdpPath> {
        let path = |number| UdpPath {
            interface: Some(Testbed::interface(number)),
            is_backup: false,
            preference: UplinkPreference::default(),
        };
        names.iter().copied().map(path).collect()
    };
    let client = UdpOptions { paths: paths(&[0, 1]), ..UdpOptions::default() };
    let client = Stack::udp(&testbed.client, &client).expect("a stack");
    let server = UdpOptions { paths: paths(&[0, 1]), is_reachable: true, ..UdpOptions::default() };
    let server = Stack::udp(&testbed.server, &server).expect("a stack");
    assert!(!client.paths().iter().any(|path| path.signal), "{:?}", client.paths());
    // By the second path, so that the first address is the one to announce.
    let other = stack_addr(Testbed::server_v4(0).into());
    let (mut near, mut far) = pair(&client, &server, Testbed::server_v4(1).into()).await;
    for _ in 0..200 {
        exchange(&mut near, &mut far, 100_000).await;
        let subflows = near.connection_info().expect("it lives").subflows;
        if subflows.iter().any(|subflow| subflow.tuple.remote.addr == other && subflow.tcp.bytes_acked > 0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no subflow to {other}: {:?}", near.connection_info());
}

#[tokio::test]
async fn without_a_name_all_uplinks_are_used() {
    if !is_root_or_skip("uplinks over UDP") {
        return;
    }
    let testbed = Testbed::new(2).expect("namespaces");
    let script =
        "ip route add default via 10.77.0.2 dev path0; ip route add default via 10.77.1.2 dev path1 metric 9";
    testbed.client.run(|| Command::new("sh").args(["-c", script]).status()).unwrap().unwrap();
    let mut options = UdpOptions { paths: Vec::new(), ..UdpOptions::default() };
    options.use_uplinks(&testbed.client).expect("a choice");
    let names: Vec<Option<&str>> = options.paths.iter().map(|path| path.interface.as_deref()).collect();
    assert_eq!(names, [None, Some("path1")]);
    // The system's route leads over the backup.
    let backup = UdpPath { interface: Some("path0".into()), is_backup: true, ..UdpPath::default() };
    let mut beside_backup = UdpOptions { paths: vec![backup], ..UdpOptions::default() };
    beside_backup.use_uplinks(&testbed.client).expect("a choice");
    let paths = beside_backup.paths.iter().map(|path| (path.interface.as_deref(), path.is_backup));
    assert_eq!(paths.collect::<Vec<_>>(), [(Some("path1"), false), (Some("path0"), true)]);
    let client = Stack::udp(&testbed.client, &options).expect("a stack");
    let server = server(&testbed);
    let (mut near, mut far) = pair(&client, &server, Testbed::server_v4(0).into()).await;
    exchange(&mut near, &mut far, 8 << 20).await;
    exchange(&mut far, &mut near, 8 << 20).await;
    let subflows = near.connection_info().expect("it lives").subflows;
    assert_eq!(
        subflows.iter().filter(|subflow| subflow.tcp.bytes_acked > 100_000).count(),
        2,
        "{subflows:?}"
    );
}

#[tokio::test]
async fn two_ends_cannot_have_one_port() {
    let namespace = Namespace::current().expect("this one");
    let options = UdpOptions { paths: Vec::new(), is_reachable: true, port: 16_824, ..UdpOptions::default() };
    let _first = Stack::udp(&namespace, &options).expect("a stack");
    let error = Stack::udp(&namespace, &options).expect_err("the port is taken");
    assert!(matches!(UdpError::of(&error), Some(UdpError::PortInUse { port: 16_824, .. })), "{error:?}");
    let error = error.to_string();
    let expected = "expected another one, the same at both ends";
    assert!(error.starts_with("can't use UDP port 16824") && error.ends_with(expected), "{error}");
}
