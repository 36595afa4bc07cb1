use polypath_tunnel::offload::{MAX_PACKETS, VNET_HEADER_BYTES};

use crate::packets::{ACK, CWR, FIN, Flow, PSH, SYN, URG, pattern};
use crate::{frames, there_and_back};

/// Lengths of the frames' packets.
fn lengths(packets: &[Vec<u8>]) -> Vec<usize> {
    frames(packets).iter().map(|frame| frame.len() - VNET_HEADER_BYTES).collect()
}

#[test]
fn packets_of_a_flow_become_one_and_come_back() {
    for flow in [Flow::tcp(true), Flow::tcp(false), Flow::udp(true), Flow::udp(false)] {
        let packets = flow.stream(5, 6, &pattern(5000), 1400);
        assert_eq!(lengths(&packets), [flow.header_bytes() + 5000]);
        assert_eq!(there_and_back(&packets), packets);
    }
}

#[test]
fn udp_passes_alone_where_the_device_does_not_take_it() {
    let packets = Flow::udp(true).stream(0, 0, &pattern(3000), 1000);
    let mut count = 0;
    polypath_tunnel::offload::Coalescer::new(false).coalesce(&packets, |parts| {
        assert_eq!((&*parts[0], &*parts[1]), (&[0; VNET_HEADER_BYTES][..], &packets[count][..]));
        count += 1;
    });
    assert_eq!(count, 3);
}

/// A packet between two others of its flow that makes them three frames, unchanged.
#[track_caller]
fn assert_apart(middle: impl FnOnce(&Flow) -> Vec<u8>) {
    let flow = Flow::tcp(true);
    let payload = pattern(300);
    let middle = middle(&flow);
    let packets =
        [flow.packet(0, ACK, 0, &payload[..100]), middle, flow.packet(200, ACK, 2, &payload[200..])];
    let expected: Vec<Vec<u8>> =
        packets.iter().map(|packet| [&[0; VNET_HEADER_BYTES][..], packet].concat()).collect();
    assert_eq!(frames(&packets), expected);
}

#[test]
fn what_differs_is_not_joined() {
    let part = || pattern(100);
    assert_apart(|flow| flow.packet(101, ACK, 1, &part()));
    assert_apart(|flow| flow.packet(100, ACK | URG, 1, &part()));
    assert_apart(|flow| flow.packet(100, ACK | SYN, 1, &part()));
    assert_apart(|flow| flow.packet(100, ACK, 1, &[]));
    assert_apart(|flow| Flow { ack: 8, ..flow.clone() }.packet(100, ACK, 1, &part()));
    assert_apart(|flow| Flow { window: 8, ..flow.clone() }.packet(100, ACK, 1, &part()));
    assert_apart(|flow| Flow { ttl: 63, ..flow.clone() }.packet(100, ACK, 1, &part()));
    assert_apart(|flow| Flow { traffic_class: 1, ..flow.clone() }.packet(100, ACK, 1, &part()));
    assert_apart(|flow| Flow { dont_fragment: false, ..flow.clone() }.packet(100, ACK, 1, &part()));
    assert_apart(|flow| {
        Flow { options: vec![0x0101_080a, 1, 3], ..flow.clone() }.packet(100, ACK, 1, &part())
    });
    assert_apart(|flow| Flow { options: vec![], ..flow.clone() }.packet(100, ACK, 1, &part()));
    // A packet of another length of payload than the first one, which the third does not follow either.
    assert_apart(|flow| flow.packet(100, ACK, 1, &pattern(101)));
}

#[test]
fn a_reduced_window_is_told_by_the_first_packet_alone() {
    let flow = Flow::tcp(true);
    let part = pattern(100);
    let packets = [(0, ACK), (100, ACK | CWR), (200, ACK)]
        .map(|(sequence, flags)| flow.packet(sequence, flags, (sequence / 100) as u16, &part));
    assert_eq!(lengths(&packets), [flow.header_bytes() + 100, flow.header_bytes() + 200]);
    assert_eq!(there_and_back(&packets), packets);
}

#[test]
fn a_wrong_checksum_passes_as_it_came() {
    for at in [10, 36, 60] {
        assert_apart(|flow| {
            let mut packet = flow.packet(100, ACK, 1, &pattern(100));
            packet[at] ^= 1;
            packet
        });
    }
    let flow = Flow::udp(false);
    let mut packets = flow.stream(0, 0, &pattern(3000), 1000);
    packets[0][60] ^= 1;
    // The first alone, the others together.
    assert_eq!(lengths(&packets), [1048, 2048]);
    assert_eq!(there_and_back(&packets), packets);
}

