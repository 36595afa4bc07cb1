//! Type, length and value, in words of four octets (RFC 8803 §6.2.1).

use bytes::{BufMut, BytesMut};

/// Octets of a word, in which all lengths are counted.
pub(super) const WORD: usize = 4;

/// Octets of Type and Length.
const HEAD: usize = 2;

/// Asks for the options that are converted.
pub(super) const INFO: u8 = 0x01;
/// Asks for a connection.
pub(super) const CONNECT: u8 = 0x0a;
/// Options of the server's SYN/ACK.
pub(super) const EXTENDED_TCP_HEADER: u8 = 0x14;
/// Options that are converted.
pub(super) const SUPPORTED_TCP_EXTENSIONS: u8 = 0x15;
/// Shows that the client is at its address.
pub(super) const COOKIE: u8 = 0x16;
/// Says why there is no connection.
pub(super) const ERROR: u8 = 0x1e;

/// One TLV. The value has two octets at least, and padding at its end.
#[derive(Clone, Copy)]
pub(super) struct Tlv<'a> {
    pub(super) kind: u8,
    pub(super) value: &'a [u8],
}

/// The first TLV and what comes behind it, or the type of one whose length can't be.
pub(super) fn split_first(bytes: &[u8]) -> Result<(Tlv<'_>, &[u8]), u8> {
    let &[kind, words, ..] = bytes else { return Err(bytes.first().copied().unwrap_or_default()) };
    match bytes.split_at_checked(usize::from(words) * WORD) {
        Some((tlv, rest)) if words > 0 => Ok((Tlv { kind, value: &tlv[HEAD..] }, rest)),
        _ => Err(kind),
    }
}

/// Octets with the padding behind them.
pub(super) const fn padded(octets: usize) -> usize {
    octets.next_multiple_of(WORD)
}

/// Writes a TLV of these values, one behind the other, and the padding. They are fewer than 1018 octets.
pub(super) fn write(out: &mut BytesMut, kind: u8, values: &[&[u8]]) {
    let octets = HEAD + values.iter().map(|value| value.len()).sum::<usize>();
    let words = padded(octets) / WORD;
    out.put_slice(&[kind, u8::try_from(words).unwrap_or(u8::MAX)]);
    for value in values {
        out.put_slice(value);
    }
    out.put_bytes(0, padded(octets) - octets);
}
