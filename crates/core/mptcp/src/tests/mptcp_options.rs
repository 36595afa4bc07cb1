//! Options as RFC 8684 has them: which are ignored, which are repeated, and how long their numbers are.

use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

use bytes::Bytes;
use polypath_units::Duration;
use polypath_wire::{
    Endpoint, MpCapable, MpCapableKeys, MptcpOption, MptcpVersion, Segment, TcpOption, WireDataSeq,
};

use super::network::{PORT, Way, segment, segment_mut, server_addr};
use super::{MINUTE, VERSIONS, assert_exchanged, fell_back, network};
use crate::crypto::Key;
use crate::path_manager::{Limits, LocalEndpoint};
use crate::{Event, FallbackReason, Host, HostConfig};

const SECOND: Duration = Duration::from_secs(1);

fn capable_mut(segment: &mut Segment) -> Option<&mut MpCapable> {
    segment.options.rest.iter_mut().find_map(|option| match option {
        TcpOption::Mptcp(MptcpOption::Capable(capable)) => Some(capable),
        _ => None,
    })
}

/// RFC 8684 §3.1: with the B flag, or without an algorithm, MP_CAPABLE is as good as absent.
#[test]
fn mp_capable_with_flags_that_are_not_understood_is_ignored() {
    let change = [MpCapable::EXTENSIBILITY | MpCapable::HMAC, 0, 0x1e];
    for version in VERSIONS {
        for flags in change {
            for way in [Way::ToServer, Way::ToClient] {
                let mut network = network(&[10], version, false, 3);
                let answered = Rc::new(Cell::new(false));
                let seen = Rc::clone(&answered);
                network.meddle = Box::new(move |at, mut packet| {
                    let segment = segment_mut(&mut packet);
                    let is_syn = segment.flags.syn();
                    if let Some(capable) = capable_mut(segment)
                        && is_syn
                    {
                        seen.set(seen.get() || at == Way::ToClient);
                        if at == way {
                            capable.flags = flags;
                        }
                    }
                    vec![packet]
                });
                assert_exchanged(&mut network, 10_000, 10_000, MINUTE);
                assert_eq!(
                    fell_back(&network)[0],
                    Some(FallbackReason::PeerLacksMptcp),
                    "{version:?} {flags:#x}"
                );
                assert_eq!(
                    answered.get(),
                    way == Way::ToClient,
                    "a SYN that is ignored gets a SYN/ACK of TCP"
                );
            }
        }
    }
}

/// RFC 8684 §3.3.8: the option of version 1 is about the subflow that it comes on, and has three bytes.
#[test]
fn mp_prio_with_an_identifier_is_of_version_0() {
    for (version, address_id, expected) in [
        (MptcpVersion::V1, Some(0), false),
        (MptcpVersion::V1, None, true),
        (MptcpVersion::V0, Some(0), true),
        (MptcpVersion::V0, None, true),
    ] {
        let mut network = network(&[10], version, false, 3);
        let client = network.connect();
        network.run_until(network.now + SECOND);
        let mut is_said = false;
        network.meddle = Box::new(move |way, mut packet| {
            if way == Way::ToServer && !core::mem::replace(&mut is_said, true) {
                let option = MptcpOption::Prio { backup: true, address_id };
                segment_mut(&mut packet).options.rest.push(TcpOption::Mptcp(option));
            }
            vec![packet]
        });
        network.client.send(client, Bytes::from_static(b"x")).expect("it is open");
        network.run_until(network.now + SECOND);
        let info = network.server.info(network.accepted()).expect("it lives");
        assert_eq!(info.subflows[0].is_backup(), expected, "{version:?} {address_id:?}");
    }
}

