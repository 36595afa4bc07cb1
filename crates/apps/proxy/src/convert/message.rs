//! One message: a fixed header, and each TLV at most once (RFC 8803 §6.1, §6.2).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::connect::{Connect, ConnectError};
use super::cookie::{Cookie, CookieError};
use super::error::ErrorTlv;
use super::extensions::SupportedExtensions;
use super::options::{TcpOptions, TcpOptionsError};
use super::tlv::{self, Tlv, WORD};

/// The version that is spoken here.
pub(super) const VERSION: u8 = 1;
/// What tells a message from other bytes.
const MAGIC_NUMBER: u16 = 0x2263;

/// Octets of the longest message, since one octet says its length in words.
pub const LONGEST_MESSAGE: usize = u8::MAX as usize * WORD;

/// What stands before the payload, in either direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// The Info TLV: the client wants to know which options are converted.
    pub(super) info: bool,
    /// The Connect TLV.
    pub(super) connect: Option<Connect>,
    /// The Extended TCP Header TLV: options of the server's SYN/ACK.
    pub(super) extended_tcp_header: Option<TcpOptions>,
    /// The Supported TCP Extensions TLV.
    pub(super) supported_extensions: Option<SupportedExtensions>,
    /// The Cookie TLV.
    pub(super) cookie: Option<Cookie>,
    /// The Error TLV.
    pub(super) error: Option<ErrorTlv>,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It is of another version.
    #[error("version {0} of Convert: expected 1")]
    Version(u8),
    /// It is of no version.
    #[error("no Convert message: expected the magic number 0x2263, not {0:#06x}")]
    MagicNumber(u16),
    /// It says that it has not even a header.
    #[error("a Convert message of no length")]
    NoLength,
    /// It is longer than the reader takes.
    #[error("a Convert message of {0} octets, which is longer than is taken here")]
    TooLong(usize),
    /// It is longer or shorter than its header says.
    #[error("a Convert message that is not as long as it says")]
    Length,
    /// A TLV of this type is longer or shorter than it can be.
    #[error("a TLV of type {0:#04x} whose length can't be")]
    TlvLength(u8),
    /// There is no such type.
    #[error("a TLV of type {0:#04x}, which is not known here")]
    UnknownTlv(u8),
    /// There are two of a type.
    #[error("more than one TLV of type {0:#04x}")]
    Repeated(u8),
    /// The Connect TLV is wrong.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The Extended TCP Header TLV is wrong.
    #[error("an Extended TCP Header TLV with {0}")]
    ExtendedTcpHeader(TcpOptionsError),
    /// A cookie is wrong.
    #[error(transparent)]
    Cookie(#[from] CookieError),
}

/// The fixed header, of which no more is kept than the length of all.
struct Header {
    octets: usize,
}

impl Header {
    const OCTETS: usize = 4;

    fn parse(octets: [u8; Self::OCTETS]) -> Result<Self, MessageError> {
        let [version, words, magic @ ..] = octets;
        // First, as another version might have something else behind it.
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        match u16::from_be_bytes(magic) {
            MAGIC_NUMBER if words == 0 => Err(MessageError::NoLength),
            MAGIC_NUMBER => Ok(Self { octets: usize::from(words) * WORD }),
            other => Err(MessageError::MagicNumber(other)),
        }
    }
}

/// Takes the octets of a message of at most `most` octets from the front of `input`, once all are there. Where the header is wrong, nothing is
/// taken.
pub(super) fn take(input: &mut BytesMut, most: usize) -> Result<Option<Bytes>, MessageError> {
    let Some(header) = input.first_chunk() else { return Ok(None) };
    let octets = Header::parse(*header)?.octets;
    if octets > most {
        return Err(MessageError::TooLong(octets));
    }
    Ok((input.len() >= octets).then(|| input.split_to(octets).freeze()))
}

impl Message {
    /// A message that says why there is no connection.
    #[must_use]
    pub(super) fn refusal(error: ErrorTlv) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    /// Reads the octets of one message, all of them.
    pub(super) fn parse(octets: &[u8]) -> Result<Self, MessageError> {
        let (header, mut rest) = octets.split_first_chunk().ok_or(MessageError::Length)?;
        if Header::parse(*header)?.octets != octets.len() {
            return Err(MessageError::Length);
        }
        let mut message = Self::default();
        while rest.has_remaining() {
            let (tlv, after) = tlv::split_first(rest).map_err(MessageError::TlvLength)?;
            message.handle_tlv(tlv)?;
            rest = after;
        }
        Ok(message)
    }

