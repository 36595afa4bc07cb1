//! What has been sent and not acknowledged: RFC 6675's scoreboard with the send times that RACK needs (RFC 8985 §5.1).

use alloc::collections::VecDeque;

use polypath_units::{Duration, Instant};

/// A stretch of sequence space that left in one piece. Positions count from the initial sequence number, which is 0,
/// and don't wrap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// When it left last.
    pub(crate) at: Instant,
    /// Bytes delivered when it left, and when that was counted: the start of a delivery-rate sample.
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Instant,
    pub(crate) flags: Flags,
}

/// State of a [`Sent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) const NONE: Self = Self(0);
    /// Selectively acknowledged.
    pub(crate) const SACKED: Self = Self(1);
    /// Taken for lost.
    pub(crate) const LOST: Self = Self(2);
    /// Its retransmission is in flight.
    pub(crate) const RESENT: Self = Self(4);
    /// It was retransmitted at some time: its round trip says nothing without timestamps (Karn).
    pub(crate) const EVER_RESENT: Self = Self(8);
    /// The application had no more to send.
    pub(crate) const APP_LIMITED: Self = Self(16);

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl Sent {
    pub(crate) const fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// What an acknowledgment newly acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newly {
    /// Bytes that were neither acknowledged nor selectively acknowledged before.
    pub(crate) bytes: u64,
    /// The piece that left last among them: RACK's and the rate sample's reference.
    pub(crate) latest: Option<Sent>,
    /// When the latest of the pieces left that left only once: the round-trip sample (RFC 6298 §3).
    pub(crate) rtt_from: Option<Instant>,
    /// Something resent, or taken for lost, was acknowledged. What was not resent may then have arrived long before, and its
    /// round trip says nothing.
    pub(crate) resent: bool,
    /// Something never retransmitted was acknowledged.
    pub(crate) original: bool,
    /// A piece below the highest one acknowledged arrived now, and had not been retransmitted: reordering.
    pub(crate) reordered: bool,
}

impl Newly {
    fn count(&mut self, sent: &Sent, bytes: u64) {
        self.bytes += bytes;
        if self.latest.is_none_or(|latest| (latest.at, latest.end) < (sent.at, sent.end)) {
            self.latest = Some(*sent);
        }
        if sent.flags.has(Flags::EVER_RESENT.with(Flags::LOST)) {
            self.resent = true;
        }
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
    /// Highest position selectively acknowledged.
    high_sacked: u64,
    /// Pieces selectively acknowledged.
    sacked_pieces: u32,
}

impl Scoreboard {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

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
    pub(crate) fn pipe_bytes(&self, outstanding: u64) -> u64 {
        (outstanding + self.resent_bytes).saturating_sub(self.sacked_bytes + self.lost_bytes)
    }

    pub(crate) fn push(&mut self, sent: Sent) {
        self.queue.push_back(sent);
    }

    /// A cumulative acknowledgment up to `until`.
    #[inline]
    pub(crate) fn acknowledge(&mut self, until: u64, newly: &mut Newly) {
        while let Some(front) = self.queue.front_mut() {
            if front.start >= until {
                break;
            }
            let mut piece = *front;
            let whole = front.end <= until;
            if whole {
                self.queue.pop_front();
            } else {
                front.start = until;
                piece.end = until;
            }
            let bytes = piece.len();
            if piece.flags.has(Flags::SACKED) {
                self.sacked_bytes -= bytes;
                self.sacked_pieces -= u32::from(whole);
            } else {
                newly.reordered |= piece.end < self.high_sacked && !piece.flags.has(Flags::EVER_RESENT);
                newly.count(&piece, bytes);
            }
            if piece.flags.has(Flags::LOST) {
                self.lost_bytes -= bytes;
            }
            if piece.flags.has(Flags::RESENT) {
                self.resent_bytes -= bytes;
            }
            if !whole {
                break;
            }
        }
    }

