use alloc::collections::VecDeque;
use alloc::vec::Vec;

use polypath_units::Instant;
use polypath_wire::DataSeq;

use super::{SubflowView, View};
use crate::identifiers::SubflowId;
use crate::sent_chunk::SentChunk;

/// A connection made up for a test of a scheduler, in this crate or outside.
///
/// ```
/// # mod polypath { pub use {polypath_mptcp as mptcp, polypath_units as units}; }
/// use polypath::mptcp::SubflowId;
/// use polypath::mptcp::scheduler::{Policy, SubflowView, View};
/// use polypath::units::Duration;
///
/// let (fast, slow) = (SubflowView::new(1, Duration::from_millis(10)), SubflowView::new(2, Duration::from_millis(80)));
/// let made_up = View::builder().subflow(slow).subflow(fast).unsent_bytes(100_000);
/// let mut scheduler = Policy::by_name("lowest-rtt").unwrap().build();
/// assert_eq!(scheduler.select(&made_up.view()).unwrap().subflow, SubflowId(1));
/// ```
#[derive(Clone, Debug)]
pub struct ViewBuilder {
    now: Instant,
    subflows: Vec<SubflowView>,
    standby: Vec<SubflowView>,
    sent: VecDeque<SentChunk>,
    unsent_bytes: u64,
    window_left_bytes: u64,
    send_buffer_full: bool,
    more_to_come: bool,
    reinjection: Option<(SubflowId, u64)>,
}

impl Default for ViewBuilder {
    /// Nothing sent, nothing to send, no subflow, and a window without an end.
    fn default() -> Self {
        Self {
            now: Instant::ZERO,
            subflows: Vec::new(),
            standby: Vec::new(),
            sent: VecDeque::new(),
            unsent_bytes: 0,
            window_left_bytes: u64::MAX,
            send_buffer_full: false,
            more_to_come: false,
            reinjection: None,
        }
    }
}

impl ViewBuilder {
    /// The time.
    #[must_use]
    pub const fn now(mut self, now: Instant) -> Self {
        self.now = now;
        self
    }

    /// One more subflow that may carry data.
    #[must_use]
    pub fn subflow(mut self, subflow: SubflowView) -> Self {
        self.subflows.push(subflow);
        self
    }

    /// One more backup that waits.
    #[must_use]
    pub fn standby(mut self, subflow: SubflowView) -> Self {
        self.standby.push(subflow);
        self
    }

    /// Data that the subflow with the id `subflow` was given, after what was sent before; nothing of it is acknowledged. At most 4 GB.
    #[must_use]
    pub fn sent(mut self, subflow: impl Into<SubflowId>, len_bytes: u32) -> Self {
        let subflow = subflow.into();
        let of_subflow = self.sent.iter().filter(|chunk| chunk.subflow == subflow);
        let end_offset = of_subflow.map(|chunk| u64::from(chunk.len)).sum::<u64>() + u64::from(len_bytes);
        let seq = self.sent.back().map_or(DataSeq(0), SentChunk::end);
        self.sent.push_back(SentChunk {
            seq,
            len: len_bytes,
            subflow,
            queued: false,
            again: false,
            end_offset,
        });
        self
    }

    /// What was written and never sent.
    #[must_use]
    pub const fn unsent_bytes(mut self, unsent_bytes: u64) -> Self {
        self.unsent_bytes = unsent_bytes;
        self
    }

    /// How much of it the peer's window has room for.
    #[must_use]
    pub const fn window_left_bytes(mut self, window_left_bytes: u64) -> Self {
        self.window_left_bytes = window_left_bytes;
        self
    }

    /// What is under way fills the send buffer.
    #[must_use]
    pub const fn send_buffer_full(mut self) -> Self {
        self.send_buffer_full = true;
        self
    }

    /// The application has more than the send buffer took.
    #[must_use]
    pub const fn more_to_come(mut self) -> Self {
        self.more_to_come = true;
        self
    }

    /// So many bytes wait for reinjection that the subflow with the id `subflow` lost.
    #[must_use]
    pub fn reinjection(mut self, subflow: impl Into<SubflowId>, bytes: u64) -> Self {
        self.reinjection = Some((subflow.into(), bytes));
        self
    }

    /// The connection as a scheduler sees it.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        let data_una = self.sent.front().map_or(DataSeq(0), |chunk| chunk.seq);
        View {
            now: self.now,
            subflows: &self.subflows,
            standby: &self.standby,
            new_bytes: self.unsent_bytes.min(self.window_left_bytes),
            unsent_bytes: self.unsent_bytes,
            window_left_bytes: self.window_left_bytes,
            more_to_come: self.more_to_come,
            reinjection_bytes: self.reinjection.map_or(0, |(_, bytes)| bytes),
            data_una,
            data_next: self.sent.back().map_or(DataSeq(0), SentChunk::end),
            window_limited: self.unsent_bytes > 0 && self.window_left_bytes == 0,
            send_buffer_full: self.send_buffer_full,
            holder_of_una: self.sent.front().map(|chunk| chunk.subflow),
            reinjection_from: self.reinjection.map(|(subflow, _)| subflow),
            sent: &self.sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use polypath_units::Duration;

    use super::*;
    use crate::scheduler::Data;

    #[test]
    fn what_was_sent_is_held_by_who_had_it() {
        let subflow = |id| SubflowView::new(id, Duration::from_millis(10));
        let made_up =
            View::builder().subflow(subflow(4)).subflow(subflow(7)).sent(4, 1000).sent(7, 500).sent(4, 1);
        let view = made_up.view();
        assert_eq!(
            (view.data_una, view.data_next, view.holder_of_una),
            (DataSeq(0), DataSeq(1501), Some(SubflowId(4)))
        );
        let held = view.held_at(DataSeq(1500)).unwrap();
        assert_eq!((held.subflow, held.end_offset, held.len_bytes()), (SubflowId(4), 1001, 1));
        assert_eq!(view.held_at(DataSeq(1501)), None);
        assert_eq!(view.next_data(SubflowId(4)), None);
        let made_up = made_up.unsent_bytes(10).window_left_bytes(0).reinjection(7, 500);
        let view = made_up.view();
        assert_eq!((view.new_bytes, view.window_limited), (0, true));
        assert_eq!(
            (view.next_data(SubflowId(4)), view.next_data(SubflowId(7))),
            (Some(Data::Reinjection), None)
        );
    }
}
