//! Bytes to packets.

use bytes::Bytes;

use super::{Datagram, Packet, Segment, TcpFlags, Transport, icmp, ip, protocol};
use crate::checksum::pseudo_header;
use crate::reader::Reader;
use crate::{Options, ParseError, SeqNumber};

/// Whether to look at checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Wrong ones are an error.
    Verify,
    /// Somebody else has verified them, or will fill them in.
    Ignore,
}

impl Packet {
    /// Reads a packet and verifies its checksums. The payload shares the storage of `bytes`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: Bytes) -> Result<Self, ParseError> {
        Self::parse_with(bytes, Checksums::Verify)
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_with(bytes: Bytes, checksums: Checksums) -> Result<Self, ParseError> {
        let verify = checksums == Checksums::Verify;
        let parsed = ip::parse(&bytes, verify, false)?;
        let (header, number) = (parsed.header, parsed.protocol);
        let body = bytes.slice(parsed.payload);
        let sum_is_right = |with_pseudo_header: bool| {
            let mut sum = if with_pseudo_header {
                pseudo_header(header.src, header.dst, number, body.len() as u32)
            } else {
                crate::IncrementalSum::new()
            };
            sum.push(&body);
            sum.finish() == 0
        };
        let transport = match number {
            protocol::TCP => {
                if verify && !sum_is_right(true) {
                    return Err(ParseError::Checksum("TCP"));
                }
                Transport::Tcp(parse_tcp(&body)?)
            }
            protocol::UDP => {
                let present = body.get(6..8).is_some_and(|field| field != [0, 0]);
                if verify && present && !sum_is_right(true) {
                    return Err(ParseError::Checksum("UDP"));
                }
                Transport::Udp(parse_udp(&body)?)
            }
            protocol::ICMP | protocol::ICMPV6 => {
                let is_v6 = number == protocol::ICMPV6;
                if is_v6 != header.src.is_ipv6() {
                    return Err(ParseError::Malformed("ICMP of the other IP version"));
                }
                if verify && !sum_is_right(is_v6) {
                    return Err(ParseError::Checksum("ICMP"));
                }
                Transport::Icmp(icmp::parse(&body, is_v6)?)
            }
            _ => return Err(ParseError::Unsupported("transport protocol")),
        };
        Ok(Self { ip: header, transport })
    }
}

fn parse_tcp(body: &Bytes) -> Result<Segment, ParseError> {
    let short = || ParseError::Truncated { what: "TCP header", needed: 20, available: body.len() };
    let mut reader = Reader::new(body);
    let src_port = reader.u16().ok_or_else(short)?;
    let dst_port = reader.u16().ok_or_else(short)?;
    let seq = SeqNumber(reader.u32().ok_or_else(short)?);
    let ack = SeqNumber(reader.u32().ok_or_else(short)?);
    let header_len = usize::from(reader.u8().ok_or_else(short)? >> 4) * 4;
    let flags = TcpFlags(reader.u8().ok_or_else(short)?);
    let window = reader.u16().ok_or_else(short)?;
    let _checksum = reader.u16().ok_or_else(short)?;
    let urgent = reader.u16().ok_or_else(short)?;
    if header_len < 20 {
        return Err(ParseError::Malformed("TCP data offset"));
    }
    let options = body.get(20..header_len).ok_or(ParseError::Truncated {
        what: "TCP options",
        needed: header_len,
        available: body.len(),
    })?;
    Ok(Segment {
        src_port,
        dst_port,
        seq,
        ack: if flags.ack() { ack } else { SeqNumber(0) },
        flags,
        window,
        urgent,
        options: Options::parse_lenient(options),
        payload: body.slice(header_len..).into(),
        segment_size: 0,
    })
}

fn parse_udp(body: &Bytes) -> Result<Datagram, ParseError> {
    let short = || ParseError::Truncated { what: "UDP header", needed: 8, available: body.len() };
    let mut reader = Reader::new(body);
    let src_port = reader.u16().ok_or_else(short)?;
    let dst_port = reader.u16().ok_or_else(short)?;
    let len = usize::from(reader.u16().ok_or_else(short)?);
    if len < 8 || len > body.len() {
        return Err(ParseError::Malformed("UDP length"));
    }
    Ok(Datagram { src_port, dst_port, payload: body.slice(8..len).into() })
}
