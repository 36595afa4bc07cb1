use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use polypath_units::Duration;
use polypath_wire::{Segment, TcpFlags, Transport};

use super::super::*;
use super::network::{CLIENT, Faults, Network, PORT, SERVER, address, endpoint, pattern};
use crate::{CloseReason, Config};

fn syn(host: u32, port: u16) -> (FourTuple, Segment) {
    let tuple = FourTuple {
        local: Endpoint::new(Ipv4Addr::from_bits(0x0b00_0000 + host).into(), port),
        remote: endpoint(SERVER, PORT),
    };
    (tuple, Segment { seq: SeqNumber(host), flags: TcpFlags::SYN, window: 1000, ..Segment::default() })
}

fn quiet() -> Network {
    let mut network = Network::new(1, Faults::default());
    network.apps[CLIENT].finishes_first = false;
    network
}

/// A connected pair: the client's id and the server's.
fn pair(network: &mut Network) -> (ConnectionId, ConnectionId) {
    let client = network.connect(Bytes::new());
    network.run_for(Duration::from_secs(1));
    let server = *network.apps[SERVER].streams.last_key_value().expect("accepted").0;
    (client, server)
}

fn closed_with(network: &Network, host: usize) -> Vec<CloseReason> {
    let reasons = network.apps[host].events.iter().filter_map(|(_, event)| match event {
        HostEvent::Closed(reason) => Some(*reason),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn events_come_in_order() {
    let mut network = Network::new(1, Faults::default());
    let listener = network.listen(10);
    network.apps[SERVER].answer = pattern(10);
    network.connect(pattern(10));
    network.run_to_end();
    let events = |host: usize| network.apps[host].events.iter().map(|(_, event)| *event).collect::<Vec<_>>();
    assert_eq!(events(CLIENT)[..2], [HostEvent::Connected, HostEvent::Readable]);
    assert_eq!(
        events(SERVER)[..3],
        [
            HostEvent::Accepted { listener, local: endpoint(SERVER, PORT) },
            HostEvent::Readable,
            HostEvent::PeerFinished
        ]
    );
    network.assert_nothing_left();
}

#[test]
fn what_nobody_listens_for_is_reset() {
    let mut network = quiet();
    network.connect(Bytes::new());
    network.run_to_end();
    assert_eq!(network.apps[CLIENT].events.len(), 1);
    assert!(matches!(network.apps[CLIENT].events[0].1, HostEvent::Closed(_)));
    network.assert_nothing_left();
    let [client, server] = [CLIENT, SERVER].map(|host| network.hosts[host].counters());
    assert_eq!((client.attempt_fails, client.estab_resets, server.out_rsts), (1, 0, 1));
    // A flood of such segments leaves a bounded number of resets behind.
    for i in 0..100_000 {
        let (tuple, segment) = syn(i, 1);
        network.inject(SERVER, tuple, Segment { flags: TcpFlags::ACK, ..segment });
    }
    assert_eq!(network.hosts[SERVER].core.strangers().reply_count(), 1024);
    assert!(network.hosts[SERVER].counters().reply_queue_drops > 0);
}

#[test]
fn a_connection_to_nowhere_times_out() {
    let mut network = quiet();
    network.connected = false;
    network.connect(Bytes::new());
    network.run_to_end();
    assert_eq!(closed_with(&network, CLIENT).len(), 1);
    assert_eq!(network.hosts[CLIENT].counters().attempt_fails, 1);
    network.assert_nothing_left();
}

#[test]
fn letting_go_of_what_is_not_open_yet_ends_it() {
    let mut network = quiet();
    let (now, client) = (network.now, &mut network.hosts[CLIENT]);
    let id = client
        .connect(now, Endpoint::new(address(CLIENT), 0), endpoint(SERVER, PORT))
        .expect("a port is free");
    assert!(client.poll_transmit(now).is_some(), "a SYN");
    client.release(id);
    assert!(client.poll_transmit(now).is_none());
    assert_eq!(client.poll_timeout(), None, "RFC 9293 §3.10.4");
    network.assert_nothing_left();
}

#[test]
fn a_flood_of_syns_is_bounded_and_forgotten() {
    let mut network = quiet();
    network.listen(16);
    for i in 0..10_000 {
        let (tuple, segment) = syn(i, 1000);
        network.inject(SERVER, tuple, segment);
        while network.hosts[SERVER].poll_transmit(network.now).is_some() {}
    }
    let population = network.hosts[SERVER].population();
    assert_eq!((population.half_open, population.connections, population.flows), (16, 16, 16));
    let counters = network.hosts[SERVER].counters();
    assert_eq!((counters.passive_opens, counters.listen_overflows), (16, 9_984));
    assert_eq!((counters.listen_drops, counters.syncookies_sent), (0, 9_984));
    // The spoofed addresses never answer.
    network.connected = false;
    network.run_to_end();
    network.assert_nothing_left();
    assert_eq!(network.hosts[SERVER].counters().attempt_fails, 16);
    assert!(network.apps[SERVER].events.is_empty(), "the application never hears of them");
    network.connected = true;
    network.connect(Bytes::new());
    network.run_for(Duration::from_secs(1));
    assert_eq!(network.apps[SERVER].streams.len(), 1);
}

#[test]
fn the_number_of_connections_is_bounded() {
    let config = HostConfig { max_connections: 5, ..HostConfig::default() };
    let mut network = Network::with_config(1, Faults::default(), config);
    network.apps[CLIENT].finishes_first = false;
    network.listen(100);
    for _ in 0..5 {
        network.connect(Bytes::new());
    }
    let (local, remote) = (endpoint(CLIENT, 0), endpoint(SERVER, PORT));
    assert_eq!(
        network.hosts[CLIENT].connect(network.now, local, remote),
        Err(ConnectError::TooManyConnections)
    );
    network.run_for(Duration::from_secs(1));
    let (tuple, segment) = syn(1, 1);
    network.inject(SERVER, tuple, segment);
    assert_eq!(network.hosts[SERVER].population().connections, 5);
    assert_eq!(network.hosts[SERVER].counters().listen_drops, 1);
}

#[test]
fn connect_refuses_what_cannot_be() {
    let mut network = quiet();
    let now = network.now;
    let host = &mut network.hosts[CLIENT];
    let mut connect = |local, remote| host.connect(now, local, remote).err();
    let (local, remote) = (endpoint(CLIENT, 1), endpoint(SERVER, PORT));
    let unspecified = Endpoint::new(Ipv4Addr::UNSPECIFIED.into(), 1);
    let v6 = Endpoint::new(core::net::Ipv6Addr::LOCALHOST.into(), 1);
    for (local, remote) in
        [(unspecified, remote), (local, unspecified), (local, v6), (local, endpoint(SERVER, 0))]
    {
        assert_eq!(connect(local, remote), Some(ConnectError::InvalidAddress));
    }
    assert_eq!(connect(local, remote), None);
    assert_eq!(connect(local, remote), Some(ConnectError::AddressInUse));
    host.config.ephemeral_ports = 5..=6;
    let mut connect = |remote| host.connect(now, endpoint(CLIENT, 0), remote).err();
    assert_eq!((connect(remote), connect(remote)), (None, None));
    assert_eq!(connect(remote), Some(ConnectError::NoFreePort));
    assert_eq!(connect(endpoint(SERVER, PORT + 1)), None, "a port is taken towards one peer only");
}

#[test]
fn time_wait_is_a_small_record_that_answers() {
    let mut network = Network::new(1, Faults::default());
    network.listen(10);
    let id = network.connect(pattern(10));
    let tuple = network.hosts[CLIENT].tuple(id).unwrap();
    network.run_for(Duration::from_secs(2));
    let population = network.hosts[CLIENT].population();
    assert_eq!((population.connections, population.time_waits, population.flows), (0, 1, 1));
    assert_eq!(network.hosts[SERVER].population().flows, 0, "who finishes last does not wait");
    // A repeated FIN is acknowledged, not reset.
    let numbers = network.hosts[CLIENT].core.strangers().first_time_wait().unwrap();
    let mut fin = Segment { seq: numbers.rcv_nxt.sub(1), ack: numbers.snd_nxt, ..Segment::default() };
    fin.flags = TcpFlags::FIN.with(TcpFlags::ACK);
    network.inject(CLIENT, tuple.reversed(), fin);
    let packet = network.hosts[CLIENT].poll_transmit(network.now).unwrap();
    let Transport::Tcp(answer) = packet.transport else { panic!() };
    assert_eq!((answer.flags, answer.ack), (TcpFlags::ACK, numbers.rcv_nxt));
    // The port is taken meanwhile; afterwards everything is gone.
    let again = network.hosts[CLIENT].connect(network.now, tuple.local, tuple.remote);
    assert_eq!(again, Err(ConnectError::AddressInUse));
    network.run_for(Duration::from_secs(59));
    assert_eq!(network.hosts[CLIENT].population().time_waits, 1);
    network.run_to_end();
    network.assert_nothing_left();
    assert_eq!(network.hosts[CLIENT].counters().tw, 1);
}

#[test]
fn a_new_syn_ends_time_wait() {
    let mut network = Network::new(1, Faults::default());
    network.listen(10);
    // The server closes first, so that TIME-WAIT is at its end.
    network.apps[CLIENT].finishes_first = false;
    network.apps[SERVER].finishes_first = true;
    let id = network.connect(Bytes::new());
    let tuple = network.hosts[CLIENT].tuple(id).unwrap();
    network.run_for(Duration::from_secs(5));
    assert_eq!(network.hosts[SERVER].population().time_waits, 1);
    let last = network.hosts[SERVER].core.strangers().first_time_wait().unwrap();
    network.hosts[CLIENT].connect(network.now, tuple.local, tuple.remote).unwrap();
    network.run_for(Duration::from_secs(1));
    assert_eq!(network.hosts[SERVER].counters().tw_recycled, 1);
    let connected = |(_, event): &&(ConnectionId, HostEvent)| *event == HostEvent::Connected;
    assert_eq!(network.apps[CLIENT].events.iter().filter(connected).count(), 2);
    let next = network.hosts[SERVER].core.strangers().first_time_wait().unwrap();
    assert!(next.snd_nxt.after(last.snd_nxt));
    network.run_to_end();
    network.assert_nothing_left();
}

#[test]
fn time_wait_records_are_bounded() {
    let config = HostConfig { max_time_wait: 3, ..HostConfig::default() };
    let mut network = Network::with_config(1, Faults::default(), config);
    network.listen(10);
    for _ in 0..5 {
        network.connect(Bytes::new());
    }
    network.run_for(Duration::from_secs(2));
    assert_eq!(network.hosts[CLIENT].population().time_waits, 3);
    assert_eq!(network.hosts[CLIENT].counters().tcp_time_wait_overflow, 2);
    network.run_to_end();
    network.assert_nothing_left();
}

#[test]
fn letting_go_with_data_unread_resets() {
    let mut network = quiet();
    network.listen(10);
    network.apps[CLIENT].holds = true;
    let (client, server) = pair(&mut network);
    let now = network.now;
    network.hosts[CLIENT].send(client, pattern(100)).unwrap();
    // The server's application does not run while the data arrives.
    while let Some(packet) = network.hosts[CLIENT].poll_transmit(now) {
        network.hosts[SERVER].handle_packet(now, packet);
    }
    network.hosts[SERVER].release(server);
    network.run_for(Duration::from_secs(1));
    assert_eq!(closed_with(&network, CLIENT), [CloseReason::Reset]);
    assert_eq!(network.hosts[SERVER].counters().tcp_abort_on_close, 1);
    assert_eq!(network.hosts[CLIENT].counters().estab_resets, 1);
    assert_eq!(network.hosts[SERVER].population().flows, 0);
    // What has ended stays with the application until it lets go.
    assert_eq!(network.hosts[CLIENT].population().connections, 1);
    assert_eq!(network.hosts[CLIENT].send(client, pattern(1)), Err(SendError::Closed));
    network.hosts[CLIENT].release(client);
    assert_eq!(network.hosts[CLIENT].send(client, pattern(1)), Err(SendError::UnknownConnection));
    network.assert_nothing_left();
}

#[test]
fn data_for_nobody_resets() {
    let mut network = quiet();
    network.listen(10);
    let (client, server) = pair(&mut network);
    network.hosts[SERVER].release(server);
    network.apps[CLIENT].holds = true;
    network.run_for(Duration::from_secs(1));
    let _ = network.hosts[CLIENT].send(client, pattern(100));
    network.run_for(Duration::from_secs(1));
    assert_eq!(network.hosts[SERVER].counters().tcp_abort_on_data, 1);
    assert_eq!(network.hosts[SERVER].population().flows, 0);
    network.hosts[CLIENT].release(client);
    network.run_to_end();
    network.assert_nothing_left();
}

#[test]
fn an_orphan_whose_peer_never_finishes_is_given_up() {
    let mut network = quiet();
    network.listen(10);
    network.apps[SERVER].holds = true;
    let (client, _) = pair(&mut network);
    network.hosts[CLIENT].release(client);
    network.run_for(Duration::from_secs(59));
    let population = network.hosts[CLIENT].population();
    assert_eq!((population.connections, population.flows), (1, 1));
    network.run_for(Duration::from_secs(2));
    assert_eq!(network.hosts[CLIENT].population(), Population::default());
}

#[test]
fn abort_resets_and_leaves_nothing() {
    let mut network = quiet();
    network.listen(10);
    let (client, _) = pair(&mut network);
    network.hosts[CLIENT].abort(client);
    network.run_for(Duration::from_secs(1));
    assert_eq!(closed_with(&network, SERVER), [CloseReason::Reset]);
    network.hosts[CLIENT].release(client);
    // At once: no timer lingers that would fire for nobody.
    network.assert_nothing_left();
    assert_eq!(network.hosts[CLIENT].counters().out_rsts, 1);
}

#[test]
fn the_timer_goes_with_the_connection() {
    let mut network = quiet();
    network.listen(10);
    let (client, _) = pair(&mut network);
    network.connected = false;
    network.hosts[CLIENT].send(client, pattern(100)).unwrap();
    network.flush();
    assert_eq!(network.hosts[CLIENT].population().timers, 1);
    network.hosts[CLIENT].abort(client);
    network.hosts[CLIENT].release(client);
    network.flush();
    assert_eq!(network.hosts[CLIENT].population(), Population::default());
}

#[test]
fn a_listener_that_goes_takes_its_half_open_connections_along() {
    let mut network = quiet();
    let listener = network.listen(10);
    let _kept = pair(&mut network);
    for i in 0..5 {
        let (tuple, segment) = syn(i, 1);
        network.inject(SERVER, tuple, segment);
    }
    assert_eq!(network.hosts[SERVER].population().half_open, 5);
    network.hosts[SERVER].close_listener(listener);
    network.flush();
    let population = network.hosts[SERVER].population();
    assert_eq!((population.half_open, population.connections, population.listeners), (0, 1, 0));
}

#[test]
fn idle_connections_take_no_part_in_the_work() {
    const IDLE: u32 = 10_000;
    let config = Config { keepalive_idle: Some(Duration::from_secs(7200)), ..Config::default() };
    let config = HostConfig { connection: Arc::new(config), ..HostConfig::default() };
    let mut network = Network::with_config(1, Faults::default(), config);
    network.apps[CLIENT].finishes_first = false;
    network.listen(IDLE as usize);
    for _ in 0..IDLE {
        network.connect(Bytes::new());
    }
    let busy = network.connect(Bytes::new());
    network.run_for(Duration::from_secs(10));
    let at_rest = network.hosts[SERVER].population();
    assert_eq!((at_rest.connections, at_rest.half_open), (IDLE as usize + 1, 0));
    assert!(at_rest.timers <= IDLE as usize + 1, "one timer a connection at most");
    assert!(!network.hosts[SERVER].core.has_ready(), "an idle connection is not asked for packets");

    let carried = network.packets;
    network.hosts[CLIENT].send(busy, pattern(1_000_000)).unwrap();
    network.flush();
    while network.packets < carried + 50 {
        network.step();
        for host in [CLIENT, SERVER] {
            let host = &network.hosts[host];
            assert!(!host.core.has_ready() && host.population().timers <= IDLE as usize + 1);
        }
    }
    assert_eq!(address(SERVER), network.hosts[CLIENT].tuple(busy).unwrap().remote.addr);
}
