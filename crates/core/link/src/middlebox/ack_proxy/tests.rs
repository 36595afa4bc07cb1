use alloc::vec::Vec;

use polypath_units::Duration;
use polypath_wire::{Dss, SackBlock, WireDataSeq};

use super::super::testing::*;
use super::*;
use crate::random::Random;
use crate::testing::{segment_of, stream};

fn path() -> Path<AckProxy> {
    let mut path = Path::new(AckProxy::new(AckProxyConfig::default()));
    path.handshake();
    path
}

fn acks(packets: &[Packet]) -> Vec<u32> {
    packets.iter().map(|packet| segment_of(packet).ack.0).collect()
}

fn with_data_ack(mut packet: Packet, ack: u32) -> Packet {
    let dss = Dss { data_ack: Some(WireDataSeq::Low(ack)), ..Dss::default() };
    segment_mut(&mut packet).unwrap().options.dss = Some(dss);
    packet
}

#[test]
fn data_is_acknowledged_at_once_and_passes_with_its_mapping() {
    let mut path = path();
    let passed = path.client(with_dss(seg(101, 501, 100), 1, 100));
    assert_eq!(shapes(&passed), [(101, 100, true)]);
    let [ack] = &path.back[..] else { panic!("{:?}", path.back) };
    assert_eq!(ack.receiver_tuple(), Some(crate::testing::FLOW));
    let ack = segment_of(ack);
    assert_eq!((ack.seq.0, ack.ack.0, ack.flags), (501, 201, TcpFlags::ACK));
    assert_eq!(ack.options, Options::default(), "no DSS");
    // What the receiver says about it passes with its options.
    let passed = path.server(with_data_ack(seg(501, 201, 0), 777));
    assert_eq!(segment_of(&passed[0]).options.dss.unwrap().data_ack, Some(WireDataSeq::Low(777)));
    assert_eq!(path.wait(Duration::from_secs(100)), []);
}

#[test]
fn before_the_receiver_says_anything_its_syn_counts() {
    let mut path = Path::new(AckProxy::new(AckProxyConfig::default()));
    let stamped = |mut packet, value, echo| {
        segment_mut(&mut packet).unwrap().options.timestamps = Some(Timestamps { value, echo });
        packet
    };
    path.client(stamped(syn(100), 7, 0));
    path.server(stamped(syn_ack(500, 101), 3_000_000_000, 7));
    path.client(stamped(seg(101, 501, 1000), 9, 3_000_000_000));
    let ack = segment_of(&path.back[0]);
    assert_eq!(ack.options.timestamps, Some(Timestamps { value: 3_000_000_000, echo: 9 }));
    assert_eq!(ack.window, (65_000 - 1000) >> 7);
}

#[test]
fn what_is_lost_behind_the_box_it_sends_again() {
    let mut path = path();
    path.client(with_dss(seg(101, 501, 100), 1, 100));
    path.client(with_dss(seg(201, 501, 100), 101, 100));
    let again = path.wait(Duration::from_millis(1500));
    let [(at, Direction::Forward, packet)] = &again[..] else { panic!("{again:?}") };
    assert_eq!(*at, Duration::from_secs(1));
    assert_eq!(segment_of(packet).payload.to_vec(), stream(101, 100));
    assert_eq!(segment_of(packet).options.dss.unwrap().mapping.unwrap().subflow_offset, 1);
    // The receiver had the second one: there is nothing left.
    path.server(seg(501, 301, 0));
    assert_eq!(path.wait(Duration::from_secs(100)), []);
}

#[test]
fn three_duplicate_acks_bring_the_segment_before_the_timer() {
    let mut path = path();
    for n in 0..5 {
        path.client(seg(101 + n * 100, 501, 100));
    }
    let mut duplicate = seg(501, 101, 0);
    let block = SackBlock { start: SeqNumber(201), end: SeqNumber(301) };
    segment_mut(&mut duplicate).unwrap().options.sack.push(block);
    for expected in [0, 0, 1, 0] {
        path.server(duplicate.clone());
        assert_eq!(path.back.len(), expected);
        assert!(path.back.iter().all(|packet| segment_of(packet).seq.0 == 101));
    }
    // A partial acknowledgment: the next hole.
    path.server(seg(501, 401, 0));
    assert_eq!(shapes(&path.back), [(401, 100, false)]);
}

#[test]
fn a_gap_before_the_box_is_the_senders_to_fill() {
    let mut path = path();
    path.client(seg(101, 501, 100));
    assert_eq!(path.client(seg(301, 501, 100)), []);
    assert_eq!(acks(&path.back), [201]);
    let block = SackBlock { start: SeqNumber(301), end: SeqNumber(401) };
    assert_eq!(segment_of(&path.back[0]).options.sack[..], [block]);
    assert_eq!(shapes(&path.client(seg(201, 501, 100))), [(201, 100, false), (301, 100, false)]);
    assert_eq!(acks(&path.back), [401]);
    assert_eq!(path.client(seg(201, 501, 100)), [], "a retransmission that nobody needs");
    assert_eq!(acks(&path.back), [401]);
    // Part of it is new.
    assert_eq!(shapes(&path.client(seg(351, 501, 100))), [(401, 50, false)]);
}

