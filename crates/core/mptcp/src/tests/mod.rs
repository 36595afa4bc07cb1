//! Scenarios of two hosts, each read as the exchange of packets that it is.

mod counters;
mod ends;
mod flood;
mod forged;
mod injections;
mod judging;
mod mappings;
mod mptcp_options;
mod network;
mod opening;
mod options;
mod paths;
mod silence;
mod strangers;
mod windows;

use std::vec;
use std::vec::Vec;

use polypath_units::Duration;
use polypath_wire::{MptcpOption, MptcpVersion, TcpOption};

use crate::{CloseReason, ConnectionConfig, Event, FallbackReason};
use network::{Network, Way, pattern, segment, segment_mut};

const MINUTE: Duration = Duration::from_secs(60);
const VERSIONS: [MptcpVersion; 2] = [MptcpVersion::V0, MptcpVersion::V1];

fn config(version: MptcpVersion, checksum: bool) -> ConnectionConfig {
    ConnectionConfig { version, checksum, ..ConnectionConfig::default() }
}

fn network(delays_ms: &[u64], version: MptcpVersion, checksum: bool, seed: u64) -> Network {
    Network::new(delays_ms, config(version, checksum), config(version, checksum), seed)
}

/// All bytes arrived, both ends closed in order, and nothing is left after TIME-WAIT.
#[track_caller]
fn assert_exchanged(network: &mut Network, upload: usize, download: usize, limit: Duration) {
    let (at_server, at_client) = network.exchange(upload, download, limit);
    let log = || network.log.join("\n");
    assert!(at_server == pattern(0, upload), "upload: {} of {upload}\n{}", at_server.len(), log());
    assert!(at_client == pattern(0, download), "download: {} of {download}\n{}", at_client.len(), log());
    for events in [&network.client_events, &network.server_events] {
        let closed = events.iter().find_map(|(_, event)| match event {
            Event::Closed(reason) => Some(*reason),
            _ => None,
        });
        assert_eq!(closed, Some(CloseReason::Finished), "{events:?}\n{}", log());
    }
    network.run_until(network.now + MINUTE * 3);
    let log = || network.log.join("\n");
    for host in [&network.client, &network.server] {
        let left = (
            host.population().connections,
            host.population().flows,
            host.token_count(),
            host.population().time_waits,
        );
        assert_eq!(left, (0, 0, 0, 0), "connections, flows, tokens, TIME-WAITs\n{}", log());
    }
}

/// Why each end fell back: client, then server.
fn fell_back(network: &Network) -> [Option<FallbackReason>; 2] {
    [&network.client_events, &network.server_events].map(|events| {
        events
            .iter()
            .find_map(|(_, event)| if let Event::FellBack(reason) = event { Some(*reason) } else { None })
    })
}

#[test]
fn one_path_carries_data_both_ways() {
    for version in VERSIONS {
        for checksum in [false, true] {
            for (upload, download) in [(0, 0), (1, 0), (0, 1), (100_000, 300_000)] {
                let mut network = network(&[10], version, checksum, 1);
                assert_exchanged(&mut network, upload, download, MINUTE);
                assert_eq!(fell_back(&network), [None, None], "{version:?}\n{}", network.log.join("\n"));
            }
        }
    }
}

#[test]
fn a_second_path_joins_and_both_carry_data() {
    for version in VERSIONS {
        let mut network = network(&[10, 30], version, true, 2);
        assert_exchanged(&mut network, 3_000_000, 3_000_000, MINUTE);
        assert_eq!(network.server.counters().mp_join_ack_rx, 1);
        // Each line is an aggregate of several segments.
        let on_second = network.log.iter().filter(|line| line.contains(" 1") && line.contains("dss")).count();
        assert!(on_second > 50, "the second path carried {on_second} aggregates");
    }
}

#[test]
fn loss_reordering_between_paths_and_close_lose_nothing() {
    for seed in 0..40 {
        let version = VERSIONS[seed as usize % 2];
        let mut network = network(&[5, 40, 15], version, seed % 3 == 0, seed);
        network.loss_percent = 1 + seed as u32 % 6;
        assert_exchanged(&mut network, 200_000, 300_000, MINUTE * 10);
    }
}

