//! Parse after emit is the identity, and what is emitted is right by an independent reading of it.

use std::net::IpAddr;

use bytes::Bytes;
use polypath_wire::{
    Checksum, MAX_OPTIONS_BYTES, MptcpOption, Options, Packet, Segment, TcpFlags, TcpOption, Transport,
};
use proptest::prelude::*;

use crate::strategies::{config, mptcp_option, options, packet, payload, tcp_packet};

fn emit(packet: &Packet) -> Vec<u8> {
    let mut out = Vec::new();
    packet.emit(&mut out);
    out
}

/// RFC 1071, one word at a time. Zero over bytes that contain their checksum.
pub(crate) fn naive_checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// The pseudo header for the transport part of an emitted packet, from its bytes alone.
fn pseudo_header(bytes: &[u8]) -> (Vec<u8>, &[u8]) {
    if bytes[0] >> 4 == 4 {
        let transport = &bytes[20..];
        let len = transport.len() as u16;
        ([&bytes[12..20], &[0, bytes[9]], &len.to_be_bytes()].concat(), transport)
    } else {
        let transport = &bytes[40..];
        let len = transport.len() as u32;
        ([&bytes[8..40], &len.to_be_bytes(), &[0, 0, 0, bytes[6]]].concat(), transport)
    }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn options_come_back(options in options()) {
        let mut bytes = Vec::new();
        options.emit(&mut bytes);
        prop_assert_eq!(bytes.len(), options.len_bytes());
        prop_assert_eq!(Options::parse(&bytes), Ok(options.clone()));
        prop_assert_eq!(Options::parse_lenient(&bytes), options);
    }

    #[test]
    fn each_mptcp_option_comes_back(option in mptcp_option()) {
        let len = option.len_bytes();
        prop_assert!(len <= MAX_OPTIONS_BYTES);
        let options = match option {
            MptcpOption::Dss(dss) => Options { dss: Some(dss), ..Options::default() },
            option => Options { rest: vec![TcpOption::Mptcp(option)], ..Options::default() },
        };
        let mut bytes = Vec::new();
        options.emit(&mut bytes);
        let option_bytes = &bytes[bytes.len() - len..];
        prop_assert_eq!(option_bytes[0], 30);
        prop_assert_eq!(usize::from(option_bytes[1]), len);
        prop_assert_eq!(Options::parse(&bytes), Ok(options));
    }

    #[test]
    fn packets_come_back(packet in packet()) {
        let bytes = emit(&packet);
        prop_assert_eq!(bytes.len(), packet.len_bytes());
        prop_assert_eq!(Packet::parse(Bytes::from(bytes.clone())), Ok(packet.clone()));
        // A link layer's padding changes nothing.
        let padded = [&bytes[..], &[0xaa; 7]].concat();
        prop_assert_eq!(Packet::parse(Bytes::from(padded)), Ok(packet));
    }

    #[test]
    fn checksums_are_right(packet in packet()) {
        let bytes = emit(&packet);
        if packet.ip.src.is_ipv4() {
            prop_assert_eq!(naive_checksum(&bytes[..20]), 0);
        }
        let (pseudo_header, transport) = pseudo_header(&bytes);
        let is_icmp_v4 = matches!((&packet.transport, packet.ip.src), (Transport::Icmp(_), IpAddr::V4(_)));
        let covered = if is_icmp_v4 { transport.to_vec() } else { [&pseudo_header, transport].concat() };
        prop_assert_eq!(naive_checksum(&covered), 0);
    }

    #[test]
    fn a_partial_checksum_is_completed_as_offload_does(packet in tcp_packet()) {
        let mut bytes = Vec::new();
        packet.emit_header(&mut bytes, Checksum::Partial);
        for slice in packet.payload_slices() {
            bytes.extend_from_slice(slice);
        }
        let start = packet.ip.len_bytes();
        // The device sums from the transport header on, the field included, and writes the complement.
        let sum = naive_checksum(&bytes[start..]);
        bytes[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
        prop_assert_eq!(Packet::parse(Bytes::from(bytes)), Ok(packet));
    }

    #[test]
    fn segments_are_those_of_segmentation_offload(
        packet in tcp_packet(), payload in payload(), segment_size in 1..1500_u16,
    ) {
        let Transport::Tcp(segment) = &packet.transport else { unreachable!() };
        let whole = Segment { payload, segment_size, ..segment.clone() };
        let packet = Packet { transport: Transport::Tcp(whole.clone()), ..packet };
        let count = whole.payload.len().div_ceil(usize::from(segment_size)).max(1);
        let parts: Vec<Packet> = packet.segments().collect();
        prop_assert_eq!(parts.len(), count);
        let mut offset = 0;
        for (index, part) in parts.into_iter().enumerate() {
            let Transport::Tcp(part) = part.transport else { unreachable!() };
            let mut flags = whole.flags;
            if index > 0 {
                flags = flags.without(TcpFlags::CWR);
            }
            if index + 1 < count {
                flags = flags.without(TcpFlags::PSH.with(TcpFlags::FIN));
            }
            let payload = whole.payload.slice(offset, usize::from(segment_size));
            let seq = whole.seq.add(offset as u32);
            offset += payload.len();
            prop_assert_eq!(part, Segment { flags, payload, seq, segment_size: 0, ..whole.clone() });
        }
    }
}
