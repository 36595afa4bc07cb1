use alloc::vec::Vec;
use core::net::IpAddr;

use super::ip::{self, Extent};
use super::{Endpoint, FourTuple, IcmpMessage, IpHeader, protocol};
use crate::checksum::{Checksums, IncrementalSum, pseudo_header};
use crate::reader::Reader;
use crate::{ParseError, SeqNumber};

/// ICMP types and codes (RFC 792, RFC 1191, RFC 4443).
const V4_UNREACHABLE: u8 = 3;
const V4_FRAGMENTATION_NEEDED: u8 = 4;
const V6_UNREACHABLE: u8 = 1;
const V6_PACKET_TOO_BIG: u8 = 2;

/// What is known of the packet that caused an error: the first 8 bytes of TCP.
const QUOTED_TRANSPORT_BYTES: usize = 8;

/// The length that a quotation claims for the packet's TCP part: its fixed header. The real one is not known.
const CLAIMED_TRANSPORT_BYTES: usize = 20;

/// Reads an ICMP message of the family of `header`.
pub(super) fn parse(
    header: &IpHeader,
    bytes: &[u8],
    checksums: Checksums,
) -> Result<IcmpMessage, ParseError> {
    let is_v6 = ip::icmp_protocol(header) == protocol::ICMPV6;
    let Some((&fixed, quote)) = bytes.split_first_chunk::<8>() else {
        return Err(ParseError::Truncated { what: "ICMP header", needed: 8, available: bytes.len() });
    };
    if checksums == Checksums::Verify && checksum(header, bytes) != 0 {
        return Err(ParseError::Checksum(if is_v6 { "ICMPv6" } else { "ICMP" }));
    }
    let [kind, code, _, _, m0, m1, m2, m3] = fixed;
    let too_big = match (is_v6, kind) {
        (false, V4_UNREACHABLE) => code == V4_FRAGMENTATION_NEEDED,
        (true, V6_PACKET_TOO_BIG) => true,
        (true, V6_UNREACHABLE) => false,
        _ => return Err(ParseError::Unsupported("ICMP message")),
    };
    let (flow, seq) = parse_quote(quote, is_v6)?;
    Ok(match (too_big, is_v6) {
        (true, false) => IcmpMessage::PacketTooBig { mtu: u16::from_be_bytes([m2, m3]), flow, seq },
        (true, true) => {
            let mtu = u32::from_be_bytes([m0, m1, m2, m3]);
            IcmpMessage::PacketTooBig { mtu: u16::try_from(mtu).unwrap_or(u16::MAX), flow, seq }
        }
        (false, false) => IcmpMessage::Unreachable { code, flow, seq },
        (false, true) => IcmpMessage::Unreachable { code: to_v4_code(code), flow, seq },
    })
}

fn parse_quote(quote: &[u8], is_v6: bool) -> Result<(FourTuple, SeqNumber), ParseError> {
    let quoted = ip::parse(quote, Extent::Quoted)?;
    if quoted.header.src.is_ipv6() != is_v6 {
        return Err(ParseError::Malformed("ICMP message that quotes the other IP version"));
    }
    if quoted.protocol != protocol::TCP {
        return Err(ParseError::Unsupported("ICMP message about something other than TCP"));
    }
    let transport = quote.get(quoted.transport).unwrap_or_default();
    let mut reader = Reader::new(transport);
    let (Some(src_port), Some(dst_port), Some(seq)) = (reader.u16(), reader.u16(), reader.u32()) else {
        let (needed, available) = (QUOTED_TRANSPORT_BYTES, transport.len());
        return Err(ParseError::Truncated { what: "TCP header quoted by ICMP", needed, available });
    };
    let flow = FourTuple {
        local: Endpoint::new(quoted.header.src, src_port),
        remote: Endpoint::new(quoted.header.dst, dst_port),
    };
    Ok((flow, SeqNumber(seq)))
}

/// ICMPv6's code of "destination unreachable" as the ICMPv4 code (RFC 7915 §5.2, but finer).
const fn to_v4_code(code: u8) -> u8 {
    match code {
        3 => 1,
        4 => 3,
        // Prohibited; source address failed the ingress policy; reject route.
        1 | 5 | 6 => 13,
        _ => 0,
    }
}

/// The inverse of [`to_v4_code`] (RFC 7915 §4.2, but finer).
const fn to_v6_code(code: u8) -> u8 {
    match code {
        1 => 3,
        3 => 4,
        9 | 10 | 13 => 1,
        _ => 0,
    }
}

/// Appends an ICMP message of the family of `header`.
pub(super) fn emit(header: &IpHeader, message: &IcmpMessage, out: &mut Vec<u8>) {
    let start = out.len();
    let is_v6 = ip::icmp_protocol(header) == protocol::ICMPV6;
    let (kind, code, mtu, flow, seq) = match *message {
        IcmpMessage::PacketTooBig { mtu, flow, seq } if is_v6 => (V6_PACKET_TOO_BIG, 0, mtu, flow, seq),
        IcmpMessage::PacketTooBig { mtu, flow, seq } => {
            (V4_UNREACHABLE, V4_FRAGMENTATION_NEEDED, mtu, flow, seq)
        }
        IcmpMessage::Unreachable { code, flow, seq } if is_v6 => {
            (V6_UNREACHABLE, to_v6_code(code), 0, flow, seq)
        }
        IcmpMessage::Unreachable { code, flow, seq } => (V4_UNREACHABLE, code, 0, flow, seq),
    };
    out.extend_from_slice(&[kind, code, 0, 0, 0, 0]);
    out.extend_from_slice(&mtu.to_be_bytes());
    let quoted = IpHeader::new(flow.local.addr, flow.remote.addr);
    ip::emit(&quoted, protocol::TCP, CLAIMED_TRANSPORT_BYTES, 0, out);
    out.extend_from_slice(&flow.local.port.to_be_bytes());
    out.extend_from_slice(&flow.remote.port.to_be_bytes());
    out.extend_from_slice(&seq.0.to_be_bytes());
    let message = out.get_mut(start..).unwrap_or_default();
    let sum = checksum(header, message).to_be_bytes();
    if let [_, _, field @ ..] = message
        && let Some(field) = field.first_chunk_mut()
    {
        *field = sum;
    }
}

/// The checksum over `bytes`, of which ICMPv6's covers a pseudo header (RFC 4443 §2.3) and ICMPv4's does not.
fn checksum(header: &IpHeader, bytes: &[u8]) -> u16 {
    let mut sum = match (header.src, header.dst) {
        (IpAddr::V4(_), IpAddr::V4(_)) => IncrementalSum::new(),
        (src, dst) => pseudo_header(src, dst, protocol::ICMPV6, bytes.len()),
    };
    sum.push(bytes);
    sum.finish()
}
