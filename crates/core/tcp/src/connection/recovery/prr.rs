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