/// RFC 8684 §3.6: who has no room says that it will pass, and is asked again; where it does not say so, it is not.
#[test]
fn a_refusal_that_will_not_pass_is_not_asked_again() {
    for (is_transient, joins) in [(true, 2..9), (false, 1..2)] {
        let mut network = network(&[10, 20], MptcpVersion::V1, false, 3);
        let limits = Limits { subflows: 0, ..Limits::default() };
        network.server = Host::new(HostConfig { limits, ..HostConfig::default() }, 9);
        network.server.listen(Endpoint::new(server_addr(0), PORT)).expect("the port is free");
        let flags_seen = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&flags_seen);
        network.meddle = Box::new(move |_, mut packet| {
            for option in &mut segment_mut(&mut packet).options.rest {
                if let TcpOption::Mptcp(MptcpOption::Reset { flags, .. }) = option {
                    seen.borrow_mut().push(*flags);
                    *flags &= u8::from(is_transient);
                }
            }
            vec![packet]
        });
        network.connect();
        network.run_until(network.now + SECOND * 20);
        let asked = network.log.iter().filter(|line| line.contains("1> S 0 join")).count();
        assert!(joins.contains(&asked), "{asked}\n{}", network.log.join("\n"));
        assert!(!flags_seen.borrow().is_empty() && flags_seen.borrow().iter().all(|flags| *flags == 1));
    }
}

/// Data sequence numbers and DATA_ACKs have 4 bytes each; where one end sends 8, it gets 8 back (RFC 8684 §3.3).
#[test]
fn numbers_are_as_long_as_those_of_the_peer() {
    for version in VERSIONS {
        for is_long in [false, true] {
            let mut network = network(&[10, 20], version, false, 3);
            let mut idsn = None;
            // Lengths of the client's numbers, of the server's, and of the server's DATA_ACKs once data came.
            let lengths = Rc::new(RefCell::new([const { Vec::<usize>::new() }; 3]));
            let seen = Rc::clone(&lengths);
            let mut has_come = false;
            network.meddle = Box::new(move |way, mut packet| {
                let segment = segment_mut(&mut packet);
                let keys = capable_mut(segment).filter(|_| way == Way::ToServer).map(|capable| capable.keys);
                if let Some(
                    MpCapableKeys::Sender(sender)
                    | MpCapableKeys::Both { sender, .. }
                    | MpCapableKeys::BothWithData { sender, .. },
                ) = keys
                {
                    idsn = Some(Key(sender).derive(version).1);
                }
                let Some(dss) = &mut segment.options.dss else { return vec![packet] };
                let mut lengths = seen.borrow_mut();
                if let Some(mapping) = &mut dss.mapping {
                    lengths[usize::from(way == Way::ToClient)].push(mapping.data_seq.len_bytes());
                    if let (Way::ToServer, true, Some(idsn)) = (way, is_long, idsn) {
                        mapping.data_seq = WireDataSeq::Full(mapping.data_seq.expand(idsn));
                        has_come = true;
                    }
                }
                if let (Way::ToClient, Some(ack)) = (way, dss.data_ack)
                    && dss.mapping.is_none()
                    && (has_come || !is_long)
                {
                    lengths[2].push(ack.len_bytes());
                }
                vec![packet]
            });
            assert_exchanged(&mut network, 500_000, 100_000, MINUTE);
            let [client, server, acks] = &*lengths.borrow();
            let case = std::format!("{version:?} {is_long}");
            assert!(client.iter().chain(server).all(|len| *len == 4), "{case}");
            // What was on its way when the first data came says it as before.
            let expected = if is_long { 8 } else { 4 };
            let wrong = acks.iter().filter(|len| **len != expected).count();
            assert!(acks.len() > 20 && wrong <= 2, "{case}: {wrong} of {}", acks.len());
        }
    }
}

