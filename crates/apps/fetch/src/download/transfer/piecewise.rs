//! Pieces whose digests are known: a wrong one is fetched anew, from another place.

use std::io;
use std::ops::Range;

use super::state::Transfer;
use crate::answer::Unusable;
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
        let is_there = |number: &u64| {
            let range = pieces.range(*number, total);
            !range.is_empty() && self.schedule.received().contains(&range)
        };
        let there: Vec<u64> = pieces.touched(came).filter(is_there).collect();
        if there.is_empty() {
            return Ok(());
        }
        let file = file.try_clone().map_err(|cause| unwritten(file, cause))?;
        for number in there {
            let range = pieces.range(number, total);
            let is_right = pieces.is_right(number, &range, &file);
            let is_right = is_right.map_err(|cause| match &self.output {
                Output::File(file) => unwritten(file, cause),
                Output::Stream(_) => DownloadError::Output(cause),
            })?;
            if is_right {
                self.right.insert(range);
                continue;
            }
            self.right.remove(range.clone());
            self.is_saved = false;
            self.schedule.handle_missing(range.clone());
            self.history.take_back(range.clone());
            self.suspect(number, &range, progress)?;
        }
        Ok(())
    }

    /// Compares what is all there with its length and its pieces, where whoever told of the file told them: those too that an earlier
    /// attempt left, or that came before the length was known.
    pub(super) async fn compare_with_what_is_told(&self, total: u64) -> Result<(), DownloadError> {
        let options = self.options;
        if let Some(expected) = options.size_bytes.filter(|expected| *expected != total) {
            let cause = Box::new(Unusable::OtherSize { expected, found: total });
            return Err(DownloadError::Answer { url: self.shown_url(), cause });
        }
        let (Some(pieces), Output::File(parts)) = (&options.pieces, &self.output) else { return Ok(()) };
        let wrong = |number| DownloadError::Piece { url: self.shown_url(), number };
        if !pieces.fit(total) {
            return Err(wrong(pieces.count()));
        }
        let left: Vec<u64> = (0..pieces.count())
            .filter(|number| !self.right.contains(&pieces.range(*number, total)))
            .collect();
        let file = parts.try_clone().map_err(|cause| unwritten(parts, cause))?;
        let pieces = pieces.clone();
        let comparing = tokio::task::spawn_blocking(move || {
            for number in left {
                if !pieces.is_right(number, &pieces.range(number, total), &file)? {
                    return Ok(Some(number));
                }
            }
            io::Result::Ok(None)
        });
        let compared = comparing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        match compared.map_err(|cause| unwritten(parts, cause))? {
            Some(number) => Err(wrong(number)),
            None => Ok(()),
        }
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
