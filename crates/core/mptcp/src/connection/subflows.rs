//! The subflows of a connection, in one table.

use alloc::boxed::Box;
use alloc::vec::Vec;

use polypath_congestion::FlowView;
use polypath_tcp::Connection as TcpConnection;
use polypath_units::{Duration, Instant};

use super::subflow_table::SubflowTable;
use crate::identifiers::SubflowId;
use crate::mapping::Mapping;
use crate::scheduler::SubflowView;
use crate::sent_chunk::SentChunk;
use crate::subflow::{Stage, Subflow};

/// Subflows in the order of their arrival. A *position* is an index into this table: it holds until a subflow goes, and then those
/// behind it move up. What is kept for longer is the identifier.
#[derive(Debug, Default)]
pub(super) struct Subflows {
    table: SubflowTable,
    next_id: SubflowId,
    /// Position of the subflow that sends next.
    turn: usize,
}

impl Subflows {
    /// Adds a subflow that `make` makes for an identifier which no other has.
    pub(super) fn add(&mut self, make: impl FnOnce(SubflowId) -> Subflow) -> SubflowId {
        let mut id = self.next_id;
        while self.position(id).is_some() {
            id = id.next();
        }
        self.next_id = id.next();
        self.table.push(Box::new(make(id)));
        id
    }

    /// Takes out the subflow at `position`.
    pub(super) fn remove(&mut self, position: usize) -> Option<Box<Subflow>> {
        self.table.remove(position)
    }

    /// Takes out the last.
    pub(super) fn pop(&mut self) -> Option<Box<Subflow>> {
        self.remove(self.table.len().checked_sub(1)?)
    }

    // ---- one of them

    /// Where the subflow `id` is.
    #[inline]
    pub(super) fn position(&self, id: SubflowId) -> Option<usize> {
        self.iter().position(|subflow| subflow.state.id == id)
    }

    /// Where the first is of which this holds.
    pub(super) fn position_where(&self, is_meant: impl Fn(&Subflow) -> bool) -> Option<usize> {
        self.iter().position(is_meant)
    }

    #[inline]
    pub(super) fn get(&self, position: usize) -> Option<&Subflow> {
        self.table.get(position)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, position: usize) -> Option<&mut Subflow> {
        self.table.get_mut(position)
    }

    /// The subflow `id`.
    #[inline]
    pub(super) fn find(&self, id: SubflowId) -> Option<&Subflow> {
        self.iter().find(|subflow| subflow.state.id == id)
    }

    /// The subflow `id`.
    #[inline]
    pub(super) fn find_mut(&mut self, id: SubflowId) -> Option<&mut Subflow> {
        self.iter_mut().find(|subflow| subflow.state.id == id)
    }

    #[inline]
    pub(super) fn first(&self) -> Option<&Subflow> {
        self.get(0)
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Subflow> {
        self.iter_mut().next_back()
    }

    /// The subflow at `position`, and what coupled congestion control sees of all.
    #[inline]
    pub(super) fn with_views(&mut self, position: usize) -> Option<(&mut Subflow, &[FlowView])> {
        self.table.with_views(position)
    }

    /// The subflow at `position` has handled something that may have changed its window or round-trip time.
    #[inline]
    pub(super) fn refresh_view(&mut self, position: usize) {
        self.table.refresh_view(position);
    }

    // ---- all of them

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    #[inline]
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Subflow> + ExactSizeIterator {
        self.table.iter()
    }

    #[inline]
    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Subflow> + ExactSizeIterator {
        self.table.iter_mut()
    }

    #[inline]
    pub(super) fn any(&self, is_meant: impl Fn(&Subflow) -> bool) -> bool {
        self.iter().any(is_meant)
    }

    #[inline]
    pub(super) fn all(&self, is_meant: impl Fn(&Subflow) -> bool) -> bool {
        self.iter().all(is_meant)
    }

    pub(super) fn count(&self, is_meant: impl Fn(&Subflow) -> bool) -> usize {
        self.iter().filter(|subflow| is_meant(subflow)).count()
    }

    /// The longest of what TCP says of each, or nothing.
    #[inline]
    pub(super) fn longest(&self, of: impl Fn(&TcpConnection<Mapping>) -> Duration) -> Duration {
        self.iter().map(|subflow| of(&subflow.tcp)).max().unwrap_or_default()
    }

    /// The subflow that had a chunk last has delivered it, or is gone.
    #[inline]
    pub(super) fn has_delivered(&self, chunk: &SentChunk) -> bool {
        self.find(chunk.subflow).is_none_or(|subflow| subflow.tcp.acked_offset() >= chunk.end_offset)
    }

    /// One whose peer begins to be silent while that of another is not. What it holds had better go elsewhere: the probe and the timeout of
    /// its own (RFC 8985 §7, RFC 6298) may be far, above all during a recovery.
    pub(super) fn notice_silence(&mut self, now: Instant) -> Option<SubflowId> {
        if self.len() < 2 {
            return None;
        }
        let mut suspect = None;
        for subflow in self.iter_mut() {
            if subflow.notice_silence(now) {
                suspect = Some(subflow.state.id);
            }
        }
        let is_alive = |subflow: &Subflow| {
            subflow.state.stage() == Stage::Established && !subflow.state.path.is_silent()
        };
        suspect.filter(|_| self.any(is_alive))
    }

    /// Subflows that may carry data, and behind them the backups that wait while a regular one works (RFC 8684 §3.3.8);
    /// returns how many may.
    pub(super) fn view(
        &self,
        now: Instant,
        segment_bytes: impl Fn(&Subflow) -> u64,
        out: &mut Vec<SubflowView>,
    ) -> usize {
        out.clear();
        let is_alone = self.len() == 1;
        let usable = self.iter().filter(|subflow| subflow.is_usable());
        out.extend(usable.map(|subflow| subflow.view(now, is_alone, segment_bytes(subflow) as u32)));
        let regular_works = out.iter().any(|subflow| !subflow.backup && subflow.timeouts == 0);
        if !regular_works || out.iter().all(|subflow| !subflow.backup) {
            return out.len();
        }
        out.sort_by_key(|subflow| subflow.backup);
        out.iter().filter(|subflow| !subflow.backup).count()
    }

    /// Where something is to leave although nothing may: `None` while a subflow that works has something in flight.
    pub(super) fn stalled(&self) -> Option<usize> {
        let candidates = self.iter().enumerate().filter(|(_, subflow)| subflow.is_usable());
        // Its timers run while it holds data. Those of a subflow that has timed out may be far.
        let (position, best) = candidates.min_by_key(|(at, subflow)| {
            let timeouts = subflow.tcp.consecutive_timeouts();
            (timeouts, !subflow.holds_data(), subflow.state.role.is_backup(), *at)
        })?;
        (!best.holds_data()).then_some(position)
    }

    // ---- whose turn it is

    /// Position of the subflow that sends next, or has just sent.
    #[inline]
    pub(super) fn turn(&mut self) -> usize {
        if self.turn >= self.table.len() {
            self.turn = 0;
        }
        self.turn
    }

    /// It has nothing more to send.
    #[inline]
    pub(super) fn next_turn(&mut self) {
        self.turn += 1;
    }

    /// Gives back the memory that an idle connection does not need.
    pub(super) fn trim(&mut self) {
        self.table.trim();
    }
}
