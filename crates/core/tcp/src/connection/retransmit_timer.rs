//! One timer for retransmission timeout (RFC 6298), tail loss probe and RACK's reordering window (RFC 8985), as they exclude
//! each other.

use polypath_units::{Duration, Instant};

/// The retransmission timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetransmitTimer {
    /// When it is due; [`Instant::FAR_FUTURE`] is off.
    due: Instant,
    /// A path that may be dead is probed at least so often; without end, that is left to the backed-off timeout.
    probe_interval: Duration,
    /// When the timeout is due that probes came before.
    backed_off_until: Instant,
    kind: RetransmitKind,
}

/// What the timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetransmitKind {
    Timeout,
    /// RFC 8985 §7.
    TailProbe,
    /// RFC 8985 §6.2: look again whether what is late is lost.
    Reordering,
}

/// What to do when it has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetransmitStep {
    /// The timeout itself is later: the path is probed meanwhile.
    ProbePath,
    TimeOut,
    ProbeTail,
    LookForLosses,
}

/// No probes of the path.
const NEVER: Duration = Duration::MAX;

impl RetransmitTimer {
    pub(super) const OFF: Self = Self {
        due: Instant::FAR_FUTURE,
        probe_interval: NEVER,
        backed_off_until: Instant::ZERO,
        kind: RetransmitKind::Timeout,
    };

    /// Starts it.
    #[inline]
    pub(super) fn start(&mut self, due: Instant, kind: RetransmitKind) {
        self.due = due;
        self.kind = kind;
    }

    /// Stops it.
    #[inline]
    pub(super) fn stop(&mut self) {
        self.due = Instant::FAR_FUTURE;
    }

    /// What it asks for, if it has passed.
    #[inline]
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<RetransmitStep> {
        if self.due > now {
            return None;
        }
        self.stop();
        Some(match self.kind {
            RetransmitKind::Timeout if now < self.backed_off_until => RetransmitStep::ProbePath,
            RetransmitKind::Timeout => RetransmitStep::TimeOut,
            RetransmitKind::TailProbe => RetransmitStep::ProbeTail,
            RetransmitKind::Reordering => RetransmitStep::LookForLosses,
        })
    }

    /// When it is due.
    #[inline]
    pub(super) const fn poll_timeout(&self) -> Instant {
        self.due
    }

    /// It runs.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.due != Instant::FAR_FUTURE
    }

    /// What it is for, or was last.
    #[inline]
    pub(super) const fn kind(&self) -> RetransmitKind {
        self.kind
    }

    // ---- probes of a path that may be dead

    /// Probes come at least so often before a timeout that has backed off.
    pub(super) fn set_probe_interval(&mut self, interval: Option<Duration>) {
        self.probe_interval = interval.unwrap_or(NEVER);
    }

    /// Something new was acknowledged: nothing is probed.
    pub(super) fn forget_probes(&mut self) {
        self.probe_interval = NEVER;
        self.backed_off_until = Instant::ZERO;
    }

    /// Starts the timeout.
    pub(super) fn start_timeout(&mut self, due: Instant) {
        self.start(due, RetransmitKind::Timeout);
        self.backed_off_until = Instant::ZERO;
    }

    /// A probe left: the timeout comes when it was due, or another probe before it.
    pub(super) fn resume_timeout(&mut self) {
        self.start(self.backed_off_until, RetransmitKind::Timeout);
    }

    /// Waits for the timeout alone again.
    pub(super) fn end_probes(&mut self, now: Instant) {
        if self.probe_interval == NEVER && self.backed_off_until > now {
            self.due = self.backed_off_until;
        }
    }

    /// Has a probe come before the timeout if that is far. It runs for a timeout.
    pub(super) fn bring_forward(&mut self, now: Instant) {
        if self.probe_interval != NEVER {
            self.probe_by(now + self.probe_interval);
        }
    }

    /// Has a probe come by then. It runs for a timeout.
    pub(super) fn probe_by(&mut self, at: Instant) {
        if self.due > at {
            self.backed_off_until = self.backed_off_until.max(self.due);
            self.due = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_secs(seconds)
    }

    #[test]
    fn probes_come_before_the_timeout_and_it_when_it_was_due() {
        let mut timer = RetransmitTimer::OFF;
        timer.set_probe_interval(Some(Duration::from_secs(4)));
        timer.start_timeout(at(10));
        timer.bring_forward(at(0));
        assert_eq!(timer.handle_timeout(at(3)), None);
        assert_eq!(timer.handle_timeout(at(4)), Some(RetransmitStep::ProbePath));
        timer.resume_timeout();
        timer.bring_forward(at(4));
        assert_eq!(
            (timer.poll_timeout(), timer.handle_timeout(at(8))),
            (at(8), Some(RetransmitStep::ProbePath))
        );
        timer.resume_timeout();
        timer.bring_forward(at(8));
        assert_eq!(
            (timer.poll_timeout(), timer.handle_timeout(at(10))),
            (at(10), Some(RetransmitStep::TimeOut))
        );
        assert!(!timer.is_running());
    }

    #[test]
    fn without_probes_the_timeout_is_back_where_it_was() {
        let mut timer = RetransmitTimer::OFF;
        timer.start_timeout(at(60));
        timer.probe_by(at(5));
        timer.end_probes(at(1));
        assert_eq!(timer.poll_timeout(), at(60));
        timer.forget_probes();
        assert_eq!(timer.handle_timeout(at(60)), Some(RetransmitStep::TimeOut));
    }
}
