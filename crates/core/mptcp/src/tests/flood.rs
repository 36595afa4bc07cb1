//! Handshakes of honest clients while others send a million SYNs a second from addresses that are not theirs.

use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::Ipv4Addr;
use std::vec::Vec;

use polypath_units::{Duration, Instant};
use polypath_wire::{
    Endpoint, FourTuple, MpJoin, MptcpOption, MptcpVersion, Packet, Segment, SeqNumber, TcpFlags,
};

use super::network::{Network, PORT, Way, client_addr, pattern, segment, server_addr};
use super::{MINUTE, VERSIONS, network};
use crate::path_manager::LocalEndpoint;
use crate::{Event, HostConfig};

const MILLISECOND: Duration = Duration::from_millis(1);

/// One way; a round trip is twice this.
const DELAY_MS: u64 = 25;

fn server() -> Endpoint {
    Endpoint::new(server_addr(0), PORT)
}

fn spoofed_syn(number: u32, option: MptcpOption) -> Packet {
    polypath_tcp::flood::syn(number, server(), option)
}

fn capable_syn(number: u32) -> Packet {
    polypath_tcp::flood::capable_syn(number, server())
}

/// Gives the server a million SYNs a second for so many milliseconds, and lets everybody else live meanwhile.
fn flood(network: &mut Network, from: u32, for_ms: u32, mut syn: impl FnMut(u32) -> Packet) {
    for ms in 0..for_ms {
        for number in 0..1000 {
            network.server.handle_packet(network.now, syn(from + ms * 1000 + number));
            // As a driver does: what is to be sent leaves after each batch.
            if number % 64 == 0 {
                transmit(network);
            }
        }
        transmit(network);
        network.run_until(network.now + MILLISECOND);
    }
}

fn transmit(network: &mut Network) {
    while let Some(packet) = network.server.poll_transmit(network.now) {
        network.travel(Way::ToClient, packet);
    }
}

fn count(network: &Network, wanted: fn(&Event) -> bool) -> usize {
    network.client_events.iter().filter(|(_, event)| wanted(event)).count()
}

#[test]
fn a_million_syns_a_second_delay_nobody() {
    for version in VERSIONS {
        for checksum in [false, true] {
            let mut network = network(&[DELAY_MS, DELAY_MS], version, checksum, 1);
            let mut clients = Vec::new();
            for begin in 0..4 {
                flood(&mut network, begin * 25_000, 25, capable_syn);
                clients.push(network.connect());
            }
            flood(&mut network, 100_000, DELAY_MS as u32 * 4, capable_syn);
            // The last of four asked two round trips ago.
            let log = network.log.join("\n");
            assert_eq!(count(&network, |event| *event == Event::Connected), 4, "{log}");
            assert_eq!(count(&network, |event| matches!(event, Event::FellBack(_))), 0, "{log}");
            assert_eq!(network.server.counters().syncookies_recv, 4);
            let config = HostConfig::default();
            let held = network.server.population().connections;
            assert!(held <= config.backlog + 4, "{held} connections");
            // All of it is Multipath TCP: keys, checksums, joins.
            flood(&mut network, 200_000, DELAY_MS as u32 * 4, capable_syn);
            let log = network.log.join("\n");
            assert_eq!(network.client.counters().mp_join_syn_ack_rx, 4, "{log}");
            for id in clients {
                network.client.send(id, pattern(0, 100_000).into()).expect("it is open");
            }
            network.run_until(network.now + Duration::from_secs(2));
            let is_accepted = |event: &Event| matches!(event, Event::Accepted { .. });
            let accepted: Vec<_> = network
                .server_events
                .iter()
                .filter(|(_, event)| is_accepted(event))
                .map(|(id, _)| *id)
                .collect();
            assert_eq!(accepted.len(), 4);
            for id in accepted {
                let mut received = Vec::new();
                while let Some(data) = network.server.recv(id) {
                    received.extend(data.to_vec());
                }
                assert!(received == pattern(0, 100_000));
            }
            assert_eq!(count(&network, |event| matches!(event, Event::FellBack(_))), 0);
        }
    }
}

