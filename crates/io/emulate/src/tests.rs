//! Emulations between namespaces.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration as SystemDuration, Instant as SystemInstant};

use polypath_link::{LinkConfig, Loss, QueueLimit, middlebox};
use polypath_stack::engine::KernelEngine;
use polypath_testbed::{Testbed, is_root_or_skip};
use polypath_units::{BitRate, Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

fn line(path: u8, config: LinkConfig) -> EmulatedLink {
    EmulatedLink {
        a: format!("client{path}"),
        b: format!("server{path}"),
        forward: config.clone(),
        backward: config,
        middleboxes: Vec::new(),
        seed: 7,
    }
}

fn start(testbed: &Testbed, links: Vec<EmulatedLink>) -> Emulation {
    Emulation::start(testbed.middle.as_ref().unwrap(), links).expect("an emulation")
}

const PATIENCE: SystemDuration = SystemDuration::from_secs(10);

/// A socket of the client, connected to one of the server.
fn udp_pair(testbed: &Testbed, path: u8) -> (UdpSocket, UdpSocket) {
    let server = testbed.server.run(|| UdpSocket::bind((Testbed::server_v4(path), 0))).unwrap().unwrap();
    let client = testbed.client.run(|| UdpSocket::bind((Testbed::client_v4(path), 0))).unwrap().unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    server.connect(client.local_addr().unwrap()).unwrap();
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    (client, server)
}

fn tcp_pair(testbed: &Testbed, to: impl Into<std::net::IpAddr>) -> (TcpStream, TcpStream) {
    let to = SocketAddr::new(to.into(), 0);
    let listener = testbed.server.run(|| TcpListener::bind(to)).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let client = testbed.client.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn datagrams_take_the_delay_in_each_direction() {
    if !is_root_or_skip("emulated delay") {
        return;
    }
    let testbed = Testbed::with_middle(2).unwrap();
    let delay = |millis| LinkConfig { delay: Duration::from_millis(millis), ..LinkConfig::default() };
    let emulation = start(
        &testbed,
        vec![EmulatedLink { backward: delay(5), ..line(0, delay(20)) }, line(1, LinkConfig::default())],
    );
    for (path, [there, back]) in [(0, [20, 5]), (1, [0, 0])] {
        let (client, server) = udp_pair(&testbed, path);
        let mut best = [SystemDuration::MAX; 2];
        // The first waits for address resolution.
        for _ in 0..10 {
            for (number, (from, to)) in [(&client, &server), (&server, &client)].into_iter().enumerate() {
                let sent_at = SystemInstant::now();
                from.send(b"hello").unwrap();
                let mut buffer = [0; 16];
                assert_eq!(to.recv(&mut buffer).unwrap(), 5);
                best[number] = best[number].min(sent_at.elapsed());
            }
        }
        for (best, millis) in best.into_iter().zip([there, back]) {
            let expected = SystemDuration::from_millis(millis);
            assert!(best >= expected, "{best:?} is less than the delay of {expected:?}");
            assert!(best < expected + SystemDuration::from_millis(3), "{best:?} instead of {expected:?}");
        }
    }
    let statistics = emulation.statistics().unwrap();
    assert!(statistics[0].forward.link.delivered_packets >= 10);
    assert_eq!(statistics[0].a, PortStatistics::default());
}

#[test]
fn tcp_gets_the_rate_over_both_families_and_offloads_are_undone() {
    if !is_root_or_skip("emulated rate") {
        return;
    }
    let testbed = Testbed::with_middle(1).unwrap();
    let rate = BitRate::from_mbps(40);
    let config =
        LinkConfig::new(rate, Duration::from_millis(2), QueueLimit::Delay(Duration::from_millis(40)));
    let emulation = start(&testbed, vec![line(0, config)]);
    let ends: [std::net::IpAddr; 2] = [Testbed::server_v4(0).into(), Testbed::server_v6(0).into()];
    for to in ends {
        let (mut client, mut server) = tcp_pair(&testbed, to);
        let before = emulation.statistics().unwrap()[0].forward.link;
        let started_at = SystemInstant::now();
        let data: Vec<u8> = (0..4_000_000u32).map(|byte| (byte % 251) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                client.write_all(&data).unwrap();
                client.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            server.read_to_end(&mut received).unwrap();
            assert!(received == data, "damaged");
        });
        let mbps = data.len() as f64 * 8.0 / started_at.elapsed().as_secs_f64() / 1e6;
        assert!((20.0..40.0).contains(&mbps), "{mbps} Mbit/s over 40 Mbit/s to {to}");
        let after = emulation.statistics().unwrap()[0].forward.link;
        let packets = after.sent_packets - before.sent_packets;
        let bytes = after.sent_bytes - before.sent_bytes;
        assert!(packets >= 4_000_000 / 1460, "{packets} packets are aggregates");
        assert!(bytes <= packets * 1500, "{bytes} bytes in {packets} packets");
    }
}

#[test]
fn losses_follow_the_probability_and_changes_come_at_once() {
    if !is_root_or_skip("emulated loss") {
        return;
    }
    let testbed = Testbed::with_middle(1).unwrap();
    let emulation = start(&testbed, vec![line(0, LinkConfig::default())]);
    let (client, server) = udp_pair(&testbed, 0);
    client.send(b"resolve").unwrap();
    let mut buffer = [0; 2000];
    server.recv(&mut buffer).unwrap();
    server.set_read_timeout(Some(SystemDuration::from_millis(300))).unwrap();
    let send = |count: usize| {
        let arrived = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 2000];
                while server.recv(&mut buffer).is_ok() {
                    arrived.fetch_add(1, Ordering::Relaxed);
                }
            });
            for number in 0..count {
                client.send(&[0; 1000]).unwrap();
                // However busy the machine is, no queue of the kernel's fills: what was sent arrives first, or was lost.
                let mut waits = 0;
                while number % 10 == 9 && arrived.load(Ordering::Relaxed) <= number && waits < 20 {
                    std::thread::sleep(SystemDuration::from_micros(200));
                    waits += 1;
                }
            }
        });
        arrived.into_inner()
    };
    assert_eq!(send(1000), 1000, "none is lost without a reason");
    emulation.change_direction(0, Direction::Forward, Change::Loss(Loss::Random(0.3))).unwrap();
    let arrived = send(1000);
    assert!((600..800).contains(&arrived), "{arrived} of 1000 arrived");
    emulation.change(0, Change::Down).unwrap();
    assert_eq!(send(10), 0);
    emulation.change(0, Change::Loss(Loss::None)).unwrap();
    emulation.change(0, Change::Up).unwrap();
    assert_eq!(send(10), 10);
    assert!(emulation.change(1, Change::Up).is_err());
    drop(emulation);
    assert_eq!(send(10), 0, "nothing passes without the emulation");
}

