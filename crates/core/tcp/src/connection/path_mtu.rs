//! The size of segments: what the peer takes, and what the path takes (RFC 6691, RFC 4821 §7.7).

use core::num::NonZeroU16;

use polypath_units::{Duration, Instant};

/// Sizes that links have, as steps down when full-sized segments vanish (RFC 1191 §7.1).
const PLATEAUS: [u16; 6] = [9000, 4352, 1500, 1280, 1006, 552];

/// How long a lowered MTU is kept before the larger one is tried again (RFC 1981 §4: ten minutes).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// The path MTU, and what is in question about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathMtu {
    /// What the peer takes (RFC 6691).
    peer_mss: u16,
    current: u16,
    configured: u16,
    least: u16,
    overhead: u16,
    lowered_at: Instant,
    /// The MTU before it was lowered because of timeouts, not because of ICMP, and nothing has shown yet that they were right.
    before_suspicion: Option<u16>,
    /// The one segment of a larger size that asks whether the path takes such again.
    probe: Option<Probe>,
    /// The probe timed out, and nothing was acknowledged since.
    probe_timed_out: bool,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    start: u64,
    len_bytes: NonZeroU16,
}

impl PathMtu {
    pub(super) fn new(configured: u16, least: u16, is_v6: bool) -> Self {
        let (overhead, least) = if is_v6 { (60, least.max(1280)) } else { (40, least) };
        let current = configured.max(overhead + 1);
        Self {
            // Unless it says otherwise (RFC 9293 §3.7.1).
            peer_mss: if is_v6 { 1220 } else { 536 },
            current,
            configured: current,
            least: least.min(current),
            overhead,
            lowered_at: Instant::ZERO,
            before_suspicion: None,
            probe: None,
            probe_timed_out: false,
        }
    }

    // ---- sizes

    /// Path MTU.
    pub(super) const fn current_bytes(&self) -> u16 {
        self.current
    }

    /// What the SYN says that this end takes.
    pub(super) const fn own_mss_bytes(&self) -> u16 {
        self.current - self.overhead
    }

    /// What the peer takes.
    #[inline]
    pub(super) const fn peer_mss_bytes(&self) -> u16 {
        self.peer_mss
    }

    /// Sender maximum segment size without options.
    #[inline]
    pub(super) fn mss_bytes(&self) -> u16 {
        self.peer_mss.min(self.current - self.overhead)
    }

    /// The same at the size that a probe asks for.
    pub(super) fn larger_mss_bytes(&self) -> u16 {
        let size = self.before_suspicion.unwrap_or(self.configured);
        self.peer_mss.min(size - self.overhead)
    }

    /// The peer's SYN came, and said this of what it takes.
    pub(super) fn handle_syn(&mut self, mss: Option<u16>) {
        if let Some(mss) = mss {
            self.peer_mss = mss.max(64);
        }
    }

    // ---- down

    /// Believes a smaller MTU; never one below the least.
    pub(super) fn lower_to(&mut self, mtu: u16) -> bool {
        let mtu = mtu.max(self.least);
        let lower = mtu < self.current;
        if lower {
            self.current = mtu;
        }
        lower
    }

    /// Segments of this size vanish, it seems: one step down. False if there is none.
    pub(super) fn suspect(&mut self) -> bool {
        let before = self.current;
        let next = PLATEAUS.into_iter().find(|step| *step < before && *step >= self.least);
        let is_lower = next.is_some_and(|mtu| self.lower_to(mtu));
        if is_lower {
            self.before_suspicion.get_or_insert(before);
        }
        is_lower
    }

    /// It was lowered just now.
    pub(super) fn handle_lowered(&mut self, now: Instant) {
        self.lowered_at = now;
        self.probe = None;
    }

    /// The path does not take the larger size: for a while nothing asks again.
    pub(super) fn confirm(&mut self, now: Instant) {
        self.handle_lowered(now);
        self.before_suspicion = None;
    }

    // ---- up

