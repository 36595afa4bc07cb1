//! Whole packets written by hand, and what is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use polypath_wire::{
    Checksums, Datagram, Ecn, Endpoint, FourTuple, IcmpMessage, IpHeader, Packet, ParseError, Segment,
    SeqNumber, TcpFlags, Transport,
};

use crate::hex;
use crate::round_trip::naive_checksum;

const V4: (IpAddr, IpAddr) =
    (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2)));
const V6: (IpAddr, IpAddr) = (
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
);

/// TCP from port 1234 to 80, sequence 1, acknowledgment 2, PSH and ACK, window 3, "hello"; its checksum zero.
const TCP: &str = "04d2 0050 00000001 00000002 5018 0003 0000 0000 68656c6c6f";

fn segment() -> Segment {
    Segment {
        src_port: 1234,
        dst_port: 80,
        seq: SeqNumber(1),
        ack: SeqNumber(2),
        flags: TcpFlags::PSH.with(TcpFlags::ACK),
        window: 3,
        payload: b"hello"[..].into(),
        ..Segment::default()
    }
}

fn emit(packet: &Packet) -> Vec<u8> {
    let mut out = Vec::new();
    packet.emit(&mut out);
    out
}

fn parse(bytes: Vec<u8>) -> Result<Packet, ParseError> {
    Packet::parse(Bytes::from(bytes))
}

fn parse_ignoring(bytes: Vec<u8>) -> Result<Packet, ParseError> {
    Packet::parse_with(Bytes::from(bytes), Checksums::Ignore)
}

/// An IPv6 packet whose payload is `payload`.
fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = hex("6000 0000");
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next_header, 64]);
    for addr in [V6.0, V6.1] {
        let IpAddr::V6(addr) = addr else { unreachable!() };
        bytes.extend(addr.octets());
    }
    bytes.extend(payload);
    bytes
}

#[test]
fn tcp_over_ipv4() {
    let ip = IpHeader { ecn: Ecn::Capable0, ..IpHeader::new(V4.0, V4.1) };
    let packet = Packet { ip, transport: Transport::Tcp(segment()) };
    // RFC 791 figure 4: ECT(0), 45 bytes, DF, TTL 64, protocol 6.
    let mut expected = hex("45 02 002d 0000 4000 40 06 0000 c0000201 c6336402");
    let header_sum = naive_checksum(&expected);
    expected[10..12].copy_from_slice(&header_sum.to_be_bytes());
    let mut tcp = hex(TCP);
    let sum = naive_checksum(&[&hex("c0000201 c6336402 0006 0019")[..], &tcp].concat());
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    expected.extend(tcp);
    assert_eq!(emit(&packet), expected);
    assert_eq!(parse(expected).as_ref(), Ok(&packet));
    assert_eq!(
        packet.to_string(),
        "IP 192.0.2.1.1234 > 198.51.100.2.80: Flags [P.], seq 1:6, ack 2, win 3, length 5"
    );
}

#[test]
fn tcp_over_ipv6() {
    let packet = Packet { ip: IpHeader::new(V6.0, V6.1), transport: Transport::Tcp(segment()) };
    let mut tcp = hex(TCP);
    let addrs = "20010db8000000000000000000000001 20010db8000000000000000000000002";
    let pseudo_header = hex(&format!("{addrs} 00000019 00000006"));
    let sum = naive_checksum(&[&pseudo_header[..], &tcp].concat());
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    let expected = ipv6(6, &tcp);
    assert_eq!(emit(&packet), expected);
    assert_eq!(parse(expected).as_ref(), Ok(&packet));
    assert_eq!(
        packet.to_string(),
        "IP6 2001:db8::1.1234 > 2001:db8::2.80: Flags [P.], seq 1:6, ack 2, win 3, length 5"
    );

    // Hop-by-hop options, destination options of 16 bytes and a finished routing header are skipped.
    let extensions = hex("3c 00 01 04 00000000  2b 01 01 0c 000000000000000000000000  06 00 00 00 00000000");
    assert_eq!(parse(ipv6(0, &[&extensions, &tcp[..]].concat())).as_ref(), Ok(&packet));
    // A routing header that is not finished, a fragment, an extension that is cut short, nothing.
    for (next_header, payload, error) in [
        (43, "06 00 00 01 00000000", ParseError::Unsupported("IPv6 routing header with segments left")),
        (44, "06 00 0001 00000000", ParseError::Unsupported("IPv6 fragment")),
        (
            60,
            "06 01 00 00 00000000",
            ParseError::Truncated { what: "IPv6 extension header", needed: 16, available: 8 },
        ),
        (0, "06 00", ParseError::Truncated { what: "IPv6 extension header", needed: 8, available: 2 }),
        (59, "", ParseError::Unsupported("transport protocol")),
        (6, "", ParseError::Truncated { what: "TCP header", needed: 20, available: 0 }),
    ] {
        assert_eq!(parse(ipv6(next_header, &hex(payload))), Err(error), "{next_header}: {payload}");
    }
}

