//! One stream under way.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polypath_units::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{self, sleep_until};
use url::Url;

use super::error::StreamError;
use super::options::{Fetched, Now, Options, Summary, Told};
use super::paths::{Asked, Path};
use super::small::{self, Small};
use super::source::Source;
use super::units::{Place, Units};
use crate::answer::{Answer, AskedRange, Extent, Unusable};
use crate::download::Dial;
use crate::download::asking::RequestFields;
use crate::download::path::{Event, Told as PathTold};
use crate::http1::Head;
use crate::manifest::{Presentation, Resource};
use crate::schedule::{RequestId, Rest};
use crate::stream::{self, Arrived, State, Stream, UnitNumber, Wanted};

/// What paths may tell before it is dealt with: then they read no more.
const MOST_TOLD: usize = 16;
/// Nobody holds more of one segment.
const MOST_SEGMENT_BYTES: u64 = 256 << 20;
/// A segment that the server refuses so often can't be had.
const MOST_REFUSALS: u32 = 5;
/// How long a path is left alone that was refused something.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(400);

/// A stream under way.
pub(super) struct Session<'o> {
    options: &'o Options,
    fields: RequestFields,
    ways: Vec<Arc<dyn Dial>>,
    source: Option<Source>,
    presentation: Arc<Presentation>,
    /// Of the first segment: all paths connect to its server.
    server: Url,
    units: Units,
    stream: Stream,
    paths: Vec<Path>,
    /// What came of the units that are not complete.
    coming: HashMap<UnitNumber, BytesMut>,
    refused: HashMap<UnitNumber, u32>,
    /// What is complete, in order, and may wait for what a player needs before it.
    complete: VecDeque<(Place, usize, Bytes)>,
    inits: HashMap<Resource, Init>,
    began: time::Instant,
    last_progress: time::Instant,
    state: State,
    summary: Summary,
}

/// A manifest that was read again, and how that went.
type Refreshed = (Source, Result<(), StreamError>);

enum Init {
    Coming(JoinHandle<Result<Small, StreamError>>),
    There(Bytes),
}

impl<'o> Session<'o> {
    pub(super) fn new(
        source: Source,
        options: &'o Options,
        ways: Vec<Arc<dyn Dial>>,
    ) -> Result<Self, StreamError> {
        let presentation = source.presentation().clone();
        let began = source.began;
        let first = presentation.main().qualities().iter().find_map(|quality| quality.segments().first());
        let server = first.ok_or(StreamError::Empty)?.resource().url().clone();
        let summary =
            Summary { segments: vec![0; presentation.main().qualities().len()], ..Summary::default() };
        let now = Instant::ZERO + began.elapsed().into();
        let adaptation = options.adaptation.build();
        let mut session = Self {
            options,
            fields: source.fields.clone(),
            ways,
            source: Some(source),
            presentation,
            server,
            units: Units::default(),
            stream: Stream::new(now, options.sizing.clone(), adaptation, options.buffering),
            paths: Vec::new(),
            coming: HashMap::new(),
            refused: HashMap::new(),
            complete: VecDeque::new(),
            inits: HashMap::new(),
            began,
            last_progress: time::Instant::now(),
            state: State::Starting,
            summary,
        };
        session.push_units()?;
        Ok(session)
    }

