//! Settings of live connections.

use std::vec::Vec;

use polypath_tcp::ConnectionOption;
use polypath_units::Duration;

use super::network::{Network, Way, pattern};
use super::{MINUTE, VERSIONS, config};
use crate::path_manager::Limits;
use crate::scheduler::Policy;
use crate::{CloseReason, ConnectionConfig, ConnectionId, Event};

fn modes() -> [ConnectionConfig; 3] {
    let plain = ConnectionConfig { mptcp: false, ..ConnectionConfig::default() };
    [config(VERSIONS[0], true), config(VERSIONS[1], false), plain]
}

/// Two hosts with an open connection: the client's identifier, and the server's.
fn open(config: ConnectionConfig) -> (Network, ConnectionId, ConnectionId) {
    let mut network = Network::new(&[10], config.clone(), config, 4);
    let client = network.connect();
    network.client.send(client, pattern(0, 10).into()).expect("it is opening");
    run_for(&mut network, 1000);
    let server = network.accepted();
    (network, client, server)
}

fn run_for(network: &mut Network, ms: u64) {
    network.run_until(network.now + Duration::from_millis(ms));
}

fn read(network: &mut Network, server: ConnectionId) -> usize {
    let mut read = 0;
    while let Some(data) = network.server.recv(server) {
        read += data.len();
    }
    read
}

#[test]
fn cork_holds_back_what_fills_no_segment_until_it_is_drawn_or_a_while_has_passed() {
    for mode in modes() {
        let (mut network, client, server) = open(mode);
        assert_eq!(read(&mut network, server), 10);
        network.client.set_option(network.now, client, ConnectionOption::Cork(true));
        network.client.send(client, pattern(10, 100).into()).expect("it is open");
        run_for(&mut network, 150);
        assert_eq!(read(&mut network, server), 0);
        network.client.set_option(network.now, client, ConnectionOption::Cork(false));
        run_for(&mut network, 11);
        assert_eq!(read(&mut network, server), 100);
        network.client.set_option(network.now, client, ConnectionOption::Cork(true));
        network.client.send(client, pattern(110, 3000).into()).expect("it is open");
        run_for(&mut network, 50);
        let whole = read(&mut network, server);
        assert!((2000..3000).contains(&whole), "{whole} bytes are whole segments");
        run_for(&mut network, 400);
        assert_eq!(read(&mut network, server), 3000 - whole, "not for ever");
    }
}

#[test]
fn nagle_can_be_switched() {
    for mode in modes() {
        for (no_delay, expected) in [(true, 2), (false, 1)] {
            let (mut network, client, _) = open(mode.clone());
            network.client.set_option(network.now, client, ConnectionOption::NoDelay(no_delay));
            let before = network.log.len();
            for part in 0..2 {
                network.client.send(client, pattern(part * 100, 100).into()).expect("it is open");
                network.flush();
            }
            let sent =
                network.log[before..].iter().filter(|line| line.contains("> P") || line.contains("> ."));
            let sent: Vec<_> = sent.filter(|line| line.contains(" 100")).collect();
            assert_eq!(sent.len(), expected, "{sent:?}");
        }
    }
}

#[test]
fn the_user_timeout_ends_a_connection_whose_peer_is_silent() {
    for mode in modes() {
        let (mut network, client, _) = open(mode);
        let limit = Duration::from_secs(7);
        network.client.set_option(network.now, client, ConnectionOption::UserTimeout(Some(limit)));
        network.meddle = alloc::boxed::Box::new(|way, packet| match way {
            Way::ToClient => Vec::new(),
            Way::ToServer => Vec::from([packet]),
        });
        let began = network.now;
        network.client.send(client, pattern(0, 100).into()).expect("it is open");
        let closed = Event::Closed(CloseReason::TimedOut);
        while !network.client_events.iter().any(|(_, event)| *event == closed) && network.now < began + MINUTE
        {
            network.step();
        }
        let took = network.now.since(began);
        // The connection waits as long for another subflow.
        let most = limit * 2 + Duration::from_secs(1);
        assert!(took >= limit && took <= most, "{took:?}");
    }
}

/// The server's application reads nothing, and its host answers all the time.
#[test]
fn the_user_timeout_ends_a_connection_whose_peer_keeps_its_window_closed() {
    for mode in modes() {
        for delays in [&[10][..], &[10, 20]] {
            let tcp = polypath_tcp::Config { receive_buffer_bytes: 8_000, ..(*mode.tcp).clone() };
            let mode = ConnectionConfig { tcp: alloc::sync::Arc::new(tcp), ..mode.clone() };
            let mut network = Network::new(delays, mode.clone(), mode, 4);
            let client = network.connect();
            run_for(&mut network, 1000);
            let limit = Duration::from_secs(7);
            network.client.set_option(network.now, client, ConnectionOption::UserTimeout(Some(limit)));
            network.client.send(client, pattern(0, 60_000).into()).expect("it is open");
            let began = network.now;
            let closed = Event::Closed(CloseReason::TimedOut);
            while !network.client_events.iter().any(|(_, event)| *event == closed)
                && network.now < began + MINUTE
            {
                network.step();
            }
            let took = network.now.since(began);
            let most = limit + Duration::from_secs(1);
            assert!(took >= limit && took <= most, "{took:?}\n{}", network.log.join("\n"));
        }
    }
}

