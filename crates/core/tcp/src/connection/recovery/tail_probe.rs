//! The tail loss probe that is out (RFC 8985 §7).

/// A position that nothing reaches.
const NOWHERE: u64 = u64::MAX;

/// What a probe covers, and what it was made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailProbe {
    /// End of what it covers; [`NOWHERE`] while none is out.
    end: u64,
    /// It is the last segment again, and no new data.
    is_resent: bool,
    /// It is to leave.
    is_due: bool,
}

impl Default for TailProbe {
    fn default() -> Self {
        Self { end: NOWHERE, is_resent: false, is_due: false }
    }
}

impl TailProbe {
    /// The timer passed: a probe is to leave, behind which nothing has left.
    pub(super) fn handle_timeout(&mut self, next: u64) {
        self.end = next;
        self.is_due = true;
    }

    /// True once if one is to leave.
    #[inline]
    pub(super) fn poll_due(&mut self) -> bool {
        core::mem::take(&mut self.is_due)
    }

    /// It left.
    pub(super) fn handle_sent(&mut self, next: u64, is_resent: bool) {
        self.is_resent = is_resent;
        self.end = next;
    }

    /// Something was acknowledged, or reported as a duplicate. `Some` if that tells what became of the probe: whether the probe
    /// repaired a loss (§7.4). An acknowledgment of just what was probed may be the original's; a DSACK would tell, or later
    /// data.
    pub(super) fn handle_ack(&mut self, una: u64, is_duplicate: bool) -> Option<bool> {
        let is_decided = una > self.end || una == self.end && !self.is_resent;
        if !is_decided && !is_duplicate {
            return None;
        }
        let repaired = self.is_resent && !is_duplicate;
        self.end = NOWHERE;
        self.is_resent = false;
        Some(repaired)
    }

    /// An episode of recovery begins: it finds out by itself.
    pub(super) fn forget(&mut self) {
        self.end = NOWHERE;
    }

    /// The connection is over.
    pub(super) fn cancel(&mut self) {
        self.is_due = false;
    }

    /// One is to leave.
    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// One is out, and nothing has told what became of it.
    #[inline]
    pub(super) const fn is_out(&self) -> bool {
        self.end != NOWHERE
    }

    /// It is the last segment again.
    #[inline]
    pub(super) const fn is_resent(&self) -> bool {
        self.is_resent
    }

    /// Nothing was acknowledged of what it covers.
    pub(super) fn is_waiting(&self, una: u64) -> bool {
        self.is_out() && una < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_again_is_decided_by_later_data_or_a_dsack() {
        for (una, is_duplicate, expected) in
            [(9, false, None), (10, false, None), (11, false, Some(true)), (10, true, Some(false))]
        {
            let mut probe = TailProbe::default();
            assert_eq!(probe.handle_ack(una, false), None, "none is out");
            probe.handle_timeout(10);
            assert!(probe.poll_due() && !probe.poll_due());
            probe.handle_sent(10, true);
            assert_eq!(probe.handle_ack(una, is_duplicate), expected);
            assert_eq!(probe.is_out(), expected.is_none());
        }
    }

    #[test]
    fn new_data_repairs_nothing() {
        let mut probe = TailProbe::default();
        probe.handle_sent(10, false);
        assert!(probe.is_waiting(9) && !probe.is_waiting(10));
        assert_eq!(probe.handle_ack(10, false), Some(false));
    }
}
