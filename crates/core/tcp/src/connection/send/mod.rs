//! What this end sends: data, its positions, and what the peer has of it (RFC 9293 §3.3.1, send sequence space).

mod peer_window;
mod sent_totals;

use core::fmt::Debug;

use polypath_units::{Duration, Instant};
use polypath_wire::{Payload, SackBlock, SeqNumber};

use crate::rate_start::RateStart;
use crate::scoreboard::{Flags, Newly, Scoreboard, Sent, most_stretches};
use crate::send_queue::SendQueue;

use peer_window::PeerWindow;
use sent_totals::SentTotals;

/// A position that nothing reaches.
const NOWHERE: u64 = u64::MAX;

/// The send half. Positions count from the initial sequence number: SYN is 0, the first byte 1, FIN comes after the last.
#[derive(Debug)]
pub(super) struct SendHalf<M> {
    queue: SendQueue<M>,
    board: Scoreboard,
    window: PeerWindow,
    totals: SentTotals,
    /// First position not acknowledged, and first not sent (SND.UNA, SND.NXT).
    una: u64,
    next: u64,
    /// Position of our FIN; [`NOWHERE`] before it left.
    fin_at: u64,
    isn: SeqNumber,
    /// FIN follows everything queued.
    finishing: bool,
}

impl<M: Copy + PartialEq + Debug + Default> SendHalf<M> {
    pub(super) fn new(isn: SeqNumber) -> Self {
        Self {
            queue: SendQueue::new(),
            board: Scoreboard::default(),
            window: PeerWindow::new(),
            totals: SentTotals::default(),
            una: 0,
            next: 0,
            fin_at: NOWHERE,
            isn,
            finishing: false,
        }
    }

    // ---- commands

    /// Appends data, unless FIN was asked for.
    pub(super) fn enqueue(&mut self, data: Payload, mapping: M) {
        if !self.finishing {
            self.queue.push(data, mapping);
        }
    }

    /// Has FIN follow everything queued.
    pub(super) fn finish(&mut self) {
        self.finishing = true;
    }

    // ---- what happened

    /// Our SYN left.
    pub(super) fn handle_syn_sent(&mut self) {
        self.next = 1;
    }

    /// The peer's SYN came, with this window.
    pub(super) fn handle_syn(&mut self, window: u16, shift: Option<u8>) {
        self.window.handle_syn(window, shift);
    }

    /// Our SYN was acknowledged; so many bytes may follow it.
    pub(super) fn handle_syn_acked(&mut self, window_bytes: u64) {
        self.una = 1;
        self.next = self.next.max(1);
        self.window.open(window_bytes);
    }

    /// Everything before `until` was acknowledged.
    #[inline]
    pub(super) fn handle_ack(&mut self, until: u64, newly: &mut Newly) {
        newly.from = self.una;
        self.board.acknowledge(until, newly);
        self.una = until;
        self.queue.acknowledge(self.acked_offset());
    }

    /// A segment came that gives a window, began at the peer's offset `seq` and acknowledged `ack`. See
    /// [`PeerWindow::handle_segment`].
    #[inline]
    pub(super) fn handle_window(&mut self, seq: u64, ack: SeqNumber, window: u16) -> Option<bool> {
        let ack = self.una + self.ahead(ack).max(0) as u64;
        self.window.handle_segment(seq, ack, window)
    }

    /// SACK blocks came. Returns the first if it reports a duplicate (RFC 2883).
    pub(super) fn handle_sack(&mut self, blocks: &[SackBlock], newly: &mut Newly) -> Option<(u64, u64)> {
        let mut duplicate = None;
        let high_sacked = self.board.high_sacked();
        let most_stretches = most_stretches(self.outstanding_bytes());
        for (index, block) in blocks.iter().enumerate() {
            let Some((start, end)) = self.positions_of(block) else {
                continue;
            };
            let inside_second = index == 0
                && blocks
                    .get(1)
                    .and_then(|second| self.positions_of(second))
                    .is_some_and(|(second_start, second_end)| start >= second_start && end <= second_end);
            if index == 0 && (end <= self.una || inside_second) {
                duplicate = Some((start, end));
                continue;
            }
            if start < self.una || end > self.next {
                continue;
            }
            self.board.sack((start, end), high_sacked, most_stretches, newly);
        }
        duplicate
    }

    /// New data left, and with `fin` our FIN behind it.
    pub(super) fn handle_sent(&mut self, sent: Sent, fin: bool) {
        self.next = sent.end();
        if fin {
            self.fin_at = self.next - 1;
        }
        self.board.push(sent);
    }

