//! Which bytes of a file are asked for next, and over which path.
//!
//! A path gets its next request as late as it can be had without a pause: when what it was asked for lasts one round trip more.
//! How much it is asked for follows from its measured rate, so every path's requests take the same time. Where it begins
//! follows from when its first byte will be there: as far ahead as the other paths come until then, so that the file grows
//! from its beginning. Near the end all paths are given what lets them finish together, and a path that would finish later
//! than the others gets nothing. If a path turns out slower than it was, others take a part of what it was asked for.

mod path;
mod ranges;
mod rate;
mod request;
mod sizing;
mod tail;
#[cfg(test)]
mod tests;

use std::ops::Range;

use polypath_units::{Duration, Instant};

pub use self::ranges::Ranges;
pub use self::request::{PathId, Request, RequestId};
pub use self::sizing::Sizing;

use self::path::Path;

/// What [`Schedule::handle_bytes`] says of bytes that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Came {
    /// Where they belong in the file. They may be there already.
    pub range: Range<u64>,
    /// What is to be done with the answer.
    pub rest: Rest,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// More of the answer.
    Expected,
    /// Nothing of this answer.
    Over,
    /// So much that others brought, or were asked for, that a new connection is sooner of use: this one is to be closed, and
    /// counts as closed already.
    Superfluous,
}

/// A new connection costs two round trips before its first byte, and slow start.
const ROUND_TRIPS_TO_RECONNECT: u64 = 4;

/// What is asked for has so many bytes at least, where it can be helped.
const LEAST_PIECE_BYTES: u64 = 8 << 10;
/// The first request, before the length of the file is known.
const FIRST_BYTES: u64 = 64 << 10;
/// What the other paths ask for meanwhile, of the same: slow start begins with no more, and one of them may be answered sooner.
const FIRST_BYTES_OF_OTHERS: u64 = 16 << 10;

/// The schedule of one file. It does nothing by itself: time comes in with each call.
///
/// After anything was handled, every path is asked for requests with [`Schedule::poll_request`] until it has none.
#[derive(Clone, Debug)]
pub struct Schedule {
    sizing: Sizing,
    total: Option<u64>,
    received: Ranges,
    paths: Vec<Path>,
    next_request: u64,
    /// Only bytes before it are asked for.
    horizon: u64,
    /// Bytes that may be added soon.
    follows_bytes: u64,
    /// The one path that is asked.
    only: Option<PathId>,
}

impl Schedule {
    /// A schedule for a file of which some bytes may be there already.
    #[must_use]
    pub fn new(sizing: Sizing, received: Ranges) -> Self {
        Self {
            sizing,
            total: None,
            received,
            paths: Vec::new(),
            next_request: 0,
            horizon: u64::MAX,
            follows_bytes: 0,
            only: None,
        }
    }

    /// Adds a path, which is open.
    pub fn add_path(&mut self, now: Instant) -> PathId {
        self.paths.push(Path::new(now));
        PathId::new(self.paths.len() - 1)
    }

    /// The length of the file, from the first answer.
    pub fn set_total_bytes(&mut self, total: u64) {
        self.total = Some(total);
        for path in &mut self.paths {
            path.limit(total);
        }
    }

    /// Nothing at or after this byte is asked for: whoever takes the file in order has room until there.
    pub fn set_horizon(&mut self, horizon: u64) {
        self.horizon = horizon;
    }

    /// So many bytes are likely added soon, so the end is not near.
    pub fn set_follows_bytes(&mut self, bytes: u64) {
        self.follows_bytes = bytes;
    }

    /// Only this path is asked from now on, and for all that is missing at once: other answers might not fit. If `whole` is a request, its
    /// answer has the whole file, whatever was asked for.
    pub fn set_only(&mut self, path: PathId, whole: Option<RequestId>) {
        self.only = Some(path);
        if let Some(flight) = whole.and_then(|whole| self.paths[path.index()].flight_mut(whole)) {
            (flight.end, flight.needed_end) = (None, self.total.unwrap_or(u64::MAX));
        }
    }

    /// Every path is asked again.
    pub fn set_any(&mut self) {
        self.only = None;
    }

