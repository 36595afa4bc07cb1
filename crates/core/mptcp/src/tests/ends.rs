//! Ends of streams, of subflows, and of connections: each says no more than it means (RFC 8684 §3.3.3).

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use bytes::Bytes;
use polypath_units::Duration;
use polypath_wire::TcpFlags;

use super::network::{Network, Way, pattern, segment, segment_mut};
use super::{MINUTE, VERSIONS, network};
use crate::{CloseReason, Event};

const SECOND: Duration = Duration::from_secs(1);

/// The first acknowledgment without data from the server, once the client has sent so much, becomes the end of the subflow in
/// that direction.
fn server_finishes_its_subflow(network: &mut Network, after: usize) {
    let (mut fin, mut uploaded) = (None, 0);
    network.meddle = Box::new(move |way, mut packet| {
        let segment = segment_mut(&mut packet);
        if way == Way::ToServer {
            uploaded += segment.payload.len();
            if fin.is_some_and(|fin| segment.ack.after(fin)) {
                segment.ack = segment.ack.sub(1);
            }
        } else if let Some(fin) = fin {
            if !segment.seq.before(fin) {
                segment.seq = segment.seq.add(1);
            }
        } else if uploaded > after && segment.payload.is_empty() && segment.flags == TcpFlags::ACK {
            fin = Some(segment.seq);
            segment.flags = segment.flags.with(TcpFlags::FIN);
        }
        vec![packet]
    });
}

fn reasons(events: &[(crate::ConnectionId, Event)]) -> Vec<CloseReason> {
    let reason = |event: &Event| if let Event::Closed(reason) = event { Some(*reason) } else { None };
    events.iter().filter_map(|(_, event)| reason(event)).collect()
}

#[test]
fn a_fin_of_the_only_subflow_does_not_end_what_this_end_sends() {
    for version in VERSIONS {
        let mut network = network(&[10], version, false, 3);
        server_finishes_its_subflow(&mut network, 50_000);
        let client = network.connect();
        let (mut sent, mut received) = (0, Vec::new());
        let end = network.now + SECOND * 50;
        while network.now < end {
            // The application writes for longer than the transfer of what it wrote first.
            if sent < 200_000 || network.now > end - SECOND * 20 && sent < 400_000 {
                let chunk = Bytes::from(pattern(sent, 10_000));
                sent += network.client.send(client, chunk).expect("the stream is open");
            }
            network.run_until(network.now + Duration::from_millis(100));
            while let Some(data) = network.server.recv(network.accepted()) {
                received.extend(data.to_vec());
            }
        }
        assert!(network.log.iter().any(|line| line.contains("< F")), "the FIN was sent");
        assert!(received == pattern(0, 400_000), "{} of {sent}", received.len());
        assert!(!network.client_events.iter().any(|(_, event)| *event == Event::PeerFinished));
        // With nothing to send, nobody can say anything more: that is not a clean end.
        network.run_until(network.now + MINUTE * 3);
        assert_eq!(reasons(&network.client_events), [CloseReason::TimedOut]);
    }
}

#[test]
fn each_direction_may_end_long_before_the_other() {
    for version in VERSIONS {
        for delays in [&[10][..], &[10, 20]] {
            for first in [Way::ToServer, Way::ToClient] {
                let mut network = network(delays, version, false, 3);
                let client = network.connect();
                network.run_until(network.now + SECOND);
                let server = network.accepted();
                let is_upload = first == Way::ToClient;
                if is_upload {
                    network.server.shutdown(network.now, server);
                } else {
                    network.client.shutdown(network.now, client);
                }
                network.run_until(network.now + MINUTE * 5);
                let (mut sent, mut received) = (0, Vec::new());
                while received.len() < 300_000 {
                    let chunk = Bytes::from(pattern(sent, 10_000));
                    let taken = if is_upload {
                        network.client.send(client, chunk)
                    } else {
                        network.server.send(server, chunk)
                    };
                    sent += taken.expect("this direction is open");
                    network.run_until(network.now + Duration::from_millis(50));
                    let (host, id) =
                        if is_upload { (&mut network.server, server) } else { (&mut network.client, client) };
                    while let Some(data) = host.recv(id) {
                        received.extend(data.to_vec());
                    }
                }
                assert!(received == pattern(0, received.len()));
                if is_upload {
                    network.client.shutdown(network.now, client);
                } else {
                    network.server.shutdown(network.now, server);
                }
                network.run_until(network.now + SECOND * 5);
                for events in [&network.client_events, &network.server_events] {
                    assert_eq!(reasons(events), [CloseReason::Finished], "{}", network.log.join("\n"));
                }
            }
        }
    }
}

