//! The data packet that leaves next.

use crate::frame::DataHeader;

/// A packet, and the path that it takes.
pub(super) struct Departure {
    pub(super) at: usize,
    pub(super) header: DataHeader,
    /// The packet, behind room for its header.
    pub(super) frame: Box<[u8]>,
}
