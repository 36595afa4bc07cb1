//! Answers that end earlier than was asked for, rightly or not. A download goes on with them only as long as they bring it forward.

use super::paths::MOST_FAILURES;
use super::state::Transfer;
use crate::answer::{Answer, Extent};
use crate::download::error::DownloadError;
use crate::download::options::Progress;
use crate::schedule::RequestId;

/// A connection that is cut off in the middle of an answer is worth it if it brought so much.
const WORTH_A_CONNECTION: u64 = 1 << 20;
/// The same of a request whose answer ends earlier.
const WORTH_A_REQUEST: u64 = 16 << 10;
/// So many answers of less may come in a row.
const MOST_SMALL_ANSWERS: u32 = 50;

impl Transfer<'_> {
    /// What an answer does not bring of what was asked for, is asked for again. False if its server brings too little to go on with.
    pub(super) fn take_shorter(&mut self, at: usize, id: RequestId, answer: &Answer) -> bool {
        let Extent::Part { first, last } = answer.extent else { return true };
        let path = &mut self.paths[at];
        let Some(asked) = path.asked.get_mut(&id) else { return true };
        let end = last.saturating_add(1);
        let asked_end = [asked.end, answer.version.total()].into_iter().flatten().min();
        let Some(asked_end) = asked_end.filter(|asked| *asked > end) else {
            path.small_answers = 0;
            return true;
        };
        asked.end = Some(end);
        self.schedule.handle_shorter(path.id, id, end);
        // Whoever brings a good part of it comes to the end soon.
        let is_small = end - first < WORTH_A_REQUEST.min((asked_end - first) / 4);
        path.small_answers = if is_small { path.small_answers + 1 } else { 0 };
        path.small_answers <= MOST_SMALL_ANSWERS
    }

    /// Whether an answer ends earlier than it could, for what was asked.
    pub(super) fn is_shorter(&self, at: usize, id: RequestId, answer: &Answer) -> bool {
        let Extent::Part { last, .. } = answer.extent else { return false };
        let asked_end = self.paths[at].asked.get(&id).and_then(|asked| asked.end);
        [asked_end, answer.version.total()].into_iter().flatten().min().is_some_and(|end| last + 1 < end)
    }

    /// A server closed the connection in the middle of an answer; whether that is enough, as none of its last ones brought much.
    pub(super) fn note_cut_off(
        &mut self,
        at: usize,
        progress: &mut impl FnMut(Progress),
    ) -> Result<bool, DownloadError> {
        // Where it is the only answer, all comes anew, a few times.
        if !self.has_answer || self.schedule.only().is_some() {
            return Ok(false);
        }
        let path = &mut self.paths[at];
        path.cut_off = if path.came_bytes < WORTH_A_CONNECTION { path.cut_off + 1 } else { 0 };
        if path.cut_off < MOST_FAILURES {
            return Ok(false);
        }
        path.failures = path.failures.max(MOST_FAILURES - 1);
        self.give_up(at, "the server breaks off each answer, and little came".into(), progress)?;
        Ok(true)
    }
}
