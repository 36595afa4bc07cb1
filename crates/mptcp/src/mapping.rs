use polypath_wire::{DataSeq, DssMapping, WireDataSeq};

/// Which data a stretch of subflow bytes is: what [`polypath_tcp::Connection`] carries along with queued data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mapping {
    /// Data sequence number of the first byte.
    pub(crate) data_seq: DataSeq,
    /// Subflow sequence number of the first byte, relative to the initial one: the first byte of a subflow is 1.
    pub(crate) subflow_offset: u32,
    /// Length in bytes.
    pub(crate) len_bytes: u16,
    /// DSS checksum, where in use.
    pub(crate) checksum: Option<u16>,
    pub(crate) carried: Carried,
}

/// Which segments of a mapping carry it: a segment whose bytes are covered by a mapping that the peer knows needs none of its
/// own (RFC 8684 §3.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Carried {
    /// Each segment.
    #[default]
    InEach,
    /// The first.
    Once,
}

impl Mapping {
    /// The mapping as a DSS carries it, with the data sequence number in its 8-byte form.
    #[must_use]
    pub(crate) fn to_wire(self) -> DssMapping {
        DssMapping {
            data_seq: WireDataSeq::Full(self.data_seq),
            subflow_offset: self.subflow_offset,
            len: self.len_bytes,
            checksum: self.checksum,
        }
    }
}
