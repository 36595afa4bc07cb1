//! Datagrams between a client and the proxy: a header with an address before each (RFC 1928 §7).

use std::net::SocketAddr;

use super::address;
use crate::target::Target;

/// Two reserved octets and the number of the fragment.
const BEFORE_ADDRESS: usize = 3;

/// A client's datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Where it goes.
    pub target: Target,
    /// What goes there, where it lay.
    pub payload: &'a [u8],
}

/// Opens a client's datagrams, and counts those that it drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    fragments: u64,
    malformed: u64,
}

impl Datagrams {
    /// Reads the header. Nothing is given back for fragments, which a proxy need not put together and which no client is known to send, and for
    /// what has no address to go to.
    #[must_use]
    pub fn open<'a>(&mut self, datagram: &'a [u8]) -> Option<Datagram<'a>> {
        if datagram.get(2).is_some_and(|fragment| *fragment != 0) {
            self.fragments += 1;
            return None;
        }
        let address = datagram.get(BEFORE_ADDRESS..).unwrap_or_default();
        match address::parse(address) {
            Ok(Some((target, length))) if target.port != 0 => {
                Some(Datagram { target, payload: &address[length..] })
            }
            _ => {
                self.malformed += 1;
                None
            }
        }
    }

    /// How many were dropped because they were fragments.
    #[must_use]
    pub fn fragments(&self) -> u64 {
        self.fragments
    }

    /// How many were dropped because their header was none.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed
    }
}

/// What goes before a datagram for the client. It is apart from the payload, so that a gathering send, or some room before the payload, spares a
/// copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    bytes: [u8; Self::LONGEST],
    length: usize,
}

impl DatagramHeader {
    /// Octets of the longest.
    pub const LONGEST: usize = BEFORE_ADDRESS + address::LONGEST_EMITTED;

    /// For a datagram that came from here.
    #[must_use]
    pub fn new(source: SocketAddr) -> Self {
        let mut address = [0; address::LONGEST_EMITTED];
        let length = BEFORE_ADDRESS + address::emit(source, &mut address);
        let mut bytes = [0; Self::LONGEST];
        bytes[BEFORE_ADDRESS..].copy_from_slice(&address);
        Self { bytes, length }
    }

    /// As it stands before the payload.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_datagram_is_opened_where_it_lies() {
        let mut datagrams = Datagrams::default();
        for (bytes, target) in [
            (&b"\0\0\0\x01\xc0\0\x02\x01\0\x35query"[..], "192.0.2.1:53"),
            (b"\0\0\0\x03\x0bexample.org\x01\xbbquery", "example.org:443"),
            (b"\0\0\0\x03\x07::1.2.3\0\x01query", ""),
            (b"\0\0\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\0\x35query", "[2001:db8::1]:53"),
        ] {
            let opened = datagrams.open(bytes);
            assert_eq!(opened.as_ref().map_or(String::new(), |datagram| datagram.target.to_string()), target);
            let Some(datagram) = opened else { continue };
            assert_eq!(datagram.payload, b"query");
            assert_eq!(datagram.payload.as_ptr_range().end, bytes.as_ptr_range().end);
            let header = bytes.len() - datagram.payload.len();
            for end in 0..header {
                assert_eq!(datagrams.open(&bytes[..end]), None, "{end} octets");
            }
            assert_eq!(datagrams.open(&bytes[..header]).map(|datagram| datagram.payload.len()), Some(0));
        }
    }

    #[test]
    fn fragments_and_what_has_no_target_are_dropped_and_counted() {
        let mut datagrams = Datagrams::default();
        for bytes in [&b"\0\0\x01\x01\xc0\0\x02\x01\0\x35query"[..], b"\0\0\x80"] {
            assert_eq!(datagrams.open(bytes), None);
        }
        assert_eq!((datagrams.fragments(), datagrams.malformed()), (2, 0));
        for bytes in [
            &b""[..],
            b"\0\0\0\x02\xc0\0\x02\x01\0\x35query",
            b"\0\0\0\x01\xc0\0\x02\x01\0\0query",
            b"\0\0\0\x03\0\0\x35query",
        ] {
            assert_eq!(datagrams.open(bytes), None);
        }
        assert_eq!((datagrams.fragments(), datagrams.malformed()), (2, 4));
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(ip: std::net::IpAddr, port in 1u16.., payload: Vec<u8>) {
            let source = SocketAddr::new(ip, port);
            let datagram = [DatagramHeader::new(source).as_bytes(), &payload].concat();
            let mut datagrams = Datagrams::default();
            prop_assert_eq!(datagrams.open(&datagram), Some(Datagram { target: source.into(), payload: &payload }));
        }

        #[test]
        fn any_datagram_is_opened_or_counted(bytes: Vec<u8>) {
            let mut datagrams = Datagrams::default();
            let dropped = u64::from(datagrams.open(&bytes).is_none());
            prop_assert_eq!(datagrams.fragments() + datagrams.malformed(), dropped);
        }
    }
}
