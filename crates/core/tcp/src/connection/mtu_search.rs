//! What changes the path MTU: what ICMP says, and what silence says (RFC 4821 §7.7).
//!
//! Silence may also be an outage of the path. Which of both it was shows once something is acknowledged again: then one segment
//! of the size that was in use before asks, and if it arrives, that size is back (RFC 8899 §4.3: from the base size the search
//! starts anew).

use core::fmt::Debug;

use polypath_units::Instant;
use polypath_wire::Packet;

use super::{Connection, Event};
use crate::extension::Extension;

/// After so many timeouts in a row of full-sized segments their size is suspected.
const BLACK_HOLE_TIMEOUTS: u8 = 3;

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// Called at each timeout: repeated loss of full-sized segments while nothing else is known points to a black hole.
    pub(super) fn suspect_black_hole(&mut self, now: Instant) {
        let probing = self.config.mtu_probing && self.stall.timeouts().is_multiple_of(BLACK_HOLE_TIMEOUTS);
        let most = u64::from(self.mss_bytes());
        let full = self.send.board().front().is_some_and(|front| front.len() + 64 > most);
        if probing && full && self.mtu.suspect() {
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
        if !self.mtu.should_ask(now) {
            return None;
        }
        let payload = self.larger_payload_bytes(self.send.next(), ext);
        let by_peer = self.send.window_room_bytes();
        // Enough behind it for its loss to show without a timeout; the small segments of a suspicion are worth more than that.
        let ahead = if self.mtu.is_suspected() { payload } else { payload + 4 * segment_bytes };
        let possible = !self.mtu.is_probing()
            && !self.recovery.is_active()
            && payload > segment_bytes
            && ahead <= room.min(by_peer).min(self.unsent_bytes())
            && self.send.contiguous_bytes(self.send.next()) >= payload;
        possible.then_some(payload)
    }

    /// Payload of a segment of the size that a probe asks for, with data from `position` on.
    fn larger_payload_bytes<X: Extension<Mapping = M>>(&mut self, position: u64, ext: &X) -> u64 {
        let option_bytes = self.option_bytes_at(position, ext);
        let options = self.padded_option_bytes(option_bytes) as u64;
        u64::from(self.mtu.larger_mss_bytes()).saturating_sub(options)
    }

    /// How much of the piece of the scoreboard to send again that begins at `start`, once the path has answered after a suspicion:
    /// as much as left at once before it. There need not be other data that a probe could be made of.
    pub(super) fn mtu_probe_to_resend<X: Extension<Mapping = M>>(
        &mut self,
        start: u64,
        ext: &X,
    ) -> Option<u64> {
        if !self.mtu.is_suspected() {
            return None;
        }
        let possible = !self.mtu.is_probing() && self.stall.timeouts() == 0;
        let larger = self.larger_payload_bytes(start, ext);
        let whole = self.send.board().piece_bytes(start).min(self.send.contiguous_bytes(start));
        let count = whole.min(larger);
        if !possible || count + 64 <= larger || count <= self.segment_payload_bytes_at(start, ext) as u64 {
            return None;
        }
        self.mtu.handle_probe(start, start + count);
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
        self.mtu.handle_probe(start, start + payload);
        packet
    }

    /// The probe was acknowledged: the path takes that size.
    #[inline]
    pub(super) fn follow_mtu_probe(&mut self, now: Instant) {
        if self.mtu.is_probe_acked(self.send.una()) {
            self.raise_mtu(now);
        }
    }

    /// The probe is lost: the path still does not take that size. That is no congestion; returns what else was lost.
    pub(super) fn excuse_mtu_probe(&mut self, now: Instant, lost_bytes: u64) -> u64 {
        let Some(start) = self.mtu.probe_start() else { return lost_bytes };
        let Some(bytes) = self.send.board().waits_at(start) else { return lost_bytes };
        self.mtu.confirm(now);
        lost_bytes.saturating_sub(bytes)
    }

    fn raise_mtu(&mut self, now: Instant) {
        self.mtu.raise(now);
        self.controller.on_mss(self.mss_bytes());
        self.lifecycle.report(Event::MtuChanged);
    }

    /// The timeouts were spurious, and so was what they said of the MTU.
    pub(super) fn withdraw_suspicion(&mut self, now: Instant) {
        if self.mtu.is_suspected() {
            self.raise_mtu(now);
        }
    }

    /// What was in flight at the old size is sent again at the new.
    pub(super) fn segment_size_fell(&mut self, now: Instant) {
        self.mtu.handle_lowered(now);
        self.controller.on_mss(self.mss_bytes());
        self.lifecycle.report(Event::MtuChanged);
        let most = u64::from(self.mss_bytes());
        self.send.lose_longer(most);
    }
}
