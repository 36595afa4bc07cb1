//! Running totals of what left.

/// What left since the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentTotals {
    bytes: u64,
    segments: u64,
    resent_bytes: u64,
    resends: u64,
}

impl SentTotals {
    /// Payload left, in so many segments.
    #[inline]
    pub(super) fn count(&mut self, bytes: u64, segments: u64) {
        self.bytes += bytes;
        self.segments += segments;
    }

    /// Payload left again. It is counted as what left as well.
    pub(super) fn count_again(&mut self, bytes: u64) {
        self.resent_bytes += bytes;
        self.resends += 1;
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) const fn segments(&self) -> u64 {
        self.segments
    }

    pub(super) const fn resent_bytes(&self) -> u64 {
        self.resent_bytes
    }

    pub(super) const fn resends(&self) -> u64 {
        self.resends
    }
}