#[test]
fn ipv4_options_are_skipped_and_fragments_refused() {
    let mut with_options = hex("46 00 0031 0000 4000 40 06 0000 c0000201 c6336402 01010100");
    let sum = naive_checksum(&with_options);
    with_options[10..12].copy_from_slice(&sum.to_be_bytes());
    with_options.extend(hex(TCP));
    assert_eq!(parse(with_options.clone()), Err(ParseError::Checksum("TCP")), "the IP header is right");
    let packet = parse_ignoring(with_options).unwrap();
    assert_eq!(packet.transport, Transport::Tcp(segment()));

    for (fragment, is_fragment) in [(0x2000_u16, true), (0x0001, true), (0x1fff, true), (0x8000, false)] {
        let mut bytes = emit(&packet);
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        let expected = is_fragment.then_some(ParseError::Unsupported("IPv4 fragment"));
        assert_eq!(parse_ignoring(bytes).err(), expected, "{fragment:#06x}");
    }
}

#[test]
fn the_well_known_ipv4_header_checksum() {
    // An example in wide use: UDP from 192.168.0.1 to 192.168.0.199, 115 bytes, checksum b861.
    let mut bytes = hex("4500 0073 0000 4000 4011 b861 c0a80001 c0a800c7 0035 e97c 005f 0000");
    bytes.resize(115, 0x2a);
    let packet = parse(bytes.clone()).unwrap();
    let Transport::Udp(datagram) = &packet.transport else { panic!("{packet}") };
    assert_eq!((datagram.src_port, datagram.dst_port, datagram.payload.len()), (53, 59772, 87));
    assert_eq!(emit(&packet)[..20], bytes[..20]);
    bytes[10] ^= 1;
    assert_eq!(parse(bytes), Err(ParseError::Checksum("IPv4 header")));
}

#[test]
fn udp_lengths_and_the_absent_checksum() {
    let datagram = |ip| Packet {
        ip,
        transport: Transport::Udp(Datagram { src_port: 53, dst_port: 5353, payload: b"abc"[..].into() }),
    };
    for (ip, start) in [(IpHeader::new(V4.0, V4.1), 20), (IpHeader::new(V6.0, V6.1), 40)] {
        let mut bytes = emit(&datagram(ip));
        assert_eq!(parse(bytes.clone()), Ok(datagram(ip)));
        bytes[start + 6..start + 8].fill(0);
        // Without checksum: fine over IPv4, forbidden over IPv6 (RFC 8200 §8.1).
        let expected = if start == 20 { Ok(datagram(ip)) } else { Err(ParseError::Checksum("UDP")) };
        assert_eq!(parse(bytes.clone()), expected);
        // A length that leaves bytes of the IP packet unused, and lengths that can't be.
        bytes[start + 5] = 10;
        let Ok(Packet { transport: Transport::Udp(cut), .. }) = parse_ignoring(bytes.clone()) else {
            panic!()
        };
        assert_eq!(cut.payload, b"ab"[..].into());
        bytes[start + 5] = 7;
        assert_eq!(parse_ignoring(bytes.clone()), Err(ParseError::Malformed("UDP length below 8 bytes")));
        bytes[start + 5] = 12;
        let error = ParseError::Truncated { what: "UDP datagram", needed: 12, available: 11 };
        assert_eq!(parse_ignoring(bytes), Err(error));
    }
    assert_eq!(
        datagram(IpHeader::new(V4.0, V4.1)).to_string(),
        "IP 192.0.2.1.53 > 198.51.100.2.5353: UDP, length 3"
    );
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    let packet = |last: [u8; 2]| Packet {
        ip: IpHeader::new(V4.0, V4.1),
        transport: Transport::Udp(Datagram { src_port: 1, dst_port: 2, payload: last.to_vec().into() }),
    };
    // Data that is the checksum over zeros makes the sum all ones, of which the complement is zero.
    let sum: [u8; 2] = emit(&packet([0, 0]))[26..28].try_into().unwrap();
    let bytes = emit(&packet(sum));
    assert_eq!(bytes[26..28], [0xff, 0xff]);
    assert_eq!(parse(bytes), Ok(packet(sum)));
}

fn flow(addrs: (IpAddr, IpAddr)) -> FourTuple {
    FourTuple { local: Endpoint::new(addrs.0, 1234), remote: Endpoint::new(addrs.1, 80) }
}

