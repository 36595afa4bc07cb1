//! Losses: RACK (RFC 8985), recovery with proportional rate reduction (RFC 9937), NewReno without SACK (RFC 6582), and undo
//! by Eifel (RFC 3522) and DSACK (RFC 3708).

use core::fmt::Debug;

use polypath_units::{Duration, Instant};
use polypath_wire::Segment;

use super::Connection;
use super::timers::RetransmitKind;
use crate::extension::Extension;
use crate::scoreboard::{Flags, Newly, Sent};

/// Duplicate acknowledgments that mean loss where nothing better is known.
const DUPLICATE_THRESHOLD: u32 = 3;

/// Recoveries for which a widened reordering window holds (RFC 8985 §6.2).
const REORDERING_PERSIST: u8 = 16;

/// RACK's reordering window grows by quarters of the least round-trip time, up to this many (RFC 8985 §6.2).
const MAX_REORDERING_QUARTERS: u8 = 16;

/// State of loss recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    pub(super) phase: Phase,
    /// RACK's reference: the latest-sent piece that is known delivered.
    rack_at: Instant,
    rack_end: u64,
    rack_rtt: Duration,
    reordering_seen: bool,
    reordering_quarters: u8,
    /// Recoveries left with the widened window (RFC 8985 §6.2: sixteen).
    reordering_persist: u8,
    /// DSACKs widen it once a round trip: again from when this position is acknowledged.
    dsack_round_end: u64,
    pub(super) prr: Prr,
    duplicates: u32,
    /// Selectively acknowledged by duplicate acknowledgments, which do not grow the window (RFC 5681 §3.2): the next that
    /// advances does, for them as well.
    pub(super) deferred_bytes: u64,
    /// The episode began with nothing resent in flight, so that its acknowledgments can be told from older ones'.
    pub(super) may_undo: bool,
    /// Timestamp of the first retransmission of the episode: an echo older than it proves that it was spurious.
    pub(super) first_resend_ms: Option<u32>,
    /// Retransmissions of the episode that no DSACK has reported yet. Kept after its end, as the last of them often
    /// comes later (RFC 3708).
    pub(super) undo_left: Option<u32>,
    /// What was outstanding in the episode.
    pub(super) undo_range: (u64, u64),
    /// End of what a tail loss probe covers.
    pub(super) tail_probe_end: Option<u64>,
    pub(super) tail_probe_resent: bool,
    pub(super) frto: Frto,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Open,
    /// Fast recovery until this position is acknowledged.
    Fast { until: u64 },
    /// After a timeout at `since`, until this position is acknowledged: what had not left by then is behind it.
    Timeout { until: u64, since: Instant },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Frto {
    #[default]
    Off,
    /// The first segment was retransmitted; the next acknowledgment tells more.
    Resent,
    /// It advanced: two new segments may leave, and the acknowledgment after decides.
    SentNew,
}

/// Proportional rate reduction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prr {
    delivered: u64,
    pub(super) out: u64,
    flight_at_start: u64,
    /// Pipe plus what may leave now.
    window: u64,
}

impl Recovery {
    pub(super) fn is_active(&self) -> bool {
        self.phase != Phase::Open
    }

