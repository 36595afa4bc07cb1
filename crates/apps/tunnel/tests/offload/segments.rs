use bytes::Bytes;
use polypath_tunnel::offload::{FrameError, Gso, VnetHeader};
use polypath_wire::{Packet, Transport};

use crate::packets::{ACK, CWR, ECE, FIN, Flow, PSH, pattern, sum};
use crate::{frames, segments};

/// A frame as the kernel makes it: one packet, with the sum over the pseudo header where the checksum belongs.
fn frame(flow: &Flow, sequence: u32, flags: u8, identification: u16, payload: &[u8], size: u16) -> Vec<u8> {
    let mut packet = flow.packet(sequence, flags, identification, payload);
    let checksum_offset = if flow.is_tcp { 16 } else { 6 };
    let (start, at) = (flow.ip_bytes(), flow.ip_bytes() + checksum_offset);
    packet[at..at + 2].fill(0);
    let of_transport = sum(&packet[start..]);
    // The complete checksum, less what the transport has in it.
    let complete = flow.packet(sequence, flags, identification, payload)[at..at + 2].to_vec();
    let whole = !u16::from_be_bytes([complete[0], complete[1]]);
    let pseudo = sum(&[whole.to_be_bytes(), (!of_transport).to_be_bytes()].concat());
    packet[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
    let header = VnetHeader {
        needs_checksum: true,
        gso: match (size, flow.is_tcp, flow.is_v4) {
            (0, ..) => Gso::None,
            (_, true, true) => Gso::TcpV4,
            (_, true, false) => Gso::TcpV6,
            (_, false, _) => Gso::Udp,
        },
        has_cwr: flags & CWR != 0,
        header_len_bytes: flow.header_bytes() as u16,
        segment_bytes: size,
        checksum_start: start as u16,
        checksum_offset: checksum_offset as u16,
    };
    [&header.to_bytes()[..], &packet].concat()
}

fn parsed(packet: &[u8]) -> Packet {
    Packet::parse(Bytes::copy_from_slice(packet)).expect("a packet with right checksums")
}

#[test]
fn tcp_is_cut_into_segments() {
    for is_v4 in [true, false] {
        let flow = Flow::tcp(is_v4);
        let payload = pattern(3500);
        let frame = frame(&flow, u32::MAX - 1000, ACK | PSH | FIN | CWR | ECE, 0xffff, &payload, 1000);
        let packets = segments(&frame).unwrap();
        let expected = [
            flow.packet(u32::MAX - 1000, ACK | CWR | ECE, 0xffff, &payload[..1000]),
            flow.packet(u32::MAX, ACK | ECE, 0, &payload[1000..2000]),
            flow.packet(999, ACK | ECE, 1, &payload[2000..3000]),
            flow.packet(1999, ACK | ECE | PSH | FIN, 2, &payload[3000..]),
        ];
        assert_eq!(packets, expected);
        packets.iter().for_each(|packet| drop(parsed(packet)));
    }
}

#[test]
fn udp_is_cut_into_datagrams() {
    for is_v4 in [true, false] {
        let flow = Flow { dont_fragment: false, ..Flow::udp(is_v4) };
        let payload = pattern(2001);
        let packets = segments(&frame(&flow, 0, 0, 9, &payload, 1000)).unwrap();
        let expected: Vec<_> =
            (9..).zip(payload.chunks(1000)).map(|(id, part)| flow.packet(0, 0, id, part)).collect();
        assert_eq!(packets, expected);
        assert!(
            matches!(parsed(&packets[2]).transport, Transport::Udp(datagram) if datagram.payload.len() == 1)
        );
    }
}

/// A frame of two segments of at most 8 bytes, cut by hand.
#[test]
fn one_frame_by_hand() {
    let header = VnetHeader {
        needs_checksum: true,
        gso: Gso::TcpV4,
        has_cwr: false,
        header_len_bytes: 40,
        segment_bytes: 8,
        checksum_start: 20,
        checksum_offset: 16,
    };
    // The pseudo header: 10.0.0.1, 10.0.0.2, protocol 6 and 30 bytes: 0x0a00 + 1 + 0x0a00 + 2 + 6 + 30 = 0x1427.
    let packet = [
        0x45, 0, 0, 50, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, //
        0, 1, 0, 2, 0, 0, 0, 100, 0, 0, 0, 5, 0x50, 0x18, 1, 0, 0x14, 0x27, 0, 0, //
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
    ];
    let first = [
        0x45, 0, 0, 48, 0x12, 0x34, 0x40, 0, 64, 6, 0x14, 0x92, 10, 0, 0, 1, 10, 0, 0, 2, //
        0, 1, 0, 2, 0, 0, 0, 100, 0, 0, 0, 5, 0x50, 0x10, 1, 0, 0x8a, 0x4a, 0, 0, //
        1, 2, 3, 4, 5, 6, 7, 8,
    ];
    let second = [
        0x45, 0, 0, 42, 0x12, 0x35, 0x40, 0, 64, 6, 0x14, 0x97, 10, 0, 0, 1, 10, 0, 0, 2, //
        0, 1, 0, 2, 0, 0, 0, 108, 0, 0, 0, 5, 0x50, 0x18, 1, 0, 0x91, 0x4a, 0, 0, //
        9, 10,
    ];
    let packets = segments(&[&header.to_bytes()[..], &packet].concat()).unwrap();
    assert_eq!(packets, [first.to_vec(), second.to_vec()]);
}

#[test]
fn a_single_packet_gets_its_checksum_or_passes_as_it_is() {
    for flow in [Flow::tcp(true), Flow::tcp(false), Flow::udp(true), Flow::udp(false)] {
        for len in [0, 1, 1400] {
            let whole = flow.packet(5, ACK, 6, &pattern(len));
            assert_eq!(
                segments(&frame(&flow, 5, ACK, 6, &pattern(len), 0)).unwrap(),
                std::slice::from_ref(&whole)
            );
            let plain = [&VnetHeader::PLAIN.to_bytes()[..], &whole].concat();
            assert_eq!(segments(&plain).unwrap(), [whole]);
        }
    }
    let of_no_protocol = [&VnetHeader::PLAIN.to_bytes()[..], &[1, 2, 3]].concat();
    assert_eq!(segments(&of_no_protocol).unwrap(), [[1, 2, 3]]);
}

#[test]
fn a_checksum_of_udp_is_never_zero() {
    let flow = Flow::udp(true);
    // The payload that makes the sum 0xffff.
    let base = flow.packet(0, 0, 0, &[0, 0]);
    let rest = [base[26], base[27]];
    let whole = flow.packet(0, 0, 0, &rest);
    assert_eq!(whole[26..28], [0xff, 0xff]);
    for size in [0, 2] {
        assert_eq!(segments(&frame(&flow, 0, 0, 0, &rest, size)).unwrap(), std::slice::from_ref(&whole));
    }
}

#[test]
fn a_frame_that_fits_is_one_packet() {
    let flow = Flow::tcp(true);
    for len in [0, 1, 1000] {
        let packets = segments(&frame(&flow, 1, ACK | PSH, 2, &pattern(len), 1000)).unwrap();
        assert_eq!(packets, [flow.packet(1, ACK | PSH, 2, &pattern(len))]);
    }
}

#[test]
fn extension_headers_stand_in_every_packet() {
    let flow = Flow::tcp(false);
    let payload = pattern(25);
    let whole = frame(&flow, 1, ACK, 0, &payload, 10);
    // Eight bytes of destination options, padding only, between the headers.
    let mut frame = [&whole[..50], &[6, 0, 1, 4, 0, 0, 0, 0], &whole[50..]].concat();
    frame[10 + 6] = 60;
    let payload_len = u16::from_be_bytes([frame[14], frame[15]]) + 8;
    frame[14..16].copy_from_slice(&payload_len.to_be_bytes());
    frame[6..8].copy_from_slice(&48_u16.to_ne_bytes());
    let packets = segments(&frame).unwrap();
    assert_eq!(packets.len(), 3);
    for (index, (packet, part)) in packets.iter().zip(payload.chunks(10)).enumerate() {
        assert_eq!(packet[40..48], [6, 0, 1, 4, 0, 0, 0, 0]);
        let mut without = [&packet[..40], &packet[48..]].concat();
        without[6] = 6;
        without[4..6].copy_from_slice(&((packet.len() - 48) as u16).to_be_bytes());
        assert_eq!(without, flow.packet(1 + 10 * index as u32, ACK, 0, part));
    }
}

#[test]
fn frames_that_make_no_sense_are_refused() {
    let flow = Flow::tcp(true);
    let whole = frame(&flow, 1, ACK, 2, &pattern(3000), 1000);
    let with = |at: usize, value: u8| {
        let mut frame = whole.clone();
        frame[at] = value;
        segments(&frame).unwrap_err()
    };
    assert_eq!(segments(&whole[..5]), Err(FrameError::Short(5)));
    assert_eq!(segments(&whole[..10]), Err(FrameError::Short(10)));
    assert_eq!(with(1, 3), FrameError::Kind(3));
    assert_eq!(with(0, 0), FrameError::Mismatch("the checksum, which is not left to be finished"));
    assert_eq!(with(1, 4), FrameError::Mismatch("the version of IP"));
    assert_eq!(with(1, 5), FrameError::Mismatch("the IP header"));
    // A fragment, and a length that differs.
    assert_eq!(with(10 + 7, 1), FrameError::Mismatch("the IP header"));
    assert_eq!(with(10 + 3, 1), FrameError::Mismatch("the IP header"));
    assert_eq!(with(10 + 20 + 12, 0x40), FrameError::Mismatch("the length of the transport's header"));
    let mut frame = whole.clone();
    frame[4..6].fill(0);
    assert_eq!(segments(&frame), Err(FrameError::Mismatch("the size of a segment")));
    frame[6..8].fill(0xff);
    assert_eq!(segments(&frame), Err(FrameError::Mismatch("where the checksum is")));
}

#[test]
fn what_is_cut_is_joined_to_what_it_was() {
    for flow in [Flow::tcp(true), Flow::tcp(false), Flow::udp(true), Flow::udp(false)] {
        let flags = if flow.is_tcp { ACK | PSH } else { 0 };
        let whole = frame(&flow, 1000, flags, 2, &pattern(60_000), 1400);
        let joined = frames(&segments(&whole).unwrap());
        assert_eq!(joined.len(), 1);
        // All of it, virtio header included; a header checksum of IPv4 too.
        assert!(joined[0] == whole);
    }
}