/// Its FINs take a minute to be given up, and nobody needs them.
#[test]
fn a_path_that_died_does_not_keep_a_connection_unsettled_whose_ends_have_said_all() {
    for version in VERSIONS {
        let mut network = network(&[10, 20], version, false, 3);
        let client = network.connect();
        network.run_until(network.now + SECOND);
        let server = network.accepted();
        assert_eq!((network.client.unsettled_count(), network.server.unsettled_count()), (1, 1));
        network.cut[1] = true;
        network.client.release(network.now, client);
        network.server.release(network.now, server);
        network.run_until(network.now + SECOND * 2);
        for host in [&network.client, &network.server] {
            let there = (host.population().connections, host.unsettled_count());
            assert_eq!(there, (1, 0), "{}", network.log.join("\n"));
            assert_eq!((host.undelivered_count(), host.cut_short_count()), (0, 0));
        }
    }
}

#[test]
fn what_ends_before_the_peer_has_everything_is_counted() {
    let mut network = network(&[10], VERSIONS[0], false, 3);
    let client = network.connect();
    network.run_until(network.now + SECOND);
    network.client.send(client, Bytes::from(pattern(0, 10_000))).expect("the stream is open");
    network.client.release(network.now, client);
    network.server.abort(network.now, network.accepted());
    network.run_until(network.now + SECOND);
    assert_eq!((network.client.unsettled_count(), network.client.cut_short_count()), (0, 1));
}

/// What Linux does: it answers the third ACK with nothing, and sends its first DSS for data or the end of it.
fn server_waits_for_news(network: &mut Network, lose: usize) {
    let (mut has_news, mut sent) = (false, 0);
    network.meddle = Box::new(move |way, packet| {
        let segment = segment(&packet);
        if way == Way::ToServer {
            sent += usize::from(!segment.flags.syn());
            has_news |= segment.options.dss.is_some() || !segment.payload.is_empty();
            return if !segment.flags.syn() && sent <= lose { vec![] } else { vec![packet] };
        }
        if segment.flags == TcpFlags::ACK && !has_news { vec![] } else { vec![packet] }
    });
}

#[test]
fn a_client_may_close_before_the_first_dss_came() {
    for version in VERSIONS {
        for checksum in [false, true] {
            for (upload, lose) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (5_000, 0), (5_000, 2)] {
                let mut network = network(&[10], version, checksum, 3);
                server_waits_for_news(&mut network, lose);
                let start = network.now;
                let limit = if lose == 0 { Duration::from_millis(200) } else { SECOND * 10 };
                let client = network.connect();
                // Closed at once, and half-closed.
                network.client.send(client, Bytes::from(pattern(0, upload))).expect("it is open");
                network.client.shutdown(start, client);
                let mut ends = None;
                while ends.is_none() && network.now < start + limit && network.step() {
                    let is_end = |(_, event): &&(_, Event)| *event == Event::PeerFinished;
                    ends = network.server_events.iter().find(is_end).map(|_| network.now.since(start));
                }
                let case = std::format!("{version:?} {checksum} {upload} {lose}");
                let log = network.log.join("\n");
                assert!(ends.is_some(), "{case}\n{log}");
                if lose == 0 {
                    assert!(ends < Some(Duration::from_millis(31)), "{case}\n{log}");
                }
                let server = network.accepted();
                let mut received = Vec::new();
                while let Some(data) = network.server.recv(server) {
                    received.extend(data.to_vec());
                }
                assert!(received == pattern(0, upload), "{case}");
                network.server.send(server, Bytes::from_static(b"answer")).expect("it is open");
                network.server.shutdown(network.now, server);
                network.run_until(network.now + SECOND * 5);
                let answer = network.client.recv(client).expect("the answer").to_vec();
                assert_eq!(answer, b"answer", "{case}");
                for events in [&network.client_events, &network.server_events] {
                    assert_eq!(
                        reasons(events),
                        [CloseReason::Finished],
                        "{case}\n{}",
                        network.log.join("\n")
                    );
                }
                assert_eq!(super::fell_back(&network), [None, None], "{case}");
            }
        }
    }
}

/// The first data confirms the keys, so that other paths may be joined, and comes too late for an application that let go.
#[test]
fn what_ends_a_connection_opens_no_subflow_of_it() {
    for version in VERSIONS {
        let mut network = network(&[10, 20], version, false, 3);
        let mut has_come = false;
        network.meddle = Box::new(move |way, packet| {
            let segment = segment(&packet);
            has_come |= way == Way::ToClient && !segment.payload.is_empty();
            let is_lost = segment.flags.rst() || way == Way::ToClient && !segment.flags.syn() && !has_come;
            if is_lost { vec![] } else { vec![packet] }
        });
        let client = network.connect();
        network.run_until(network.now + Duration::from_millis(50));
        network.client.release(network.now, client);
        network.run_until(network.now + Duration::from_millis(50));
        let server = network.accepted();
        network.server.send(server, Bytes::from_static(b"late")).expect("it is open");
        network.run_until(network.now + MINUTE * 5);
        let log = network.log.join("\n");
        assert_eq!(reasons(&network.client_events), [CloseReason::Aborted], "{log}");
        assert_eq!(
            (network.client.population().connections, network.client.population().flows),
            (0, 0),
            "{log}"
        );
    }
}

