//! Path MTU: what ICMP says, and what silence says (RFC 4821 §7.7).

use core::fmt::Debug;

use polypath_units::{Duration, Instant};
use polypath_wire::Packet;

use super::Connection;
use crate::extension::Extension;

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
    /// The one segment of the configured size that asks whether the path takes such again.
    probe: Option<Probe>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    start: u64,
    end: u64,
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
            probe: None,
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
            self.mtu.suspected = true;
            self.rtt.reset_backoff();
            self.segment_size_fell(now);
        }
    }

    /// Payload of a probe, if one is due (RFC 4821 §7.3, §7.4): a single larger segment, so that its loss costs no more than
    /// any other and is repaired alike.
    #[inline]
    pub(super) fn mtu_probe_payload<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        segment_bytes: u64,
        room: u64,
        ext: &X,
    ) -> Option<u64> {
        if self.mtu.lowered_at == Instant::ZERO || now.since(self.mtu.lowered_at) < RAISE_AFTER {
            return None;
        }
        let larger = self.peer_mss.min(self.mtu.configured - self.mtu.overhead);
        let options = ext.data_option_bytes() as u64 + if self.timestamps { 12 } else { 0 };
        let payload = u64::from(larger).saturating_sub(options);
        let by_peer = self.window_end.saturating_sub(self.next);
        // Enough behind it for its loss to show without a timeout.
        let ahead = payload + 4 * segment_bytes;
        let possible = self.mtu.probe.is_none()
            && !self.recovery.is_active()
            && payload > segment_bytes
            && ahead <= room.min(by_peer).min(self.unsent_bytes())
            && self.queue.contiguous_bytes(self.next - 1) >= payload;
        possible.then_some(payload)
    }

    pub(super) fn transmit_mtu_probe<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        payload: u64,
        ext: &mut X,
    ) -> Option<Packet> {
        let start = self.next;
        let packet = self.send_stretch(now, start, payload, false, payload, ext);
        self.mtu.probe = Some(Probe { start, end: start + payload });
        packet
    }

    /// The probe was acknowledged and never taken for lost: the path takes that size.
    #[inline]
    pub(super) fn follow_mtu_probe(&mut self) {
        if self.mtu.probe.is_some_and(|probe| self.una >= probe.end) {
            self.raise_mtu();
        }
    }

    /// The probe is lost: the path still does not take that size. That is no congestion; returns what else was lost.
    pub(super) fn excuse_mtu_probe(&mut self, now: Instant, lost_bytes: u64) -> u64 {
        let Some(probe) = self.mtu.probe else { return lost_bytes };
        let Some(bytes) = self.board.waits_at(probe.start) else { return lost_bytes };
        self.mtu.probe = None;
        self.mtu.lowered_at = now;
        lost_bytes.saturating_sub(bytes)
    }

    fn raise_mtu(&mut self) {
        self.mtu.current = self.mtu.configured;
        self.mtu.lowered_at = Instant::ZERO;
        self.mtu.suspected = false;
        self.mtu.probe = None;
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
    pub(super) fn segment_size_fell(&mut self, now: Instant) {
        self.mtu.lowered_at = now;
        self.mtu.probe = None;
        self.controller.on_mss(self.mss_bytes());
        self.events.mtu_changed = true;
        self.board.mark_longer_lost(u64::from(self.mss_bytes()));
    }
}
