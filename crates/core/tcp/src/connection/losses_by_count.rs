//! Losses by how many segments have overtaken one (RFC 6675), and what the threshold follows, as in Linux 2.6.32.

use core::fmt::Debug;

use super::Connection;
use super::recovery::Phase;
use crate::scoreboard::Newly;

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// What a full segment carries.
    fn full_segment_bytes(&self) -> u64 {
        (self.segment_payload_bytes_with(0) as u64).max(1)
    }

    /// Segments from a position to the last that is selectively acknowledged.
    fn overtaken_segments(&self, from: u64) -> u64 {
        self.send.board().high_sacked().saturating_sub(from).div_ceil(self.full_segment_bytes())
    }

    /// Something never sent again arrived behind others, or was sent again and reported as a duplicate among what is behind a gap.
    pub(super) fn follow_reordering(&mut self, newly: &Newly, dsack: Option<(u64, u64)>) {
        let duplicate = dsack.map(|(start, _)| start).filter(|start| *start >= self.send.una());
        for from in newly.reordered_from.into_iter().chain(duplicate) {
            self.recovery.handle_reordered(self.overtaken_segments(from));
        }
    }

    /// The original of what fast recovery sent again arrived: it was overtaken by all that arrived before it.
    pub(super) fn follow_late_original(&mut self, newly: &Newly) {
        if !matches!(self.recovery.phase(), Phase::Fast { .. }) {
            return;
        }
        let segments = if self.handshake.has_sack() {
            self.overtaken_segments(newly.from)
        } else {
            let acked = (self.send.una() - newly.from).div_ceil(self.full_segment_bytes());
            u64::from(self.recovery.duplicates_in_a_row()) + acked
        };
        self.recovery.handle_reordered(segments);
    }

    /// Without SACK: more duplicate acknowledgments than segments that can have drawn them mean that nothing is lost.
    pub(super) fn follow_surplus_of_duplicates(&mut self) {
        let outstanding = self.send.outstanding_bytes().div_ceil(self.full_segment_bytes());
        if u64::from(self.recovery.duplicates_in_a_row()) + 1 > outstanding {
            self.recovery.handle_reordered(outstanding);
        }
    }

    /// Marks what enough segments have overtaken; returns the bytes.
    pub(super) fn find_losses_by_count(&mut self, advanced: bool) -> u64 {
        match self.recovery.phase() {
            Phase::Timeout { .. } => 0,
            Phase::Open if !self.has_enough_overtaken() => 0,
            Phase::Open => self.lose_overtaken(u64::MAX),
            // A partial acknowledgment proves nothing where few have overtaken what is missing now.
            Phase::Fast { .. }
                if advanced
                    && self.overtaken_segments(self.send.una())
                        <= u64::from(self.recovery.duplicate_threshold()) =>
            {
                0
            }
            Phase::Fast { until } => self.lose_overtaken(until),
        }
    }

    /// What arrived out of order is enough to take the first that is missing for lost.
    fn has_enough_overtaken(&self) -> bool {
        let full = self.full_segment_bytes();
        let board = self.send.board();
        let threshold = u64::from(self.recovery.duplicate_threshold());
        let sacked = (board.sacked_bytes() / full).max(board.sacked_stretches() as u64);
        if sacked >= threshold
            || self.recovery.counts_forward() && self.overtaken_segments(self.send.una()) > threshold
        {
            return true;
        }
        // Too few are out for the threshold, and no more can follow.
        let outstanding = self.send.outstanding_bytes().div_ceil(full);
        let least = u64::from(self.recovery.least_duplicate_threshold());
        outstanding <= threshold
            && sacked >= least.max(outstanding / 2)
            && (self.unsent_bytes() == 0 || self.send.window_room_bytes() == 0)
    }

    fn lose_overtaken(&mut self, until: u64) -> u64 {
        let full = self.full_segment_bytes();
        let threshold = self.recovery.duplicate_threshold();
        let board = self.send.board();
        let enough = u64::from(threshold) * full;
        if self.recovery.counts_forward() {
            let behind = board.high_sacked().saturating_sub(enough).min(until);
            return self.send.lose_whole_originals_before(behind).max(self.lose_front_at_first(full));
        }
        // What is missing first is lost in any case.
        let first = board.first_sacked().unwrap_or(self.send.una());
        self.send.lose_originals_before(board.overtaken_by(enough, threshold).max(first).min(until))
    }

    /// A recovery that begins has something to repair.
    fn lose_front_at_first(&mut self, most: u64) -> u64 {
        let nothing_yet = !self.recovery.is_active() && self.send.board().lost_bytes() == 0;
        if nothing_yet { self.send.lose_front(most) } else { 0 }
    }
}