#[test]
fn a_datagram_without_checksum_gets_none() {
    let flow = Flow::udp(true);
    let mut packets = flow.stream(0, 0, &pattern(3000), 1000);
    packets[1][26..28].fill(0);
    assert_eq!(lengths(&packets), [1028; 3]);
    assert_eq!(there_and_back(&packets), packets);
}

#[test]
fn push_fin_and_a_short_packet_are_the_last_ones() {
    let flow = Flow::tcp(false);
    let payload = pattern(400);
    for (flags, len) in [(PSH, 100), (FIN, 100), (0, 99)] {
        let packets = [
            flow.packet(0, ACK, 0, &payload[..100]),
            flow.packet(100, ACK | flags, 0, &payload[..len]),
            flow.packet(100 + len as u32, ACK, 0, &payload[..100]),
            flow.packet(200 + len as u32, ACK, 0, &payload[..100]),
        ];
        let header = flow.header_bytes();
        assert_eq!(lengths(&packets), [header + 100 + len, header + 200]);
        assert_eq!(there_and_back(&packets), packets);
    }
}

#[test]
fn identifications_count_where_fragments_are_allowed() {
    let flow = Flow { dont_fragment: false, ..Flow::udp(true) };
    let part = pattern(100);
    let packets = [5, 6, 8, 9].map(|identification| flow.packet(0, 0, identification, &part));
    assert_eq!(lengths(&packets), [228, 228]);
    assert_eq!(there_and_back(&packets), packets);
    let flow = Flow { dont_fragment: true, ..flow };
    assert_eq!(lengths(&[0, 0, 0].map(|identification| flow.packet(0, 0, identification, &part))), [328]);
}

#[test]
fn a_super_packet_has_at_most_64_kb_and_as_many_packets_as_a_write_takes() {
    let flow = Flow::tcp(true);
    let packets = flow.stream(0, 0, &pattern(150_000), 1448);
    let lengths_of = lengths(&packets);
    assert_eq!(lengths_of.len(), 3);
    assert!(lengths_of.iter().all(|&len| len <= 65_535));
    assert_eq!(there_and_back(&packets), packets);
    let flow = Flow::udp(true);
    let packets = flow.stream(0, 0, &pattern(1000), 10);
    assert_eq!(lengths(&packets), [28 + 10 * MAX_PACKETS, 28 + 10 * (100 - MAX_PACKETS)]);
    assert_eq!(there_and_back(&packets), packets);
}

#[test]
fn flows_that_take_turns_are_told_apart() {
    let flows: Vec<Flow> = (0..4)
        .flat_map(|port| [Flow { port, ..Flow::tcp(true) }, Flow { port, ..Flow::udp(true) }])
        .collect();
    let streams: Vec<_> = flows.iter().map(|flow| flow.stream(0, 0, &pattern(1000), 250)).collect();
    let packets: Vec<_> =
        (0..4).flat_map(|at| streams.iter().map(move |stream| stream[at].clone())).collect();
    assert_eq!(frames(&packets).len(), flows.len());
    assert_eq!(there_and_back(&packets), streams.concat());
}

#[test]
fn nothing_overtakes_a_fragment() {
    let flow = Flow::udp(true);
    let packets = flow.stream(0, 0, &pattern(300), 100);
    let mut fragment = packets[1].clone();
    fragment[6] = 0x20;
    let packets = [packets[0].clone(), fragment, packets[2].clone()];
    assert_eq!(there_and_back(&packets), packets);
}

#[test]
fn other_protocols_do_not_end_a_flow() {
    let flow = Flow::udp(true);
    let mut packets = flow.stream(0, 0, &pattern(300), 100);
    let mut echo = packets[1].clone();
    echo[9] = 1;
    packets.insert(1, echo);
    assert_eq!(lengths(&packets), [328, 128]);
}

#[test]
fn an_empty_packet_is_left_out() {
    let packet = Flow::udp(true).packet(0, 0, 0, &[1]);
    assert_eq!(there_and_back(&[vec![], packet.clone(), vec![]]), [packet]);
}
