//! Whether a queue stands in a path.
//!
//! One long round trip says little: the packet, or its acknowledgment, may have waited for a radio, or for a process. In a queue that stands
//! every packet waits, and so there is always something under way.

use polypath_units::{Duration, Instant};

/// What is looked back at is one to two of these.
const SPAN: Duration = Duration::from_millis(20);
/// A round trip that is longer by this, and a quarter, shows a queue.
const LONGER: Duration = Duration::from_millis(4);

/// Round trips of late.
#[derive(Debug, Default)]
pub(super) struct StandingQueue {
    since: Instant,
    least_now: Option<Duration>,
    least_before: Option<Duration>,
    emptied_at: Instant,
}

impl StandingQueue {
    /// A round trip was measured.
    pub(super) fn note(&mut self, now: Instant, rtt: Duration) {
        let age = now.since(self.since);
        if age >= SPAN {
            self.least_before = self.least_now.filter(|_| age < SPAN * 3);
            (self.since, self.least_now) = (now, None);
        }
        self.least_now = Some(self.least_now.map_or(rtt, |least| least.min(rtt)));
    }

    /// All that was under way arrived.
    pub(super) fn note_empty(&mut self, now: Instant) {
        self.emptied_at = now;
    }

    /// Whether all round trips of late were longer than the path's least one.
    pub(super) fn shows(&self, now: Instant, least: Duration) -> bool {
        let (Some(lately), Some(before)) = (self.least_now, self.least_before) else { return false };
        lately.min(before) > least + least / 4 + LONGER && now.since(self.emptied_at) >= SPAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(10);

    fn shows(rtts_ms: impl Fn(u64) -> u64, empty_at: Option<u64>) -> bool {
        let mut queue = StandingQueue::default();
        let start = Instant::from_secs(5);
        for millis in 0..200 {
            let now = start + Duration::from_millis(millis);
            queue.note(now, Duration::from_millis(rtts_ms(millis)));
            if empty_at == Some(millis) {
                queue.note_empty(now);
            }
        }
        queue.shows(start + Duration::from_millis(200), LEAST)
    }

    #[test]
    fn it_shows_where_every_round_trip_is_long() {
        assert!(shows(|_| 40, None));
        assert!(!shows(|_| 12, None));
    }

    #[test]
    fn a_process_that_waits_now_and_then_is_no_queue() {
        assert!(!shows(|millis| if millis % 40 == 0 { 11 } else { 60 }, None));
    }

    #[test]
    fn a_path_that_was_empty_has_none() {
        assert!(!shows(|_| 40, Some(190)));
        assert!(shows(|_| 40, Some(100)));
    }

    #[test]
    fn what_was_before_a_pause_says_nothing() {
        let mut queue = StandingQueue::default();
        let start = Instant::from_secs(5);
        queue.note(start, Duration::from_millis(40));
        queue.note(start + Duration::from_millis(30), Duration::from_millis(40));
        assert!(queue.shows(start + Duration::from_millis(30), LEAST));
        queue.note(start + Duration::from_secs(9), Duration::from_millis(40));
        assert!(!queue.shows(start + Duration::from_secs(9), LEAST));
    }
}