    /// These bytes are there, or nobody needs them.
    pub fn handle_present(&mut self, range: Range<u64>) {
        self.received.insert(range);
    }

    /// These bytes are not there, whatever came.
    pub fn handle_missing(&mut self, range: Range<u64>) {
        self.received.remove(range);
    }

    /// The one path that is asked, if there is only one.
    #[must_use]
    pub const fn only(&self) -> Option<PathId> {
        self.only
    }

    /// Nothing is there any more, and nothing is known of the file.
    pub fn restart(&mut self) {
        (self.received, self.total, self.only) = (Ranges::new(), None, None);
    }

    /// The server closed a connection of the path instead of answering the next request: one at a time.
    pub fn note_unanswered(&mut self, path: PathId) {
        self.paths[path.index()].note_unanswered();
    }

    /// The round trip of a path, where the system knows it.
    pub fn note_round_trip(&mut self, path: PathId, round_trip: Duration) {
        self.paths[path.index()].note_round_trip(round_trip);
    }

    /// A closed path has a connection again.
    pub fn handle_opened(&mut self, now: Instant, path: PathId) {
        self.paths[path.index()].handle_opened(now);
    }

    /// The connection of a path is gone. What it was asked for, others are asked for.
    pub fn handle_closed(&mut self, now: Instant, path: PathId) {
        self.paths[path.index()].handle_closed(now);
    }

    /// The connections of all paths are gone.
    pub fn handle_all_closed(&mut self, now: Instant) {
        self.paths.iter_mut().for_each(|path| path.handle_closed(now));
    }

    /// The answer to a request begins.
    pub fn handle_head(&mut self, now: Instant, path: PathId, request: RequestId) {
        self.paths[path.index()].handle_head(now, request);
    }

    /// The answer to a request ends earlier than was asked for: others may be asked for the rest.
    pub fn handle_shorter(&mut self, path: PathId, request: RequestId, end: u64) {
        if let Some(flight) = self.paths[path.index()].flight_mut(request) {
            (flight.end, flight.needed_end) = (Some(end), flight.needed_end.min(end));
        }
    }

    /// Bytes of an answer came. `None` if nobody waits for them.
    pub fn handle_bytes(
        &mut self,
        now: Instant,
        path: PathId,
        request: RequestId,
        bytes: u64,
    ) -> Option<Came> {
        let at = path.index();
        let path = &mut self.paths[at];
        let range = path.handle_bytes(now, request, bytes)?;
        self.received.insert(range.clone());
        let Some(flight) = path.flight_mut(request) else { return Some(Came { range, rest: Rest::Over }) };
        if self.received.contains(&flight.needed()) {
            flight.needed_end = flight.next;
        }
        let is_over = flight.end.or(self.total).is_some_and(|end| flight.next >= end);
        if is_over {
            path.take(now, request);
        }
        let is_patient = path.wastes() <= path.round_trip() * ROUND_TRIPS_TO_RECONNECT || self.take_back(at);
        if !is_patient {
            self.paths[at].handle_closed(now);
        }
        let rest = match (is_patient, is_over) {
            (false, _) => Rest::Superfluous,
            (true, true) => Rest::Over,
            (true, false) => Rest::Expected,
        };
        Some(Came { range, rest })
    }

    /// Nothing came from a path for long: others are asked for what it owes.
    pub fn handle_timeout(&mut self, now: Instant) {
        let has_ranges = self.has_ranges();
        for path in &mut self.paths {
            if !path.is_stalled() && path.deadline(has_ranges).is_some_and(|at| at <= now) {
                path.handle_stall();
            }
        }
    }

    /// A path whose connection is to be given up for another one, since nothing came on it for very long. It counts as closed already.
    #[must_use]
    pub fn poll_gone(&mut self, now: Instant) -> Option<PathId> {
        let has_ranges = self.has_ranges();
        let is_gone =
            |path: &Path| path.is_stalled() && path.deadline(has_ranges).is_some_and(|at| at <= now);
        let at = self.paths.iter().position(is_gone)?;
        self.paths[at].handle_closed(now);
        Some(PathId::new(at))
    }

