//! Proportional rate reduction (RFC 9937).

/// How much of a recovery's flight was delivered, and how much left for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prr {
    delivered: u64,
    out: u64,
    flight_at_start: u64,
    /// Pipe plus what may leave now.
    window: u64,
}

impl Prr {
    /// A recovery begins with so much in flight.
    pub(super) fn new(in_flight_bytes: u64) -> Self {
        Self { flight_at_start: in_flight_bytes.max(1), ..Self::default() }
    }

    /// Something left.
    #[inline]
    pub(super) fn handle_sent(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// Counts anew what leaves.
    pub(super) fn forget_sent(&mut self) {
        self.out = 0;
    }

    /// Something was delivered (§6). `target` is the window that the recovery ends with; `safe`: slow start's bound holds only
    /// while acknowledgments advance and nothing new is lost.
    pub(super) fn handle_delivered(&mut self, delivered: u64, pipe: u64, target: u64, mss: u64, safe: bool) {
        self.delivered += delivered;
        let quota = if pipe > target {
            self.delivered.saturating_mul(target).div_ceil(self.flight_at_start).saturating_sub(self.out)
        } else {
            let mut limit = self.delivered.saturating_sub(self.out).max(delivered);
            if safe {
                limit += mss;
            }
            limit.min(target - pipe)
        };
        // The first retransmission always leaves at once.
        let quota = if self.out == 0 { quota.max(mss) } else { quota };
        self.window = pipe + quota;
    }

    /// What left since the recovery began.
    pub(super) const fn out_bytes(&self) -> u64 {
        self.out
    }

    /// The window that holds now.
    pub(super) const fn window_bytes(&self) -> u64 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_was_in_flight_leaves_for_what_is_delivered() {
        let mut prr = Prr::new(20_000);
        // The first retransmission, whatever was delivered.
        prr.handle_delivered(0, 19_000, 10_000, 1000, false);
        assert_eq!(prr.window_bytes(), 20_000);
        prr.handle_sent(1000);
        prr.handle_delivered(2000, 18_000, 10_000, 1000, false);
        assert_eq!(prr.window_bytes(), 18_000, "1000 for 2000, and they left");
        prr.handle_delivered(2000, 16_000, 10_000, 1000, false);
        assert_eq!(prr.window_bytes(), 17_000);
    }

    #[test]
    fn below_the_target_slow_start_is_for_when_nothing_new_is_lost() {
        for (safe, window) in [(false, 5000), (true, 6000)] {
            let mut prr = Prr::new(20_000);
            prr.handle_sent(4000);
            prr.handle_delivered(1000, 4000, 10_000, 1000, safe);
            assert_eq!(prr.window_bytes(), window);
        }
    }
}