    /// Payload leaves in so many segments, for the first time or again.
    #[inline]
    pub(super) fn count_sent(&mut self, bytes: u64, segments: u64) {
        self.totals.count(bytes, segments);
    }

    /// Payload leaves again.
    pub(super) fn count_resent(&mut self, bytes: u64) {
        self.totals.count_again(bytes);
    }

    // ---- positions and sequence numbers

    /// First position not acknowledged (SND.UNA).
    #[inline]
    pub(super) const fn una(&self) -> u64 {
        self.una
    }

    /// First position not sent (SND.NXT).
    #[inline]
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Everything that left was acknowledged.
    #[inline]
    pub(super) const fn is_idle(&self) -> bool {
        self.una == self.next
    }

    /// What left and was not acknowledged.
    #[inline]
    pub(super) const fn outstanding_bytes(&self) -> u64 {
        self.next - self.una
    }

    /// Our initial sequence number (ISS).
    pub(super) const fn isn(&self) -> SeqNumber {
        self.isn
    }

    /// The sequence number of a position.
    #[inline]
    pub(super) fn wire(&self, position: u64) -> SeqNumber {
        self.isn.add(position as u32)
    }

    /// How far a sequence number lies behind what is acknowledged.
    #[inline]
    pub(super) fn ahead(&self, seq: SeqNumber) -> i64 {
        i64::from(seq.diff(self.wire(self.una)))
    }

    fn positions_of(&self, block: &SackBlock) -> Option<(u64, u64)> {
        let position = |seq: SeqNumber| self.una.checked_add_signed(self.ahead(seq));
        let (start, end) = (position(block.start)?, position(block.end)?);
        (start < end && end - start <= 1 << 30).then_some((start, end))
    }

    // ---- totals

    /// Payload sent, retransmissions included.
    pub(super) const fn sent_bytes(&self) -> u64 {
        self.totals.bytes()
    }

    /// Data segments sent, an aggregate by its parts.
    pub(super) const fn sent_segments(&self) -> u64 {
        self.totals.segments()
    }

    /// Payload retransmitted.
    pub(super) const fn resent_bytes(&self) -> u64 {
        self.totals.resent_bytes()
    }

    /// Segments retransmitted.
    pub(super) const fn resends(&self) -> u64 {
        self.totals.resends()
    }

    // ---- the queue

    /// Bytes queued that have not left.
    #[inline]
    pub(super) fn unsent_bytes(&self) -> u64 {
        (self.queue.end() + 1).saturating_sub(self.next.max(1))
    }

    /// Stream offset up to which the peer has acknowledged.
    #[inline]
    pub(super) fn acked_offset(&self) -> u64 {
        self.una.saturating_sub(1).min(self.queue.end())
    }

