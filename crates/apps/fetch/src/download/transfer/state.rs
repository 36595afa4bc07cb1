//! What is known of a file under way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use polypath_units::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time;
use url::Url;

use super::brought::Brought;
use super::held::Held;
use super::speeds::Speeds;
use crate::answer::{AskedRange, Digest, Unusable, Version, collect};
use crate::download::asking::RequestFields;
use crate::download::error::{DownloadError, Kept};
use crate::download::options::{Done, Options};
use crate::download::output::{Ordered, Output, Target, unwritten};
use crate::download::part_file::{Left, PartFile};
use crate::download::path::{Command, Told};
use crate::download::sources::Sources;
use crate::download::verdicts::Verdicts;
use crate::download::way::Dial;
use crate::http1::Head;
use crate::playback::History;
use crate::schedule::{PathId, Ranges, RequestId, Schedule, Sizing};
use crate::shown::without_user;

/// How [`Transfer::run`] ended.
pub(in crate::download) enum Ended {
    Complete,
    Redirected(Url),
}

/// One file under way.
pub(in crate::download) struct Transfer<'o> {
    pub(super) options: &'o Options,
    pub(super) fields: RequestFields,
    /// What was asked for at first: an earlier attempt is known by it.
    pub(super) original: Url,
    pub(super) url: Url,
    pub(super) sources: Sources,
    /// The ways over which it is fetched, in the order in which they came.
    pub(super) ways: Vec<Arc<dyn Dial>>,
    /// Where paths tell what happens.
    pub(super) events: mpsc::Sender<Told>,
    pub(super) output: Output,
    pub(super) sizing: Sizing,
    pub(super) schedule: Schedule,
    /// Of which the bytes are that are there.
    pub(super) version: Option<Version>,
    /// Whose version that is.
    pub(super) version_of: usize,
    /// The bytes that are there may be of several servers.
    pub(super) is_mixed: bool,
    pub(super) has_answer: bool,
    /// What the whole is compared with.
    pub(super) digests: Vec<Digest>,
    /// Digests that the first server told, if nobody can answer in its place.
    pub(super) told_by_first: Vec<Digest>,
    pub(super) paths: Vec<Path>,
    /// What came over each way.
    pub(super) way_bytes: Vec<u64>,
    pub(super) began: time::Instant,
    /// When the place that leads was turned to.
    pub(super) turned_at: time::Instant,
    /// Which place brought what, where digests of pieces are known.
    pub(super) brought: Brought,
    /// Pieces that are known to be right.
    pub(super) right: Ranges,
    /// What each place brought of late.
    pub(super) speeds: Speeds,
    pub(super) last_progress: time::Instant,
    pub(super) history: History,
    pub(super) is_saved: bool,
    /// Something was written down of it.
    pub(super) is_marked: bool,
    pub(super) rounds: u32,
    /// How often an answer without ranges was broken off.
    pub(super) restarts: u32,
    pub(super) verdicts: Verdicts,
    /// Why an answer is of another version than what is there, before one was of that.
    pub(super) other: Option<Unusable>,
    /// Paths were told different things, of which one was followed.
    pub(super) is_doubtful: bool,
    /// All comes in one answer, as nobody could tell two versions apart.
    pub(super) is_single: bool,
    /// Nothing more is taken until then, for a rate that is not to be passed.
    pub(super) paused_until: Option<time::Instant>,
}

