//! Segments of a stream of bytes become packets that are numbered one by one.
//!
//! How many packets are missing before one is known only when they have come, or will not be waited for any longer. So packets get their
//! numbers once nothing is missing before them, and after a window of later ones at the latest. What is missing then counts as lost: as
//! many packets as would have held those bytes.

use std::collections::{BTreeMap, VecDeque};

use polypath_tunnel::reordering::Arrival;
use polypath_units::{Duration, Instant};

/// Bytes that came in one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) at: Instant,
    /// The clock of its sender, if it says it (RFC 7323 §3).
    pub(super) sender_clock: Option<u32>,
}

/// What tells a packet that was sent again from one that was overtaken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Judged {
    /// The sender's clocks, and else the time: what comes within a round trip after it was overtaken was not asked for again.
    ByClock { round_trip: Option<Duration> },
    /// Nothing: all that came late was overtaken.
    Never,
}

/// What became of what came, besides arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// All of it had come before.
    pub(super) duplicates: u64,
    /// It had been taken for lost.
    pub(super) too_late: u64,
    /// Sent again, in the place of something that was lost.
    pub(super) retransmitted: u64,
    /// Of late packets: those of which nothing but the time says which they are, and it does not say it for certain.
    pub(super) undecided: u64,
}

/// Bytes that are missing.
#[derive(Clone, Copy, Debug)]
struct Hole {
    end: u64,
    /// When the first piece behind it came, and what the sender's clock was then.
    overtaken_at: Instant,
    sender_clock: Option<u32>,
}

/// A piece that has no number yet, or has not been handed on.
#[derive(Clone, Copy, Debug)]
struct Known {
    end: u64,
    number: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct ByteStream {
    window: usize,
    /// Behind the last byte that came; none before any.
    highest: Option<u64>,
    holes: BTreeMap<u64, Hole>,
    /// The last holes that are not waited for any longer: their ends by their beginnings.
    given_up: BTreeMap<u64, u64>,
    /// In the order of arrival.
    waiting: VecDeque<Piece>,
    known: BTreeMap<u64, Known>,
    /// What comes before this byte has its numbers.
    numbered_end: u64,
    next_number: u64,
    /// The most bytes of a packet.
    largest: u64,
    counts: Counts,
}

impl ByteStream {
    /// One that begins with this byte, or with the first that comes.
    pub(super) fn new(window: u32, first: Option<u64>) -> Self {
        Self {
            window: window as usize,
            highest: first,
            holes: BTreeMap::new(),
            given_up: BTreeMap::new(),
            waiting: VecDeque::new(),
            known: BTreeMap::new(),
            numbered_end: first.unwrap_or(0),
            next_number: 0,
            largest: 1,
            counts: Counts::default(),
        }
    }

    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn handle(&mut self, piece: Piece, judged: Judged) {
        if piece.start >= piece.end {
            return;
        }
        let highest = *self.highest.get_or_insert_with(|| {
            self.numbered_end = piece.start;
            piece.start
        });
        self.largest = self.largest.max(piece.end - piece.start);
        if piece.end > highest {
            if piece.start > highest {
                let hole =
                    Hole { end: piece.start, overtaken_at: piece.at, sender_clock: piece.sender_clock };
                self.holes.insert(highest, hole);
            }
            self.highest = Some(piece.end);
            // What it has besides new bytes was sent before.
            self.wait(Piece { start: piece.start.max(highest), ..piece });
        } else {
            self.fill(piece, judged);
        }
        while self.holes.len() > self.window {
            self.give_up_first();
        }
    }

    fn give_up_first(&mut self) {
        let Some((start, hole)) = self.holes.pop_first() else { return };
        self.given_up.insert(start, hole.end);
        if self.given_up.len() > self.window {
            self.given_up.pop_first();
        }
    }

    /// A piece of which no byte is beyond all others.
    fn fill(&mut self, piece: Piece, judged: Judged) {
        let before = self.holes.range(..piece.end).next_back();
        let Some((&start, &hole)) = before.filter(|(_, hole)| piece.start < hole.end) else {
            let given_up = self.given_up.range(..piece.end).next_back();
            match given_up.is_some_and(|(_, end)| piece.start < *end) {
                true => self.counts.too_late += 1,
                false => self.counts.duplicates += 1,
            }
            return;
        };
        let filled = (piece.start.max(start), piece.end.min(hole.end));
        self.holes.remove(&start);
        if start < filled.0 {
            self.holes.insert(start, Hole { end: filled.0, ..hole });
        }
        if filled.1 < hole.end {
            self.holes.insert(filled.1, hole);
        }
        if self.is_sent_again(&piece, &hole, judged) {
            self.counts.retransmitted += 1;
        } else {
            self.wait(Piece { start: filled.0, end: filled.1, ..piece });
        }
    }

    fn is_sent_again(&mut self, piece: &Piece, hole: &Hole, judged: Judged) -> bool {
        let Judged::ByClock { round_trip } = judged else { return false };
        if let (Some(own), Some(overtaking)) = (piece.sender_clock, hole.sender_clock)
            && own != overtaking
        {
            return own.wrapping_sub(overtaking).cast_signed() > 0;
        }
        // Whoever sends again was told of the loss first, at the earliest when the hole became known.
        let late = piece.at.since(hole.overtaken_at);
        if round_trip.is_some_and(|round_trip| late < round_trip) {
            return false;
        }
        self.counts.undecided += 1;
        round_trip.is_some()
    }

    fn wait(&mut self, piece: Piece) {
        self.known.insert(piece.start, Known { end: piece.end, number: None });
        self.waiting.push_back(piece);
    }

