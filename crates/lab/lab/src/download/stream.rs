//! An adaptive stream.

use std::rc::Rc;

use bytes::Bytes;
use polypath_fetch::answer::{Answer, Unusable};
use polypath_fetch::schedule::{PathId, RequestId, Rest, Sizing};
use polypath_fetch::stream::adaptation::AdaptationPolicy;
use polypath_fetch::stream::{Arrived, Buffering, Event, Stream, Unit, Wanted};
use polypath_sim::app::Pattern;
use polypath_units::{Duration, Instant};

use super::movie::Movie;
use super::work::{Asking, Work};
use crate::run::StreamOutcome;

/// A movie that is played while it comes.
#[derive(Debug)]
pub(super) struct Streaming {
    stream: Stream,
    movie: Rc<Movie>,
    pattern: Pattern,
    /// By segment, of those that are there.
    qualities: Vec<usize>,
    received_bytes: u64,
    is_wrong: bool,
}

impl Streaming {
    pub(super) fn new(
        movie: Rc<Movie>,
        pattern: Pattern,
        sizing: Sizing,
        adaptation: &AdaptationPolicy,
        buffer: Duration,
    ) -> Self {
        // The player begins when its buffer is full (K §6.3.1).
        let buffering = Buffering { capacity: buffer, startup: buffer, after_stall: Movie::SEGMENT };
        let mut stream = Stream::new(Instant::ZERO, sizing, adaptation.build(), buffering);
        for sizes in movie.segments() {
            let sizes = sizes.iter().copied().map(Some).collect();
            stream.push_unit(Unit { duration: Movie::SEGMENT, rates: Movie::rates(), sizes });
        }
        stream.handle_end_of_units();
        Self { stream, movie, pattern, qualities: Vec::new(), received_bytes: 0, is_wrong: false }
    }

    pub(super) const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Every byte was the right one.
    pub(super) const fn is_right(&self) -> bool {
        !self.is_wrong
    }

    /// What became of it until now.
    pub(super) fn outcome(&self) -> StreamOutcome {
        let rates = Movie::rates();
        let count = self.qualities.len();
        let kbps: f64 = self.qualities.iter().map(|quality| rates[*quality].as_bps() as f64).sum();
        let of_quality = |wanted| self.qualities.iter().filter(|quality| **quality == wanted).count() as u64;
        let player = self.stream.player();
        StreamOutcome {
            segments: count as u64,
            planned_segments: self.movie.segments().len() as u64,
            top_segments: of_quality(rates.len() - 1),
            mean_bps: kbps / count.max(1) as f64,
            changes: self.qualities.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64,
            startup_s: player.began().map(|at| at.since(Instant::ZERO).as_secs_f64()),
            stalls: u64::from(player.stalls()),
            stalled_s: player.stalled_for().as_secs_f64(),
        }
    }

    fn note_events(&mut self) {
        while let Some(event) = self.stream.poll_event() {
            if let Event::Complete { quality, bytes, .. } = event {
                self.qualities.push(quality);
                self.received_bytes += bytes;
            }
        }
    }
}

impl Work for Streaming {
    fn add_path(&mut self) -> PathId {
        let path = self.stream.add_path(Instant::ZERO);
        self.stream.handle_closed(Instant::ZERO, path);
        path
    }

    fn handle_opened(&mut self, now: Instant, path: PathId, round_trip: Duration) {
        self.stream.handle_opened(now, path);
        self.stream.note_round_trip(path, round_trip);
    }

    fn handle_closed(&mut self, now: Instant, path: PathId) {
        self.stream.handle_closed(now, path);
    }

    fn poll_request(&mut self, now: Instant, path: PathId) -> Option<Asking> {
        let Wanted { id, unit, quality, range } = self.stream.poll_request(now, path)?;
        Some(Asking { id, target: Movie::target(unit.0, quality), range })
    }

    fn handle_head(
        &mut self,
        now: Instant,
        _path: PathId,
        request: RequestId,
        answer: &Result<Answer, Unusable>,
    ) -> bool {
        match answer {
            Ok(answer) => self.stream.handle_head(now, request, answer.version.total()).is_ok(),
            Err(Unusable::NoSuchRange { total, .. }) => {
                self.stream.handle_no_such_range(now, request, *total).is_ok()
            }
            Err(_) => false,
        }
    }

    fn handle_bytes(
        &mut self,
        now: Instant,
        _path: PathId,
        request: RequestId,
        first: u64,
        bytes: &Bytes,
    ) -> Option<Rest> {
        let Arrived { unit, quality, rest, .. } =
            self.stream.handle_bytes(now, request, bytes.len() as u64)?;
        self.is_wrong |= self.pattern.verify(Movie::offset(unit.0, quality) + first, bytes).is_err();
        self.note_events();
        Some(rest)
    }

    fn handle_end(&mut self, now: Instant, _path: PathId, request: RequestId) {
        self.stream.handle_end(now, request);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.stream.handle_timeout(now);
    }

    fn poll_gone(&mut self, now: Instant) -> Option<PathId> {
        self.stream.poll_gone(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.stream.poll_timeout()
    }

    fn is_complete(&self) -> bool {
        self.stream.is_complete()
    }
}
