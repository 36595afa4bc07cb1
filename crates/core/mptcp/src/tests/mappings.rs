//! Which segments carry a mapping, and what becomes of those that do not (RFC 8684 §3.3.1).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use std::boxed::Box;
use std::rc::Rc;
use std::vec;

use polypath_units::Duration;
use polypath_wire::{DataSeq, MptcpVersion, Packet, Payload, TcpFlags};

use super::network::{self, Network, Way, segment, segment_mut};
use super::{MINUTE, VERSIONS, assert_exchanged};
use crate::{ConnectionConfig, Event};

/// Segments leave one by one.
fn network(delays_ms: &[u64], version: MptcpVersion, checksum: bool) -> Network {
    let mut config = ConnectionConfig { version, checksum, ..ConnectionConfig::default() };
    Arc::make_mut(&mut config.tcp).max_aggregate_bytes = 0;
    Network::new(delays_ms, config.clone(), config, 6)
}

/// How many data segments to the server carried a mapping, only a DATA_ACK, and nothing.
fn exchange_and_count(network: &mut Network, upload: usize, download: usize) -> [usize; 3] {
    let counts = Rc::new(RefCell::new([0; 3]));
    let seen = Rc::clone(&counts);
    network.meddle = Box::new(move |way, packet| {
        let segment = segment(&packet);
        if way == Way::ToServer && !segment.payload.is_empty() {
            let dss = segment.options.dss;
            // MP_CAPABLE with data is a mapping, too.
            let bare = if segment.options.mptcp().next().is_some() { 0 } else { 2 };
            seen.borrow_mut()[dss.map_or(bare, |dss| usize::from(dss.mapping.is_none()))] += 1;
        }
        vec![packet]
    });
    assert_exchanged(network, upload, download, MINUTE);
    assert_eq!((network.client.counters().mptcp_retrans, network.server.counters().mptcp_retrans), (0, 0));
    *counts.borrow()
}

#[test]
fn one_segment_of_many_carries_the_mapping() {
    for version in VERSIONS {
        let mut network = network(&[10], version, false);
        let [mapped, acknowledging, bare] = exchange_and_count(&mut network, 5_000_000, 0);
        assert!(mapped * 5 < bare && acknowledging < 10, "{mapped} {acknowledging} {bare}");
    }
}

#[test]
fn with_a_checksum_each_segment_carries_the_mapping() {
    let mut network = network(&[10], MptcpVersion::V1, true);
    let [_, acknowledging, bare] = exchange_and_count(&mut network, 1_000_000, 0);
    assert_eq!((acknowledging, bare), (0, 0));
}

#[test]
fn where_data_goes_both_ways_data_acks_do_not_wait_for_the_next_mapping() {
    for version in VERSIONS {
        let mut network = network(&[10], version, false);
        let [mapped, acknowledging, bare] = exchange_and_count(&mut network, 5_000_000, 5_000_000);
        assert!(mapped < acknowledging, "{mapped} {acknowledging} {bare}");
    }
}

/// A queue that counts bytes has room for any of them then, or for none: nobody is locked out.
#[test]
fn full_segments_are_as_long_as_the_path_takes_with_a_mapping_or_without() {
    for download in [0, 2_000_000] {
        let mut network = network(&[10], MptcpVersion::V1, false);
        let lengths = Rc::new(RefCell::new(BTreeMap::<usize, usize>::new()));
        let seen = Rc::clone(&lengths);
        network.meddle = Box::new(move |way, packet| {
            if way == Way::ToServer && !segment(&packet).payload.is_empty() {
                *seen.borrow_mut().entry(packet.len_bytes()).or_default() += 1;
            }
            vec![packet]
        });
        assert_exchanged(&mut network, 3_000_000, download, MINUTE);
        // Before the peer has answered, each has room for MP_CAPABLE with a checksum.
        let full = lengths.borrow().get(&1500).copied().unwrap_or_default();
        let all: usize = lengths.borrow().values().sum();
        assert!(full + 10 + 1 >= all, "{download}: {:?}", lengths.borrow());
    }
}

