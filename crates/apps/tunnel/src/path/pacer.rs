//! When the next packet leaves, so that packets leave at a rate.

use polypath_units::{BitRate, Duration, Instant};

/// After idleness so much leaves at once.
const MOST_CREDIT: Duration = Duration::from_millis(2);
/// What could have left and did not is caught up with, if it is no more than this: timers are late, and processes wait for a processor.
const MOST_LAG: Duration = Duration::from_millis(30);

/// Whether a packet left as the rate has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departed {
    InTime,
    /// Some of what the rate would have let go can't be caught up with.
    TooLate,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    next_at: Instant,
}

impl Pacer {
    pub(super) fn new(now: Instant) -> Self {
        Self { next_at: now }
    }

    /// When the next packet may leave.
    pub(super) fn next_at(self) -> Instant {
        self.next_at
    }

    /// A packet leaves.
    pub(super) fn handle_sent(&mut self, now: Instant, bytes: u64, rate: BitRate) -> Departed {
        let earliest = now - MOST_LAG;
        let departed = if self.next_at < earliest { Departed::TooLate } else { Departed::InTime };
        self.next_at = self.next_at.max(earliest) + rate.time_to_send(bytes);
        departed
    }

    /// Nothing is there to be sent, or the window is full: that time is not made up for.
    pub(super) fn handle_idle(&mut self, now: Instant) {
        self.next_at = self.next_at.max(now - MOST_CREDIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that leave at once, in packets of 1000, at 8 Mbit/s: one each millisecond.
    fn leaving(pacer: &mut Pacer, now: Instant) -> (u32, u32) {
        let (mut packets, mut too_late) = (0, 0);
        while pacer.next_at() <= now {
            too_late += u32::from(pacer.handle_sent(now, 1_000, BitRate::from_mbps(8)) == Departed::TooLate);
            packets += 1;
        }
        (packets, too_late)
    }

    #[test]
    fn what_is_late_is_caught_up_with_and_idleness_is_not() {
        let mut pacer = Pacer::new(Instant::from_secs(1));
        assert_eq!(leaving(&mut pacer, Instant::from_secs(1)), (1, 0));
        assert_eq!(leaving(&mut pacer, Instant::from_millis(1_020)), (20, 0));
        assert_eq!(leaving(&mut pacer, Instant::from_millis(1_120)), (31, 1));
        pacer.handle_idle(Instant::from_millis(1_200));
        assert_eq!(leaving(&mut pacer, Instant::from_millis(1_200)), (3, 0));
    }
}
