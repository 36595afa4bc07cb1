//! What a subflow's path shows to be.

use polypath_units::{BitRate, Instant};

/// No path is so fast.
const UNKNOWN_RATE: u64 = u64::MAX;

/// Whether the path answers, what it carries, and whose account it is on.
#[derive(Debug)]
pub(crate) struct Path {
    /// What the path carried when it was used before; [`UNKNOWN_RATE`] if it was not.
    remembered_bytes_per_s: u64,
    /// Until when the path's bottleneck is busy with what the subflow was given, if nothing else stands before it.
    busy_until: Instant,
    /// The peer has been silent for longer than a round trip explains.
    is_silent: bool,
    /// Nothing was acknowledged over several retransmission timeouts.
    is_stale: bool,
    /// Its local address was removed. The last subflow stays until another is established.
    is_removed: bool,
    /// The budget that its packets are taken from, as of this generation of budgets.
    account: Option<u16>,
    account_generation: u32,
}

impl Path {
    pub(super) const fn new() -> Self {
        Self {
            remembered_bytes_per_s: UNKNOWN_RATE,
            busy_until: Instant::ZERO,
            is_silent: false,
            is_stale: false,
            is_removed: false,
            account: None,
            account_generation: 0,
        }
    }

    // ---- what it carries

    /// What it carried when it was used before.
    pub(crate) fn remember(&mut self, bytes_per_s: Option<u64>) {
        self.remembered_bytes_per_s = bytes_per_s.unwrap_or(UNKNOWN_RATE);
    }

    pub(super) fn remembered_bytes_per_s(&self) -> Option<u64> {
        Some(self.remembered_bytes_per_s).filter(|rate| *rate != UNKNOWN_RATE)
    }

    /// The bottleneck, which carries so much, gets so many bytes more.
    #[inline]
    pub(super) fn handle_load(&mut self, now: Instant, bytes_per_s: u64, len_bytes: u64) {
        let rate = BitRate::from_bps(bytes_per_s.max(1).saturating_mul(8));
        self.busy_until = self.busy_until.max(now) + rate.time_to_send(len_bytes);
    }

    /// See [`Path::handle_load`].
    #[inline]
    pub(crate) const fn busy_until(&self) -> Instant {
        self.busy_until
    }

    // ---- whether it answers

    /// The peer has been silent for longer than a round trip explains, or not; true if it begins to.
    #[inline]
    pub(crate) fn handle_silence(&mut self, is_silent: bool) -> bool {
        let was_silent = core::mem::replace(&mut self.is_silent, is_silent);
        is_silent && !was_silent
    }

    #[inline]
    pub(crate) const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Nothing was acknowledged over several retransmission timeouts; true if that is new.
    pub(crate) fn become_stale(&mut self) -> bool {
        !core::mem::replace(&mut self.is_stale, true)
    }

    /// Something was; true if it was stale.
    pub(crate) fn recover(&mut self) -> bool {
        core::mem::take(&mut self.is_stale)
    }

    pub(crate) const fn is_stale(&self) -> bool {
        self.is_stale
    }

    // ---- whether it is to be used

    /// Its local address was removed, or came back; true if that is new.
    pub(crate) fn mark_removed(&mut self, is_removed: bool) -> bool {
        core::mem::replace(&mut self.is_removed, is_removed) != is_removed
    }

    pub(crate) const fn is_removed(&self) -> bool {
        self.is_removed
    }

    // ---- budgets

    /// The account that its packets are taken from, which is looked up once for each generation of budgets.
    pub(crate) fn account(&mut self, generation: u32, look_up: impl FnOnce() -> Option<u16>) -> Option<u16> {
        if self.account_generation != generation {
            self.account_generation = generation;
            self.account = look_up();
        }
        self.account
    }
}