    pub(super) fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }

    pub(super) fn may_probe_tail(&self) -> bool {
        self.phase == Phase::Open && self.tail_probe_end.is_none()
    }

    pub(super) fn note_sent(&mut self, bytes: u64) {
        self.prr.out += bytes;
    }

    pub(super) fn note_resent(&mut self, now_ms: u32) {
        self.first_resend_ms.get_or_insert(now_ms);
        if let Some(left) = &mut self.undo_left {
            *left += 1;
        }
    }
}

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// The window that holds now: congestion control's, or PRR's during fast recovery.
    #[inline]
    pub(super) fn send_window_bytes(&self) -> u64 {
        match self.recovery.phase {
            Phase::Fast { .. } if !self.controller.steers_recovery() => self.recovery.prr.window,
            // What else is in flight may have been lost, so it does not hold back the one segment that tells.
            Phase::Timeout { .. } if self.recovery.frto == Frto::Resent => {
                self.in_flight_bytes() + u64::from(self.mss_bytes()).saturating_sub(self.recovery.prr.out)
            }
            Phase::Timeout { .. } if self.recovery.frto == Frto::SentNew => {
                self.in_flight_bytes()
                    + (2 * u64::from(self.mss_bytes())).saturating_sub(self.recovery.prr.out)
            }
            // Limited transmit (RFC 3042): with SACK, what is in flight shrinks instead.
            Phase::Open if !self.handshake.has_sack() => {
                let segments = self.recovery.duplicates.min(DUPLICATE_THRESHOLD - 1);
                self.controller.window_bytes() + u64::from(segments * self.mss_bytes())
            }
            _ => self.controller.window_bytes(),
        }
    }

    /// What an acknowledgment of `newly_bytes` grows the window by.
    pub(super) fn growing_bytes(&mut self, newly_bytes: u64, advanced: bool) -> u64 {
        if self.controller.needs_rate_samples() {
            // Measures what is delivered, in whatever order.
            return newly_bytes;
        }
        self.recovery.deferred_bytes += newly_bytes;
        if advanced { core::mem::take(&mut self.recovery.deferred_bytes) } else { 0 }
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one acknowledgment seen from all sides; called from one place"
    )]
    #[inline]
    pub(super) fn after_acknowledgment<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        segment: &Segment,
        newly: &Newly,
        in_flight: u64,
        advanced: bool,
        pure_duplicate: bool,
        dsack: Option<(u64, u64)>,
        ext: &mut X,
    ) {
        if let Some(latest) = newly.latest {
            self.update_rack(now, segment, &latest, newly.reordered);
        }
        let duplicate_sack = dsack.is_some();
        let mut by_probe = false;
        if self.recovery.tail_probe_end.is_some() && (advanced || duplicate_sack) {
            by_probe = self.recovery.tail_probe_resent;
            self.tail_probe_acknowledged(now, in_flight, duplicate_sack, ext);
        }
        let trouble = self.recovery.phase != Phase::Open
            || self.send.board().sacked_bytes() > 0
            || pure_duplicate
            || duplicate_sack;
        if !trouble {
            self.recovery.duplicates = 0;
            self.grow_window(now, newly, in_flight, advanced, ext);
            return;
        }
        if let Some(range) = dsack
            && self.undone_by_dsack(range, by_probe)
        {
            self.undo(now);
        }
        if advanced
            && self.is_spurious_by_timestamp(segment)
            && !self.answers_from_before_an_outage(now, segment)
        {
            self.undo(now);
        }
        self.follow_frto(now, newly, advanced);
        self.leave_recovery(now, advanced);
        let lost = self.find_losses(now, advanced, pure_duplicate);
        self.enter_or_continue(now, newly, in_flight, lost, advanced, ext);
    }

    // ---- detection

    fn update_rack(&mut self, now: Instant, segment: &Segment, latest: &Sent, reordered: bool) {
        self.recovery.reordering_seen |= reordered;
        let rtt = now.since(latest.at);
        // Was it the original that arrived, after the retransmission had left? (RFC 8985 §6.2, step 2)
        if latest.flags.has(Flags::EVER_RESENT) {
            let echo = segment.options.timestamps.map_or(0, |timestamps| timestamps.echo);
            let by_original = self.timestamps.is_on()
                && echo != 0
                && (echo.wrapping_sub(self.timestamps.clock(latest.at)) as i32) < 0;
            if by_original || rtt < self.rtt.min() {
                return;
            }
        }
        let recovery = &mut self.recovery;
        if (latest.at, latest.end()) > (recovery.rack_at, recovery.rack_end) {
            recovery.rack_at = latest.at;
            recovery.rack_end = latest.end();
        }
        recovery.rack_rtt = rtt;
    }

    /// RFC 8985 §6.2, step 4.
    fn reordering_window(&self) -> Duration {
        let recovery = &self.recovery;
        if !recovery.reordering_seen && (recovery.is_active() || self.many_sacked()) {
            return Duration::ZERO;
        }
        let quarters = 1 + u64::from(recovery.reordering_quarters);
        Duration::from_nanos(self.rtt.min().as_nanos() / 4 * quarters).min(self.rtt.srtt())
    }

    /// As many segments as duplicate acknowledgments would have been enough. An aggregate is one piece, but more bytes.
    fn many_sacked(&self) -> bool {
        self.send.board().sacked_pieces() >= DUPLICATE_THRESHOLD
            || self.send.board().sacked_bytes() >= u64::from(DUPLICATE_THRESHOLD * self.mss_bytes())
    }

    fn find_losses(&mut self, now: Instant, advanced: bool, pure_duplicate: bool) -> u64 {
        if !self.handshake.has_sack() {
            return self.find_losses_without_sack(advanced, pure_duplicate);
        }
        let window = self.recovery.rack_rtt + self.reordering_window();
        let reference = (self.recovery.rack_at, self.recovery.rack_end);
        let (lost, again) = self.send.board_mut().detect_losses(now, reference, window);
        if let Some(at) = again {
            self.timers.retransmit = at.max(now + Duration::from_micros(1));
            self.timers.retransmit_kind = RetransmitKind::Reordering;
        } else if self.timers.retransmit_kind == RetransmitKind::Reordering {
            self.timers.retransmit = Instant::FAR_FUTURE;
            self.arm_retransmit(now, true);
        }
        self.delivery.count_lost(lost);
        let beside_probe = self.excuse_mtu_probe(now, lost);
        if self.recovery.is_active() { lost } else { beside_probe }
    }

    fn find_losses_without_sack(&mut self, advanced: bool, pure_duplicate: bool) -> u64 {
        let mss = u64::from(self.mss_bytes());
        if advanced {
            self.recovery.duplicates = 0;
            // A partial acknowledgment: the next hole is lost as well (RFC 6582 §3.2, step 3).
            if matches!(self.recovery.phase, Phase::Fast { .. }) {
                return self.send.board_mut().mark_front_lost(mss);
            }
            return 0;
        }
        if !pure_duplicate || self.send.is_idle() {
            return 0;
        }
        self.recovery.duplicates += 1;
        if self.recovery.duplicates == DUPLICATE_THRESHOLD && self.recovery.phase == Phase::Open {
            return self.send.board_mut().mark_front_lost(mss);
        }
        0
    }

    pub(super) fn look_for_losses<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &mut X) {
        let in_flight = self.in_flight_bytes();
        let newly = Newly::default();
        let lost = self.find_losses(now, false, false);
        self.enter_or_continue(now, &newly, in_flight, lost, false, ext);
        self.arm_retransmit(now, false);
    }

    // ---- fast recovery

    fn enter_or_continue<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        newly: &Newly,
        in_flight: u64,
        lost: u64,
        advanced: bool,
        ext: &mut X,
    ) {
        match self.recovery.phase {
            Phase::Open if lost > 0 => self.enter_fast_recovery(now, in_flight, ext),
            Phase::Open | Phase::Timeout { .. } => {
                return self.grow_window(now, newly, in_flight, advanced, ext);
            }
            Phase::Fast { .. } => {}
        }
        if self.controller.steers_recovery() {
            self.grow_window(now, newly, in_flight, advanced, ext);
        }
        self.reduce_in_proportion(newly.bytes, advanced && lost == 0);
    }

    fn enter_fast_recovery<X: Extension<Mapping = M>>(&mut self, now: Instant, in_flight: u64, ext: &mut X) {
        let own = self.flow_view();
        // What limited transmit sent beyond the window does not count (RFC 5681 §3.2, step 2).
        let counted = if self.handshake.has_sack() { in_flight } else { in_flight.min(own.window_bytes) };
        self.controller.on_congestion(now, counted, &ext.flows(&own));
        self.recovery.deferred_bytes = 0;
        self.delivery.end_loss_interval();
        self.totals.recoveries += 1;
        // What the last episode resent and is still on its way would look like this one's original.
        let clean = !self.send.board().has_resent();
        let recovery = &mut self.recovery;
        recovery.phase = Phase::Fast { until: self.send.next() };
        recovery.prr = Prr { flight_at_start: in_flight.max(1), ..Prr::default() };
        recovery.may_undo = clean;
        recovery.first_resend_ms = None;
        recovery.undo_left = clean.then_some(0);
        recovery.undo_range = (self.send.una(), self.send.next());
        recovery.tail_probe_end = None;
        if self.timers.retransmit_kind == RetransmitKind::TailProbe {
            // No probes in recovery (RFC 8985 §7.2).
            self.timers.retransmit_kind = RetransmitKind::Timeout;
            self.timers.retransmit = now + self.rtt.rto();
        }
    }

    /// Proportional rate reduction (RFC 9937 §6): slow start's bound only while acknowledgments advance and nothing new is lost.
    fn reduce_in_proportion(&mut self, delivered: u64, safe: bool) {
        let mss = u64::from(self.mss_bytes());
        let pipe = self.in_flight_bytes();
        let target = self.controller.window_bytes();
        // Without SACK a duplicate acknowledgment stands for a delivered segment.
        let delivered = if delivered == 0 && !self.handshake.has_sack() { mss } else { delivered };
        let prr = &mut self.recovery.prr;
        prr.delivered += delivered;
        let quota = if pipe > target {
            prr.delivered.saturating_mul(target).div_ceil(prr.flight_at_start).saturating_sub(prr.out)
        } else {
            let mut limit = prr.delivered.saturating_sub(prr.out).max(delivered);
            if safe {
                limit += mss;
            }
            limit.min(target - pipe)
        };
        // The first retransmission always leaves at once.
        let quota = if prr.out == 0 { quota.max(mss) } else { quota };
        prr.window = pipe + quota;
    }

    fn leave_recovery(&mut self, now: Instant, advanced: bool) {
        let until = match self.recovery.phase {
            Phase::Open => return,
            Phase::Fast { until } | Phase::Timeout { until, .. } => until,
        };
        // Without SACK, wait until something beyond is acknowledged, lest old duplicates start it again (RFC 6582 §4).
        if !advanced || self.send.una() < until {
            return;
        }
        self.recovery.phase = Phase::Open;
        self.recovery.frto = Frto::Off;
        self.recovery.duplicates = 0;
        self.recovery.first_resend_ms = None;
        if self.recovery.reordering_persist > 0 {
            self.recovery.reordering_persist -= 1;
            if self.recovery.reordering_persist == 0 {
                self.recovery.reordering_quarters = 0;
            }
        }
        self.controller.on_recovery_end(now);
    }

    // ---- undo

    /// An acknowledgment of something sent before a silence of more than one timeout: the path was gone in between. The time
    /// that it took says nothing of the round trip, nor that what else was in flight is still there.
    pub(super) fn answers_from_before_an_outage(&self, now: Instant, segment: &Segment) -> bool {
        let (Phase::Timeout { .. }, Some(resent), Some(timestamps)) =
            (self.recovery.phase, self.recovery.first_resend_ms, segment.options.timestamps)
        else {
            return false;
        };
        let since = Duration::from_millis(u64::from(self.timestamps.elapsed_ms(now, resent)));
        (timestamps.echo.wrapping_sub(resent) as i32) < 0 && since > self.rtt.rto() * 2
    }

    /// An acknowledgment that echoes a timestamp from before the first retransmission answers the original.
    fn is_spurious_by_timestamp(&self, segment: &Segment) -> bool {
        let (Some(resent), Some(timestamps)) = (self.recovery.first_resend_ms, segment.options.timestamps)
        else {
            return false;
        };
        self.recovery.is_active()
            && self.recovery.may_undo
            && self.timestamps.is_on()
            && timestamps.echo != 0
            && (timestamps.echo.wrapping_sub(resent) as i32) < 0
    }

    /// True if every retransmission of the last episode has been reported as a duplicate (RFC 3708).
    fn undone_by_dsack(&mut self, (start, end): (u64, u64), by_probe: bool) -> bool {
        if self.totals.dsacks > self.totals.retransmits {
            // The network duplicates by itself, and its reports prove nothing (RFC 3708 §3).
            return false;
        }
        let (una, next) = (self.send.una(), self.send.next());
        let recovery = &mut self.recovery;
        // It says that the reordering window was too small (RFC 8985 §6.2, step 4), unless it answers a tail loss probe.
        if !by_probe {
            recovery.reordering_seen = true;
            recovery.reordering_persist = REORDERING_PERSIST;
            if una >= recovery.dsack_round_end {
                recovery.dsack_round_end = next;
                recovery.reordering_quarters =
                    (recovery.reordering_quarters + 1).min(MAX_REORDERING_QUARTERS);
            }
        }
        let (from, until) = recovery.undo_range;
        match &mut recovery.undo_left {
            Some(left) if *left > 0 && start >= from && end <= until => {
                *left -= 1;
                *left == 0
            }
            _ => false,
        }
    }

    pub(super) fn undo(&mut self, now: Instant) {
        self.totals.spurious += 1;
        self.withdraw_suspicion(now);
        if self.recovery.is_active() {
            self.send.board_mut().unmark_lost();
        }
        self.controller.on_spurious(now);
        self.recovery.phase = Phase::Open;
        self.recovery.frto = Frto::Off;
        self.recovery.first_resend_ms = None;
        self.recovery.undo_left = None;
    }
}
