use alloc::collections::BTreeMap;

use polypath_wire::{SackBlock, SeqNumber};

use super::super::testing::*;
use super::*;
use crate::random::Random;
use crate::testing::{FLOW, segment_of};

fn rules(target: EditTarget, replacement: &[u8]) -> EditRules {
    EditRules {
        target,
        replacement: Replacement::With(replacement.to_vec()),
        flows: Flows::All,
        direction: None,
        limit: u64::MAX,
        retransmissions: Retransmissions::Same,
        stop_at_infinite_mapping: false,
    }
}

fn pass(editor: &mut StreamEditor, direction: Direction, packet: Packet) -> Vec<Packet> {
    let mut out = Outputs::new();
    editor.handle_packet(direction, packet, &mut out);
    core::iter::from_fn(|| out.pop()).map(|(_, packet)| packet).collect()
}

fn handshake(editor: &mut StreamEditor, isn: u32) {
    pass(editor, Direction::Forward, syn(isn));
    pass(editor, Direction::Backward, turned(syn_ack(500, isn.wrapping_add(1))));
}

/// The stream with the changes that the editor reports.
fn expected(stream: &[u8], rewrites: &[Rewrite]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    for rewrite in rewrites {
        let start = rewrite.stream_offset as usize;
        out.extend_from_slice(&stream[at..start]);
        assert_eq!(rewrite.removed, stream[start..start + rewrite.removed.len()]);
        out.extend_from_slice(&rewrite.inserted);
        at = start + rewrite.removed.len();
    }
    out.extend_from_slice(&stream[at..]);
    out
}

/// A sender with its whole stream, a receiver that puts together what it hears, any segmentation, losses and
/// repetitions in between, near the wrap of sequence numbers.
fn exchange(seed: u64, target: EditTarget, replacement: &[u8]) {
    let mut dice = Random::new(seed);
    let mut below = |limit: usize| dice.u32() as usize % limit;
    let isn = u32::MAX - 2000;
    let first = isn.wrapping_add(1);
    let stream: Vec<u8> = (0..4000).map(|_| b"abcd"[below(4)]).collect();
    let mut editor = StreamEditor::new(rules(target, replacement));
    handshake(&mut editor, isn);
    let mut heard: BTreeMap<usize, u8> = BTreeMap::new();
    let (mut acked, mut sent, mut received) = (0, 0, 0);
    while acked < stream.len() {
        let start = match below(6) {
            0 => acked,
            1 => acked + below(sent - acked + 1),
            _ => sent,
        };
        let len = (1 + below(300)).min(stream.len() - start);
        sent = sent.max(start + len);
        let mut packet = seg(first.wrapping_add(start as u32), 501, 0);
        segment_mut(&mut packet).unwrap().payload = stream[start..start + len].to_vec().into();
        for piece in pass(&mut editor, Direction::Forward, packet) {
            let segment = segment_of(&piece);
            if below(4) == 0 {
                continue;
            }
            let at = segment.seq.diff(SeqNumber(first)) as usize;
            for (index, byte) in segment.payload.to_vec().into_iter().enumerate() {
                let old = heard.insert(at + index, byte);
                assert!(old.is_none_or(|old| old == byte), "seed {seed}: two bytes for one place");
            }
        }
        while heard.contains_key(&received) {
            received += 1;
        }
        let ack =
            pass(&mut editor, Direction::Backward, turned(seg(501, first.wrapping_add(received as u32), 0)));
        let ack = segment_of(&ack[0]).ack.diff(SeqNumber(first)) as usize;
        assert!(ack >= acked && ack <= sent, "seed {seed}: {acked}..{sent} acknowledged up to {ack}");
        acked = ack;
        // What is acknowledged has arrived, in its edited form.
        let end = editor.rewrites().partition_point(|rewrite| rewrite.stream_offset < acked as u64);
        let prefix = expected(&stream[..acked], &editor.rewrites()[..end]);
        assert!(prefix.len() <= received, "seed {seed}");
    }
    let wanted = expected(&stream, editor.rewrites());
    assert!(!editor.rewrites().is_empty());
    assert!(heard.into_values().eq(wanted), "seed {seed}");
}

#[test]
fn the_receiver_hears_the_edited_stream_and_the_sender_its_own_acknowledged() {
    for seed in 0..20 {
        let bytes = |pattern: &[u8]| EditTarget::Bytes(pattern.to_vec());
        exchange(seed, bytes(b"abc"), b"xyz");
        exchange(seed, bytes(b"abc"), b"0123456789");
        exchange(seed, bytes(b"abcd"), b"x");
        exchange(seed, bytes(b"dd"), b"");
        exchange(seed, EditTarget::Place { offset: 1500, len: 0 }, b"insert");
        exchange(seed, EditTarget::Place { offset: 0, len: 20 }, b"");
    }
}