    /// A selective acknowledgment of `start..end`; pieces in part covered are cut.
    pub(crate) fn sack(&mut self, start: u64, end: u64, newly: &mut Newly) {
        let mut at = self.queue.partition_point(|sent| sent.end <= start);
        while let Some(piece) = self.queue.get(at).copied() {
            if piece.start >= end {
                break;
            }
            if piece.flags.has(Flags::SACKED) {
                at += 1;
                continue;
            }
            if piece.start < start {
                self.split(at, start);
                at += 1;
                continue;
            }
            if piece.end > end {
                self.split(at, end);
            }
            let Some(piece) = self.queue.get_mut(at) else {
                break;
            };
            let bytes = piece.len();
            newly.reordered |= piece.end < self.high_sacked && !piece.flags.has(Flags::EVER_RESENT);
            newly.count(piece, bytes);
            if piece.flags.has(Flags::LOST) {
                self.lost_bytes -= bytes;
            }
            if piece.flags.has(Flags::RESENT) {
                self.resent_bytes -= bytes;
            }
            piece.flags = piece.flags.without(Flags::LOST.with(Flags::RESENT)).with(Flags::SACKED);
            self.sacked_bytes += bytes;
            self.sacked_pieces += 1;
            at += 1;
        }
        self.high_sacked = self.high_sacked.max(end);
    }

    fn split(&mut self, at: usize, position: u64) {
        if let Some(first) = self.queue.get_mut(at) {
            let mut second = *first;
            second.start = position;
            first.end = position;
            self.sacked_pieces += u32::from(second.flags.has(Flags::SACKED));
            self.queue.insert(at + 1, second);
        }
    }

