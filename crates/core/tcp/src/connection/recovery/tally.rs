//! How often something was to be repaired.

/// Counts since the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    timeouts: u64,
    recoveries: u64,
    spurious: u64,
    duplicates: u64,
}

impl Tally {
    pub(super) fn count_timeout(&mut self) {
        self.timeouts += 1;
    }

    pub(super) fn count_recovery(&mut self) {
        self.recoveries += 1;
    }

    pub(super) fn count_spurious(&mut self) {
        self.spurious += 1;
    }

    pub(super) fn count_duplicate(&mut self) {
        self.duplicates += 1;
    }

    pub(super) const fn timeouts(&self) -> u64 {
        self.timeouts
    }

    pub(super) const fn recoveries(&self) -> u64 {
        self.recoveries
    }

    pub(super) const fn spurious(&self) -> u64 {
        self.spurious
    }

    pub(super) const fn duplicates(&self) -> u64 {
        self.duplicates
    }
}
