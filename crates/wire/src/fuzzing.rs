//! What the fuzz targets do, shared with the short deterministic run in the tests.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::packet::Checksums;
use crate::{Options, Packet};

/// Any bytes as a packet: no panic, and what was understood survives being written and read again.
pub fn packet(bytes: &[u8]) {
    let Ok(packet) = Packet::parse_with(Bytes::copy_from_slice(bytes), Checksums::Ignore) else { return };
    let mut emitted = Vec::new();
    packet.emit(&mut emitted);
    let again = Packet::parse(Bytes::from(emitted));
    assert_eq!(again.as_ref(), Ok(&packet));
    let _line = alloc::format!("{packet}");
}

/// Any bytes as options: likewise.
pub fn options(bytes: &[u8]) {
    let parsed = Options::parse_lenient(bytes.get(..crate::MAX_OPTIONS_BYTES).unwrap_or(bytes));
    let mut emitted = Vec::new();
    parsed.emit(&mut emitted);
    assert_eq!(Options::parse(&emitted).as_ref(), Ok(&parsed));
}