#[test]
fn one_source_leaves_state_for_others() {
    let mut network = network(&[DELAY_MS], MptcpVersion::V1, false, 1);
    let from_one_network = |number: u32| {
        let mut packet = capable_syn(number);
        packet.ip.src = Ipv4Addr::new(172, 16, 200, number as u8).into();
        packet
    };
    flood(&mut network, 0, 20, from_one_network);
    let config = HostConfig::default();
    assert_eq!(network.server.population().connections, config.backlog_per_source);
    network.connect();
    network.run_until(network.now + MILLISECOND * 2 * DELAY_MS);
    assert_eq!(network.server.counters().syncookies_recv, 0, "others are held until their third ACK");
    assert_eq!(count(&network, |event| *event == Event::Connected), 1);
}

/// A cookie carries everything that matters later, with timestamps and without.
#[test]
fn a_cookie_loses_nothing_of_the_syn() {
    for timestamps in [false, true] {
        let mut client = super::config(MptcpVersion::V1, false);
        alloc::sync::Arc::make_mut(&mut client.tcp).timestamps = timestamps;
        let info = |backlog: usize| {
            let server = super::config(MptcpVersion::V1, false);
            let mut network = Network::new(&[10], client.clone(), server, 5);
            network.listen_with(backlog);
            network.connect();
            network.run_until(network.now + Duration::from_secs(1));
            assert_eq!(network.server.counters().syncookies_recv, u64::from(backlog == 0));
            let info = network.server.info(network.accepted()).expect("it is open");
            assert!(info.mptcp);
            let tcp = &info.subflows[0].tcp;
            (tcp.mss_bytes, tcp.peer_window_bytes, network.log.len())
        };
        assert_eq!(info(0), info(100));
    }
}

#[test]
fn a_lost_third_ack_is_made_good_by_the_first_data() {
    for version in VERSIONS {
        let server = super::config(version, false);
        let mut network = Network::new(&[10], server.clone(), server, 5);
        network.listen_with(0);
        let mut lost = 0;
        network.meddle = std::boxed::Box::new(move |way, packet| {
            let third = way == Way::ToServer && !segment(&packet).flags.syn() && lost < 1;
            lost += i32::from(third);
            if third { Vec::new() } else { std::vec![packet] }
        });
        let (at_server, at_client) = network.exchange(50_000, 50_000, MINUTE);
        let log = network.log.join("\n");
        assert!(at_server == pattern(0, 50_000) && at_client == pattern(0, 50_000), "{log}");
    }
}

/// A client with two addresses of which it uses one, and a server that has accepted its connection.
fn connected() -> Network {
    let mut network = network(&[DELAY_MS, DELAY_MS], MptcpVersion::V1, false, 3);
    network.client.remove_endpoint(network.now, client_addr(1));
    network.connect();
    network.run_until(network.now + Duration::from_millis(500));
    network
}

fn subflows(network: &Network) -> usize {
    let info = network.server.info(network.accepted()).expect("it is open");
    info.subflows.iter().filter(|subflow| subflow.established).count()
}

#[test]
fn a_million_joins_a_second_keep_nobody_out() {
    let mut network = connected();
    let token = network.server.info(network.accepted()).expect("it is open").local_token;
    let join = |number: u32| {
        let join = MpJoin::Syn { backup: false, address_id: number as u8, token, nonce: number };
        let mut packet = spoofed_syn(number, MptcpOption::Join(join));
        if number.is_multiple_of(100) {
            super::network::segment_mut(&mut packet).options.timestamps = None;
        }
        packet
    };
    flood(&mut network, 0, 20, join);
    network.client.add_endpoint(network.now, LocalEndpoint::subflow(client_addr(1), 2));
    flood(&mut network, 20_000, 4 * DELAY_MS as u32, join);
    assert_eq!(subflows(&network), 2, "{}", network.log.join("\n"));
    let most = HostConfig::default().max_half_open_joins;
    let held = network.server.info(network.accepted()).expect("it is open").subflows.len();
    assert!(held <= 2 + most && network.server.population().flows <= 2 + most, "{held}");
    let joined = |event: &Event| matches!(event, Event::SubflowEstablished { .. });
    assert_eq!(count(&network, joined), 2);
    // Both of them carry data.
    let server = network.accepted();
    network.server.send(server, pattern(0, 3_000_000).into()).expect("it is open");
    network.run_until(network.now + Duration::from_secs(5));
    let sent = network.server.info(server).expect("it is open");
    assert!(sent.subflows.iter().filter(|subflow| subflow.tcp.bytes_sent > 100_000).count() == 2, "{sent:?}");
}