#[test]
fn an_announcement_is_repeated_until_it_is_echoed() {
    for lost in [0, 5, 100] {
        let mut network = network(&[10, 20], MptcpVersion::V1, false, 3);
        let mut count = 0;
        network.meddle = Box::new(move |way, packet| {
            let adds = |option: &MptcpOption| matches!(option, MptcpOption::AddAddr(add) if !add.echo);
            if way == Way::ToClient && segment(&packet).options.mptcp().any(adds) {
                count += 1;
                return if count <= lost { vec![] } else { vec![packet] };
            }
            vec![packet]
        });
        network.connect();
        network.run_until(network.now + SECOND);
        for (path, id) in [(1, 7), (0, 8)] {
            network.server.add_endpoint(network.now, LocalEndpoint::signal(server_addr(path), id));
        }
        let elsewhere = LocalEndpoint::signal(core::net::IpAddr::from([10, 0, 5, 2]), 9);
        network.server.add_endpoint(network.now, elsewhere);
        network.run_until(network.now + MINUTE * 20);
        let announced =
            |(_, event): &&(_, Event)| matches!(event, Event::Announced { id, .. } if [7, 9].contains(&id.0));
        let heard = network.client_events.iter().filter(announced).count();
        assert_eq!(heard, if lost == 100 { 0 } else { 2 }, "{}", network.log.join("\n"));
        let sent = network.server.counters().add_addr_tx;
        assert!(if lost == 100 { sent <= 24 } else { sent <= 5 + 3 }, "{lost}: {sent}");
    }
}

/// RFC 8684 §3.4.1, §3.4.2: an address that was removed is not announced any more, and what waits behind it is.
#[test]
fn an_announcement_is_not_repeated_once_its_address_is_removed() {
    for wait in [Duration::ZERO, SECOND * 10] {
        let mut network = network(&[10, 20], MptcpVersion::V1, false, 3);
        // Which identifiers are announced, or else removed. No announcement arrives, so that none is echoed.
        let said = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&said);
        network.meddle = Box::new(move |_, packet| {
            let before = seen.borrow().len();
            seen.borrow_mut().extend(segment(&packet).options.mptcp().filter_map(|option| match option {
                MptcpOption::AddAddr(add) => Some((true, add.address_id)),
                MptcpOption::RemoveAddr(remove) => Some((false, remove.address_ids[0])),
                _ => None,
            }));
            let is_announced = seen.borrow()[before..].iter().any(|(is_added, _)| *is_added);
            if is_announced { vec![] } else { vec![packet] }
        });
        network.connect();
        network.run_until(network.now + SECOND);
        let elsewhere = [6, 7].map(|net| core::net::IpAddr::from([10, 0, net, 2]));
        for (addr, id) in elsewhere.into_iter().zip([7, 9]) {
            network.server.add_endpoint(network.now, LocalEndpoint::signal(addr, id));
        }
        network.run_until(network.now + wait);
        network.server.remove_endpoint(network.now, elsewhere[0]);
        network.run_until(network.now + MINUTE * 20);
        let said = said.borrow();
        let removed = said.iter().position(|it| *it == (false, 7)).expect("it is removed");
        assert!(!said[removed..].contains(&(true, 7)), "{wait}: {said:?}");
        assert_eq!(said.iter().filter(|it| **it == (true, 9)).count(), 8, "{wait}: {said:?}");
    }
}

/// RFC 8684 §3.1: a version 1 SYN can't be answered in version 0; the next connection asks in that.
#[test]
fn a_server_of_version_0_is_asked_in_version_0_from_the_second_time_on() {
    let mut network = network(&[10, 20], MptcpVersion::V1, false, 3);
    let versions = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&versions);
    network.meddle = Box::new(move |way, mut packet| {
        let segment = segment_mut(&mut packet);
        let is_syn = segment.flags.syn();
        if let Some(capable) = capable_mut(segment)
            && is_syn
        {
            if way == Way::ToServer {
                seen.borrow_mut().push(capable.version);
            }
            capable.version = if way == Way::ToClient { 0 } else { capable.version };
        }
        vec![packet]
    });
    assert_exchanged(&mut network, 10_000, 10_000, MINUTE);
    assert_eq!(fell_back(&network)[0], Some(FallbackReason::PeerLacksMptcp));
    let (before, log) = (versions.borrow().len(), network.log.len());
    network.client_events.clear();
    network.server_events.clear();
    assert_exchanged(&mut network, 10_000, 10_000, MINUTE);
    assert_eq!(fell_back(&network), [None, None]);
    assert!(versions.borrow()[..before].iter().all(|version| *version == 1));
    assert!(versions.borrow()[before..].iter().all(|version| *version == 0));
    assert!(network.log[log..].iter().any(|line| line.contains("dss")));
}