    /// When [`Schedule::handle_timeout`] is due, and [`Schedule::poll_gone`] after it.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let has_ranges = self.has_ranges();
        self.paths.iter().filter_map(|path| path.deadline(has_ranges)).min()
    }

    /// Any connection can go on where another ends.
    const fn has_ranges(&self) -> bool {
        self.only.is_none() && self.total.is_some()
    }

    /// What a path is to be asked for now, if anything.
    #[must_use]
    pub fn poll_request(&mut self, now: Instant, path: PathId) -> Option<Request> {
        let at = path.index();
        if !self.is_of_use(path) {
            return None;
        }
        let (range, end) = match self.total {
            None => self.first(at)?,
            Some(total) => {
                let range = self.next(now, at, total)?;
                let is_last_alone = (self.is_alone() && self.sizing.is_by_rate() || self.only.is_some())
                    && range.end == total;
                (range.clone(), if is_last_alone { None } else { Some(range.end) })
            }
        };
        Some(self.ask(now, at, range, end))
    }

    /// The same of a file whose parts are asked for apart, and of which more may follow: `end_of_part` says where the part ends that a
    /// byte is in.
    #[must_use]
    pub fn poll_request_of_part(
        &mut self,
        now: Instant,
        path: PathId,
        end_of_part: impl Fn(u64) -> u64,
    ) -> Option<Request> {
        if !self.is_of_use(path) {
            return None;
        }
        let range = self.next(now, path.index(), self.total?)?;
        let end = range.end.min(end_of_part(range.start));
        Some(self.ask(now, path.index(), range.start..end, Some(end)))
    }

    fn is_of_use(&self, path: PathId) -> bool {
        let is_asked = self.only.is_none_or(|only| only == path);
        let path = &self.paths[path.index()];
        is_asked && path.is_open() && !path.is_stalled() && !self.is_complete()
    }

    fn ask(&mut self, now: Instant, at: usize, range: Range<u64>, end: Option<u64>) -> Request {
        let id = RequestId::new(self.next_request);
        self.next_request += 1;
        let start = range.start;
        self.paths[at].ask(now, id, range, end);
        Request { id, start, end }
    }

    /// Nothing more comes of an answer, whatever it was to bring.
    pub fn handle_end(&mut self, now: Instant, path: PathId, request: RequestId) {
        self.paths[path.index()].take(now, request);
    }

    /// What all paths bring now, in bytes per second, as far as it was measured.
    #[must_use]
    pub fn measured_rate(&self) -> Option<f64> {
        let of_use = self.paths.iter().filter(|path| path.is_open() && !path.is_stalled());
        of_use.filter_map(Path::known_rate).reduce(|sum, rate| sum + rate)
    }

    /// How long until the open paths have brought all that they were asked for, likely.
    #[must_use]
    pub fn ends_in(&self) -> Option<Duration> {
        let owing = self.paths.iter().filter(|path| path.is_open() && !path.is_stalled());
        owing.map(Path::ends_in).max()
    }

    /// Whether what nobody was asked for yet is so little that a path has to be asked for what follows, so that none pauses.
    #[must_use]
    pub fn is_short(&self) -> bool {
        let left = self.total.map_or(0, |total| self.unclaimed(total).len_bytes());
        let of_use = || self.paths.iter().filter(|path| path.is_open() && !path.is_stalled());
        let rate: f64 = of_use().map(Path::likely_rate).sum();
        let longest = of_use().map(|path| path.answers_in().unwrap_or(path.round_trip())).max();
        let longest = longest.unwrap_or_default() + self.sizing.span();
        (left as f64) < rate * longest.as_secs_f64()
    }

    /// Whether all bytes are there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.total.is_some_and(|total| self.received.contains(&(0..total)))
    }

    /// What is there.
    #[must_use]
    pub const fn received(&self) -> &Ranges {
        &self.received
    }

    /// The length of the file, once it is known.
    #[must_use]
    pub const fn total_bytes(&self) -> Option<u64> {
        self.total
    }

    fn is_alone(&self) -> bool {
        self.paths.iter().filter(|path| path.is_open() && !path.is_stalled()).count() == 1
    }

    /// The request that tells how long the file is.
    fn first(&self, at: usize) -> Option<(Range<u64>, Option<u64>)> {
        let start = self.received.prefix_bytes();
        let is_alone = self.paths.len() == 1 && self.sizing.is_by_rate();
        if (is_alone || self.only.is_some()) && self.paths[at].in_flight() == 0 {
            return Some((start..u64::MAX, None));
        }
        let is_first = self.paths.iter().all(|path| path.in_flight() == 0 || path.is_stalled());
        let bytes = match (is_first, self.sizing.first_bytes()) {
            (true, bytes) => bytes.unwrap_or(FIRST_BYTES),
            (false, None) if self.paths[at].in_flight() == 0 => FIRST_BYTES_OF_OTHERS,
            (false, _) => return None,
        };
        let end = start + bytes;
        Some((start..end, Some(end)))
    }

    /// What nobody brings, and nobody was asked for who still answers.
    fn unclaimed(&self, total: u64) -> Ranges {
        let mut unclaimed = Ranges::new();
        unclaimed.insert(0..total.min(self.horizon));
        for range in self.received.iter() {
            unclaimed.remove(range);
        }
        for path in self.paths.iter().filter(|path| !path.is_stalled()) {
            for flight in path.flights() {
                unclaimed.remove(flight.needed());
            }
        }
        unclaimed
    }

    /// What another path took over comes sooner by this one after all, as it is on its way. True if so.
    fn take_back(&mut self, at: usize) -> bool {
        let total = self.total.unwrap_or(u64::MAX);
        let Some(rest) = self.paths[at].front_rest(total).filter(|rest| !self.received.contains(rest)) else {
            return false;
        };
        let own = Duration::from_secs_f64((rest.end - rest.start) as f64 / self.paths[at].likely_rate());
        let others = self.paths.iter().enumerate().filter(|(other, _)| *other != at);
        let is_needed = |path: &Path| {
            path.flights().any(|flight| {
                let needed = flight.needed();
                needed.start < rest.end && rest.start < needed.end
            })
        };
        let is_sooner = others.filter(|(_, path)| is_needed(path)).any(|(_, path)| path.ends_in() > own);
        if is_sooner {
            self.paths[at].need_front(rest.end);
        }
        is_sooner
    }

    fn next(&mut self, now: Instant, at: usize, total: u64) -> Option<Range<u64>> {
        let path = &self.paths[at];
        if !self.sizing.is_due(path) || path.in_flight() >= path.most_in_flight() {
            return None;
        }
        let unclaimed = self.unclaimed(total);
        if self.only.is_some() {
            return unclaimed.first_from(0);
        }
        let Some(first) = unclaimed.first_from(0) else {
            let from = path.answers_in().unwrap_or(path.round_trip());
            if self.follows_bytes > 0 {
                return None;
            }
            return self
                .sizing
                .is_by_rate()
                .then(|| tail::take_over(now, &mut self.paths, at, from))
                .flatten();
        };
        let left_bytes = unclaimed.len_bytes() + self.follows_bytes;
        // Somebody else would not be ready when all the rest is.
        if let Some(rest_in) = self.sizing.rest_in(&self.paths, at, left_bytes)
            && let Some(range) = tail::take_over(now, &mut self.paths, at, rest_in.mul_f64(1.25))
        {
            return Some(range);
        }
        let plan = self.sizing.plan(&self.paths, at, left_bytes)?;
        // What follows is not there yet.
        let ahead_bytes = plan.ahead_bytes.min(unclaimed.len_bytes().saturating_sub(plan.bytes));
        let ideal = first.start.saturating_add(ahead_bytes);
        let gap = unclaimed.first_from(ideal)?;
        // A small piece before it would be a request of its own.
        let is_small = ideal < first.end && ahead_bytes < plan.bytes / 2;
        // Nor is a piece behind it worth one that is small itself.
        let latest = first.end.saturating_sub(LEAST_PIECE_BYTES).max(first.start);
        let start = match gap.start {
            _ if is_small => first.start,
            start if start < first.end => start.min(latest),
            start => start,
        };
        let left = gap.end - start;
        let bytes =
            if left < plan.bytes + plan.bytes / 2 && !plan.is_limited { left } else { plan.bytes.min(left) };
        Some(start..start + bytes)
    }
}
