//! Segments that somebody who knows the four-tuple makes up: each option, in the window, behind it and beyond it, on one
//! subflow and on two. Whatever they say, no byte may be missing behind a clean end.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::net::IpAddr;
use std::boxed::Box;
use std::rc::Rc;
use std::vec;

use polypath_units::Duration;
use polypath_wire::{
    AddAddr, DataSeq, Dss, DssMapping, MpCapableKeys, MptcpOption, MptcpVersion, Packet, Payload, RemoveAddr,
    ResetReason, Segment, TcpFlags, TcpOption, WireDataSeq,
};

use super::network::{Network, Way, pattern, segment, segment_mut};
use super::{MINUTE, fell_back};
use crate::crypto::Key;
use crate::{CloseReason, ConnectionConfig, Event};

/// Long enough that a segment may be old, and that what was forged shows before the end.
const LEN: usize = 600_000;

/// Where a forged segment begins, beside the one that it follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Exact,
    Old,
    Beyond,
}

const PLACES: [Place; 3] = [Place::Exact, Place::Old, Place::Beyond];

/// What the forger knows of the connection, by luck or by listening.
#[derive(Clone, Copy)]
struct Known {
    /// Key of the host that receives the forgery.
    receiver_key: u64,
    /// Data sequence number after the data of the segment that the forgery follows, and that segment's subflow offset.
    data_next: DataSeq,
    offset_next: u32,
}

type Forge = fn(&mut Segment, Known);

fn option(segment: &mut Segment, option: MptcpOption) {
    segment.options.rest.push(TcpOption::Mptcp(option));
}

fn dss(segment: &mut Segment, data_seq: WireDataSeq, subflow_offset: u32, len: u16, data_fin: bool) {
    let mapping = DssMapping { data_seq, subflow_offset, len, checksum: None };
    segment.options.dss = Some(Dss { mapping: Some(mapping), data_fin, ..Dss::default() });
}

fn remove(segment: &mut Segment, _: Known) {
    let address_ids = [0, 1, 2].into_iter().collect();
    option(segment, MptcpOption::RemoveAddr(RemoveAddr { address_ids }));
}

fn add(segment: &mut Segment, _: Known) {
    option(
        segment,
        MptcpOption::AddAddr(AddAddr {
            version: MptcpVersion::V1,
            echo: false,
            address_id: 9,
            addr: IpAddr::from([10, 0, 7, 7]),
            port: None,
            hmac: Some(1),
        }),
    );
}

fn reset(segment: &mut Segment, with: MptcpOption) {
    segment.flags = TcpFlags::RST;
    // Within the window, but not where a RST has to be.
    segment.seq = segment.seq.add(1);
    option(segment, with);
}

/// What may be forged, and whether it is known to be right.
const FORGERIES: [(&str, Forge); 14] = [
    ("infinite mapping", |segment, _| dss(segment, WireDataSeq::Low(77), 1, 0, false)),
    ("infinite mapping of what was received", |segment, known| {
        dss(
            segment,
            WireDataSeq::Full(known.data_next.add(0u64.wrapping_sub(50_000))),
            known.offset_next,
            0,
            false,
        );
    }),
    ("infinite mapping with a gap", |segment, known| {
        dss(segment, WireDataSeq::Full(known.data_next.add(50_000)), known.offset_next, 0, false);
    }),
    ("infinite mapping as the peer would send it", |segment, known| {
        dss(segment, WireDataSeq::Full(known.data_next), known.offset_next, 0, false);
    }),
    ("REMOVE_ADDR", remove),
    ("MP_FAIL", |segment, _| option(segment, MptcpOption::Fail { data_seq: DataSeq(99) })),
    ("DATA_FIN somewhere", |segment, _| dss(segment, WireDataSeq::Low(77), 0, 1, true)),
    ("DATA_FIN of what was received", |segment, known| {
        dss(segment, WireDataSeq::Full(known.data_next.add(0u64.wrapping_sub(50_000))), 0, 1, true);
    }),
    ("DATA_FIN within the window", |segment, known| {
        dss(segment, WireDataSeq::Full(known.data_next.add(10_001)), 0, 1, true);
    }),
    ("MP_FASTCLOSE with another key", |segment, known| {
        option(segment, MptcpOption::Fastclose { receiver_key: known.receiver_key ^ 1 });
    }),
    ("RST with MP_FASTCLOSE and another key", |segment, known| {
        reset(segment, MptcpOption::Fastclose { receiver_key: known.receiver_key ^ 1 });
    }),
    ("RST with MP_TCPRST", |segment, _| {
        reset(segment, MptcpOption::Reset { flags: 0, reason: ResetReason::UNSPECIFIED });
    }),
    ("ADD_ADDR", add),
    ("MP_PRIO", |segment, _| option(segment, MptcpOption::Prio { backup: true, address_id: None })),
];