    fn handle_tlv(&mut self, Tlv { kind, value }: Tlv<'_>) -> Result<(), MessageError> {
        /// Octets before the options.
        const UNASSIGNED: usize = 2;
        let is_repeated = match kind {
            tlv::INFO if value.len() != UNASSIGNED => return Err(MessageError::TlvLength(kind)),
            tlv::INFO => std::mem::replace(&mut self.info, true),
            tlv::CONNECT => self.connect.replace(Connect::parse(value)?).is_some(),
            tlv::EXTENDED_TCP_HEADER => {
                let options = TcpOptions::copied(value.get(UNASSIGNED..).unwrap_or_default());
                let options = options.map_err(MessageError::ExtendedTcpHeader)?;
                self.extended_tcp_header.replace(options).is_some()
            }
            tlv::SUPPORTED_TCP_EXTENSIONS => {
                self.supported_extensions.replace(SupportedExtensions::parse(value)).is_some()
            }
            tlv::COOKIE => self.cookie.replace(Cookie::parse(value)?).is_some(),
            tlv::ERROR => self.error.replace(ErrorTlv::parse(value)?).is_some(),
            _ => return Err(MessageError::UnknownTlv(kind)),
        };
        if is_repeated { Err(MessageError::Repeated(kind)) } else { Ok(()) }
    }

    /// Its octets, which are at most [`LONGEST_MESSAGE`]. If there are more, an error's echo is cut.
    #[must_use]
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_slice(&[VERSION, 0]);
        out.put_u16(MAGIC_NUMBER);
        if self.info {
            tlv::write(&mut out, tlv::INFO, &[&[0, 0]]);
        }
        if let Some(connect) = &self.connect {
            connect.write(&mut out);
        }
        if let Some(options) = &self.extended_tcp_header {
            tlv::write(&mut out, tlv::EXTENDED_TCP_HEADER, &[&[0, 0], options.as_octets()]);
        }
        if let Some(supported) = &self.supported_extensions {
            supported.write(&mut out);
        }
        if let Some(cookie) = &self.cookie {
            cookie.write(&mut out);
        }
        if let Some(error) = &self.error {
            let room = LONGEST_MESSAGE - out.len();
            error.write(&mut out, room);
        }
        out[1] = u8::try_from(out.len() / WORD).unwrap_or(u8::MAX);
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{OptionKind, TcpOptions};

    /// A message of these TLVs.
    fn message(tlvs: &[&[u8]]) -> Vec<u8> {
        let tlvs = tlvs.concat();
        [&[1, u8::try_from(1 + tlvs.len() / 4).expect("short"), 0x22, 0x63], &tlvs[..]].concat()
    }

    const INFO: &[u8] = &[1, 1, 0, 0];
    const CONNECT: &[u8] = &[10, 5, 1, 187, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 7];
    const EXTENDED_TCP_HEADER: &[u8] = &[20, 3, 0, 0, 2, 4, 5, 180, 1, 1, 4, 2];
    const SUPPORTED: &[u8] = &[21, 2, 0, 0, 30, 0, 0, 0];
    const COOKIE: &[u8] = &[22, 2, 0, 0, 9, 8, 7, 6];
    const ERROR: &[u8] = &[30, 1, 32, 0];
    const ALL: [&[u8]; 6] = [INFO, CONNECT, EXTENDED_TCP_HEADER, SUPPORTED, COOKIE, ERROR];

    #[test]
    fn each_tlv_is_read_and_written() {
        let base = Message::default();
        let connect = Connect::new("192.0.2.7:443".parse().expect("an address")).expect("a server");
        let options = TcpOptions::new(&EXTENDED_TCP_HEADER[4..]).expect("options");
        let supported = SupportedExtensions::new([OptionKind::MULTIPATH_TCP]);
        let cookie = Cookie::new(&[9, 8, 7, 6]).expect("short");
        let all = Message {
            info: true,
            connect: Some(connect),
            extended_tcp_header: Some(options),
            supported_extensions: Some(supported),
            cookie: Some(cookie),
            error: Some(ErrorTlv::NotAuthorized),
        };
        let one = all.clone();
        for (octets, expected) in [
            (message(&[]), base.clone()),
            (message(&[INFO]), Message { info: true, ..base.clone() }),
            (message(&[CONNECT]), Message { connect: one.connect, ..base.clone() }),
            (
                message(&[EXTENDED_TCP_HEADER]),
                Message { extended_tcp_header: one.extended_tcp_header, ..base.clone() },
            ),
            (
                message(&[SUPPORTED]),
                Message { supported_extensions: one.supported_extensions, ..base.clone() },
            ),
            (message(&[COOKIE]), Message { cookie: one.cookie, ..base.clone() }),
            (message(&[ERROR]), Message { error: one.error, ..base }),
            (message(&ALL), all.clone()),
        ] {
            assert_eq!(Message::parse(&octets), Ok(expected.clone()));
            assert_eq!(expected.to_bytes()[..], octets[..]);
        }
        let mut turned = ALL;
        turned.reverse();
        assert_eq!(Message::parse(&message(&turned)), Ok(all), "no order is asked for");
    }

