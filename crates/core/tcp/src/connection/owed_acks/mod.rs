//! Acknowledgments that are owed to the peer: when they leave, and what they report (RFC 9293 §3.8.6.3, RFC 5961 §10,
//! RFC 2883).

mod challenges;

use polypath_units::Instant;

use crate::config::Config;

use challenges::Challenges;

/// Which acknowledgments are owed, and since which one.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwedAcks {
    /// What the last acknowledgment covered, as a stream offset.
    acked_to: u64,
    /// When a delayed acknowledgment is due; [`Instant::FAR_FUTURE`] is none.
    delayed_until: Instant,
    /// A duplicate to report (RFC 2883), by stream offsets; empty if there is none.
    duplicate: (u64, u64),
    /// Segments in order since the last acknowledgment.
    segments: u32,
    /// Segments that are still acknowledged at once.
    quick_left: u32,
    challenges: Challenges,
    is_owed: bool,
    /// An acknowledgment that the host may withhold (RFC 5961 §10).
    is_challenge_owed: bool,
}

impl OwedAcks {
    pub(super) fn new(quick: u32) -> Self {
        Self {
            acked_to: 0,
            delayed_until: Instant::FAR_FUTURE,
            duplicate: (0, 0),
            segments: 0,
            quick_left: quick,
            challenges: Challenges::default(),
            is_owed: false,
            is_challenge_owed: false,
        }
    }

    // ---- what happened

    /// Data came in order. Every second full-sized segment is acknowledged at once, others within the delay (RFC 9293
    /// §3.8.6.3); all at once at the start, so that the sender's slow start is not held back.
    #[inline]
    pub(super) fn handle_in_order(&mut self, now: Instant, segments: u32, config: &Config) {
        self.segments += segments;
        if self.quick_left > 0 {
            self.quick_left = self.quick_left.saturating_sub(segments);
            self.is_owed = true;
        } else if self.segments >= 2 {
            self.is_owed = true;
        } else if self.delayed_until == Instant::FAR_FUTURE {
            self.delayed_until = now + config.delayed_ack;
        }
    }

    /// Data came for the second time.
    pub(super) fn handle_duplicate(&mut self, range: (u64, u64)) {
        self.duplicate = range;
    }

    /// An acceptable segment came: both ends agree.
    #[inline]
    pub(super) fn handle_acceptable(&mut self) {
        self.challenges.handle_acceptable();
    }

    /// The delay may have passed.
    #[inline]
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.delayed_until <= now {
            self.delayed_until = Instant::FAR_FUTURE;
            self.is_owed = true;
        }
    }

    /// A segment left that acknowledges everything before this offset. Whatever leaves does, so what was owed is paid.
    #[inline]
    pub(super) fn handle_sent(&mut self, acked_to: u64) {
        self.acked_to = acked_to;
        self.segments = 0;
        self.delayed_until = Instant::FAR_FUTURE;
        self.forget();
    }

    // ---- commands

    /// One is to leave.
    #[inline]
    pub(super) fn owe(&mut self) {
        self.is_owed = true;
    }

    /// A segment that may be forged is answered, and only so often (RFC 5961 §10).
    pub(super) fn challenge(&mut self, now: Instant, config: &Config) {
        self.is_challenge_owed |= self.challenges.allow(now, config);
    }

    /// Answers what may be an answer itself, and only so often.
    pub(super) fn answer_empty(&mut self, now: Instant, config: &Config) {
        self.is_challenge_owed |= self.challenges.allow_for_empty(now, config);
    }

    /// The host has sent enough of such.
    pub(super) fn withhold_challenge(&mut self) {
        self.is_challenge_owed = false;
    }

    /// Nothing is owed any longer.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.is_owed = false;
        self.is_challenge_owed = false;
    }

    /// Nothing is delayed any longer.
    pub(super) fn stop_delay(&mut self) {
        self.delayed_until = Instant::FAR_FUTURE;
    }

    /// The duplicate to report, once.
    pub(super) fn take_duplicate(&mut self) -> Option<(u64, u64)> {
        let range = core::mem::take(&mut self.duplicate);
        (range.0 < range.1).then_some(range)
    }

    // ---- getters

    /// When a delayed one is due.
    #[inline]
    pub(super) const fn poll_timeout(&self) -> Instant {
        self.delayed_until
    }

    /// One is to leave now.
    #[inline]
    pub(super) const fn is_due(&self) -> bool {
        self.is_owed || self.is_challenge_owed
    }

    /// One is owed to a segment that may be forged, and to nothing else.
    pub(super) const fn is_only_challenge(&self) -> bool {
        self.is_challenge_owed && !self.is_owed
    }

    /// A segment that leaves now acknowledges what none did before.
    #[inline]
    pub(super) const fn has_news(&self) -> bool {
        self.is_due() || self.segments > 0
    }

    /// A duplicate is to be reported.
    #[inline]
    pub(super) const fn has_duplicate(&self) -> bool {
        self.duplicate.0 < self.duplicate.1
    }

    /// What the last acknowledgment covered, as a stream offset.
    #[inline]
    pub(super) const fn acked_to(&self) -> u64 {
        self.acked_to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_start_each_segment_then_every_second_then_after_the_delay() {
        let config = Config::default();
        let now = Instant::from_secs(1);
        let mut acks = OwedAcks::new(3);
        for expected in [true, true, true, false, true, false] {
            acks.handle_in_order(now, 1, &config);
            assert_eq!(acks.is_due(), expected);
            if expected {
                acks.handle_sent(0);
            }
        }
        assert!(acks.has_news());
        assert_eq!(acks.poll_timeout(), now + config.delayed_ack);
        acks.handle_in_order(now + config.delayed_ack / 2, 0, &config);
        assert_eq!(acks.poll_timeout(), now + config.delayed_ack, "the first waits no longer");
        acks.handle_timeout(now + config.delayed_ack);
        assert!(acks.is_due());
        acks.handle_sent(700);
        assert!(!acks.is_due() && !acks.has_news() && acks.acked_to() == 700);
        assert_eq!(acks.poll_timeout(), Instant::FAR_FUTURE);
    }

    #[test]
    fn challenges_are_bounded_by_the_second_and_in_a_row() {
        let config = Config { challenge_acks_per_second: 3, challenge_acks_in_a_row: 4, ..Config::default() };
        let mut acks = OwedAcks::new(0);
        let count = |acks: &mut OwedAcks, second| {
            let mut sent = 0;
            for _ in 0..9 {
                acks.answer_empty(Instant::from_secs(second), &config);
                sent += u32::from(acks.is_only_challenge());
                acks.forget();
            }
            sent
        };
        assert_eq!((count(&mut acks, 1), count(&mut acks, 2), count(&mut acks, 3)), (3, 1, 0));
        acks.handle_acceptable();
        assert_eq!(count(&mut acks, 4), 3);
    }
}