    /// Stream offset up to which data has left.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn sent_offset(&self) -> u64 {
        self.next.saturating_sub(1).min(self.queue.end())
    }

    /// Stream offset after the last byte queued.
    pub(super) fn enqueued_offset(&self) -> u64 {
        self.queue.end()
    }

    /// How many bytes one segment may take from `position` on: to the end of the mapping.
    #[inline]
    pub(super) fn contiguous_bytes(&mut self, position: u64) -> u64 {
        self.queue.contiguous_bytes(position - 1)
    }

    /// The same of what goes out again, at most `most`; FIN takes a position of its own behind the last byte.
    pub(super) fn contiguous_to_resend(&mut self, position: u64, most: u64) -> u64 {
        match self.contiguous_bytes(position) {
            // The FIN alone.
            0 => 1,
            contiguous if position + contiguous == self.queue.end() + 1 => most.min(contiguous + 1),
            contiguous => most.min(contiguous),
        }
    }

    /// The mapping of the byte at `position`, and whether it is its first.
    #[inline]
    pub(super) fn mapping_at(&mut self, position: u64) -> Option<(M, bool)> {
        self.queue.mapping_at(position.checked_sub(1)?)
    }

    /// Up to `count` bytes from `position`, the mapping of the first, and whether the mapping begins with it.
    #[inline]
    pub(super) fn slice(&mut self, position: u64, count: u64) -> Option<(Payload, M, bool)> {
        self.queue.slice(position - 1, count as usize)
    }

    /// What is not acknowledged as a whole, chunk by chunk: start offset, length, mapping, data.
    #[cfg(test)]
    pub(super) fn mappings(&self) -> impl Iterator<Item = (u64, usize, M, &Payload)> {
        self.queue.chunks().map(|chunk| (chunk.start, chunk.data.len(), chunk.mapping, &chunk.data))
    }

    // ---- FIN

    /// FIN was asked for.
    #[inline]
    pub(super) const fn is_finishing(&self) -> bool {
        self.finishing
    }

    /// FIN leaves behind the next `count` bytes.
    #[inline]
    pub(super) fn fin_follows(&self, count: u64) -> bool {
        self.finishing && self.fin_at == NOWHERE && self.next + count == self.queue.end() + 1
    }

    /// The piece ends with our FIN.
    pub(super) fn ends_with_fin(&self, piece: &Sent) -> bool {
        self.fin_at == piece.end() - 1
    }

    /// Everything before our FIN was acknowledged.
    pub(super) fn has_delivered_all(&self) -> bool {
        self.una >= self.fin_at
    }

    /// Our FIN was acknowledged.
    #[inline]
    pub(super) fn is_fin_acked(&self) -> bool {
        self.una > self.fin_at
    }

    // ---- the window

    /// Right edge of the window that the peer gives, as a position.
    #[inline]
    pub(super) const fn window_end(&self) -> u64 {
        self.window.end()
    }

    /// The last window of the peer.
    #[inline]
    pub(super) const fn window_bytes(&self) -> u64 {
        self.window.bytes()
    }

    /// The largest that it has shown.
    #[inline]
    pub(super) const fn largest_window_bytes(&self) -> u64 {
        self.window.largest_bytes()
    }

    /// What the window leaves for new data.
    #[inline]
    pub(super) const fn window_room_bytes(&self) -> u64 {
        self.window.end().saturating_sub(self.next)
    }

    /// Bytes in flight: RFC 6675's pipe.
    #[inline]
    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.board.pipe_bytes(self.outstanding_bytes())
    }

    /// What became of what left.
    #[inline]
    pub(super) const fn board(&self) -> &Scoreboard {
        &self.board
    }

    // ---- verdicts on what is lost; those that return bytes say how many became lost

    /// RACK's (RFC 8985 §6.2, step 5), and when to look again.
    #[inline]
    pub(super) fn lose_late(
        &mut self,
        now: Instant,
        reference: (Instant, u64),
        window: Duration,
    ) -> (u64, Option<Instant>) {
        self.board.detect_losses(now, reference, window)
    }

    /// The first piece that is not selectively acknowledged is lost, or its first `most` bytes.
    pub(super) fn lose_front(&mut self, most: u64) -> u64 {
        self.board.mark_front_lost(most)
    }

    /// What had left once and lies before `until` is lost, unless it was selectively acknowledged.
    pub(super) fn lose_originals_before(&mut self, until: u64) -> u64 {
        self.board.mark_originals_lost(until)
    }

    /// The same of those that end there or before.
    pub(super) fn lose_whole_originals_before(&mut self, until: u64) -> u64 {
        self.board.mark_whole_originals_lost(until)
    }

    /// What is longer than a segment may now be is lost, and what left before it.
    pub(super) fn lose_longer(&mut self, most: u64) {
        self.board.mark_longer_lost(most);
    }

    /// What lies before `until` and left before `since` is lost: the timeout was genuine.
    pub(super) fn lose_before(&mut self, until: u64, since: Instant) -> u64 {
        self.notice_reneging();
        self.board.mark_lost_before(until, since)
    }

    /// Everything is lost that is not selectively acknowledged (RFC 6675 §5.1).
    pub(super) fn lose_all(&mut self) -> u64 {
        self.notice_reneging();
        let before = self.board.lost_bytes();
        self.board.mark_all_lost();
        self.board.lost_bytes() - before
    }

    /// A receiver that lost what it had selectively acknowledged shows as a first piece that is (RFC 2018 §8).
    fn notice_reneging(&mut self) {
        if self.board.front().is_some_and(|front| front.flags.has(Flags::SACKED)) {
            self.board.forget_sacks();
        }
    }

    /// What was not sent again is not lost after all.
    pub(super) fn take_back_losses(&mut self) {
        self.board.unmark_lost();
    }

    /// Start of the first piece that waits to be sent again.
    #[inline]
    pub(super) fn poll_lost(&mut self) -> Option<u64> {
        self.board.next_lost()
    }

    /// The piece from `position` on, or its first `most` bytes, leaves again.
    pub(super) fn resend(&mut self, position: u64, most: u64, now: Instant, rate: RateStart) -> Option<Sent> {
        self.board.resend(position, most, now, rate)
    }

    /// What holds whatever the peer does.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.board.check();
        assert!(self.una <= self.next);
        assert!(self.next <= self.queue.end() + 2, "SYN, data, FIN");
        assert!(self.board.front().is_none_or(|front| front.start == self.una));
    }
}
