//! Counters count what happens, once each: as the kernel's of the same names do. And where data goes after a fallback.

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use polypath_wire::{MptcpOption, MptcpVersion, Packet, TcpOption};

use super::network::{Network, Way, client_addr, pattern, segment, segment_mut};
use super::{MINUTE, VERSIONS, fell_back, network};
use crate::FallbackReason;

/// Packets towards the client, or to the server, that say this.
fn said(network: &Network, arrow: char, what: &str) -> u64 {
    let is_meant = |line: &&std::string::String| line.contains(arrow) && line.ends_with(what);
    network.log.iter().filter(is_meant).count() as u64
}

fn corrupt(packet: &mut Packet) {
    let mut bytes = segment(packet).payload.to_vec();
    bytes[0] ^= 1;
    segment_mut(packet).payload = bytes.into();
}

/// Changes data to the server from the address on `path` once enough has passed there.
fn corrupting(
    path: usize,
    mut then: impl FnMut(Way, Packet) -> Vec<Packet> + 'static,
) -> super::network::Meddle {
    let mut count = 0;
    Box::new(move |way, mut packet| {
        let is_meant = way == Way::ToServer && packet.ip.src == client_addr(path);
        if is_meant && segment(&packet).payload.len() > 1000 {
            count += 1;
            if count == 5 {
                corrupt(&mut packet);
            }
        }
        then(way, packet)
    })
}

#[test]
fn an_mp_fail_that_is_answered_counts_once() {
    for version in VERSIONS {
        let mut network = network(&[10], version, true, 8);
        network.meddle = corrupting(0, |_, packet| vec![packet]);
        network.exchange(200_000, 0, MINUTE);
        let log = network.log.join("\n");
        assert_eq!((network.server.counters().mp_fail_tx, said(&network, '<', " fail")), (1, 1), "{log}");
        assert_eq!(
            (network.server.counters().data_csum_err, network.client.counters().mp_fail_rx),
            (1, 1),
            "{log}"
        );
        assert_eq!(network.client.counters().mp_fail_tx, 0);
    }
}

/// Without an infinite mapping it is sent again, and each counts.
#[test]
fn an_mp_fail_that_is_lost_counts_each_time() {
    let mut network = network(&[10], MptcpVersion::V1, true, 8);
    network.meddle = corrupting(0, |_, mut packet| {
        let is_fail = |option: &TcpOption| matches!(option, TcpOption::Mptcp(MptcpOption::Fail { .. }));
        let segment = segment_mut(&mut packet);
        // The log still has it.
        if segment.options.rest.iter().any(is_fail) {
            segment.src_port ^= 1;
        }
        vec![packet]
    });
    network.exchange(200_000, 0, MINUTE);
    let log = network.log.join("\n");
    let sent = said(&network, '<', " fail");
    assert!(sent > 2, "{sent}\n{log}");
    assert_eq!(
        (network.server.counters().mp_fail_tx, network.server.counters().data_csum_err),
        (sent, 1),
        "{log}"
    );
}

/// Of several subflows one is reset, with an MP_FAIL.
#[test]
fn an_mp_fail_with_a_reset_counts_once() {
    for version in VERSIONS {
        let mut network = network(&[10, 10], version, true, 8);
        network.meddle = corrupting(1, |_, packet| vec![packet]);
        let (at_server, _) = network.exchange(3_000_000, 0, MINUTE);
        let log = network.log.join("\n");
        assert_eq!(at_server, pattern(0, 3_000_000), "{log}");
        let with_reset = |line: &&std::string::String| line.contains('<') && line.contains(" fail");
        assert_eq!(network.log.iter().filter(with_reset).count(), 1, "{log}");
        assert_eq!(
            (network.server.counters().mp_fail_tx, network.server.counters().data_csum_err),
            (1, 1),
            "{log}"
        );
        assert_eq!(fell_back(&network), [None, None]);
    }
}