fn strip(packet: &mut polypath_wire::Packet) {
    let options = &mut segment_mut(packet).options;
    options.dss = None;
    options.rest.retain(|option| !matches!(option, TcpOption::Mptcp(_)));
}

#[test]
fn stripped_options_mean_tcp() {
    type Condition = fn(Way, &polypath_wire::Segment) -> bool;
    let cases: [(&str, Condition, FallbackReason); 5] = [
        ("SYN", |_, segment| segment.flags.syn(), FallbackReason::PeerLacksMptcp),
        (
            "SYN/ACK",
            |way, segment| way == Way::ToClient && segment.flags.syn(),
            FallbackReason::PeerLacksMptcp,
        ),
        ("third ACK on", |_, segment| !segment.flags.syn(), FallbackReason::ThirdAckStripped),
        (
            "to client only",
            |way, segment| way == Way::ToClient && !segment.flags.syn(),
            FallbackReason::DssMissing,
        ),
        (
            "to server only",
            |way, segment| way == Way::ToServer && !segment.flags.syn(),
            FallbackReason::ThirdAckStripped,
        ),
    ];
    for version in VERSIONS {
        for (name, condition, reason) in cases {
            let mut network = network(&[10, 20], version, false, 3);
            network.meddle = std::boxed::Box::new(move |way, mut packet| {
                if condition(way, segment(&packet)) {
                    strip(&mut packet);
                }
                vec![packet]
            });
            assert_exchanged(&mut network, 100_000, 200_000, MINUTE);
            assert!(
                fell_back(&network).contains(&Some(reason)),
                "{name} {version:?}\n{}",
                network.log.join("\n")
            );
        }
    }
}

/// RFC 8684 §3.7: once a DSS has come, options pass, and an acknowledgment without any says nothing of them.
#[test]
fn after_the_first_dss_an_acknowledgment_without_options_is_no_fallback() {
    for version in VERSIONS {
        let mut network = network(&[10], version, false, 3);
        let (mut has_come, mut stripped) = (false, 0);
        network.meddle = std::boxed::Box::new(move |way, mut packet| {
            let segment = segment(&packet);
            if way == Way::ToClient && segment.options.dss.is_some() {
                stripped += usize::from(has_come);
                if has_come && stripped % 3 == 1 {
                    strip(&mut packet);
                }
                has_come = true;
            }
            vec![packet]
        });
        assert_exchanged(&mut network, 300_000, 0, MINUTE);
        assert_eq!(fell_back(&network), [None, None], "{version:?}\n{}", network.log.join("\n"));
    }
}

#[test]
fn syns_with_unknown_options_are_retried_without() {
    let mut network = network(&[10], MptcpVersion::V1, false, 4);
    network.meddle = std::boxed::Box::new(|_, packet| {
        if segment(&packet).options.mptcp().next().is_some() { vec![] } else { vec![packet] }
    });
    assert_exchanged(&mut network, 10_000, 10_000, MINUTE);
    let reasons: Vec<_> =
        network.client_events.iter().filter(|(_, e)| matches!(e, Event::FellBack(_))).collect();
    assert!(matches!(reasons[..], [(_, Event::FellBack(FallbackReason::SynDropped))]), "{reasons:?}");
}

#[test]
fn a_mirrored_syn_ack_means_tcp() {
    for version in VERSIONS {
        let mut network = network(&[10], version, false, 5);
        let mut syn_options = Vec::new();
        network.meddle = std::boxed::Box::new(move |way, mut packet| {
            let segment = segment_mut(&mut packet);
            if segment.flags.syn() && way == Way::ToServer {
                syn_options = segment.options.rest.clone();
                strip(&mut packet);
            } else if segment.flags.syn() {
                segment.options.rest = syn_options.clone();
            }
            vec![packet]
        });
        assert_exchanged(&mut network, 10_000, 10_000, MINUTE);
        let mirrored = Event::FellBack(FallbackReason::Mirrored);
        assert!(
            network.client_events.iter().any(|(_, event)| *event == mirrored),
            "{:?}",
            network.client_events
        );
    }
}

