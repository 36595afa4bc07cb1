//! Who reaches whom: on networks without a gateway, at addresses of other interfaces, and on one system.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use polypath_stack::Engine;
use polypath_stack::engine::{ConnectOptions, KernelEngine};
use polypath_testbed::{Testbed, is_root_or_skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

fn shell(namespace: &Namespace, script: &str) {
    let run = || std::process::Command::new("sh").args(["-ec", script]).output();
    let done = namespace.run(run).expect("the namespace").expect("the shell");
    assert!(done.status.success(), "{script}: {done:?}");
}

fn ours(namespace: &Namespace) -> Engine {
    Engine::Stack(open(namespace, UplinkOptions::default()).expect("a stack"))
}

fn kernel(namespace: &Namespace) -> Engine {
    Engine::Kernel(KernelEngine::new().in_namespace(namespace.clone()))
}

fn everywhere(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { [0; 4].into() } else { [0; 16].into() }
}

/// Talks to a server at `at` by the address `to`, and returns who it says that the client is.
async fn talks(client: &Engine, server: &Engine, at: SocketAddr, to: IpAddr) -> IpAddr {
    let listener = server.listen(at).await.unwrap_or_else(|error| panic!("{at}: {error}"));
    let options = ConnectOptions { timeout: Some(Duration::from_secs(15)), ..ConnectOptions::default() };
    let (near, far) = tokio::join!(client.connect((to, at.port()).into(), &options), async {
        tokio::time::timeout(Duration::from_secs(15), listener.accept()).await
    });
    let mut near = near.unwrap_or_else(|error| panic!("to {to}: {error}"));
    let (mut far, peer) = far.expect("in time").expect("is accepted");
    let mut received = vec![0; 200_000];
    let question = async {
        near.write_all(&[7; 200_000]).await.expect("writes");
        near.read_exact(&mut [0; 1000]).await.expect("reads");
    };
    let answer = async {
        far.read_exact(&mut received).await.expect("reads");
        far.write_all(&[8; 1000]).await.expect("writes");
    };
    let both = tokio::time::timeout(Duration::from_secs(15), async { tokio::join!(question, answer) });
    both.await.unwrap_or_else(|_| panic!("to {to}: no exchange in time"));
    assert!(received.iter().all(|byte| *byte == 7));
    peer.ip().to_canonical()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_on_a_network_without_a_gateway_are_reached_and_reach_us() {
    if !is_root_or_skip("networks without a gateway") {
        return;
    }
    for has_uplink in [true, false] {
        let testbed = Testbed::new(2).expect("namespaces");
        if has_uplink {
            shell(&testbed.client, "ip route add default via 10.77.0.2 dev path0");
        }
        let (stack, host) = (ours(&testbed.client), kernel(&testbed.server));
        let Engine::Stack(own) = &stack else { unreachable!() };
        let endpoints = own.paths().len();
        // One uplink for IPv4, or else every network in both families.
        assert_eq!(endpoints, if has_uplink { 1 } else { 4 });
        let pairs: [(IpAddr, IpAddr); 3] = [
            (Testbed::client_v4(1).into(), Testbed::server_v4(1).into()),
            (Testbed::client_v6(1).into(), Testbed::server_v6(1).into()),
            (Testbed::client_v6(0).into(), Testbed::server_v6(0).into()),
        ];
        for ((near, far), port) in pairs.into_iter().zip(8001..) {
            assert_eq!(talks(&stack, &host, (everywhere(far), port).into(), far).await, near);
            assert_eq!(talks(&host, &stack, (everywhere(near), port + 100).into(), near).await, far);
            assert_eq!(talks(&host, &stack, (near, port + 200).into(), near).await, far);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_answers_at_addresses_of_other_interfaces() {
    if !is_root_or_skip("addresses of other interfaces") {
        return;
    }
    // The second interface is an uplink, a network without a gateway, or the loopback.
    for (setup, to) in [
        ("ip route add default via 10.77.1.2 dev path1 metric 101", Testbed::client_v4(1)),
        ("true", Testbed::client_v4(1)),
        ("ip addr add 203.0.113.7/32 dev lo", Ipv4Addr::new(203, 0, 113, 7)),
    ] {
        let testbed = Testbed::new(2).expect("namespaces");
        shell(&testbed.client, "ip route add default via 10.77.0.2 dev path0 metric 100");
        shell(&testbed.client, setup);
        // The client is behind the first interface, knows of no other way, and takes no answers by one.
        let client = "ip addr del 10.77.1.2/24 dev path1
            for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 >$file; done";
        shell(&testbed.server, client);
        shell(&testbed.server, &format!("ip route add {to} via 10.77.0.1 dev path0"));
        let (server, client) = (ours(&testbed.client), kernel(&testbed.server));
        for (at, port) in [(IpAddr::from([0; 4]), 8001), (to.into(), 8002)] {
            let peer = talks(&client, &server, (at, port).into(), to.into()).await;
            assert_eq!(peer, IpAddr::from(Testbed::server_v4(0)));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_and_a_server_on_one_system_meet() {
    if !is_root_or_skip("one system") {
        return;
    }
    let testbed = Testbed::new(2).expect("namespaces");
    let uplinks = "ip route add default via 10.77.0.2 dev path0 metric 100
        ip route add default via 10.77.1.2 dev path1 metric 101
        for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 >$file; done";
    shell(&testbed.client, uplinks);
    let (client, server) = (ours(&testbed.client), ours(&testbed.client));
    let kernel = kernel(&testbed.client);
    let addresses: [IpAddr; 5] = [
        Testbed::client_v4(0).into(),
        Testbed::client_v4(1).into(),
        Testbed::client_v6(0).into(),
        Testbed::client_v6(1).into(),
        Ipv4Addr::LOCALHOST.into(),
    ];
    let mut port = 8000;
    for (client, server) in [(&client, &server), (&kernel, &server), (&client, &kernel)] {
        for to in addresses {
            port += 1;
            talks(client, server, (everywhere(to), port).into(), to).await;
        }
    }
    // What listens at the loopback address only, too.
    talks(&client, &kernel, (Ipv4Addr::LOCALHOST, 8100).into(), Ipv4Addr::LOCALHOST.into()).await;
    let options = ConnectOptions::default();
    for to in ["[::1]:8101", "[::]:8101"] {
        let error = client.connect(to.parse().expect("an address"), &options).await.expect_err("no way");
        assert!(error.to_string().contains("expected 127.0.0.1"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_nobody_would_reach_is_refused() {
    if !is_root_or_skip("listeners at the loopback address") {
        return;
    }
    let testbed = Testbed::new(1).expect("namespaces");
    let Engine::Stack(stack) = ours(&testbed.client) else { unreachable!() };
    for at in ["127.0.0.1:8001", "127.0.0.2:8001", "[::1]:8001", "[::ffff:127.0.0.1]:8001"] {
        let error = stack.listen(at.parse().expect("an address")).expect_err("nobody reaches it");
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        let text = error.to_string();
        assert!(text.starts_with(&format!("can't listen at {at}: ")) && text.contains("expected "), "{text}");
    }
    for at in ["9.9.9.9:8001", "[::ffff:9.9.9.9]:8001", "[2001:db8::9]:8001"] {
        let error = stack.listen(at.parse().expect("an address")).expect_err("another host's");
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("can't listen at {at}: ")) && text.contains("an interface"),
            "{text}"
        );
    }
    for at in [IpAddr::from([0; 4]), Testbed::client_v4(0).into(), Testbed::client_v6(0).into()] {
        drop(stack.listen((at, 8002).into()).expect("its own"));
    }
    // There the kernel takes connections from this system.
    stack.listen_beside((Ipv4Addr::LOCALHOST, 8001).into()).expect("a listener of the kernel's too");
}
