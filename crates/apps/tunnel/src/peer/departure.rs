//! The data packet that leaves next.

use crate::frame::{DATA_HEADER_BYTES, DataHeader, MOST_DATA_HEADER_BYTES};
use crate::noise::{PATH_HEADER_BYTES, TAG_BYTES};

/// A packet, and the path that it takes.
pub(super) struct Departure {
    pub(super) at: usize,
    pub(super) header: DataHeader,
    /// The packet, behind room for its header.
    pub(super) frame: Box<[u8]>,
}

/// Length of the datagram for a packet behind its room, at most.
pub(super) const fn datagram_bytes(frame: &[u8]) -> usize {
    overhead(true) + frame.len().saturating_sub(DATA_HEADER_BYTES)
}

/// What is around a packet.
pub(super) const fn overhead(with_time: bool) -> usize {
    let header = if with_time { MOST_DATA_HEADER_BYTES } else { DATA_HEADER_BYTES };
    PATH_HEADER_BYTES + header + TAG_BYTES
}
