//! Answers of servers: whether they are of the file that is under way, and what comes with them.

use std::time::Duration;

use bytes::Bytes;
use tokio::time;
use url::Url;

use super::paths::MOST_FAILURES;
use super::state::{Asked, Ended, Path, Transfer};
use super::verdicts::page;
use crate::answer::{Answer, Digest, Extent, Unusable, collect, is_temporary};
use crate::download::error::DownloadError;
use crate::download::options::Progress;
use crate::download::output::{Output, unwritten};
use crate::download::redirection;
use crate::download::verdicts::{Page, Verdict};
use crate::http1::Head;
use crate::schedule::{RequestId, Rest};

/// So long has a better path to bring the one answer.
const TIME_OF_BETTER: Duration = Duration::from_millis(500);
/// An answer of so many bytes is there sooner than one over another path.
const BROUGHT_AT_ONCE: u64 = 64 << 10;

impl Transfer<'_> {
    pub(super) async fn handle_head(
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
            _ if redirection::is_one(head) && !self.has_answer => {
                let verdict = match self.redirection(head) {
                    Ok(to) => {
                        self.paths[at].sent_by = Some(head.clone());
                        let is_at_home = to.host() == self.url.host();
                        Verdict::Elsewhere { to, is_at_home }
                    }
                    Err(_) if self.paths.len() > 1 => Verdict::Refused(head.status),
                    Err(error) => return Err(error),
                };
                return self.handle_verdict(at, verdict, progress).await;
            }
            200 | 206 | 416 => self.fields.note_cookies_if_sure(&self.url, head),
            status if self.has_answer => {
                self.give_up(at, format!("the server says {status}"), progress)?;
                return Ok(None);
            }
            status => {
                self.fields.note_cookies_if_sure(&self.url, head);
                if !is_temporary(status) || self.rounds >= self.options.retries {
                    return self.handle_verdict(at, Verdict::Refused(status), progress).await;
                }
                self.rounds += 1;
                progress(Progress::Notice(format!("the server says {status}; it is asked again")));
                let pause = Duration::from_secs(1 << self.rounds.min(5));
                self.last_progress = time::Instant::now() + pause;
                self.forget(pause);
                return Ok(None);
            }
        }
        let answer = match Answer::read_begun(head, Some(asked.range())) {
            Ok(answer) => answer,
            // A range of an empty file has nothing to begin with.
            Err(Unusable::NoSuchRange { total: Some(0), .. }) if !self.has_answer && asked.start == 0 => {
                return self.handle_verdict(at, Verdict::Empty, progress).await;
            }
            Err(cause) => return self.handle_other(at, cause, progress).await,
        };
        // The one answer comes from elsewhere: this one, which was asked for before that was known, is not needed.
        if self.schedule.only().is_some_and(|only| only != self.paths[at].id) {
            self.ask_again(at, Duration::ZERO);
            return Ok(None);
        }
        let known = self.check_version(&answer);
        let is_other = match (&answer.extent, &known) {
            (_, Err(cause)) => Some(cause.clone()),
            // It can't say that it is the same, or has no ranges any more.
            (Extent::Whole, Ok(())) if self.has_answer || asked.start > 0 => Some(Unusable::Status(200)),
            _ => None,
        };
        let is_page = || page(head, &self.original) == Page::Unexpected;
        if is_other.is_some() && !self.has_answer && answer.extent == Extent::Whole && is_page() {
            let verdict = Verdict::Whole { page: Page::Unexpected, total_bytes: answer.version.total() };
            return self.handle_verdict(at, verdict, progress).await;
        }
        if let Some(cause) = is_other {
            return self.handle_other(at, cause, progress).await;
        }
        self.paths[at].is_other = false;
        let total = answer.version.total();
        if let Some((expected, found)) = self.options.size_bytes.zip(total).filter(|(one, two)| one != two) {
            let cause = Unusable::OtherSize { expected, found };
            return self.handle_other(at, cause, progress).await;
        }
        let is_whole = answer.extent == Extent::Whole;
        if is_whole && !self.has_answer && self.schedule.only().is_none() {
            self.hold(at, id, head);
            let verdict = Verdict::Whole { page: page(head, &self.original), total_bytes: total };
            return self.handle_verdict(at, verdict, progress).await;
        }
        // Pieces of a file that nobody can tell from another version of it come in one answer, or from one server after the other.
        let why_one_path = match answer.version.validator() {
            _ if is_whole => Some("the server gives no ranges"),
            None => Some("the server does not tell versions of the file apart"),
            Some(_) => None,
        };
        let is_first = !self.has_answer && self.schedule.only().is_none();
        if why_one_path.is_some() && is_first && self.stands_back(at, total) {
            return Ok(None);
        }
        let is_part = asked.end.zip(total).is_some_and(|(end, total)| end < total);
        if why_one_path.is_some() && !is_whole && !self.has_answer && is_part && !self.is_single {
            // Two answers could be of two versions.
            self.is_single = true;
            self.overrule(progress)?;
            self.ask_again(at, Duration::ZERO);
            self.schedule.set_only(self.paths[at].id, None);
            return Ok(None);
        }
        if self.is_shorter(at, id, &answer) && answer.version.validator().is_none() {
            // The rest could be of another version.
            let asked = asked.range();
            let Extent::Part { first, last } = answer.extent else { return Ok(None) };
            let cause = Unusable::OtherRange { asked, first, last };
            // Nobody else is asked.
            if self.is_single {
                return Err(wrong(cause));
            }
            return self.handle_other(at, cause, progress).await;
        }
        if !self.take_shorter(at, id, &answer) {
            self.give_up(at, "the server sends next to nothing of what is asked for".into(), progress)?;
            return Ok(None);
        }
        self.note_digests(&answer.digests)?;
        self.fields.note_cookies(&self.url, head);
        let now = self.now();
        self.schedule.handle_head(now, self.paths[at].id, id);
        if self.has_answer {
            return Ok(None);
        }
        self.has_answer = true;
        self.output.expect(&self.digests);
        if let Some(cause) = why_one_path {
            progress(Progress::OnePath { path: self.paths[at].way, cause });
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
        self.is_mixed |= self.version.is_some() && self.version_of != self.sources.lead();
        (self.version, self.version_of) = (Some(answer.version), self.sources.lead());
        self.other = None;
        self.overrule(progress)?;
        self.is_saved = false;
        if total.is_none_or(|total| total > BROUGHT_AT_ONCE) {
            self.save()?;
        }
        let present_bytes = self.schedule.received().len_bytes();
        progress(Progress::Begun { present_bytes, total_bytes: total });
        Ok(None)
    }

    /// All would come over this path. If a better one may have the answer too, it has a little time for that; a path leaves it only once, and
    /// not what it has brought already.
    fn stands_back(&mut self, at: usize, total: Option<u64>) -> bool {
        let may_answer = |(better, path): (usize, &Path)| {
            !self.verdicts.has(better) && (path.connection.is_some() || path.attempts == 0)
        };
        let is_left = !self.paths[at].has_stood_back
            && total.is_none_or(|total| total > BROUGHT_AT_ONCE)
            && self.paths[..at].iter().enumerate().any(may_answer);
        if is_left {
            self.paths[at].has_stood_back = true;
            self.ask_again(at, TIME_OF_BETTER);
        }
        is_left
    }

    /// Over another connection, after a pause.
    pub(super) fn ask_again(&mut self, at: usize, pause: Duration) {
        let now = self.now();
        let path = &mut self.paths[at];
        self.schedule.handle_closed(now, path.id);
        path.renew(pause);
    }

    /// A path's answer does not fit to the others'. If all paths have such ones, the file has changed; else that path has another server, or
    /// something on its way that answers for it.
    async fn handle_other(
        &mut self,
        at: usize,
        cause: Unusable,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Option<Ended>, DownloadError> {
        if !self.has_answer {
            self.other.get_or_insert(cause);
            return self.handle_verdict(at, Verdict::Other, progress).await;
        }
        let error = DownloadError::Answer { url: self.shown_url(), cause: Box::new(cause) };
        self.paths[at].is_other = true;
        let can_say_better = |path: &Path| {
            !path.is_other && path.was_connected && path.failures < MOST_FAILURES && !path.is_out
        };
        if self.paths.iter().any(can_say_better) {
            self.give_up(at, error.to_string(), progress)?;
            return Ok(None);
        }
        Err(error)
    }

    /// The answers are of another version than what is there. If nothing of this attempt is, it begins anew.
    pub(super) fn changed(
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
        redirection::to(head, &self.url).map_err(wrong)
    }

    fn note_digests(&mut self, told: &[Digest]) -> Result<(), DownloadError> {
        if !self.options.verifies {
            return Ok(());
        }
        let mut noted = collect(&mut self.digests, told);
        if self.sources.is_first_lead() && self.original.scheme() == "https" && self.is_sure() {
            noted = noted.and_then(|()| collect(&mut self.told_by_first, told));
        }
        noted.map_err(|algorithm| DownloadError::TwoDigests { url: self.shown_url(), algorithm })
    }

    pub(super) async fn handle_data(
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
        path.came_bytes += count;
        let came_end = asked.start + asked.came_bytes;
        if self.end_of(asked).is_some_and(|end| came_end > end) {
            return self.give_up(at, "the server sent more than it had said".into(), progress);
        }
        // What can't be written does not count as there: no later attempt would fetch it.
        self.output.write(came_end - count..came_end, bytes).await?;
        self.is_mixed |= self.is_helper(at);
        let path = &mut self.paths[at];
        let before = self.schedule.received().len_bytes();
        let Some(came) = self.schedule.handle_bytes(now, path.id, id, count) else { return Ok(()) };
        let new = self.schedule.received().len_bytes() - before;
        if came.rest == Rest::Superfluous {
            path.renew(Duration::ZERO);
        }
        let (way, source) = (path.way, path.source);
        self.way_bytes[way] += new;
        self.speeds.note(source, new);
        self.is_saved = false;
        self.last_progress = time::Instant::now();
        let range = came.range.clone();
        self.history.note(now, came.range);
        progress(Progress::Bytes { path: way, bytes: new });
        self.check_pieces(&range, source, progress)?;
        if let Some(rate) = self.options.most_rate {
            let received = self.way_bytes.iter().sum::<u64>();
            let due = self.began + Duration::from_secs_f64(received as f64 / rate.max(1) as f64);
            self.paused_until = Some(due);
            // A pause is no silence.
            self.last_progress = due;
        }
        Ok(())
    }

    /// Where an answer ends, if that is known: at the end of the file even if more was asked for.
    pub(super) fn end_of(&self, asked: Asked) -> Option<u64> {
        [asked.end, self.schedule.total_bytes()].into_iter().flatten().min()
    }
}
