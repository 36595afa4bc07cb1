//! What is said first on a connection between the two ends: whom it is for, and how that went.
//!
//! The caller says `4` or `6`, then the destination's address and port, and the source's. The answer is one byte.

use std::net::IpAddr;

use polypath_wire::{Endpoint, FourTuple};

/// Address and port, twice, and the family.
const MOST_BYTES: usize = 1 + 2 * 18;

/// A flow, as its destination sees it.
pub(super) fn write(flow: &FourTuple) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MOST_BYTES);
    bytes.push(if flow.local.addr.is_ipv4() { 4 } else { 6 });
    for end in [flow.local, flow.remote] {
        match end.addr {
            IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
        }
        bytes.extend_from_slice(&end.port.to_be_bytes());
    }
    bytes
}

/// What was read so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The flow, as its source sees it: `local` called `remote`. And how long the call was.
    Whole(FourTuple, usize),
    TooShort,
    Malformed,
}

pub(super) fn read(bytes: &[u8]) -> Read {
    let Some((&family, rest)) = bytes.split_first() else { return Read::TooShort };
    let address_bytes = match family {
        4 => 4,
        6 => 16,
        _ => return Read::Malformed,
    };
    let end_bytes = address_bytes + 2;
    let ends: Option<Vec<Endpoint>> =
        [0, end_bytes].iter().map(|&at| endpoint(rest.get(at..at + end_bytes)?)).collect();
    match ends.as_deref() {
        Some(&[destination, source]) if destination.port != 0 && source.port != 0 => {
            Read::Whole(FourTuple { local: source, remote: destination }, 1 + 2 * end_bytes)
        }
        Some(_) => Read::Malformed,
        None => Read::TooShort,
    }
}

fn endpoint(bytes: &[u8]) -> Option<Endpoint> {
    let (address, port) = bytes.split_last_chunk::<2>()?;
    let address = match address.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
    };
    Some(Endpoint::new(address, u16::from_be_bytes(*port)))
}

/// How a call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Connected,
    Refused,
    Unreachable,
}

impl Answer {
    pub(super) const fn to_byte(self) -> u8 {
        self as u8
    }

    pub(super) const fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Connected,
            1 => Self::Refused,
            _ => Self::Unreachable,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_call_is_read_as_it_was_written() {
        for [destination, source] in [["10.0.0.2", "10.9.0.1"], ["2001:db8::2", "fd00::1"]] {
            let end = |address: &str, port| Endpoint::new(address.parse().unwrap(), port);
            let flow = FourTuple { local: end(destination, 443), remote: end(source, 40_000) };
            let bytes = write(&flow);
            assert_eq!(read(&bytes), Read::Whole(flow.reversed(), bytes.len()));
            for len in 0..bytes.len() {
                assert_eq!(read(&bytes[..len]), Read::TooShort);
            }
        }
        assert_eq!(read(&[5; 40]), Read::Malformed);
        assert_eq!(read(&[&[4][..], &[0; 12]].concat()), Read::Malformed);
    }

    #[test]
    fn answers_are_bytes() {
        for answer in [Answer::Connected, Answer::Refused, Answer::Unreachable] {
            assert_eq!(Answer::from_byte(answer.to_byte()), answer);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Read::Whole(_, len) = read(&bytes) {
                prop_assert!(len <= bytes.len());
            }
        }
    }
}
