//! How much of what is to go to a subflow leaves at once: whole segments, neither slivers of window or data, nor what had better wait.

use polypath_wire::DataSeq;

use super::mapping_out::{ahead_bytes, gathered_bytes};
use super::option_writer::MOST_DATA_OPTION_BYTES;
use super::scheduling::Scheduling;
use super::stream::Stream;
use crate::mapping::Repetition;
use crate::scheduler::SubflowView;
use crate::subflow::Subflow;

/// What a scheduler has chosen, and what its mapping may be.
pub(super) struct Portion<'a> {
    stream: &'a Stream,
    scheduling: &'a Scheduling,
    target: &'a SubflowView,
    limit_bytes: u64,
    /// Payload of a segment that carries its mapping …
    segment: u64,
    /// … and of those behind it.
    further: u64,
    /// Most data of one mapping.
    most: u64,
    repetition: Repetition,
}

impl<'a> Portion<'a> {
    /// For `subflow`, which the scheduler saw as `target`, and at most so many bytes.
    #[inline]
    pub(super) fn new(
        (stream, scheduling): (&'a Stream, &'a Scheduling),
        subflow: &Subflow,
        target: &'a SubflowView,
        limit_bytes: u64,
    ) -> Self {
        let segment = u64::from(target.segment_bytes.max(1));
        let repetition = stream.repetition(subflow, segment);
        let further = stream.further_segment_bytes(subflow, repetition);
        let most = stream.most_mapped_bytes();
        Self { stream, scheduling, target, limit_bytes, segment, further, most, repetition }
    }

    /// Which segments of the mapping carry it.
    #[inline]
    pub(super) const fn repetition(&self) -> Repetition {
        self.repetition
    }

    /// Of data never sent; none if it had better wait.
    #[inline]
    pub(super) fn of_new(&self) -> u64 {
        let Self { stream, scheduling, target, segment, further, most, .. } = *self;
        let window = stream.send.window_room_bytes();
        let unsent = stream.send.unsent_bytes();
        let mut room = self.room();
        if self.repetition != Repetition::InEach {
            room = room.max(ahead_bytes(target, unsent).min(self.limit_bytes));
            if window < unsent.min(gathered_bytes(target)) {
                return 0;
            }
        }
        let mut count = self.whole(room.min(window), unsent);
        let is_held_back = |bytes| scheduling.holds_back(&stream.lifecycle, bytes, segment);
        if count == unsent && count > segment && is_held_back((count - segment) % further) {
            count -= (count - segment) % further;
        }
        let in_flight = stream.send.under_way_bytes() > 0;
        // Neither a sliver of window (RFC 9293 §3.8.6.2.1) nor, with Nagle's algorithm, of data.
        let sliver = count < segment.min(most) && in_flight;
        let nagle = !stream.config.tcp.no_delay && !stream.lifecycle.is_shut_down();
        if is_held_back(unsent) || window < segment.min(unsent) || sliver && (count < unsent || nagle) {
            return 0;
        }
        let held_bytes = target.in_flight_bytes + target.unsent_bytes;
        let is_tail = count == unsent && count < most;
        if is_tail && scheduling.tail_waits(&stream.lifecycle, held_bytes) { 0 } else { count }
    }

    /// Of the front of the reinjection queue, which is so long.
    pub(super) fn of_reinjection(&self, len_bytes: u64) -> u64 {
        self.whole(self.room(), len_bytes)
    }

    /// Of a copy of what was sent, from there on.
    pub(super) fn of_copy(&self, seq: DataSeq) -> u64 {
        if seq.before(self.stream.send.una()) {
            return 0;
        }
        let available = self.stream.send.next().diff(seq).max(0) as u64;
        // A limit that ends a piece is kept to the byte: what were left would hold up as much as the whole.
        self.whole(self.room(), available.min(self.limit_bytes))
    }

    #[inline]
    fn room(&self) -> u64 {
        self.target.room_bytes.min(self.limit_bytes).max(self.stream.least_mapping_bytes(self.segment))
    }

    /// A mapping is whole segments, unless the data ends before.
    #[inline]
    fn whole(&self, room: u64, available: u64) -> u64 {
        let Self { segment, further, .. } = *self;
        let count = room.min(available).min(self.most);
        if count < available && count > segment { count - (count - segment) % further } else { count }
    }
}

/// How much of what waits goes to the one subflow after a fallback, as TCP.
pub(super) fn plain_bytes(stream: &Stream, scheduling: &Scheduling, subflow: &Subflow) -> u64 {
    // Small writes wait here, where they grow together, until TCP has room for them. With nothing under way TCP gets a
    // segment, to probe a closed window with, and to send when it opens.
    let segment = subflow.tcp.segment_payload_bytes_with(0) as u64;
    let idle = !subflow.holds_data() && subflow.tcp.state().is_synchronized();
    let room = subflow.tcp.window_or_probe_room_bytes().max(if idle { segment } else { 0 }).min(65_535);
    // While an infinite mapping is on its way, each segment carries its own (see `InfiniteMapping::is_restart`).
    let announcing = stream.fallback.is_announcing();
    let most =
        if announcing { subflow.tcp.segment_payload_bytes_with(MOST_DATA_OPTION_BYTES) as u64 } else { room };
    let unsent = stream.send.unsent_bytes();
    let held = subflow.tcp.in_flight_bytes() + subflow.tcp.unsent_bytes();
    if room == 0 || unsent < most.min(65_535) && scheduling.tail_waits(&stream.lifecycle, held) {
        return 0;
    }
    let count = room.min(most).min(unsent);
    if count == unsent || announcing {
        return count;
    }
    // The window grows by fractions of a segment; whole segments leave (RFC 9293 §3.8.6.2.1).
    match count {
        _ if count < segment && !idle => 0,
        _ if count > segment => count - count % segment,
        _ => count,
    }
}