    #[test]
    fn a_tlv_comes_once() {
        for tlv in ALL {
            assert_eq!(Message::parse(&message(&[tlv, COOKIE, tlv])).map(|_| ()), {
                Err(MessageError::Repeated(if tlv == COOKIE { 22 } else { tlv[0] }))
            });
        }
    }

    #[test]
    fn types_that_are_not_known_are_refused() {
        for kind in (0..=u8::MAX).filter(|kind| ![1, 10, 20, 21, 22, 30].contains(kind)) {
            let octets = message(&[CONNECT, &[kind, 1, 0, 0]]);
            assert_eq!(Message::parse(&octets), Err(MessageError::UnknownTlv(kind)));
        }
    }

    #[test]
    fn headers_that_can_t_be_are_refused() {
        for (header, error) in [
            ([0, 1, 0x22, 0x63], MessageError::Version(0)),
            ([2, 1, 0, 0], MessageError::Version(2)),
            (*b"GET ", MessageError::Version(b'G')),
            ([1, 1, 0, 0], MessageError::MagicNumber(0)),
            ([1, 1, 0x63, 0x22], MessageError::MagicNumber(0x6322)),
            ([1, 0, 0x22, 0x63], MessageError::NoLength),
        ] {
            assert_eq!(Message::parse(&header), Err(error));
            assert_eq!(take(&mut header[..].into(), LONGEST_MESSAGE), Err(error));
        }
    }

    #[test]
    fn lengths_that_can_t_be_are_refused() {
        let whole = message(&ALL);
        for octets in 0..whole.len() {
            assert_eq!(Message::parse(&whole[..octets]), Err(MessageError::Length));
            assert_eq!(take(&mut whole[..octets].into(), LONGEST_MESSAGE), Ok(None));
        }
        assert_eq!(Message::parse(&[&whole[..], &[0; 4]].concat()), Err(MessageError::Length));
        for tlv in ALL {
            let mut none = tlv.to_vec();
            none[1] = 0;
            assert_eq!(Message::parse(&message(&[&none])), Err(MessageError::TlvLength(tlv[0])));
            let mut past_the_end = tlv.to_vec();
            past_the_end[1] += 1;
            assert_eq!(Message::parse(&message(&[&past_the_end])), Err(MessageError::TlvLength(tlv[0])));
        }
        assert_eq!(Message::parse(&message(&[&[1, 2, 0, 0, 0, 0, 0, 0]])), Err(MessageError::TlvLength(1)));
        let header = [&[20, 12, 0, 0][..], &[1; 44]].concat();
        let error = MessageError::ExtendedTcpHeader(TcpOptionsError::TooLong);
        assert_eq!(Message::parse(&message(&[&header])), Err(error));
        let cookie = [&[22, 66, 0, 0][..], &[1; 260]].concat();
        assert_eq!(Message::parse(&message(&[&cookie])), Err(CookieError::TooLong.into()));
        let error = [&[30, 66, 3, 0][..], &[1; 260]].concat();
        assert_eq!(Message::parse(&message(&[&error])), Err(CookieError::TooLong.into()));
    }

    #[test]
    fn a_message_is_taken_and_what_follows_is_left() {
        let octets = message(&[CONNECT]);
        let mut input = BytesMut::from(&[&octets[..], b"GET /"].concat()[..]);
        assert_eq!(take(&mut input, octets.len() - 1), Err(MessageError::TooLong(octets.len())));
        assert_eq!(take(&mut input, octets.len()), Ok(Some(octets.into())));
        assert_eq!(input[..], b"GET /"[..]);
    }

    #[test]
    fn an_echo_fills_the_message_at_most() {
        let refusal = Message::refusal(ErrorTlv::MalformedMessage(Bytes::from_static(&[7; LONGEST_MESSAGE])));
        let octets = refusal.to_bytes();
        assert_eq!((octets.len(), octets[1], octets[5]), (LONGEST_MESSAGE, 255, 254));
        let echo = Bytes::from_static(&[7; LONGEST_MESSAGE - 8]);
        assert_eq!(Message::parse(&octets), Ok(Message::refusal(ErrorTlv::MalformedMessage(echo))));
    }

    #[test]
    fn the_longest_parts_fit_together() {
        let kinds = SupportedExtensions::new((0..=u8::MAX).map(OptionKind));
        let longest = TcpOptions::new(&[1; TcpOptions::MOST_OCTETS]).expect("options");
        let connect = Connect::new("192.0.2.7:443".parse().expect("an address")).expect("a server");
        let cookie = Cookie::new(&[7; Cookie::MOST_OCTETS]).expect("short enough");
        let message = Message {
            info: true,
            connect: Some(connect.with_options(longest.clone())),
            extended_tcp_header: Some(longest),
            supported_extensions: Some(kinds),
            cookie: Some(cookie.clone()),
            error: Some(ErrorTlv::MissingCookie(Some(cookie))),
        };
        assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
    }
}
