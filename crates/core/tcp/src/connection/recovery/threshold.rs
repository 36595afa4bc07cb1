//! How many segments may overtake another before that one counts as lost, where losses are counted: the `reordering` of Linux
//! 2.6.32.

use crate::loss_recovery::DuplicateThreshold;

/// Duplicate acknowledgments that mean loss where nothing better is known (RFC 5681 §3.2).
pub(in crate::connection) const DUPLICATE_THRESHOLD: u32 = 3;

/// The threshold, and what it is counted by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threshold {
    least: u8,
    segments: u8,
    is_forward: bool,
}

impl Threshold {
    pub(super) fn new(setting: DuplicateThreshold) -> Self {
        let least = setting.least.clamp(1, DuplicateThreshold::MOST);
        Self { least, segments: least, is_forward: setting.forward }
    }

    /// A segment arrived after so many had overtaken it, counted from it to the last that did.
    pub(super) fn handle_reordered(&mut self, segments: u64) {
        if segments > u64::from(self.segments) {
            self.segments = segments.min(DuplicateThreshold::MOST.into()) as u8;
            // What is missing was not lost: not all of it is.
            self.is_forward = false;
        }
    }

    /// A timeout: so much patience did not help.
    pub(super) fn handle_timeout(&mut self) {
        self.segments = self.least;
    }

    /// So many segments that overtook mean loss.
    #[inline]
    pub(super) const fn segments(&self) -> u32 {
        self.segments as u32
    }

    /// The least that it ever is.
    pub(super) const fn least(&self) -> u32 {
        self.least as u32
    }

    /// What lies between segments that arrived counts as well.
    pub(super) const fn is_forward(&self) -> bool {
        self.is_forward
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(least: u8, forward: bool) -> Threshold {
        Threshold::new(DuplicateThreshold { least, forward })
    }

    #[test]
    fn it_grows_with_what_overtakes_and_a_timeout_takes_it_back() {
        let mut threshold = threshold(5, true);
        for (segments, expected, is_forward) in
            [(5, 5, true), (4, 5, true), (9, 9, false), (7, 9, false), (4000, 127, false)]
        {
            threshold.handle_reordered(segments);
            assert_eq!((threshold.segments(), threshold.is_forward()), (expected, is_forward));
        }
        threshold.handle_timeout();
        assert_eq!((threshold.segments(), threshold.is_forward()), (5, false));
    }

    #[test]
    fn it_is_never_none_and_never_more_than_the_most() {
        assert_eq!((threshold(0, false).segments(), threshold(255, false).segments()), (1, 127));
    }
}
