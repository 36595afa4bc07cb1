//! One stream under way.

mod answers;
mod output;
mod state;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use polypath_units::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{self, sleep_until};

pub(super) use self::state::Session;

use self::state::{InitTold, PAUSE_AFTER_REFUSAL};
use super::error::StreamError;
use super::inits::Inits;
use super::line::LineId;
use super::options::{Options, Summary, Told};
use super::paths::{Asked, Purpose};
use super::source::Source;
use super::trust::{Step, Trust};
use super::units::Units;
use crate::answer::AskedRange;
use crate::download::Dial;
use crate::download::path::{Event, Told as PathTold};
use crate::manifest::{ByteRange, Segment};
use crate::stream::{State, Stream, Wanted};

/// What paths may tell before it is dealt with: then they read no more.
const MOST_TOLD: usize = 16;
/// A live manifest may be the same for so many of its longest segments.
const MOST_TARGETS_WITHOUT_NEWS: u32 = 3;

/// A path that has to show what it is worth has so long for it, before it gets another connection.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// A manifest that was read again, and how that went.
type Refreshed = (Source, Result<(), StreamError>);

impl<'o> Session<'o> {
    pub(super) fn new(
        source: Source,
        options: &'o Options,
        ways: Vec<Arc<dyn Dial>>,
    ) -> Result<(Self, mpsc::UnboundedReceiver<InitTold>), StreamError> {
        let presentation = source.presentation().clone();
        let began = source.began;
        let first = presentation.main().qualities().iter().find_map(|quality| quality.segments().first());
        let server = first.ok_or(StreamError::Empty)?.resource().url().clone();
        let summary =
            Summary { segments: vec![0; presentation.main().qualities().len()], ..Summary::default() };
        let now = Instant::ZERO + began.elapsed().into();
        let adaptation = options.adaptation.build();
        let (init_told, init_heard) = mpsc::unbounded_channel();
        let mut session = Self {
            options,
            fields: source.fields.clone(),
            ways,
            trust: Trust::new(source.witness),
            source: Some(source),
            presentation,
            server,
            units: Units::default(),
            stream: Stream::new(now, options.sizing.clone(), adaptation, options.buffering),
            paths: Vec::new(),
            probes: 0,
            coming: BTreeMap::new(),
            refused: HashMap::new(),
            restarts: HashMap::new(),
            complete: VecDeque::new(),
            inits: Inits::default(),
            init_told,
            began,
            last_progress: time::Instant::now(),
            last_new: time::Instant::now(),
            is_idle: false,
            state: State::Starting,
            summary,
        };
        session.push_units();
        Ok((session, init_heard))
    }

