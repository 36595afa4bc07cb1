//! Places of the file that help the one that leads. Their pieces are mixed with its own, so this is only where the whole is compared with
//! a digest that neither of them could have made up.

use super::state::Transfer;
use crate::answer::{Answer, Digest, Extent, Unusable, collect, is_temporary};
use crate::download::error::DownloadError;
use crate::download::options::Progress;
use crate::download::output::Output;
use crate::download::redirection::{self, MAX_REDIRECTS};
use crate::http1::Head;
use crate::schedule::RequestId;

/// With less to come, connections to more servers are not worth it.
const LEAST_BYTES: u64 = 1 << 20;
/// One that can't be reached so often in a row, where its interface leads elsewhere, is left out.
const MOST_ATTEMPTS: u32 = 3;

impl Transfer<'_> {
    /// Whether a path is to a place that helps.
    pub(super) fn is_helper(&self, at: usize) -> bool {
        self.paths[at].source != self.sources.lead()
    }

    /// Digests that no mirror, and nobody on the way, could have made up.
    pub(super) fn trusted(&self) -> Vec<Digest> {
        let mut trusted = self.options.digests.clone();
        // One that differs is an error where it is told.
        let _ = collect(&mut trusted, &self.told_by_first);
        trusted
    }

    /// Asks more places, where that is safe and of use.
    pub(super) fn engage(&mut self, progress: &mut impl FnMut(Progress)) {
        // What is taken in order can't be taken back when it proves to be wrong.
        let is_safe = self.has_answer
            && self.schedule.only().is_none()
            && matches!(self.output, Output::File(_))
            && self.version.as_ref().is_some_and(|version| version.encoding().is_none());
        let total = self.schedule.total_bytes().unwrap_or(0);
        let left = total.saturating_sub(self.schedule.received().len_bytes());
        if self.sources.is_one() || !is_safe || left < LEAST_BYTES || self.trusted().is_empty() {
            return;
        }
        while let Some(source) = self.sources.engage() {
            for way in 0..self.ways.len() {
                let url = self.sources.url(source).clone();
                if let Err(error) = self.add_path(way, source, url, 0) {
                    self.leave_out(source, error.to_string(), true, progress);
                    break;
                }
            }
        }
    }

    /// The head of an answer of a place that helps.
    pub(super) fn handle_head_of_helper(
        &mut self,
        at: usize,
        id: RequestId,
        head: &Head,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        let Some(asked) = self.paths[at].asked.get(&id).copied() else { return Ok(()) };
        if redirection::is_one(head) {
            return self.follow(at, head, progress);
        }
        if is_temporary(head.status) && self.options.retries > 0 {
            return self.give_up(at, format!("it says {}", head.status), progress);
        }
        let answer = match Answer::read_begun(head, Some(asked.range())) {
            Ok(answer) => answer,
            Err(Unusable::Status(status)) => {
                let is_for_good = !is_temporary(status);
                return self.drop_path(at, format!("it says {status}"), is_for_good, progress);
            }
            Err(cause) => return self.drop_path(at, cause.to_string(), true, progress),
        };
        if let Err(cause) = self.check_helper(at, &answer) {
            return self.drop_path(at, cause, true, progress);
        }
        if !self.take_shorter(at, id, &answer) {
            return self.drop_path(
                at,
                "it sends next to nothing of what is asked for".into(),
                true,
                progress,
            );
        }
        self.fields.note_cookies(&self.paths[at].url, head);
        self.sources.set_version(self.paths[at].source, answer.version);
        let now = self.now();
        self.schedule.handle_head(now, self.paths[at].id, id);
        Ok(())
    }

    /// Whether an answer may be of the same file, as far as one can tell before all is there.
    fn check_helper(&self, at: usize, answer: &Answer) -> Result<(), String> {
        if answer.extent == Extent::Whole {
            return Err("it gives no ranges".into());
        }
        if let Some(encoding) = answer.version.encoding() {
            return Err(format!("it sends the file as {encoding}"));
        }
        let (expected, found) = (self.schedule.total_bytes(), answer.version.total());
        if expected != found {
            let bytes = found.map_or("an unknown number of".into(), |found| found.to_string());
            return Err(format!("its file has {bytes} bytes, not {}", expected.unwrap_or(0)));
        }
        if let Some(version) = self.sources.version(self.paths[at].source) {
            answer.check_version(version).map_err(|error| error.to_string())?;
        }
        let differs = |algorithm: crate::answer::DigestAlgorithm| {
            format!("the {} that it tells is another", algorithm.name())
        };
        collect(&mut self.trusted(), &answer.digests).map_err(differs)
    }

    /// A path to a place that sends elsewhere: another takes its place.
    fn follow(
        &mut self,
        at: usize,
        head: &Head,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        let path = &self.paths[at];
        let (way, source, redirects) = (path.way, path.source, path.redirects + 1);
        let to = redirection::to(head, &path.url).and_then(|to| match redirects > MAX_REDIRECTS {
            true => Err(format!("more than {MAX_REDIRECTS} redirections")),
            false => self.add_path(way, source, to, redirects).map_err(|error| error.to_string()),
        });
        match to {
            Ok(()) => {
                self.fields.note_cookies_if_sure(&self.paths[at].url, head);
                self.end_path(at);
                Ok(())
            }
            Err(cause) => self.drop_path(at, cause, true, progress),
        }
    }

    fn end_path(&mut self, at: usize) {
        let now = self.now();
        let path = &mut self.paths[at];
        self.schedule.handle_closed(now, path.id);
        path.end();
    }

    /// Whether a path that can't connect is not waited for: to a place that helps, or that others help, while its interface is fine.
    pub(super) fn is_of_no_use(&self, at: usize) -> bool {
        let path = &self.paths[at];
        let is_fine = self
            .paths
            .iter()
            .any(|other| other.way == path.way && other.source != path.source && other.connection.is_some());
        is_fine && (path.failed_in_row >= MOST_ATTEMPTS || self.is_helper(at) && !path.was_connected)
    }

    /// Nothing more is wanted of a path. With its last one, a place is left out, for good or for now, and the next has its turn.
    pub(super) fn drop_path(
        &mut self,
        at: usize,
        cause: String,
        is_for_good: bool,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        self.end_path(at);
        let source = self.paths[at].source;
        let path = &mut self.paths[at];
        path.cause = Some(format!("{}: {cause}", path.name));
        if self.paths.iter().all(|path| path.source != source || path.is_out) {
            self.leave_out(source, cause.clone(), is_for_good, progress);
        }
        self.tell_lost(at, cause, progress);
        self.check_any_left(progress)
    }

    /// Asks a place for nothing more.
    pub(super) fn leave_out(
        &mut self,
        source: usize,
        cause: String,
        is_for_good: bool,
        progress: &mut impl FnMut(Progress),
    ) {
        for at in 0..self.paths.len() {
            if self.paths[at].source == source && !self.paths[at].is_out {
                self.end_path(at);
            }
        }
        let name = self.sources.name(source);
        progress(Progress::Notice(format!("{name} is left out: {cause}")));
        self.sources.leave_out(source, format!("{name}: {cause}"), is_for_good);
    }

    /// Looks whether a place brings next to nothing while others bring much.
    pub(super) fn judge_speeds(&mut self, progress: &mut impl FnMut(Progress)) -> Result<(), DownloadError> {
        let has_connection = |source: &usize| {
            self.paths.iter().any(|path| path.source == *source && path.connection.is_some())
        };
        let asked: Vec<usize> = self.sources.helping().filter(has_connection).collect();
        for source in self.speeds.end_round(&asked) {
            self.leave_out(source, "it brings next to nothing".into(), false, progress);
        }
        self.check_any_left(progress)
    }
}
