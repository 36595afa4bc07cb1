//! Whose turn it is, where a file has several places and pieces of them can't be mixed: the next one's, when one is lost for good.

use std::time::Duration;

use tokio::time::Instant;

use super::state::Transfer;
use crate::answer::{Answer, Extent, Unusable};
use crate::download::error::DownloadError;
use crate::download::options::Progress;
use crate::download::output::{Output, unwritten};

/// So long may a server take for its first answer, where the file may be had elsewhere.
const TIME_TO_ANSWER: Duration = Duration::from_secs(5);
/// So long may nothing come of one that has answered. What came of it may be of no use with another.
const TIME_OF_SILENCE: Duration = Duration::from_secs(15);

impl Transfer<'_> {
    /// When another place has its turn, if nothing comes until then.
    pub(super) fn turn_ends(&self) -> Option<Instant> {
        if !self.sources.has_others() || self.verdicts.are_any() {
            return None;
        }
        let (since, time) = match self.has_answer {
            true => (self.last_progress, TIME_OF_SILENCE),
            false => (self.last_progress.max(self.turned_at), TIME_TO_ANSWER),
        };
        let time = self.options.silence.map_or(time, |silence| time.min(silence / 2));
        Some(since.max(self.turned_at) + time)
    }

    /// Goes on with another place of the file, if there is one and the failure is one of a place.
    ///
    /// # Errors
    /// The failure, if there is none; with those of the others.
    pub(in crate::download) fn elsewhere(
        mut self,
        error: DownloadError,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Self, DownloadError> {
        match self.turn_elsewhere(error, progress) {
            Ok(()) => {
                if self.schedule.received().len_bytes() == 0 {
                    // What came was of no use.
                    self.take_history();
                }
                Ok(self)
            }
            Err(error) => {
                self.discard_empty();
                progress(Progress::Over(Box::new(self.take_history())));
                Err(error)
            }
        }
    }

    fn turn_elsewhere(
        &mut self,
        error: DownloadError,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        let is_silent = matches!(error, DownloadError::Stalled { .. });
        let is_of_place = match &error {
            DownloadError::Stalled { .. } => {
                self.options.silence.is_none_or(|silence| self.last_progress.elapsed() < silence)
            }
            DownloadError::Request(_)
            | DownloadError::Refused { .. }
            | DownloadError::Redirect { .. }
            | DownloadError::Answer { .. }
            | DownloadError::Differs { .. }
            | DownloadError::Page { .. }
            | DownloadError::TwoDigests { .. }
            | DownloadError::Digest { .. }
            | DownloadError::Piece { .. }
            | DownloadError::Unreachable(_)
            | DownloadError::Broken { .. } => !self.sources.is_one(),
            _ => false,
        };
        // What was taken already can't be taken back.
        let is_taken = matches!(self.output, Output::Stream(_))
            && self.schedule.received().len_bytes() > 0
            && (self.trusted().is_empty() || self.schedule.is_complete());
        if !is_of_place || is_taken {
            return Err(error);
        }
        // Where pieces were mixed, nobody knows whose were wrong.
        let is_wrong = matches!(error, DownloadError::Digest { .. } | DownloadError::Piece { .. });
        let is_mixed = self.is_mixed && is_wrong && !self.sources.is_lead_left_out();
        if is_mixed {
            self.sources.take_one_by_one();
            self.keep_right_pieces();
        }
        let name = self.sources.name(self.sources.lead());
        let is_news = !self.sources.was_given_up(self.sources.lead());
        let text = error.to_string();
        let text = text.strip_prefix(&format!("{}: ", self.shown_url())).unwrap_or(&text).to_owned();
        let is_over = self.has_answer && self.sources.note_turn(self.schedule.received().len_bytes());
        let is_for_good = !is_silent && !is_mixed || is_over;
        let mut next = self.sources.give_up_lead(format!("{name}: {text}"), is_for_good);
        while let Some(number) = next.filter(|number| !self.may_lead(*number)) {
            let cause = "it is not by https, and no digest says what the file is";
            next = self.sources.give_up_lead(format!("{}: {cause}", self.sources.name(number)), true);
        }
        let Some(next) = next else { return Err(DownloadError::Nowhere(self.sources.causes())) };
        let to = self.sources.name(next);
        if is_mixed {
            let problem = format!("what came from several places is not the file: {text}");
            progress(Progress::Notice(format!("{problem}; it is fetched from {to} alone")));
        } else if is_news {
            progress(Progress::Notice(format!("{name}: {text}; it is fetched from {to}")));
        }
        self.turn_to(next)
    }

    /// Whoever asked by https is given nothing that somebody on the way made up.
    fn may_lead(&self, source: usize) -> bool {
        let is_sure = |url: &url::Url| url.scheme() == "https";
        !is_sure(&self.original) || is_sure(self.sources.url(source)) || !self.trusted().is_empty()
    }

    fn turn_to(&mut self, source: usize) -> Result<(), DownloadError> {
        self.redirect(self.sources.url(source).clone());
        let received = self.schedule.received().len_bytes();
        (self.has_answer, self.is_doubtful, self.restarts) = (false, false, 0);
        self.digests = self.trusted();
        if received == 0 {
            (self.version, self.is_mixed) = (None, false);
            if let Output::File(file) = &self.output {
                file.clear().map_err(|cause| unwritten(file, cause))?;
            }
        }
        Ok(())
    }

    /// Whether an answer is of the version of which a part is there. What one server says of versions tells nothing of another's.
    pub(super) fn check_version(&self, answer: &Answer) -> Result<(), Unusable> {
        let Some(version) = &self.version else { return Ok(()) };
        if self.version_of == self.sources.lead() {
            return answer.check_version(version);
        }
        let is_same = answer.extent != Extent::Whole
            && !self.trusted().is_empty()
            && version.total().is_some()
            && version.total() == answer.version.total()
            && version.encoding().is_none()
            && answer.version.encoding().is_none();
        if is_same { Ok(()) } else { Err(Unusable::OtherServer) }
    }
}
