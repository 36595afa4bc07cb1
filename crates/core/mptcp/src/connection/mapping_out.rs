//! Which data becomes one mapping, and which of its segments carry it (RFC 8684 §3.3.1).

use polypath_units::Instant;
use polypath_wire::{DataSeq, Payload, dss_checksum};

use super::option_writer::data_option_bytes;
use super::stream::Stream;
use crate::mapping::{Mapping, Repetition};
use crate::scheduler::SubflowView;
use crate::subflow::{Stage, Subflow};

/// Where something on the way merges segments and drops their mappings, mappings are so many segments long, so that the merged ones
/// share theirs.
const LONG_MAPPING_SEGMENTS: u64 = 16;

/// A mapping that not each segment carries is this share of the window long: what little of it waits for the window delays nothing.
const AHEAD_WINDOW_SHARE: u64 = 16;

impl Stream {
    /// What a mapping is made of even where less may leave now.
    pub(super) fn least_mapping_bytes(&self, segment_bytes: u64) -> u64 {
        if self.send.are_mappings_dropped() { LONG_MAPPING_SEGMENTS * segment_bytes } else { 0 }
    }

    /// Which segments of a mapping that goes to this subflow carry it.
    pub(super) fn repetition(&self, subflow: &Subflow, segment_bytes: u64) -> Repetition {
        // A peer that has yet to see that options pass, or that gathers bytes for a checksum, takes data without them for TCP's.
        // Where something merges segments, each that carries its mapping is one more that may keep it.
        let has_passed = subflow.state.owed.have_options_passed(subflow.tcp.acked_offset());
        let must_repeat = subflow.state.stage() != Stage::Established
            || !has_passed
            || self.negotiation.has_checksum()
            || self.send.has_lost();
        let leaves_at_once = subflow.tcp.most_bytes_at_once(segment_bytes);
        if must_repeat || leaves_at_once + segment_bytes > self.most_mapped_bytes() {
            return Repetition::InEach;
        }
        // Where data arrives, too, its DATA_ACKs had better not each need an acknowledgment of their own.
        if subflow.state.owed.has_received_since(self.receive.next()) {
            Repetition::OnceWithDataAcks
        } else {
            Repetition::Once
        }
    }

    /// Payload of the second segment of such a mapping, and of those behind it.
    pub(super) fn further_segment_bytes(&self, subflow: &Subflow, repetition: Repetition) -> u64 {
        self.segment_bytes(subflow, repetition, false)
    }

    /// Payload of the largest segment of a subflow that carries its mapping, and all of it.
    pub(super) fn full_segment_bytes(&self, subflow: &Subflow) -> u64 {
        self.segment_bytes(subflow, Repetition::InEach, true).min(self.most_mapped_bytes())
    }

    fn segment_bytes(&self, subflow: &Subflow, repetition: Repetition, is_start: bool) -> u64 {
        let mapping = self.send.mapping(self.negotiation.has_checksum(), repetition);
        let option_bytes = data_option_bytes(&self.fallback, subflow.state.stage(), &mapping, is_start);
        subflow.tcp.segment_payload_bytes_with(option_bytes) as u64
    }

    /// Most data of one mapping.
    pub(super) fn most_mapped_bytes(&self) -> u64 {
        self.send.most_mapped_bytes(&self.config, self.negotiation.has_checksum())
    }

    /// Gives data to a subflow as one mapping; returns the subflow offset after it.
    pub(super) fn push(
        &self,
        now: Instant,
        subflow: &mut Subflow,
        data_seq: DataSeq,
        data: Payload,
        repetition: Repetition,
    ) -> u64 {
        let subflow_offset = (subflow.tcp.enqueued_offset() as u32).wrapping_add(1);
        let len_bytes = data.len() as u16;
        let checksum =
            self.negotiation.has_checksum().then(|| dss_checksum(data_seq, subflow_offset, len_bytes, &data));
        let mapping = self.send.mapping(self.negotiation.has_checksum(), repetition);
        let mapping = Mapping { data_seq, subflow_offset, len_bytes, checksum, ..mapping };
        subflow.enqueue(now, data, mapping, self.receive.next())
    }
}

/// How long a mapping had better be, though all of it may not leave at once: the longer, the fewer segments carry one. Nothing
/// where data is about to end.
pub(super) fn ahead_bytes(subflow: &SubflowView, unsent_bytes: u64) -> u64 {
    let segments = LONG_MAPPING_SEGMENTS * u64::from(subflow.segment_bytes);
    let ahead = (subflow.window_bytes / AHEAD_WINDOW_SHARE).min(segments);
    if unsent_bytes / AHEAD_WINDOW_SHARE < ahead { 0 } else { ahead }
}

/// How much of the peer's window is let open before it is used, so that a mapping is more than a segment: it takes no rate from a
/// subflow that stands in a queue, since the queue is longer. In slow start, each segment makes the next ones leave earlier.
pub(super) fn gathered_bytes(subflow: &SubflowView) -> u64 {
    if subflow.in_slow_start() {
        return 0;
    }
    let queueing = subflow.srtt.saturating_sub(subflow.min_rtt).as_secs_f64();
    let queued_bytes = subflow.in_flight_bytes as f64 * queueing / subflow.srtt.as_secs_f64().max(1e-9);
    let segments = LONG_MAPPING_SEGMENTS * u64::from(subflow.segment_bytes);
    (queued_bytes as u64 / 2).min(subflow.in_flight_bytes / 4).min(segments)
}
