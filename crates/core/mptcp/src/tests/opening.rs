//! Over which path a connection begins.

use std::boxed::Box;
use std::cell::Cell;
use std::rc::Rc;
use std::string::String;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use bytes::Bytes;
use polypath_units::{Duration, Instant};
use polypath_wire::MptcpVersion;

use super::network::{Network, Way, client_addr, pattern, segment};
use super::{MINUTE, VERSIONS, assert_exchanged, fell_back, network, strip};
use crate::path_manager::LocalEndpoint;
use crate::{CloseReason, ConnectionConfig, ConnectionId, Event, scheduler};

/// The paths of the first SYNs that have left after the first `since` packets, in order.
fn asked(network: &Network, since: usize) -> Vec<char> {
    let is_syn = |line: &&String| line.contains("> S 0 capable");
    network.log[since..]
        .iter()
        .filter(is_syn)
        .filter_map(|line| line.split(' ').nth(1)?.chars().next())
        .collect()
}

/// When the client was connected, if it was.
fn connected_by(network: &mut Network, limit: Duration) -> Option<Duration> {
    let (from, events) = (network.now, network.client_events.len());
    network.connect();
    let end = from + limit;
    while network.now < end {
        if network.client_events[events..].iter().any(|(_, event)| *event == Event::Connected) {
            return Some(network.now.since(from));
        }
        if !network.step() {
            break;
        }
    }
    None
}

/// Two hosts that have talked over both of two paths.
fn acquainted(delays_ms: &[u64]) -> Network {
    let mut network = network(delays_ms, MptcpVersion::V1, false, 1);
    assert_exchanged(&mut network, 500_000, 0, MINUTE);
    network
}

#[test]
fn strangers_are_asked_over_all_paths_and_the_first_answer_counts() {
    let mut network = network(&[100, 10], MptcpVersion::V1, false, 1);
    assert_eq!(connected_by(&mut network, MINUTE), Some(Duration::from_millis(20)));
    assert_eq!(asked(&network, 0), ['0', '1']);
}

#[test]
fn the_path_that_is_remembered_as_the_best_begins_alone() {
    // The connection is asked for from the address on the first path.
    let mut network = acquainted(&[40, 10]);
    let since = network.log.len();
    assert_eq!(connected_by(&mut network, MINUTE), Some(Duration::from_millis(20)));
    network.run_until(network.now + Duration::from_millis(200));
    assert_eq!(asked(&network, since), ['1'], "{}", network.log[since..].join("\n"));
}

#[test]
fn when_the_best_path_does_not_answer_the_others_are_asked_at_once() {
    let mut network = acquainted(&[40, 10]);
    network.cut[1] = true;
    // 5/4 of 20 ms and 20 ms for the best, 80 ms for the other.
    let connected = connected_by(&mut network, MINUTE);
    let log: String = network.log.join("\n");
    assert_eq!(connected, Some(Duration::from_millis(125)), "{log}");
}

/// The second path of the client is a backup.
fn with_backup(cut_first: bool) -> Network {
    let mut network = network(&[10, 30], MptcpVersion::V1, false, 1);
    let now = network.now;
    network.client.add_endpoint(now, LocalEndpoint::subflow(client_addr(1), 2).backup());
    network.cut[0] = cut_first;
    network
}

#[test]
fn a_backup_is_not_asked_while_a_regular_path_answers() {
    let mut network = with_backup(false);
    assert_eq!(connected_by(&mut network, MINUTE), Some(Duration::from_millis(20)));
    network.run_until(network.now + Duration::from_secs(10));
    assert_eq!(asked(&network, 0), ['0']);
}

#[test]
fn a_backup_is_asked_when_no_regular_path_answers_and_only_waits_once_one_does() {
    let mut network = with_backup(true);
    assert_eq!(connected_by(&mut network, MINUTE), Some(Duration::from_millis(1560)));
    assert_eq!(asked(&network, 0), ['0', '0', '1']);
    network.run_until(network.now + Duration::from_secs(3));
    let is_said = |line: &String| line.contains(" 1> ") && line.contains(" prio");
    assert!(network.log.iter().any(is_said), "{}", network.log.join("\n"));
    network.cut[0] = false;
    network.run_until(network.now + MINUTE);
    let (id, server) = (network.client_events[0].0, network.accepted());
    let since = network.log.len();
    for (host, id) in [(&mut network.client, id), (&mut network.server, server)] {
        host.send(id, Bytes::from(pattern(0, 20_000))).expect("it lives");
    }
    network.run_until(network.now + Duration::from_secs(1));
    let log = network.log[since..].join("\n");
    let carriers: Vec<&str> = network.log[since..]
        .iter()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|words| words[3] != "0")
        .map(|words| words[1])
        .collect();
    assert!(carriers.contains(&"0>") && carriers.contains(&"0<"), "{log}");
    assert!(!carriers.contains(&"1>") && !carriers.contains(&"1<"), "{log}");
}

