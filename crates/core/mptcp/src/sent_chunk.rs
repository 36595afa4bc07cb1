use polypath_wire::DataSeq;

use crate::identifiers::SubflowId;

/// Data that a subflow was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentChunk {
    pub(crate) seq: DataSeq,
    pub(crate) len: u32,
    /// Which subflow had it last.
    pub(crate) subflow: SubflowId,
    /// It waits in the reinjection queue.
    pub(crate) queued: bool,
    /// It was sent more than once, so this is not the first place where the peer has seen it.
    pub(crate) again: bool,
    /// The subflow's stream offset after its last byte.
    pub(crate) end_offset: u64,
}

impl SentChunk {
    pub(crate) const fn end(&self) -> DataSeq {
        self.seq.add(self.len as u64)
    }
}
