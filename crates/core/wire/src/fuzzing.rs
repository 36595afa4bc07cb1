//! What the fuzz targets do, shared with the short deterministic run in the tests. Each function panics where
//! the contract of this crate is broken.

use alloc::string::ToString;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::{Checksums, Options, Packet, Transport};

/// Any bytes as a packet: what was understood survives being written, read again, and cut into segments.
pub fn packet(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let verified = Packet::parse(bytes.clone());
    let Ok(packet) = Packet::parse_with(bytes, Checksums::Ignore) else {
        assert!(verified.is_err(), "more is accepted with checksums than without");
        return;
    };
    if let Ok(verified) = verified {
        assert_eq!(verified, packet);
    }
    let mut emitted = Vec::new();
    packet.emit(&mut emitted);
    assert_eq!(emitted.len(), packet.len_bytes());
    assert_eq!(Packet::parse(emitted.into()).as_ref(), Ok(&packet));
    assert!(!packet.to_string().is_empty());
    cut(packet);
}

/// Cuts a TCP packet at every size that its bytes happen to name.
fn cut(mut packet: Packet) {
    let Transport::Tcp(segment) = &mut packet.transport else { return };
    // Never so small that one input takes long.
    segment.segment_size = segment.window.max((segment.payload.len() / 64) as u16);
    let (mut expected, whole) = (segment.seq, segment.clone());
    let mut data = Vec::new();
    for part in packet.segments() {
        let Transport::Tcp(part) = part.transport else { panic!("a segment became something else") };
        assert_eq!((part.seq, part.segment_size), (expected, 0));
        assert!(whole.segment_size == 0 || part.payload.len() <= usize::from(whole.segment_size));
        assert_eq!(part.options, whole.options);
        expected = expected.add(part.payload.len() as u32);
        data.extend(part.payload.to_vec());
    }
    assert_eq!(data, whole.payload.to_vec());
}

/// Any bytes as options: what was understood survives being written and read again.
pub fn options(bytes: &[u8]) {
    let parsed = Options::parse_lenient(bytes);
    if let Ok(strict) = Options::parse(bytes) {
        assert_eq!(strict, parsed);
    }
    let mut emitted = Vec::new();
    parsed.emit(&mut emitted);
    assert_eq!(emitted.len(), parsed.len_bytes());
    assert_eq!(Options::parse(&emitted).as_ref(), Ok(&parsed));
    assert!(parsed.to_string().starts_with('['));
}
