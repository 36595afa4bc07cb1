//! One file under way from one URL.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polypath_units::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{self, sleep_until};
use url::Url;

use super::error::DownloadError;
use super::options::{Done, Options, Progress};
use super::output::{Output, Target, unwritten};
use super::part_file::PartFile;
use super::path::{Asking, Command, Dial, Event, Told, keep};
use super::verdicts::{Verdict, Verdicts};
use crate::answer::{Answer, AskedRange, Digest, Extent, Unusable, Version};
use crate::http1::Head;
use crate::net::without_user;
use crate::playback::History;
use crate::schedule::{PathId, Request, RequestId, Rest, Schedule, Sizing};

/// What paths may tell before it is dealt with: then they read no more.
const MOST_TOLD: usize = 16;
/// How often it is written down what is there.
const SAVING: Duration = Duration::from_secs(1);
/// A path whose answers can't be used so often in a row is left out.
const MOST_FAILURES: u32 = 5;
/// Fields that are for one host only.
const FOR_ONE_HOST: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// How [`Transfer::run`] ended.
pub(super) enum Ended {
    Complete,
    Redirected(Url),
}

/// One file under way.
pub(super) struct Transfer<'o> {
    options: &'o Options,
    /// What was asked for at first: an earlier attempt is known by it.
    original: Url,
    url: Url,
    output: Output,
    sizing: Sizing,
    schedule: Schedule,
    /// Of which the bytes are that are there.
    version: Option<Version>,
    has_answer: bool,
    digests: Vec<Digest>,
    paths: Vec<Path>,
    began: time::Instant,
    last_progress: time::Instant,
    history: History,
    is_saved: bool,
    rounds: u32,
    /// How often an answer without ranges was broken off.
    restarts: u32,
    verdicts: Verdicts,
    /// Nothing more is taken until then, for a rate that is not to be passed.
    paused_until: Option<time::Instant>,
}

/// A path of it.
struct Path {
    id: PathId,
    name: String,
    commands: mpsc::UnboundedSender<Command>,
    task: JoinHandle<()>,
    /// The number of its connection, if it has one.
    connection: Option<u64>,
    asked: HashMap<RequestId, Asked>,
    failures: u32,
    attempts: u32,
    was_connected: bool,
    cause: Option<String>,
    bytes: u64,
    /// Its last answer was of another version than the others'.
    is_other: bool,
}

impl Path {
    /// Gives up the connection, if there is one, for another after a pause.
    fn renew(&mut self, pause: Duration) {
        self.asked.clear();
        if let Some(connection) = self.connection.take() {
            // A path that is gone says so.
            let _ = self.commands.send(Command::Renew { connection, pause });
        }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    start: u64,
    end: Option<u64>,
    came_bytes: u64,
}

impl Asked {
    fn range(self) -> AskedRange {
        AskedRange { first: self.start, last: self.end.map(|end| end - 1) }
    }
}

impl<'o> Transfer<'o> {
    pub(super) fn new(url: Url, options: &'o Options, target: Target) -> Result<Self, DownloadError> {
        let (output, left, best) = match target {
            Target::File { place, resume } => {
                let opened = PartFile::open(&place, without_user(&url).as_str(), resume);
                let (file, left) = opened.map_err(|cause| DownloadError::Write { place, cause })?;
                (Output::File(file), left, Sizing::for_files())
            }
            Target::Stream(to) => {
                (Output::Stream(super::output::Ordered::new(to)), Default::default(), Sizing::in_order())
            }
        };
        let mut left = left;
        // One byte at least comes anew, and says of which version it is.
        if let Some(total) = left.version.as_ref().and_then(Version::total)
            && left.ranges.len_bytes() == total
        {
            left.ranges.remove(total.saturating_sub(1)..total);
        }
        let sizing = options.sizing.clone().unwrap_or(best);
        let now = time::Instant::now();
        Ok(Self {
            options,
            original: url.clone(),
            url,
            output,
            schedule: Schedule::new(sizing.clone(), left.ranges),
            sizing,
            version: left.version,
            has_answer: false,
            digests: options.digests.clone(),
            paths: Vec::new(),
            began: now,
            last_progress: now,
            history: History::new(Instant::ZERO),
            is_saved: true,
            rounds: 0,
            restarts: 0,
            verdicts: Verdicts::default(),
            paused_until: None,
        })
    }

    /// Where it is asked for now, for messages.
    pub(super) fn shown_url(&self) -> Url {
        without_user(&self.url)
    }

