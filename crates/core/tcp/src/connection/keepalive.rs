//! When the peer was last heard, and probes of one that is silent while there is nothing to say (RFC 9293 §3.8.4).

use polypath_units::Instant;

use crate::config::Config;

/// The peer's last sign of life, and the keep-alive timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keepalive {
    heard_at: Instant,
    /// When the timer is due; [`Instant::FAR_FUTURE`] is off.
    due: Instant,
    /// Probes that nobody has answered.
    unanswered: u8,
    /// A probe is to leave, to which the peer must answer.
    probe_is_due: bool,
}

impl Keepalive {
    pub(super) const fn new(now: Instant) -> Self {
        Self { heard_at: now, due: Instant::FAR_FUTURE, unanswered: 0, probe_is_due: false }
    }

    /// Something came from the peer. Where keep-alives are on, they begin anew.
    #[inline]
    pub(super) fn handle_segment(&mut self, now: Instant, config: &Config) {
        self.heard_at = now;
        if config.keepalive_idle.is_some() {
            self.unanswered = 0;
            self.start(now, config);
        }
    }

    /// The peer's SYN came: keep-alives begin once both ends have agreed.
    pub(super) fn handle_syn(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// The settings changed.
    pub(super) fn restart(&mut self, now: Instant, is_synchronized: bool, config: &Config) {
        self.unanswered = 0;
        self.stop();
        if is_synchronized {
            self.start(now, config);
        }
    }

    /// Waits for a silence.
    pub(super) fn start(&mut self, now: Instant, config: &Config) {
        if let Some(idle) = config.keepalive_idle {
            self.due = now + idle;
        }
    }

    /// Stops the timer.
    pub(super) fn stop(&mut self) {
        self.due = Instant::FAR_FUTURE;
    }

    /// The timer passed, and the peer has nothing else to answer: it is asked. False if it was often enough.
    pub(super) fn handle_timeout(&mut self, now: Instant, config: &Config) -> bool {
        if self.unanswered >= config.keepalive_probes {
            return false;
        }
        self.unanswered += 1;
        self.due = now + config.keepalive_interval;
        self.probe_is_due = true;
        true
    }

    /// Asks the peer for an answer, for whatever reason.
    pub(super) fn send_probe(&mut self) {
        self.probe_is_due = true;
    }

    /// True once if a probe is to leave.
    #[inline]
    pub(super) fn poll_probe(&mut self) -> bool {
        core::mem::take(&mut self.probe_is_due)
    }

    /// Nobody is asked any longer.
    pub(super) fn cancel_probe(&mut self) {
        self.probe_is_due = false;
    }

    /// When the timer is due.
    #[inline]
    pub(super) const fn poll_timeout(&self) -> Instant {
        self.due
    }

    /// The peer was asked as often as configured, and never answered.
    pub(super) const fn is_given_up(&self, config: &Config) -> bool {
        self.unanswered > 0 && self.unanswered >= config.keepalive_probes
    }

    /// When the last segment of the peer came.
    #[inline]
    pub(super) const fn heard_at(&self) -> Instant {
        self.heard_at
    }
}

#[cfg(test)]
mod tests {
    use polypath_units::Duration;

    use super::*;

    #[test]
    fn a_silent_peer_is_asked_as_often_as_configured() {
        let config = Config {
            keepalive_idle: Some(Duration::from_secs(60)),
            keepalive_interval: Duration::from_secs(10),
            keepalive_probes: 2,
            ..Config::default()
        };
        let mut keepalive = Keepalive::new(Instant::ZERO);
        assert_eq!(keepalive.poll_timeout(), Instant::FAR_FUTURE);
        keepalive.handle_segment(Instant::from_secs(5), &config);
        for due in [65, 75] {
            assert_eq!(keepalive.poll_timeout(), Instant::from_secs(due));
            assert!(keepalive.handle_timeout(keepalive.poll_timeout(), &config));
            assert!(keepalive.poll_probe() && !keepalive.poll_probe());
        }
        assert!(!keepalive.handle_timeout(Instant::from_secs(85), &config));
        assert!(!keepalive.poll_probe());
        keepalive.handle_segment(Instant::from_secs(86), &config);
        assert!(keepalive.handle_timeout(Instant::from_secs(146), &config));
    }
}
