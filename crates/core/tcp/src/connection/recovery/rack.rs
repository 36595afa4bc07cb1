//! RACK's view of the path: the latest delivery, and how much it reorders (RFC 8985 §6.2).

use polypath_units::{Duration, Instant};

use crate::scoreboard::Sent;

/// Recoveries for which a widened reordering window holds (RFC 8985 §6.2).
const REORDERING_PERSIST: u8 = 16;

/// The reordering window grows by quarters of the least round-trip time, up to this many (RFC 8985 §6.2).
const MAX_QUARTERS: u8 = 16;

/// The reference that pieces are lost by, and the reordering window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rack {
    /// The latest-sent piece that is known delivered: when it left, and where it ends.
    at: Instant,
    end: u64,
    rtt: Duration,
    /// DSACKs widen the window once a round trip: again from when this position is acknowledged.
    dsack_round_end: u64,
    quarters: u8,
    /// Recoveries left with the widened window.
    persist: u8,
    reordering_seen: bool,
}

impl Rack {
    /// An acknowledgment came; `reordered` says that it was of something older than what came before.
    #[inline]
    pub(super) fn handle_order(&mut self, reordered: bool) {
        self.reordering_seen |= reordered;
    }

    /// This piece was delivered, so long after it left.
    #[inline]
    pub(super) fn handle_delivered(&mut self, piece: &Sent, rtt: Duration) {
        if (piece.at, piece.end()) > (self.at, self.end) {
            self.at = piece.at;
            self.end = piece.end();
        }
        self.rtt = rtt;
    }

    /// A DSACK came that no tail loss probe explains: the window was too small (step 4).
    pub(super) fn handle_dsack(&mut self, una: u64, next: u64) {
        self.reordering_seen = true;
        self.persist = REORDERING_PERSIST;
        if una >= self.dsack_round_end {
            self.dsack_round_end = next;
            self.quarters = (self.quarters + 1).min(MAX_QUARTERS);
        }
    }

    /// A recovery ended.
    pub(super) fn handle_recovery_end(&mut self) {
        if self.persist > 0 {
            self.persist -= 1;
            if self.persist == 0 {
                self.quarters = 0;
            }
        }
    }

    /// The path was seen to reorder.
    #[inline]
    pub(super) const fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }

    /// The reordering window of step 4, on a path where waiting is worth it.
    #[inline]
    pub(super) fn window(&self, min_rtt: Duration, srtt: Duration) -> Duration {
        let quarters = 1 + u64::from(self.quarters);
        Duration::from_nanos(min_rtt.as_nanos() / 4 * quarters).min(srtt)
    }

    /// When the latest delivered piece left, and where it ends.
    #[inline]
    pub(super) const fn reference(&self) -> (Instant, u64) {
        (self.at, self.end)
    }

    /// How long it took.
    #[inline]
    pub(super) const fn rtt(&self) -> Duration {
        self.rtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    #[test]
    fn the_window_widens_once_a_round_trip_and_for_sixteen_recoveries() {
        let mut rack = Rack::default();
        assert_eq!(rack.window(RTT, RTT), RTT / 4);
        for una in [0, 50, 100] {
            rack.handle_dsack(una, 100);
        }
        assert_eq!(rack.window(RTT, RTT), RTT / 4 * 3);
        for una in 101..200 {
            rack.handle_dsack(una, una);
        }
        assert_eq!(rack.window(RTT, RTT * 9), RTT / 4 * 17);
        assert_eq!(rack.window(RTT, RTT), RTT, "no more than a round trip");
        for _ in 0..16 {
            assert!(rack.window(RTT, RTT) > RTT / 4);
            rack.handle_recovery_end();
        }
        assert_eq!(rack.window(RTT, RTT), RTT / 4);
    }
}