    /// The same file from elsewhere.
    pub(super) fn redirected(mut self, url: Url) -> Self {
        self.schedule = Schedule::new(self.sizing.clone(), self.schedule.received().clone());
        self.paths.clear();
        self.verdicts = Verdicts::default();
        self.url = url;
        self
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Fetches, until all is there or the server sends elsewhere.
    pub(super) async fn run(
        &mut self,
        known: &mut Vec<Arc<dyn Dial>>,
        ways: &mut mpsc::Receiver<Arc<dyn Dial>>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Ended, DownloadError> {
        let (events, mut told) = mpsc::channel(MOST_TOLD);
        while let Ok(way) = ways.try_recv() {
            known.push(way);
        }
        for way in known.iter() {
            self.add_path(way.clone(), events.clone())?;
        }
        let mut saving = time::interval(SAVING);
        let mut has_more_ways = true;
        let outcome = loop {
            self.ask();
            if self.schedule.is_complete() {
                break Ok(Ended::Complete);
            }
            let too_late = self.options.most_time.map(|most| self.began + most);
            let handled = tokio::select! {
                biased;
                () = &mut stop => Err(DownloadError::Interrupted),
                error = self.wait_for_the_end() => Err(error),
                _ = saving.tick() => self.save().map(|()| None),
                ended = self.wait_for_verdict() => ended.map(Some),
                () = sleep_until(self.paused_until.unwrap_or(self.began)), if self.paused_until.is_some() => {
                    self.paused_until = None;
                    Ok(None)
                }
                // Whoever takes the file may be in no hurry.
                Some(event) = told.recv(), if self.paused_until.is_none() => tokio::select! {
                    biased;
                    () = &mut stop => Err(DownloadError::Interrupted),
                    () = sleep_until(too_late.unwrap_or(self.began)), if too_late.is_some() => {
                        Err(DownloadError::TooLong(self.options.most_time.unwrap_or_default()))
                    }
                    handled = self.handle(event, progress) => handled,
                },
                way = ways.recv(), if has_more_ways => {
                    match way {
                        Some(way) => {
                            known.push(way.clone());
                            self.add_path(way, events.clone()).map(|()| None)
                        }
                        None => {
                            has_more_ways = false;
                            let nothing = || DownloadError::Unreachable(vec!["no interface leads there".into()]);
                            if self.paths.is_empty() { Err(nothing()) } else { Ok(None) }
                        }
                    }
                }
                () = self.wait_for_timeout() => {
                    self.handle_timeout(progress);
                    Ok(None)
                }
            };
            match handled {
                Ok(None) => {}
                Ok(Some(ended)) => break Ok(ended),
                Err(error) => break Err(error),
            }
        };
        if !matches!(outcome, Ok(Ended::Complete)) {
            // What it failed for is said already.
            let _ = self.save();
        }
        if outcome.is_err() {
            self.discard_empty();
        }
        outcome
    }

    /// An empty part is of no use to anybody.
    pub(super) fn discard_empty(&self) {
        if let Output::File(file) = &self.output
            && self.schedule.received().len_bytes() == 0
        {
            // What it failed for is said already.
            let _ = file.remove();
        }
    }

    async fn wait_for_timeout(&self) {
        match self.schedule.poll_timeout() {
            Some(at) => sleep_until(self.began + Duration::from_nanos(at.as_nanos())).await,
            None => std::future::pending().await,
        }
    }

    /// What paths were told counts, once the others had their time.
    async fn wait_for_verdict(&self) -> Result<Ended, DownloadError> {
        match self.verdicts.due() {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
        self.verdict()
    }

    fn verdict(&self) -> Result<Ended, DownloadError> {
        match self.verdicts.decide() {
            Some(Verdict::Elsewhere(url)) => Ok(Ended::Redirected(url)),
            Some(Verdict::Refused(status)) => Err(DownloadError::Refused { url: self.shown_url(), status }),
            None => Err(DownloadError::Unreachable(self.causes())),
        }
    }

    /// A path is told something in place of the file. It counts at once if no other can say better.
    fn handle_verdict(&mut self, at: usize, verdict: Verdict) -> Result<Option<Ended>, DownloadError> {
        self.verdicts.note(time::Instant::now(), at, verdict);
        let can_say_better = |(at, path): (usize, &Path)| {
            !self.verdicts.has(at) && (path.connection.is_some() || path.attempts == 0)
        };
        if self.paths.iter().enumerate().any(can_say_better) { Ok(None) } else { self.verdict().map(Some) }
    }

    /// A path has the file: what others were told was not of its server.
    fn overrule(&mut self, progress: &mut impl FnMut(Progress)) -> Result<(), DownloadError> {
        for (at, verdict) in self.verdicts.overrule() {
            let cause = match verdict {
                Verdict::Elsewhere(url) => format!("it is sent to {}", without_user(&url)),
                Verdict::Refused(status) => format!("the server says {status}"),
            };
            self.give_up(at, cause, progress)?;
        }
        Ok(())
    }

    fn handle_timeout(&mut self, progress: &mut impl FnMut(Progress)) {
        let now = self.now();
        self.schedule.handle_timeout(now);
        while let Some(gone) = self.schedule.poll_gone(now) {
            let path = &mut self.paths[gone.index()];
            path.renew(Duration::ZERO);
            let cause = format!("{}: nothing comes", path.name);
            path.cause = Some(cause.clone());
            progress(Progress::Lost { path: gone.index(), cause });
        }
    }

    async fn wait_for_the_end(&self) -> DownloadError {
        let silent = async {
            match self.options.silence {
                Some(silence) => sleep_until(self.last_progress + silence).await,
                None => std::future::pending().await,
            }
        };
        let too_long = async {
            match self.options.most_time {
                Some(most) => sleep_until(self.began + most).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = silent => DownloadError::Stalled {
                silent_for: self.options.silence.unwrap_or_default(),
                causes: self.causes(),
            },
            () = too_long => DownloadError::TooLong(self.options.most_time.unwrap_or_default()),
        }
    }

    fn add_path(&mut self, way: Arc<dyn Dial>, events: mpsc::Sender<Told>) -> Result<(), DownloadError> {
        let now = self.now();
        let id = self.schedule.add_path(now);
        self.schedule.handle_closed(now, id);
        let is_at_home = self.original.origin() == self.url.origin();
        let fields = self.options.fields.iter();
        let fields =
            fields.filter(|(name, _)| is_at_home || !FOR_ONE_HOST.contains(&&*name.to_ascii_lowercase()));
        let asking = Asking { url: self.url.clone(), fields: fields.cloned().collect() };
        // What can't be asked is not asked later either.
        asking.request(&*way, None)?;
        let (commands, receiver) = mpsc::unbounded_channel();
        let name = way.name().to_string();
        let task = tokio::spawn(keep(id.index(), way, asking, receiver, events));
        self.paths.push(Path {
            id,
            name,
            commands,
            task,
            connection: None,
            asked: HashMap::new(),
            failures: 0,
            attempts: 0,
            was_connected: false,
            cause: None,
            bytes: 0,
            is_other: false,
        });
        Ok(())
    }

    /// Asks what is to be asked now.
    fn ask(&mut self) {
        self.schedule.set_horizon(self.output.horizon());
        let now = self.now();
        for path in &mut self.paths {
            let Some(connection) = path.connection else { continue };
            while let Some(Request { id, start, end }) = self.schedule.poll_request(now, path.id) {
                let asked = Asked { start, end, came_bytes: 0 };
                path.asked.insert(id, asked);
                let range = Some(asked.range().to_field());
                // A path that is gone says so.
                let _ = path.commands.send(Command::Ask { connection, id, range });
            }
        }
    }

    async fn handle(
        &mut self,
        told: Told,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Option<Ended>, DownloadError> {
        let Told { path: at, connection, event } = told;
        let now = self.now();
        let path = &mut self.paths[at];
        match event {
            Event::Opened { round_trip } => {
                path.connection = Some(connection);
                path.was_connected = true;
                path.asked.clear();
                self.schedule.handle_opened(now, path.id);
                if let Some(round_trip) = round_trip {
                    self.schedule.note_round_trip(path.id, round_trip.into());
                }
                progress(Progress::Connected { path: at });
            }
            // That says over which way.
            Event::Failed { cause } => {
                path.attempts += 1;
                path.cause = Some(cause.clone());
                progress(Progress::Lost { path: at, cause });
                self.check_reachable()?;
            }
            // Of an earlier connection.
            _ if path.connection != Some(connection) => {}
            Event::Lost { cause, left_unasked } => {
                path.connection = None;
                self.schedule.handle_closed(now, path.id);
                if left_unasked {
                    self.schedule.note_unanswered(path.id);
                }
                if let Some(cause) = cause {
                    let cause = format!("{}: {cause}", path.name);
                    path.cause = Some(cause.clone());
                    progress(Progress::Lost { path: at, cause });
                }
                self.restart_if_whole(progress)?;
            }
            Event::Head { id, head, round_trip } => {
                if let Some(round_trip) = round_trip {
                    self.schedule.note_round_trip(path.id, round_trip.into());
                }
                return self.handle_head(at, id, &head, progress).await;
            }
            Event::Data { id, bytes } => self.handle_data(at, id, bytes, progress).await?,
            Event::End { id } => {
                let Some(asked) = path.asked.remove(&id) else { return Ok(None) };
                if self.schedule.total_bytes().is_none() && self.has_answer {
                    self.schedule.set_total_bytes(asked.start + asked.came_bytes);
                } else if self.end_of(asked).is_some_and(|end| asked.start + asked.came_bytes < end) {
                    self.give_up(at, "the server sent less than it had said".into(), progress)?;
                } else if self.has_answer {
                    self.paths[at].failures = 0;
                }
            }
        }
        Ok(None)
    }

    /// Where an answer ends, if that is known: at the end of the file even if more was asked for.
    fn end_of(&self, asked: Asked) -> Option<u64> {
        [asked.end, self.schedule.total_bytes()].into_iter().flatten().min()
    }

    fn check_reachable(&self) -> Result<(), DownloadError> {
        let is_lost =
            self.paths.iter().all(|path| !path.was_connected && path.attempts > self.options.retries);
        if is_lost { Err(DownloadError::Unreachable(self.causes())) } else { Ok(()) }
    }

    fn causes(&self) -> Vec<String> {
        self.paths
            .iter()
            .filter(|path| path.connection.is_none())
            .filter_map(|path| path.cause.clone())
            .collect()
    }

    /// A path's answers can't be used: it gets a new connection, a few times.
    fn give_up(
        &mut self,
        at: usize,
        cause: String,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        let now = self.now();
        let path = &mut self.paths[at];
        let cause = format!("{}: {cause}", path.name);
        path.cause = Some(cause.clone());
        path.failures += 1;
        self.schedule.handle_closed(now, path.id);
        if path.failures < MOST_FAILURES {
            path.renew(Duration::from_millis(250) * path.failures);
        } else {
            path.connection = None;
        }
        progress(Progress::Lost { path: at, cause });
        if self.paths.iter().all(|path| path.failures >= MOST_FAILURES) {
            return Err(DownloadError::Unreachable(self.causes()));
        }
        self.restart_if_whole(progress)
    }

    /// The server has no ranges, and its one answer is broken off: from the beginning.
    fn restart_if_whole(&mut self, progress: &mut impl FnMut(Progress)) -> Result<(), DownloadError> {
        let Some(only) = self.schedule.only() else { return Ok(()) };
        if self.paths[only.index()].connection.is_some() || self.schedule.is_complete() {
            return Ok(());
        }
        let received = self.schedule.received().len_bytes();
        self.restarts += 1;
        // Each path may be lost once.
        let is_enough = self.restarts > self.options.retries.saturating_add(self.paths.len() as u32);
        match &self.output {
            Output::Stream(_) if received > 0 => {
                return Err(DownloadError::Broken { received_bytes: received });
            }
            Output::File(_) if is_enough => {
                return Err(DownloadError::Broken { received_bytes: received });
            }
            Output::Stream(_) => {}
            Output::File(file) => file.clear().map_err(|cause| unwritten(file, cause))?,
        }
        if received > 0 {
            progress(Progress::Notice(
                "the server can't go on where it was; from the beginning again".into(),
            ));
        }
        self.forget(Duration::ZERO);
        Ok(())
    }

    /// Begins with nothing, after a pause.
    fn forget(&mut self, pause: Duration) {
        let now = self.now();
        self.schedule.restart();
        (self.version, self.has_answer) = (None, false);
        self.digests.clone_from(&self.options.digests);
        self.verdicts = Verdicts::default();
        for path in &mut self.paths {
            path.is_other = false;
            self.schedule.handle_closed(now, path.id);
            path.renew(pause);
        }
    }

    async fn handle_head(
        &mut self,
        at: usize,
        id: RequestId,
        head: &Head,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Option<Ended>, DownloadError> {
        let Some(asked) = self.paths[at].asked.get(&id).copied() else { return Ok(None) };
        let url = self.shown_url();
        let wrong = |cause| DownloadError::Answer { url: url.clone(), cause: Box::new(cause) };
        match head.status {
            301 | 302 | 303 | 307 | 308 if !self.has_answer => {
                let url = self.redirection(head)?;
                return self.handle_verdict(at, Verdict::Elsewhere(url));
            }
            200 | 206 | 416 => {}
            status if self.has_answer => {
                self.give_up(at, format!("the server says {status}"), progress)?;
                return Ok(None);
            }
            status => {
                let is_temporary = matches!(status, 408 | 429 | 500 | 502 | 503 | 504);
                if !is_temporary || self.rounds >= self.options.retries {
                    return self.handle_verdict(at, Verdict::Refused(status));
                }
                self.rounds += 1;
                progress(Progress::Notice(format!("the server says {status}; it is asked again")));
                let pause = Duration::from_secs(1 << self.rounds.min(5));
                self.last_progress = time::Instant::now() + pause;
                self.forget(pause);
                return Ok(None);
            }
        }
        let answer = match Answer::read(head, Some(asked.range())) {
            Ok(answer) => answer,
            // A range of an empty file has nothing to begin with.
            Err(Unusable::NoSuchRange { total: Some(0), .. }) if !self.has_answer && asked.start == 0 => {
                self.schedule.set_total_bytes(0);
                return Ok(None);
            }
            Err(cause) => return self.handle_other(at, wrong(cause), progress),
        };
        // The one answer comes from elsewhere: this one, which was asked for before that was known, is not needed.
        if self.schedule.only().is_some_and(|only| only != self.paths[at].id) {
            let now = self.now();
            let path = &mut self.paths[at];
            self.schedule.handle_closed(now, path.id);
            path.renew(Duration::ZERO);
            return Ok(None);
        }
        let known = self.version.as_ref().map_or(Ok(()), |version| answer.check_version(version));
        let is_other = match (&answer.extent, &known) {
            (_, Err(cause)) => Some(cause.clone()),
            // It can't say that it is the same, or has no ranges any more.
            (Extent::Whole, Ok(())) if self.has_answer || asked.start > 0 => Some(Unusable::Status(200)),
            _ => None,
        };
        if let Some(cause) = is_other {
            return self.handle_other(at, wrong(cause), progress);
        }
        self.paths[at].is_other = false;
        self.note_digests(&answer.digests)?;
        let now = self.now();
        self.schedule.handle_head(now, self.paths[at].id, id);
        if self.has_answer {
            return Ok(None);
        }
        self.has_answer = true;
        self.output.expect(&self.digests);
        let total = answer.version.total();
        let is_whole = answer.extent == Extent::Whole;
        if is_whole || answer.version.validator().is_none() {
            // Pieces of a file that nobody can tell from another version of it come in one answer, or from one server after the other.
            self.schedule.set_only(self.paths[at].id, is_whole.then_some(id));
            if is_whole && let Some(asked) = self.paths[at].asked.get_mut(&id) {
                asked.end = None;
            }
        }
        match total {
            Some(total) => self.schedule.set_total_bytes(total),
            None if is_whole => {}
            None => return Err(wrong(Unusable::NoContentRange)),
        }
        if let Some(encoding) = answer.version.encoding() {
            progress(Progress::Notice(format!("the server sends it as {encoding}, and so it is stored")));
        }
        self.version = Some(answer.version);
        self.overrule(progress)?;
        let present_bytes = self.schedule.received().len_bytes();
        progress(Progress::Begun { present_bytes, total_bytes: total });
        self.is_saved = false;
        Ok(None)
    }

    /// A path's answer does not fit to the others'. If all paths have such ones, the file has changed; else that path has another server, or
    /// something on its way that answers for it.
    fn handle_other(
        &mut self,
        at: usize,
        error: DownloadError,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Option<Ended>, DownloadError> {
        if !self.has_answer {
            return self.changed(error, progress);
        }
        self.paths[at].is_other = true;
        let can_say_better =
            |path: &Path| !path.is_other && path.was_connected && path.failures < MOST_FAILURES;
        if self.paths.iter().any(can_say_better) {
            self.give_up(at, error.to_string(), progress)?;
            return Ok(None);
        }
        Err(error)
    }

    /// The answers are of another version than what is there. If nothing of this attempt is, it begins anew.
    fn changed(
        &mut self,
        error: DownloadError,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Option<Ended>, DownloadError> {
        let Output::File(file) = &self.output else { return Err(error) };
        let is_left = !self.has_answer && self.schedule.received().len_bytes() > 0;
        // What is there is of no use to the next attempt either.
        file.clear().map_err(|cause| unwritten(file, cause))?;
        self.is_saved = true;
        self.version = None;
        if !is_left {
            return Err(error);
        }
        progress(Progress::Notice(
            "the file on the server is not the one of which a part is there; from the beginning".into(),
        ));
        self.forget(Duration::ZERO);
        Ok(None)
    }

    fn redirection(&self, head: &Head) -> Result<Url, DownloadError> {
        let wrong = |problem: String| DownloadError::Redirect { url: self.shown_url(), problem };
        let location = head
            .fields
            .text("location")
            .ok_or_else(|| wrong("the server sends elsewhere, and doesn't say where".into()))?;
        let url = self
            .url
            .join(location)
            .map_err(|error| wrong(format!("the server sends to {location:?}: {error}")))?;
        match (self.url.scheme(), url.scheme()) {
            ("https", "http") => Err(wrong(format!("the server sends from https to {}", without_user(&url)))),
            (_, "http" | "https") if url.has_host() => Ok(url),
            _ => Err(wrong(format!("the server sends to {}; expected http or https", without_user(&url)))),
        }
    }

    fn note_digests(&mut self, told: &[Digest]) -> Result<(), DownloadError> {
        if !self.options.verifies {
            return Ok(());
        }
        for digest in told {
            match self.digests.iter().find(|known| known.algorithm == digest.algorithm) {
                Some(known) if known.value != digest.value => {
                    let (url, algorithm) = (self.shown_url(), digest.algorithm);
                    return Err(DownloadError::TwoDigests { url, algorithm });
                }
                Some(_) => {}
                None => self.digests.push(digest.clone()),
            }
        }
        Ok(())
    }

    async fn handle_data(
        &mut self,
        at: usize,
        id: RequestId,
        bytes: Bytes,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        let now = self.now();
        let count = bytes.len() as u64;
        let path = &mut self.paths[at];
        let Some(asked) = path.asked.get_mut(&id) else { return Ok(()) };
        // Without an answer that can be used, it is the text of a redirection or the like.
        if !self.has_answer {
            return Ok(());
        }
        asked.came_bytes += count;
        let asked = *asked;
        let came_end = asked.start + asked.came_bytes;
        if self.end_of(asked).is_some_and(|end| came_end > end) {
            return self.give_up(at, "the server sent more than it had said".into(), progress);
        }
        // What can't be written does not count as there: no later attempt would fetch it.
        self.output.write(came_end - count..came_end, bytes).await?;
        let path = &mut self.paths[at];
        let before = self.schedule.received().len_bytes();
        let Some(came) = self.schedule.handle_bytes(now, path.id, id, count) else { return Ok(()) };
        let new = self.schedule.received().len_bytes() - before;
        if came.rest == Rest::Superfluous {
            path.renew(Duration::ZERO);
        }
        path.bytes += new;
        self.is_saved = false;
        self.last_progress = time::Instant::now();
        self.history.note(now, came.range);
        progress(Progress::Bytes { path: at, bytes: new });
        if let Some(rate) = self.options.most_rate {
            let received = self.paths.iter().map(|path| path.bytes).sum::<u64>();
            let due = self.began + Duration::from_secs_f64(received as f64 / rate.max(1) as f64);
            self.paused_until = Some(due);
            // A pause is no silence.
            self.last_progress = due;
        }
        Ok(())
    }

    /// Writes down what is there.
    fn save(&mut self) -> Result<(), DownloadError> {
        if let (Output::File(file), Some(version), false) = (&self.output, &self.version, self.is_saved)
            && version.validator().is_some()
            && self.schedule.only().is_none()
        {
            file.save(without_user(&self.original).as_str(), version, self.schedule.received())
                .map_err(|cause| unwritten(file, cause))?;
            self.is_saved = true;
        }
        Ok(())
    }

    pub(super) async fn finish(self) -> Result<Done, DownloadError> {
        let total_bytes = self.schedule.total_bytes().unwrap_or(0);
        let path_bytes = self.paths.iter().map(|path| path.bytes).collect();
        drop(self.paths);
        self.output.finish(total_bytes, &self.digests).await?;
        Ok(Done { total_bytes, path_bytes, url: self.url, compared: self.digests, history: self.history })
    }
}
