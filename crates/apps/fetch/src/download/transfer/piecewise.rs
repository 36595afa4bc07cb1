//! Pieces whose digests are known: a wrong one is fetched anew, from another place.

use std::ops::Range;

use super::state::Transfer;
use crate::download::error::DownloadError;
use crate::download::options::Progress;
use crate::download::output::{Output, unwritten};

impl Transfer<'_> {
    /// Compares the pieces that are whole with these bytes.
    pub(super) fn check_pieces(
        &mut self,
        came: &Range<u64>,
        source: usize,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        let options = self.options;
        let (Some(pieces), Output::File(file)) = (&options.pieces, &self.output) else { return Ok(()) };
        let Some(total) = self.schedule.total_bytes().filter(|total| pieces.fit(*total)) else {
            return Ok(());
        };
        self.brought.note(source, came);
        let file = file.try_clone().map_err(|cause| unwritten(file, cause))?;
        for number in pieces.touched(came) {
            let range = pieces.range(number, total);
            if range.is_empty() || !self.schedule.received().contains(&range) {
                continue;
            }
            let is_right = pieces.is_right(number, &range, &file);
            let is_right = is_right.map_err(|cause| match &self.output {
                Output::File(file) => unwritten(file, cause),
                Output::Stream(_) => DownloadError::Output(cause),
            })?;
            if is_right {
                self.right.insert(range);
                continue;
            }
            self.is_saved = false;
            self.schedule.handle_missing(range.clone());
            self.history.take_back(range.clone());
            self.suspect(number, &range, progress)?;
        }
        Ok(())
    }

    /// A piece is wrong: whoever brought all of it brings nothing more. If several did, each is to show alone whether it can.
    fn suspect(
        &mut self,
        number: u64,
        range: &Range<u64>,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), DownloadError> {
        let counts = self.brought.of_range(range);
        // Some of it is of an earlier attempt.
        if counts.iter().map(|(_, bytes)| bytes).sum::<u64>() < range.end - range.start {
            return Ok(());
        }
        let wrong = DownloadError::Piece { url: self.shown_url(), number };
        match counts[..] {
            [(source, _)] if !self.sources.is_one() => {
                self.leave_out(source, format!("piece {number} is wrong"), true, progress);
                // Those that are left may be asked at once again.
                self.sources.take_together();
                self.engage(progress);
                if self.paths.iter().all(|path| path.is_out) { Err(wrong) } else { Ok(()) }
            }
            _ => Err(wrong),
        }
    }

    /// What is of pieces that are not known to be right counts for nothing more.
    pub(super) fn keep_right_pieces(&mut self) {
        for range in self.brought.all().iter() {
            self.history.take_back(range.clone());
            self.schedule.handle_missing(range);
        }
        let right: Vec<Range<u64>> = self.right.iter().collect();
        right.into_iter().for_each(|range| self.schedule.handle_present(range));
        self.is_saved = false;
    }
}
