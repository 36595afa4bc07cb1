use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use super::{Ecn, IpHeader, protocol};
use crate::ParseError;
use crate::checksum::{Checksums, IncrementalSum, as_ipv6};
use crate::reader::Reader;

const IPV4_HEADER_BYTES: usize = 20;
const IPV6_HEADER_BYTES: usize = 40;

/// IPv4 flags and fragment offset (RFC 791 §3.1).
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// An IP header as read.
pub(super) struct Parsed {
    pub(super) header: IpHeader,
    /// Of the transport header, extension headers skipped.
    pub(super) protocol: u8,
    /// Where the transport header and its data are. Within the bytes, unless they are a quotation.
    pub(super) transport: Range<usize>,
}

/// A packet, or the first bytes of one that an ICMP message quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Whole(Checksums),
    /// May end anywhere after the IP header, and its lengths and checksum may be what a router made of them.
    Quoted,
}

pub(super) fn parse(bytes: &[u8], extent: Extent) -> Result<Parsed, ParseError> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => parse_ipv4(bytes, extent),
        Some(6) => parse_ipv6(bytes, extent),
        Some(_) => Err(ParseError::Unsupported("IP version")),
        None => Err(truncated("IP header", IPV4_HEADER_BYTES, 0)),
    }
}

const fn truncated(what: &'static str, needed: usize, available: usize) -> ParseError {
    ParseError::Truncated { what, needed, available }
}

/// RFC 791 §3.1. Options are skipped.
fn parse_ipv4(bytes: &[u8], extent: Extent) -> Result<Parsed, ParseError> {
    let Some(&header) = bytes.first_chunk::<IPV4_HEADER_BYTES>() else {
        return Err(truncated("IPv4 header", IPV4_HEADER_BYTES, bytes.len()));
    };
    let [version_ihl, tos, l0, l1, _, _, f0, f1, ttl, protocol, _, _, addrs @ ..] = header;
    let [s0, s1, s2, s3, d0, d1, d2, d3] = addrs;
    let header_len = usize::from(version_ihl & 0x0f) * 4;
    if header_len < IPV4_HEADER_BYTES {
        return Err(ParseError::Malformed("IPv4 header length below 20 bytes"));
    }
    let Some(with_options) = bytes.get(..header_len) else {
        return Err(truncated("IPv4 header", header_len, bytes.len()));
    };
    let end = match extent {
        Extent::Quoted => bytes.len(),
        Extent::Whole(checksums) => {
            let total_len = usize::from(u16::from_be_bytes([l0, l1]));
            if total_len < header_len {
                return Err(ParseError::Malformed("IPv4 total length below the header's"));
            }
            if total_len > bytes.len() {
                return Err(truncated("IPv4 packet", total_len, bytes.len()));
            }
            if checksums == Checksums::Verify {
                let mut sum = IncrementalSum::new();
                sum.push(with_options);
                if sum.finish() != 0 {
                    return Err(ParseError::Checksum("IPv4 header"));
                }
            }
            total_len
        }
    };
    let fragment = u16::from_be_bytes([f0, f1]);
    if fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0 {
        return Err(ParseError::Unsupported("IPv4 fragment"));
    }
    let header = IpHeader {
        src: Ipv4Addr::new(s0, s1, s2, s3).into(),
        dst: Ipv4Addr::new(d0, d1, d2, d3).into(),
        ttl,
        ecn: Ecn::from_bits(tos),
        dont_fragment: fragment & DONT_FRAGMENT != 0,
    };
    Ok(Parsed { header, protocol, transport: header_len..end })
}