/// Bare segments acknowledge to TCP what the peer sends; the acknowledgments of their own that say the rest may be lost.
#[test]
fn a_data_ack_that_is_lost_is_said_by_the_next_mapping() {
    for version in VERSIONS {
        let mut network = network(&[10], version, false);
        let (mut uploaded, lost) = (0, Rc::new(RefCell::new(0)));
        let count = Rc::clone(&lost);
        network.meddle = Box::new(move |way, packet| {
            let segment = segment(&packet);
            if way == Way::ToServer {
                uploaded += segment.payload.len();
                let says = segment.options.dss.is_some_and(|dss| dss.data_ack.is_some());
                if says && segment.payload.is_empty() && uploaded > 0 && uploaded < 2_000_000 {
                    *count.borrow_mut() += 1;
                    return vec![];
                }
            }
            vec![packet]
        });
        assert_exchanged(&mut network, 3_000_000, 100_000, MINUTE);
        assert!(*lost.borrow() > 5, "{}", lost.borrow());
        assert_eq!(network.server.counters().mptcp_retrans, 0);
    }
}

/// Loses the first copy of one full segment of so many; gives the lengths of it and of what came in its place.
fn lose_first_copies(network: &mut Network, way: Way, every: usize) -> Rc<RefCell<Vec<(usize, usize)>>> {
    let lengths = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&lengths);
    let (mut count, mut lost) = (0, BTreeMap::new());
    network.meddle = Box::new(move |at, packet| {
        let segment = segment(&packet);
        if at != way || segment.payload.len() < 1000 {
            return vec![packet];
        }
        if let Some(first) = lost.remove(&segment.seq.0) {
            seen.borrow_mut().push((first, packet.len_bytes()));
            return vec![packet];
        }
        count += 1;
        if count % every == 0 {
            lost.insert(segment.seq.0, packet.len_bytes());
            return vec![];
        }
        vec![packet]
    });
    lengths
}

/// A queue that counts bytes, and is full, has no place for a longer one.
#[test]
fn what_goes_out_again_is_no_longer_than_it_was() {
    for version in VERSIONS {
        let mut network = network(&[10], version, false);
        let lengths = lose_first_copies(&mut network, Way::ToServer, 37);
        assert_exchanged(&mut network, 3_000_000, 0, MINUTE);
        let lengths = lengths.borrow();
        assert!(lengths.len() > 50, "{}", lengths.len());
        for (first, again) in lengths.iter() {
            assert!(again <= first, "{first} became {again}");
        }
    }
}

/// Appends to a segment what follows it, without the options of what follows.
fn merge(pending: &mut Option<Packet>, packet: Packet) -> Vec<Packet> {
    let Some(mut first) = pending.take() else {
        *pending = Some(packet);
        return vec![];
    };
    let (head, next) = (segment_mut(&mut first), segment(&packet));
    if head.seq.add(head.payload.len() as u32) != next.seq {
        return vec![first, packet];
    }
    let mut payload = core::mem::replace(&mut head.payload, Payload::EMPTY);
    payload.append(next.payload.clone());
    (head.payload, head.flags) = (payload, head.flags.with(next.flags));
    vec![first]
}

#[test]
fn data_whose_mapping_was_merged_away_comes_again() {
    for version in VERSIONS {
        for delays in [&[10][..], &[10, 20]] {
            let mut network = network(delays, version, false);
            let mut pending = None;
            network.meddle = Box::new(move |way, packet| {
                if way == Way::ToClient || packet.ip.src != network::client_addr(0) {
                    return vec![packet];
                }
                if segment(&packet).flags == TcpFlags::ACK && segment(&packet).payload.len() > 1000 {
                    return merge(&mut pending, packet);
                }
                pending.take().into_iter().chain([packet]).collect()
            });
            assert_exchanged(&mut network, 3_000_000, 10_000, MINUTE);
            let counters = network.server.counters();
            assert!(counters.data_without_mapping > 0, "mappings were lost");
            assert_eq!(counters.dss_not_matching, 0, "those that came are right");
            let failed = network.server_events.iter().find_map(|(_, event)| match event {
                Event::SubflowClosed { error, .. } => *error,
                _ => None,
            });
            assert_eq!(failed, None);
            assert_eq!(super::fell_back(&network), [None, None]);
        }
    }
}

