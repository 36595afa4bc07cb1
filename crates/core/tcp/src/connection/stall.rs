//! Data that waits for the peer: since when, what was tried meanwhile, and when that is enough.

use polypath_units::{Duration, Instant};

use crate::config::Config;

/// Longest wait between two window probes.
const MAX_PERSIST: Duration = Duration::from_secs(60);

/// What is known of a peer that lets data wait, and the persist timer (RFC 9293 §3.8.6.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    /// Since when the oldest data waits for its acknowledgment; for the user timeout.
    since: Instant,
    /// When the application let go; [`Instant::FAR_FUTURE`] before.
    orphaned_at: Instant,
    /// When the persist timer is due; [`Instant::FAR_FUTURE`] is off.
    persist: Instant,
    /// Retransmission timeouts in a row.
    timeouts: u8,
    /// Window probes since the peer last acknowledged anything.
    window_probes: u8,
    /// The override timeout passed: what waits for more window, or for more data, leaves as it is (RFC 9293 §3.8.6.2.1).
    sliver: bool,
}

impl Stall {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            orphaned_at: Instant::FAR_FUTURE,
            persist: Instant::FAR_FUTURE,
            timeouts: 0,
            window_probes: 0,
            sliver: false,
        }
    }

    // ---- what happened

    /// Something new was acknowledged, or leaves after nothing was in flight: waiting begins anew.
    #[inline]
    pub(super) fn handle_progress(&mut self, now: Instant) {
        self.since = now;
    }

    /// The peer answers: it lives, and may keep its window closed.
    #[inline]
    pub(super) fn handle_answer(&mut self) {
        self.window_probes = 0;
    }

    /// The retransmission timer passed once more.
    pub(super) fn count_timeout(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
    }

    /// What timeouts asked for came.
    pub(super) fn forget_timeouts(&mut self) {
        self.timeouts = 0;
    }

    /// The window is asked for once more.
    pub(super) fn count_window_probe(&mut self) {
        self.window_probes = self.window_probes.saturating_add(1);
    }

    /// The application let go.
    pub(super) fn orphan(&mut self, now: Instant, config: &Config) {
        if self.orphaned_at != Instant::FAR_FUTURE {
            return;
        }
        self.orphaned_at = now;
        if self.is_persisting() {
            self.persist = self.limit(self.persist, config);
        }
    }

    /// New data leaves: nothing is held back any longer.
    #[inline]
    pub(super) fn handle_departure(&mut self) {
        self.sliver = false;
        self.persist = Instant::FAR_FUTURE;
    }

    /// The persist timer passed though there is a window: what waits leaves as it is.
    pub(super) fn let_sliver_leave(&mut self) {
        self.sliver = true;
    }

    /// The connection is over.
    pub(super) fn cancel(&mut self) {
        self.handle_departure();
    }

    // ---- the persist timer

    /// Data waits, and nothing is in flight that would bring news.
    pub(super) fn start_persisting(&mut self, now: Instant, rto: Duration, config: &Config) {
        if !self.is_persisting() {
            self.since = now;
            self.persist_again(now, rto, config);
        }
    }

    /// Starts the timer, after a probe.
    pub(super) fn persist_again(&mut self, now: Instant, rto: Duration, config: &Config) {
        self.persist = self.limit(now + rto.min(MAX_PERSIST), config);
    }

    /// Has the timer pass no later than this.
    pub(super) fn persist_until(&mut self, at: Instant) {
        self.persist = self.persist.min(at);
    }

    /// Stops the timer.
    pub(super) fn stop_persisting(&mut self) {
        self.persist = Instant::FAR_FUTURE;
    }

    #[inline]
    pub(super) fn is_persisting(&self) -> bool {
        self.persist != Instant::FAR_FUTURE
    }

    /// When the persist timer is due.
    #[inline]
    pub(super) const fn poll_timeout(&self) -> Instant {
        self.persist
    }

    // ---- getters

    /// Retransmission timeouts since the peer last acknowledged something new.
    #[inline]
    pub(super) const fn timeouts(&self) -> u8 {
        self.timeouts
    }

    /// A short segment may leave though it is one.
    #[inline]
    pub(super) const fn sliver_may_leave(&self) -> bool {
        self.sliver
    }

    /// The peer was asked for its window often enough, or long enough. One that answers may keep it closed for as long as the
    /// application waits.
    pub(super) fn has_probed_enough(&self, now: Instant, config: &Config) -> bool {
        self.window_probes > config.retries || self.has_lasted(now, config)
    }

    /// The user timeout (RFC 5482, RFC 9293 §3.8.3) or the time of an orphan is over.
    pub(super) fn has_lasted(&self, now: Instant, config: &Config) -> bool {
        now >= self.ends_at(config)
    }

    /// A timer had better not be later than the user timeout, which is looked at when it passes.
    pub(super) fn limit(&self, at: Instant, config: &Config) -> Instant {
        at.min(self.ends_at(config))
    }

    /// When the connection ends unless something is acknowledged.
    fn ends_at(&self, config: &Config) -> Instant {
        let is_orphan = self.orphaned_at != Instant::FAR_FUTURE;
        let by_user = config.user_timeout.map(|limit| self.since + limit);
        let as_orphan = is_orphan.then(|| self.orphaned_at.max(self.since) + config.orphan_timeout);
        [by_user, as_orphan].into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTO: Duration = Duration::from_secs(100);

    fn at(seconds: u64) -> Instant {
        Instant::from_secs(seconds)
    }

    #[test]
    fn an_orphan_waits_from_when_it_became_one_or_from_progress_after() {
        let config = Config { orphan_timeout: Duration::from_secs(180), ..Config::default() };
        let mut stall = Stall::new(at(0));
        assert!(!stall.has_lasted(at(10_000), &config), "who waits may wait for ever");
        stall.orphan(at(1000), &config);
        stall.orphan(at(1100), &config);
        assert!(!stall.has_lasted(at(1179), &config) && stall.has_lasted(at(1180), &config));
        stall.handle_progress(at(1150));
        assert!(!stall.has_lasted(at(1329), &config) && stall.has_lasted(at(1330), &config));
    }

    #[test]
    fn the_persist_timer_is_not_later_than_the_user_timeout() {
        let config = Config { user_timeout: Some(Duration::from_secs(30)), ..Config::default() };
        let mut stall = Stall::new(at(0));
        stall.start_persisting(at(5), RTO, &Config::default());
        assert_eq!(stall.poll_timeout(), at(65), "a minute at most");
        stall.start_persisting(at(9), RTO, &config);
        assert_eq!(stall.poll_timeout(), at(65), "it runs already");
        stall.stop_persisting();
        stall.start_persisting(at(10), RTO, &config);
        assert_eq!(stall.poll_timeout(), at(40));
        stall.persist_again(at(40), RTO, &config);
        assert!(stall.has_lasted(at(40), &config));
    }

    #[test]
    fn an_answer_lets_the_window_stay_closed() {
        let config = Config { retries: 2, ..Config::default() };
        let mut stall = Stall::new(at(0));
        for _ in 0..3 {
            assert!(!stall.has_probed_enough(at(1), &config));
            stall.count_window_probe();
        }
        assert!(stall.has_probed_enough(at(1), &config));
        stall.handle_answer();
        assert!(!stall.has_probed_enough(at(1), &config));
    }
}