#[test]
fn a_path_that_dies_loses_nothing_and_comes_back() {
    for path in 0..2 {
        let mut network = network(&[10, 20], MptcpVersion::V1, false, 6);
        let mut count = 0;
        network.meddle = std::boxed::Box::new(move |way, packet| {
            let addr = if way == Way::ToServer { packet.ip.src } else { packet.ip.dst };
            let here = addr == network::client_addr(path);
            count += usize::from(here);
            if here && (300..600).contains(&count) { vec![] } else { vec![packet] }
        });
        assert_exchanged(&mut network, 2_000_000, 2_000_000, MINUTE * 5);
    }
}

#[test]
fn the_fourth_ack_is_sent_again_when_the_third_comes_again() {
    for version in VERSIONS {
        let mut network = network(&[10, 20], version, false, 6);
        let mut lost = false;
        network.meddle = std::boxed::Box::new(move |way, packet| {
            let segment = segment(&packet);
            let is_fourth = way == Way::ToClient
                && packet.ip.dst == network::client_addr(1)
                && segment.options.dss.is_some();
            if is_fourth && !lost {
                lost = true;
                return vec![];
            }
            vec![packet]
        });
        network.connect();
        network.run_until(network.now + Duration::from_secs(1));
        let log = network.log.join("\n");
        assert_eq!(network.log.iter().filter(|line| line.contains("1> . 0 join")).count(), 2, "{log}");
        let is_joined = |(_, event): &&(_, Event)| matches!(event, Event::SubflowEstablished { .. });
        assert_eq!(network.client_events.iter().filter(is_joined).count(), 2, "{log}");
    }
}

/// An uplink that goes away takes its subflows along, but not the last one: that would be the end of the connection.
#[test]
fn the_only_path_that_goes_away_for_a_moment_is_waited_for() {
    use crate::path_manager::LocalEndpoint;
    for version in VERSIONS {
        let mut network = network(&[10], version, false, 6);
        let at = |ms| polypath_units::Instant::from_secs(1) + Duration::from_millis(ms);
        // The news may come before the last packets have left.
        network.plan.push_back((at(60), |network| {
            network.client.remove_endpoint(network.now, network::client_addr(0));
        }));
        network.plan.push_back((at(61), |network| network.cut[0] = true));
        network.plan.push_back((at(360), |network| {
            network.cut[0] = false;
            network.client.add_endpoint(network.now, LocalEndpoint::subflow(network::client_addr(0), 1));
        }));
        assert_exchanged(&mut network, 2_000_000, 2_000_000, MINUTE);
        let lost = network.log.iter().filter(|line| line.ends_with("lost")).count();
        assert!(lost > 0, "it was in the middle of the transfer");
        // Its subflow goes on: a peer such as Linux ends a connection with its last subflow.
        let resets: Vec<_> = network.log.iter().filter(|line| line.contains("0> R")).collect();
        assert_eq!(resets, Vec::<&std::string::String>::new());
    }
}

#[test]
fn a_path_that_stops_carrying_without_an_end_is_told_and_so_is_its_return() {
    let mut network = network(&[10, 20], MptcpVersion::V1, false, 6);
    let id = network.connect();
    network.run_until(network.now + Duration::from_millis(500));
    // It leaves over both paths, and nobody hears what goes over one of them.
    for at in 0..20 {
        network.client.send(id, pattern(at * 10_000, 10_000).into()).expect("room");
    }
    network.flush();
    network.cut[1] = true;
    network.run_until(network.now + Duration::from_secs(10));
    network.cut[1] = false;
    network.run_until(network.now + Duration::from_secs(10));
    let told = |wanted: fn(&Event) -> Option<polypath_wire::FourTuple>| {
        let told = network.client_events.iter().filter_map(|(_, event)| wanted(event));
        told.map(|tuple| tuple.local.addr).collect::<Vec<_>>()
    };
    let stale = told(|event| match event {
        Event::SubflowStale { tuple, .. } => Some(*tuple),
        _ => None,
    });
    let recovered = told(|event| match event {
        Event::SubflowRecovered { tuple, .. } => Some(*tuple),
        _ => None,
    });
    assert_eq!(
        (&stale[..], &recovered[..]),
        (&[network::client_addr(1)][..], &[network::client_addr(1)][..])
    );
}