    /// Fetches, until the stream is over.
    pub(super) async fn run(
        &mut self,
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
            self.ask();
            self.note_events(told).await?;
            self.hand_on(told).await?;
            self.note_state(told);
            if self.stream.is_complete() && self.complete.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                // Who wants the end has all that is there.
                () = &mut stop => return Ok(()),
                error = self.wait_for_silence() => return Err(error),
                refreshed = wait_for(&mut refreshing) => {
                    refreshing = None;
                    self.handle_refreshed(refreshed, told)?;
                }
                () = wait_until(self.source.as_ref().and_then(Source::due_at)) => refreshing = self.refresh(),
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

    pub(super) fn summary(mut self) -> Summary {
        let player = self.stream.player();
        self.summary.path_bytes = self.paths.iter().map(|path| path.bytes).collect();
        self.summary.startup = player.began().map(|at| at.since(Instant::ZERO).into());
        self.summary.is_whole = self.stream.is_whole();
        self.summary.stalls = player.stalls();
        self.summary.stalled_for = player.stalled_for().into();
        self.summary.played = player.position().into();
        self.summary
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.began.elapsed().into()
    }

    fn due_at(&self) -> Option<time::Instant> {
        self.stream.poll_timeout().map(|at| self.began + Duration::from_nanos(at.as_nanos()))
    }

    fn add_path(&mut self, way: Arc<dyn Dial>, events: mpsc::Sender<PathTold>) {
        let now = self.now();
        let id = self.stream.add_path(now);
        self.stream.handle_closed(now, id);
        let number = self.paths.len();
        self.paths.push(Path::new((id, number), way, &self.server, &self.fields, events));
    }

    fn push_units(&mut self) -> Result<(), StreamError> {
        let presentation = self.presentation.clone();
        for unit in self.units.next(&presentation) {
            self.stream.push_unit(unit);
        }
        if !presentation.is_live() {
            self.stream.handle_end_of_units();
        }
        Ok(())
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
            Err(error @ StreamError::Fetch { .. }) => {
                told(Told::Notice(error.to_string()));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Asks on all paths what is to be asked now.
    fn ask(&mut self) {
        let now = self.now();
        for at in 0..self.paths.len() {
            if self.paths[at].connection.is_none() {
                continue;
            }
            while let Some(Wanted { id, unit, quality, range }) =
                self.stream.poll_request(now, self.paths[at].id)
            {
                let Some((_, segment)) = self.units.place(unit).and_then(|place| place.choices.get(quality))
                else {
                    continue;
                };
                let resource = segment.resource();
                let offset = resource.range().map_or(0, |range| range.first());
                let next = Some(range.first);
                let range =
                    AskedRange { first: offset + range.first, last: range.last.map(|last| offset + last) };
                let url = resource.url().clone();
                // While the player has enough, nothing is asked for, which is no silence.
                if self.paths.iter().all(|path| path.asked.is_empty()) {
                    self.last_progress = time::Instant::now();
                }
                self.paths[at].ask(id, Asked { unit, url, range, offset, next });
            }
        }
    }

    fn handle(&mut self, heard: PathTold, told: &mut impl FnMut(Told)) -> Result<(), StreamError> {
        let PathTold { path: at, connection, event } = heard;
        let now = self.now();
        let path = &mut self.paths[at];
        match event {
            Event::Opened { round_trip } => {
                path.connection = Some(connection);
                path.asked.clear();
                self.stream.handle_opened(now, path.id);
                if let Some(round_trip) = round_trip {
                    self.stream.note_round_trip(path.id, round_trip.into());
                }
                told(Told::Connected { path: at });
            }
            Event::Failed { cause } => {
                path.cause = Some(cause.clone());
                told(Told::Lost { path: at, cause });
            }
            // Of an earlier connection.
            _ if path.connection != Some(connection) => {}
            Event::Lost { cause, .. } => {
                path.connection = None;
                path.asked.clear();
                self.stream.handle_closed(now, path.id);
                if let Some(cause) = cause {
                    let cause = format!("{}: {cause}", path.name);
                    path.cause = Some(cause.clone());
                    told(Told::Lost { path: at, cause });
                }
            }
            Event::Head { id, head, round_trip } => {
                if let Some(round_trip) = round_trip {
                    self.stream.note_round_trip(path.id, round_trip.into());
                }
                self.handle_head(at, id, &head, told)?;
            }
            Event::Data { id, bytes } => self.handle_data(at, id, &bytes, told)?,
            Event::End { id } => {
                path.asked.remove(&id);
                self.stream.handle_end(now, id);
            }
        }
        Ok(())
    }

    fn handle_head(
        &mut self,
        at: usize,
        id: RequestId,
        head: &Head,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        let now = self.now();
        let Some(asked) = self.paths[at].asked.get_mut(&id) else { return Ok(()) };
        let url = Box::new(asked.url.clone());
        let is_part = asked.offset > 0 || self.stream_knows(id, at);
        let Some(asked) = self.paths[at].asked.get_mut(&id) else { return Ok(()) };
        let changed = |cause| StreamError::Changed { url: url.clone(), cause };
        match Answer::read(head, Some(asked.range)) {
            Ok(answer) => {
                // Of a part of a file, the manifest says how long it is.
                let length = answer.version.total().filter(|_| !is_part);
                if let Some(bytes) = length.filter(|bytes| *bytes > MOST_SEGMENT_BYTES) {
                    return Err(StreamError::TooLong { url, bytes });
                }
                if answer.extent == Extent::Whole {
                    asked.next = Some(0);
                    let is_of_use = !is_part && length.is_some();
                    self.stream.handle_head(now, id, length).map_err(changed)?;
                    if !(is_of_use && self.stream.handle_whole(id)) {
                        self.refuse(at, id, "the server gives no part of a file".into(), told)?;
                    }
                    return Ok(());
                }
                self.stream.handle_head(now, id, length).map_err(changed)
            }
            Err(Unusable::NoSuchRange { total: Some(total), .. }) if !is_part => {
                asked.next = None;
                self.stream.handle_no_such_range(now, id, Some(total)).map_err(changed)
            }
            Err(Unusable::Status(status)) => {
                let cause = format!("{url}: the server says {status}");
                self.refuse(at, id, cause, told)
            }
            Err(cause) => Err(StreamError::Answer { url, cause: Box::new(cause) }),
        }
    }

    /// Whether the manifest said how long the unit of a request is.
    fn stream_knows(&self, id: RequestId, at: usize) -> bool {
        let unit = self.paths[at].asked.get(&id).map(|asked| asked.unit);
        let place = unit.and_then(|unit| self.units.place(unit));
        place.is_some_and(|place| place.choices.iter().all(|(_, segment)| segment.len_bytes().is_some()))
    }

    /// An answer is of no use. It may be the next time, or over another path; or the segment is left out of a live stream.
    fn refuse(
        &mut self,
        at: usize,
        id: RequestId,
        cause: String,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        let now = self.now();
        let path = &mut self.paths[at];
        let Some(asked) = path.asked.remove(&id) else { return Ok(()) };
        path.cause = Some(format!("{}: {cause}", path.name));
        self.stream.handle_closed(now, path.id);
        path.renew(PAUSE_AFTER_REFUSAL);
        let refusals = self.refused.entry(asked.unit).or_default();
        *refusals += 1;
        if *refusals < MOST_REFUSALS {
            return Ok(());
        }
        if !self.presentation.is_live() {
            return Err(StreamError::Fetch { url: Box::new(asked.url), cause });
        }
        told(Told::LeftOut { cause });
        self.stream.leave_out(now, asked.unit);
        Ok(())
    }

    fn handle_data(
        &mut self,
        at: usize,
        id: RequestId,
        bytes: &Bytes,
        told: &mut impl FnMut(Told),
    ) -> Result<(), StreamError> {
        let now = self.now();
        let path = &mut self.paths[at];
        path.bytes += bytes.len() as u64;
        told(Told::Bytes { path: at, bytes: bytes.len() as u64 });
        self.last_progress = time::Instant::now();
        let Some(asked) = path.asked.get_mut(&id) else { return Ok(()) };
        let Some(first) = asked.next else { return Ok(()) };
        asked.next = Some(first + bytes.len() as u64);
        let (unit, url) = (asked.unit, asked.url.clone());
        // A whole segment may come where its end was asked for.
        let asked_first = asked.range.first - asked.offset;
        if first + bytes.len() as u64 > MOST_SEGMENT_BYTES {
            return Err(StreamError::TooLong { url: Box::new(url), bytes: first + bytes.len() as u64 });
        }
        // It may be that all of it is there already.
        if self.units.place(unit).is_some() {
            let there = self.coming.entry(unit).or_default();
            let end = first as usize + bytes.len();
            if there.len() < end {
                there.resize(end, 0);
            }
            there[first as usize..end].copy_from_slice(bytes);
        }
        let wanted = (first + bytes.len() as u64).saturating_sub(asked_first.max(first));
        if wanted == 0 {
            return Ok(());
        }
        let rest = self.stream.handle_bytes(now, id, wanted);
        if let Some(Arrived { rest: Rest::Superfluous, .. }) = rest {
            self.stream.handle_closed(now, self.paths[at].id);
            self.paths[at].renew(Duration::ZERO);
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

    async fn note_events(&mut self, told: &mut impl FnMut(Told)) -> Result<(), StreamError> {
        while let Some(event) = self.stream.poll_event() {
            match event {
                stream::Event::Chosen { unit, quality } => {
                    let Some(place) = self.units.place(unit) else { continue };
                    let Some((chosen, segment)) = place.choices.get(quality) else { continue };
                    self.check_server(segment.resource().url())?;
                    if let Some(init) = segment.init()
                        && !self.inits.contains_key(&**init)
                    {
                        let (resource, fields) = (init.clone(), self.fields.clone());
                        let ways = self.ways.clone();
                        let fetch = async move { small::fetch_resource(&resource, &fields, &ways).await };
                        self.inits.insert((**init).clone(), Init::Coming(tokio::spawn(fetch)));
                    }
                    if place.is_main {
                        told(Told::Chosen {
                            quality,
                            bit_rate: chosen.bit_rate(),
                            throughput: self.stream.throughput(),
                            lead: self.stream.player().lead(),
                        });
                    }
                }
                stream::Event::Complete { unit, quality, bytes } => {
                    let mut there = self.coming.remove(&unit).unwrap_or_default();
                    // A server without ranges may have sent more.
                    there.truncate(bytes as usize);
                    self.refused.remove(&unit);
                    if let Some(place) = self.units.remove(unit) {
                        self.complete.push_back((place, quality, there.freeze()));
                    }
                }
                stream::Event::LeftOut { unit } => {
                    self.coming.remove(&unit);
                    self.refused.remove(&unit);
                    if self.units.remove(unit).is_some_and(|place| place.is_main) {
                        self.summary.left_out += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn check_server(&self, url: &Url) -> Result<(), StreamError> {
        if url.origin() == self.server.origin() {
            return Ok(());
        }
        let (url, first) = (Box::new(url.clone()), Box::new(self.server.clone()));
        Err(StreamError::OtherServer { url, first })
    }

    /// Hands on what is complete, with what a player needs before it.
    async fn hand_on(&mut self, told: &mut impl FnMut(Told)) -> Result<(), StreamError> {
        while let Some((place, quality, bytes)) = self.complete.pop_front() {
            let Some((chosen, segment)) = place.choices.into_iter().nth(quality) else { continue };
            let init = match segment.init() {
                None => None,
                Some(resource) => Some(self.init(resource).await?),
            };
            if place.is_main
                && let Some(count) = self.summary.segments.get_mut(quality)
            {
                *count += 1;
            }
            let fetched = Fetched { track: place.track, quality: chosen, segment, init, bytes };
            told(Told::Segment(Box::new(fetched)));
        }
        Ok(())
    }

    /// It was asked for when the first segment that needs it was.
    async fn init(&mut self, resource: &Resource) -> Result<Bytes, StreamError> {
        let bytes = match self.inits.remove(resource) {
            Some(Init::There(bytes)) => bytes,
            Some(Init::Coming(task)) => match task.await {
                Ok(file) => file?.bytes,
                Err(_) => small::fetch_resource(resource, &self.fields, &self.ways).await?.bytes,
            },
            None => small::fetch_resource(resource, &self.fields, &self.ways).await?.bytes,
        };
        self.inits.insert(resource.clone(), Init::There(bytes.clone()));
        Ok(bytes)
    }

    fn note_state(&mut self, told: &mut impl FnMut(Told)) {
        let state = self.stream.player().state();
        if state != self.state {
            self.state = state;
            told(Told::Player(state));
        }
    }

    fn tell_now(&mut self, told: &mut impl FnMut(Told)) {
        self.stream.handle_timeout(self.now());
        let player = self.stream.player();
        told(Told::Now(Now {
            state: player.state(),
            lead: player.lead().into(),
            played: player.position().into(),
            stalls: player.stalls(),
            stalled_for: player.stalled_for().into(),
            throughput: self.stream.throughput(),
        }));
    }

    /// Nothing came for long of what was asked for.
    async fn wait_for_silence(&self) -> StreamError {
        let waits = self.coming.keys().next().is_some()
            || self.paths.iter().all(|path| path.connection.is_none())
            || self.paths.iter().any(|path| !path.asked.is_empty());
        match self.options.silence.filter(|_| waits) {
            Some(silence) => sleep_until(self.last_progress + silence).await,
            None => std::future::pending().await,
        }
        let causes = self.paths.iter().filter_map(|path| path.cause.clone()).collect();
        StreamError::Stalled { silent_for: self.options.silence.unwrap_or_default(), causes }
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