#[test]
fn the_receivers_old_acks_become_the_boxs() {
    let mut path = path();
    path.client(seg(101, 501, 100));
    path.client(seg(201, 501, 100));
    let passed = path.server(with_data_ack(seg(501, 201, 0), 777));
    assert_eq!(acks(&passed), [301]);
    // 1000 << 7 bytes less 100 that the box still owes.
    assert_eq!(segment_of(&passed[0]).window, ((128_000 - 100) >> 7) as u16);
    assert_eq!(path.server(seg(501, 201, 0)), [], "nothing new in it");
    assert_eq!(acks(&path.server(seg(501, 301, 0))), [301]);
}

#[test]
fn a_fin_is_data_and_a_reset_ends_it_all() {
    let mut path = path();
    let passed = path.client(flagged(seg(101, 501, 100), TcpFlags::FIN));
    assert!(segment_of(&passed[0]).flags.fin());
    assert_eq!(acks(&path.back), [202]);
    assert_eq!(path.client(flagged(seg(202, 501, 0), TcpFlags::RST)).len(), 1);
    assert_eq!(path.wait(Duration::from_secs(100)), []);
}

#[test]
fn what_the_box_has_no_room_for_it_does_not_acknowledge() {
    let mut path = Path::new(AckProxy::new(AckProxyConfig { buffer_bytes: 250, ..Default::default() }));
    path.handshake();
    path.client(seg(101, 501, 100));
    path.client(seg(201, 501, 100));
    assert_eq!(path.client(seg(301, 501, 100)), []);
    assert_eq!(acks(&path.back), [301]);
    assert_eq!(segment_of(&path.back[0]).window, 0);
    path.server(seg(501, 301, 0));
    assert_eq!(path.client(seg(301, 501, 100)).len(), 1);
}

#[test]
fn a_receiver_that_is_gone_is_given_up() {
    let mut path = path();
    path.client(seg(101, 501, 100));
    let again = path.wait(Duration::from_secs(3600));
    assert_eq!(again.len(), 15);
    assert_eq!(path.middlebox.poll_timeout(), None);
}

#[test]
fn without_a_handshake_everything_passes() {
    let mut path = Path::new(AckProxy::new(AckProxyConfig::default()));
    assert_eq!(path.client(seg(101, 501, 100)), [seg(101, 501, 100)]);
    assert!(path.back.is_empty());
}

/// A stream through the box onto a way that loses a packet in five, in both directions, with a delay behind
/// the box.
#[test]
fn every_byte_arrives_over_a_lossy_way() {
    for seed in 0..20 {
        let mut dice = Random::new(seed);
        let mut path = path();
        let total = 200_000_u32;
        let (mut next, mut received) = (101_u32, 101_u32);
        let mut heard: alloc::collections::BTreeMap<u32, u32> = Default::default();
        let mut to_server: Vec<(Instant, Packet)> = Vec::new();
        let mut to_client_ack = 101;
        while received < 101 + total {
            // The sender keeps ten segments outstanding at the box.
            while next < 101 + total && next - to_client_ack < 10_000 {
                let forwarded = path.client(seg(next, 501, 1000));
                to_server.extend(forwarded.into_iter().map(|packet| (path.now, packet)));
                match path.back.last() {
                    Some(ack) if segment_of(ack).ack.0 > next => to_client_ack = segment_of(ack).ack.0,
                    _ => break,
                }
                next = to_client_ack;
            }
            let waited = path.wait(Duration::from_millis(20));
            to_server.extend(waited.into_iter().map(|(_, _, packet)| (path.now, packet)));
            for (_, packet) in core::mem::take(&mut to_server) {
                if dice.chance(0.2) {
                    continue;
                }
                let segment = segment_of(&packet);
                assert_eq!(segment.payload.to_vec(), stream(segment.seq.0, segment.payload.len()));
                heard.insert(segment.seq.0, segment.seq_end().0);
                while let Some(end) = heard.remove(&received) {
                    received = end;
                }
                heard.retain(|start, _| *start > received);
                if dice.chance(0.2) {
                    continue;
                }
                let mut ack = seg(501, received, 0);
                if let Some((start, end)) = heard.first_key_value() {
                    let block = SackBlock { start: SeqNumber(*start), end: SeqNumber(*end) };
                    segment_mut(&mut ack).unwrap().options.sack.push(block);
                }
                path.server(ack);
                to_server.extend(path.back.drain(..).map(|packet| (path.now, packet)));
            }
            assert!(path.now < Instant::from_secs(100_000), "seed {seed}: stuck at {received} of {total}");
        }
    }
}
