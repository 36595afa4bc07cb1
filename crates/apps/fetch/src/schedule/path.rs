//! One path: what it was asked for, what it brings, and whether it still does.

use std::collections::VecDeque;
use std::ops::Range;

use polypath_units::{Duration, Instant};

use super::rate::Rate;
use super::request::RequestId;

/// Before a round trip was measured.
const ASSUMED_ROUND_TRIP: Duration = Duration::from_millis(100);
/// What a server sends in the first round trip, at least (RFC 6928).
const INITIAL_WINDOW_BYTES: f64 = 14_480.0;
/// A path that is not waited for.
const NEVER: Duration = Duration::from_secs(3600);
/// Less is between two packets of a slow path.
const LEAST_SILENCE: Duration = Duration::from_millis(40);
/// A path from which nothing came for so long, and four round trips, is not waited for.
const PATIENCE: Duration = Duration::from_millis(800);
/// A server may need that long, before it begins to answer.
const PATIENCE_FOR_ANSWER: Duration = Duration::from_secs(2);
/// A connection on which nothing came for so long, in the middle of an answer or before one, may be one that nobody at the other end
/// knows of any more. Where the rest can be asked for anew, it is not waited for long: TCP sends again ever more seldom, and a
/// new connection is quicker once the network is back.
const GONE_WITH_RANGES: Duration = Duration::from_secs(2);
const GONE: Duration = Duration::from_secs(10);
const GONE_BEFORE_ANSWER: Duration = Duration::from_secs(30);

/// A request that was sent and is not answered in full.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) id: RequestId,
    /// The next byte that it brings.
    pub(super) next: u64,
    /// The end of what it is needed for. What is behind it, another path was asked for.
    pub(super) needed_end: u64,
    /// The end of what was asked for; `None` is the end of the file.
    pub(super) end: Option<u64>,
    pub(super) has_begun: bool,
    asked_at: Instant,
}

impl Flight {
    /// What it is still to bring.
    pub(super) fn needed(&self) -> Range<u64> {
        self.next..self.needed_end.max(self.next)
    }

    /// Bytes that it is still to bring.
    pub(super) fn needed_bytes(&self) -> u64 {
        self.needed_end.saturating_sub(self.next)
    }

    /// Bytes that the server sends of it, whether they are needed or not.
    fn sent_bytes(&self) -> u64 {
        self.end.unwrap_or(self.needed_end).saturating_sub(self.next)
    }
}

/// One path.
#[derive(Clone, Debug)]
pub(super) struct Path {
    flights: VecDeque<Flight>,
    rate: Rate,
    round_trip: Option<Duration>,
    last_heard: Instant,
    is_stalled: bool,
    is_open: bool,
    /// Connections that ended with requests that were not answered.
    unanswered: u32,
}

/// A server that leaves the second request unanswered so often does not take several at a time.
const MOST_UNANSWERED: u32 = 2;