/// After every so many data segments of each subflow comes a forged one.
const EVERY: usize = 50;

/// A network in which `forge` follows data segments that go `way`, and how often it did.
fn forged(
    way: Way,
    paths: usize,
    place: Place,
    version: MptcpVersion,
    forge: Forge,
) -> (Network, Rc<Cell<usize>>) {
    let delays = &[10, 14][..paths];
    let mut config = ConnectionConfig { version, max_mapping_bytes: 1400, ..ConnectionConfig::default() };
    let tcp = Arc::make_mut(&mut config.tcp);
    tcp.max_aggregate_bytes = 0;
    let mut network = Network::new(delays, config.clone(), config, 5);
    let mut keys = None;
    let (mut count, mut is_joined) = (0, paths == 1);
    let forgeries = Rc::new(Cell::new(0));
    let counted = Rc::clone(&forgeries);
    network.meddle = Box::new(move |at, packet| {
        for option in segment(&packet).options.mptcp() {
            if let MptcpOption::Capable(capable) = option
                && let MpCapableKeys::Both { sender, receiver }
                | MpCapableKeys::BothWithData { sender, receiver, .. } = capable.keys
            {
                keys = Some(if way == Way::ToServer { (sender, receiver) } else { (receiver, sender) });
            }
        }
        let mapping = segment(&packet).options.dss.and_then(|dss| dss.mapping);
        let (Some((sender, receiver)), Some(mapping)) = (keys, mapping.filter(|_| at == way)) else {
            return vec![packet];
        };
        // All subflows are up.
        let second = super::network::client_addr(1);
        is_joined |= [packet.ip.src, packet.ip.dst].contains(&second);
        count += usize::from(is_joined);
        if !is_joined || count % EVERY != 0 || segment(&packet).payload.is_empty() {
            return vec![packet];
        }
        let (_, idsn) = Key(sender).derive(version);
        let len = segment(&packet).payload.len() as u32;
        let known = Known {
            receiver_key: receiver,
            data_next: mapping.data_seq.expand(idsn).add(len.into()),
            offset_next: mapping.subflow_offset + len,
        };
        counted.set(counted.get() + 1);
        let forgery = forgery(&packet, place, known, forge);
        vec![packet, forgery]
    });
    (network, forgeries)
}

/// An acknowledgment that follows `packet`, or lies elsewhere, and says something else.
fn forgery(packet: &Packet, place: Place, known: Known, forge: Forge) -> Packet {
    let mut forged = packet.clone();
    let segment = segment_mut(&mut forged);
    let next = segment.seq.add(segment.payload.len() as u32);
    segment.seq = match place {
        Place::Exact => next,
        Place::Old => next.sub(60_000),
        Place::Beyond => next.add(1 << 28),
    };
    segment.payload = Payload::EMPTY;
    segment.flags = TcpFlags::ACK;
    segment.options.dss = None;
    segment.options.rest.clear();
    forge(segment, known);
    forged
}

fn closed(events: &[(crate::ConnectionId, Event)]) -> Vec<CloseReason> {
    let reason = |event: &Event| if let Event::Closed(reason) = event { Some(*reason) } else { None };
    events.iter().filter_map(|(_, event)| reason(event)).collect()
}