#[test]
fn keepalives_of_an_idle_connection_begin_when_they_are_asked_for_and_find_a_dead_peer() {
    for mode in modes() {
        let (mut network, client, _) = open(mode);
        let (idle, interval) = (Duration::from_secs(5), Duration::from_secs(1));
        let keepalive = ConnectionOption::Keepalive { idle: Some(idle), interval, probes: 3 };
        network.client.set_option(network.now, client, keepalive);
        run_for(&mut network, 30_000);
        let closed = Event::Closed(CloseReason::TimedOut);
        let is_closed = |network: &Network| network.client_events.iter().any(|(_, event)| *event == closed);
        assert!(!is_closed(&network), "the peer answers");
        network.meddle = alloc::boxed::Box::new(|_, _| Vec::new());
        let off = ConnectionOption::Keepalive { idle: None, interval, probes: 3 };
        network.client.set_option(network.now, client, off);
        run_for(&mut network, 30_000);
        assert!(!is_closed(&network), "nobody asks");
        let began = network.now;
        network.client.set_option(network.now, client, keepalive);
        while !is_closed(&network) && network.now < began + MINUTE {
            network.step();
        }
        // Three probes in vain; then a connection without subflows waits for another.
        assert!(network.now.since(began) >= idle + interval * 3, "{:?}", network.now.since(began));
        assert!(is_closed(&network));
    }
}

#[test]
fn buffers_can_be_resized() {
    for mode in modes() {
        let (mut network, client, server) = open(mode);
        network.client.set_option(network.now, client, ConnectionOption::SendBufferBytes(5000));
        let taken = network.client.send(client, pattern(0, 9000).into()).expect("it is open");
        assert_eq!(taken, 5000);
        run_for(&mut network, 1000);
        assert_eq!(read(&mut network, server), 5010);
        // A larger one lets more wait at the receiver.
        let large = ConnectionOption::SendBufferBytes(1 << 20);
        network.client.set_option(network.now, client, large);
        network.server.set_option(network.now, server, ConnectionOption::ReceiveBufferBytes(1));
        network.client.send(client, pattern(0, 600_000).into()).expect("it is open");
        run_for(&mut network, 5000);
        let waited = read(&mut network, server);
        run_for(&mut network, 60_000);
        let mut rest = read(&mut network, server);
        for _ in 0..1000 {
            run_for(&mut network, 1000);
            rest += read(&mut network, server);
        }
        assert_eq!(waited + rest, 600_000, "what was promised is kept");
    }
}

/// Both ends change to the next scheduler of the list.
fn change_scheduler(network: &mut Network) {
    let now = network.now;
    for host in [&mut network.client, &mut network.server] {
        let current = host.config().connection.scheduler.name();
        let at = Policy::ALL.iter().position(|policy| policy.name() == current).expect("one of ours");
        host.set_scheduler(now, &Policy::ALL[(at + 1) % Policy::ALL.len()]);
    }
}

#[test]
fn schedulers_change_in_the_middle_and_every_byte_arrives_once() {
    let mut network = Network::new(&[10, 25], config(VERSIONS[0], true), config(VERSIONS[0], true), 9);
    network.loss_percent = 1;
    for step in 0..60 {
        network.plan.push_back((network.now + Duration::from_millis(60 + 25 * step), change_scheduler));
    }
    let (uploaded, downloaded) = network.exchange(2_000_000, 2_000_000, MINUTE);
    assert_eq!((uploaded.len(), downloaded.len()), (2_000_000, 2_000_000));
    assert!(uploaded == pattern(0, 2_000_000) && downloaded == pattern(0, 2_000_000));
    assert!(network.plan.len() < 40, "they changed meanwhile: {} are left", network.plan.len());
}

#[test]
fn a_scheduler_holds_for_live_connections_and_those_to_come() {
    let (mut network, client, _) = open(config(VERSIONS[0], true));
    let policy = Policy::by_name("redundant").expect("it is ours");
    network.client.set_scheduler(network.now, &policy);
    assert_eq!(network.client.info(client).map(|info| info.scheduler), Some("redundant"));
    let next = network.connect();
    assert_eq!(network.client.info(next).map(|info| info.scheduler), Some("redundant"));
}

#[test]
fn limits_hold_from_now_on() {
    let config = config(VERSIONS[0], true);
    let mut network = Network::new(&[10, 20], config.clone(), config, 4);
    network.client.set_limits(network.now, Limits { subflows: 0, ..Limits::default() });
    let client = network.connect();
    network.client.send(client, pattern(0, 10).into()).expect("it is opening");
    run_for(&mut network, 1000);
    let subflows = |network: &Network| network.client.info(client).map(|info| info.subflows.len());
    assert_eq!(subflows(&network), Some(1));
    network.client.set_limits(network.now, Limits::default());
    run_for(&mut network, 1000);
    assert_eq!(subflows(&network), Some(2), "the other path is opened at once");
    network.client.set_limits(network.now, Limits { subflows: 0, ..Limits::default() });
    run_for(&mut network, 1000);
    assert_eq!(subflows(&network), Some(2), "what is there stays");
}
