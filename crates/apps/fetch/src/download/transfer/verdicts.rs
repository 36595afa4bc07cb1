//! What paths are told in place of the file, as far as it counts.

use tokio::time::{Instant, sleep_until};

use super::state::{Ended, Path, Transfer};
use crate::download::error::DownloadError;
use crate::download::options::Progress;
use crate::download::verdicts::Verdict;
use crate::shown::without_user;

impl Transfer<'_> {
    /// What paths were told counts, once the others had their time.
    pub(super) async fn wait_for_verdict(&self) -> Result<Ended, DownloadError> {
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
    pub(super) fn handle_verdict(
        &mut self,
        at: usize,
        verdict: Verdict,
    ) -> Result<Option<Ended>, DownloadError> {
        self.verdicts.note(Instant::now(), at, verdict);
        let can_say_better = |(at, path): (usize, &Path)| {
            !self.verdicts.has(at) && (path.connection.is_some() || path.attempts == 0)
        };
        if self.paths.iter().enumerate().any(can_say_better) { Ok(None) } else { self.verdict().map(Some) }
    }

    /// A path has the file: what others were told was not of its server.
    pub(super) fn overrule(&mut self, progress: &mut impl FnMut(Progress)) -> Result<(), DownloadError> {
        for (at, verdict) in self.verdicts.overrule() {
            let cause = match verdict {
                Verdict::Elsewhere(url) => format!("it is sent to {}", without_user(&url)),
                Verdict::Refused(status) => format!("the server says {status}"),
            };
            self.give_up(at, cause, progress)?;
        }
        Ok(())
    }
}
