//! The Error TLV: why there is no connection (RFC 8803 §6.2.8).

use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::cookie::{Cookie, CookieError};
use super::options::OptionKinds;
use super::tlv;
use crate::failure::{ConnectFailure, UpstreamFailure};

/// What a converter says instead of connecting. Display is one line for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorTlv {
    /// It speaks other versions only.
    #[error("the converter speaks other versions of Convert than this end: {0:?}")]
    UnsupportedVersion(Vec<u8>),
    /// The message could not be read. Its octets come back.
    #[error("the converter can't read the message")]
    MalformedMessage(Bytes),
    /// The message has something that the converter does not know, or not from a client. Its octets come back.
    #[error("the converter does not know what the message asks for")]
    UnsupportedMessage(Bytes),
    /// The client has to show a cookie, which mostly is given here.
    #[error("the converter wants a cookie to be shown")]
    MissingCookie(Option<Cookie>),
    /// The client may not have this connection, or its cookie is not valid.
    #[error("the converter does not allow this connection")]
    NotAuthorized,
    /// These TCP options can't be sent to the server.
    #[error("the converter can't send these TCP options: {0}")]
    UnsupportedTcpOption(OptionKinds),
    /// The converter is full.
    #[error("the converter has as many connections as it may have")]
    ResourceExceeded {
        /// Seconds that the client should wait. Zero stands for 30 at least.
        delay_s: u8,
    },
    /// The converter does not get packets through.
    #[error("the converter's own network fails")]
    NetworkFailure {
        /// Seconds that the client should wait. Zero stands for 30 at least.
        delay_s: u8,
    },
    /// The server answered with RST.
    #[error("the server refuses the connection")]
    ConnectionReset,
    /// An ICMP message came back.
    #[error("the server is unreachable (ICMP code {icmp_code})")]
    DestinationUnreachable {
        /// The code in that message.
        icmp_code: u8,
    },
    /// A code without a name.
    #[error("the converter refuses with error code {code}, which has no name here")]
    Other {
        /// The code.
        code: u8,
        /// What stands behind it, with padding.
        value: Bytes,
    },
}

const UNSUPPORTED_VERSION: u8 = 0;
const MALFORMED_MESSAGE: u8 = 1;
const UNSUPPORTED_MESSAGE: u8 = 2;
const MISSING_COOKIE: u8 = 3;
const NOT_AUTHORIZED: u8 = 32;
const UNSUPPORTED_TCP_OPTION: u8 = 33;
const RESOURCE_EXCEEDED: u8 = 64;
const NETWORK_FAILURE: u8 = 65;
const CONNECTION_RESET: u8 = 96;
const DESTINATION_UNREACHABLE: u8 = 97;

/// Octets of Type, Length and Error Code.
const HEAD: usize = 3;

/// What a client waits where a converter names no time.
const LEAST_DEFAULT_DELAY: Duration = Duration::from_secs(30);

