//! How often something was to be repaired.

/// Counts since the beginning; they end where they can't be counted on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    timeouts: u32,
    recoveries: u32,
    spurious: u32,
    duplicates: u32,
}

impl Tally {
    pub(super) fn count_timeout(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
    }

    pub(super) fn count_recovery(&mut self) {
        self.recoveries = self.recoveries.saturating_add(1);
    }

    pub(super) fn count_spurious(&mut self) {
        self.spurious = self.spurious.saturating_add(1);
    }

    pub(super) fn count_duplicate(&mut self) {
        self.duplicates = self.duplicates.saturating_add(1);
    }

    pub(super) const fn timeouts(&self) -> u64 {
        self.timeouts as u64
    }

    pub(super) const fn recoveries(&self) -> u64 {
        self.recoveries as u64
    }

    pub(super) const fn spurious(&self) -> u64 {
        self.spurious as u64
    }

    pub(super) const fn duplicates(&self) -> u64 {
        self.duplicates as u64
    }
}