/// RFC 8200 §3 and §4. Hop-by-hop options, destination options and a routing header that is done with are
/// skipped.
fn parse_ipv6(bytes: &[u8], extent: Extent) -> Result<Parsed, ParseError> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;

    let mut reader = Reader::new(bytes);
    let fields = (reader.u32(), reader.u16(), reader.array(), reader.array::<16>(), reader.array::<16>());
    let (Some(first_word), Some(payload_len), Some([next_header, ttl]), Some(src), Some(dst)) = fields else {
        return Err(truncated("IPv6 header", IPV6_HEADER_BYTES, bytes.len()));
    };
    let end = match extent {
        Extent::Quoted => bytes.len(),
        Extent::Whole(_) => {
            let total_len = IPV6_HEADER_BYTES + usize::from(payload_len);
            if total_len > bytes.len() {
                return Err(truncated("IPv6 packet", total_len, bytes.len()));
            }
            total_len
        }
    };
    let mut protocol = next_header;
    let mut start = IPV6_HEADER_BYTES;
    while let HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION = protocol {
        let extension = bytes.get(start..end).unwrap_or_default();
        let &[next, len_in_8_bytes, _, segments_left, ..] = extension else {
            return Err(truncated("IPv6 extension header", 8, extension.len()));
        };
        if protocol == FRAGMENT {
            return Err(ParseError::Unsupported("IPv6 fragment"));
        }
        if protocol == ROUTING && segments_left != 0 {
            return Err(ParseError::Unsupported("IPv6 routing header with segments left"));
        }
        let len = 8 + 8 * usize::from(len_in_8_bytes);
        if len > extension.len() {
            return Err(truncated("IPv6 extension header", len, extension.len()));
        }
        start += len;
        protocol = next;
    }
    let header = IpHeader {
        src: Ipv6Addr::from(src).into(),
        dst: Ipv6Addr::from(dst).into(),
        ttl,
        ecn: Ecn::from_bits((first_word >> 20) as u8),
        dont_fragment: true,
    };
    Ok(Parsed { header, protocol, transport: start..end })
}

/// Appends an IP header for `transport_len` bytes after it.
///
/// A length that the field can't hold becomes zero, as Linux and tshark have it for aggregates.
/// `identification` is IPv4's, of which only packets that may be fragmented have need (RFC 6864 §4).
pub(super) fn emit(
    header: &IpHeader,
    protocol: u8,
    transport_len: usize,
    identification: u16,
    out: &mut Vec<u8>,
) {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (header.src, header.dst) else {
        emit_ipv6(header, protocol, transport_len, out);
        return;
    };
    let len = u16::try_from(IPV4_HEADER_BYTES + transport_len).unwrap_or(0).to_be_bytes();
    let (id, fragment) = if header.dont_fragment { (0, DONT_FRAGMENT) } else { (identification, 0) };
    let (id, fragment) = (id.to_be_bytes(), fragment.to_be_bytes());
    let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (src.octets(), dst.octets());
    let ecn = header.ecn as u8;
    let mut bytes: [u8; IPV4_HEADER_BYTES] = [
        0x45,
        ecn,
        len[0],
        len[1],
        id[0],
        id[1],
        fragment[0],
        fragment[1],
        header.ttl,
        protocol,
        0,
        0,
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
    ];
    let mut sum = IncrementalSum::new();
    sum.push(&bytes);
    [bytes[10], bytes[11]] = sum.finish().to_be_bytes();
    out.extend_from_slice(&bytes);
}

fn emit_ipv6(header: &IpHeader, protocol: u8, transport_len: usize, out: &mut Vec<u8>) {
    let first_word = 6 << 28 | (header.ecn as u32) << 20;
    out.extend_from_slice(&first_word.to_be_bytes());
    out.extend_from_slice(&u16::try_from(transport_len).unwrap_or(0).to_be_bytes());
    out.extend_from_slice(&[protocol, header.ttl]);
    out.extend_from_slice(&as_ipv6(header.src));
    out.extend_from_slice(&as_ipv6(header.dst));
}

/// The ICMP of the header's family.
pub(super) const fn icmp_protocol(header: &IpHeader) -> u8 {
    match (header.src, header.dst) {
        (IpAddr::V4(_), IpAddr::V4(_)) => protocol::ICMP,
        _ => protocol::ICMPV6,
    }
}
