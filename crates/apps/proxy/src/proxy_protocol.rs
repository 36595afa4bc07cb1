//! The PROXY protocol, versions 1 and 2: what a proxy says of a client before the client's first byte, so that the next one knows who it is.
//!
//! As <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt> has it. Whoever can say it can say anything: it is for the caller to believe it
//! of none but the networks that are configured, and to take nothing else from those.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use bytes::{Buf as _, Bytes, BytesMut};

/// What version 1 begins with.
const PREFIX: &[u8] = b"PROXY ";
/// Octets of the longest line of version 1, with its end.
const LONGEST_LINE: usize = 107;
/// What version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Octets of the signature, version and command, family and transport, and the length of what follows.
const FIXED: usize = 16;
/// Octets that may follow, of the 65535 that could: addresses need 216 at most, and an extension such as a certificate's name some hundred.
const LONGEST_REST: usize = 4096;

/// The two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyProtocolVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyHeader {
    /// The sender's own, such as a check of health, or a client's of whom nothing is said: the connection's own addresses hold.
    Local,
    /// A client's.
    Proxied {
        /// The client.
        source: SocketAddr,
        /// Where it connected to.
        destination: SocketAddr,
    },
}

/// Why something is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ProxyHeaderError {
    /// It begins like neither version.
    #[error("no header of the PROXY protocol, which is expected from this address")]
    Missing,
    /// A line that version 1 does not have.
    #[error("a header of the PROXY protocol, version 1, that is malformed")]
    Line,
    /// Version 2 with a version, command, family or transport that it does not have, or less than the addresses need.
    #[error("a header of the PROXY protocol, version 2, that is malformed")]
    Binary,
    /// It would be longer than is taken.
    #[error("a header of the PROXY protocol of more than {LONGEST_REST} octets")]
    TooLong,
}

impl ProxyHeader {
    /// Takes a header from the front; nothing while it is not whole. More than some 4 KB are never waited for.
    pub fn parse(input: &mut BytesMut) -> Result<Option<Self>, ProxyHeaderError> {
        let begins_with = |begin: &[u8]| input.iter().zip(begin).all(|(is, wanted)| is == wanted);
        let parsed = if begins_with(PREFIX) {
            parse_line(input)?
        } else if begins_with(SIGNATURE) {
            parse_binary(input)?
        } else {
            return Err(ProxyHeaderError::Missing);
        };
        Ok(parsed.map(|(header, length)| {
            input.advance(length);
            header
        }))
    }

    /// As it goes before the client's bytes.
    #[must_use]
    pub fn emit(&self, version: ProxyProtocolVersion) -> Bytes {
        match version {
            ProxyProtocolVersion::V1 => self.emit_line(),
            ProxyProtocolVersion::V2 => self.emit_binary(),
        }
    }

    /// Both addresses, if the connection is a client's.
    fn pair(&self) -> Option<Pair> {
        let Self::Proxied { source, destination } = self else { return None };
        let ports = (source.port(), destination.port());
        let mapped = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        Some(match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Pair::V4(source, destination, ports),
            (source, destination) => Pair::V6(mapped(source), mapped(destination), ports),
        })
    }

    fn emit_line(&self) -> Bytes {
        match self.pair() {
            None => Bytes::from_static(b"PROXY UNKNOWN\r\n"),
            Some(Pair::V4(source, destination, (from, to))) => {
                format!("PROXY TCP4 {source} {destination} {from} {to}\r\n").into()
            }
            Some(Pair::V6(source, destination, (from, to))) => {
                format!("PROXY TCP6 {source} {destination} {from} {to}\r\n").into()
            }
        }
    }

    fn emit_binary(&self) -> Bytes {
        let head = |command: u8, family: u8, length: u8| {
            let mut bytes = SIGNATURE.to_vec();
            bytes.extend([0x20 | command, family, 0, length]);
            bytes
        };
        let (mut bytes, (from, to)) = match self.pair() {
            None => return head(0, 0, 0).into(),
            Some(Pair::V4(source, destination, ports)) => {
                ([head(1, 0x11, 12), source.octets().into(), destination.octets().into()].concat(), ports)
            }
            Some(Pair::V6(source, destination, ports)) => {
                ([head(1, 0x21, 36), source.octets().into(), destination.octets().into()].concat(), ports)
            }
        };
        bytes.extend(from.to_be_bytes());
        bytes.extend(to.to_be_bytes());
        bytes.into()
    }
}

