//! An adaptive stream over several paths: which segment comes in which quality, and who brings which part of it (K §6.3).
//!
//! The segments of a stream are parts of one [`Schedule`], each in the quality that was chosen for it, so a path that is done with its part
//! of one segment goes on with the next one. A quality is chosen as late as no path has to pause. Segments are handed on in order.

pub mod adaptation;
mod piece;
mod player;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use polypath_units::{BitRate, Duration, Instant};

pub use self::piece::{Unit, UnitNumber};
pub use self::player::{Buffering, Player, State};

use self::adaptation::{Adaptation, View};
use self::piece::{Piece, Pieces};
use crate::answer::AskedRange;
use crate::schedule::{PathId, Ranges, RequestId, Rest, Schedule, Sizing};

/// As long as the length of a piece is not known, so much of what it has likely is asked for.
const CERTAIN_SHARE: f64 = 0.5;
/// But so many bytes at least.
const LEAST_GUESS_BYTES: u64 = 4 << 10;
/// The sizes of so many segments are shown to whoever chooses qualities.
const LOOKED_AHEAD: usize = 8;
/// A path that is behind is helped when what the player has would last so much longer.
const MARGIN: Duration = Duration::from_millis(500);

/// What a path is to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// By which the answer is told.
    pub id: RequestId,
    /// Of which unit.
    pub unit: UnitNumber,
    /// In which of its qualities.
    pub quality: usize,
    /// Which bytes of it.
    pub range: AskedRange,
}

/// Bytes of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Of which unit.
    pub unit: UnitNumber,
    /// In which of its qualities.
    pub quality: usize,
    /// Where they belong in it. They may be there already.
    pub range: Range<u64>,
    /// What is to be done with the answer.
    pub rest: Rest,
}

/// What became of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A quality was chosen.
    Chosen {
        /// For this unit.
        unit: UnitNumber,
        /// Its place in the unit's rates.
        quality: usize,
    },
    /// A unit is there, and all before it.
    Complete {
        /// Which one.
        unit: UnitNumber,
        /// In which of its qualities.
        quality: usize,
        /// How long it is.
        bytes: u64,
    },
    /// A unit was left out, as it can't be had, and all before it are there.
    LeftOut {
        /// Which one.
        unit: UnitNumber,
    },
}

/// Another length than an earlier answer said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a segment of the stream has {found_bytes} bytes now; it had {bytes}")]
pub struct Changed {
    bytes: u64,
    found_bytes: u64,
}

/// A stream that is fetched. It does nothing by itself: time comes in with each call.
///
/// After anything was handled, every path is asked for requests with [`Stream::poll_request`] until it has none.
#[derive(Debug)]
pub struct Stream {
    schedule: Schedule,
    adaptation: Box<dyn Adaptation>,
    player: Player,
    /// Those whose quality was not chosen yet.
    units: VecDeque<Unit>,
    next_unit: UnitNumber,
    is_ended: bool,
    pieces: Pieces,
    asked: HashMap<RequestId, Asked>,
    last: Option<usize>,
    events: VecDeque<Event>,
    /// The server gives whole units only, over one path at a time.
    is_whole: bool,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    path: PathId,
    unit: UnitNumber,
    quality: usize,
    /// Where its piece begins.
    piece_start: u64,
}

impl Stream {
    /// A stream of which nothing is known yet.
    #[must_use]
    pub fn new(now: Instant, sizing: Sizing, adaptation: Box<dyn Adaptation>, buffering: Buffering) -> Self {
        let mut schedule = Schedule::new(sizing, Ranges::new());
        schedule.set_total_bytes(0);
        Self {
            schedule,
            adaptation,
            player: Player::new(now, buffering),
            units: VecDeque::new(),
            next_unit: UnitNumber(0),
            is_ended: false,
            pieces: Pieces::default(),
            asked: HashMap::new(),
            last: None,
            events: VecDeque::new(),
            is_whole: false,
        }
    }