#[test]
fn everything_behind_an_edit_is_shifted_in_both_directions() {
    let mut editor = StreamEditor::new(rules(EditTarget::Place { offset: 10, len: 2 }, b"12345"));
    handshake(&mut editor, 100);
    let edited = pass(&mut editor, Direction::Forward, with_dss(seg(101, 501, 100), 1, 100));
    assert_eq!(shapes(&edited), [(101, 103, true)]);
    let next = pass(&mut editor, Direction::Forward, with_dss(seg(201, 501, 100), 101, 100));
    assert_eq!(shapes(&next), [(204, 100, true)]);
    assert_eq!(segment_of(&next[0]).options.dss.unwrap().mapping.unwrap().subflow_offset, 101);

    let acked = |editor: &mut StreamEditor, ack| {
        let heard = pass(editor, Direction::Backward, turned(seg(501, ack, 0)));
        segment_of(&heard[0]).ack.0
    };
    // 111 and 112 became 111 to 115: they have arrived when all of that has.
    assert_eq!(
        [110, 111, 113, 115, 116, 117].map(|ack| acked(&mut editor, ack)),
        [110, 111, 111, 111, 113, 114]
    );
    let mut ack = seg(501, 204, 0);
    let block = |start, end| SackBlock { start: SeqNumber(start), end: SeqNumber(end) };
    segment_mut(&mut ack).unwrap().options.sack.push(block(254, 304));
    let heard = pass(&mut editor, Direction::Backward, turned(ack));
    assert_eq!(segment_of(&heard[0]).ack, SeqNumber(201));
    assert_eq!(segment_of(&heard[0]).options.sack[0], block(251, 301));
    let fin = pass(&mut editor, Direction::Forward, flagged(seg(301, 501, 0), polypath_wire::TcpFlags::FIN));
    assert_eq!(segment_of(&fin[0]).seq, SeqNumber(304));
    assert_eq!(
        editor.rewrites(),
        [Rewrite {
            flow: FLOW,
            direction: Direction::Forward,
            stream_offset: 10,
            removed: crate::testing::stream(111, 2),
            inserted: b"12345".to_vec(),
        }]
    );
}

#[test]
fn what_becomes_too_long_is_cut() {
    let mut editor = StreamEditor::new(rules(EditTarget::Place { offset: 10, len: 0 }, &[7; 100]));
    handshake(&mut editor, 100);
    let pieces = pass(&mut editor, Direction::Forward, with_dss(seg(101, 501, 1400), 1, 1400));
    assert_eq!(shapes(&pieces), [(101, 1400, true), (1501, 100, true)]);
}

#[test]
fn limits_are_kept() {
    let every_byte = || EditTarget::Bytes(alloc::vec![103]);
    let count = |rules: EditRules| {
        let mut editor = StreamEditor::new(rules);
        for client in [1, 2] {
            let from = |mut packet: Packet| {
                packet.ip.src = core::net::IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, client));
                packet
            };
            pass(&mut editor, Direction::Forward, from(syn(100)));
            for packet in [seg(101, 501, 300), seg(401, 501, 300), seg(101, 501, 300)] {
                pass(&mut editor, Direction::Forward, from(packet));
            }
        }
        editor.rewrites().len()
    };
    // Byte 103 is at 103, 354 and 605 of the test stream.
    assert_eq!(count(rules(every_byte(), b"x")), 6);
    assert_eq!(count(EditRules { limit: 1, ..rules(every_byte(), b"x") }), 1);
    assert_eq!(count(EditRules { flows: Flows::Nth(1), limit: 4, ..rules(every_byte(), b"x") }), 3);
    assert_eq!(count(EditRules { flows: Flows::Client(FLOW.local.addr), ..rules(every_byte(), b"x") }), 3);
    assert_eq!(count(EditRules { direction: Some(Direction::Backward), ..rules(every_byte(), b"x") }), 0);
    assert_eq!(count(rules(every_byte(), &[103])), 0, "no change is no rewrite");
}

#[test]
fn retransmissions_are_edited_again_or_not_at_all() {
    for (retransmissions, again) in [(Retransmissions::Same, b'!'), (Retransmissions::Clean, 103)] {
        let rules = EditRules { retransmissions, ..rules(EditTarget::Bytes(alloc::vec![103]), b"!") };
        let mut editor = StreamEditor::new(rules);
        handshake(&mut editor, 100);
        let mut send =
            || segment_of(&pass(&mut editor, Direction::Forward, seg(101, 501, 10))[0]).payload.to_vec();
        assert_eq!(send()[2], b'!');
        assert_eq!(send()[2], again);
        assert_eq!(editor.rewrites().len(), 1);
    }
}

#[test]
fn an_infinite_mapping_ends_the_editing() {
    let rules =
        EditRules { stop_at_infinite_mapping: true, ..rules(EditTarget::Bytes(alloc::vec![103]), b"longer") };
    let mut editor = StreamEditor::new(rules);
    handshake(&mut editor, 100);
    pass(&mut editor, Direction::Forward, with_dss(seg(101, 501, 100), 1, 100));
    pass(&mut editor, Direction::Forward, with_dss(seg(201, 501, 100), 101, 0));
    let last = pass(&mut editor, Direction::Forward, seg(301, 501, 300));
    assert_eq!(shapes(&last), [(306, 300, false)], "the shift stays");
    assert_eq!(editor.rewrites().len(), 1);
}

#[test]
fn a_new_connection_on_the_same_ports_starts_anew() {
    let mut editor = StreamEditor::new(rules(EditTarget::Place { offset: 0, len: 1 }, b"123"));
    for isn in [100, 90_000] {
        handshake(&mut editor, isn);
        assert_eq!(
            shapes(&pass(&mut editor, Direction::Forward, seg(isn + 1, 501, 10))),
            [(isn + 1, 12, false)]
        );
        assert_eq!(shapes(&pass(&mut editor, Direction::Forward, syn(isn)))[0].0, isn, "the same SYN again");
        assert_eq!(
            shapes(&pass(&mut editor, Direction::Forward, seg(isn + 11, 501, 10))),
            [(isn + 13, 10, false)]
        );
    }
}