impl ErrorTlv {
    /// The error code.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::UnsupportedVersion(_) => UNSUPPORTED_VERSION,
            Self::MalformedMessage(_) => MALFORMED_MESSAGE,
            Self::UnsupportedMessage(_) => UNSUPPORTED_MESSAGE,
            Self::MissingCookie(_) => MISSING_COOKIE,
            Self::NotAuthorized => NOT_AUTHORIZED,
            Self::UnsupportedTcpOption(_) => UNSUPPORTED_TCP_OPTION,
            Self::ResourceExceeded { .. } => RESOURCE_EXCEEDED,
            Self::NetworkFailure { .. } => NETWORK_FAILURE,
            Self::ConnectionReset => CONNECTION_RESET,
            Self::DestinationUnreachable { .. } => DESTINATION_UNREACHABLE,
            Self::Other { code, .. } => *code,
        }
    }

    /// How long the client should leave this converter alone, if that is what the error means.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        match self {
            Self::ResourceExceeded { delay_s: 0 } | Self::NetworkFailure { delay_s: 0 } => {
                Some(LEAST_DEFAULT_DELAY)
            }
            Self::ResourceExceeded { delay_s } | Self::NetworkFailure { delay_s } => {
                Some(Duration::from_secs((*delay_s).into()))
            }
            _ => None,
        }
    }

    /// What it means for who wants to reach this server.
    #[must_use]
    pub fn failure(&self, server: IpAddr) -> ConnectFailure {
        let of_converter = |failure| ConnectFailure::Upstream(failure);
        match self {
            Self::NotAuthorized => of_converter(UpstreamFailure::NotAllowed),
            Self::ResourceExceeded { .. } | Self::NetworkFailure { .. } => {
                of_converter(UpstreamFailure::Full)
            }
            Self::UnsupportedVersion(_)
            | Self::MalformedMessage(_)
            | Self::UnsupportedMessage(_)
            | Self::MissingCookie(_)
            | Self::UnsupportedTcpOption(_)
            | Self::Other { .. } => of_converter(UpstreamFailure::Unsupported),
            Self::ConnectionReset => ConnectFailure::Refused,
            // Ports are codes of their own: 3 of ICMP, and 4 of ICMPv6 (RFC 792, RFC 4443).
            Self::DestinationUnreachable { icmp_code } => match (server.to_canonical(), icmp_code) {
                (_, 0) => ConnectFailure::NetworkUnreachable,
                (IpAddr::V4(_), 3) | (IpAddr::V6(_), 4) => ConnectFailure::Refused,
                _ => ConnectFailure::HostUnreachable,
            },
        }
    }

    pub(super) fn parse(value: &[u8]) -> Result<Self, CookieError> {
        let (code, value) = value.split_first().map_or((u8::MAX, value), |(code, value)| (*code, value));
        let (first, aligned) = value.split_first().map_or((0, value), |(first, aligned)| (*first, aligned));
        Ok(match code {
            UNSUPPORTED_VERSION => {
                Self::UnsupportedVersion(value.iter().copied().filter(|version| *version != 0).collect())
            }
            MALFORMED_MESSAGE => Self::MalformedMessage(Bytes::copy_from_slice(aligned)),
            UNSUPPORTED_MESSAGE => Self::UnsupportedMessage(Bytes::copy_from_slice(aligned)),
            MISSING_COOKIE if aligned.is_empty() => Self::MissingCookie(None),
            MISSING_COOKIE => Self::MissingCookie(Some(Cookie::new(aligned)?)),
            NOT_AUTHORIZED => Self::NotAuthorized,
            UNSUPPORTED_TCP_OPTION => Self::UnsupportedTcpOption(OptionKinds::parse(value)),
            RESOURCE_EXCEEDED => Self::ResourceExceeded { delay_s: first },
            NETWORK_FAILURE => Self::NetworkFailure { delay_s: first },
            CONNECTION_RESET => Self::ConnectionReset,
            DESTINATION_UNREACHABLE => Self::DestinationUnreachable { icmp_code: first },
            code => Self::Other { code, value: Bytes::copy_from_slice(value) },
        })
    }

    /// Writes it. What is longer than the room, a multiple of four octets, is cut, which can only be an echo: it is there for people.
    pub(super) fn write(&self, out: &mut BytesMut, room: usize) {
        let value: &[&[u8]] = match self {
            Self::UnsupportedVersion(versions) => &[versions],
            // An octet of zero keeps the echo aligned as it was, and likewise the cookie.
            Self::MalformedMessage(echo) | Self::UnsupportedMessage(echo) => &[&[0], echo],
            Self::MissingCookie(cookie) => {
                &[&[0], cookie.as_ref().map(Cookie::as_octets).unwrap_or_default()]
            }
            Self::NotAuthorized | Self::ConnectionReset => &[&[0]],
            Self::UnsupportedTcpOption(kinds) => &[&kinds.to_octets()],
            Self::ResourceExceeded { delay_s: octet }
            | Self::NetworkFailure { delay_s: octet }
            | Self::DestinationUnreachable { icmp_code: octet } => &[&[*octet]],
            Self::Other { value, .. } => &[value],
        };
        let mut value = value.concat();
        value.truncate(room.saturating_sub(HEAD));
        tlv::write(out, tlv::ERROR, &[&[self.code()], &value]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::OptionKind;

    #[test]
    fn each_error_is_written_as_the_rfc_has_it() {
        let echo = Bytes::from_static(&[1, 2, 0x22, 0x63, 0, 1, 0, 0]);
        let cookie = Cookie::new(&[9; 8]).expect("short");
        let kinds = [34, 30].map(OptionKind).into_iter().collect();
        let other = Bytes::from_static(&[1, 2, 3, 4, 0]);
        for (error, octets) in [
            (ErrorTlv::UnsupportedVersion(vec![1]), &[30, 1, 0, 1][..]),
            (ErrorTlv::UnsupportedVersion(vec![3, 2]), &[30, 2, 0, 3, 2, 0, 0, 0]),
            (ErrorTlv::MalformedMessage(echo.clone()), &[30, 3, 1, 0, 1, 2, 0x22, 0x63, 0, 1, 0, 0]),
            (ErrorTlv::UnsupportedMessage(echo), &[30, 3, 2, 0, 1, 2, 0x22, 0x63, 0, 1, 0, 0]),
            (ErrorTlv::MissingCookie(Some(cookie)), &[30, 3, 3, 0, 9, 9, 9, 9, 9, 9, 9, 9]),
            (ErrorTlv::MissingCookie(None), &[30, 1, 3, 0]),
            (ErrorTlv::NotAuthorized, &[30, 1, 32, 0]),
            (ErrorTlv::UnsupportedTcpOption(kinds), &[30, 2, 33, 30, 34, 0, 0, 0]),
            (ErrorTlv::ResourceExceeded { delay_s: 20 }, &[30, 1, 64, 20]),
            (ErrorTlv::NetworkFailure { delay_s: 0 }, &[30, 1, 65, 0]),
            (ErrorTlv::ConnectionReset, &[30, 1, 96, 0]),
            (ErrorTlv::DestinationUnreachable { icmp_code: 3 }, &[30, 1, 97, 3]),
            (ErrorTlv::Other { code: 200, value: other }, &[30, 2, 200, 1, 2, 3, 4, 0]),
        ] {
            let mut out = BytesMut::new();
            error.write(&mut out, 1016);
            assert_eq!(out[..], *octets, "{error}");
            assert_eq!(ErrorTlv::parse(&octets[2..]), Ok(error));
        }
    }

    #[test]
    fn a_converter_is_left_alone_as_long_as_it_says() {
        assert_eq!(ErrorTlv::ResourceExceeded { delay_s: 7 }.delay(), Some(Duration::from_secs(7)));
        assert_eq!(ErrorTlv::NetworkFailure { delay_s: 0 }.delay(), Some(Duration::from_secs(30)));
        assert_eq!(ErrorTlv::ConnectionReset.delay(), None);
    }

    #[test]
    fn icmp_codes_are_of_their_family() {
        let failure = |icmp_code, server: &str| {
            ErrorTlv::DestinationUnreachable { icmp_code }.failure(server.parse().expect("an address"))
        };
        for (code, v4, v6) in [
            (0, ConnectFailure::NetworkUnreachable, ConnectFailure::NetworkUnreachable),
            (1, ConnectFailure::HostUnreachable, ConnectFailure::HostUnreachable),
            (3, ConnectFailure::Refused, ConnectFailure::HostUnreachable),
            (4, ConnectFailure::HostUnreachable, ConnectFailure::Refused),
            (200, ConnectFailure::HostUnreachable, ConnectFailure::HostUnreachable),
        ] {
            let found = [failure(code, "192.0.2.1"), failure(code, "::ffff:192.0.2.1")];
            assert_eq!((found, failure(code, "2001:db8::1")), ([v4; 2], v6), "{code}");
        }
    }

    #[test]
    fn an_echo_is_cut_to_the_room_that_is_left() {
        let mut out = BytesMut::new();
        ErrorTlv::MalformedMessage(Bytes::from_static(&[5; 1020])).write(&mut out, 16);
        assert_eq!(out[..], [30, 4, 1, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5]);
    }
}