#[test]
fn what_is_remembered_is_forgotten() {
    let mut network = acquainted(&[40, 10]);
    network.now = Instant::from_secs(3600);
    let since = network.log.len();
    connected_by(&mut network, MINUTE);
    assert_eq!(asked(&network, since), ['0', '1']);
}

/// Two paths, of which the first, which answers sooner, dies with the SYN/ACK: in both directions, or back from the server only.
fn dying(version: MptcpVersion, dies_to_server: bool) -> Network {
    let mut network = network(&[10, 30], version, false, 1);
    network.meddle = Box::new(move |way, packet| {
        let addr = if way == Way::ToServer { packet.ip.src } else { packet.ip.dst };
        let dies = dies_to_server || way == Way::ToClient;
        if addr == client_addr(0) && dies && !segment(&packet).flags.syn() { vec![] } else { vec![packet] }
    });
    network
}

fn closed(events: &[(ConnectionId, Event)]) -> Option<CloseReason> {
    events.iter().find_map(|(_, event)| if let Event::Closed(reason) = event { Some(*reason) } else { None })
}

fn accepted(network: &Network) -> usize {
    network.server_events.iter().filter(|(_, event)| matches!(event, Event::Accepted { .. })).count()
}

#[test]
fn where_the_server_has_the_third_ack_and_its_answers_are_lost_another_path_goes_on() {
    for version in VERSIONS {
        for (upload, download) in [(10_000, 100_000), (0, 1000), (300_000, 0)] {
            let mut network = dying(version, false);
            // The end of the subflow on the dead path is waited for.
            assert_exchanged(&mut network, upload, download, MINUTE * 2);
            assert_eq!(accepted(&network), 1);
            let joined = network.log.iter().find(|line| line.contains("join")).map_or("", |line| line);
            assert!(joined < "4.1", "{joined}, from 1 s on");
        }
    }
}

/// RFC 8684 §3.7: a subflow on which options don't pass ends, but only the one there is falls back.
#[test]
fn the_first_path_comes_back_without_options_after_another_was_joined() {
    for version in VERSIONS {
        for (upload, download) in [(10_000, 100_000), (300_000, 10_000)] {
            let mut network = dying(version, false);
            let mut has_joined = false;
            network.meddle = Box::new(move |way, mut packet| {
                if way == Way::ToServer || packet.ip.dst != client_addr(0) {
                    let options = &segment(&packet).options;
                    has_joined |= way == Way::ToClient && options.dss.is_some();
                    return vec![packet];
                }
                if segment(&packet).flags.syn() {
                    return vec![packet];
                }
                strip(&mut packet);
                if has_joined { vec![packet] } else { vec![] }
            });
            assert_exchanged(&mut network, upload, download, MINUTE * 2);
            let log = network.log.join("\n");
            assert_eq!(fell_back(&network), [None, None], "{version:?}\n{log}");
            assert_eq!(accepted(&network), 1, "{log}");
        }
    }
}

/// MP_CAPABLE with data stands for the first data of all (RFC 8684 §3.1), which may have left over the subflow that joined.
#[test]
fn the_first_path_comes_back_before_data_after_another_was_joined() {
    for version in VERSIONS {
        // The second path is the faster one, but its first SYN is lost, and later its first data.
        let mut network = network(&[30, 10], version, false, 1);
        let (mut is_answered, mut is_used) = (false, false);
        network.meddle = Box::new(move |way, packet| {
            let (is_first, is_syn) = (packet.ip.dst == client_addr(0), segment(&packet).flags.syn());
            is_answered |= way == Way::ToClient;
            let is_first_data = !segment(&packet).payload.is_empty() && !is_used;
            let is_early = is_first && !is_syn && !is_used || packet.ip.src == client_addr(1) && !is_answered;
            is_used |= is_first_data;
            if is_early || is_first_data { vec![] } else { vec![packet] }
        });
        let id = network.connect();
        network.run_until(network.now + Duration::from_secs(5));
        let sent = pattern(0, 100_000);
        assert_eq!(network.client.send(id, Bytes::from(sent.clone())), Ok(sent.len()));
        let at_server = network.accepted();
        let mut heard = Vec::new();
        while heard.len() < sent.len() && network.step() {
            while let Some(data) = network.server.recv(at_server) {
                heard.extend(data.to_vec());
            }
        }
        assert!(heard == sent, "{version:?}\n{}", network.log.join("\n"));
    }
}

