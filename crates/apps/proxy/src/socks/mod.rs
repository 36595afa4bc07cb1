//! SOCKS version 5 (RFC 1928), with user names and passwords (RFC 1929): the proxy's side.

mod address;
mod datagram;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod negotiation;

pub use datagram::{Datagram, DatagramHeader, Datagrams};
pub use negotiation::Socks5;

/// The one version of the protocol that has names of hosts, IPv6 and datagrams.
const VERSION: u8 = 5;

/// What a reply says of a request (RFC 1928 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    TtlExpired = 6,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}