/// A path of it.
pub(super) struct Path {
    pub(super) id: PathId,
    /// The number of its way.
    pub(super) way: usize,
    /// The number of its place of the file.
    pub(super) source: usize,
    /// What it is asked for.
    pub(super) url: Url,
    /// How often it was sent elsewhere.
    pub(super) redirects: usize,
    /// Nothing more is wanted of it.
    pub(super) is_out: bool,
    pub(super) name: String,
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) task: JoinHandle<()>,
    /// The number of its connection, if it has one.
    pub(super) connection: Option<u64>,
    pub(super) asked: HashMap<RequestId, Asked>,
    pub(super) failures: u32,
    pub(super) attempts: u32,
    /// Attempts that failed since there was a connection.
    pub(super) failed_in_row: u32,
    pub(super) was_connected: bool,
    pub(super) cause: Option<String>,
    /// Came on its connection.
    pub(super) came_bytes: u64,
    /// Connections in a row that were cut off before they brought much.
    pub(super) cut_off: u32,
    /// Answers in a row that were shorter than asked for, and small.
    pub(super) small_answers: u32,
    /// Its last answer was of another version than the others'.
    pub(super) is_other: bool,
    /// It had the one answer, which was left to a better path.
    pub(super) has_stood_back: bool,
    /// The whole file, while others may say better.
    pub(super) held: Option<Held>,
    /// What sends elsewhere, while others may say better.
    pub(super) sent_by: Option<Head>,
}

impl Path {
    /// Gives up the connection, if there is one, for another after a pause.
    pub(super) fn renew(&mut self, pause: Duration) {
        self.asked.clear();
        self.held = None;
        if let Some(connection) = self.connection.take() {
            // A path that is gone says so.
            let _ = self.commands.send(Command::Renew { connection, pause });
        }
    }

    /// Ends it for good.
    pub(super) fn end(&mut self) {
        self.asked.clear();
        (self.held, self.connection, self.is_out) = (None, None, true);
        self.task.abort();
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) start: u64,
    pub(super) end: Option<u64>,
    pub(super) came_bytes: u64,
}

impl Asked {
    pub(super) fn range(self) -> AskedRange {
        AskedRange { first: self.start, last: self.end.map(|end| end - 1) }
    }
}

impl<'o> Transfer<'o> {
    pub(in crate::download) fn new(
        url: Url,
        options: &'o Options,
        target: Target,
    ) -> Result<Self, DownloadError> {
        let mut sources = Sources::new(url.clone(), &options.mirrors);
        let (output, mut left, best) = match target {
            Target::File { place, resume } => {
                let opened = PartFile::open(&place, &sources.names(), resume);
                let (file, left) = opened.map_err(|cause| DownloadError::Write { place, cause })?;
                (Output::File(file), left, Sizing::for_files())
            }
            Target::Stream(to) => (Output::Stream(Ordered::new(to)), Left::default(), Sizing::in_order()),
        };
        let mut digests = options.digests.clone();
        // What is there is of something else.
        if collect(&mut digests, &left.digests).is_err() {
            if let Output::File(file) = &output {
                file.clear().map_err(|cause| unwritten(file, cause))?;
            }
            (left, digests) = (Left::default(), options.digests.clone());
        }
        sources.begin_with(left.of);
        // One byte at least comes anew, and says of which version it is.
        if let Some(total) = left.version.as_ref().and_then(Version::total)
            && left.ranges.len_bytes() == total
        {
            left.ranges.remove(total.saturating_sub(1)..total);
        }
        let sizing = options.sizing.clone().unwrap_or(best);
        let now = time::Instant::now();
        let home = options.home.as_ref().unwrap_or(&url);
        let history = History::resumed(Instant::ZERO, left.ranges.clone());
        Ok(Self {
            options,
            fields: RequestFields::new(home.clone(), options.fields.clone(), options.cookies.clone()),
            original: url.clone(),
            url: sources.url(left.of).clone(),
            sources,
            ways: Vec::new(),
            events: mpsc::channel(1).0,
            output,
            schedule: Schedule::new(sizing.clone(), left.ranges),
            sizing,
            version: left.version,
            version_of: left.of,
            is_mixed: !left.digests.is_empty(),
            has_answer: false,
            digests,
            told_by_first: left.digests,
            paths: Vec::new(),
            way_bytes: Vec::new(),
            began: now,
            turned_at: now,
            brought: Brought::default(),
            right: Ranges::new(),
            speeds: Speeds::default(),
            last_progress: now,
            history,
            is_saved: true,
            is_marked: false,
            rounds: 0,
            restarts: 0,
            verdicts: Verdicts::default(),
            other: None,
            is_doubtful: false,
            is_single: false,
            paused_until: None,
        })
    }