#[test]
fn a_third_ack_of_a_stateless_join_opens_one_subflow_once() {
    let mut network = connected();
    let token = network.server.info(network.accepted()).expect("it is open").local_token;
    let third: Rc<RefCell<Option<Packet>>> = Rc::default();
    let heard = third.clone();
    network.meddle = std::boxed::Box::new(move |way, packet| {
        let is_join = |option: &MptcpOption| matches!(option, MptcpOption::Join(MpJoin::Ack { .. }));
        if way == Way::ToServer && segment(&packet).options.mptcp().any(is_join) {
            heard.borrow_mut().get_or_insert(packet.clone());
        }
        std::vec![packet]
    });
    let join = |number: u32| {
        let join = MpJoin::Syn { backup: false, address_id: 9, token, nonce: number };
        spoofed_syn(number, MptcpOption::Join(join))
    };
    flood(&mut network, 0, 1, join);
    network.client.add_endpoint(network.now, LocalEndpoint::subflow(client_addr(1), 2));
    network.run_until(network.now + Duration::from_secs(1));
    assert_eq!((subflows(&network), network.server.counters().syncookies_recv), (2, 1));
    network.client.remove_endpoint(network.now, client_addr(1));
    network.run_until(network.now + Duration::from_secs(1));
    assert_eq!(subflows(&network), 1, "{}", network.log.join("\n"));
    // Somebody on the path has heard it and says it again.
    let packet = third.borrow_mut().take().expect("a third ACK");
    let mut forged = packet.clone();
    super::network::segment_mut(&mut forged).ack = segment(&forged).ack.add(1);
    for packet in [packet, forged] {
        network.server.handle_packet(network.now, packet);
        network.run_until(network.now + MILLISECOND);
        assert_eq!(subflows(&network), 1, "{}", network.log.join("\n"));
    }
    assert_eq!(network.server.counters().syncookies_recv, 1);
}

/// What a stranger makes up costs HMACs, and so only so many of them are looked at; a client repeats its own.
#[test]
fn made_up_third_acks_of_joins_cost_a_bounded_number_of_hmacs() {
    let mut network = connected();
    let per_second = 1000;
    let config = HostConfig { join_hmacs_per_second: per_second, ..network.server.config().clone() };
    network.serve_with(config);
    network.connect();
    network.run_until(network.now + Duration::from_millis(500));
    let token = network.server.info(network.accepted()).expect("it is open").local_token;
    let join = |number: u32| {
        let join = MpJoin::Syn { backup: false, address_id: 9, token, nonce: number };
        spoofed_syn(number, MptcpOption::Join(join))
    };
    flood(&mut network, 0, 1, join);
    let made_up = |number: u32| {
        let option = MptcpOption::Join(MpJoin::Ack { hmac: [number as u8; 20] });
        let mut packet = spoofed_syn(number, option);
        let segment = super::network::segment_mut(&mut packet);
        (segment.flags, segment.ack) = (TcpFlags::ACK, SeqNumber(number));
        packet
    };
    network.client.add_endpoint(network.now, LocalEndpoint::subflow(client_addr(1), 2));
    let before = network.server.counters().mp_join_ack_hmac_failure;
    flood(&mut network, 1000, 1000, made_up);
    let read = network.server.counters().mp_join_ack_hmac_failure - before;
    // Two HMACs each, up to half more than was asked for, in parts of two seconds.
    assert!(read > 0 && read <= u64::from(per_second) * 3 / 2, "{read}");
    assert!(network.server.counters().join_acks_dropped > 900_000);
    network.run_until(network.now + Duration::from_secs(10));
    assert_eq!(subflows(&network), 2, "{}", network.log.len());
}

