//! One file.

use bytes::Bytes;
use polypath_fetch::answer::{Answer, AskedRange, Unusable};
use polypath_fetch::playback::History;
use polypath_fetch::schedule::{PathId, Ranges, Request, RequestId, Rest, Schedule, Sizing};
use polypath_sim::app::Pattern;
use polypath_units::{Duration, Instant};

use super::work::{Asking, Work};

/// Where it is.
pub(super) const TARGET: &str = "/video.mp4";

/// The download of a file.
#[derive(Debug)]
pub(super) struct WholeFile {
    schedule: Schedule,
    file: Pattern,
    history: History,
    is_wrong: bool,
}

impl WholeFile {
    pub(super) fn new(file: Pattern, sizing: Sizing) -> Self {
        let schedule = Schedule::new(sizing, Ranges::new());
        Self { schedule, file, history: History::new(Instant::ZERO), is_wrong: false }
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.schedule.received().len_bytes()
    }

    /// When what came, came.
    pub(super) const fn history(&self) -> &History {
        &self.history
    }

    /// Every byte was the right one.
    pub(super) const fn is_right(&self) -> bool {
        !self.is_wrong
    }
}

impl Work for WholeFile {
    fn add_path(&mut self) -> PathId {
        let path = self.schedule.add_path(Instant::ZERO);
        self.schedule.handle_closed(Instant::ZERO, path);
        path
    }

    fn handle_opened(&mut self, now: Instant, path: PathId, round_trip: Duration) {
        self.schedule.handle_opened(now, path);
        self.schedule.note_round_trip(path, round_trip);
    }

    fn handle_closed(&mut self, now: Instant, path: PathId) {
        self.schedule.handle_closed(now, path);
    }

    fn poll_request(&mut self, now: Instant, path: PathId) -> Option<Asking> {
        let Request { id, start, end } = self.schedule.poll_request(now, path)?;
        let range = AskedRange { first: start, last: end.map(|end| end - 1) };
        Some(Asking { id, target: TARGET.into(), range })
    }

    fn handle_head(
        &mut self,
        now: Instant,
        path: PathId,
        request: RequestId,
        answer: &Result<Answer, Unusable>,
    ) -> bool {
        let Ok(answer) = answer else { return false };
        self.schedule.handle_head(now, path, request);
        if let (None, Some(total)) = (self.schedule.total_bytes(), answer.version.total()) {
            self.schedule.set_total_bytes(total);
        }
        true
    }

    fn handle_bytes(
        &mut self,
        now: Instant,
        path: PathId,
        request: RequestId,
        first: u64,
        bytes: &Bytes,
    ) -> Option<Rest> {
        self.is_wrong |= self.file.verify(first, bytes).is_err();
        let came = self.schedule.handle_bytes(now, path, request, bytes.len() as u64)?;
        self.history.note(now, came.range);
        Some(came.rest)
    }

    fn handle_end(&mut self, _now: Instant, _path: PathId, _request: RequestId) {}

    fn handle_timeout(&mut self, now: Instant) {
        self.schedule.handle_timeout(now);
    }

    fn poll_gone(&mut self, now: Instant) -> Option<PathId> {
        self.schedule.poll_gone(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.schedule.poll_timeout()
    }

    fn is_complete(&self) -> bool {
        self.schedule.is_complete()
    }
}