    /// Adds a path, which is open.
    pub fn add_path(&mut self, now: Instant) -> PathId {
        self.schedule.add_path(now)
    }

    /// What follows in the stream.
    pub fn push_unit(&mut self, unit: Unit) {
        debug_assert!(!unit.rates.is_empty(), "a unit has a quality at least");
        self.units.push_back(unit);
    }

    /// No unit follows.
    pub fn handle_end_of_units(&mut self) {
        self.is_ended = true;
    }

    /// The round trip of a path, where the system knows it.
    pub fn note_round_trip(&mut self, path: PathId, round_trip: Duration) {
        self.schedule.note_round_trip(path, round_trip);
    }

    /// A closed path has a connection again.
    pub fn handle_opened(&mut self, now: Instant, path: PathId) {
        self.schedule.handle_opened(now, path);
    }

    /// The connection of a path is gone. What it was asked for, others are asked for.
    pub fn handle_closed(&mut self, now: Instant, path: PathId) {
        self.schedule.handle_closed(now, path);
        self.asked.retain(|_, asked| asked.path != path);
        if self.schedule.only() == Some(path) {
            self.schedule.set_any();
        }
    }

    /// The answer to a request begins. `length_bytes` is the length of the whole unit, if the answer says it.
    pub fn handle_head(
        &mut self,
        now: Instant,
        request: RequestId,
        length_bytes: Option<u64>,
    ) -> Result<(), Changed> {
        let Some(Asked { path, piece_start, .. }) = self.asked.get(&request).copied() else { return Ok(()) };
        self.schedule.handle_head(now, path, request);
        self.note_length(now, piece_start, length_bytes)
    }

    /// The answer brings the whole unit, whatever was asked for: the server has no ranges. One path is asked from now on, for whole
    /// units. False if what comes is of no use.
    pub fn handle_whole(&mut self, request: RequestId) -> bool {
        let Some(Asked { path, .. }) = self.asked.get(&request).copied() else { return false };
        self.is_whole = true;
        let is_first = self.schedule.only().is_none_or(|only| only == path);
        if is_first {
            self.schedule.set_only(path, Some(request));
        }
        is_first
    }

    /// A unit can't be had, and the player goes on without it.
    pub fn leave_out(&mut self, now: Instant, unit: UnitNumber) {
        if let Some(place) = self.pieces.leave_out(unit) {
            self.schedule.set_total_bytes(self.pieces.end());
            self.schedule.handle_present(place);
            self.hand_on(now);
        }
    }

    /// What came of a unit, and of all after it, is not to be relied on: they begin anew, and their qualities are chosen again. All
    /// connections count as closed.
    pub fn restart_from(&mut self, now: Instant, unit: UnitNumber) {
        let Some((start, units)) = self.pieces.take_from(unit) else { return };
        self.schedule.handle_all_closed(now);
        self.asked.clear();
        self.schedule.set_any();
        self.schedule.handle_missing(start..u64::MAX);
        self.schedule.set_total_bytes(start);
        for unit in units.into_iter().rev() {
            self.units.push_front(unit);
        }
        self.next_unit = unit;
        // Its qualities are not chosen.
        self.events.retain(|event| !matches!(event, Event::Chosen { unit: chosen, .. } if *chosen >= unit));
    }

    /// The unit has no such bytes: what was guessed of its length was too much.
    pub fn handle_no_such_range(
        &mut self,
        now: Instant,
        request: RequestId,
        length_bytes: Option<u64>,
    ) -> Result<(), Changed> {
        let Some(Asked { piece_start, .. }) = self.asked.get(&request).copied() else { return Ok(()) };
        self.handle_end(now, request);
        self.note_length(now, piece_start, length_bytes)
    }

    /// Nothing more comes of an answer.
    pub fn handle_end(&mut self, now: Instant, request: RequestId) {
        if let Some(Asked { path, .. }) = self.asked.remove(&request) {
            self.schedule.handle_end(now, path, request);
        }
    }