    /// Fetches, until the stream is over.
    pub(super) async fn run(
        &mut self,
        mut init_heard: mpsc::UnboundedReceiver<InitTold>,
        ways: &mut mpsc::Receiver<Arc<dyn Dial>>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        told(Told::Begun(self.presentation.clone()));
        let (events, mut heard) = mpsc::channel(MOST_TOLD);
        for way in self.ways.clone() {
            self.add_path(way, events.clone());
        }
        let mut has_more_ways = true;
        let mut refreshing = None;
        let mut seconds = time::interval(Duration::from_secs(1));
        loop {
            self.ask(told);
            self.note_events(told)?;
            self.hand_on(told);
            self.note_state(told);
            if self.stream.is_complete() && self.complete.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                // Who wants the end has all that is there.
                () = &mut stop => return Ok(()),
                error = self.wait_for_silence() => return Err(error),
                error = self.wait_for_news() => return Err(error),
                refreshed = wait_for(&mut refreshing) => {
                    refreshing = None;
                    self.handle_refreshed(refreshed, told)?;
                }
                () = wait_until(self.source.as_ref().and_then(Source::due_at)) => refreshing = self.refresh(),
                Some(fetched) = init_heard.recv() => self.handle_init(fetched)?,
                Some(event) = heard.recv() => self.handle(event, told)?,
                way = ways.recv(), if has_more_ways => match way {
                    Some(way) => {
                        self.ways.push(way.clone());
                        self.add_path(way, events.clone());
                    }
                    None => has_more_ways = false,
                },
                () = wait_until(self.due_at()) => self.handle_timeout(told),
                _ = seconds.tick() => self.tell_now(told),
            }
        }
    }

    fn due_at(&self) -> Option<time::Instant> {
        self.stream.poll_timeout().map(|at| self.began + Duration::from_nanos(at.as_nanos()))
    }

    fn push_units(&mut self) {
        let presentation = self.presentation.clone();
        for unit in self.units.next(&presentation) {
            self.last_new = time::Instant::now();
            self.stream.push_unit(unit);
        }
        if !presentation.is_live() {
            self.stream.handle_end_of_units();
        }
    }

    fn refresh(&mut self) -> Option<JoinHandle<Refreshed>> {
        let mut source = self.source.take()?;
        let ways = self.ways.clone();
        Some(tokio::spawn(async move {
            let refreshed = source.refresh(&ways).await;
            (source, refreshed)
        }))
    }

    fn handle_refreshed(
        &mut self,
        (source, refreshed): Refreshed,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        self.presentation = source.presentation().clone();
        self.source = Some(source);
        match refreshed {
            Ok(()) => self.push_units(),
            // It may be readable the next time.
            Err(error @ StreamError::Fetch { .. }) => told(Told::Notice(error.to_string())),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Asks on all paths what is to be asked now.
    fn ask(&mut self, told: &mut impl FnMut(Told)) {
        // While the player has enough, nothing is asked for, which is no silence.
        if self.is_idle {
            self.last_progress = time::Instant::now();
        }
        for at in 0..self.paths.len() {
            if !self.paths[at].is_open() || !self.is_of_use(at, told) {
                continue;
            }
            let now = self.now();
            while let Some(Wanted { id, unit, quality, range }) =
                self.stream.poll_request(now, self.paths[at].id)
            {
                let Some((_, segment)) = self.units.place(unit).and_then(|place| place.choices.get(quality))
                else {
                    continue;
                };
                let resource = segment.resource();
                let part = resource.range();
                let offset = part.map_or(0, ByteRange::first);
                let range =
                    AskedRange { first: offset + range.first, last: range.last.map(|last| offset + last) };
                let url = resource.url().clone();
                self.paths[at].ask(id, Asked::new(Purpose::Unit(unit), url, range, part));
            }
        }
        let could_ask = self.paths.iter().any(|path| path.is_used && path.is_open());
        let waits = self.paths.iter().any(|path| path.owes()) || !self.coming.is_empty();
        self.is_idle = could_ask && !waits && self.complete.is_empty();
    }

    /// Whether a path that has a connection may bring parts of the stream. If that is not known, it is asked for something that is.
    fn is_of_use(&mut self, at: usize, told: &mut impl FnMut(Told)) -> bool {
        if self.paths[at].is_used {
            return true;
        }
        let now = self.now();
        match self.trust.next(now, at) {
            Step::Wait => false,
            Step::Probe(_) if self.paths[at].is_probed() => {
                // Nobody else looks whether anything comes on it.
                if self.paths[at].probed_at.is_some_and(|at| at.elapsed() >= PROBE_LIMIT) {
                    self.renew(at, Duration::ZERO);
                }
                false
            }
            Step::Probe(facts) => {
                self.paths[at].probed_at = Some(time::Instant::now());
                let (id, url, range) = (self.next_probe(), facts.url.clone(), facts.range());
                self.paths[at].ask(id, Asked::new(Purpose::Probe(facts), url, range, None));
                false
            }
            Step::Use => {
                let path = &mut self.paths[at];
                (path.is_used, path.was_told) = (true, true);
                self.stream.handle_opened(now, path.id);
                if let Some(round_trip) = path.round_trip {
                    self.stream.note_round_trip(path.id, round_trip.into());
                }
                told(Told::Connected { path: at });
                true
            }
        }
    }

    fn handle(&mut self, heard: PathTold, told: &mut impl FnMut(Told)) -> Result<(), StreamError> {
        let PathTold { path, connection, event } = heard;
        let of @ LineId { path: at, line } = LineId::of(path);
        let is_home = line == 0;
        let path = &mut self.paths[at];
        // Nobody waits for one that is gone.
        let Some(known) = path.line_mut(line) else { return Ok(()) };
        match event {
            Event::Opened { round_trip } => {
                known.connection = Some(connection);
                if is_home {
                    path.asked.clear();
                    path.round_trip = round_trip;
                } else {
                    path.handle_opened();
                }
            }
            Event::Failed { cause } => {
                path.cause = Some(cause.clone());
                // Where a server sends, nobody answers: others are asked for it.
                if !is_home && path.waits_for(line) {
                    self.renew(at, PAUSE_AFTER_REFUSAL);
                }
                told(Told::Lost { path: at, cause });
            }
            // Of an earlier connection.
            _ if known.connection != Some(connection) => {}
            Event::Lost { cause, .. } => {
                known.connection = None;
                let cause = cause.map(|cause| format!("{}: {cause}", path.name));
                if is_home {
                    let was_idle = path.is_used && !path.owes();
                    path.handle_lost();
                    self.note_lost(was_idle);
                    let (now, id) = (self.now(), self.paths[at].id);
                    self.stream.handle_closed(now, id);
                } else if path.waits_for(line) {
                    self.renew(at, Duration::ZERO);
                } else {
                    return Ok(());
                }
                if let Some(cause) = cause {
                    self.paths[at].cause = Some(cause.clone());
                    told(Told::Lost { path: at, cause });
                }
            }
            Event::Head { id, head, round_trip } => {
                if let Some(round_trip) = round_trip.filter(|_| path.is_used) {
                    self.stream.note_round_trip(path.id, round_trip.into());
                }
                self.handle_head(of, id, &head, told)?;
            }
            Event::Data { id, bytes } => self.handle_data(of, id, &bytes, told)?,
            Event::End { id } => {
                if path.end(line, id) {
                    let now = self.now();
                    self.stream.handle_end(now, id);
                }
            }
        }
        Ok(())
    }

    fn handle_timeout(&mut self, told: &mut impl FnMut(Told)) {
        let now = self.now();
        self.stream.handle_timeout(now);
        while let Some(gone) = self.stream.poll_gone(now) {
            let path = &mut self.paths[gone.index()];
            path.renew(Duration::ZERO);
            let cause = format!("{}: nothing comes", path.name);
            path.cause = Some(cause.clone());
            told(Told::Lost { path: gone.index(), cause });
        }
    }

    /// Nothing came for long of what was asked for.
    async fn wait_for_silence(&self) -> StreamError {
        let waits = !self.coming.is_empty()
            || !self.complete.is_empty()
            || !self.paths.iter().any(|path| path.is_used)
            || self.paths.iter().any(|path| path.owes());
        match self.options.silence.filter(|_| waits) {
            Some(silence) => sleep_until(self.last_progress + silence).await,
            None => std::future::pending().await,
        }
        let causes = self.paths.iter().filter_map(|path| path.cause.clone()).collect();
        StreamError::Stalled { silent_for: self.options.silence.unwrap_or_default(), causes }
    }

    /// A live stream's manifest had nothing new for long.
    async fn wait_for_news(&self) -> StreamError {
        let Some(silence) = self.options.silence.filter(|_| self.presentation.is_live()) else {
            return std::future::pending().await;
        };
        let qualities = self.presentation.main().qualities().iter();
        let longest = qualities.filter_map(|quality| quality.segments().last()).map(Segment::duration).max();
        let target = Duration::from(longest.unwrap_or_default());
        let unchanged_for = silence.max(target.saturating_mul(MOST_TARGETS_WITHOUT_NEWS));
        match self.last_new.checked_add(unchanged_for) {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
        StreamError::NothingNew { unchanged_for }
    }
}

async fn wait_until(at: Option<time::Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What a task gives, when it ends.
async fn wait_for<T>(task: &mut Option<JoinHandle<T>>) -> T {
    match task {
        Some(task) => match task.await {
            Ok(value) => value,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        },
        None => std::future::pending().await,
    }
}