/// Its own packets are acknowledged at the handshake only; what it knows of the path since comes from timestamps.
#[test]
fn an_end_that_only_receives_sees_the_path_grow_longer() {
    let mut network = network(&[10], MptcpVersion::V1, false, 6);
    let at = |ms| polypath_units::Instant::from_secs(1) + Duration::from_millis(ms);
    network.plan.push_back((at(100), |network| network.delays[0] = Duration::from_millis(80)));
    network.plan.push_back((at(1000), |network| {
        let (id, _) = network.client_events[0];
        let info = network.client.info(id).expect("it receives");
        let tcp = &info.subflows[0].tcp;
        assert!(tcp.bytes_received > 1_000_000 && tcp.srtt < Duration::from_millis(25), "{tcp:?}");
        assert!(tcp.rcv_rtt_is_newer && tcp.latest_rtt() > Duration::from_millis(150), "{tcp:?}");
        let sender = network.server.info(network.accepted()).expect("it sends");
        assert!(!sender.subflows[0].tcp.rcv_rtt_is_newer);
        network.log.push("looked".into());
    }));
    assert_exchanged(&mut network, 0, 20_000_000, MINUTE);
    assert!(network.log.iter().any(|line| line == "looked"));
}

#[test]
fn changed_payload_on_a_joined_path_is_noticed_and_sent_again() {
    for version in VERSIONS {
        let mut network = network(&[10, 10], version, true, 7);
        network.meddle = std::boxed::Box::new(|_, mut packet| {
            if packet.ip.src == network::client_addr(1) && !segment(&packet).payload.is_empty() {
                let mut bytes = segment(&packet).payload.to_vec();
                bytes[0] ^= 1;
                segment_mut(&mut packet).payload = bytes.into();
            }
            vec![packet]
        });
        assert_exchanged(&mut network, 500_000, 500_000, MINUTE);
        assert!(network.server.counters().data_csum_err > 0);
        assert!(network.log.iter().any(|line| line.contains("fail") && line.contains("R")));
    }
}

#[test]
fn changed_payload_on_the_only_path_falls_back_to_what_tcp_would_deliver() {
    for version in VERSIONS {
        let mut network = network(&[10], version, true, 8);
        let mut count = 0;
        network.meddle = std::boxed::Box::new(move |way, mut packet| {
            if way == Way::ToServer && !segment(&packet).payload.is_empty() {
                count += 1;
                if count == 5 {
                    let mut bytes = segment(&packet).payload.to_vec();
                    bytes[0] ^= 1;
                    segment_mut(&mut packet).payload = bytes.into();
                }
            }
            vec![packet]
        });
        let (at_server, at_client) = network.exchange(200_000, 200_000, MINUTE);
        assert_eq!(at_client, pattern(0, 200_000));
        let wrong = at_server.iter().zip(pattern(0, 200_000)).filter(|(a, b)| **a != *b).count();
        assert_eq!((at_server.len(), wrong), (200_000, 1), "{}", network.log.join("\n"));
        assert!(network.server.counters().infinite_map_rx > 0);
    }
}

#[test]
fn abort_ends_both_ends_at_once() {
    for version in VERSIONS {
        let mut network = network(&[10, 20], version, false, 9);
        let id = network.connect();
        network.run_until(network.now + Duration::from_secs(1));
        network.client.abort(network.now, id);
        network.run_until(network.now + Duration::from_secs(1));
        let last = network.server_events.last();
        assert!(matches!(last, Some((_, Event::Closed(CloseReason::Reset)))), "{last:?}");
        assert!(network.log.iter().any(|line| line.contains("fastclose")));
        network.client.release(network.now, id);
        network.server.release(network.now, network.accepted());
        network.flush();
        for host in [&network.client, &network.server] {
            assert_eq!(
                (host.population().connections, host.population().flows, host.token_count()),
                (0, 0, 0)
            );
        }
    }
}