/// As with TCP, a cut of some seconds right after the SYN/ACK ends nothing, whatever other paths there are to ask.
#[test]
fn a_path_that_is_cut_in_the_handshake_may_come_back() {
    for manager in ["fullmesh", "break-before-make"] {
        let mut client = super::config(MptcpVersion::V1, false);
        client.path_manager = manager.parse().expect("a policy of this name");
        let mut network = Network::new(&[10, 30], client, super::config(MptcpVersion::V1, false), 1);
        // Such a server keeps nothing of a handshake that is not complete.
        network.listen_with(0);
        let is_cut = Rc::new(Cell::new(true));
        let seen = is_cut.clone();
        network.meddle = Box::new(move |way, packet| {
            let addr = if way == Way::ToServer { packet.ip.src } else { packet.ip.dst };
            let is_lost = seen.get() && addr == client_addr(0) && !segment(&packet).flags.syn();
            if is_lost { vec![] } else { vec![packet] }
        });
        let id = network.connect();
        let sent = Bytes::from(pattern(0, 10_000));
        assert_eq!(network.client.send(id, sent.clone()), Ok(sent.len()));
        network.run_until(network.now + Duration::from_secs(5));
        is_cut.set(false);
        network.run_until(network.now + Duration::from_secs(10));
        let log = network.log.join("\n");
        assert_eq!((accepted(&network), closed(&network.client_events)), (1, None), "{manager}\n{log}");
        let at_server = network.accepted();
        let mut heard = Vec::new();
        while let Some(data) = network.server.recv(at_server) {
            heard.extend(data.to_vec());
        }
        assert!(heard == sent, "{manager}\n{log}");
    }
}

#[test]
fn what_was_sent_to_a_server_without_a_connection_is_not_sent_in_another_handshake() {
    for version in VERSIONS {
        let mut network = dying(version, true);
        let from = network.now;
        let id = network.connect();
        assert_eq!(network.client.send(id, Bytes::from_static(b"once")), Ok(4));
        while closed(&network.client_events).is_none() && network.step() {}
        let log = network.log.join("\n");
        assert_eq!(closed(&network.client_events), Some(CloseReason::TimedOut), "{log}");
        // Ten seconds from the SYN/ACK, which took 20 ms.
        assert_eq!(network.now.since(from), Duration::from_millis(10_020), "{log}");
        assert_eq!(accepted(&network), 0, "{log}");
    }
}

#[test]
fn where_nothing_has_left_the_handshake_begins_anew_over_another_path() {
    for version in VERSIONS {
        let mut network = dying(version, true);
        let id = network.connect();
        network.run_until(network.now + Duration::from_secs(5));
        let log = network.log.join("\n");
        assert_eq!(accepted(&network), 1, "{log}");
        assert_eq!(closed(&network.client_events), None, "{log}");
        let at_server = network.accepted();
        network.server.send(at_server, Bytes::from_static(b"hello")).expect("it is open");
        network.client.send(id, Bytes::from_static(b"thanks")).expect("it is open");
        network.run_until(network.now + Duration::from_secs(1));
        let heard = network.client.recv(id).map(|data| data.to_vec());
        assert_eq!(heard.as_deref(), Some(&b"hello"[..]), "{}", network.log.join("\n"));
        let heard = network.server.recv(at_server).map(|data| data.to_vec());
        assert_eq!(heard.as_deref(), Some(&b"thanks"[..]), "{}", network.log.join("\n"));
    }
}

/// A server of other make may say nothing after the third ACK, and its application nothing for long.
#[test]
fn a_silent_server_is_asked_over_its_own_path_first() {
    let mut network = network(&[10, 30], MptcpVersion::V1, false, 1);
    let mut answers = 0;
    network.meddle = Box::new(move |way, packet| {
        let is_answer = way == Way::ToClient && !segment(&packet).flags.syn();
        answers += usize::from(is_answer);
        if is_answer && answers == 1 { vec![] } else { vec![packet] }
    });
    network.connect();
    network.run_until(network.now + Duration::from_secs(5));
    let log = network.log.join("\n");
    let of_join = |what: &str| network.log.iter().position(|line| line.contains(what));
    assert!(of_join("join") > of_join("< TcpFlags(ACK) 0 dss"), "{log}");
    assert_eq!((accepted(&network), network.server.counters().mp_join_ack_rx), (1, 1), "{log}");
}