    /// To where it was before a suspicion, or to what is configured.
    pub(super) fn raise(&mut self, now: Instant) {
        self.current = self.before_suspicion.take().unwrap_or(self.configured);
        self.lowered_at = if self.current < self.configured { now } else { Instant::ZERO };
        self.probe = None;
        self.probe_timed_out = false;
    }

    /// It was lowered because of timeouts, and whether they were right is open.
    #[inline]
    pub(super) const fn is_suspected(&self) -> bool {
        self.before_suspicion.is_some()
    }

    /// It is lower than it may be, and time to ask whether the path takes more.
    #[inline]
    pub(super) fn should_ask(&self, now: Instant) -> bool {
        self.lowered_at != Instant::ZERO && (self.is_suspected() || now.since(self.lowered_at) >= RAISE_AFTER)
    }

    // ---- the probe

    /// A probe is out.
    pub(super) const fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// A probe leaves that covers these positions.
    pub(super) fn handle_probe(&mut self, start: u64, end: u64) {
        // A segment has at most 65 535 bytes, and a probe at least one.
        let len_bytes = u16::try_from(end - start).ok().and_then(NonZeroU16::new);
        self.probe = len_bytes.map(|len_bytes| Probe { start, len_bytes });
    }

    /// Where the probe begins.
    #[inline]
    pub(super) fn probe_start(&self) -> Option<u64> {
        self.probe.map(|probe| probe.start)
    }

    /// Everything before `una` was acknowledged, and the probe with it, which was never taken for lost.
    #[inline]
    pub(super) fn is_probe_acked(&self, una: u64) -> bool {
        self.probe.is_some_and(|probe| una >= probe.start + u64::from(probe.len_bytes.get()))
    }

    /// A timeout with the probe outstanding: its size is too large, or the path is gone again.
    pub(super) fn handle_timeout(&mut self) {
        self.probe_timed_out |= self.probe.take().is_some();
    }

    /// Something is acknowledged after so many timeouts. What was sent at the first of them in the probe's place arrived: so it
    /// was the size. Otherwise the path was gone, and the size is still in question.
    pub(super) fn handle_answer(&mut self, now: Instant, timeouts: u8) {
        if core::mem::take(&mut self.probe_timed_out) && timeouts == 1 {
            self.confirm(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspicion_is_asked_about_at_once_and_a_report_after_ten_minutes() {
        let now = Instant::from_secs(1);
        let mut mtu = PathMtu::new(1500, 552, false);
        assert!(!mtu.should_ask(now));
        assert!(mtu.lower_to(1400));
        mtu.handle_lowered(now);
        assert!(!mtu.should_ask(now) && mtu.should_ask(now + RAISE_AFTER));
        assert!(mtu.suspect());
        mtu.handle_lowered(now);
        assert!(mtu.should_ask(now));
        mtu.handle_syn(Some(9000));
        assert_eq!((mtu.mss_bytes(), mtu.larger_mss_bytes()), (1240, 1360));
        mtu.raise(now);
        assert_eq!((mtu.mss_bytes(), mtu.larger_mss_bytes()), (1360, 1460));
    }

    #[test]
    fn only_the_first_timeout_of_a_probe_speaks_against_its_size() {
        for (timeouts, is_suspected) in [(1, false), (2, true)] {
            let now = Instant::from_secs(1);
            let mut mtu = PathMtu::new(1500, 552, false);
            assert!(mtu.suspect());
            mtu.handle_lowered(now);
            mtu.handle_probe(100, 1560);
            assert!(!mtu.is_probe_acked(1559) && mtu.is_probe_acked(1560));
            mtu.handle_timeout();
            assert!(!mtu.is_probing());
            mtu.handle_answer(now, timeouts);
            assert_eq!(mtu.is_suspected(), is_suspected);
        }
    }

    #[test]
    fn no_step_goes_below_the_least() {
        let mut mtu = PathMtu::new(1500, 1000, true);
        assert!(mtu.suspect());
        assert_eq!(mtu.current_bytes(), 1280, "IPv6 promises as much");
        assert!(!mtu.suspect() && !mtu.lower_to(600));
        assert_eq!(mtu.own_mss_bytes(), 1220);
    }
}