/// What both ends made of it: the bytes are there, both closed in order, no subflow was lost.
#[track_caller]
fn assert_untouched(network: &mut Network, way: Way, case: &str) {
    let (upload, download) = if way == Way::ToServer { (LEN, 0) } else { (0, LEN) };
    let (at_server, at_client) = network.exchange(upload, download, MINUTE);
    assert_eq!((at_server.len(), at_client.len()), (upload, download), "{case}\n{}", network.log.join("\n"));
    assert!(at_server == pattern(0, upload) && at_client == pattern(0, download), "{case}");
    for events in [&network.client_events, &network.server_events] {
        assert_eq!(closed(events), [CloseReason::Finished], "{case}: {events:?}");
    }
    let is_lost = |(_, event): &&(_, Event)| matches!(event, Event::SubflowClosed { error: Some(_), .. });
    let events = network.client_events.iter().chain(&network.server_events);
    assert_eq!(events.filter(is_lost).count(), 0, "{case}");
}

#[test]
fn no_forged_option_costs_a_byte_or_ends_a_connection() {
    for (name, forge) in FORGERIES {
        for (place, paths, way) in cases() {
            let (mut network, forgeries) = forged(way, paths, place, MptcpVersion::V1, forge);
            let case = std::format!("{name}, {place:?}, {paths}, {way:?}");
            assert_untouched(&mut network, way, &case);
            assert!(forgeries.get() > 2, "{case}: {forgeries:?}");
            // What the peer itself might have said leads to a fallback; nothing else does.
            let is_right = name.ends_with("as the peer would send it");
            let may_fall_back = is_right && place == Place::Exact && paths == 1;
            assert!(may_fall_back || fell_back(&network) == [None, None], "{case}");
        }
    }
}

fn cases() -> impl Iterator<Item = (Place, usize, Way)> {
    let ways = [Way::ToServer, Way::ToClient];
    let of = move |place| {
        [1, 2].into_iter().flat_map(move |paths| ways.into_iter().map(move |way| (place, paths, way)))
    };
    PLACES.into_iter().flat_map(of)
}

/// Even the key is believed within the window only, and in each form ends the connection with an error there.
#[test]
fn the_right_key_counts_within_the_window() {
    let acknowledgment: Forge = |segment, known| {
        option(segment, MptcpOption::Fastclose { receiver_key: known.receiver_key });
    };
    let with_reset: Forge = |segment, known| {
        reset(segment, MptcpOption::Fastclose { receiver_key: known.receiver_key });
    };
    for forge in [acknowledgment, with_reset] {
        for (place, paths, way) in cases() {
            let (mut network, forgeries) = forged(way, paths, place, MptcpVersion::V1, forge);
            if place != Place::Exact {
                assert_untouched(&mut network, way, &std::format!("{place:?}, {paths}, {way:?}"));
                continue;
            }
            let (upload, download) = if way == Way::ToServer { (LEN, 0) } else { (0, LEN) };
            network.exchange(upload, download, MINUTE);
            assert!(forgeries.get() > 0);
            let receiver = if way == Way::ToServer { &network.server_events } else { &network.client_events };
            assert_eq!(closed(receiver), [CloseReason::Reset]);
        }
    }
}

/// The end was told where data happened to end, and the application has heard of it; then more comes.
#[test]
fn data_behind_an_end_that_was_believed_is_an_error() {
    for way in [Way::ToServer, Way::ToClient] {
        let forge: Forge = |segment, known| dss(segment, WireDataSeq::Full(known.data_next), 0, 1, true);
        let (mut network, forgeries) = forged(way, 1, Place::Exact, MptcpVersion::V1, forge);
        let (upload, download) = if way == Way::ToServer { (LEN, 0) } else { (0, LEN) };
        network.exchange(upload, download, MINUTE);
        assert!(forgeries.get() > 0);
        let receiver = if way == Way::ToServer { &network.server_events } else { &network.client_events };
        assert_eq!(closed(receiver), [CloseReason::Damaged], "{receiver:?}");
    }
}

