//! What a transfer would have been for somebody who plays the file while it comes (K §6.2.1).
//!
//! A player reads the file from its beginning at a constant rate. A byte is ready when it and all before it are there; what came
//! behind a gap is blocked. From the times at which bytes came follows how long the player has to wait before it begins, and
//! how much has to be held meanwhile.

use std::ops::Range;

use polypath_units::{Duration, Instant};

use crate::schedule::Ranges;

/// When bytes came.
#[derive(Clone, Debug)]
pub struct History {
    begun: Instant,
    came: Vec<(Instant, Range<u64>)>,
}

/// How a file could have been played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Playback {
    /// The rate at which it is played, in bytes per second.
    pub bytes_per_second: f64,
    /// The least time from the first request until the player begins, for which it never waits again (K eq. 6.3).
    pub startup_latency: Duration,
    /// The most bytes that are held at a time: blocked ones, and those that have to be there in advance (K eq. 6.4).
    pub required_buffer_bytes: u64,
    /// The most bytes behind a gap at a time.
    pub most_blocked_bytes: u64,
    /// Bytes behind a gap, in the mean over the time of the transfer.
    pub mean_blocked_bytes: f64,
}

impl History {
    /// Nothing came yet. The first request is sent at `begun`.
    #[must_use]
    pub const fn new(begun: Instant) -> Self {
        Self { begun, came: Vec::new() }
    }

    /// Bytes of the file came. Times never go back.
    pub fn note(&mut self, now: Instant, range: Range<u64>) {
        // What follows at the same moment is one.
        if let Some((at, last)) = self.came.last_mut()
            && *at == now
            && last.end == range.start
        {
            last.end = range.end;
            return;
        }
        self.came.push((now, range));
    }

    /// When the last byte came.
    #[must_use]
    pub fn end(&self) -> Option<Instant> {
        self.came.last().map(|(at, _)| *at)
    }

    /// The rate at which the transfer could be played for ever, in bytes per second: all bytes over the whole time (K eq. 6.1).
    #[must_use]
    pub fn sustainable_rate(&self) -> Option<f64> {
        let mut all = Ranges::new();
        self.came.iter().for_each(|(_, range)| all.insert(range.clone()));
        let took = self.end()?.since(self.begun).as_secs_f64();
        (took > 0.0).then(|| all.len_bytes() as f64 / took)
    }

    /// How the file could have been played at a rate, or at the one that could be sustained. `None` if nothing came.
    #[must_use]
    pub fn playback(&self, bytes_per_second: Option<f64>) -> Option<Playback> {
        let rate = bytes_per_second.or_else(|| self.sustainable_rate())?;
        let mut there = Ranges::new();
        let (mut most_needed, mut most_held, mut most_blocked, mut blocked_for) = (0.0_f64, 0.0_f64, 0, 0.0);
        let mut before = self.begun;
        for (now, range) in &self.came {
            let blocked = there.len_bytes() - there.prefix_bytes();
            blocked_for += blocked as f64 * now.since(before).as_secs_f64();
            before = *now;
            // The moment before it comes is the worst.
            let needed = rate * now.since(self.begun).as_secs_f64() - there.prefix_bytes() as f64;
            most_needed = most_needed.max(needed);
            most_held = most_held.max(blocked as f64 + needed.max(0.0));
            there.insert(range.clone());
            let blocked = there.len_bytes() - there.prefix_bytes();
            most_blocked = most_blocked.max(blocked);
        }
        let took = before.since(self.begun).as_secs_f64();
        Some(Playback {
            bytes_per_second: rate,
            startup_latency: Duration::from_secs_f64(most_needed / rate),
            required_buffer_bytes: most_held as u64,
            most_blocked_bytes: most_blocked,
            mean_blocked_bytes: if took > 0.0 { blocked_for / took } else { 0.0 },
        })
    }

    /// Whether a player that begins after `startup` and reads `bytes_per_second` never waits (K Fig. 6.11).
    #[must_use]
    pub fn is_smooth(&self, bytes_per_second: f64, startup: Duration) -> bool {
        self.playback(Some(bytes_per_second)).is_some_and(|playback| playback.startup_latency <= startup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_secs(9) + Duration::from_millis(millis)
    }

    #[test]
    fn what_is_behind_a_gap_is_blocked() {
        // 1000 bytes a second in all; the second quarter comes last of the first three.
        let mut history = History::new(at(0));
        for (millis, range) in [(250, 0..250), (500, 500..750), (750, 250..500), (1000, 750..1000)] {
            history.note(at(millis), range);
        }
        assert_eq!(history.sustainable_rate(), Some(1000.0));
        let playback = history.playback(None).expect("something came");
        // Just before 0.75 s, 250 bytes are ready of 750.
        assert_eq!(playback.startup_latency, Duration::from_millis(500));
        assert_eq!(playback.most_blocked_bytes, 250);
        assert_eq!(playback.required_buffer_bytes, 750);
        assert_eq!(playback.mean_blocked_bytes, 62.5);
        assert!(history.is_smooth(1000.0, Duration::from_millis(500)));
        assert!(!history.is_smooth(1000.0, Duration::from_millis(499)));
        assert!(history.is_smooth(500.0, Duration::from_millis(250)));
    }

    #[test]
    fn in_order_at_a_constant_rate_only_the_first_bytes_are_waited_for() {
        let mut history = History::new(at(0));
        for step in 0..100 {
            history.note(at((step + 1) * 10), step * 10..(step + 1) * 10);
        }
        let playback = history.playback(None).expect("something came");
        assert_eq!((playback.startup_latency, playback.most_blocked_bytes), (Duration::from_millis(10), 0));
        assert_eq!(History::new(at(0)).playback(None), None);
    }
}