/// What a dead path holds goes out over the other, each piece once.
#[test]
fn every_piece_that_goes_out_again_counts() {
    let mut network = network(&[10, 10], MptcpVersion::V1, false, 8);
    let client = network.connect();
    network.run_until(network.now + polypath_units::Duration::from_millis(200));
    assert_eq!(network.client.counters().mptcp_retrans, 0);
    network.cut[1] = true;
    let taken = network.client.send(client, pattern(0, 300_000).into()).expect("it is open");
    network.run_until(network.now + polypath_units::Duration::from_secs(5));
    let server = network.accepted();
    let mut heard = 0;
    while let Some(data) = network.server.recv(server) {
        heard += data.len();
    }
    assert_eq!(heard, taken);
    let sent_again = network.client.counters().mptcp_retrans;
    let over_dead =
        network.log.iter().filter(|line| line.contains(" 1>") && line.contains("dss lost")).count();
    assert!((1..=2 * over_dead as u64).contains(&sent_again), "{sent_again} of {over_dead}");
    assert_eq!(network.server.counters().mptcp_retrans, 0);
}

/// Bytes without a mapping on the only subflow: the connection falls back, and from then on none is missed.
#[test]
fn data_without_mapping_counts_until_the_connection_falls_back() {
    for version in VERSIONS {
        let mut network = network(&[10], version, false, 8);
        let mut count = 0;
        network.meddle = Box::new(move |way, mut packet| {
            if way == Way::ToServer && segment(&packet).payload.len() > 1000 {
                count += 1;
                if count > 20 {
                    super::strip(&mut packet);
                }
            }
            vec![packet]
        });
        network.exchange(500_000, 0, MINUTE);
        let counters = network.server.counters();
        let log = network.log.join("\n");
        assert_eq!(fell_back(&network)[1], Some(FallbackReason::DssMissing), "{log}");
        assert_eq!((counters.data_without_mapping, counters.dss_not_matching), (1, 0), "{log}");
    }
}

/// A subflow that joins stands before the one that falls back, and is still there while data waits: that is for the one that speaks TCP.
#[test]
fn after_a_fallback_data_goes_to_the_subflow_that_fell_back() {
    for version in VERSIONS {
        let mut network = network(&[10, 10, 20], version, true, 8);
        let mut count = 0;
        network.meddle = Box::new(move |way, mut packet| {
            let (from, to) = (packet.ip.src, packet.ip.dst);
            // The second path dies before the third ACK of the first join.
            let is_second = from == client_addr(1) || to == client_addr(1);
            if is_second && !segment(&packet).flags.syn() {
                return vec![];
            }
            if way == Way::ToServer && from == client_addr(2) && segment(&packet).payload.len() > 1000 {
                count += 1;
                if count == 10 {
                    corrupt(&mut packet);
                }
            }
            vec![packet]
        });
        let client = network.connect();
        network.run_until(network.now + polypath_units::Duration::from_millis(150));
        network.client.remove_endpoint(network.now, client_addr(0));
        let subflows = network.client.info(client).expect("it is open").subflows;
        let addrs: Vec<_> = subflows.iter().map(|subflow| subflow.tuple.local.addr).collect();
        let log = network.log.join("\n");
        assert_eq!(addrs.last(), Some(&client_addr(2)), "{log}");
        assert!(addrs.contains(&client_addr(1)), "it joins: {log}");
        let data = pattern(0, 3_000_000);
        let (mut sent, mut heard) = (0, Vec::new());
        let server = network.accepted();
        let end = network.now + MINUTE;
        while heard.len() < data.len() && network.now < end && network.step() {
            if let Ok(taken) = network.client.send(client, data[sent..].to_vec().into()) {
                sent += taken;
            }
            while let Some(piece) = network.server.recv(server) {
                heard.extend(piece.to_vec());
            }
        }
        let log = network.log.join("\n");
        assert_eq!(
            fell_back(&network),
            [Some(FallbackReason::ChecksumFailed), Some(FallbackReason::InfiniteMapping)]
        );
        let wrong = heard.iter().zip(&data).filter(|(one, other)| one != other).count();
        assert_eq!((heard.len(), wrong), (data.len(), 1), "{log}");
    }
}
