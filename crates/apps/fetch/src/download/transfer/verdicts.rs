//! What paths are told that have no range of the file, as far as it counts.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use url::Url;

use super::held::{Held, Parts};
use super::state::{Ended, Path, Transfer};
use crate::answer::{Unusable, is_page};
use crate::download::error::DownloadError;
use crate::download::options::Progress;
use crate::download::verdicts::{PATIENCE, Page, Verdict};
use crate::http1::Head;
use crate::schedule::RequestId;
use crate::shown::without_user;

/// Names of files that are pages, beside those without any ending.
const ENDINGS_OF_PAGES: [&str; 8] = ["html", "htm", "xhtml", "php", "asp", "aspx", "jsp", "cgi"];

/// Whether an answer is a page, and its URL that of one.
pub(super) fn page(head: &Head, url: &Url) -> Page {
    let name = url.path_segments().and_then(Iterator::last).unwrap_or_default();
    let is_of_page = |(_, ending): (&str, &str)| ENDINGS_OF_PAGES.contains(&&*ending.to_ascii_lowercase());
    // Whoever says nothing of it may be anybody.
    let is_page = is_page(head) || head.fields.only("content-type").is_none();
    match (is_page, name.rsplit_once('.').is_none_or(is_of_page)) {
        (false, _) => Page::No,
        (true, true) => Page::Expected,
        (true, false) => Page::Unexpected,
    }
}

impl Transfer<'_> {
    /// Until what paths were told counts, once the others had their time.
    pub(super) async fn wait_for_verdict(&self) {
        let mut others = self.paths.iter().enumerate().filter(|(at, _)| !self.verdicts.has(*at));
        match self.verdicts.due(self.is_sure(), others.any(|(_, path)| path.connection.is_some())) {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// What paths were told counts.
    pub(super) async fn conclude(
        &mut self,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Option<Ended>, DownloadError> {
        match self.verdicts.decide() {
            Some((at, Verdict::Elsewhere { to, .. })) => {
                self.is_doubtful |= !self.is_sure() && self.verdicts.are_apart();
                // Cookies of one that may be another network's would go to the server.
                if let Some(head) = self.paths[at].sent_by.take().filter(|_| !self.is_doubtful) {
                    self.fields.note_cookies(&self.url, &head);
                }
                Ok(Some(Ended::Redirected(to)))
            }
            // It may be what another network led to, or is not what a part is there of.
            Some((_, Verdict::Whole { page, .. }))
                if self.verdicts.are_two_files()
                    || page != Page::No && self.is_doubtful
                    || page == Page::Unexpected && self.schedule.received().len_bytes() > 0 =>
            {
                Err(DownloadError::Differs { url: self.shown_url() })
            }
            Some((_, Verdict::Whole { page: Page::Unexpected, .. })) if self.sources.has_others() => {
                Err(DownloadError::Page { url: self.shown_url() })
            }
            Some((_, Verdict::Empty)) => {
                self.verdicts.overrule();
                self.schedule.set_total_bytes(0);
                Ok(None)
            }
            Some((_, Verdict::Refused(status))) => {
                Err(DownloadError::Refused { url: self.shown_url(), status })
            }
            Some((_, Verdict::Other)) => {
                let cause = Box::new(self.other.take().unwrap_or(Unusable::Status(200)));
                let error = DownloadError::Answer { url: self.shown_url(), cause };
                self.verdicts.overrule();
                self.changed(error, progress)
            }
            Some((at, verdict @ Verdict::Whole { .. })) => {
                for (other, told) in self.verdicts.overrule() {
                    match told.rank() == verdict.rank() {
                        _ if other == at => {}
                        true => self.ask_again(other, Duration::ZERO),
                        false => self.give_up(other, in_words(&told), progress)?,
                    }
                }
                self.schedule.set_only(self.paths[at].id, None);
                self.accept_held(at, progress).await
            }
            None => Err(DownloadError::Unreachable(self.causes())),
        }
    }

    /// A path is told something in place of a range of the file. It counts at once if no other can say better.
    pub(super) async fn handle_verdict(
        &mut self,
        at: usize,
        verdict: Verdict,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Option<Ended>, DownloadError> {
        let is_refused = matches!(verdict, Verdict::Refused(_) | Verdict::Other);
        self.verdicts.note(Instant::now(), at, verdict);
        // What the server itself says is the same for all; a better path may bring it.
        let waits_for = if self.is_sure() && !is_refused { at } else { self.paths.len() };
        let may_answer = |(at, path): (usize, &Path)| {
            !self.verdicts.has(at) && (path.connection.is_some() || path.attempts == 0)
        };
        if self.paths[..waits_for].iter().enumerate().any(may_answer) {
            Ok(None)
        } else {
            self.conclude(progress).await
        }
    }

    /// Nobody can answer in the server's place.
    pub(super) fn is_sure(&self) -> bool {
        self.url.scheme() == "https" && !self.options.is_unverified
    }

    /// Keeps the beginning of a whole file until it is decided whether it counts.
    pub(super) fn hold(&mut self, at: usize, id: RequestId, head: &Head) {
        self.paths[at].held = Some(Held::new(id, head.clone()));
    }

    /// More of what is held; whether it was.
    pub(super) fn hold_bytes(&mut self, at: usize, id: RequestId, bytes: &Bytes) -> bool {
        let Some(held) = self.paths[at].held.as_mut().filter(|held| held.is_of(id)) else { return false };
        if !held.push(bytes.clone()) {
            self.ask_again(at, PATIENCE);
        }
        self.last_progress = Instant::now();
        true
    }

    /// What is held is all; whether it was held.
    pub(super) fn hold_end(&mut self, at: usize, id: RequestId) -> bool {
        self.paths[at].held.as_mut().filter(|held| held.is_of(id)).map(Held::end).is_some()
    }

    /// What was held counts, as if it came now. What was not is asked for again.
    async fn accept_held(
        &mut self,
        at: usize,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Option<Ended>, DownloadError> {
        let Some(held) = self.paths[at].held.take() else { return Ok(None) };
        let Parts { id, head, bytes, is_ended } = held.into_parts();
        if let Some(ended) = Box::pin(self.handle_head(at, id, &head, progress)).await? {
            return Ok(Some(ended));
        }
        for bytes in bytes {
            self.handle_data(at, id, bytes, progress).await?;
        }
        if is_ended {
            self.handle_end(at, id, progress)?;
        }
        Ok(None)
    }

    /// A path has the file: what the others were told was not of its server.
    pub(super) fn overrule(&mut self, progress: &mut impl FnMut(Progress)) -> Result<(), DownloadError> {
        for (at, verdict) in self.verdicts.overrule() {
            self.give_up(at, in_words(&verdict), progress)?;
        }
        Ok(())
    }
}

/// Why a path is given up where others have better.
fn in_words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Elsewhere { to, .. } => format!("it is sent to {}", without_user(to)),
        Verdict::Refused(status) => format!("the server says {status}"),
        Verdict::Empty => "an empty file comes in place of the file".into(),
        Verdict::Whole { page: Page::No, .. } => "its answer is not that of the others".into(),
        Verdict::Whole { .. } => "a page of the web comes in place of the file".into(),
        Verdict::Other => "its answer is of another file".into(),
    }
}
