use polypath_wire::{DataSeq, Dss, DssMapping, WireDataSeq};

/// A mapping's length field is two bytes (RFC 8684 §3.3).
pub(crate) const MOST_MAPPED_BYTES: u64 = u16::MAX as u64;

/// Which data a stretch of subflow bytes is: what [`Connection`](polypath_tcp::Connection) carries along with queued data.
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
    pub(crate) repetition: Repetition,
    /// Room is kept for so long a data sequence number, and for so long a DATA_ACK beside it.
    pub(crate) numbers: Numbers,
}

/// How long the numbers of a DSS are (RFC 8684 §3.3): the lower 4 bytes will do where the rest follows from what is around.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Numbers {
    /// 4 bytes of the data sequence number.
    pub(crate) is_seq_short: bool,
    /// 8 bytes of DATA_ACK, as the peer sends data sequence numbers of 8 bytes.
    pub(crate) is_ack_full: bool,
}

/// Data behind which a number of 4 bytes is told from the next one like it: a quarter of all there are.
const SHORT_REACH_BYTES: i64 = 1 << 30;

/// Which segments of a mapping carry it: a segment whose bytes are covered by a mapping that the peer knows needs none of its
/// own (RFC 8684 §3.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Repetition {
    /// Each segment.
    #[default]
    InEach,
    /// The first; the others carry a DATA_ACK.
    OnceWithDataAcks,
    /// The first; the others carry nothing.
    Once,
}

impl Numbers {
    const fn ack_bytes(self) -> usize {
        if self.is_ack_full { 8 } else { 4 }
    }

    const fn seq_bytes(self) -> usize {
        if self.is_seq_short { 4 } else { 8 }
    }

    /// A DATA_ACK for what comes before `next`.
    pub(crate) const fn ack(self, next: DataSeq) -> WireDataSeq {
        if self.is_ack_full { WireDataSeq::Full(next) } else { WireDataSeq::Low(next.0 as u32) }
    }

    /// A data sequence number, where data up to `latest` has been sent.
    pub(crate) const fn seq(self, seq: DataSeq, latest: DataSeq) -> WireDataSeq {
        let is_near = latest.diff(seq) < SHORT_REACH_BYTES;
        if self.is_seq_short && is_near { WireDataSeq::Low(seq.0 as u32) } else { WireDataSeq::Full(seq) }
    }
}

/// Kind, length, subtype and flags of a DSS.
const DSS_HEAD_BYTES: usize = 4;
/// What a mapping has beside its data sequence number: subflow sequence number and length.
const MAPPED_BYTES: usize = 6;

impl Mapping {
    /// The DSS of a segment of this mapping, which begins it or not; `next` is the data that is expected from the peer, and data
    /// up to `latest` has been sent. What waited so long that it needs a long number takes the DATA_ACK's place for that.
    pub(crate) fn dss(&self, is_start: bool, next: DataSeq, latest: DataSeq) -> Option<Dss> {
        let mapping = (is_start || self.repetition == Repetition::InEach).then(|| self.to_wire(latest));
        let is_bare = mapping.is_none() && self.repetition == Repetition::Once;
        let is_longer = self.numbers.is_seq_short
            && mapping.is_some_and(|mapping| matches!(mapping.data_seq, WireDataSeq::Full(_)));
        let data_ack = (!is_longer).then(|| self.numbers.ack(next));
        (!is_bare).then_some(Dss { data_ack, mapping, ..Dss::default() })
    }

    /// What is kept free for it.
    pub(crate) const fn dss_bytes(&self, is_start: bool) -> usize {
        let acknowledging = DSS_HEAD_BYTES + self.numbers.ack_bytes();
        let mapped = acknowledging + self.numbers.seq_bytes() + MAPPED_BYTES;
        match self.repetition {
            Repetition::Once if !is_start => 0,
            Repetition::OnceWithDataAcks if !is_start => acknowledging,
            _ if self.checksum.is_some() => mapped + 2,
            _ => mapped,
        }
    }

    /// The mapping as a DSS carries it, where data up to `latest` has been sent.
    #[must_use]
    pub(crate) fn to_wire(self, latest: DataSeq) -> DssMapping {
        DssMapping {
            data_seq: self.numbers.seq(self.data_seq, latest),
            subflow_offset: self.subflow_offset,
            len: self.len_bytes,
            checksum: self.checksum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers around a wrap of the lower 4 bytes.
    const SEQ: DataSeq = DataSeq(0x7_ffff_ff00);

    #[test]
    fn as_much_room_is_kept_as_is_used() {
        for repetition in [Repetition::InEach, Repetition::OnceWithDataAcks, Repetition::Once] {
            for (is_start, checksum) in [(true, None), (true, Some(7)), (false, None), (false, Some(7))] {
                for (is_seq_short, is_ack_full) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    // With a checksum, each segment carries the mapping.
                    let repetition = if checksum.is_some() { Repetition::InEach } else { repetition };
                    let numbers = Numbers { is_seq_short, is_ack_full };
                    let mapping =
                        Mapping { data_seq: SEQ, checksum, repetition, numbers, ..Mapping::default() };
                    let used = |latest| {
                        mapping.dss(is_start, DataSeq(1), latest).map_or(0, |dss: Dss| dss.len_bytes())
                    };
                    let case = std::format!("{repetition:?} {is_start} {checksum:?} {numbers:?}");
                    assert_eq!(mapping.dss_bytes(is_start), used(SEQ.add(1 << 20)), "{case}");
                    assert!(mapping.dss_bytes(is_start) >= used(SEQ.add(1 << 33)), "{case}");
                }
            }
        }
    }

    #[test]
    fn a_short_number_means_what_it_says_or_is_not_used() {
        let numbers = Numbers { is_seq_short: true, is_ack_full: false };
        for ahead in [0, 1, 1 << 20, 1 << 29, 1 << 30, 1 << 31, 1 << 32, (1 << 32) + 5, 1 << 40] {
            let latest = SEQ.add(ahead);
            let wire = numbers.seq(SEQ, latest);
            // The peer knows what it has received, which is anywhere in what was sent.
            for known in [latest, SEQ.add(ahead / 2)] {
                assert_eq!(wire.expand(known), SEQ, "{ahead} ahead");
            }
            assert_eq!(wire.len_bytes() == 4, ahead < 1 << 30);
        }
    }
}