#[test]
fn joins_without_timestamps_push_out_the_oldest() {
    let mut network = connected();
    let mut client = super::config(MptcpVersion::V1, false);
    alloc::sync::Arc::make_mut(&mut client.tcp).timestamps = false;
    let mut network_without = Network::new(&[DELAY_MS, DELAY_MS], client.clone(), client, 3);
    core::mem::swap(&mut network, &mut network_without);
    network.client.remove_endpoint(network.now, client_addr(1));
    network.connect();
    network.run_until(network.now + Duration::from_millis(500));
    let token = network.server.info(network.accepted()).expect("it is open").local_token;
    // As many as are held, then an honest one, then fewer than would push it out.
    for number in 0..12 {
        if number == 9 {
            network.client.add_endpoint(network.now, LocalEndpoint::subflow(client_addr(1), 2));
            network.run_until(network.now + MILLISECOND * DELAY_MS);
        }
        let join = MpJoin::Syn { backup: false, address_id: 9, token, nonce: number };
        let mut syn = spoofed_syn(number, MptcpOption::Join(join));
        super::network::segment_mut(&mut syn).options.timestamps = None;
        network.server.handle_packet(network.now, syn);
        transmit(&mut network);
    }
    network.run_until(network.now + MILLISECOND * 3 * DELAY_MS);
    assert_eq!(subflows(&network), 2, "{}", network.log.join("\n"));
    let held = network.server.info(network.accepted()).expect("it is open").subflows.len();
    assert!(held <= 2 + HostConfig::default().max_half_open_joins, "{held}");
}

fn stray(number: u32, source: u32) -> Packet {
    let tuple = FourTuple {
        local: Endpoint::new(Ipv4Addr::from_bits(0xac10_0000 + (source << 8)).into(), number as u16),
        remote: Endpoint::new(server_addr(0), PORT),
    };
    let segment =
        Segment { seq: SeqNumber(number), ack: SeqNumber(9), flags: TcpFlags::ACK, ..Segment::default() };
    Packet::tcp(tuple, segment)
}

#[test]
fn answers_to_strangers_wait_in_a_short_queue_and_leave_at_a_bounded_rate() {
    let mut network = network(&[1], MptcpVersion::V1, false, 1);
    let HostConfig { max_replies, resets_per_second, .. } = HostConfig::default();
    let host = &mut network.server;
    let now = Instant::from_secs(10);
    (0..20_000).for_each(|number| host.handle_packet(now, stray(number, number % 1000)));
    let waiting = core::iter::from_fn(|| host.poll_transmit(now)).count();
    assert!(waiting <= max_replies && waiting > 0, "{waiting}");
    assert!(host.counters().reply_queue_drops > 0);
    let now = Instant::from_secs(11);
    let mut resets_after = |count: u32, sources: u32| {
        let answered = |number| {
            host.handle_packet(now, stray(number, number % sources));
            core::iter::from_fn(|| host.poll_transmit(now)).count()
        };
        (0..count).map(answered).sum::<usize>()
    };
    let to_one = resets_after(100_000, 1);
    assert!((1..=resets_per_second as usize * 3 / 8 + 1).contains(&to_one), "{to_one}");
    let to_all = resets_after(100_000, 4096);
    assert!((1..=resets_per_second as usize * 3 / 2).contains(&(to_one + to_all)), "{to_all}");
    assert!(host.counters().resets_withheld > 0);
}

/// Forged resets, each just beside the mark, for many connections: what leaves is bounded for the host too.
#[test]
fn challenges_are_bounded_for_the_host() {
    for challenge_acks_per_second in [40, 50_000] {
        let mut network = network(&[1], MptcpVersion::V1, false, 1);
        let config = HostConfig { challenge_acks_per_second, ..network.server.config().clone() };
        network.serve_with(config);
        (0..50).for_each(|_| _ = network.connect());
        network.run_until(network.now + Duration::from_secs(2));
        let mut ids: Vec<_> = network.server_events.iter().map(|(id, _)| *id).collect();
        ids.dedup();
        let subflow = |id| network.server.info(id).map(|info| info.subflows[0].tuple);
        let tuples: Vec<FourTuple> = ids.into_iter().filter_map(subflow).collect();
        assert_eq!(tuples.len(), 50);
        let mut sent = 0;
        for tuple in tuples {
            let edge = network.last_acknowledged(tuple).expect("the server has acknowledged something");
            for beside in 1..20 {
                let flags = TcpFlags::RST;
                let reset = Segment { seq: edge.add(beside), flags, ..Segment::default() };
                network.server.handle_packet(network.now, Packet::tcp(tuple.reversed(), reset));
                sent += core::iter::from_fn(|| network.server.poll_transmit(network.now)).count();
            }
        }
        // One source gets a quarter of 20 to 60, or all that its connections give.
        let bound = if challenge_acks_per_second == 40 { 1..=16 } else { 400..=500 };
        assert!(bound.contains(&sent), "{sent}");
        assert_eq!(network.server.counters().challenges_withheld > 0, challenge_acks_per_second == 40);
    }
}