#[test]
fn icmp_quotes_the_packet_that_caused_it() {
    let seq = SeqNumber(0x0102_0304);
    let packet = |addrs: (IpAddr, IpAddr), message| Packet {
        ip: IpHeader::new(addrs.1, addrs.0),
        transport: Transport::Icmp(message),
    };
    let too_big = packet(V4, IcmpMessage::PacketTooBig { mtu: 1400, flow: flow(V4), seq });
    let bytes = emit(&too_big);
    // Type 3, code 4, MTU in the last two bytes (RFC 1191 §4); IP header and 8 bytes follow.
    assert_eq!(bytes[20..22], [3, 4]);
    assert_eq!(bytes[24..28], [0, 0, 0x05, 0x78]);
    assert_eq!(naive_checksum(&bytes[28..48]), 0);
    assert_eq!((bytes[28], bytes[37]), (0x45, 6));
    assert_eq!(bytes[40..], hex("c0000201 c6336402 04d2 0050 01020304"));
    assert_eq!(parse(bytes), Ok(too_big.clone()));
    assert_eq!(
        too_big.to_string(),
        "IP 198.51.100.2 > 192.0.2.1: ICMP 198.51.100.2:80 unreachable - need to frag (mtu 1400), about seq 16909060"
    );

    let too_big = packet(V6, IcmpMessage::PacketTooBig { mtu: 1280, flow: flow(V6), seq });
    let mut bytes = emit(&too_big);
    assert_eq!((bytes[6], &bytes[40..42], &bytes[44..48]), (58, &[2, 0][..], &[0, 0, 5, 0][..]));
    assert_eq!(parse(bytes.clone()).as_ref(), Ok(&too_big));
    // More than any packet: as large as the type holds.
    bytes[44..48].copy_from_slice(&[0, 1, 0, 0]);
    let Transport::Icmp(message) = parse_ignoring(bytes).unwrap().transport else { panic!() };
    assert_eq!(message, IcmpMessage::PacketTooBig { mtu: u16::MAX, flow: flow(V6), seq });

    for (v4_code, v6_code) in [(0, 0), (1, 3), (3, 4), (13, 1)] {
        for (addrs, at, kind, code) in [(V4, 20, 3, v4_code), (V6, 40, 1, v6_code)] {
            let message = IcmpMessage::Unreachable { code: v4_code, flow: flow(addrs), seq };
            let bytes = emit(&packet(addrs, message));
            assert_eq!(bytes[at..at + 2], [kind, code]);
            assert_eq!(parse(bytes), Ok(packet(addrs, message)));
        }
    }
}

#[test]
fn icmp_that_is_of_no_use_is_refused() {
    let message = IcmpMessage::Unreachable { code: 1, flow: flow(V4), seq: SeqNumber(5) };
    let packet = Packet { ip: IpHeader::new(V4.1, V4.0), transport: Transport::Icmp(message) };
    let good = emit(&packet);
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        parse_ignoring(bytes)
    };
    assert_eq!(changed(20, 8), Err(ParseError::Unsupported("ICMP message")), "echo request");
    assert_eq!(changed(37, 17), Err(ParseError::Unsupported("ICMP message about something other than TCP")));
    assert_eq!(changed(35, 1), Err(ParseError::Unsupported("IPv4 fragment")), "ports are in the first one");
    // A router may have changed the quoted TTL, length and checksum.
    for at in [30, 31, 36, 38, 39] {
        assert_eq!(changed(at, 0x5a), Ok(packet.clone()), "byte {at}");
    }
    let mut bytes = good.clone();
    bytes[23] ^= 1;
    assert_eq!(parse(bytes), Err(ParseError::Checksum("ICMP")));
    // ICMPv6 in IPv4.
    let mut bytes = good;
    bytes[9] = 58;
    assert_eq!(parse_ignoring(bytes), Err(ParseError::Unsupported("transport protocol")));
}

#[test]
fn every_flipped_bit_and_every_missing_byte_is_noticed() {
    let packet = Packet { ip: IpHeader::new(V4.0, V4.1), transport: Transport::Tcp(segment()) };
    let bytes = emit(&packet);
    for bit in 0..8 * bytes.len() {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(parse(bytes).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(parse_ignoring(bytes[..len].to_vec()).is_err(), "{len} bytes");
    }
}

#[test]
fn payload_is_not_copied() {
    let packet = Packet { ip: IpHeader::new(V4.0, V4.1), transport: Transport::Tcp(segment()) };
    let bytes = Bytes::from(emit(&packet));
    let range = bytes.as_ptr_range();
    let Transport::Tcp(segment) = Packet::parse(bytes).unwrap().transport else { panic!() };
    assert!(range.contains(&segment.payload.slices()[0].as_ptr()));
}

#[test]
fn an_acknowledgment_number_needs_its_flag() {
    let flags = TcpFlags::PSH;
    let transport = Transport::Tcp(Segment { flags, ..segment() });
    let bytes = emit(&Packet { ip: IpHeader::new(V4.0, V4.1), transport });
    let Transport::Tcp(read) = parse(bytes).unwrap().transport else { panic!() };
    assert_eq!(read, Segment { flags, ack: SeqNumber(0), ..segment() });
}