    /// Where it is asked for now, for messages.
    pub(in crate::download) fn shown_url(&self) -> Url {
        without_user(&self.url)
    }

    /// The same file from elsewhere.
    pub(in crate::download) fn redirected(mut self, url: Url) -> Self {
        self.redirect(url);
        self
    }

    pub(super) fn redirect(&mut self, url: Url) {
        self.schedule = Schedule::new(self.sizing.clone(), self.schedule.received().clone());
        self.paths.clear();
        self.verdicts = Verdicts::default();
        (self.other, self.is_single) = (None, false);
        self.turned_at = time::Instant::now();
        self.url = url;
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// An empty part is of no use to anybody.
    pub(in crate::download) fn discard_empty(&self) {
        if let Output::File(file) = &self.output
            && self.schedule.received().len_bytes() == 0
        {
            // What it failed for is said already.
            let _ = file.remove();
        }
    }

    /// What is there of the file, as far as somebody else may find it.
    pub(super) fn kept(&self) -> Option<Kept> {
        let Output::File(file) = &self.output else { return None };
        let bytes = self.schedule.received().len_bytes();
        let is_resumable = self.resumable_version().is_some();
        (bytes > 0).then(|| Kept { parts: file.parts().into(), bytes, is_resumable })
    }

    /// The version by which another attempt can go on.
    fn resumable_version(&self) -> Option<&Version> {
        let version = self.version.as_ref().filter(|version| version.validator().is_some())?;
        self.schedule.only().is_none().then_some(version)
    }

    /// Writes down what is there.
    pub(super) fn save(&mut self) -> Result<(), DownloadError> {
        let Output::File(file) = &self.output else { return Ok(()) };
        let nothing = Ranges::new();
        // What nobody can go on with is known to be ours by it.
        let (version, received) = match (self.resumable_version(), &self.version) {
            (Some(version), _) => (version, self.schedule.received()),
            (None, Some(version)) if !self.is_marked => (version, &nothing),
            _ => return Ok(()),
        };
        if !self.is_saved {
            // Another attempt has to compare what this one would have.
            let digests = if self.is_mixed { self.trusted() } else { Vec::new() };
            file.save(&self.sources.name(self.version_of), version, received, &digests)
                .map_err(|cause| unwritten(file, cause))?;
            (self.is_saved, self.is_marked) = (true, true);
        }
        Ok(())
    }

    /// When which bytes came.
    pub(in crate::download) const fn history(&self) -> &History {
        &self.history
    }

    /// The same. What comes later is not in it.
    pub(in crate::download) fn take_history(&mut self) -> History {
        std::mem::replace(&mut self.history, History::new(Instant::ZERO))
    }

    /// Compares what is all there with what is known of it.
    pub(in crate::download) async fn compare(&mut self) -> Result<(), DownloadError> {
        let total_bytes = self.schedule.total_bytes().unwrap_or(0);
        let compared = match self.compare_with_what_is_told(total_bytes).await {
            Ok(()) => self.output.compare(total_bytes, &self.digests).await,
            wrong => wrong,
        };
        let is_wrong = |error: &DownloadError| {
            matches!(
                error,
                DownloadError::Digest { .. } | DownloadError::Piece { .. } | DownloadError::Answer { .. }
            )
        };
        if compared.as_ref().is_err_and(is_wrong)
            && let Output::File(file) = &self.output
        {
            // Nobody goes on with it.
            file.clear().map_err(|cause| unwritten(file, cause))?;
            self.schedule.restart();
            (self.brought, self.right) = (Brought::default(), Ranges::new());
            (self.version, self.is_saved) = (None, true);
        }
        compared
    }

    /// What was compared gets its place.
    pub(in crate::download) fn finish(self) -> Result<Done, DownloadError> {
        let total_bytes = self.schedule.total_bytes().unwrap_or(0);
        let path_bytes = self.way_bytes;
        drop(self.paths);
        self.output.finish(total_bytes)?;
        Ok(Done { total_bytes, path_bytes, url: self.url, compared: self.digests, history: self.history })
    }
}
