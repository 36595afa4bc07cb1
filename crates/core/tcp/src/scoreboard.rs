//! What has been sent and not acknowledged: RFC 6675's scoreboard with the send times that RACK needs (RFC 8985 §5.1).

mod marks;
mod sent;

use alloc::collections::VecDeque;

use polypath_units::{Duration, Instant};

use crate::rate_start::RateStart;

use marks::Marks;

pub(crate) use sent::{Flags, Newly, Sent};

/// What is outstanding, and what became of it.
///
/// # How it is kept
/// What has left is a queue of pieces in the order in which they left, which is that of their positions. Nothing in it changes
/// until it is acknowledged. What became of parts of it meanwhile is in [`Marks`]: selectively acknowledged stretches, joined
/// where they touch, and retransmissions. RACK takes originals for lost in their order, so that one position parts those that
/// are lost from those that are not.
///
/// # Cost
/// With *n* pieces and marks, at most 2³⁰ bytes of window and one piece a segment (46 000 pieces at 64 MB):
/// - A SACK block costs log *n*, however many pieces it covers, and as much for each mark that it covers, which becomes part
///   of one.
/// - A cumulative acknowledgment costs log *n*, and as much for each mark that it covers, which is gone then.
/// - Looking for losses costs log *n*, and as much for each retransmission that is found lost or settled. It counts each
///   selectively acknowledged stretch that the lost position passes once. Where a verdict was taken back (Eifel, DSACK),
///   that position starts over: then an acknowledgment walks at most all of these stretches.
/// - The next lost piece, its retransmission, and a tail loss probe cost log *n*.
///
/// Marks are made by SACK blocks, one or two each, and by our own retransmissions, one each. A peer can have at most as many
/// selectively acknowledged stretches as [`most_stretches`] says: 33 792 at 64 MB.
/// Timeouts and a falling path MTU visit each mark, and are rare.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    originals: VecDeque<Sent>,
    marks: Marks,
    /// Unmarked bytes before this position are lost originals.
    lost_to: u64,
    /// How many those are.
    lost_originals_bytes: u64,
    /// Everything before this position is marked. Only acknowledgments take marks away.
    marked_to: u64,
    /// Highest position selectively acknowledged.
    high_sacked: u64,
}

/// Stretches that a peer may have selectively acknowledged: so many, and one more for each so many bytes that are outstanding.
/// Where slow start runs over a queue, each second segment is lost, and there is a stretch for each two.
const FREE_STRETCHES: usize = 1024;
const STRETCH_BYTES: usize = 2 << 10;

/// How many stretches of so many outstanding bytes may be selectively acknowledged.
pub(crate) const fn most_stretches(outstanding_bytes: u64) -> usize {
    FREE_STRETCHES + outstanding_bytes as usize / STRETCH_BYTES
}

/// A queue that ran empty keeps room for so many pieces; an idle connection holds little memory.
const KEPT_PIECES: usize = 16;

/// An acknowledgment covers few pieces nearly always: those at the front are looked at first.
const FEW_PIECES: usize = 4;

impl Scoreboard {
    /// Look-ups and changes of marks so far.
    #[cfg(any(test, feature = "attacks"))]
    pub(crate) fn steps(&self) -> u32 {
        self.marks.steps()
    }

    pub(crate) fn sacked_bytes(&self) -> u64 {
        self.marks.sacked_bytes()
    }

    pub(crate) fn sacked_pieces(&self) -> u32 {
        self.marks.sacked_pieces()
    }