/// The server's application reads what is there, with a pause after each time, up to the end. Returns what it read, and how it
/// heard of the end.
fn read_slowly(network: &mut Network, pause: Duration) -> (Vec<u8>, Vec<CloseReason>) {
    let (server, mut received) = (network.accepted(), Vec::new());
    for _ in 0..50 {
        network.run_until(network.now + pause);
        while let Some(data) = network.server.recv(server) {
            received.extend(data.to_vec());
        }
        if network.server_events.iter().any(|(_, event)| *event == Event::PeerFinished) {
            break;
        }
    }
    network.server.shutdown(network.now, server);
    network.run_until(network.now + MINUTE);
    (received, reasons(&network.server_events))
}

fn with_small_buffer(mode: crate::ConnectionConfig) -> crate::ConnectionConfig {
    let tcp = polypath_tcp::Config { receive_buffer_bytes: 8_000, ..(*mode.tcp).clone() };
    crate::ConnectionConfig { tcp: alloc::sync::Arc::new(tcp), ..mode }
}

fn modes() -> [crate::ConnectionConfig; 3] {
    let plain = crate::ConnectionConfig { mptcp: false, ..crate::ConnectionConfig::default() };
    [super::config(VERSIONS[0], false), super::config(VERSIONS[1], false), plain].map(with_small_buffer)
}

#[test]
fn a_released_connection_delivers_for_as_long_as_its_peer_takes() {
    for mode in modes() {
        let mut network = Network::new(&[10, 20], mode.clone(), mode, 3);
        let client = network.connect();
        network.run_until(network.now + SECOND);
        network.client.send(client, Bytes::from(pattern(0, 60_000))).expect("it is open");
        network.client.release(network.now, client);
        let began = network.now;
        let (received, reasons) = read_slowly(&mut network, SECOND * 30);
        assert!(received == pattern(0, 60_000), "{} bytes", received.len());
        assert_eq!(reasons, [CloseReason::Finished]);
        assert!(network.now.since(began) > MINUTE * 4, "{}", network.now.since(began));
        network.run_until(network.now + MINUTE * 2);
        assert_eq!((network.client.population().connections, network.client.population().flows), (0, 0));
    }
}

#[test]
fn a_released_connection_survives_an_outage_of_a_minute() {
    for mode in modes() {
        let mut network = Network::new(&[10], mode.clone(), mode, 3);
        let client = network.connect();
        network.run_until(network.now + SECOND);
        network.cut[0] = true;
        network.client.send(client, Bytes::from(pattern(0, 3_000))).expect("it is open");
        network.client.release(network.now, client);
        network.run_until(network.now + SECOND * 70);
        network.cut[0] = false;
        let (received, reasons) = read_slowly(&mut network, SECOND * 5);
        assert!(received == pattern(0, 3_000), "{} bytes\n{}", received.len(), network.log.join("\n"));
        assert_eq!(reasons, [CloseReason::Finished]);
    }
}

#[test]
fn a_released_connection_whose_peer_takes_nothing_is_given_up() {
    for mode in modes() {
        let limit = mode.tcp.orphan_timeout;
        let mut network = Network::new(&[10], mode.clone(), mode, 3);
        let client = network.connect();
        network.run_until(network.now + SECOND);
        network.client.send(client, Bytes::from(pattern(0, 60_000))).expect("it is open");
        network.client.release(network.now, client);
        network.run_until(network.now + limit - SECOND);
        assert_eq!(network.client.population().connections, 1, "its peer answers probes");
        network.run_until(network.now + SECOND * 5);
        assert_eq!((network.client.population().connections, network.client.population().flows), (0, 0));
        assert_eq!(reasons(&network.server_events), [CloseReason::Reset]);
    }
}

/// As Linux counts `MPCurrEstab`: from the handshake until this end has finished, however the connection ends.
#[test]
fn the_gauge_of_connections_falls_as_they_end() {
    let gauges =
        |network: &Network| (network.client.counters().curr_estab, network.server.counters().curr_estab);
    for version in VERSIONS {
        for is_orderly in [true, false] {
            let mut network = network(&[10], version, false, 3);
            let client = network.connect();
            network.client.send(client, Bytes::from_static(b"hello")).expect("the stream is open");
            network.run_until(network.now + SECOND);
            assert_eq!(gauges(&network), (1, 1));
            let server = network.accepted();
            if is_orderly {
                network.client.shutdown(network.now, client);
                network.run_until(network.now + SECOND);
                assert_eq!(gauges(&network), (0, 1), "the server may still send");
                network.server.shutdown(network.now, server);
            } else {
                network.client.abort(network.now, client);
            }
            // Nobody has let go of either end.
            network.run_until(network.now + SECOND);
            assert_eq!(gauges(&network), (0, 0));
        }
    }
}
