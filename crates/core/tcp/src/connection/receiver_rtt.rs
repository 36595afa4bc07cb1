//! The round-trip time that a receiver of data sees by what comes back of its timestamps (RFC 7323 §3).

use polypath_units::{Duration, Instant};

/// One tick of the timestamps' clock: below it, a sender's sample says more.
const TICK: Duration = Duration::from_millis(1);

/// A quarter of a tick, so that what is smoothed moves when samples do. The longest estimate is 16 s.
const UNIT: Duration = Duration::from_micros(250);

/// Estimate of an end that receives: its own round-trip times are as old as the data that it sent last. Every subflow of an idle host has
/// one, so it is small: of counts that are compared for equality, the low bits tell enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiverRtt {
    /// In units of [`UNIT`]; zero before the first sample.
    smoothed: u16,
    /// The latest echo, and the millisecond in which it first came with data.
    echo: u16,
    echo_at_millis: u16,
    /// What the peer had acknowledged at the last sample.
    acked_offset: u16,
}

impl ReceiverRtt {
    pub(super) const fn new(now: Instant) -> Self {
        Self { smoothed: 0, echo: 0, echo_at_millis: millis(now), acked_offset: 0 }
    }

    /// Data came for an acknowledgment of this end that left `elapsed` ago. One sample for each tick of the clock.
    #[inline]
    pub(super) fn handle_data(
        &mut self,
        now: Instant,
        echo: u32,
        elapsed: Duration,
        srtt: Duration,
        acked_offset: u64,
    ) {
        if echo as u16 != self.echo {
            self.handle_echo(now, echo, elapsed, srtt, acked_offset);
        }
    }

    fn handle_echo(&mut self, now: Instant, echo: u32, elapsed: Duration, srtt: Duration, acked_offset: u64) {
        let silence = Duration::from_millis(millis(now).wrapping_sub(self.echo_at_millis).into());
        (self.echo, self.echo_at_millis) = (echo as u16, millis(now));
        let smoothed = self.smoothed();
        let before = if smoothed.is_zero() { srtt } else { smoothed };
        // A sender that had nothing to send came back late: as long as it was silent, this is no longer than the path's.
        let has_waited = silence >= elapsed;
        if has_waited && elapsed >= before && !before.is_zero() {
            return;
        }
        let sample = elapsed.max(TICK);
        let next_nanos = match smoothed {
            Duration::ZERO => sample.as_nanos(),
            smoothed => (smoothed.as_nanos() * 7 + sample.as_nanos()) / 8,
        };
        // To the nearest.
        let units = (next_nanos + UNIT.as_nanos() / 2) / UNIT.as_nanos();
        self.smoothed = u16::try_from(units).unwrap_or(u16::MAX);
        self.acked_offset = acked_offset as u16;
    }

    pub(super) const fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed as u64 * UNIT.as_nanos())
    }

    /// Nothing was acknowledged since the last sample, so that the sender's estimate is older, and they differ by more than
    /// the clock ticks.
    pub(super) fn is_newer(&self, srtt: Duration, acked_offset: u64) -> bool {
        let smoothed = self.smoothed();
        let differs = smoothed > srtt + TICK || srtt > smoothed + TICK;
        !smoothed.is_zero() && differs && self.acked_offset == acked_offset as u16
    }
}

/// The low bits of a time in milliseconds.
const fn millis(at: Instant) -> u16 {
    (at.as_nanos() / 1_000_000) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRTT: Duration = Duration::from_millis(20);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Data that comes every two milliseconds and answers what left `rtt_ms` before it.
    fn stream(estimate: &mut ReceiverRtt, times_ms: core::ops::Range<u64>, rtt_ms: u64) {
        for now in times_ms.step_by(2) {
            let echo = (now - rtt_ms) as u32;
            estimate.handle_data(at(now), echo, Duration::from_millis(rtt_ms), SRTT, 1);
        }
    }

    #[test]
    fn a_queue_that_grows_and_goes_is_seen() {
        let mut estimate = ReceiverRtt::new(Instant::ZERO);
        assert!(!estimate.is_newer(SRTT, 1));
        stream(&mut estimate, 1000..1200, 200);
        assert_eq!(estimate.smoothed(), Duration::from_millis(200));
        assert!(estimate.is_newer(SRTT, 1));
        stream(&mut estimate, 1200..1400, 40);
        let millis = estimate.smoothed().as_millis();
        assert!((40..=41).contains(&millis), "{millis}");
        assert!(!estimate.is_newer(SRTT, 2), "the peer has acknowledged since: the sender's is newer");
    }

    #[test]
    fn a_sender_that_paused_tells_nothing() {
        let mut estimate = ReceiverRtt::new(Instant::ZERO);
        stream(&mut estimate, 1000..1100, 30);
        let before = estimate.smoothed();
        // The last acknowledgment left at 1099; the peer had nothing to send for two seconds.
        estimate.handle_data(at(3100), 1099, Duration::from_millis(2001), SRTT, 1);
        assert_eq!(estimate.smoothed(), before);
        // Of a message a second, none is taken for the path either.
        let mut estimate = ReceiverRtt::new(Instant::ZERO);
        for second in 1..5 {
            let now = second * 1000;
            estimate.handle_data(at(now), now as u32 - 990, Duration::from_millis(990), SRTT, 1);
        }
        assert!(estimate.smoothed().is_zero() && !estimate.is_newer(SRTT, 1));
    }

    #[test]
    fn the_senders_estimate_is_finer_than_a_tick() {
        let mut estimate = ReceiverRtt::new(Instant::ZERO);
        let srtt = Duration::from_micros(300);
        for now in 10..50 {
            estimate.handle_data(at(now), now as u32, Duration::ZERO, srtt, 1);
        }
        assert_eq!(estimate.smoothed(), TICK);
        assert!(!estimate.is_newer(srtt, 1));
    }
}