/// Source, destination, and the ports of both.
enum Pair {
    V4(Ipv4Addr, Ipv4Addr, (u16, u16)),
    V6(Ipv6Addr, Ipv6Addr, (u16, u16)),
}

fn proxied((source, from): (IpAddr, u16), (destination, to): (IpAddr, u16)) -> ProxyHeader {
    let address = |ip: IpAddr, port| SocketAddr::new(ip.to_canonical(), port);
    ProxyHeader::Proxied { source: address(source, from), destination: address(destination, to) }
}

/// Version 1, and its length.
fn parse_line(input: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ProxyHeaderError> {
    let within = &input[..input.len().min(LONGEST_LINE)];
    let Some(end) = within.windows(2).position(|end| end == b"\r\n") else {
        return if within.len() < LONGEST_LINE { Ok(None) } else { Err(ProxyHeaderError::Line) };
    };
    let line = std::str::from_utf8(&input[PREFIX.len()..end]).map_err(|_| ProxyHeaderError::Line)?;
    let mut words = line.split(' ');
    let header = match words.next() {
        // What follows is to be ignored.
        Some("UNKNOWN") => Some(ProxyHeader::Local),
        Some("TCP4") => addresses::<Ipv4Addr>(words),
        Some("TCP6") => addresses::<Ipv6Addr>(words),
        _ => None,
    };
    header.map(|header| Some((header, end + 2))).ok_or(ProxyHeaderError::Line)
}

fn addresses<'a, A: FromStr + Into<IpAddr>>(mut words: impl Iterator<Item = &'a str>) -> Option<ProxyHeader> {
    let source = words.next()?.parse::<A>().ok()?;
    let destination = words.next()?.parse::<A>().ok()?;
    let from = port(words.next()?)?;
    let to = port(words.next()?)?;
    words.next().is_none().then(|| proxied((source.into(), from), (destination.into(), to)))
}

/// A port, without zeros or a sign before it.
fn port(word: &str) -> Option<u16> {
    let port: u16 = word.parse().ok()?;
    (port.to_string() == word).then_some(port)
}

/// Version 2, and its length. What follows the addresses is left aside.
fn parse_binary(input: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ProxyHeaderError> {
    let Some((&fixed, rest)) = input.split_first_chunk::<FIXED>() else { return Ok(None) };
    let [.., command, family, high, low] = fixed;
    let is_proxied = match command {
        0x20 => false,
        0x21 => true,
        _ => return Err(ProxyHeaderError::Binary),
    };
    if family >> 4 > 3 || family & 0xf > 2 {
        return Err(ProxyHeaderError::Binary);
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > LONGEST_REST {
        return Err(ProxyHeaderError::TooLong);
    }
    let Some(rest) = rest.get(..length) else { return Ok(None) };
    let header = match family >> 4 {
        1 if is_proxied => binary_addresses::<4>(rest),
        2 if is_proxied => binary_addresses::<16>(rest),
        // Of sockets of UNIX, nothing is of use here.
        _ => Some(ProxyHeader::Local),
    };
    header.map(|header| Some((header, FIXED + length))).ok_or(ProxyHeaderError::Binary)
}

fn binary_addresses<const OCTETS: usize>(bytes: &[u8]) -> Option<ProxyHeader>
where
    IpAddr: From<[u8; OCTETS]>,
{
    let (&source, rest) = bytes.split_first_chunk::<OCTETS>()?;
    let (&destination, rest) = rest.split_first_chunk::<OCTETS>()?;
    let (&from, rest) = rest.split_first_chunk()?;
    let (&to, _) = rest.split_first_chunk()?;
    Some(proxied((source.into(), u16::from_be_bytes(from)), (destination.into(), u16::from_be_bytes(to))))
}

#[cfg(any(test, feature = "fuzzing"))]
#[path = "proxy_protocol_fuzzing.rs"]
pub(crate) mod fuzzing;

#[cfg(test)]
#[path = "proxy_protocol_tests.rs"]
mod tests;
