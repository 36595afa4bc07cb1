use polypath_wire::{DataSeq, Dss, DssMapping, WireDataSeq};

/// A mapping's length field is two bytes (RFC 8684 §3.3).
pub(crate) const MOST_MAPPED_BYTES: u64 = u16::MAX as u64;

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
    /// The first; the others carry a DATA_ACK.
    OnceWithDataAcks,
    /// The first; the others carry nothing.
    Once,
}

/// A DSS with a 4-byte DATA_ACK …
const ACKNOWLEDGING_DSS_BYTES: usize = 8;
/// … and a mapping with an 8-byte data sequence number; a checksum is two bytes more.
const MAPPED_DSS_BYTES: usize = 22;

impl Mapping {
    /// The DSS of a segment of this mapping, which begins it or not.
    pub(crate) fn dss(&self, is_start: bool, data_ack: WireDataSeq) -> Option<Dss> {
        let mapping = (is_start || self.carried == Carried::InEach).then(|| self.to_wire());
        let is_bare = mapping.is_none() && self.carried == Carried::Once;
        (!is_bare).then_some(Dss { data_ack: Some(data_ack), mapping, ..Dss::default() })
    }

    /// What is kept free for it.
    pub(crate) const fn dss_bytes(&self, is_start: bool) -> usize {
        match self.carried {
            Carried::Once if !is_start => 0,
            Carried::OnceWithDataAcks if !is_start => ACKNOWLEDGING_DSS_BYTES,
            _ if self.checksum.is_some() => MAPPED_DSS_BYTES + 2,
            _ => MAPPED_DSS_BYTES,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_room_is_kept_as_is_used() {
        for carried in [Carried::InEach, Carried::OnceWithDataAcks, Carried::Once] {
            for (is_start, checksum) in [(true, None), (true, Some(7)), (false, None), (false, Some(7))] {
                // With a checksum, each segment carries the mapping.
                let carried = if checksum.is_some() { Carried::InEach } else { carried };
                let mapping = Mapping { checksum, carried, ..Mapping::default() };
                let used = mapping.dss(is_start, WireDataSeq::Low(1)).map_or(0, |dss| dss.len_bytes());
                assert_eq!(mapping.dss_bytes(is_start), used, "{carried:?} {is_start} {checksum:?}");
            }
        }
    }
}
