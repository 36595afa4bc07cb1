//! Losses: RACK-TLP (RFC 8985), recovery with proportional rate reduction (RFC 6937), NewReno without SACK (RFC 6582),
//! timeouts with F-RTO (RFC 5682), and undo by Eifel (RFC 3522) and DSACK (RFC 3708).

use core::fmt::Debug;

use polypath_units::{Duration, Instant};
use polypath_wire::Segment;

use super::timers::RetransmitKind;
use super::{CloseReason, Connection, State};
use crate::extension::Extension;
use crate::scoreboard::{Newly, Sent};

/// Duplicate acknowledgments that mean loss where nothing better is known.
const DUPLICATE_THRESHOLD: u32 = 3;

/// RACK's reordering window grows by quarters of the least round-trip time, up to this many (RFC 8985 §6.2).
const MAX_REORDERING_QUARTERS: u64 = 16;

/// State of loss recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    phase: Phase,
    /// RACK's reference: the latest-sent piece that is known delivered.
    rack_at: Instant,
    rack_end: u64,
    rack_rtt: Duration,
    reordering_seen: bool,
    reordering_quarters: u64,
    /// Recoveries left with the widened window (RFC 8985 §6.2: sixteen).
    reordering_persist: u8,
    prr: Prr,
    duplicates: u32,
    /// The episode began with nothing resent in flight, so that its acknowledgments can be told from older ones'.
    may_undo: bool,
    /// Timestamp of the first retransmission of the episode: an echo older than it proves that it was spurious.
    first_resend_ms: Option<u32>,
    /// Retransmissions of the episode that no DSACK has reported yet.
    undo_left: Option<u32>,
    /// End of what a tail loss probe covers.
    tail_probe_end: Option<u64>,
    tail_probe_resent: bool,
    frto: Frto,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// Fast recovery until this position is acknowledged.
    Fast { until: u64 },
    /// After a timeout, until this position is acknowledged.
    Timeout { until: u64 },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Frto {
    #[default]
    Off,
    /// The first segment was retransmitted; the next acknowledgment tells more.
    Resent,
    /// It advanced: two new segments may leave, and the acknowledgment after decides.
    SentNew,
}

/// Proportional rate reduction.
#[derive(Clone, Copy, Debug, Default)]
struct Prr {
    delivered: u64,
    out: u64,
    flight_at_start: u64,
    /// Pipe plus what may leave now.
    window: u64,
}

