//! Losses: RACK (RFC 8985), recovery with proportional rate reduction (RFC 9937), NewReno without SACK (RFC 6582), and undo
//! by Eifel (RFC 3522) and DSACK (RFC 3708).

use core::fmt::Debug;

use polypath_units::{Duration, Instant};
use polypath_wire::Segment;

use super::Connection;
use super::recovery::{DUPLICATE_THRESHOLD, Phase};
use super::retransmit_timer::RetransmitKind;
use crate::extension::Extension;
use crate::scoreboard::{Flags, Newly, Sent};

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// The window that holds now: congestion control's, or PRR's during fast recovery.
    #[inline]
    pub(super) fn send_window_bytes(&self) -> u64 {
        let (mss, has_sack) = (self.mss_bytes(), self.handshake.has_sack());
        self.recovery.window_bytes(&*self.controller, || self.in_flight_bytes(), mss, has_sack)
    }

    /// What an acknowledgment of `newly_bytes` grows the window by.
    pub(super) fn growing_bytes(&mut self, newly_bytes: u64, advanced: bool) -> u64 {
        if self.controller.needs_rate_samples() {
            // Measures what is delivered, in whatever order.
            return newly_bytes;
        }
        self.recovery.growing_bytes(newly_bytes, advanced)
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
        self.recovery.handle_arrival(now, || newly.oldest.map(|at| now.since(at)));
        if let Some(latest) = newly.latest
            && !self.recovery.counts_losses()
        {
            self.update_rack(now, segment, &latest, newly.reordered);
        }
        let duplicate_sack = dsack.is_some();
        let mut by_probe = false;
        if self.recovery.is_tail_probe_out() && (advanced || duplicate_sack) {
            by_probe = self.recovery.is_tail_probe_resent();
            self.tail_probe_acknowledged(now, in_flight, duplicate_sack, ext);
        }
        let trouble = self.recovery.is_active()
            || self.send.board().sacked_bytes() > 0
            || pure_duplicate
            || duplicate_sack;
        if !trouble {
            self.recovery.forget_duplicates();
            self.grow_window(now, newly, in_flight, advanced, ext);
            return;
        }
        if self.recovery.counts_losses() {
            self.follow_reordering(newly, dsack);
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
            self.follow_late_original(newly);
            self.learn_how_late(now, segment);
            self.undo(now);
        }
        self.follow_frto(now, newly, advanced);
        self.leave_recovery(now, advanced);
        let lost = self.find_losses(now, advanced, pure_duplicate);
        self.enter_or_continue(now, newly, in_flight, lost, advanced, ext);
    }

    // ---- detection

    fn update_rack(&mut self, now: Instant, segment: &Segment, latest: &Sent, reordered: bool) {
        self.recovery.handle_order(reordered);
        let rtt = now.since(latest.at);
        // Was it the original that arrived, after the retransmission had left? (RFC 8985 §6.2, step 2)
        if latest.flags.has(Flags::EVER_RESENT) {
            let echo = segment.options.timestamps.map_or(0, |timestamps| timestamps.echo);
            let by_original = self.handshake.timestamps().is_on()
                && echo != 0
                && (echo.wrapping_sub(self.handshake.timestamps().clock(latest.at)) as i32) < 0;
            if by_original || rtt < self.rtt.min() {
                return;
            }
        }
        self.recovery.handle_delivered(latest, rtt);
    }

    /// As many segments as duplicate acknowledgments would have been enough. An aggregate is one piece, but more bytes.
    fn many_sacked(&self) -> bool {
        self.send.board().sacked_pieces() >= DUPLICATE_THRESHOLD
            || self.send.board().sacked_bytes() >= u64::from(DUPLICATE_THRESHOLD * self.mss_bytes())
    }

    fn find_losses(&mut self, now: Instant, advanced: bool, pure_duplicate: bool) -> u64 {
        if self.recovery.counts_losses() && self.handshake.has_sack() {
            let lost = self.find_losses_by_count(advanced);
            self.delivery.count_lost(lost);
            let beside_probe = self.excuse_mtu_probe(now, lost);
            return if self.recovery.is_active() { lost } else { beside_probe };
        }
        if !self.handshake.has_sack() {
            return self.find_losses_without_sack(advanced, pure_duplicate);
        }
        let window = self.recovery.loss_window(self.rtt.min(), self.rtt.srtt(), || self.many_sacked());
        let (lost, again) = self.send.lose_late(now, self.recovery.reference(), window);
        if let Some(at) = again {
            self.retransmit.start(at.max(now + Duration::from_micros(1)), RetransmitKind::Reordering);
        } else if self.retransmit.kind() == RetransmitKind::Reordering {
            self.retransmit.stop();
            self.arm_retransmit(now, true);
        }
        self.delivery.count_lost(lost);
        let beside_probe = self.excuse_mtu_probe(now, lost);
        if self.recovery.is_active() { lost } else { beside_probe }
    }

    fn find_losses_without_sack(&mut self, advanced: bool, pure_duplicate: bool) -> u64 {
        let mss = u64::from(self.mss_bytes());
        if advanced {
            self.recovery.forget_duplicates();
            // A partial acknowledgment: the next hole is lost as well (RFC 6582 §3.2, step 3).
            if matches!(self.recovery.phase(), Phase::Fast { .. }) {
                return self.send.lose_front(mss);
            }
            return 0;
        }
        if !pure_duplicate || self.send.is_idle() {
            return 0;
        }
        if self.recovery.counts_losses() {
            self.follow_surplus_of_duplicates();
        }
        if self.recovery.handle_duplicate() {
            return self.send.lose_front(mss);
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
        match self.recovery.phase() {
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
        self.delivery.end_loss_interval();
        let clean = !self.send.board().has_resent();
        self.recovery.begin_fast((self.send.una(), self.send.next()), in_flight, clean);
        if self.retransmit.kind() == RetransmitKind::TailProbe {
            // No probes in recovery (RFC 8985 §7.2).
            self.retransmit.start(now + self.rtt.rto(&self.config), RetransmitKind::Timeout);
        }
    }

    /// Proportional rate reduction (RFC 9937 §6): slow start's bound only while acknowledgments advance and nothing new is lost.
    fn reduce_in_proportion(&mut self, delivered: u64, safe: bool) {
        let mss = u64::from(self.mss_bytes());
        let pipe = self.in_flight_bytes();
        let target = self.window_bytes();
        // Without SACK a duplicate acknowledgment stands for a delivered segment.
        let delivered = if delivered == 0 && !self.handshake.has_sack() { mss } else { delivered };
        self.recovery.reduce(delivered, pipe, target, mss, safe);
    }

    fn leave_recovery(&mut self, now: Instant, advanced: bool) {
        if advanced && self.recovery.handle_advance(self.send.una()) {
            self.controller.on_recovery_end(now);
        }
    }

    // ---- undo

    /// An acknowledgment of something sent before a silence of more than one timeout: the path was gone in between. The time
    /// that it took says nothing of the round trip, nor that what else was in flight is still there.
    pub(super) fn answers_from_before_an_outage(&self, now: Instant, segment: &Segment) -> bool {
        let (Some(resent), Some(timestamps)) = (self.recovery.timed_out_ms(), segment.options.timestamps)
        else {
            return false;
        };
        let since = Duration::from_millis(u64::from(self.handshake.timestamps().elapsed_ms(now, resent)));
        (timestamps.echo.wrapping_sub(resent) as i32) < 0 && since > self.rtt.rto(&self.config) * 2
    }

    /// An acknowledgment that echoes a timestamp from before the first retransmission answers the original.
    fn is_spurious_by_timestamp(&self, segment: &Segment) -> bool {
        self.handshake.timestamps().is_on()
            && segment.options.timestamps.is_some_and(|theirs| self.recovery.is_spurious_by(theirs.echo))
    }

    /// What fills the first hole echoes its own timestamp (RFC 7323 §4.3).
    fn learn_how_late(&mut self, now: Instant, segment: &Segment) {
        let timestamps = self.handshake.timestamps();
        let echo = segment.options.timestamps.map(|timestamps| timestamps.echo);
        let took = echo.map(|echo| Duration::from_millis(timestamps.elapsed_ms(now, echo).into()));
        self.recovery.handle_arrival(now, || took);
    }

    /// True if every retransmission of the last episode has been reported as a duplicate (RFC 3708).
    fn undone_by_dsack(&mut self, range: (u64, u64), by_probe: bool) -> bool {
        let outstanding = (self.send.una(), self.send.next());
        self.recovery.handle_dsack(range, outstanding, self.send.resends(), by_probe)
    }

    pub(super) fn undo(&mut self, now: Instant) {
        self.withdraw_suspicion(now);
        if self.recovery.is_active() {
            self.send.take_back_losses();
        }
        self.controller.on_spurious(now);
        self.recovery.handle_undone();
    }
}