#[test]
fn the_passive_closer_keeps_no_time_wait() {
    let mut network = network(&[10, 20], MptcpVersion::V1, false, 10);
    let client = network.connect();
    network.run_until(network.now + Duration::from_secs(1));
    let server = network.accepted();
    network.client.shutdown(network.now, client);
    network.run_until(network.now + Duration::from_secs(1));
    network.server.shutdown(network.now, server);
    network.run_until(network.now + Duration::from_secs(2));
    assert_eq!((network.client.population().time_waits, network.server.population().time_waits), (2, 0));
}

#[test]
fn announced_addresses_are_echoed_and_joined() {
    use crate::path_manager::LocalEndpoint;
    for version in VERSIONS {
        let mut network = network(&[10, 20], version, false, 11);
        let id = network.connect();
        network.run_until(network.now + Duration::from_secs(1));
        network.server.add_endpoint(network.now, LocalEndpoint::signal(network::server_addr(1), 7));
        network.run_until(network.now + Duration::from_secs(2));
        let announced = |option: &MptcpOption| matches!(option, MptcpOption::AddAddr(_));
        let _ = announced;
        assert!(network.log.iter().any(|line| line.contains(" add")), "{}", network.log.join("\n"));
        let info = network.client.info(id).expect("the connection lives");
        let joined = info.subflows.iter().filter(|s| s.tuple.remote.addr == network::server_addr(1)).count();
        assert!(joined >= 1, "{info:?}\n{}", network.log.join("\n"));
        network.server.remove_endpoint(network.now, network::server_addr(1));
        network.run_until(network.now + Duration::from_secs(1));
        let info = network.client.info(id).expect("the connection lives");
        assert!(info.subflows.iter().all(|s| s.tuple.remote.addr != network::server_addr(1)), "{info:?}");
    }
}

#[test]
fn an_address_announced_before_the_first_data_ack_waits_for_its_echo() {
    // An IPv6 ADD_ADDR takes the place of the DATA_ACK that would have established the client, which has data and its end
    // to send at the same time: no acknowledgment of that moment has room for the echo.
    let mut network = network(&[10], MptcpVersion::V1, false, 5);
    let v6 = core::net::IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);
    network.server.add_endpoint(network.now, crate::path_manager::LocalEndpoint::signal(v6, 9));
    assert_exchanged(&mut network, 8, 8, MINUTE);
    assert!(network.log.len() < 100, "{}", network.log.join("\n"));
}

#[test]
fn data_fin_follows_the_last_data_at_once() {
    // The end of the stream is asked for while data is still queued: that data must not take the place of DATA_FIN, or
    // the connection would stay open for another retransmission interval.
    for size in [1, 14_240, 100_000, 300_000] {
        let mut config = config(MptcpVersion::V1, false);
        alloc::sync::Arc::make_mut(&mut config.tcp).pacing = false;
        let mut network = Network::new(&[1, 1], config.clone(), config, 7);
        assert_exchanged(&mut network, size, 0, MINUTE);
        let seconds = |line: &&std::string::String| -> f64 {
            line.split('s').next().and_then(|time| time.parse().ok()).expect("a time")
        };
        let upstream = || network.log.iter().filter(|line| line.contains('>'));
        let carries_data = |line: &&std::string::String| !line.contains(" 0 ");
        let last_data = upstream().filter(carries_data).map(|line| seconds(&line)).fold(0.0, f64::max);
        let fin =
            upstream().find(|line| line.contains("+fin")).map(|line| seconds(&line)).expect("a DATA_FIN");
        assert!(fin - last_data < 0.01, "{size}: DATA_FIN at {fin}, data until {last_data}");
    }
}