#[tokio::test]
async fn a_middlebox_that_strips_options_makes_the_kernel_fall_back() {
    if !is_root_or_skip("an emulated middlebox") {
        return;
    }
    let testbed = Testbed::with_middle(2).unwrap();
    let strip = middlebox::Policy::by_name("strip-mptcp-syn").unwrap();
    let stripping = EmulatedLink { middleboxes: vec![strip], ..line(1, LinkConfig::default()) };
    let _emulation = start(&testbed, vec![line(0, LinkConfig::default()), stripping]);
    let client = KernelEngine::new().in_namespace(testbed.client.clone());
    let server = KernelEngine::new().in_namespace(testbed.server.clone());
    for (path, is_multipath) in [(0, true), (1, false)] {
        let ends: [std::net::IpAddr; 2] = [Testbed::server_v4(path).into(), Testbed::server_v6(path).into()];
        for addr in ends {
            let listener = server.listen(SocketAddr::new(addr, 0)).unwrap();
            let to = listener.local_addr().unwrap();
            let options = polypath_stack::engine::ConnectOptions::default();
            let connecting = client.connect(to, &options);
            let (here, there) = tokio::join!(connecting, listener.accept());
            let (mut here, mut there) = (here.unwrap(), there.unwrap().0);
            here.write_all(&[7; 100_000]).await.unwrap();
            let mut data = vec![0; 100_000];
            there.read_exact(&mut data).await.unwrap();
            assert!(data.iter().all(|byte| *byte == 7));
            let seen = [here.info().unwrap().is_multipath, there.info().unwrap().is_multipath];
            assert_eq!(seen, [is_multipath; 2], "path {path}, {addr}");
        }
    }
}

#[test]
fn mistakes_are_named() {
    if !is_root_or_skip("emulation of what is not there") {
        return;
    }
    let testbed = Testbed::with_middle(2).unwrap();
    let middle = testbed.middle.as_ref().unwrap();
    let refused = |links| Emulation::start(middle, links).expect_err("a mistake").to_string();
    let plain = || line(0, LinkConfig::default());
    let message = refused(vec![EmulatedLink { b: "nothere".into(), ..plain() }]);
    assert_eq!(message, "nothere: no such interface; expected one that `ip link` lists");
    assert!(refused(vec![EmulatedLink { b: "lo".into(), ..plain() }]).contains("no Ethernet"));
    assert!(refused(vec![EmulatedLink { b: "client0".into(), ..plain() }]).contains("two links"));
    let first = start(&testbed, vec![plain()]);
    let message = refused(vec![plain()]);
    assert_eq!(message, "client0: another emulation uses the interface; end that one first");
    // Others are nobody's, and so are these again.
    drop(start(&testbed, vec![line(1, LinkConfig::default())]));
    drop(first);
    drop(start(&testbed, vec![plain()]));
    middle.run(|| polypath_system::Netlink::new()?.set_down("server0")).unwrap().unwrap();
    assert!(refused(vec![plain()]).contains("is down"));
}

#[test]
fn an_interface_that_goes_away_ends_its_link_and_the_last_one_the_emulation() {
    if !is_root_or_skip("emulated interfaces that go away") {
        return;
    }
    let testbed = Testbed::with_middle(2).unwrap();
    let emulation = start(&testbed, vec![line(0, LinkConfig::default()), line(1, LinkConfig::default())]);
    let middle = testbed.middle.as_ref().unwrap();
    let remove = |name: &str| middle.run(|| polypath_system::Netlink::new()?.remove_link(name)).unwrap();
    remove("client0").unwrap();
    for round in 0..20 {
        let (client, server) = udp_pair(&testbed, 1);
        client.send(&[round]).unwrap();
        assert_eq!(server.recv(&mut [0; 2]).unwrap(), 1, "the other link goes on");
        assert_eq!(emulation.statistics().expect("it runs").len(), 2);
    }
    remove("server1").unwrap();
    let started_at = SystemInstant::now();
    let error = loop {
        match emulation.statistics() {
            Err(error) => break error,
            Ok(_) => assert!(started_at.elapsed() < PATIENCE, "it goes on"),
        }
        std::thread::sleep(SystemDuration::from_millis(5));
    };
    assert_eq!(error.to_string(), "server1: the interface is gone, and with it the last link");
}
