//! Path MTU: what ICMP says, and what silence says (RFC 4821 §7.7).
//!
//! Silence may also be an outage of the path. Which of both it was shows once something is acknowledged again: then one segment
//! of the size that was in use before asks, and if it arrives, that size is back (RFC 8899 §4.3: from the base size the search
//! starts anew).

use core::fmt::Debug;

use polypath_units::{Duration, Instant};
use polypath_wire::Packet;

use super::{Connection, Event};
use crate::extension::Extension;

/// Sizes that links have, as steps down when full-sized segments vanish (RFC 1191 §7.1).
const PLATEAUS: [u16; 6] = [9000, 4352, 1500, 1280, 1006, 552];

/// After so many timeouts in a row of full-sized segments their size is suspected.
const BLACK_HOLE_TIMEOUTS: u8 = 3;

/// How long a lowered MTU is kept before the larger one is tried again (RFC 1981 §4: ten minutes).
const RAISE_AFTER: Duration = Duration::from_secs(600);

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
    end: u64,
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

    pub(super) fn current_bytes(&self) -> u16 {
        self.current
    }

    /// What the SYN says that this end takes.
    pub(super) fn own_mss_bytes(&self) -> u16 {
        self.current - self.overhead
    }

    /// What the peer takes.
    #[inline]
    pub(super) fn peer_mss_bytes(&self) -> u16 {
        self.peer_mss
    }

    /// Sender maximum segment size without options.
    #[inline]
    pub(super) fn mss_bytes(&self) -> u16 {
        self.peer_mss.min(self.current - self.overhead)
    }

    /// The peer's SYN came, and said this of what it takes.
    pub(super) fn handle_syn(&mut self, mss: Option<u16>) {
        if let Some(mss) = mss {
            self.peer_mss = mss.max(64);
        }
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
        let probing = self.config.mtu_probing && self.stall.timeouts().is_multiple_of(BLACK_HOLE_TIMEOUTS);
        let full =
            self.send.board().front().is_some_and(|front| front.len() + 64 > u64::from(self.mss_bytes()));
        let before = self.mtu.current;
        if probing && full && self.mtu.step_down() {
            self.mtu.before_suspicion.get_or_insert(before);
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
        if self.mtu.lowered_at == Instant::ZERO {
            return None;
        }
        let is_suspected = self.mtu.before_suspicion.is_some();
        if !is_suspected && now.since(self.mtu.lowered_at) < RAISE_AFTER {
            return None;
        }
        let payload = self.larger_payload_bytes(self.send.next(), ext);
        let by_peer = self.send.window_room_bytes();
        // Enough behind it for its loss to show without a timeout; the small segments of a suspicion are worth more than that.
        let ahead = if is_suspected { payload } else { payload + 4 * segment_bytes };
        let possible = self.mtu.probe.is_none()
            && !self.recovery.is_active()
            && payload > segment_bytes
            && ahead <= room.min(by_peer).min(self.unsent_bytes())
            && self.send.contiguous_bytes(self.send.next()) >= payload;
        possible.then_some(payload)
    }

    /// Payload of a segment of the size that a probe asks for, with data from `position` on.
    fn larger_payload_bytes<X: Extension<Mapping = M>>(&mut self, position: u64, ext: &X) -> u64 {
        let size = self.mtu.before_suspicion.unwrap_or(self.mtu.configured);
        let option_bytes = self.option_bytes_at(position, ext);
        let options = self.padded_option_bytes(option_bytes) as u64;
        u64::from(self.mtu.peer_mss.min(size - self.mtu.overhead)).saturating_sub(options)
    }

    /// How much of the piece of the scoreboard to send again that begins at `start`, once the path has answered after a suspicion:
    /// as much as left at once before it. There need not be other data that a probe could be made of.
    pub(super) fn mtu_probe_to_resend<X: Extension<Mapping = M>>(
        &mut self,
        start: u64,
        ext: &X,
    ) -> Option<u64> {
        self.mtu.before_suspicion?;
        let possible = self.mtu.probe.is_none() && self.stall.timeouts() == 0;
        let larger = self.larger_payload_bytes(start, ext);
        let whole = self.send.board().piece_bytes(start).min(self.send.contiguous_bytes(start));
        let count = whole.min(larger);
        if !possible || count + 64 <= larger || count <= self.segment_payload_bytes_at(start, ext) as u64 {
            return None;
        }
        self.mtu.probe = Some(Probe { start, end: start + count });
        Some(count)
    }

    pub(super) fn transmit_mtu_probe<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        payload: u64,
        ext: &mut X,
    ) -> Option<Packet> {
        let start = self.send.next();
        let packet = self.send_stretch(now, start, payload, false, payload, ext);
        self.mtu.probe = Some(Probe { start, end: start + payload });
        packet
    }

    /// The probe was acknowledged and never taken for lost: the path takes that size.
    #[inline]
    pub(super) fn follow_mtu_probe(&mut self, now: Instant) {
        if self.mtu.probe.is_some_and(|probe| self.send.una() >= probe.end) {
            self.raise_mtu(now);
        }
    }

    /// A timeout with the probe outstanding: its size is too large, or the path is gone again.
    pub(super) fn mtu_probe_timed_out(&mut self) {
        self.mtu.probe_timed_out |= self.mtu.probe.take().is_some();
    }

    /// Something is acknowledged after timeouts. What was sent at the first of them in the probe's place arrived: so it was the
    /// size. Otherwise the path was gone, and the size is still in question.
    pub(super) fn judge_mtu_probe(&mut self, now: Instant) {
        if core::mem::take(&mut self.mtu.probe_timed_out) && self.stall.timeouts() == 1 {
            self.confirm_lower_mtu(now);
        }
    }

    /// The path does not take the larger size: for a while nothing asks again.
    fn confirm_lower_mtu(&mut self, now: Instant) {
        self.mtu.probe = None;
        self.mtu.before_suspicion = None;
        self.mtu.lowered_at = now;
    }

    /// The probe is lost: the path still does not take that size. That is no congestion; returns what else was lost.
    pub(super) fn excuse_mtu_probe(&mut self, now: Instant, lost_bytes: u64) -> u64 {
        let Some(probe) = self.mtu.probe else { return lost_bytes };
        let Some(bytes) = self.send.board().waits_at(probe.start) else { return lost_bytes };
        self.confirm_lower_mtu(now);
        lost_bytes.saturating_sub(bytes)
    }

    /// To where it was before a suspicion, or to what is configured.
    fn raise_mtu(&mut self, now: Instant) {
        self.mtu.current = self.mtu.before_suspicion.take().unwrap_or(self.mtu.configured);
        self.mtu.lowered_at = if self.mtu.current < self.mtu.configured { now } else { Instant::ZERO };
        self.mtu.probe = None;
        self.mtu.probe_timed_out = false;
        self.controller.on_mss(self.mss_bytes());
        self.lifecycle.report(Event::MtuChanged);
    }

    /// The timeouts were spurious, and so was what they said of the MTU.
    pub(super) fn withdraw_suspicion(&mut self, now: Instant) {
        if self.mtu.before_suspicion.is_some() {
            self.raise_mtu(now);
        }
    }

    /// What was in flight at the old size is sent again at the new.
    pub(super) fn segment_size_fell(&mut self, now: Instant) {
        self.mtu.lowered_at = now;
        self.mtu.probe = None;
        self.controller.on_mss(self.mss_bytes());
        self.lifecycle.report(Event::MtuChanged);
        let most = u64::from(self.mss_bytes());
        self.send.board_mut().mark_longer_lost(most);
    }
}
