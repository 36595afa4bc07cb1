//! Bytes that nobody vouches for.

use std::collections::BTreeMap;

use polypath_tunnel::offload::VNET_HEADER_BYTES;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngSeed;

use crate::packets::{ACK, Flow, PSH, pattern};
use crate::{frames, segments, there_and_back};

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x7461),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

prop_compose! {
    fn flow()(
        is_v4: bool, is_tcp: bool, port in 0..3_u16, dont_fragment: bool, words in 0..=10_usize,
    ) -> Flow {
        let options = if is_tcp { vec![0x0101_0101; words] } else { Vec::new() };
        Flow { port, dont_fragment, options, ..if is_tcp { Flow::tcp(is_v4) } else { Flow::udp(is_v4) } }
    }
}

prop_compose! {
    fn stream()(
        flow in flow(), sequence: u32, identification: u16, len in 1..20_000_usize, size in 1..1500_usize,
    ) -> Vec<Vec<u8>> {
        // At most a hundred packets.
        flow.stream(sequence, identification, &pattern(len), size.max(len / 100 + 1))
    }
}

/// Packets of several streams, each in order.
fn mixed() -> impl Strategy<Value = Vec<Vec<u8>>> {
    (vec(stream(), 1..5), vec(any::<Index>(), 300)).prop_map(|(mut streams, turns)| {
        let mut packets = Vec::new();
        for turn in turns {
            let stream = turn.index(streams.len());
            if !streams[stream].is_empty() {
                packets.push(streams[stream].remove(0));
            }
        }
        packets
    })
}

/// Bytes that are changed, at a place and to a value.
fn mutations() -> impl Strategy<Value = Vec<(Index, u8)>> {
    vec((any::<Index>(), any::<u8>()), 0..6)
}

fn mutate(bytes: &mut [u8], mutations: &[(Index, u8)]) {
    for (at, value) in mutations {
        // Most of them in the headers.
        let near = bytes.len().min(if value % 4 == 0 { usize::MAX } else { 90 });
        bytes[at.index(near)] = *value;
    }
}

/// The packets of each pair of ends, in order. What says no ends is of one.
fn by_flow(packets: &[Vec<u8>]) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut flows = BTreeMap::<_, Vec<_>>::new();
    for packet in packets {
        let ends = match packet.first().map(|byte| byte >> 4) {
            Some(4) => [&packet[9..10], packet.get(12..24).unwrap_or_default()].concat(),
            _ => [&packet[6..7], packet.get(8..44).unwrap_or_default()].concat(),
        };
        flows.entry(ends).or_default().push(canonical(packet));
    }
    flows
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn streams_come_back_as_they_were(packets in mixed()) {
        prop_assert_eq!(by_flow(&there_and_back(&packets)), by_flow(&packets));
    }

    /// Whatever is changed on the way, every packet comes out, as it came.
    #[test]
    fn damaged_packets_come_back_as_they_were(
        mut packets in mixed(), damage in vec((any::<Index>(), mutations()), 0..20),
    ) {
        prop_assume!(!packets.is_empty());
        for (at, mutations) in &damage {
            let at = at.index(packets.len());
            mutate(&mut packets[at], mutations);
        }
        let frames = frames(&packets);
        let mut back: Vec<_> = frames.iter().flat_map(|frame| segments(frame).unwrap()).collect();
        let sort_key = |packet: &Vec<u8>| canonical(packet);
        back.sort_by_key(sort_key);
        packets.sort_by_key(sort_key);
        prop_assert_eq!(
            back.iter().map(|packet| canonical(packet)).collect::<Vec<_>>(),
            packets.iter().map(|packet| canonical(packet)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn random_packets_are_survived(packets in vec(vec(any::<u8>(), 0..120), 0..20)) {
        let lengths: usize = packets.iter().map(Vec::len).sum();
        let back: usize = there_and_back(&packets).iter().map(Vec::len).sum();
        prop_assert_eq!(back, lengths);
    }

    #[test]
    fn random_frames_are_survived(frame in vec(any::<u8>(), 0..200)) {
        check_frame(&frame)?;
    }

    #[test]
    fn damaged_frames_are_survived(
        flow in flow(), len in 2..5000_usize, mutations in mutations(), cut in any::<Index>(), is_cut: bool,
    ) {
        let mut joined = frames(&flow.stream(1, 2, &pattern(len), len.div_ceil(2)));
        let mut frame = joined.swap_remove(0);
        mutate(&mut frame, &mutations);
        if is_cut {
            frame.truncate(cut.index(frame.len()));
        }
        check_frame(&frame)?;
    }
}

/// Identifications of packets that are never fragmented do not count, nor does which of its two zeros a checksum has.
fn canonical(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_owned();
    if packet.len() >= 20 && packet[0] >> 4 == 4 && packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

/// All its bytes come out once, in packets that are not too long.
fn check_frame(frame: &[u8]) -> Result<(), TestCaseError> {
    let Ok(packets) = segments(frame) else { return Ok(()) };
    let packet = &frame[VNET_HEADER_BYTES..];
    prop_assert!(!packets.is_empty());
    prop_assert!(packets.iter().all(|each| each.len() <= packet.len()));
    if packets.len() == 1 {
        prop_assert_eq!(packets[0].len(), packet.len());
        return Ok(());
    }
    let size = usize::from(u16::from_ne_bytes([frame[4], frame[5]]));
    let header = packets[0].len() - size;
    let payloads: Vec<u8> = packets.iter().flat_map(|packet| packet[header..].to_vec()).collect();
    prop_assert_eq!(&payloads, &packet[header..]);
    Ok(())
}

#[test]
fn a_stream_of_one_byte_segments_is_cut_as_well() {
    let flow = Flow::tcp(true);
    let packets = flow.stream(0, 0, &pattern(64), 1);
    assert_eq!(there_and_back(&packets), packets);
    assert_eq!(packets[63], flow.packet(63, ACK | PSH, 63, &pattern(64)[63..]));
}
