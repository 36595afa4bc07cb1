use core::net::{IpAddr, Ipv6Addr};
use core::ops::Range;

use bytes::{Buf, Bytes};

use super::ip::{self, Extent};
use super::{Datagram, IpHeader, Packet, Segment, TcpFlags, Transport, icmp, protocol};
use crate::checksum::{Checksums, pseudo_header};
use crate::{Options, ParseError, Payload, SeqNumber};

const TCP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;

impl Packet {
    /// Reads an IP packet and verifies its checksums. The payload is a slice of `bytes`, not a copy; bytes
    /// after the length that the IP header names (padding of a link layer) are ignored.
    ///
    /// # Errors
    /// What makes the packet unreadable; see [`ParseError`]. Malformed TCP options do not
    /// ([`Options::parse_lenient`]).
    pub fn parse(bytes: Bytes) -> Result<Self, ParseError> {
        Self::parse_with(bytes, Checksums::Verify)
    }

    /// As [`Packet::parse`], with a choice about checksums.
    ///
    /// # Errors
    /// As for [`Packet::parse`].
    pub fn parse_with(bytes: Bytes, checksums: Checksums) -> Result<Self, ParseError> {
        let parsed = ip::parse(&bytes, Extent::Whole(checksums))?;
        let (ip, range) = (parsed.header, parsed.transport);
        let transport = bytes.get(range.clone()).unwrap_or_default();
        let transport = match parsed.protocol {
            protocol::TCP => Transport::Tcp(parse_tcp(&ip, bytes, range, checksums)?),
            protocol::UDP => Transport::Udp(parse_udp(&ip, bytes, range, checksums)?),
            protocol if protocol == ip::icmp_protocol(&ip) => {
                Transport::Icmp(icmp::parse(&ip, transport, checksums)?)
            }
            _ => return Err(ParseError::Unsupported("transport protocol")),
        };
        Ok(Self { ip, transport })
    }
}

impl Segment {
    /// Reads a TCP header with its options, and takes the rest for payload: for encapsulations that have no IP header. The
    /// checksum field is not looked at.
    ///
    /// # Errors
    /// As for [`Packet::parse`].
    pub fn parse(bytes: Bytes) -> Result<Self, ParseError> {
        // Only a checksum would cover the addresses.
        let unspecified = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let range = 0..bytes.len();
        parse_tcp(&IpHeader::new(unspecified, unspecified), bytes, range, Checksums::Ignore)
    }
}

/// `range` of `bytes`, less `header_len` bytes at its start, without a copy.
fn payload(mut bytes: Bytes, range: Range<usize>, header_len: usize) -> Payload {
    bytes.truncate(range.end);
    bytes.advance((range.start + header_len).min(bytes.len()));
    bytes.into()
}

fn checksum_is_right(ip: &IpHeader, protocol: u8, transport: &[u8]) -> bool {
    let mut sum = pseudo_header(ip.src, ip.dst, protocol, transport.len());
    sum.push(transport);
    sum.finish() == 0
}

/// RFC 9293 §3.1.
fn parse_tcp(
    ip: &IpHeader,
    bytes: Bytes,
    range: Range<usize>,
    checksums: Checksums,
) -> Result<Segment, ParseError> {
    let transport = bytes.get(range.clone()).unwrap_or_default();
    let available = transport.len();
    let Some((&fixed, after)) = transport.split_first_chunk::<TCP_HEADER_BYTES>() else {
        return Err(ParseError::Truncated { what: "TCP header", needed: TCP_HEADER_BYTES, available });
    };
    let [s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, flags, w0, w1, _, _, u0, u1] = fixed;
    let header_len = usize::from(offset >> 4) * 4;
    let Some(options_len) = header_len.checked_sub(TCP_HEADER_BYTES) else {
        return Err(ParseError::Malformed("TCP data offset below 20 bytes"));
    };
    let Some(options) = after.get(..options_len) else {
        return Err(ParseError::Truncated { what: "TCP header", needed: header_len, available });
    };
    if checksums == Checksums::Verify && !checksum_is_right(ip, protocol::TCP, transport) {
        return Err(ParseError::Checksum("TCP"));
    }
    let flags = TcpFlags(flags);
    let ack = if flags.ack() { u32::from_be_bytes([a0, a1, a2, a3]) } else { 0 };
    Ok(Segment {
        src_port: u16::from_be_bytes([s0, s1]),
        dst_port: u16::from_be_bytes([d0, d1]),
        seq: SeqNumber(u32::from_be_bytes([q0, q1, q2, q3])),
        ack: SeqNumber(ack),
        flags,
        window: u16::from_be_bytes([w0, w1]),
        urgent: u16::from_be_bytes([u0, u1]),
        options: Options::parse_lenient(options),
        payload: payload(bytes, range, header_len),
        segment_size: 0,
    })
}

/// RFC 768; over IPv6, RFC 8200 §8.1.
fn parse_udp(
    ip: &IpHeader,
    bytes: Bytes,
    range: Range<usize>,
    checksums: Checksums,
) -> Result<Datagram, ParseError> {
    let transport = bytes.get(range.clone()).unwrap_or_default();
    let available = transport.len();
    let Some(&[s0, s1, d0, d1, l0, l1, c0, c1]) = transport.first_chunk::<UDP_HEADER_BYTES>() else {
        return Err(ParseError::Truncated { what: "UDP header", needed: UDP_HEADER_BYTES, available });
    };
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    if len < UDP_HEADER_BYTES {
        return Err(ParseError::Malformed("UDP length below 8 bytes"));
    }
    let Some(datagram) = transport.get(..len) else {
        return Err(ParseError::Truncated { what: "UDP datagram", needed: len, available });
    };
    // Zero says that there is no checksum, which IPv6 does not allow.
    let has_checksum = [c0, c1] != [0, 0] || ip.src.is_ipv6();
    if checksums == Checksums::Verify
        && has_checksum
        && ([c0, c1] == [0, 0] || !checksum_is_right(ip, protocol::UDP, datagram))
    {
        return Err(ParseError::Checksum("UDP"));
    }
    Ok(Datagram {
        src_port: u16::from_be_bytes([s0, s1]),
        dst_port: u16::from_be_bytes([d0, d1]),
        payload: payload(bytes, range.start..range.start + len, UDP_HEADER_BYTES),
    })
}
