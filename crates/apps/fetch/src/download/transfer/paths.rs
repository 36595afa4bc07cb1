//! The paths of a file under way: what they are asked, and what becomes of one that is of no use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use polypath_units::Instant;
use tokio::sync::mpsc;
use url::Url;

use super::brought::Brought;
use super::state::{Asked, Path, Transfer};
use crate::download::error::DownloadError;
use crate::download::options::Progress;
use crate::download::output::{Output, unwritten};
use crate::download::path::{Command, keep};
use crate::download::verdicts::Verdicts;
use crate::download::way::Dial;
use crate::playback::History;
use crate::schedule::{Ranges, Request};

/// A path whose answers can't be used so often in a row is left out.
pub(super) const MOST_FAILURES: u32 = 5;
/// The same where other places have the file.
const MOST_FAILURES_OF_HELPER: u32 = 2;

impl Transfer<'_> {
    /// A way more over which the file may come, from all that are asked.
    pub(super) fn add_way(&mut self, way: Arc<dyn Dial>) -> Result<(), DownloadError> {
        self.ways.push(way);
        self.way_bytes.resize(self.ways.len(), 0);
        let number = self.ways.len() - 1;
        self.add_path(number, self.sources.lead(), self.url.clone(), 0)?;
        let helping: Vec<usize> = self.sources.helping().collect();
        for source in helping {
            self.add_path(number, source, self.sources.url(source).clone(), 0)?;
        }
        Ok(())
    }

    /// A path over the way of a number, to the server of a URL.
    pub(super) fn add_path(
        &mut self,
        number: usize,
        source: usize,
        url: Url,
        redirects: usize,
    ) -> Result<(), DownloadError> {
        let now = self.now();
        let way = self.ways[number].clone();
        let asking = self.fields.asking(&url);
        // What can't be asked is not asked later either.
        asking.request(&*way, None, None)?;
        let id = self.schedule.add_path(now);
        self.schedule.handle_closed(now, id);
        let (commands, receiver) = mpsc::unbounded_channel();
        let name = match url.host_str().filter(|_| !self.sources.is_one()) {
            Some(host) => format!("{}, {host}", way.name()),
            None => way.name().to_string(),
        };
        let task = tokio::spawn(keep(id.index(), way, asking, receiver, self.events.clone()));
        self.paths.push(Path {
            id,
            way: number,
            source,
            url,
            redirects,
            is_out: false,
            name,
            commands,
            task,
            connection: None,
            asked: HashMap::new(),
            failures: 0,
            attempts: 0,
            failed_in_row: 0,
            was_connected: false,
            cause: None,
            came_bytes: 0,
            cut_off: 0,
            small_answers: 0,
            is_other: false,
            has_stood_back: false,
            held: None,
            sent_by: None,
        });
        Ok(())
    }

    /// Asks what is to be asked now.
    pub(super) fn ask(&mut self) {
        self.schedule.set_horizon(self.output.horizon());
        let now = self.now();
        for path in &mut self.paths {
            let Some(connection) = path.connection.filter(|_| !path.is_out) else { continue };
            while let Some(Request { id, start, end }) = self.schedule.poll_request(now, path.id) {
                let asked = Asked { start, end, came_bytes: 0 };
                path.asked.insert(id, asked);
                let range = Some(asked.range().to_field());
                // A path that is gone says so.
                let _ = path.commands.send(Command::Ask { connection, id, url: None, range });
            }
        }
    }

    pub(super) fn check_reachable(&self) -> Result<(), DownloadError> {
        let is_lost =
            self.paths.iter().all(|path| !path.was_connected && path.attempts > self.options.retries);
        if is_lost { Err(DownloadError::Unreachable(self.causes())) } else { Ok(()) }
    }

    pub(super) fn causes(&self) -> Vec<String> {
        self.paths
            .iter()
            .filter(|path| path.connection.is_none())
            .filter_map(|path| path.cause.clone())
            .collect()
    }

    /// A path's answers can't be used: it gets a new connection, a few times.
    pub(super) fn give_up(
        &mut self,
        at: usize,
        cause: String,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        let now = self.now();
        let most = if self.is_helper(at) { MOST_FAILURES_OF_HELPER } else { MOST_FAILURES };
        let has_helpers = self.sources.helping().next().is_some();
        let path = &mut self.paths[at];
        path.failures += 1;
        if path.failures >= most && has_helpers {
            return self.drop_path(at, cause, false, progress);
        }
        let cause = format!("{}: {cause}", path.name);
        path.cause = Some(cause.clone());
        self.schedule.handle_closed(now, path.id);
        if path.failures < most {
            path.renew(Duration::from_millis(250) * path.failures);
        } else {
            path.end();
        }
        self.tell_lost(at, cause, progress);
        self.check_any_left(progress)?;
        self.restart_if_whole(progress)
    }

    /// Whether anybody may still bring the file.
    pub(super) fn check_any_left(
        &mut self,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        self.engage(progress);
        if self.paths.iter().all(|path| path.is_out) {
            return Err(DownloadError::Unreachable(self.causes()));
        }
        Ok(())
    }

    /// A path is lost. Of a way with several, only the last one counts.
    pub(super) fn tell_lost(&self, at: usize, cause: String, progress: &mut impl FnMut(Progress)) {
        let way = self.paths[at].way;
        if !self.paths.iter().any(|path| path.way == way && path.connection.is_some()) {
            progress(Progress::Lost { path: way, cause });
        }
    }

    /// The server has no ranges, and its one answer is broken off: from the beginning.
    pub(super) fn restart_if_whole(
        &mut self,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        let Some(only) = self.schedule.only().filter(|_| self.has_answer) else { return Ok(()) };
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
    pub(super) fn forget(&mut self, pause: Duration) {
        let now = self.now();
        self.schedule.restart();
        self.history = History::new(Instant::ZERO);
        (self.version, self.has_answer) = (None, false);
        if self.sources.is_first_lead() {
            // What it said is of the version before.
            self.told_by_first.clear();
        }
        self.digests = self.trusted();
        (self.is_mixed, self.brought, self.right) = (false, Brought::default(), Ranges::new());
        self.verdicts = Verdicts::default();
        (self.other, self.is_single) = (None, false);
        for path in &mut self.paths {
            path.is_other = false;
            self.schedule.handle_closed(now, path.id);
            path.renew(pause);
        }
    }
}