    fn mark_lost(&mut self, at: usize) -> bool {
        let Some(piece) = self.queue.get_mut(at) else {
            return false;
        };
        let bytes = piece.len();
        let waits = piece.flags.has(Flags::LOST) && !piece.flags.has(Flags::RESENT);
        if piece.flags.has(Flags::SACKED) || waits {
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
        for at in 0..self.queue.len() {
            let Some(piece) = self.queue.get(at) else {
                break;
            };
            if (piece.at, piece.end) >= reference && !piece.flags.has(Flags::EVER_RESENT) {
                // Never resent, so everything behind it left later still.
                break;
            }
            let waits = piece.flags.has(Flags::LOST) && !piece.flags.has(Flags::RESENT);
            if piece.flags.has(Flags::SACKED) || waits || (piece.at, piece.end) >= reference {
                continue;
            }
            let deadline = piece.at + window;
            let bytes = piece.len();
            if deadline <= now {
                if self.mark_lost(at) {
                    marked += bytes;
                }
            } else {
                again = Some(again.map_or(deadline, |other: Instant| other.max(deadline)));
            }
        }
        (marked, again)
    }

    /// Marks everything that is not selectively acknowledged (RFC 6675 §5.1).
    pub(crate) fn mark_all_lost(&mut self) {
        for at in 0..self.queue.len() {
            self.mark_lost(at);
        }
    }

    /// Marks the first piece that is not selectively acknowledged, or its first `most` bytes.
    pub(crate) fn mark_front_lost(&mut self, most: u64) -> u64 {
        let first = self.queue.iter().position(|piece| !piece.flags.has(Flags::SACKED));
        let Some(at) = first else { return 0 };
        if let Some(piece) = self.queue.get(at).copied()
            && piece.len() > most
        {
            self.split(at, piece.start + most);
        }
        let bytes = self.queue.get(at).map_or(0, Sent::len);
        if self.mark_lost(at) { bytes } else { 0 }
    }

    /// Takes back the verdict on everything not resent: the timeout was spurious.
    pub(crate) fn unmark_lost(&mut self) {
        for piece in &mut self.queue {
            if piece.flags.has(Flags::LOST) && !piece.flags.has(Flags::RESENT) {
                self.lost_bytes -= piece.len();
                piece.flags = piece.flags.without(Flags::LOST);
            }
        }
    }

    /// Forgets selective acknowledgments: the receiver may have (RFC 2018 §8).
    pub(crate) fn forget_sacks(&mut self) {
        for piece in &mut self.queue {
            piece.flags = piece.flags.without(Flags::SACKED);
        }
        self.sacked_bytes = 0;
        self.sacked_pieces = 0;
        self.high_sacked = 0;
    }

    /// The first lost stretch of up to `most` bytes, noted as resent at `now`.
    pub(crate) fn take_lost(
        &mut self,
        now: Instant,
        most: u64,
        delivered: u64,
        delivered_at: Instant,
    ) -> Option<Sent> {
        if self.lost_bytes() == 0 {
            self.first_lost = u64::MAX;
            return None;
        }
        let mut at = self.queue.partition_point(|piece| piece.end <= self.first_lost);
        loop {
            let piece = self.queue.get(at)?;
            if piece.flags.has(Flags::LOST) && !piece.flags.has(Flags::RESENT) {
                break;
            }
            at += 1;
        }
        if let Some(piece) = self.queue.get(at).copied()
            && piece.len() > most
        {
            self.split(at, piece.start + most);
        }
        let piece = self.queue.get_mut(at)?;
        piece.flags = piece.flags.with(Flags::RESENT).with(Flags::EVER_RESENT);
        piece.at = now;
        piece.delivered = delivered;
        piece.delivered_at = delivered_at;
        self.resent_bytes += piece.len();
        self.first_lost = piece.end;
        Some(*piece)
    }

    /// The last piece, noted as resent: a tail loss probe (RFC 8985 §7.3).
    pub(crate) fn resend_last(&mut self, now: Instant, most: u64) -> Option<Sent> {
        let last = self.queue.back().copied()?;
        if last.len() > most {
            self.split(self.queue.len() - 1, last.end - most);
        }
        let piece = self.queue.back_mut()?;
        piece.flags = piece.flags.with(Flags::EVER_RESENT);
        piece.at = now;
        Some(*piece)
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        let sum = |flag: Flags| self.queue.iter().filter(|p| p.flags.has(flag)).map(Sent::len).sum::<u64>();
        assert_eq!(sum(Flags::SACKED), self.sacked_bytes);
        assert_eq!(sum(Flags::LOST), self.lost_bytes);
        assert_eq!(sum(Flags::RESENT), self.resent_bytes);
        let pieces = self.queue.iter().filter(|p| p.flags.has(Flags::SACKED)).count();
        assert_eq!(pieces as u32, self.sacked_pieces);
        assert!(self.queue.iter().all(|p| p.start < p.end));
        assert!(self.queue.iter().zip(self.queue.iter().skip(1)).all(|(a, b)| a.end == b.start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(count: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for at in 0..count {
            board.push(Sent {
                start: at * 10,
                end: at * 10 + 10,
                at: Instant::from_millis(at),
                delivered: 0,
                delivered_at: Instant::ZERO,
                flags: Flags::NONE,
            });
        }
        board
    }

    #[test]
    fn counts_each_byte_once() {
        let mut board = board(10);
        let mut newly = Newly::default();
        board.sack(25, 47, &mut newly);
        board.sack(30, 40, &mut newly);
        assert_eq!((newly.bytes, board.pipe_bytes(100)), (22, 78));
        board.check();
        board.acknowledge(33, &mut newly);
        assert_eq!(newly.bytes, 22 + 25);
        board.check();
        assert_eq!(board.pipe_bytes(67), 67 - 14);
    }

    #[test]
    fn what_left_a_reordering_window_before_the_reference_is_lost() {
        let mut board = board(10);
        board.sack(50, 60, &mut Newly::default());
        let reference = (Instant::from_millis(5), 60);
        let window = Duration::from_millis(100);
        assert_eq!(
            board.detect_losses(Instant::from_millis(102), reference, window),
            (30, Some(Instant::from_millis(104)))
        );
        board.check();
        assert_eq!(board.lost_bytes(), 30);
        let first = board.take_lost(Instant::from_millis(103), 6, 0, Instant::ZERO);
        assert_eq!(first.map(|piece| (piece.start, piece.end)), Some((0, 6)));
        assert_eq!((board.lost_bytes(), board.pipe_bytes(100)), (24, 100 - 10 - 30 + 6));
        board.check();
    }

    #[test]
    fn resent_and_lost_again_is_resent_again() {
        let mut board = board(3);
        board.mark_all_lost();
        while board.take_lost(Instant::from_millis(50), 100, 0, Instant::ZERO).is_some() {}
        assert_eq!((board.lost_bytes(), board.pipe_bytes(30)), (0, 30));
        board.mark_all_lost();
        assert_eq!((board.lost_bytes(), board.pipe_bytes(30)), (30, 0));
        assert_eq!(
            board.take_lost(Instant::from_millis(60), 100, 0, Instant::ZERO).map(|p| p.start),
            Some(0)
        );
        board.check();
        board.unmark_lost();
        board.check();
        assert_eq!(board.lost_bytes(), 0);
    }
}
