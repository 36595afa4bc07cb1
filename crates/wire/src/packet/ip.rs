//! IPv4 (RFC 791) and IPv6 (RFC 8200) headers.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Ecn, IpHeader};
use crate::ParseError;
use crate::checksum::IncrementalSum;
use crate::reader::Reader;

/// What an IP header says of its payload.
pub(super) struct Parsed {
    pub(super) header: IpHeader,
    pub(super) protocol: u8,
    /// Where the payload is in the packet.
    pub(super) payload: core::ops::Range<usize>,
}

fn truncated(what: &'static str, needed: usize, available: usize) -> ParseError {
    ParseError::Truncated { what, needed, available }
}

fn ecn(traffic_class: u8) -> Ecn {
    match traffic_class & 3 {
        0 => Ecn::NotCapable,
        1 => Ecn::Capable1,
        2 => Ecn::Capable0,
        _ => Ecn::CongestionExperienced,
    }
}

/// Reads a header. `quoted` accepts a packet cut short, as ICMP quotes it, and ignores its checksum.
pub(super) fn parse(bytes: &[u8], verify: bool, quoted: bool) -> Result<Parsed, ParseError> {
    match bytes.first().map(|first| first >> 4) {
        None => Err(truncated("IP header", 1, 0)),
        Some(4) => parse_v4(bytes, verify, quoted),
        Some(6) => parse_v6(bytes, quoted),
        Some(_) => Err(ParseError::Unsupported("IP version other than 4 and 6")),
    }
}

fn parse_v4(bytes: &[u8], verify: bool, quoted: bool) -> Result<Parsed, ParseError> {
    let short = || truncated("IPv4 header", 20, bytes.len());
    let mut reader = Reader::new(bytes);
    let header_len = usize::from(reader.u8().ok_or_else(short)? & 15) * 4;
    let traffic_class = reader.u8().ok_or_else(short)?;
    let total_len = usize::from(reader.u16().ok_or_else(short)?);
    let _identification = reader.u16().ok_or_else(short)?;
    let fragment = reader.u16().ok_or_else(short)?;
    let ttl = reader.u8().ok_or_else(short)?;
    let protocol = reader.u8().ok_or_else(short)?;
    let _checksum = reader.u16().ok_or_else(short)?;
    let src: [u8; 4] = reader.array().ok_or_else(short)?;
    let dst: [u8; 4] = reader.array().ok_or_else(short)?;
    if header_len < 20 || total_len < header_len {
        return Err(ParseError::Malformed("IPv4 header length"));
    }
    let header = bytes.get(..header_len).ok_or_else(|| truncated("IPv4 options", header_len, bytes.len()))?;
    let end = if quoted { total_len.min(bytes.len()) } else { total_len };
    if end > bytes.len() {
        return Err(truncated("IPv4 packet", total_len, bytes.len()));
    }
    if fragment & 0x3fff != 0 {
        return Err(ParseError::Unsupported("IPv4 fragment"));
    }
    if verify {
        let mut sum = IncrementalSum::new();
        sum.push(header);
        if sum.finish() != 0 {
            return Err(ParseError::Checksum("IPv4 header"));
        }
    }
    let header = IpHeader {
        src: Ipv4Addr::from(src).into(),
        dst: Ipv4Addr::from(dst).into(),
        ttl,
        ecn: ecn(traffic_class),
        dont_fragment: fragment & 0x4000 != 0,
    };
    Ok(Parsed { header, protocol, payload: header_len..end.max(header_len) })
}

fn parse_v6(bytes: &[u8], quoted: bool) -> Result<Parsed, ParseError> {
    let short = || truncated("IPv6 header", 40, bytes.len());
    let mut reader = Reader::new(bytes);
    let first = reader.u32().ok_or_else(short)?;
    let payload_len = usize::from(reader.u16().ok_or_else(short)?);
    let mut protocol = reader.u8().ok_or_else(short)?;
    let ttl = reader.u8().ok_or_else(short)?;
    let src: [u8; 16] = reader.array().ok_or_else(short)?;
    let dst: [u8; 16] = reader.array().ok_or_else(short)?;
    let end = if quoted { (40 + payload_len).min(bytes.len()) } else { 40 + payload_len };
    if end > bytes.len() {
        return Err(truncated("IPv6 packet", end, bytes.len()));
    }
    let mut start = 40;
    // Hop-by-hop, routing, destination options: skipped (RFC 8200 §4).
    while matches!(protocol, 0 | 43 | 60) {
        let fixed =
            bytes.get(start..start + 2).ok_or_else(|| truncated("IPv6 extension", start + 2, bytes.len()))?;
        protocol = fixed[0];
        start += (usize::from(fixed[1]) + 1) * 8;
        if start > end {
            return Err(truncated("IPv6 extension", start, end));
        }
    }
    if protocol == 44 {
        return Err(ParseError::Unsupported("IPv6 fragment"));
    }
    let header = IpHeader {
        src: Ipv6Addr::from(src).into(),
        dst: Ipv6Addr::from(dst).into(),
        ttl,
        ecn: ecn((first >> 20) as u8),
        dont_fragment: true,
    };
    Ok(Parsed { header, protocol, payload: start..end })
}

/// Appends a header for `payload_len` bytes of `protocol`.
pub(super) fn emit(header: &IpHeader, protocol: u8, payload_len: usize, out: &mut Vec<u8>) {
    match (header.src, header.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let start = out.len();
            let fragment: u16 = if header.dont_fragment { 0x4000 } else { 0 };
            out.extend_from_slice(&[0x45, header.ecn as u8]);
            out.extend_from_slice(&((20 + payload_len) as u16).to_be_bytes());
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&fragment.to_be_bytes());
            out.extend_from_slice(&[header.ttl, protocol, 0, 0]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
            let mut sum = IncrementalSum::new();
            sum.push(&out[start..]);
            out[start + 10..start + 12].copy_from_slice(&sum.finish().to_be_bytes());
        }
        (src, dst) => {
            let octets = |addr| match addr {
                IpAddr::V4(addr) => Ipv4Addr::to_ipv6_mapped(&addr).octets(),
                IpAddr::V6(addr) => Ipv6Addr::octets(&addr),
            };
            out.extend_from_slice(&(6 << 28 | (header.ecn as u32) << 20).to_be_bytes());
            out.extend_from_slice(&(payload_len as u16).to_be_bytes());
            out.extend_from_slice(&[protocol, header.ttl]);
            out.extend_from_slice(&octets(src));
            out.extend_from_slice(&octets(dst));
        }
    }
}