impl Recovery {
    pub(super) fn is_active(&self) -> bool {
        self.phase != Phase::Open
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
            Phase::Timeout { .. } if self.recovery.frto == Frto::SentNew => {
                self.in_flight_bytes() + 2 * u64::from(self.mss_bytes()).saturating_sub(self.recovery.prr.out)
            }
            _ => self.controller.window_bytes(),
        }
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
        duplicate_sack: bool,
        ext: &mut X,
    ) {
        if let Some(latest) = newly.latest {
            self.update_rack(now, &latest, newly.reordered);
        }
        if self.recovery.tail_probe_end.is_some() && (advanced || duplicate_sack) {
            self.tail_probe_acknowledged(now, in_flight, duplicate_sack, ext);
        }
        let trouble = self.recovery.phase != Phase::Open
            || self.board.sacked_bytes() > 0
            || pure_duplicate
            || duplicate_sack;
        if !trouble {
            self.recovery.duplicates = 0;
            self.grow_window(now, newly, in_flight, ext);
            return;
        }
        if duplicate_sack && self.undone_by_dsack(now) {
            self.undo(now);
        }
        if advanced && self.is_spurious_by_timestamp(segment) {
            self.undo(now);
        }
        self.follow_frto(now, newly, advanced);
        self.leave_recovery(now, advanced);
        let lost = self.find_losses(now, newly, advanced, pure_duplicate);
        self.enter_or_continue(now, newly, in_flight, lost, ext);
    }

    // ---- detection

    fn update_rack(&mut self, now: Instant, latest: &Sent, reordered: bool) {
        let recovery = &mut self.recovery;
        let rtt = now.since(latest.at);
        // A retransmission acknowledged sooner than any round trip: it was the original that arrived (RFC 8985 §6.2, 2).
        let resent = latest.flags.has(crate::scoreboard::Flags::EVER_RESENT);
        if resent && rtt < self.rtt.min() {
            return;
        }
        if (latest.at, latest.end) > (recovery.rack_at, recovery.rack_end) {
            recovery.rack_at = latest.at;
            recovery.rack_end = latest.end;
            recovery.rack_rtt = rtt;
        }
        recovery.reordering_seen |= reordered;
    }

    /// RFC 8985 §6.2, step 4.
    fn reordering_window(&self) -> Duration {
        let recovery = &self.recovery;
        if !recovery.reordering_seen
            && (recovery.is_active() || self.board.sacked_pieces() >= DUPLICATE_THRESHOLD)
        {
            return Duration::ZERO;
        }
        let quarters = 1 + recovery.reordering_quarters;
        Duration::from_nanos(self.rtt.min().as_nanos() / 4 * quarters).min(self.rtt.srtt())
    }

    fn find_losses(&mut self, now: Instant, newly: &Newly, advanced: bool, pure_duplicate: bool) -> u64 {
        if !self.sack {
            return self.find_losses_without_sack(advanced, pure_duplicate);
        }
        let _ = newly;
        if self.board.sacked_bytes() == 0 && !self.board.has_resent() {
            return 0;
        }
        let window = self.recovery.rack_rtt + self.reordering_window();
        let reference = (self.recovery.rack_at, self.recovery.rack_end);
        let (lost, again) = self.board.detect_losses(now, reference, window);
        if let Some(at) = again {
            self.timers.retransmit = at.max(now + Duration::from_micros(1));
            self.timers.retransmit_kind = RetransmitKind::Reordering;
        } else if self.timers.retransmit_kind == RetransmitKind::Reordering {
            self.timers.retransmit = Instant::FAR_FUTURE;
            self.arm_retransmit(now, true);
        }
        self.delivery.lost += lost;
        lost
    }

    fn find_losses_without_sack(&mut self, advanced: bool, pure_duplicate: bool) -> u64 {
        if advanced {
            self.recovery.duplicates = 0;
            // A partial acknowledgment: the next hole is lost as well (RFC 6582 §3.2, step 3).
            if matches!(self.recovery.phase, Phase::Fast { .. }) {
                return self.board.mark_front_lost(u64::from(self.mss_bytes()));
            }
            return 0;
        }
        if !pure_duplicate || self.una == self.next {
            return 0;
        }
        self.recovery.duplicates += 1;
        if self.recovery.duplicates == DUPLICATE_THRESHOLD && self.recovery.phase == Phase::Open {
            return self.board.mark_front_lost(u64::from(self.mss_bytes()));
        }
        0
    }

    pub(super) fn look_for_losses<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &mut X) {
        let in_flight = self.in_flight_bytes();
        let newly = Newly::default();
        let lost = self.find_losses(now, &newly, false, false);
        self.enter_or_continue(now, &newly, in_flight, lost, ext);
        self.arm_retransmit(now, false);
    }

    // ---- fast recovery

    fn enter_or_continue<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        newly: &Newly,
        in_flight: u64,
        lost: u64,
        ext: &mut X,
    ) {
        match self.recovery.phase {
            Phase::Open if lost > 0 => self.enter_fast_recovery(now, in_flight, ext),
            Phase::Open => return self.grow_window(now, newly, in_flight, ext),
            Phase::Timeout { .. } => return self.grow_window(now, newly, in_flight, ext),
            Phase::Fast { .. } => {}
        }
        if self.controller.steers_recovery() {
            self.grow_window(now, newly, in_flight, ext);
        }
        self.reduce_in_proportion(newly.bytes, lost);
    }

    fn enter_fast_recovery<X: Extension<Mapping = M>>(&mut self, now: Instant, in_flight: u64, ext: &mut X) {
        let own = self.flow_view();
        self.controller.on_congestion(now, in_flight, &ext.flows(&own));
        self.delivery.acked_between_losses = self.delivery.acked_since_loss;
        self.delivery.acked_since_loss = 0;
        // What the last episode resent and is still on its way would look like this one's original.
        let clean = !self.board.has_resent();
        let recovery = &mut self.recovery;
        recovery.phase = Phase::Fast { until: self.next };
        recovery.prr = Prr { flight_at_start: in_flight.max(1), ..Prr::default() };
        recovery.may_undo = clean;
        recovery.first_resend_ms = None;
        recovery.undo_left = clean.then_some(0);
        recovery.tail_probe_end = None;
    }

    /// RFC 6937 §3, with the safe-acknowledgment rule of its revision: slow start's bound only while nothing new is lost.
    fn reduce_in_proportion(&mut self, delivered: u64, lost: u64) {
        let mss = u64::from(self.mss_bytes());
        let pipe = self.in_flight_bytes();
        let target = self.controller.window_bytes();
        // Without SACK a duplicate acknowledgment stands for a delivered segment.
        let delivered = if delivered == 0 && !self.sack { mss } else { delivered };
        let prr = &mut self.recovery.prr;
        prr.delivered += delivered;
        let quota = if pipe > target {
            (prr.delivered * target).div_ceil(prr.flight_at_start).saturating_sub(prr.out)
        } else {
            let mut limit = prr.delivered.saturating_sub(prr.out).max(delivered);
            if lost == 0 {
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
            Phase::Fast { until } | Phase::Timeout { until } => until,
        };
        // Without SACK, wait until something beyond is acknowledged, lest old duplicates start it again (RFC 6582 §4).
        if !advanced || self.una < until {
            return;
        }
        self.recovery.phase = Phase::Open;
        self.recovery.frto = Frto::Off;
        self.recovery.duplicates = 0;
        self.recovery.undo_left = None;
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

    /// An acknowledgment that echoes a timestamp from before the first retransmission answers the original.
    fn is_spurious_by_timestamp(&self, segment: &Segment) -> bool {
        let (Some(resent), Some(timestamps)) = (self.recovery.first_resend_ms, segment.options.timestamps)
        else {
            return false;
        };
        self.recovery.is_active()
            && self.recovery.may_undo
            && self.timestamps
            && timestamps.echo != 0
            && (timestamps.echo.wrapping_sub(resent) as i32) < 0
    }

    fn undone_by_dsack(&mut self, now: Instant) -> bool {
        let _ = now;
        // Each DSACK says that the reordering window was too small (RFC 8985 §6.2, step 4).
        self.recovery.reordering_seen = true;
        self.recovery.reordering_quarters =
            (self.recovery.reordering_quarters + 1).min(MAX_REORDERING_QUARTERS);
        self.recovery.reordering_persist = 16;
        match &mut self.recovery.undo_left {
            Some(left) if *left > 0 => {
                *left -= 1;
                *left == 0 && self.recovery.is_active()
            }
            _ => false,
        }
    }

    fn undo(&mut self, now: Instant) {
        self.totals.spurious += 1;
        self.withdraw_suspicion();
        self.board.unmark_lost();
        self.controller.on_spurious(now);
        self.recovery.phase = Phase::Open;
        self.recovery.frto = Frto::Off;
        self.recovery.first_resend_ms = None;
        self.recovery.undo_left = None;
    }

    // ---- timeouts

    pub(super) fn retransmission_timeout<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &mut X) {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return self.handshake_timeout();
        }
        if self.una == self.next {
            return;
        }
        self.totals.timeouts += 1;
        self.consecutive_timeouts = self.consecutive_timeouts.saturating_add(1);
        if self.consecutive_timeouts > self.config.retries || self.user_timeout_passed(now) {
            return self.close_after_reset(CloseReason::TimedOut);
        }
        self.events.timed_out = true;
        self.suspect_black_hole(now);
        let in_flight = self.in_flight_bytes();
        let own = self.flow_view();
        self.controller.on_timeout(now, in_flight, &ext.flows(&own));
        if self.recovery.phase == Phase::Open {
            self.delivery.acked_between_losses = self.delivery.acked_since_loss;
            self.delivery.acked_since_loss = 0;
        }
        let clean = !self.board.has_resent();
        let phase = self.recovery.phase;
        // Where timestamps can't tell a spurious timeout, resend one segment only and see (RFC 5682 §2.1, step 1).
        let first = self.recovery.phase == Phase::Open && self.consecutive_timeouts == 1;
        self.recovery.frto = if first && !self.timestamps { Frto::Resent } else { Frto::Off };
        if self.recovery.frto == Frto::Resent {
            let most = self.segment_payload_bytes(ext) as u64;
            self.board.mark_front_lost(most);
        } else {
            self.lose_everything();
        }
        let recovery = &mut self.recovery;
        recovery.phase = Phase::Timeout { until: self.next };
        recovery.prr = Prr::default();
        // A further timeout of the same episode leaves open that the first one was spurious.
        if !matches!(phase, Phase::Timeout { .. }) {
            recovery.may_undo = clean && phase == Phase::Open;
            recovery.first_resend_ms = None;
            recovery.undo_left = recovery.may_undo.then_some(0);
        }
        recovery.tail_probe_end = None;
        self.rtt.back_off();
        self.pace_at = now;
        self.timers.retransmit_kind = RetransmitKind::Timeout;
        self.timers.retransmit = now + self.rtt.rto();
    }

    fn lose_everything(&mut self) {
        // A receiver that lost what it had selectively acknowledged shows as a first piece that is (RFC 2018 §8).
        if self.board.front().is_some_and(|front| front.flags.has(crate::scoreboard::Flags::SACKED)) {
            self.board.forget_sacks();
        }
        self.board.mark_all_lost();
        self.delivery.lost += self.board.lost_bytes();
    }

    fn handshake_timeout(&mut self) {
        let limit =
            if self.state == State::SynSent { self.config.syn_retries } else { self.config.syn_ack_retries };
        if self.syn_sent > limit {
            return self.close(CloseReason::TimedOut);
        }
        self.totals.timeouts += 1;
        self.rtt.back_off();
        self.pending.syn = true;
    }

    /// RFC 5682 §2.1, steps 2 and 3.
    fn follow_frto(&mut self, now: Instant, newly: &Newly, advanced: bool) {
        match self.recovery.frto {
            Frto::Off => {}
            Frto::Resent if advanced => {
                self.recovery.frto = Frto::SentNew;
                self.recovery.prr.out = 0;
            }
            Frto::SentNew if advanced && newly.original => self.undo(now),
            Frto::Resent | Frto::SentNew => {
                self.recovery.frto = Frto::Off;
                self.lose_everything();
            }
        }
    }

    // ---- tail loss probes (RFC 8985 §7)

    pub(super) fn probe_tail(&mut self, now: Instant) {
        if self.una == self.next {
            return;
        }
        self.recovery.tail_probe_end = Some(self.next);
        self.pending.tail_probe = true;
        self.timers.retransmit_kind = RetransmitKind::Timeout;
        self.timers.retransmit = now + self.rtt.rto();
    }

    pub(super) fn note_tail_probe(&mut self, resent: bool) {
        self.recovery.tail_probe_resent = resent;
        self.recovery.tail_probe_end = Some(self.next);
    }

    /// RFC 8985 §7.4: a probe that repaired a loss without a trace is a congestion event all the same.
    fn tail_probe_acknowledged<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        in_flight: u64,
        duplicate_sack: bool,
        ext: &mut X,
    ) {
        let resent = self.recovery.tail_probe_resent;
        // An acknowledgment of just what was probed may be the original's; a DSACK would tell, or later data.
        let decided =
            self.recovery.tail_probe_end.is_some_and(|end| self.una > end || self.una == end && !resent);
        if !decided && !duplicate_sack {
            return;
        }
        let repaired = resent && !duplicate_sack && self.recovery.phase == Phase::Open;
        self.recovery.tail_probe_end = None;
        self.recovery.tail_probe_resent = false;
        if repaired {
            let own = self.flow_view();
            self.controller.on_congestion(now, in_flight, &ext.flows(&own));
            self.controller.on_recovery_end(now);
        }
    }
}
