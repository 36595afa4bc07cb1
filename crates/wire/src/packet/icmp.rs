//! ICMP (RFC 792, RFC 1191) and ICMPv6 (RFC 4443) errors.

use alloc::vec::Vec;

use super::{Endpoint, FourTuple, IcmpMessage, IpHeader, ip, protocol};
use crate::reader::Reader;
use crate::{ParseError, SeqNumber};

/// Reads a message without its checksum.
pub(super) fn parse(bytes: &[u8], is_v6: bool) -> Result<IcmpMessage, ParseError> {
    let short = || ParseError::Truncated { what: "ICMP message", needed: 8, available: bytes.len() };
    let mut reader = Reader::new(bytes);
    let kind = reader.u8().ok_or_else(short)?;
    let code = reader.u8().ok_or_else(short)?;
    let _checksum = reader.u16().ok_or_else(short)?;
    let value = reader.u32().ok_or_else(short)?;
    let quoted = reader.rest();
    let (flow, seq) = parse_quoted(quoted)?;
    match (is_v6, kind, code) {
        (false, 3, 4) => Ok(IcmpMessage::PacketTooBig { mtu: value as u16, flow, seq }),
        (true, 2, _) => {
            Ok(IcmpMessage::PacketTooBig { mtu: u16::try_from(value).unwrap_or(u16::MAX), flow, seq })
        }
        (false, 3, code) => Ok(IcmpMessage::Unreachable { code, flow, seq }),
        (true, 1, code) => Ok(IcmpMessage::Unreachable { code: from_v6(code), flow, seq }),
        _ => Err(ParseError::Unsupported("ICMP type")),
    }
}

fn parse_quoted(bytes: &[u8]) -> Result<(FourTuple, SeqNumber), ParseError> {
    let parsed = ip::parse(bytes, false, true)?;
    let mut reader = Reader::new(bytes.get(parsed.payload).unwrap_or_default());
    let short = || ParseError::Truncated { what: "quoted packet", needed: 8, available: 0 };
    let (src, dst) = (reader.u16().ok_or_else(short)?, reader.u16().ok_or_else(short)?);
    let seq = SeqNumber(reader.u32().ok_or_else(short)?);
    let (local, remote) = (Endpoint::new(parsed.header.src, src), Endpoint::new(parsed.header.dst, dst));
    Ok((FourTuple { local, remote }, seq))
}

/// ICMPv6 codes (RFC 4443 §3.1) as the ICMPv4 codes of the same meaning.
fn from_v6(code: u8) -> u8 {
    match code {
        1 | 5 | 6 => 13,
        3 => 1,
        4 => 3,
        _ => 0,
    }
}

fn to_v6(code: u8) -> u8 {
    match code {
        13 => 1,
        1 => 3,
        3 => 4,
        _ => 0,
    }
}

/// Appends a message, its checksum zero.
pub(super) fn emit(message: &IcmpMessage, is_v6: bool, out: &mut Vec<u8>) {
    let (IcmpMessage::PacketTooBig { flow, seq, .. } | IcmpMessage::Unreachable { flow, seq, .. }) = message;
    let (kind, code, value) = match (message, is_v6) {
        (IcmpMessage::PacketTooBig { mtu, .. }, false) => (3, 4, u32::from(*mtu)),
        (IcmpMessage::PacketTooBig { mtu, .. }, true) => (2, 0, u32::from(*mtu)),
        (IcmpMessage::Unreachable { code, .. }, false) => (3, *code, 0),
        (IcmpMessage::Unreachable { code, .. }, true) => (1, to_v6(*code), 0),
    };
    out.extend_from_slice(&[kind, code, 0, 0]);
    out.extend_from_slice(&value.to_be_bytes());
    ip::emit(&IpHeader::new(flow.local.addr, flow.remote.addr), protocol::TCP, 8, out);
    out.extend_from_slice(&flow.local.port.to_be_bytes());
    out.extend_from_slice(&flow.remote.port.to_be_bytes());
    out.extend_from_slice(&seq.0.to_be_bytes());
}
