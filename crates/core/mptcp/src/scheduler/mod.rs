//! Schedulers: which subflow sends next, and which data. One policy a file.
//!
//! A scheduler sees numbers and returns a decision; it never touches packets. It is asked again after each decision,
//! until it answers `None`. `docs/schedulers.md` shows how to write one.

mod arrival;
mod backup_aware;
mod blest;
mod builder;
mod copy_budget;
mod default;
mod ecf;
mod fits_one;
mod lowest_rtt;
mod lowest_rtt_bm;
mod lowest_rtt_rp;
mod policy;
mod redundant;
mod round_robin;
mod weighted;

use alloc::collections::VecDeque;
use core::fmt;

use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

use crate::identifiers::SubflowId;
use crate::sent_chunk::SentChunk;
pub use builder::ViewBuilder;
pub use policy::{Policy, Schedulers, UnknownPolicy};

/// A scheduling policy, one instance a connection.
pub trait Scheduler: fmt::Debug + Send {
    /// The name by which users choose it.
    fn name(&self) -> &'static str;

    /// Picks a subflow, then the data for it. `None` waits for the next acknowledgment, write or timer.
    ///
    /// A subflow that is not in the view is a mistake: builds with debug assertions panic, others take it as `None`.
    fn select(&mut self, view: &View<'_>) -> Option<Decision>;

    /// `len_bytes` from `seq` on went to this subflow: what became of a decision.
    fn on_sent(&mut self, subflow: SubflowId, seq: DataSeq, len_bytes: u64) {
        let _ = (subflow, seq, len_bytes);
    }

    /// It wants to be asked while sent data is unacknowledged even if there is none to send: it may copy some.
    fn copies(&self) -> bool {
        false
    }

    /// It gives a path no more than arrives in time, whatever the window: a subflow that joins may begin with a large one
    /// ([`catch_up`](crate::ConnectionConfig::catch_up)).
    fn knows_slow_paths(&self) -> bool {
        false
    }
}

/// The connection as a scheduler sees it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The current time.
    pub now: Instant,
    /// The subflows that may carry data, in order of establishment: established, not closing, and no backup while a regular
    /// subflow works.
    pub subflows: &'a [SubflowView],
    /// Backups that wait while a regular subflow works. A decision may name one of them, too.
    pub standby: &'a [SubflowView],
    /// Bytes never sent before that the send window allows.
    pub new_bytes: u64,
    /// Bytes never sent before, whatever the window.
    pub unsent_bytes: u64,
    /// How much never-sent data the peer's window has room for.
    pub window_left_bytes: u64,
    /// The application has more than the send buffer took.
    pub more_to_come: bool,
    /// Bytes that wait for reinjection: another subflow timed out on them, or died.
    pub reinjection_bytes: u64,
    /// First byte that is not data-acknowledged.
    pub data_una: DataSeq,
    /// First byte never sent.
    pub data_next: DataSeq,
    /// The peer's receive window, not the network, keeps new data back.
    pub window_limited: bool,
    /// What is under way fills the send buffer, and keeps new data back.
    pub send_buffer_full: bool,
    /// Id of the subflow that holds `data_una`, if one does.
    pub holder_of_una: Option<SubflowId>,
    /// Id of the subflow that lost the data at the front of the reinjection queue; it is not asked to carry it again
    /// while another can.
    pub reinjection_from: Option<SubflowId>,
    /// What was sent and is not data-acknowledged, in order.
    pub(crate) sent: &'a VecDeque<SentChunk>,
}

/// Sent data that is not data-acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// First byte.
    pub seq: DataSeq,
    /// After the last byte.
    pub end: DataSeq,
    /// Id of the subflow that had it last.
    pub subflow: SubflowId,
    /// Offset in that subflow's stream after its last byte.
    pub end_offset: u64,
    /// It had left over another subflow before, and may arrive there.
    pub again: bool,
}

impl Held {
    /// Its length.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        self.end.diff(self.seq).unsigned_abs()
    }
}

/// One subflow as a scheduler sees it.
#[derive(Clone, Copy, Debug)]
pub struct SubflowView {
    /// Stable identifier within the connection.
    pub id: SubflowId,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Least round-trip time.
    pub min_rtt: Duration,
    /// Mean deviation of the round-trip time (RFC 6298).
    pub rtt_variance: Duration,
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Slow-start threshold in bytes.
    pub ssthresh_bytes: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Bytes handed to the subflow that have not left yet.
    pub unsent_bytes: u64,
    /// Bytes that could leave now.
    pub room_bytes: u64,
    /// Payload of a full segment.
    pub segment_bytes: u32,
    /// Either end made it a backup.
    pub backup: bool,
    /// Retransmission timeouts since the last progress; above zero the path may be dead.
    pub timeouts: u8,
    /// The peer has been silent for two round-trip times: a tail loss probe waits for an answer, or is not even possible.
    pub is_probing: bool,
    /// A loss is being repaired.
    pub in_recovery: bool,
    /// Offset in its stream up to which the peer has acknowledged.
    pub acked_offset: u64,
    /// What the path's bottleneck carries, if a queue showed that, now or to an earlier connection.
    pub bottleneck_bytes_per_s: Option<u64>,
    /// It carried more when the subflow was given what is under way.
    pub bottleneck_has_fallen: bool,
    /// For how long that is busy with what the subflow was given.
    pub bottleneck_busy: Duration,
}

