//! When what may leave does leave: pacing, Nagle's algorithm (RFC 9293 §3.7.4), cork.

use polypath_units::{Duration, Instant};

/// Segments that may leave back to back (RFC 9293 has no word on it; Linux's pacing allows about as many).
const BURST_SEGMENTS: u64 = 2;

/// What may leave at once in an aggregate, or by `pacing_burst_bytes`, is at most what pacing sends in this time, as in
/// Linux: more would fill the queue of a slow path, and less would cost a timer for each segment on a fast one.
const PACED_INTERVAL: Duration = Duration::from_millis(1);

/// What holds segments back that the windows would let go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    /// When pacing lets the next segment go.
    next_at: Instant,
    /// When the pacing timer is due; [`Instant::FAR_FUTURE`] is off.
    due: Instant,
    last_at: Instant,
    no_delay: bool,
    corked: bool,
}

impl Departure {
    pub(super) const fn new(now: Instant, no_delay: bool) -> Self {
        Self { next_at: now, due: Instant::FAR_FUTURE, last_at: now, no_delay, corked: false }
    }

    // ---- settings

    /// Nagle's algorithm off or on.
    pub(super) fn set_no_delay(&mut self, no_delay: bool) {
        self.no_delay = no_delay;
    }

    /// Holds back everything but full segments.
    pub(super) fn set_cork(&mut self, corked: bool) {
        self.corked = corked;
    }

    /// A short segment with the last of the data waits for more.
    pub(super) const fn waits_for_more(&self, is_idle: bool) -> bool {
        self.corked || !self.no_delay && !is_idle
    }

    // ---- pacing

    /// A segment left, or an aggregate.
    #[inline]
    pub(super) fn handle_sent(&mut self, now: Instant) {
        self.last_at = now;
    }

    /// What left took `bytes`, in segments of `segment_bytes`, one of which may leave each `interval` nanoseconds: the next waits
    /// for as long.
    #[inline]
    pub(super) fn pace(
        &mut self,
        now: Instant,
        bytes: u64,
        segment_bytes: u64,
        interval: u64,
        most_bytes: u32,
    ) {
        let cost =
            if bytes == segment_bytes { interval } else { interval.saturating_mul(bytes) / segment_bytes };
        let most = u64::from(most_bytes) / segment_bytes;
        let burst = (PACED_INTERVAL.as_nanos() / interval.max(1)).min(most).max(BURST_SEGMENTS);
        let credit = Duration::from_nanos(interval.saturating_mul(burst - 1));
        self.next_at = self.next_at.max(now - credit) + Duration::from_nanos(cost);
    }

    /// The next may leave at once.
    pub(super) fn forget_pace(&mut self, now: Instant) {
        self.next_at = now;
    }

    /// Pacing holds the next back. Then the timer runs.
    #[inline]
    pub(super) fn must_wait(&mut self, now: Instant) -> bool {
        let must_wait = self.next_at > now;
        if must_wait {
            self.due = self.next_at;
        }
        must_wait
    }

    /// The timer may have passed: whoever polls next may send.
    #[inline]
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.due <= now {
            self.stop();
        }
    }

    /// Stops the timer.
    pub(super) fn stop(&mut self) {
        self.due = Instant::FAR_FUTURE;
    }

    /// When the timer is due.
    #[inline]
    pub(super) const fn poll_timeout(&self) -> Instant {
        self.due
    }

    /// When something left last.
    #[inline]
    pub(super) const fn last_at(&self) -> Instant {
        self.last_at
    }
}

/// The most that may leave as one burst, at one segment each `interval` nanoseconds.
#[inline]
pub(super) fn most_bytes_at(interval: u64, segment_bytes: u64) -> u64 {
    (PACED_INTERVAL.as_nanos() / interval.max(1)).max(BURST_SEGMENTS) * segment_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn after_silence_two_leave_together_and_then_one_each_interval() {
        let now = Instant::from_secs(1);
        let mut departure = Departure::new(Instant::ZERO, true);
        for _ in 0..2 {
            assert!(!departure.must_wait(now));
            departure.pace(now, 1000, 1000, 10 * MILLISECOND, 0);
        }
        assert!(departure.must_wait(now));
        let due = departure.poll_timeout();
        assert_eq!(due, now + Duration::from_millis(10));
        departure.handle_timeout(due);
        assert!(!departure.must_wait(due));
        assert_eq!(departure.poll_timeout(), Instant::FAR_FUTURE);
    }

    #[test]
    fn an_aggregate_waits_for_as_long_as_its_segments() {
        let now = Instant::from_secs(1);
        let (mut one, mut many) = (Departure::new(now, true), Departure::new(now, true));
        one.pace(now, 8000, 1000, MILLISECOND, 0);
        for _ in 0..8 {
            many.pace(now, 1000, 1000, MILLISECOND, 0);
        }
        assert!(one.must_wait(now) && many.must_wait(now));
        assert_eq!(one.poll_timeout(), many.poll_timeout());
        one.forget_pace(now);
        assert!(!one.must_wait(now));
    }

    #[test]
    fn a_cork_holds_back_what_nagle_lets_go() {
        for (no_delay, corked, is_idle, expected) in [
            (true, false, false, false),
            (false, false, true, false),
            (false, false, false, true),
            (true, true, true, true),
        ] {
            let mut departure = Departure::new(Instant::ZERO, no_delay);
            departure.set_cork(corked);
            assert_eq!(departure.waits_for_more(is_idle), expected);
        }
    }
}
