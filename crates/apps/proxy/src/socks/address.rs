//! Addresses in requests, replies and datagrams (RFC 1928 §5), each with a port behind it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::target::{Host, Target};

const IPV4: u8 = 1;
const DOMAIN: u8 = 3;
const IPV6: u8 = 4;

/// Octets of the longest that is emitted: type, IPv6 address, port.
pub(super) const LONGEST_EMITTED: usize = 1 + 16 + 2;

/// Why there is no address, and never will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressError {
    /// The type is none of the three, so that its length is not known either.
    Type,
    /// The name is none.
    Name,
}

/// Reads type, address and port from the front, and how many octets they are; nothing while they are not whole.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Target, usize)>, AddressError> {
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
    let (before, length) = match kind {
        IPV4 => (1, 4),
        IPV6 => (1, 16),
        DOMAIN => match rest.first() {
            Some(&length) => (2, usize::from(length)),
            None => return Ok(None),
        },
        _ => return Err(AddressError::Type),
    };
    let end = before + length;
    let Some(&[high, low]) = bytes.get(end..end + 2) else { return Ok(None) };
    let host = host(kind, &bytes[before..end]).ok_or(AddressError::Name)?;
    Ok(Some((Target { host, port: u16::from_be_bytes([high, low]) }, end + 2)))
}

fn host(kind: u8, octets: &[u8]) -> Option<Host> {
    match kind {
        IPV4 => <[u8; 4]>::try_from(octets).ok().map(|octets| IpAddr::V4(Ipv4Addr::from(octets)).into()),
        IPV6 => <[u8; 16]>::try_from(octets).ok().map(|octets| IpAddr::V6(Ipv6Addr::from(octets)).into()),
        // Clients that know one form only write addresses as names.
        _ => std::str::from_utf8(octets).ok()?.parse().ok(),
    }
}

/// Puts type, address and port into `output`, and says how many octets they are.
pub(super) fn emit(address: SocketAddr, output: &mut [u8; LONGEST_EMITTED]) -> usize {
    let end = match address.ip().to_canonical() {
        IpAddr::V4(v4) => {
            output[0] = IPV4;
            output[1..5].copy_from_slice(&v4.octets());
            5
        }
        IpAddr::V6(v6) => {
            output[0] = IPV6;
            output[1..17].copy_from_slice(&v6.octets());
            17
        }
    };
    output[end..end + 2].copy_from_slice(&address.port().to_be_bytes());
    end + 2
}
