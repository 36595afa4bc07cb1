//! The scoreboard as a plain list of pieces that is walked and cut: slow, and what the real one must agree with.

use alloc::collections::VecDeque;

use polypath_units::{Duration, Instant};

use super::super::Flags;
use crate::rate_start::RateStart;

/// A stretch of sequence space that left in one piece. Positions count from the initial sequence number, which is 0,
/// and don't wrap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) start: u64,
    /// When it left last.
    pub(crate) at: Instant,
    /// The start of a delivery-rate sample.
    pub(crate) rate: RateStart,
    len: u32,
    pub(crate) flags: Flags,
}

impl Sent {
    pub(crate) fn new(start: u64, end: u64, at: Instant, rate: RateStart, flags: Flags) -> Self {
        // No window is larger than 2³⁰ bytes (RFC 7323 §2.3).
        Self { start, at, rate, len: (end - start) as u32, flags }
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len as u64
    }

    pub(crate) const fn end(&self) -> u64 {
        self.start + self.len as u64
    }

    fn leave(&mut self, now: Instant, rate: RateStart) {
        self.at = now;
        self.rate = rate;
    }

    /// RACK's order: by time, then by position (RFC 8985 §6.1).
    const fn order(&self) -> (Instant, u64) {
        (self.at, self.end())
    }

    /// Taken for lost, and not resent yet.
    const fn waits(&self) -> bool {
        self.flags.has(Flags::LOST) && !self.flags.has(Flags::RESENT)
    }
}

/// What an acknowledgment newly acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newly {
    /// Bytes that were neither acknowledged nor selectively acknowledged before.
    pub(crate) bytes: u64,
    /// The piece that left last among them: RACK's and the rate sample's reference.
    pub(crate) latest: Option<Sent>,
    /// When the last of the pieces that left only once did: the round-trip sample (RFC 6298 §3).
    pub(crate) rtt_from: Option<Instant>,
    /// Something never retransmitted was acknowledged.
    pub(crate) original: bool,
    /// Something lost or retransmitted was: what lies behind a hole may have arrived long before it was filled, so that no
    /// round trip is measured.
    pub(crate) resent: bool,
    /// A piece below the highest one acknowledged arrived now, and had not been retransmitted: reordering.
    pub(crate) reordered: bool,
}

