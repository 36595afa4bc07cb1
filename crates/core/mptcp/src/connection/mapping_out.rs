//! Which data becomes one mapping, and which of its segments carry it (RFC 8684 §3.3.1).

use polypath_units::{BitRate, Instant};
use polypath_wire::{DataSeq, Payload, dss_checksum};

use super::Connection;
use crate::mapping::{Carried, Mapping};
use crate::scheduler::SubflowView;
use crate::subflow::Stage;

/// After so many losses above the subflows, something on the way merges segments and drops their mappings: mappings
/// become this many segments long, so that the merged ones share theirs.
const DATA_LEVEL_LOSSES: u32 = 2;
const LONG_MAPPING_SEGMENTS: u64 = 16;

/// A mapping that not each segment carries is this share of the window long: what little of it waits for the window delays nothing.
const AHEAD_WINDOW_SHARE: u64 = 16;

impl Connection {
    /// What a mapping is made of even where less may leave now.
    pub(super) fn least_mapping_bytes(&self, segment_bytes: u64) -> u64 {
        let are_merged = self.data_level_losses > DATA_LEVEL_LOSSES;
        if are_merged { LONG_MAPPING_SEGMENTS * segment_bytes } else { 0 }
    }

    /// Which segments of a mapping that goes to the subflow at `position` carry it.
    pub(super) fn carried(&self, position: usize, segment_bytes: u64) -> Carried {
        let shared = &self.shared;
        let Some(subflow) = self.subflows.get(position) else { return Carried::InEach };
        // A peer that has yet to see that options pass, or that gathers bytes for a checksum, takes data without them for TCP's.
        // Where something merges segments, each that carries its mapping is one more that may keep it.
        let has_passed = subflow.meta.first_mapped_end.is_some_and(|end| subflow.tcp.acked_offset() >= end);
        let must_repeat = subflow.meta.stage != Stage::Established
            || !has_passed
            || shared.checksum
            || self.data_level_losses > 0;
        let leaves_at_once = subflow.tcp.most_bytes_at_once(segment_bytes);
        if must_repeat || leaves_at_once + segment_bytes > shared.most_mapped_bytes() {
            return Carried::InEach;
        }
        // Where data arrives, too, its DATA_ACKs had better not each need an acknowledgment of their own.
        if subflow.meta.received_before != shared.receive_next {
            Carried::OnceWithDataAcks
        } else {
            Carried::Once
        }
    }

    /// Payload of the second segment of such a mapping, and of those behind it.
    pub(super) fn further_segment_bytes(&self, position: usize, carried: Carried) -> u64 {
        let Some(subflow) = self.subflows.get(position) else { return 1 };
        let mapping = self.shared.mapping(carried);
        let option_bytes = self.shared.data_option_bytes(subflow.meta.stage, &mapping, false);
        subflow.tcp.segment_payload_bytes_with(option_bytes) as u64
    }

    /// Gives data to a subflow as one mapping; returns the subflow offset after it.
    pub(super) fn push(
        &mut self,
        now: Instant,
        position: usize,
        data_seq: DataSeq,
        data: Payload,
        carried: Carried,
    ) -> u64 {
        let Some(subflow) = self.subflows.get_mut(position) else { return 0 };
        let subflow_offset = (subflow.tcp.enqueued_offset() as u32).wrapping_add(1);
        let len_bytes = data.len() as u16;
        subflow.meta.received_before = self.shared.receive_next;
        if let Some(rate) = subflow.bottleneck_bytes_per_s() {
            let rate = BitRate::from_bps(rate.max(1).saturating_mul(8));
            let begins_at = subflow.meta.busy_until.max(now);
            subflow.meta.busy_until = begins_at + rate.time_to_send(data.len() as u64);
        }
        let checksum = self.shared.checksum.then(|| dss_checksum(data_seq, subflow_offset, len_bytes, &data));
        let end = subflow.tcp.enqueued_offset() + data.len() as u64;
        if subflow.meta.stage == Stage::Established {
            subflow.meta.first_mapped_end.get_or_insert(end);
        }
        let mapping = self.shared.mapping(carried);
        subflow.tcp.enqueue(data, Mapping { data_seq, subflow_offset, len_bytes, checksum, ..mapping });
        subflow.tcp.enqueued_offset()
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