/// One end has fallen back, and the other's data still has mappings: a FIN in the middle of one is not the end of the data.
#[test]
fn a_fin_in_the_middle_of_a_mapping_is_an_error_after_a_fallback() {
    let mut config =
        ConnectionConfig { checksum: true, max_mapping_bytes: 5000, ..ConnectionConfig::default() };
    Arc::make_mut(&mut config.tcp).max_aggregate_bytes = 0;
    let mut network = Network::new(&[10], config.clone(), config, 5);
    let (mut uploaded, mut is_over, mut has_failed) = (0, false, false);
    network.meddle = Box::new(move |way, mut packet| {
        let segment = segment_mut(&mut packet);
        if way == Way::ToServer {
            uploaded += segment.payload.len();
            if uploaded > 100_000 && !segment.payload.is_empty() && !has_failed {
                has_failed = true;
                let mut bytes = segment.payload.to_vec();
                bytes[0] ^= 1;
                segment.payload = bytes.into();
            }
            return vec![packet];
        }
        // MP_FAIL passes, and nothing of the fallback of the other side.
        let mapping = segment.options.dss.and_then(|dss| dss.mapping);
        is_over |= mapping.is_some_and(|mapping| mapping.len == 0);
        if is_over {
            return vec![];
        }
        let is_start = mapping.is_some_and(|mapping| mapping.len > 3000) && segment.payload.len() > 1000;
        if has_failed && is_start && segment.flags == TcpFlags::ACK {
            let mut fin = packet.clone();
            let (head, end) = (super::network::segment(&packet), segment_mut(&mut fin));
            end.seq = head.seq.add(head.payload.len() as u32);
            end.payload = Payload::EMPTY;
            end.options.dss = None;
            end.flags = TcpFlags::ACK.with(TcpFlags::FIN);
            return vec![packet, fin];
        }
        vec![packet]
    });
    network.exchange(LEN, LEN, MINUTE);
    assert_eq!(closed(&network.client_events), [CloseReason::Damaged], "{}", network.log.join("\n"));
    assert!(!network.client_events.iter().any(|(_, event)| *event == Event::PeerFinished));
}

/// RFC 8684 §3.4.2: the path is asked, and what does not answer is closed, but not the last.
#[test]
fn a_withdrawn_address_costs_the_subflow_whose_path_is_dead_and_no_other() {
    for is_cut in [false, true] {
        let mut network =
            Network::new(&[10, 20], ConnectionConfig::default(), ConnectionConfig::default(), 5);
        network.connect();
        network.run_until(network.now + Duration::from_secs(1));
        network.cut[1] = is_cut;
        let mut has_said = false;
        network.meddle = Box::new(move |way, mut packet| {
            let is_first = way == Way::ToServer && packet.ip.src == super::network::client_addr(0);
            if is_first && !has_said {
                has_said = true;
                remove(segment_mut(&mut packet), KNOWN_NOTHING);
            }
            vec![packet]
        });
        let client = network.client_events[0].0;
        network.client.send(client, bytes::Bytes::from_static(b"x")).expect("it is open");
        network.run_until(network.now + Duration::from_secs(4));
        let server = network.accepted();
        let is_closed = |(_, event): &&(_, Event)| matches!(event, Event::SubflowClosed { .. });
        let closed = |network: &Network| network.server_events.iter().filter(is_closed).count();
        let log = network.log.join("\n");
        assert_eq!((closed(&network), network.server.counters().rm_addr), (usize::from(is_cut), 1), "{log}");
        // The last one stays, though nothing answers there either.
        network.cut = vec![true; 2];
        network.run_until(network.now + Duration::from_secs(4));
        let info = network.server.info(server).expect("it lives");
        assert_eq!((closed(&network), info.subflows.is_empty()), (usize::from(is_cut), false));
    }
}

const KNOWN_NOTHING: Known = Known { receiver_key: 0, data_next: DataSeq(0), offset_next: 0 };