impl Newly {
    #[inline]
    fn count(&mut self, sent: &Sent, bytes: u64) {
        self.bytes += bytes;
        if self.latest.is_none_or(|latest| latest.order() < sent.order()) {
            self.latest = Some(*sent);
        }
        self.resent |= sent.flags.has(Flags::EVER_RESENT.with(Flags::LOST));
        if !sent.flags.has(Flags::EVER_RESENT) {
            self.original = true;
            self.rtt_from = Some(self.rtt_from.map_or(sent.at, |at| at.max(sent.at)));
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    queue: VecDeque<Sent>,
    sacked_bytes: u64,
    lost_bytes: u64,
    resent_bytes: u64,
    /// Nothing before this position waits for retransmission.
    first_lost: u64,
    /// Everything before this position is selectively acknowledged, lost, or was resent.
    originals_from: u64,
    /// Retransmissions as `(when, start)`, oldest first. Stale entries fall out when RACK's reference passes them.
    resent: VecDeque<(Instant, u64)>,
    /// Highest position selectively acknowledged.
    high_sacked: u64,
    /// Pieces selectively acknowledged since none was.
    sacked_pieces: u32,
}

/// A queue that ran empty keeps room for so many pieces; an idle connection holds little memory.
const KEPT_PIECES: usize = 16;

impl Scoreboard {
    pub(crate) fn sacked_bytes(&self) -> u64 {
        self.sacked_bytes
    }

    pub(crate) fn sacked_pieces(&self) -> u32 {
        self.sacked_pieces
    }

    /// Lost and not resent.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_bytes - self.resent_bytes
    }

    pub(crate) fn has_resent(&self) -> bool {
        self.resent_bytes > 0
    }

    pub(crate) fn front(&self) -> Option<&Sent> {
        self.queue.front()
    }

    /// Bytes in flight of `outstanding` ones: RFC 6675's pipe.
    #[inline]
    pub(crate) fn pipe_bytes(&self, outstanding: u64) -> u64 {
        (outstanding + self.resent_bytes).saturating_sub(self.sacked_bytes + self.lost_bytes)
    }

    #[inline]
    pub(crate) fn push(&mut self, sent: Sent) {
        self.queue.push_back(sent);
    }

    /// Index of the piece that holds `position`, or of the first after it.
    #[inline]
    fn index_of(&self, position: u64) -> usize {
        match self.queue.front() {
            Some(front) if position >= front.end() => {
                self.queue.partition_point(|sent| sent.end() <= position)
            }
            _ => 0,
        }
    }

    /// Takes the marks off the books of a piece that is delivered.
    #[inline]
    fn settle(&mut self, flags: Flags, bytes: u64) {
        if flags.has(Flags::LOST) {
            self.lost_bytes -= bytes;
        }
        if flags.has(Flags::RESENT) {
            self.resent_bytes -= bytes;
        }
    }

    /// A cumulative acknowledgment up to `until`.
    #[inline]
    pub(crate) fn acknowledge(&mut self, until: u64, newly: &mut Newly) {
        while let Some(front) = self.queue.front_mut() {
            if front.start >= until {
                break;
            }
            let mut piece = *front;
            let whole = front.end() <= until;
            if whole {
                self.queue.pop_front();
            } else {
                piece.len = (until - piece.start) as u32;
                front.start = until;
                front.len -= piece.len;
            }
            let bytes = piece.len();
            if piece.flags.has(Flags::SACKED) {
                self.sacked_bytes -= bytes;
            } else {
                newly.reordered |= piece.end() < self.high_sacked && !piece.flags.has(Flags::EVER_RESENT);
                newly.count(&piece, bytes);
            }
            self.settle(piece.flags, bytes);
            if !whole {
                break;
            }
        }
        if self.sacked_bytes == 0 {
            self.sacked_pieces = 0;
        }
        if self.queue.is_empty() {
            self.resent.clear();
            if self.queue.capacity() > KEPT_PIECES {
                self.queue = VecDeque::new();
            }
            if self.resent.capacity() > KEPT_PIECES {
                self.resent = VecDeque::new();
            }
        }
    }

    /// A selective acknowledgment of `start..end`. Pieces that it covers in part are cut, unless there are `most_pieces`
    /// already: a peer may not grow the scoreboard beyond measure.
    ///
    /// `high_sacked` is [`Scoreboard::high_sacked`] before the segment that brought the block, as older blocks follow
    /// newer ones.
    pub(crate) fn sack(
        &mut self,
        (start, end): (u64, u64),
        high_sacked: u64,
        most_pieces: usize,
        newly: &mut Newly,
    ) {
        let mut at = self.index_of(start);
        while let Some(piece) = self.queue.get(at).copied() {
            if piece.start >= end {
                break;
            }
            if piece.flags.has(Flags::SACKED) {
                at += 1;
                continue;
            }
            let part = piece.start < start || piece.end() > end;
            if part && self.queue.len() >= most_pieces {
                at += 1;
                continue;
            }
            if piece.start < start {
                self.split(at, start);
                at += 1;
                continue;
            }
            if piece.end() > end {
                self.split(at, end);
            }
            let Some(piece) = self.queue.get_mut(at) else {
                break;
            };
            let (flags, bytes) = (piece.flags, piece.len());
            newly.reordered |= piece.end() < high_sacked && !flags.has(Flags::EVER_RESENT);
            newly.count(piece, bytes);
            piece.flags = flags.without(Flags::LOST.with(Flags::RESENT)).with(Flags::SACKED);
            self.settle(flags, bytes);
            self.sacked_bytes += bytes;
            self.sacked_pieces += 1;
            at = self.join_sacked(at) + 1;
        }
        self.high_sacked = self.high_sacked.max(end);
    }

    /// Highest position selectively acknowledged.
    pub(crate) fn high_sacked(&self) -> u64 {
        self.high_sacked
    }

    /// Joins a selectively acknowledged piece with such neighbours; returns the index of the whole.
    fn join_sacked(&mut self, at: usize) -> usize {
        let mut at = at;
        let is_sacked = |piece: Option<&Sent>| piece.is_some_and(|piece| piece.flags.has(Flags::SACKED));
        if at > 0 && is_sacked(self.queue.get(at - 1)) {
            at -= 1;
            self.join_next(at);
        }
        if is_sacked(self.queue.get(at + 1)) {
            self.join_next(at);
        }
        at
    }

    fn join_next(&mut self, at: usize) {
        if let Some(next) = self.queue.remove(at + 1)
            && let Some(piece) = self.queue.get_mut(at)
        {
            piece.len += next.len;
            piece.flags = piece.flags.with(next.flags);
            piece.at = piece.at.max(next.at);
        }
    }

    fn split(&mut self, at: usize, position: u64) {
        if let Some(first) = self.queue.get_mut(at) {
            let mut second = *first;
            first.len = (position - first.start) as u32;
            second.start = position;
            second.len -= first.len;
            self.queue.insert(at + 1, second);
        }
    }

    /// Cuts the piece at `at` to `most` bytes.
    fn cut(&mut self, at: usize, most: u64) {
        if let Some(piece) = self.queue.get(at).copied()
            && piece.len() > most
        {
            self.split(at, piece.start + most);
        }
    }

    fn mark_lost(&mut self, at: usize) -> bool {
        let Some(piece) = self.queue.get_mut(at) else {
            return false;
        };
        let bytes = piece.len();
        if piece.flags.has(Flags::SACKED) || piece.waits() {
            return false;
        }
        if piece.flags.has(Flags::RESENT) {
            self.resent_bytes -= bytes;
        }
        if !piece.flags.has(Flags::LOST) {
            self.lost_bytes += bytes;
        }
        piece.flags = piece.flags.with(Flags::LOST).without(Flags::RESENT);
        self.first_lost = self.first_lost.min(piece.start);
        true
    }

    /// Marks what RACK holds for lost (RFC 8985 §6.2, step 5): sent before the reference `(at, end)` and older than
    /// `window` past the reference's round trip. Returns the bytes marked, and when to look again.
    pub(crate) fn detect_losses(
        &mut self,
        now: Instant,
        reference: (Instant, u64),
        window: Duration,
    ) -> (u64, Option<Instant>) {
        let (mut marked, mut again) = (0, None);
        while let Some((sent_at, start)) = self.resent.front().copied() {
            let at = self.index_of(start);
            let piece = self
                .queue
                .get(at)
                .filter(|piece| piece.at == sent_at && !piece.flags.has(Flags::SACKED) && !piece.waits());
            if let Some(piece) = piece {
                if piece.order() >= reference {
                    break;
                }
                if piece.at + window > now {
                    again = Some(piece.at + window);
                    break;
                }
                let bytes = piece.len();
                if self.mark_lost(at) {
                    marked += bytes;
                }
            }
            self.resent.pop_front();
        }
        let mut at = self.index_of(self.originals_from);
        while let Some(piece) = self.queue.get(at) {
            let settled = Flags::SACKED.with(Flags::LOST).with(Flags::EVER_RESENT);
            if !piece.flags.has(settled) {
                // Originals left in their order: behind one that is not late, none is.
                if piece.order() >= reference {
                    break;
                }
                let deadline = piece.at + window;
                if deadline > now {
                    again = Some(again.map_or(deadline, |other: Instant| other.min(deadline)));
                    break;
                }
                marked += piece.len();
                self.mark_lost(at);
            }
            self.originals_from = self.queue.get(at).map_or(0, Sent::end);
            at += 1;
        }
        (marked, again)
    }

    /// Marks everything that is not selectively acknowledged (RFC 6675 §5.1).
    pub(crate) fn mark_all_lost(&mut self) {
        for at in 0..self.queue.len() {
            self.mark_lost(at);
        }
        self.resent.clear();
    }

    /// Marks everything before `until` that is not selectively acknowledged and left before `since`.
    pub(crate) fn mark_lost_before(&mut self, until: u64, since: Instant) -> u64 {
        let before = self.lost_bytes();
        for at in 0..self.queue.len() {
            let left_before = |piece: &Sent| piece.end() <= until && piece.at < since;
            if self.queue.get(at).is_some_and(left_before) {
                self.mark_lost(at);
            }
        }
        self.lost_bytes() - before
    }

    /// Marks the first piece that is not selectively acknowledged, or its first `most` bytes.
    pub(crate) fn mark_front_lost(&mut self, most: u64) -> u64 {
        let first = self.queue.iter().position(|piece| !piece.flags.has(Flags::SACKED));
        let Some(at) = first else { return 0 };
        self.cut(at, most);
        let bytes = self.queue.get(at).map_or(0, Sent::len);
        if self.mark_lost(at) { bytes } else { 0 }
    }

    /// Length of the piece at index `at`.
    pub(crate) fn piece_bytes(&self, at: usize) -> u64 {
        self.queue.get(at).map_or(0, Sent::len)
    }

    /// Takes back the verdict on everything not resent: the timeout was spurious.
    pub(crate) fn unmark_lost(&mut self) {
        for piece in &mut self.queue {
            if piece.waits() {
                self.lost_bytes -= piece.len();
                piece.flags = piece.flags.without(Flags::LOST);
            }
        }
        self.originals_from = 0;
    }

    /// Forgets selective acknowledgments: the receiver may have (RFC 2018 §8).
    pub(crate) fn forget_sacks(&mut self) {
        for piece in &mut self.queue {
            if piece.flags.has(Flags::SACKED) {
                // Pieces were joined: whether each was resent is not known any more.
                piece.flags = piece.flags.without(Flags::SACKED).with(Flags::EVER_RESENT);
            }
        }
        self.sacked_bytes = 0;
        self.sacked_pieces = 0;
        self.high_sacked = 0;
        self.originals_from = 0;
    }

    /// Index and start of the first piece that waits for retransmission.
    pub(crate) fn next_lost(&mut self) -> Option<(usize, u64)> {
        if self.lost_bytes() == 0 {
            self.first_lost = u64::MAX;
            return None;
        }
        let mut at = self.index_of(self.first_lost);
        loop {
            let piece = self.queue.get(at)?;
            if piece.waits() {
                self.first_lost = piece.start;
                return Some((at, piece.start));
            }
            at += 1;
        }
    }

    /// The piece at `at`, or its first `most` bytes, noted as resent at `now`.
    pub(crate) fn resend(&mut self, at: usize, most: u64, now: Instant, rate: RateStart) -> Option<Sent> {
        self.cut(at, most);
        let piece = self.queue.get_mut(at)?;
        if piece.flags.has(Flags::LOST) && !piece.flags.has(Flags::RESENT) {
            piece.flags = piece.flags.with(Flags::RESENT);
            self.resent_bytes += piece.len();
            if piece.start <= self.first_lost {
                self.first_lost = piece.end();
            }
        }
        piece.flags = piece.flags.with(Flags::EVER_RESENT);
        piece.leave(now, rate);
        self.resent.push_back((now, piece.start));
        Some(*piece)
    }

    /// Index and start of the last piece that is not selectively acknowledged, cut to its last `most` bytes: what a tail
    /// loss probe resends (RFC 8985 §7.3).
    pub(crate) fn last_piece(&mut self, most: u64) -> Option<(usize, u64)> {
        let mut at = self.queue.iter().rposition(|piece| !piece.flags.has(Flags::SACKED))?;
        let last = self.queue.get(at)?;
        if last.len() > most {
            let cut = last.end() - most;
            self.split(at, cut);
            at += 1;
        }
        self.queue.get(at).map(|piece| (at, piece.start))
    }
}
