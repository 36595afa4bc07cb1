//! The paths of a file under way: what they are asked, and what becomes of one that is of no use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::state::{Asked, Path, Transfer};
use crate::download::asking::RequestFields;
use crate::download::error::DownloadError;
use crate::download::options::Progress;
use crate::download::output::{Output, unwritten};
use crate::download::path::{Command, Told, keep};
use crate::download::verdicts::Verdicts;
use crate::download::way::Dial;
use crate::schedule::Request;

/// A path whose answers can't be used so often in a row is left out.
pub(super) const MOST_FAILURES: u32 = 5;

impl Transfer<'_> {
    pub(super) fn add_path(
        &mut self,
        way: Arc<dyn Dial>,
        events: mpsc::Sender<Told>,
    ) -> Result<(), DownloadError> {
        let now = self.now();
        let id = self.schedule.add_path(now);
        self.schedule.handle_closed(now, id);
        let asking = RequestFields::new(self.original.clone(), self.options.fields.clone()).asking(&self.url);
        // What can't be asked is not asked later either.
        asking.request(&*way, None, None)?;
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
            has_stood_back: false,
            held: None,
        });
        Ok(())
    }

    /// Asks what is to be asked now.
    pub(super) fn ask(&mut self) {
        self.schedule.set_horizon(self.output.horizon());
        let now = self.now();
        for path in &mut self.paths {
            let Some(connection) = path.connection else { continue };
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
        (self.version, self.has_answer) = (None, false);
        self.digests.clone_from(&self.options.digests);
        self.verdicts = Verdicts::default();
        (self.other, self.is_single) = (None, false);
        for path in &mut self.paths {
            path.is_other = false;
            self.schedule.handle_closed(now, path.id);
            path.renew(pause);
        }
    }
}
