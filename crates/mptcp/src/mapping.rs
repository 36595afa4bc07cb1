use polypath_wire::{DataSeq, Dss, DssMapping, WireDataSeq};

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
    /// The data sequence number goes out in its 4-byte form.
    pub(crate) is_short: bool,
    pub(crate) carried: Carried,
}

/// Which segments of a mapping carry it: a segment whose bytes are covered by a mapping that the peer knows needs none of its
/// own (RFC 8684 §3.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Carried {
    /// Each segment.
    #[default]
    InEach,
    /// The first; the others carry a DATA_ACK.
    OnceWithDataAcks,
    /// The first; the others carry nothing.
    Once,
}

impl Mapping {
    /// The DSS of a segment of this mapping, which begins it or not, with a DATA_ACK where it has one.
    pub(crate) fn dss(&self, is_start: bool, data_ack: WireDataSeq) -> Option<Dss> {
        let mapping = (is_start || self.carried == Carried::InEach).then(|| self.to_wire());
        let is_bare = mapping.is_none() && self.carried == Carried::Once;
        (!is_bare).then(|| Dss { data_ack: Some(data_ack), mapping, ..Dss::default() })
    }

    /// Length of that DSS.
    pub(crate) fn dss_bytes(&self, is_start: bool) -> usize {
        self.dss(is_start, WireDataSeq::Low(0)).map_or(0, |dss| dss.len_bytes())
    }

    /// The mapping as a DSS carries it.
    #[must_use]
    pub(crate) fn to_wire(self) -> DssMapping {
        let data_seq = self.data_seq;
        DssMapping {
            data_seq: if self.is_short {
                WireDataSeq::Low(data_seq.0 as u32)
            } else {
                WireDataSeq::Full(data_seq)
            },
            subflow_offset: self.subflow_offset,
            len: self.len_bytes,
            checksum: self.checksum,
        }
    }
}