    /// Lost and not resent.
    #[inline]
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_originals_bytes + self.marks.waiting_bytes()
    }

    pub(crate) fn has_resent(&self) -> bool {
        self.marks.resent_bytes() > 0
    }

    /// Highest position selectively acknowledged.
    pub(crate) fn high_sacked(&self) -> u64 {
        self.high_sacked
    }

    /// The first piece, or what is left of it.
    #[inline]
    pub(crate) fn front(&self) -> Option<Sent> {
        let front = self.originals.front().copied()?;
        let is_whole = self.marks.is_empty() && self.lost_to <= front.start;
        if is_whole { Some(front) } else { self.part_at(front.start) }
    }

    /// Bytes in flight of `outstanding` ones: RFC 6675's pipe.
    #[inline]
    pub(crate) fn pipe_bytes(&self, outstanding: u64) -> u64 {
        outstanding.saturating_sub(self.lost_originals_bytes + self.marks.absent_bytes())
    }

    #[inline]
    pub(crate) fn push(&mut self, sent: Sent) {
        self.originals.push_back(sent);
    }

    /// First position outstanding, and after the last.
    #[inline]
    fn bounds(&self) -> (u64, u64) {
        match (self.originals.front(), self.originals.back()) {
            (Some(front), Some(back)) => (front.start, back.end()),
            _ => (0, 0),
        }
    }

    /// Index of the original that holds `position`, or of the first after it.
    #[inline]
    fn index_of(&self, position: u64) -> usize {
        for at in 0..FEW_PIECES {
            if self.originals.get(at).is_none_or(|sent| position < sent.end()) {
                return at;
            }
        }
        self.marks.step();
        self.originals.partition_point(|sent| sent.end() <= position)
    }

    /// The mark at `position`, or the unmarked part of an original around it, with its state.
    fn part_at(&self, position: u64) -> Option<Sent> {
        if let Some(mark) = self.marks.at(position) {
            return Some(mark);
        }
        let original = self.originals.get(self.index_of(position)).filter(|sent| sent.start <= position)?;
        let before = self.marks.last_before(position).map_or(0, |mark| mark.end());
        let after = self.marks.first_from(position).map_or(u64::MAX, |mark| mark.start);
        let (mut start, mut end) = (original.start.max(before), original.end().min(after));
        let mut flags = original.flags;
        if position < self.lost_to {
            flags = flags.with(Flags::LOST);
            end = end.min(self.lost_to);
        } else if start < self.lost_to {
            start = self.lost_to;
        }
        Some(Sent { flags, ..original.part(start, end) })
    }

    // ---- acknowledgments

    /// A cumulative acknowledgment up to `until`.
    #[inline]
    pub(crate) fn acknowledge(&mut self, until: u64, newly: &mut Newly) {
        let (mut from, end) = self.bounds();
        let until = until.min(end);
        if from >= until {
            return;
        }
        while let Some(mark) = self.marks.first().filter(|mark| mark.start < until) {
            if from < mark.start {
                self.deliver_originals(from, mark.start, self.high_sacked, newly);
            }
            let Some(part) = self.marks.take_part(mark.start, until) else { break };
            if !part.flags.has(Flags::SACKED) {
                newly.count(&part, self.high_sacked);
            }
            from = part.end();
        }
        if from < until {
            self.deliver_originals(from, until, self.high_sacked, newly);
        }
        self.drop_originals(until);
        if self.marks.sacked_bytes() == 0 {
            self.marks.forget_sacked_pieces();
        }
    }

    #[inline]
    fn drop_originals(&mut self, until: u64) {
        let whole = self.index_of(until);
        self.originals.drain(..whole);
        match self.originals.front_mut() {
            Some(front) if front.start < until => *front = front.part(until, front.end()),
            Some(_) => {}
            None => {
                self.marks.clear();
                if self.originals.capacity() > KEPT_PIECES {
                    self.originals = VecDeque::new();
                }
            }
        }
    }

    /// Unmarked bytes from `from` to `until` arrived. Originals leave in order: the last is the latest, and the first is that
    /// of which reordering shows. Returns the last, as far as it arrived, and how many pieces they are.
    #[inline]
    fn deliver_originals(
        &mut self,
        from: u64,
        until: u64,
        high_sacked: u64,
        newly: &mut Newly,
    ) -> Option<(Sent, u32)> {
        let first = self.index_of(from);
        let first_piece = self.originals.get(first)?;
        let last = if until <= first_piece.end() { first } else { self.index_of(until - 1) };
        let last_piece = self.originals.get(last)?;
        if first_piece.end().min(until) < high_sacked {
            newly.note_reordered(from);
        }
        let latest = last_piece.part(from.max(last_piece.start), until);
        let lost_bytes = self.lost_to.min(until).saturating_sub(from);
        self.lost_originals_bytes -= lost_bytes;
        newly.resent |= lost_bytes > 0;
        newly.count_latest(&latest, until - from);
        newly.note_departure(first_piece.at);
        Some((latest, (last - first) as u32 + 1))
    }

    /// A selective acknowledgment of `start..end`. Where there are `most_stretches` of them already, one that joins none is
    /// not noted: a peer may not grow the scoreboard beyond measure.
    ///
    /// `high_sacked` is [`Scoreboard::high_sacked`] before the segment that brought the block, as older blocks follow
    /// newer ones.
    pub(crate) fn sack(
        &mut self,
        (start, end): (u64, u64),
        high_sacked: u64,
        most_stretches: usize,
        newly: &mut Newly,
    ) {
        self.high_sacked = self.high_sacked.max(end);
        let (first, last) = self.bounds();
        let (start, end) = (start.max(first), end.min(last));
        let sacked_at = |position: u64| self.marks.at(position).filter(|mark| mark.flags.has(Flags::SACKED));
        let mut whole = sacked_at(start).or_else(|| sacked_at(start.checked_sub(1)?));
        if start >= end || whole.is_some_and(|mark| mark.end() >= end) {
            return;
        }
        if self.marks.sacked_count() >= most_stretches && whole.is_none() {
            let next = self.marks.first_from(start).filter(|mark| mark.flags.has(Flags::SACKED));
            if next.is_none_or(|mark| mark.start > end) {
                return;
            }
        }
        if let Some(mark) = whole
            && self.marks.is_last(&mark)
        {
            // Nearly always a block goes on where the highest one ended.
            return self.extend_last(&mark, end, high_sacked, newly);
        }
        let mut at = start;
        if let Some(mark) = whole {
            self.marks.take(mark.start);
            at = mark.end();
        }
        while at < end {
            at = self.sack_next(at, end, high_sacked, newly, &mut whole);
        }
        if let Some(after) = self.marks.at(end).filter(|mark| mark.flags.has(Flags::SACKED)) {
            self.marks.take(after.start);
            join(&mut whole, &after);
        }
        if let Some(whole) = whole {
            self.marks.put(whole);
        }
    }

    /// Notes that what follows the highest mark arrived, up to `end`.
    fn extend_last(&mut self, mark: &Sent, end: u64, high_sacked: u64, newly: &mut Newly) {
        if let Some((latest, count)) = self.deliver_originals(mark.end(), end, high_sacked, newly) {
            self.marks.count_sacked_pieces(count);
            self.marks.extend_last(joined(mark, &latest));
        }
    }

    /// Notes the next part of a block, from `at`, and adds it to `whole`; returns where it ends.
    fn sack_next(
        &mut self,
        at: u64,
        end: u64,
        high_sacked: u64,
        newly: &mut Newly,
        whole: &mut Option<Sent>,
    ) -> u64 {
        if let Some(part) = self.marks.take_part(at, end) {
            let was_sacked = part.flags.has(Flags::SACKED);
            if !was_sacked {
                newly.count(&part, high_sacked);
                self.marks.count_sacked_pieces(1);
            }
            join(whole, &part);
            return part.end();
        }
        let until = self.marks.first_from(at).map_or(end, |mark| mark.start.min(end));
        if let Some((latest, count)) = self.deliver_originals(at, until, high_sacked, newly) {
            self.marks.count_sacked_pieces(count);
            join(whole, &latest);
            if let Some(whole) = whole {
                *whole = whole.part(whole.start.min(at), until);
            }
        }
        until
    }

    // ---- losses

    fn mark_lost(&mut self, mark: &Sent) {
        if let Some(mark) = self.marks.take(mark.start) {
            self.marks.put(Sent { flags: mark.flags.with(Flags::LOST).without(Flags::RESENT), ..mark });
        }
    }

    /// Moves the end of lost originals up to `until`; returns the bytes that are lost by it.
    fn lose_originals(&mut self, until: u64) -> u64 {
        let from = self.first_judged();
        if until <= from {
            return 0;
        }
        let bytes = until - from - self.marks.bytes_between(from, until);
        self.lost_originals_bytes += bytes;
        self.lost_to = until;
        bytes
    }

    /// Every unmarked byte before this position is lost.
    fn first_judged(&self) -> u64 {
        self.lost_to.max(self.marked_to).max(self.bounds().0)
    }

    /// The first position from `from` on that is not marked.
    fn first_unmarked(&self, from: u64) -> u64 {
        let mut position = from;
        while let Some(mark) = self.marks.at(position) {
            position = mark.end();
        }
        position
    }

    /// Marks what RACK holds for lost (RFC 8985 §6.2, step 5): sent before the reference `(at, end)` and older than
    /// `window` past the reference's round trip. Returns the bytes marked, and when to look again.
    pub(crate) fn detect_losses(
        &mut self,
        now: Instant,
        reference: (Instant, u64),
        window: Duration,
    ) -> (u64, Option<Instant>) {
        let (mut marked, mut again) = self.detect_lost_retransmissions(now, reference, window);
        // Originals left in their order: behind one that is not late, none is.
        for is_rest in [false, true] {
            let position = self.first_unmarked(self.first_judged());
            if self.originals.get(self.index_of(position)).is_none_or(|original| original.at > reference.0) {
                break;
            }
            let Some(piece) = self.part_at(position) else { break };
            if piece.order() >= reference {
                break;
            }
            if is_rest || piece.at + window > now {
                let deadline = piece.at + window;
                again = Some(again.map_or(deadline, |other: Instant| other.min(deadline)));
                break;
            }
            marked += self.lose_originals(self.end_of_late(now, reference, window));
        }
        (marked, again)
    }

    fn detect_lost_retransmissions(
        &mut self,
        now: Instant,
        reference: (Instant, u64),
        window: Duration,
    ) -> (u64, Option<Instant>) {
        let mut marked = 0;
        while let Some((sent_at, start)) = self.marks.oldest_resent() {
            if let Some(mark) = self.retransmission(sent_at, start) {
                if mark.order() >= reference {
                    break;
                }
                if mark.at + window > now {
                    return (marked, Some(mark.at + window));
                }
                marked += mark.len();
                self.mark_lost(&mark);
            }
            self.marks.forget_oldest_resent();
        }
        (marked, None)
    }

    /// What is still in flight of a retransmission.
    fn retransmission(&self, sent_at: Instant, start: u64) -> Option<Sent> {
        let mark = self.marks.at(start.max(self.bounds().0))?;
        (mark.at == sent_at && !mark.flags.has(Flags::SACKED) && !mark.waits()).then_some(mark)
    }

    /// Where the originals end that left before the reference and are late.
    fn end_of_late(&self, now: Instant, reference: (Instant, u64), window: Duration) -> u64 {
        self.marks.step();
        let start_of = |index: usize| self.originals.get(index).map_or(self.bounds().1, |sent| sent.start);
        let late = start_of(self.originals.partition_point(|sent| sent.at + window <= now));
        let (at, end) = reference;
        // What left at the same moment comes in the order of positions.
        let same_from = start_of(self.originals.partition_point(|sent| sent.at < at));
        let same_until = start_of(self.originals.partition_point(|sent| sent.at <= at));
        let before = if end <= same_from {
            same_from
        } else if end > same_until {
            same_until
        } else {
            self.part_at(end - 1).map_or(same_from, |part| part.start.max(same_from))
        };
        late.min(before)
    }

    /// The position before which at least so many bytes are selectively acknowledged behind all that is missing, or so many
    /// stretches (RFC 6675 §4, `IsLost`); that of the first byte if there is none.
    pub(crate) fn overtaken_by(&self, bytes: u64, stretches: u32) -> u64 {
        self.marks.sacked_from_the_end(bytes, stretches).unwrap_or(0)
    }

    /// Where what is selectively acknowledged begins.
    pub(crate) fn first_sacked(&self) -> Option<u64> {
        self.marks.first_sacked()
    }

    /// Stretches that are selectively acknowledged.
    pub(crate) fn sacked_stretches(&self) -> usize {
        self.marks.sacked_count()
    }

    /// Marks originals as far as they lie before `until`. Returns the bytes marked.
    pub(crate) fn mark_originals_lost(&mut self, until: u64) -> u64 {
        self.lose_originals(until.min(self.bounds().1))
    }

    /// Marks originals that end at `until` or before. Returns the bytes marked.
    pub(crate) fn mark_whole_originals_lost(&mut self, until: u64) -> u64 {
        let cut = self.originals.get(self.index_of(until)).map_or(until, |original| original.start);
        self.mark_originals_lost(until.min(cut))
    }

    /// Marks everything that is not selectively acknowledged (RFC 6675 §5.1).
    pub(crate) fn mark_all_lost(&mut self) {
        self.marks.change_all(|mark| {
            let settled = mark.flags.has(Flags::SACKED) || mark.waits();
            (!settled).then(|| mark.flags.with(Flags::LOST).without(Flags::RESENT))
        });
        let (una, end) = self.bounds();
        self.lost_to = end;
        self.lost_originals_bytes = end - una - self.marks.bytes();
        self.marks.take_resent();
    }

    /// Marks what is not selectively acknowledged of all before `until`, where what had left before `since` ends, but for what
    /// left again since. Returns the bytes marked.
    pub(crate) fn mark_lost_before(&mut self, until: u64, since: Instant) -> u64 {
        let (before, until) = (self.lost_bytes(), until.min(self.bounds().1));
        self.marks.change_all(|mark| {
            let is_on_its_way = mark.at >= since || mark.end() > until;
            let settled = mark.flags.has(Flags::SACKED) || mark.waits() || is_on_its_way;
            (!settled).then(|| mark.flags.with(Flags::LOST).without(Flags::RESENT))
        });
        self.lose_originals(until);
        self.lost_bytes() - before
    }

    /// Marks what is longer than a segment may now be, and the originals before it.
    pub(crate) fn mark_longer_lost(&mut self, most: u64) {
        self.marks.change_all(|mark| {
            let settled = mark.flags.has(Flags::SACKED) || mark.waits() || mark.len() <= most;
            (!settled).then(|| mark.flags.with(Flags::LOST).without(Flags::RESENT))
        });
        if let Some(last) = self.originals.iter().rev().find(|sent| sent.len() > most) {
            let until = last.end();
            self.lose_originals(until);
        }
    }

    /// Marks the first piece that is not selectively acknowledged, or its first `most` bytes.
    pub(crate) fn mark_front_lost(&mut self, most: u64) -> u64 {
        let una = self.bounds().0;
        let sacked = self.marks.at(una).filter(|mark| mark.flags.has(Flags::SACKED));
        let first = sacked.map_or(una, |mark| mark.end());
        let Some(piece) = self.part_at(first).filter(|piece| !piece.waits()) else { return 0 };
        let end = piece.end().min(piece.start + most);
        match self.marks.take_part(piece.start, end) {
            Some(part) => {
                self.marks.put(part);
                self.mark_lost(&part);
                part.len()
            }
            None => self.lose_originals(end),
        }
    }

    /// Length of the piece at `position`, from there.
    pub(crate) fn piece_bytes(&self, position: u64) -> u64 {
        self.part_at(position).map_or(0, |piece| piece.end() - position)
    }

    /// How much of what starts at `position` is taken for lost and waits.
    pub(crate) fn waits_at(&self, position: u64) -> Option<u64> {
        self.part_at(position.max(self.bounds().0)).filter(Sent::waits).map(|piece| piece.len())
    }

    /// Takes back the verdict on everything not resent: the timeout was spurious.
    pub(crate) fn unmark_lost(&mut self) {
        self.marks.unmark_waiting();
        self.lost_to = 0;
        self.lost_originals_bytes = 0;
    }

    /// Forgets selective acknowledgments: the receiver may have (RFC 2018 §8).
    pub(crate) fn forget_sacks(&mut self) {
        // Pieces were joined: whether each was resent is not known any more.
        self.marks.change_all(|mark| {
            let is_sacked = mark.flags.has(Flags::SACKED);
            is_sacked.then(|| mark.flags.without(Flags::SACKED).with(Flags::EVER_RESENT))
        });
        self.marks.forget_sacked_pieces();
        self.high_sacked = 0;
    }

    // ---- retransmissions

    /// Start of the first piece that waits for retransmission.
    #[inline]
    pub(crate) fn next_lost(&mut self) -> Option<u64> {
        if self.lost_bytes() == 0 { None } else { self.first_lost() }
    }

    fn first_lost(&mut self) -> Option<u64> {
        let again = self.marks.first_waiting();
        if self.lost_originals_bytes == 0 {
            return again;
        }
        self.marked_to = self.first_unmarked(self.marked_to.max(self.bounds().0));
        Some(again.map_or(self.marked_to, |start| start.min(self.marked_to)))
    }

    /// The piece from `position` on, or its first `most` bytes, noted as resent at `now`.
    pub(crate) fn resend(&mut self, position: u64, most: u64, now: Instant, rate: RateStart) -> Option<Sent> {
        let piece = self.part_at(position)?;
        let end = piece.end().min(position + most);
        let mut part = match self.marks.take_part(position, end) {
            Some(part) => part,
            None => {
                if piece.waits() {
                    self.lost_originals_bytes -= end - position;
                }
                piece.part(position, end)
            }
        };
        if part.waits() {
            part.flags = part.flags.with(Flags::RESENT);
        }
        part.flags = part.flags.with(Flags::EVER_RESENT);
        (part.at, part.rate) = (now, rate);
        self.marks.put(part);
        if self.marks.resent_count() > 2 * self.marks.count() + KEPT_PIECES {
            // Nothing was acknowledged for long, and the same was sent over and over.
            for (at, start) in self.marks.take_resent() {
                if self.retransmission(at, start).is_some() {
                    self.marks.note_resent(at, start);
                }
            }
        }
        self.marks.note_resent(now, part.start);
        Some(part)
    }

    /// Where the last piece starts that is not selectively acknowledged, or its last `most` bytes: what a tail loss probe resends
    /// (RFC 8985 §7.3).
    pub(crate) fn last_piece(&self, most: u64) -> Option<u64> {
        let (una, end) = self.bounds();
        let last = self.marks.last_before(end).filter(|mark| mark.end() == end);
        let sacked = last.filter(|mark| mark.flags.has(Flags::SACKED));
        let end = sacked.map_or(end, |mark| mark.start);
        if end <= una {
            return None;
        }
        self.part_at(end - 1).map(|piece| piece.start.max(end.saturating_sub(most)))
    }
}

/// Adds a selectively acknowledged part to what it continues.
fn join(whole: &mut Option<Sent>, part: &Sent) {
    let flags = part.flags.without(Flags::LOST.with(Flags::RESENT)).with(Flags::SACKED);
    let part = Sent { flags, ..*part };
    *whole = Some(whole.map_or(part, |before| joined(&before, &part)));
}

/// What is selectively acknowledged, and reaches to the end of `part` now.
fn joined(before: &Sent, part: &Sent) -> Sent {
    let at = before.at.max(part.at);
    Sent { at, flags: before.flags.with(part.flags), ..before.part(before.start, part.end()) }
}

#[cfg(test)]
mod tests;
