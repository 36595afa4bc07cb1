//! A whole file that waits until it is decided whether it counts.

use bytes::Bytes;

use crate::http1::Head;
use crate::schedule::RequestId;

/// So much is kept. What has more is asked for again.
const MOST_BYTES: usize = 1 << 20;

/// The answer of a path that brings the whole file, while others may say better.
#[derive(Debug)]
pub(super) struct Held {
    id: RequestId,
    head: Head,
    bytes: Vec<Bytes>,
    len_bytes: usize,
    is_ended: bool,
}

/// What was held.
pub(super) struct Parts {
    pub(super) id: RequestId,
    pub(super) head: Head,
    pub(super) bytes: Vec<Bytes>,
    /// Nothing follows.
    pub(super) is_ended: bool,
}

impl Held {
    pub(super) fn new(id: RequestId, head: Head) -> Self {
        Self { id, head, bytes: Vec::new(), len_bytes: 0, is_ended: false }
    }

    pub(super) fn is_of(&self, id: RequestId) -> bool {
        self.id == id
    }

    /// More of it; false if that is too much.
    pub(super) fn push(&mut self, bytes: Bytes) -> bool {
        self.len_bytes += bytes.len();
        self.bytes.push(bytes);
        self.len_bytes <= MOST_BYTES
    }

    /// That was all.
    pub(super) fn end(&mut self) {
        self.is_ended = true;
    }

    pub(super) fn into_parts(self) -> Parts {
        Parts { id: self.id, head: self.head, bytes: self.bytes, is_ended: self.is_ended }
    }
}
