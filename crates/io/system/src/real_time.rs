//! A state machine with a clock of its own, run as time passes.

use std::thread;
use std::time::Instant as SystemInstant;

use polypath_units::{Duration, Instant};

/// A state machine whose time is told to it.
pub trait Timed {
    /// When something is due in it, if ever.
    fn next_event_at(&self) -> Option<Instant>;

    /// Does everything that is due by `now`.
    fn run_until(&mut self, now: Instant);
}

/// The system's monotonic clock as instants of the sans-IO crates.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    origin: SystemInstant,
    at_origin: Instant,
}

impl WallClock {
    /// A clock that shows `now` now.
    #[must_use]
    pub fn starting_at(now: Instant) -> Self {
        Self { origin: SystemInstant::now(), at_origin: now }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.at_origin + self.origin.elapsed().into()
    }

    /// Waits until the clock shows `at`. The system's sleep ends late by some 50 µs, so the last stretch is not slept.
    pub fn sleep_until(&self, at: Instant) {
        const SPIN: Duration = Duration::from_micros(80);
        loop {
            let left = at - self.now();
            if left.is_zero() {
                return;
            }
            if left > SPIN {
                thread::sleep((left - SPIN).into());
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Runs `machine` against the wall clock until `is_done` says so; it is asked at least once each `tick`.
pub fn run_in_real_time<T: Timed>(
    machine: &mut T,
    start: Instant,
    tick: Duration,
    mut is_done: impl FnMut(&mut T, Instant) -> bool,
) {
    let clock = WallClock::starting_at(start);
    let mut next_tick = start;
    loop {
        let now = clock.now();
        machine.run_until(now);
        if now >= next_tick {
            if is_done(machine, now) {
                return;
            }
            next_tick = now + tick;
        }
        clock.sleep_until(machine.next_event_at().unwrap_or(Instant::FAR_FUTURE).min(next_tick));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ticks(Vec<Instant>, Instant);

    impl Timed for Ticks {
        fn next_event_at(&self) -> Option<Instant> {
            Some(self.1)
        }

        fn run_until(&mut self, now: Instant) {
            while self.1 <= now {
                self.0.push(self.1);
                self.1 += Duration::from_millis(1);
            }
        }
    }

    #[test]
    fn events_come_in_order_and_never_early() {
        let mut ticks = Ticks(Vec::new(), Instant::from_secs(5));
        let end = Instant::from_millis(5_020);
        run_in_real_time(&mut ticks, Instant::from_secs(5), Duration::from_millis(3), |ticks, now| {
            assert!(ticks.0.iter().all(|at| *at <= now));
            now >= end
        });
        assert!(ticks.0.len() >= 20);
        assert_eq!(ticks.0[3], Instant::from_millis(5_003));
    }
}