/// The sender learns of it by the DATA_ACKs that do not come; until then a whole window may arrive.
#[test]
fn a_window_of_data_may_come_without_mappings() {
    for delays in [&[10][..], &[10, 20]] {
        let mut network = network(delays, MptcpVersion::V1, false);
        let (mut pending, mut unmapped) = (None, 0);
        let most = Rc::new(RefCell::new(0));
        let most_unmapped = Rc::clone(&most);
        network.meddle = Box::new(move |way, packet| {
            if way == Way::ToClient || packet.ip.src != network::client_addr(0) {
                return vec![packet];
            }
            let is_full = segment(&packet).flags == TcpFlags::ACK && segment(&packet).payload.len() > 1000;
            let is_mapped = segment(&packet).options.dss.is_some_and(|dss| dss.mapping.is_some());
            unmapped += segment(&packet).payload.len();
            if is_full && is_mapped && pending.is_some() {
                return merge(&mut pending, packet);
            }
            let before: Option<Packet> = pending.take();
            if is_full && !is_mapped && segment(&packet).options.mptcp().next().is_none() {
                pending = Some(packet);
                let mut most = most_unmapped.borrow_mut();
                *most = unmapped.max(*most);
                return before.into_iter().collect();
            }
            unmapped = 0;
            before.into_iter().chain([packet]).collect()
        });
        assert_exchanged(&mut network, 3_000_000, 10_000, MINUTE);
        assert!(*most.borrow() > 200_000, "{}", most.borrow());
        assert_eq!(super::fell_back(&network), [None, None]);
        let is_lost = |(_, event): &(_, Event)| matches!(event, Event::SubflowClosed { error: Some(_), .. });
        assert!(!network.server_events.iter().any(is_lost));
    }
}

#[test]
fn a_path_that_dies_before_its_fin_holds_no_connection_open() {
    let mut network = network(&[10, 20], MptcpVersion::V1, false);
    network.meddle = Box::new(|way, packet| {
        let is_lost =
            way == Way::ToClient && packet.ip.dst == network::client_addr(1) && segment(&packet).flags.fin();
        if is_lost { vec![] } else { vec![packet] }
    });
    assert_exchanged(&mut network, 200_000, 200_000, Duration::from_secs(75));
}

/// A segment without a mapping is longer than a copy of it with one. What were left would hold up the window for one more round trip.
#[test]
fn a_copy_of_what_blocks_the_window_leaves_no_sliver_of_it() {
    for version in VERSIONS {
        let mut config =
            ConnectionConfig { version, receive_autotuning: false, ..ConnectionConfig::default() };
        config.scheduler = "lowest-rtt-rp".parse().expect("a scheduler has that name");
        let tcp = Arc::make_mut(&mut config.tcp);
        (tcp.max_aggregate_bytes, tcp.receive_buffer_bytes) = (0, 100_000);
        let mut network = Network::new(&[10, 200], config.clone(), config, 6);
        // How much of a mapping of the slow path was still to be copied when a copy began.
        let rests = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&rests);
        let (mut held, mut count) = (BTreeMap::new(), 0);
        network.meddle = Box::new(move |way, packet| {
            let segment = segment(&packet);
            let mapping = segment.options.dss.and_then(|dss| dss.mapping);
            let mapping = mapping.filter(|_| way == Way::ToServer && !segment.payload.is_empty());
            let range = mapping.map(|mapping| {
                let start = mapping.data_seq.expand(DataSeq(0)).0;
                (start, start + u64::from(mapping.len))
            });
            if packet.ip.src == network::client_addr(1) {
                held.extend(range);
                return vec![packet];
            }
            if let Some((start, _)) = range
                && let Some((_, end)) = held.range(..=start).next_back()
                && start < *end
            {
                seen.borrow_mut().push(end - start);
            }
            // A window that losses keep small leaves something to do for the slow path.
            count += usize::from(!segment.payload.is_empty());
            if count % 200 == 199 { vec![] } else { vec![packet] }
        });
        assert_exchanged(&mut network, 5_000_000, 0, MINUTE);
        let rests = rests.borrow();
        assert!(rests.len() > 10 && rests.iter().all(|rest| *rest > 100), "{rests:?}");
    }
}

#[test]
fn single_bytes_that_nobody_reads_are_few_pieces() {
    let mut network = network(&[10], MptcpVersion::V1, false);
    let client = network.connect();
    network.run_until(network.now + Duration::from_millis(100));
    let (server, data) = (network.accepted(), network::pattern(0, 4000));
    for byte in &data {
        let taken = network.client.send(client, vec![*byte].into());
        assert_eq!(taken, Ok(1));
        network.run_until(network.now + Duration::from_millis(21));
    }
    let (mut pieces, mut received) = (0, Vec::new());
    while let Some(piece) = network.server.recv(server) {
        pieces += 1;
        received.extend(piece.to_vec());
    }
    assert!(received == data);
    assert!(pieces <= 64 + data.len() / 64, "{pieces}");
}
