//! The data packet that leaves next.

use crate::frame::{DATA_HEADER_BYTES, DataHeader, MOST_DATA_HEADER_BYTES};
use crate::noise::{PATH_HEADER_BYTES, TAG_BYTES};

/// A packet, and the path that it takes.
pub(super) struct Departure {
    pub(super) at: usize,
    /// None of a repair packet, whose frame is whole.
    pub(super) header: Option<DataHeader>,
    /// Repair packets will cover it.
    pub(super) is_protected: bool,
    /// The packet, behind room for its header.
    pub(super) frame: Box<[u8]>,
}

impl Departure {
    pub(super) fn new(at: usize, header: DataHeader, frame: Box<[u8]>) -> Self {
        Self { at, header: Some(header), is_protected: false, frame }
    }

    /// Length of its datagram.
    pub(super) fn len_bytes(&self, with_time: bool) -> usize {
        let frame_bytes = match self.header {
            Some(_) => {
                self.frame.len() - DATA_HEADER_BYTES + DataHeader::len_with(with_time, self.is_protected)
            }
            None => self.frame.len(),
        };
        PATH_HEADER_BYTES + frame_bytes + TAG_BYTES
    }
}

/// The room for a packet's header says so long whether its flow is to be protected.
pub(super) fn mark(frame: &mut [u8], with_fec: bool) {
    if let Some(first) = frame.first_mut() {
        *first = u8::from(with_fec);
    }
}

pub(super) fn is_marked(frame: &[u8]) -> bool {
    frame.first() == Some(&1)
}

/// Length of the datagram for a packet behind its room, at most.
pub(super) const fn datagram_bytes(frame: &[u8]) -> usize {
    let packet_bytes = frame.len().saturating_sub(DATA_HEADER_BYTES);
    PATH_HEADER_BYTES + MOST_DATA_HEADER_BYTES + packet_bytes + TAG_BYTES
}