    /// Bytes of an answer came. `None` if nobody waits for them.
    pub fn handle_bytes(&mut self, now: Instant, request: RequestId, bytes: u64) -> Option<Arrived> {
        let Asked { path, unit, quality, piece_start } = self.asked.get(&request).copied()?;
        let came = self.schedule.handle_bytes(now, path, request, bytes)?;
        if came.rest == Rest::Superfluous {
            self.asked.retain(|_, asked| asked.path != path);
        }
        let range = came.range.start - piece_start..came.range.end - piece_start;
        self.hand_on(now);
        Some(Arrived { unit, quality, range, rest: came.rest })
    }

    /// Nothing came from a path for long: others are asked for what it owes.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.player.advance(now);
        self.schedule.handle_timeout(now);
    }

    /// A path whose connection is to be given up for another one. It counts as closed already.
    #[must_use]
    pub fn poll_gone(&mut self, now: Instant) -> Option<PathId> {
        let gone = self.schedule.poll_gone(now)?;
        self.handle_closed(now, gone);
        Some(gone)
    }

    /// When [`Stream::handle_timeout`] is due, and [`Stream::poll_gone`] and [`Stream::poll_request`] after it.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waits_for_room = !self.units.is_empty() && !self.has_room();
        let room = self.player.passes(self.played_before_room()).filter(|_| waits_for_room);
        self.schedule.poll_timeout().into_iter().chain(room).min()
    }

    /// What a path is to be asked for now, if anything.
    #[must_use]
    pub fn poll_request(&mut self, now: Instant, path: PathId) -> Option<Wanted> {
        self.player.advance(now);
        match self.schedule.only() {
            None if self.is_whole => self.schedule.set_only(path, None),
            Some(only) if only != path => return None,
            _ => {}
        }
        while self.schedule.is_short() && self.choose() {}
        self.schedule.set_follows_bytes(self.follows_bytes());
        let pieces = &self.pieces;
        let end_of_part = |byte: u64| pieces.at(byte).map_or(byte, |piece| piece.place.end);
        let request = self.schedule.poll_request_of_part(now, path, end_of_part)?;
        let piece = self.pieces.at(request.start)?;
        let (unit, quality, start) = (piece.unit, piece.quality, piece.place.start);
        self.asked.insert(request.id, Asked { path, unit, quality, piece_start: start });
        let last = request.end.map(|end| end - 1 - start);
        let range = AskedRange { first: request.start - start, last };
        Some(Wanted { id: request.id, unit, quality, range })
    }

    /// What became of the stream, one after the other.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Who plays it, as far as it is known.
    #[must_use]
    pub const fn player(&self) -> &Player {
        &self.player
    }

    /// All units are there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_ended && self.units.is_empty() && self.pieces.front().is_none()
    }

    /// The server gives whole units only, so one path is asked at a time.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// What all paths bring together, as far as it was measured.
    #[must_use]
    pub fn throughput(&self) -> Option<BitRate> {
        self.schedule.measured_rate().map(|rate| BitRate::from_bps((rate * 8.0) as u64))
    }

    /// What was chosen and not played yet.
    fn planned(&self) -> Duration {
        self.player.lead() + self.pieces.duration()
    }

    fn has_room(&self) -> bool {
        self.planned() < self.player.buffering().capacity
    }

    /// So much is played before something more may be fetched.
    fn played_before_room(&self) -> Duration {
        // A little more, or it would be there just not.
        self.planned().saturating_sub(self.player.buffering().capacity) + Duration::from_millis(1)
    }

    /// What follows soon, so that no path has to hurry with what it was asked for. Nothing, if the player would wait for it.
    fn follows_bytes(&self) -> u64 {
        let is_behind = self.player.state() == State::Playing
            && self.schedule.ends_in().is_some_and(|ends| ends + MARGIN > self.player.lead());
        match self.units.front().filter(|_| self.has_room() && !is_behind) {
            None => 0,
            Some(unit) => unit.rates[0].bytes_in(unit.duration),
        }
    }

    /// The quality of one more unit. False if there is none, or no room for it.
    fn choose(&mut self) -> bool {
        let Some(start) = self.pieces.next_start().filter(|_| self.has_room()) else { return false };
        let Some(unit) = self.units.pop_front() else { return false };
        let quality = self.quality_of(&unit);
        let known = unit.sizes.get(quality).copied().flatten();
        let likely = unit.rates[quality].as_bps() as f64 / 8.0 * unit.duration.as_secs_f64();
        let guess = ((likely * CERTAIN_SHARE) as u64).max(LEAST_GUESS_BYTES);
        let place = start..start + known.unwrap_or(guess);
        self.schedule.set_total_bytes(place.end);
        let number = self.next_unit;
        let (duration, is_length_known) = (unit.duration, known.is_some());
        let is_left_out = false;
        self.pieces.push(Piece {
            unit: number,
            whole: unit,
            quality,
            duration,
            place,
            is_length_known,
            is_left_out,
        });
        self.next_unit = UnitNumber(number.0 + 1);
        self.events.push_back(Event::Chosen { unit: number, quality });
        true
    }

    fn quality_of(&mut self, unit: &Unit) -> usize {
        if unit.rates.len() == 1 {
            return 0;
        }
        // What is under way comes before it.
        let before = self.schedule.ends_in().unwrap_or_default();
        let is_playing = self.player.state() == State::Playing;
        let buffered = self.planned().saturating_sub(if is_playing { before } else { Duration::default() });
        // Those of the same kind that follow.
        let alike = self.units.iter().filter(|next| next.rates.len() == unit.rates.len());
        let coming = std::iter::once(unit).chain(alike).take(LOOKED_AHEAD);
        let known = |unit: &Unit| unit.sizes.iter().copied().collect::<Option<Vec<u64>>>();
        let sizes: Vec<Vec<u64>> =
            coming.map_while(|unit| known(unit).filter(|sizes| !sizes.is_empty())).collect();
        let sizes: Vec<&[u64]> = sizes.iter().map(Vec::as_slice).collect();
        let view = View {
            rates: &unit.rates,
            sizes: &sizes,
            segment: unit.duration,
            throughput: self.throughput(),
            buffered,
            capacity: self.player.buffering().capacity,
            last: self.last,
        };
        let quality = self.adaptation.choose(&view).min(unit.rates.len() - 1);
        self.last = Some(quality);
        quality
    }

    fn note_length(&mut self, now: Instant, start: u64, length_bytes: Option<u64>) -> Result<(), Changed> {
        let (Some(piece), Some(found_bytes)) = (self.pieces.starting_at(start), length_bytes) else {
            return Ok(());
        };
        let bytes = piece.place.end - piece.place.start;
        if piece.is_length_known {
            return if bytes == found_bytes { Ok(()) } else { Err(Changed { bytes, found_bytes }) };
        }
        if let Some(end) = self.pieces.set_length(start, found_bytes) {
            self.schedule.set_total_bytes(end);
        }
        self.hand_on(now);
        Ok(())
    }

    /// What is there and all before it.
    fn hand_on(&mut self, now: Instant) {
        let is_there = |pieces: &Pieces, schedule: &Schedule| {
            pieces
                .front()
                .is_some_and(|piece| piece.is_length_known && schedule.received().contains(&piece.place))
        };
        while is_there(&self.pieces, &self.schedule) {
            let Some(piece) = self.pieces.pop_front() else { break };
            let Piece { unit, quality, duration, place, is_left_out, .. } = piece;
            self.player.handle_segment(now, duration);
            self.events.push_back(match is_left_out {
                true => Event::LeftOut { unit },
                false => Event::Complete { unit, quality, bytes: place.end - place.start },
            });
        }
        if self.is_complete() {
            self.player.handle_complete(now);
        }
    }
}

#[cfg(test)]
mod tests;