impl Path {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            flights: VecDeque::new(),
            rate: Rate::default(),
            round_trip: None,
            last_heard: now,
            is_stalled: false,
            is_open: true,
            unanswered: 0,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) const fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// What it may be when the next answer comes, in bytes per second.
    pub(super) fn expected_rate(&self) -> Option<f64> {
        self.rate.expected()
    }

    /// What it was at last, in bytes per second.
    pub(super) fn known_rate(&self) -> Option<f64> {
        self.rate.bytes_per_second()
    }

    /// The same, or what slow start begins with.
    pub(super) fn likely_rate(&self) -> f64 {
        let least = || INITIAL_WINDOW_BYTES / self.round_trip().as_secs_f64().max(1e-3);
        self.expected_rate().filter(|rate| *rate > 0.0).unwrap_or_else(least)
    }

    /// Its rate doubles with each round trip, as far as is known.
    pub(super) const fn is_growing(&self) -> bool {
        self.rate.is_growing()
    }

    pub(super) fn round_trip(&self) -> Duration {
        self.round_trip.unwrap_or(ASSUMED_ROUND_TRIP)
    }

    pub(super) fn flights(&self) -> impl DoubleEndedIterator<Item = &Flight> {
        self.flights.iter()
    }

    pub(super) fn flight_mut(&mut self, id: RequestId) -> Option<&mut Flight> {
        self.flights.iter_mut().find(|flight| flight.id == id)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// What is still to come of the answer under way, needed or not.
    pub(super) fn front_rest(&self, total: u64) -> Option<Range<u64>> {
        let front = self.flights.front()?;
        let end = front.end.unwrap_or(total);
        (front.next < end).then_some(front.next..end)
    }

    /// The answer under way is needed until `end`.
    pub(super) fn need_front(&mut self, end: u64) {
        if let Some(front) = self.flights.front_mut() {
            front.needed_end = end;
        }
    }

    /// An answer under way, or to come, that has these bytes is needed until their end. False if none has them.
    pub(super) fn need_again(&mut self, range: &Range<u64>) -> bool {
        let has_it = |flight: &&mut Flight| {
            flight.next <= range.start && flight.end.is_none_or(|end| end >= range.end)
        };
        let Some(flight) = self.flights.iter_mut().find(has_it) else { return false };
        flight.needed_end = flight.needed_end.max(range.end);
        true
    }

    /// How long the server sends what is not needed, before it sends what is, or nothing.
    pub(super) fn wastes(&self) -> Duration {
        let mut bytes = 0;
        for flight in &self.flights {
            if flight.needed_bytes() > 0 {
                break;
            }
            bytes += flight.sent_bytes();
        }
        let rate = self.rate.bytes_per_second().unwrap_or(self.likely_rate()).max(1.0);
        Duration::from_secs_f64((bytes as f64 / rate).min(1e6))
    }

    /// How many requests may wait for answers.
    pub(super) const fn most_in_flight(&self) -> usize {
        if self.unanswered < MOST_UNANSWERED { usize::MAX } else { 1 }
    }

    pub(super) fn note_unanswered(&mut self) {
        self.unanswered += 1;
    }

    /// Bytes that were asked for and are needed.
    pub(super) fn outstanding_bytes(&self) -> u64 {
        self.flights.iter().map(Flight::needed_bytes).sum()
    }

    /// How long until all that was asked for is there, at the rate known; `None` if none is.
    pub(super) fn busy_for(&self) -> Option<Duration> {
        let waits = self.waits();
        let bytes: u64 = self.flights.iter().map(Flight::sent_bytes).sum();
        if bytes == 0 {
            return Some(waits);
        }
        self.expected_rate()
            .filter(|rate| *rate > 0.0)
            .map(|rate| waits + Duration::from_secs_f64(bytes as f64 / rate))
    }

    /// How long until it has brought all that is needed of it, likely. One that is closed or says nothing never has.
    pub(super) fn ends_in(&self) -> Duration {
        if self.is_stalled || !self.is_open {
            return NEVER;
        }
        let Some(last) = self.flights.iter().rposition(|flight| flight.needed_bytes() > 0) else {
            return Duration::from_nanos(0);
        };
        let before: u64 = self.flights.range(..last).map(Flight::sent_bytes).sum();
        let bytes = before + self.flights[last].needed_bytes();
        self.waits() + Duration::from_secs_f64(bytes as f64 / self.likely_rate())
    }

    /// How long nothing has come in the middle of an answer, if that is longer than packets need that follow each other.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        let is_under_way = self.flights.front().is_some_and(|flight| flight.has_begun);
        let silence = now.since(self.last_heard);
        let is_long = is_under_way && silence > self.round_trip().max(LEAST_SILENCE);
        if is_long { silence } else { Duration::from_nanos(0) }
    }

    /// Until the first byte of what it was asked for.
    fn waits(&self) -> Duration {
        let is_waiting = self.flights.front().is_some_and(|flight| !flight.has_begun);
        if is_waiting { self.round_trip() } else { Duration::from_nanos(0) }
    }

    /// How long until the first byte of one more request is there.
    pub(super) fn answers_in(&self) -> Option<Duration> {
        self.busy_for().map(|busy| busy.max(self.round_trip()))
    }

    /// The last request that is still to bring something.
    pub(super) fn last_needed_mut(&mut self) -> Option<&mut Flight> {
        self.flights.iter_mut().rev().find(|flight| flight.needed_bytes() > 0)
    }

    /// The file has no more bytes than that.
    pub(super) fn limit(&mut self, total: u64) {
        for flight in &mut self.flights {
            flight.needed_end = flight.needed_end.min(total);
            flight.end = flight.end.map(|end| end.min(total));
        }
    }

    pub(super) fn note_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = Some(round_trip);
    }

    pub(super) fn handle_opened(&mut self, now: Instant) {
        (self.is_open, self.is_stalled, self.last_heard) = (true, false, now);
    }

    /// The connection is gone, with all that it was asked for.
    pub(super) fn handle_closed(&mut self, now: Instant) {
        self.is_open = false;
        self.flights.clear();
        self.rate.handle_idle(now);
    }

    pub(super) fn ask(&mut self, now: Instant, id: RequestId, range: Range<u64>, end: Option<u64>) {
        if self.flights.is_empty() {
            self.last_heard = now;
        }
        let needed_end = range.end;
        self.flights.push_back(Flight {
            id,
            next: range.start,
            needed_end,
            end,
            has_begun: false,
            asked_at: now,
        });
    }

    /// The answer to a request begins.
    pub(super) fn handle_head(&mut self, now: Instant, id: RequestId) {
        self.last_heard = now;
        self.is_stalled = false;
        let is_first = self.flights.front().is_some_and(|flight| flight.id == id);
        let round_trip = self.round_trip;
        if let Some(flight) = self.flight_mut(id) {
            flight.has_begun = true;
            // What waited in a queue behind others says nothing of the path.
            let took = now.since(flight.asked_at);
            if is_first && round_trip.is_none() {
                self.round_trip = Some(took);
            }
        }
    }

    /// Bytes came: where they belong. `None` if nobody waits for them.
    pub(super) fn handle_bytes(&mut self, now: Instant, id: RequestId, bytes: u64) -> Option<Range<u64>> {
        self.last_heard = now;
        self.is_stalled = false;
        let round_trip = self.round_trip();
        self.rate.handle_bytes(now, bytes, round_trip);
        let flight = self.flight_mut(id)?;
        let came = flight.next..flight.next + bytes;
        flight.next = came.end;
        Some(came)
    }

    /// Takes a request out that is answered.
    pub(super) fn take(&mut self, now: Instant, id: RequestId) {
        self.flights.retain(|flight| flight.id != id);
        if self.flights.is_empty() {
            self.rate.handle_idle(now);
        }
    }

    /// If nothing comes until then: when the path is not waited for any more, or, once it is not, when its connection is gone.
    /// `has_ranges`: another connection can go on where this one ends.
    pub(super) fn deadline(&self, has_ranges: bool) -> Option<Instant> {
        let first = self.flights.front().filter(|_| self.is_open)?;
        let patience = match (self.is_stalled, first.has_begun) {
            (false, true) => PATIENCE,
            (false, false) => PATIENCE_FOR_ANSWER,
            (true, true) if has_ranges => GONE_WITH_RANGES,
            (true, true) => GONE,
            (true, false) => GONE_BEFORE_ANSWER,
        };
        Some(self.last_heard + patience.max(self.round_trip() * 4))
    }

    pub(super) fn handle_stall(&mut self) {
        self.is_stalled = true;
        self.rate.handle_stall();
    }
}