/// What Linux does when it accepts and has nothing to say but its second address: ADD_ADDR, and no DSS on any segment.
#[test]
fn an_announcement_without_dss_confirms_the_keys_and_is_joined_once() {
    use crate::path_manager::LocalEndpoint;
    for with_dss in [false, true] {
        let mut network = network(&[10, 20], MptcpVersion::V1, false, 12);
        network.server.add_endpoint(network.now, LocalEndpoint::signal(network::server_addr(1), 7));
        let mut announced = false;
        network.meddle = std::boxed::Box::new(move |way, mut packet| {
            let addr = packet.ip.src;
            let segment = segment_mut(&mut packet);
            if way == Way::ToServer || addr == network::server_addr(1) || segment.flags.syn() {
                return vec![packet];
            }
            let adds = |option: &MptcpOption| matches!(option, MptcpOption::AddAddr(add) if !add.echo);
            let passes = announced || segment.options.mptcp().any(adds);
            announced |= passes;
            if !with_dss {
                segment.options.dss = None;
            }
            // What would confirm the keys before the announcement is lost.
            if passes { vec![packet] } else { vec![] }
        });
        let id = network.connect();
        network.run_until(network.now + Duration::from_secs(5));
        let log = network.log.join("\n");
        let info = network.client.info(id).expect("the connection lives");
        let mut pairs: Vec<_> =
            info.subflows.iter().map(|s| (s.tuple.local.addr, s.tuple.remote.addr)).collect();
        assert!(pairs.iter().any(|(_, remote)| *remote == network::server_addr(1)), "{pairs:?}\n{log}");
        let count = pairs.len();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), count, "a pair of addresses is joined once\n{log}");
        assert_eq!(fell_back(&network), [None, None], "{log}");
    }
}

/// The announcement is echoed, or it would come again, but nobody is called.
#[test]
fn announced_addresses_that_cannot_be_right_are_ignored() {
    use core::net::IpAddr;

    use crate::path_manager::LocalEndpoint;
    let cannot_be: [&str; 10] = [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.251",
        "255.255.255.255",
        "::",
        "::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "10.0.1.1",
    ];
    for version in VERSIONS {
        let mut network = network(&[10, 20], version, false, 11);
        let id = network.connect();
        network.run_until(network.now + Duration::from_secs(1));
        let before = network.log.len();
        for (at, addr) in cannot_be.iter().enumerate() {
            let addr: IpAddr = addr.parse().expect("an address");
            network.server.add_endpoint(network.now, LocalEndpoint::signal(addr, 20 + at as u8));
            network.run_until(network.now + Duration::from_secs(5));
        }
        let log = network.log[before..].join("\n");
        let announced = |(_, event): &&(_, Event)| matches!(event, Event::Announced { .. });
        assert_eq!(network.client_events.iter().find(announced), None, "{log}");
        assert!(!log.contains(" S 0"), "{log}");
        assert!(network.client.counters().add_addr_drop >= cannot_be.len() as u64);
        if version == MptcpVersion::V1 {
            assert_eq!(network.server.counters().echo_add, cannot_be.len() as u64);
        }
        // One that can be right is called.
        network.server.add_endpoint(network.now, LocalEndpoint::signal(network::server_addr(1), 7));
        network.run_until(network.now + Duration::from_secs(5));
        let info = network.client.info(id).expect("it lives");
        assert!(
            info.subflows.iter().any(|subflow| subflow.tuple.remote.addr == network::server_addr(1)),
            "{info:?}"
        );
    }
}

/// Names a subflow that nobody has.
#[derive(Debug)]
struct Astray;

impl crate::scheduler::Scheduler for Astray {
    fn name(&self) -> &'static str {
        "astray"
    }

    fn select(&mut self, _: &crate::scheduler::View<'_>) -> Option<crate::scheduler::Decision> {
        Some(crate::scheduler::Decision::send(crate::SubflowId(77), crate::scheduler::Data::New))
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "which is not in its view")]
fn a_scheduler_that_names_a_subflow_that_is_not_there_is_told_in_debug_builds() {
    let scheduler = crate::scheduler::Policy::new("astray", |_| std::boxed::Box::new(Astray));
    let client = ConnectionConfig { scheduler, ..config(MptcpVersion::V1, false) };
    Network::new(&[10], client, config(MptcpVersion::V1, false), 1).exchange(1000, 0, MINUTE);
}