    /// The next packet that has its number, in the order of arrival.
    pub(super) fn poll_arrival(&mut self) -> Option<Arrival> {
        let first = self.waiting.front()?;
        let is_complete = self.holes.first_key_value().is_none_or(|(start, _)| *start >= first.start);
        if !is_complete && self.waiting.len() <= self.window {
            return None;
        }
        self.take_first()
    }

    /// The same, after the last has come.
    pub(super) fn poll_last_arrival(&mut self) -> Option<Arrival> {
        self.take_first()
    }

    fn take_first(&mut self) -> Option<Arrival> {
        let piece = self.waiting.pop_front()?;
        self.number_up_to(piece.start);
        let sequence = self.known.remove(&piece.start)?.number?;
        let payload_bytes = u32::try_from(piece.end - piece.start).unwrap_or(u32::MAX);
        Some(Arrival { sequence, at: piece.at, payload_bytes })
    }

    /// Gives numbers to all that are known up to this byte.
    fn number_up_to(&mut self, start: u64) {
        if start < self.numbered_end {
            return;
        }
        for (start, known) in self.known.range_mut(self.numbered_end..=start) {
            let missing = start - self.numbered_end;
            self.next_number += missing.div_ceil(self.largest);
            known.number = Some(self.next_number);
            self.next_number += 1;
            self.numbered_end = known.end;
        }
        // What is missing before is not waited for any longer.
        while self.holes.first_key_value().is_some_and(|(start, _)| *start < self.numbered_end) {
            self.give_up_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, end: u64, millis: u64, sender_clock: Option<u32>) -> Piece {
        Piece { start, end, at: Instant::from_millis(millis), sender_clock }
    }

    /// The numbers of what comes in packets of 100 bytes, one each millisecond, that begin at these hundreds.
    fn numbers(stream: &mut ByteStream, hundreds: &[u64], judged: Judged) -> Vec<u64> {
        let mut numbers = Vec::new();
        for (millis, at) in hundreds.iter().enumerate() {
            stream.handle(piece(at * 100, at * 100 + 100, millis as u64, None), judged);
            while let Some(arrival) = stream.poll_arrival() {
                numbers.push(arrival.sequence);
            }
        }
        while let Some(arrival) = stream.poll_last_arrival() {
            numbers.push(arrival.sequence);
        }
        numbers
    }

    #[test]
    fn packets_are_numbered_in_their_order_in_the_stream() {
        let mut stream = ByteStream::new(8, Some(0));
        assert_eq!(numbers(&mut stream, &[0, 3, 1, 2, 4], Judged::Never), [0, 3, 1, 2, 4]);
        // Two are missing for good.
        let mut stream = ByteStream::new(8, None);
        assert_eq!(numbers(&mut stream, &[5, 8, 9], Judged::Never), [0, 3, 4]);
        assert_eq!(stream.counts(), Counts::default());
    }

    #[test]
    fn what_is_missing_is_waited_for_until_a_window_has_come() {
        let mut stream = ByteStream::new(2, Some(0));
        assert_eq!(numbers(&mut stream, &[0, 2, 3, 4, 5, 1, 6], Judged::Never), [0, 2, 3, 4, 5, 6]);
        assert_eq!(stream.counts(), Counts { too_late: 1, ..Counts::default() });
    }

    #[test]
    fn small_packets_in_a_gap_have_a_number_each() {
        let mut stream = ByteStream::new(8, Some(0));
        stream.handle(piece(300, 400, 0, None), Judged::Never);
        for start in [200, 0, 120] {
            stream.handle(piece(start, if start == 0 { 120 } else { start + 80 }, 1, None), Judged::Never);
        }
        stream.handle(piece(280, 300, 2, None), Judged::Never);
        let arrivals = std::iter::from_fn(|| stream.poll_arrival()).map(|arrival| arrival.sequence);
        assert_eq!(arrivals.collect::<Vec<_>>(), [4, 2, 0, 1, 3]);
    }

    #[test]
    fn the_clock_of_the_sender_tells_what_was_sent_again() {
        let judged = Judged::ByClock { round_trip: Some(Duration::from_millis(10)) };
        let late = |clock, millis| {
            let mut stream = ByteStream::new(8, Some(0));
            stream.handle(piece(0, 100, 0, Some(50)), judged);
            stream.handle(piece(200, 300, 1, Some(51)), judged);
            stream.handle(piece(100, 200, millis, clock), judged);
            let Counts { retransmitted, undecided, .. } = stream.counts();
            (retransmitted, undecided)
        };
        assert_eq!(late(Some(50), 500), (0, 0), "sent before what overtook it");
        assert_eq!(late(Some(52), 2), (1, 0), "sent after it");
        assert_eq!(late(Some(51), 5), (0, 0), "nobody knew of a loss then");
        assert_eq!(late(Some(51), 50), (1, 1));
        assert_eq!(late(None, 5), (0, 0));
        assert_eq!(late(None, 50), (1, 1));
    }

    #[test]
    fn without_a_round_trip_nothing_is_taken_for_sent_again() {
        let mut stream = ByteStream::new(8, Some(0));
        let judged = Judged::ByClock { round_trip: None };
        assert_eq!(numbers(&mut stream, &[0, 2, 1], judged), [0, 2, 1]);
        assert_eq!(stream.counts(), Counts { undecided: 1, ..Counts::default() });
    }

    #[test]
    fn what_was_sent_again_is_a_loss_and_its_copy_a_copy() {
        let mut stream = ByteStream::new(8, Some(0));
        let judged = Judged::ByClock { round_trip: Some(Duration::ZERO) };
        assert_eq!(numbers(&mut stream, &[0, 2, 1, 1, 3], judged), [0, 2, 3]);
        let counts = Counts { duplicates: 1, retransmitted: 1, undecided: 1, too_late: 0 };
        assert_eq!(stream.counts(), counts);
    }
}
