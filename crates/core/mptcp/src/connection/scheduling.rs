//! The scheduler of a connection, and when it is asked.

use alloc::boxed::Box;
use alloc::vec::Vec;

use polypath_units::Instant;
use polypath_wire::DataSeq;

use super::lifecycle::Lifecycle;
use super::stream::Stream;
use crate::identifiers::SubflowId;
use crate::scheduler::{Decision, Scheduler, SubflowView, View};

/// Two of the largest segments: with as much in flight, the peer acknowledges soon.
const TAIL_WAITS_BEHIND_BYTES: u64 = 2 * 65_535;

/// Who decides which subflow sends what, and why it is asked.
#[derive(Debug)]
pub(super) struct Scheduling {
    scheduler: Box<dyn Scheduler>,
    /// Scratch space of the scheduler's view, kept to save its allocation.
    candidates: Vec<SubflowView>,
    /// With nothing in flight, a window of less than a segment is used from then on (RFC 9293 §3.8.6.2.1).
    sliver_at: Instant,
    /// Something changed that may let data go out.
    is_due: bool,
    /// The application wrote since data was last scheduled.
    is_written: bool,
    /// Data is scheduled because the application wrote, and for no other reason: see [`Scheduling::tail_waits`].
    only_written: bool,
    /// The application holds back what fills no segment (`TCP_CORK`).
    is_corked: bool,
}

impl Scheduling {
    pub(super) fn new(scheduler: Box<dyn Scheduler>) -> Self {
        Self {
            scheduler,
            candidates: Vec::new(),
            sliver_at: Instant::FAR_FUTURE,
            is_due: true,
            is_written: false,
            only_written: false,
            is_corked: false,
        }
    }

    // ---- what happened

    /// Something changed that may let data go out.
    #[inline]
    pub(super) fn request(&mut self) {
        self.is_due = true;
    }

    /// Another scheduler decides from now on, and is asked at once.
    pub(super) fn replace(&mut self, scheduler: Box<dyn Scheduler>) {
        self.scheduler = scheduler;
        self.is_due = true;
    }

    /// The application wrote.
    #[inline]
    pub(super) fn handle_write(&mut self) {
        self.is_written = true;
    }

    /// So many bytes from `seq` on went to a subflow.
    #[inline]
    pub(super) fn handle_sent(&mut self, id: SubflowId, seq: DataSeq, len_bytes: u64) {
        self.scheduler.on_sent(id, seq, len_bytes);
    }

    /// What fills no segment is held back, or not.
    pub(super) fn cork(&mut self, is_corked: bool) {
        self.is_corked = is_corked;
    }

    /// The time may have come to use a sliver of window.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.is_due |= self.sliver_at <= now;
    }

    // ---- what is wanted

    /// Data is to be scheduled; once for each reason.
    #[inline]
    pub(super) fn poll(&mut self) -> bool {
        if !self.is_due && !self.is_written {
            return false;
        }
        self.only_written = !core::mem::take(&mut self.is_due);
        self.is_written = false;
        true
    }

    /// The scheduler's decision about the data of a stream, for the first `regular` of the candidates, or the others, which wait.
    #[inline]
    pub(super) fn select(
        &mut self,
        now: Instant,
        stream: &Stream,
        candidates: &[SubflowView],
        regular: usize,
    ) -> Option<Decision> {
        if regular == 0 {
            return None;
        }
        let send = &stream.send;
        let unsent_bytes = send.unsent_bytes();
        let window = send.window_room_bytes();
        // What is left of a window that holds no whole segment is closed, too: no new data will leave before a timer says so
        // (RFC 9293 §3.8.6.2.1), and what blocks the window may go out again instead.
        let subflows = candidates.get(..regular).unwrap_or_default();
        let least_segment = subflows.iter().map(|subflow| subflow.segment_bytes).min().map_or(0, u64::from);
        let is_sliver = window < least_segment && window < unsent_bytes;
        let window = if is_sliver { 0 } else { window };
        self.scheduler.select(&View {
            now,
            subflows,
            standby: candidates.get(regular..).unwrap_or_default(),
            new_bytes: unsent_bytes.min(window),
            unsent_bytes,
            window_left_bytes: window,
            more_to_come: send.wants_writable(),
            reinjection_bytes: send.reinjection_bytes(),
            data_una: send.una(),
            data_next: send.next(),
            window_limited: unsent_bytes > 0 && window == 0,
            send_buffer_full: unsent_bytes == 0
                && send.under_way_bytes() + least_segment > stream.config.tcp.send_buffer_bytes,
            holder_of_una: send.sent().front().map(|chunk| chunk.subflow),
            reinjection_from: send.reinjection().and_then(|front| front.from),
            sent: send.sent(),
        })
    }

    #[inline]
    pub(super) const fn next_timeout(&self) -> Instant {
        self.sliver_at
    }

    /// No timer runs: the connection is over.
    pub(super) fn stop(&mut self) {
        self.sliver_at = Instant::FAR_FUTURE;
    }

    // ---- what the scheduler is

    /// See [`Scheduler::name`].
    pub(super) fn name(&self) -> &'static str {
        self.scheduler.name()
    }

    /// See [`Scheduler::copies`].
    #[inline]
    pub(super) fn copies(&self) -> bool {
        self.scheduler.copies()
    }

    /// See [`Scheduler::knows_slow_paths`].
    pub(super) fn knows_slow_paths(&self) -> bool {
        self.scheduler.knows_slow_paths()
    }

    /// Scratch space, to be given back.
    #[inline]
    pub(super) fn take_candidates(&mut self) -> Vec<SubflowView> {
        core::mem::take(&mut self.candidates)
    }

    /// See [`Scheduling::take_candidates`].
    #[inline]
    pub(super) fn give_back(&mut self, candidates: Vec<SubflowView>) {
        self.candidates = candidates;
    }

    // ---- what waits

    /// The end of what the application has written so far waits for more of it, or for the next acknowledgment, while the
    /// subflow holds so much that one must be on its way: what a program writes in one go leaves in few large segments.
    #[inline]
    pub(super) fn tail_waits(&self, lifecycle: &Lifecycle, held_bytes: u64) -> bool {
        !lifecycle.is_shut_down() && self.only_written && held_bytes >= TAIL_WAITS_BEHIND_BYTES
    }

    /// The end of what was written, which fills no segment, waits for more (`TCP_CORK`).
    #[inline]
    pub(super) fn holds_back(&self, lifecycle: &Lifecycle, unsent_bytes: u64, segment_bytes: u64) -> bool {
        self.is_corked && unsent_bytes < segment_bytes && !lifecycle.is_shut_down() && lifecycle.is_mptcp()
    }

    /// The end of what was written, which fills no segment, waits for more.
    #[inline]
    pub(super) const fn is_corked(&self) -> bool {
        self.is_corked
    }

    /// When a sliver of window may be used that waits; none waits afterwards.
    #[inline]
    pub(super) fn take_sliver(&mut self) -> Instant {
        core::mem::replace(&mut self.sliver_at, Instant::FAR_FUTURE)
    }

    /// A sliver of window may be used from then on.
    pub(super) fn wait_for_sliver(&mut self, until: Instant) {
        self.sliver_at = until;
    }
}
