//! Path MTU: what ICMP says, and what silence says (RFC 4821 §7.7).

use core::fmt::Debug;

use polypath_units::{Duration, Instant};

use super::Connection;

/// Sizes that links have, as steps down when full-sized segments vanish (RFC 1191 §7.1).
const PLATEAUS: [u16; 6] = [9000, 4352, 1500, 1280, 1006, 552];

/// After so many timeouts in a row of full-sized segments their size is suspected.
const BLACK_HOLE_TIMEOUTS: u8 = 3;

/// How long a lowered MTU is kept before the larger one is tried again (RFC 1981 §4: ten minutes).
const RAISE_AFTER: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug)]
pub(super) struct PathMtu {
    current: u16,
    configured: u16,
    least: u16,
    overhead: u16,
    lowered_at: Instant,
    /// Lowered because of timeouts, not because of ICMP.
    suspected: bool,
}

impl PathMtu {
    pub(super) fn new(configured: u16, least: u16, is_v6: bool) -> Self {
        let (overhead, least) = if is_v6 { (60, least.max(1280)) } else { (40, least) };
        let current = configured.max(overhead + 1);
        Self {
            current,
            configured: current,
            least: least.min(current),
            overhead,
            lowered_at: Instant::ZERO,
            suspected: false,
        }
    }

    pub(super) fn current_bytes(&self) -> u16 {
        self.current
    }

    pub(super) fn mss_bytes(&self) -> u16 {
        self.current - self.overhead
    }

    /// Believes a smaller MTU; never one below the least.
    pub(super) fn lower_to(&mut self, mtu: u16) -> bool {
        let mtu = mtu.max(self.least);
        let lower = mtu < self.current;
        if lower {
            self.current = mtu;
        }
        lower
    }

    fn step_down(&mut self) -> bool {
        let next = PLATEAUS.into_iter().find(|step| *step < self.current && *step >= self.least);
        next.is_some_and(|mtu| self.lower_to(mtu))
    }
}

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// Called at each timeout: repeated loss of full-sized segments while nothing else is known points to a black hole.
    pub(super) fn suspect_black_hole(&mut self, now: Instant) {
        let probing =
            self.config.mtu_probing && self.consecutive_timeouts.is_multiple_of(BLACK_HOLE_TIMEOUTS);
        let full = self.board.front().is_some_and(|front| front.len() + 64 > u64::from(self.mss_bytes()));
        if probing && full && self.mtu.step_down() {
            self.mtu.lowered_at = now;
            self.mtu.suspected = true;
            self.rtt.reset_backoff();
            self.segment_size_changed(now);
        }
    }

    /// Tries the configured MTU again after a while. If it still vanishes, timeouts lower it anew.
    pub(super) fn maybe_raise_mtu(&mut self, now: Instant) {
        let lowered = self.mtu.lowered_at != Instant::ZERO;
        if lowered && now.since(self.mtu.lowered_at) >= RAISE_AFTER && !self.recovery.is_active() {
            self.raise_mtu();
        }
    }

    fn raise_mtu(&mut self) {
        self.mtu.current = self.mtu.configured;
        self.mtu.lowered_at = Instant::ZERO;
        self.mtu.suspected = false;
        self.controller.on_mss(self.mss_bytes());
        self.events.mtu_changed = true;
    }

    /// The timeouts were spurious, and so was what they said of the MTU.
    pub(super) fn withdraw_suspicion(&mut self) {
        if self.mtu.suspected {
            self.raise_mtu();
        }
    }

    /// What was in flight at the old size is sent again at the new.
    pub(super) fn segment_size_changed(&mut self, now: Instant) {
        if self.mtu.lowered_at == Instant::ZERO {
            self.mtu.lowered_at = now;
        }
        self.controller.on_mss(self.mss_bytes());
        self.events.mtu_changed = true;
        self.board.mark_all_lost();
    }
}