/// Which subflow, which data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// One of [`View::subflows`], or of [`View::standby`].
    pub subflow: SubflowId,
    /// The data.
    pub data: Data,
    /// At most this many bytes; `u64::MAX` for as much as the subflow has room for. They leave in whole segments, except where data
    /// ends, or a copy reaches the limit.
    pub limit_bytes: u64,
    /// Halves the window of a subflow: penalization, Paasch 4.2.1.
    pub penalize: Option<Penalty>,
}

/// A halved congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// Whose.
    pub subflow: SubflowId,
    /// Also lower the slow-start threshold.
    pub ssthresh: bool,
}

/// Which data a subflow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// What was never sent.
    New,
    /// The front of the reinjection queue.
    Reinjection,
    /// A copy of sent, unacknowledged data from here on: opportunistic retransmission, redundancy.
    Copy(DataSeq),
}

impl Decision {
    /// As much of `data` as the subflow has room for.
    #[must_use]
    pub const fn send(subflow: SubflowId, data: Data) -> Self {
        Self { subflow, data, limit_bytes: u64::MAX, penalize: None }
    }
}

impl View<'_> {
    /// A connection made up for a test of a scheduler.
    #[must_use]
    pub fn builder() -> ViewBuilder {
        ViewBuilder::default()
    }

    /// What most policies want to send next through this subflow: reinjections first, then new data.
    #[must_use]
    pub fn next_data(&self, subflow: SubflowId) -> Option<Data> {
        if self.reinjection_bytes > 0 && (self.reinjection_from != Some(subflow) || self.subflows.len() == 1)
        {
            Some(Data::Reinjection)
        } else if self.new_bytes > 0 {
            Some(Data::New)
        } else {
            None
        }
    }

    /// The sent, unacknowledged data that begins at `seq` or holds it.
    #[must_use]
    pub fn held_at(&self, seq: DataSeq) -> Option<Held> {
        let at = self.sent.partition_point(|chunk| !chunk.end().after(seq));
        let chunk = self.sent.get(at)?;
        let (seq, end) = (chunk.seq.max(seq), chunk.end());
        Some(Held { seq, end, subflow: chunk.subflow, end_offset: chunk.end_offset, again: chunk.again })
    }

    /// The subflow with this id, among those that may carry data.
    #[must_use]
    pub fn subflow(&self, id: SubflowId) -> Option<&SubflowView> {
        self.subflows.iter().find(|subflow| subflow.id == id)
    }
}

impl SubflowView {
    /// A subflow that has just begun: a window of ten segments of 1460 bytes, nothing in flight, and room for all of it.
    #[must_use]
    pub fn new(id: impl Into<SubflowId>, srtt: Duration) -> Self {
        Self {
            id: id.into(),
            srtt,
            min_rtt: srtt,
            rtt_variance: Duration::ZERO,
            window_bytes: 14_600,
            ssthresh_bytes: u64::MAX,
            in_flight_bytes: 0,
            unsent_bytes: 0,
            room_bytes: 14_600,
            segment_bytes: 1460,
            backup: false,
            timeouts: 0,
            is_probing: false,
            in_recovery: false,
            acked_offset: 0,
            bottleneck_bytes_per_s: None,
            bottleneck_has_fallen: false,
            bottleneck_busy: Duration::ZERO,
        }
    }

    /// Room for a full segment, and no sign of a dead path.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.room_bytes >= u64::from(self.segment_bytes) && self.timeouts == 0
    }

    /// What is in flight or waits to leave, in bytes.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.in_flight_bytes + self.unsent_bytes
    }

    /// Below the slow-start threshold.
    #[must_use]
    pub fn in_slow_start(&self) -> bool {
        self.window_bytes < self.ssthresh_bytes
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn subflow(id: u8, srtt_ms: u64, room_packets: u64) -> SubflowView {
        let subflow = SubflowView::new(id, Duration::from_millis(srtt_ms));
        SubflowView { room_bytes: room_packets * 1460, ..subflow }
    }

    static NOTHING_SENT: VecDeque<SentChunk> = VecDeque::new();

    pub(crate) fn view(subflows: &[SubflowView]) -> View<'_> {
        View {
            now: Instant::ZERO,
            subflows,
            standby: &[],
            new_bytes: 100_000,
            unsent_bytes: 100_000,
            window_left_bytes: 100_000,
            more_to_come: false,
            reinjection_bytes: 0,
            data_una: DataSeq(0),
            data_next: DataSeq(0),
            window_limited: false,
            send_buffer_full: false,
            holder_of_una: None,
            reinjection_from: None,
            sent: &NOTHING_SENT,
        }
    }

    /// Data that was sent: number of the first byte, length, subflow.
    pub(crate) fn sent(chunks: &[(u64, u32, u8)]) -> VecDeque<SentChunk> {
        let mut offsets = [0; 256];
        let chunk = |&(seq, len, subflow): &(u64, u32, u8)| {
            let end_offset = &mut offsets[usize::from(subflow)];
            *end_offset += u64::from(len);
            SentChunk {
                seq: DataSeq(seq),
                len,
                subflow: subflow.into(),
                queued: false,
                again: false,
                end_offset: *end_offset,
            }
        };
        chunks.iter().map(chunk).collect()
    }

    #[test]
    fn lost_data_is_not_offered_to_the_subflow_that_lost_it() {
        let subflows = [subflow(3, 10, 1), subflow(5, 20, 1)];
        let mut view = view(&subflows);
        view.reinjection_bytes = 1460;
        view.reinjection_from = Some(SubflowId(3));
        assert_eq!(view.next_data(SubflowId(3)), Some(Data::New));
        assert_eq!(view.next_data(SubflowId(5)), Some(Data::Reinjection));
    }
}