/// What the client sends over the first path until the server's answer to it can have come, each as payload bytes and option.
fn first_flight(delays_ms: &[u64]) -> Vec<String> {
    let mut network = Network::new(delays_ms, ConnectionConfig::default(), ConnectionConfig::default(), 5);
    let client = network.connect();
    network.client.send(client, Bytes::from(pattern(0, 5000))).expect("there is room");
    let end = network.now + Duration::from_millis(3 * delays_ms[0]);
    network.run_until(end);
    let sent = network.log.iter().filter(|line| line.contains(" 0> ")).skip(1);
    sent.map(|line| line.split_whitespace().skip(3).collect::<Vec<_>>().join(" ")).collect()
}

/// Or a thin path would carry a full segment before the server can say that others may join.
#[test]
fn the_third_ack_leaves_before_data_where_another_path_is_to_join() {
    let alone = first_flight(&[10]);
    assert!(alone[0].ends_with("capable") && !alone[0].starts_with("0 "), "{alone:?}");
    let beside = first_flight(&[10, 40]);
    assert_eq!(beside[0], "0 capable", "{beside:?}");
    assert!(beside[1].ends_with("capable") && !beside[1].starts_with("0 "), "{beside:?}");
}

/// The window with which the second subflow begins, in initial windows; over paths with these delays.
fn joined_window(delays_ms: [u64; 2], client: ConnectionConfig, server: ConnectionConfig) -> f64 {
    let mut network = Network::new(&delays_ms, client, server, 5);
    let client = network.connect();
    let windows = |network: &Network| -> Vec<u64> {
        let info = network.client.info(client).expect("it is open");
        info.subflows
            .iter()
            .filter(|subflow| subflow.established)
            .map(|subflow| subflow.tcp.cwnd_bytes)
            .collect()
    };
    while network.step() {
        if let [first, second] = windows(&network)[..] {
            return second as f64 / first as f64;
        }
    }
    panic!("no second subflow:\n{}", network.log.join("\n"));
}

#[test]
fn a_subflow_that_joins_late_catches_up() {
    // The first path's handshake and answer take twice its round trip, the join twice the second's: of that, TCP's takes one.
    let expect = |delays_ms: [u64; 2]| {
        2_f64.powf((2.0 * delays_ms[0] as f64 + delays_ms[1] as f64) / delays_ms[1] as f64).min(4.0)
    };
    for delays_ms in [[10, 40], [20, 40], [30, 40]] {
        let window = joined_window(delays_ms, ConnectionConfig::default(), ConnectionConfig::default());
        assert!((window - expect(delays_ms)).abs() < 0.02, "{delays_ms:?}: {window}");
    }
}

#[test]
fn a_subflow_does_not_catch_up_where_a_slow_path_would_get_what_it_does_not_carry() {
    let with_tcp = |tcp: polypath_tcp::Config| ConnectionConfig { tcp: Arc::new(tcp), ..Default::default() };
    let begins_with = |client: ConnectionConfig, server: ConnectionConfig| {
        let window = joined_window([10, 40], client, server);
        assert!((window - 1.0).abs() < 1e-9, "{window}");
    };
    let tcp = (*ConnectionConfig::default().tcp).clone();
    let lowest_rtt = scheduler::Policy::by_name("lowest-rtt").expect("it is one of ours");
    begins_with(
        ConnectionConfig { scheduler: lowest_rtt, ..Default::default() },
        ConnectionConfig::default(),
    );
    begins_with(ConnectionConfig { catch_up: false, ..Default::default() }, ConnectionConfig::default());
    // The initial window is 14 600 bytes, more than a quarter of these.
    let small_sender = polypath_tcp::Config { send_buffer_bytes: 50_000, ..tcp.clone() };
    begins_with(with_tcp(small_sender), ConnectionConfig::default());
    let small_receiver = polypath_tcp::Config { receive_buffer_bytes: 50_000, ..tcp };
    begins_with(ConnectionConfig::default(), with_tcp(small_receiver));
}
