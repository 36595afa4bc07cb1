//! Retransmission timeouts (RFC 6298) with F-RTO (RFC 5682), and tail loss probes (RFC 8985 §7).

use core::fmt::Debug;

use polypath_units::Instant;

use super::recovery::{Answer, Frto, Phase, Told};
use super::retransmit_timer::RetransmitKind;
use super::{CloseReason, Connection, Event, State};
use crate::extension::Extension;
use crate::loss_recovery::ForwardRto;
use crate::scoreboard::Newly;

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    pub(super) fn retransmission_timeout<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &mut X) {
        if matches!(self.state(), State::SynSent | State::SynReceived) {
            return self.handshake_timeout();
        }
        if self.send.is_idle() {
            return;
        }
        self.recovery.count_timeout();
        if self.send.window_end() <= self.send.una() {
            return self.probe_shrunk_window(now, ext);
        }
        self.stall.count_timeout();
        if self.has_retried_enough() || self.stall.has_lasted(now, &self.config) {
            return self.close_after_reset(CloseReason::TimedOut);
        }
        self.lifecycle.report(Event::TimedOut);
        self.mtu.handle_timeout();
        self.suspect_black_hole(now);
        let in_flight = self.in_flight_bytes();
        let own = self.flow_view();
        self.controller.on_timeout(now, in_flight, &ext.flows(&own));
        if !self.recovery.is_active() {
            self.delivery.end_loss_interval();
        }
        let clean = !self.send.board().has_resent();
        // Where timestamps can't tell a spurious timeout, resend one segment only and see (RFC 5682 §2.1, step 1).
        let first = !self.recovery.is_active() && self.stall.timeouts() == 1;
        let setting = self.config.loss_recovery.forward_rto;
        let frto = first && Frto::is_asked(setting, self.handshake.timestamps().is_on());
        if frto {
            let most = self.segment_payload_bytes_at(self.send.una(), ext) as u64;
            let lost = self.send.lose_front(most);
            self.delivery.count_lost(lost);
        } else {
            self.lose_everything();
        }
        self.recovery.begin_timeout(now, (self.send.una(), self.send.next()), clean, frto);
        self.rtt.back_off();
        self.departure.forget_pace(now);
        self.arm_timeout(now);
    }

    /// Each retry of [`Config::retries`] waits twice as long as the one before. Those that try a smaller size begin anew, and are not
    /// counted: an outage that looks like a black hole would end the connection in a minute instead of a quarter of an hour.
    ///
    /// [`Config::retries`]: crate::Config::retries
    fn has_retried_enough(&self) -> bool {
        let retries = self.config.retries;
        self.stall.timeouts() > retries && self.rtt.backoffs() >= retries
    }

    /// See [`Connection::probe_every`].
    pub(super) fn probe_path<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &X) {
        if self.send.is_idle() {
            return;
        }
        let most = self.segment_payload_bytes_at(self.send.una(), ext) as u64;
        self.send.lose_front(most);
        self.departure.forget_pace(now);
        self.retransmit.resume_timeout();
        self.bring_timeout_forward(now);
    }

    /// The peer took its window back under what is in flight: silence tells of no congestion, and the first segment again
    /// asks for the window.
    fn probe_shrunk_window<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &X) {
        if self.stall.has_probed_enough(now, &self.config) {
            return self.close_after_reset(CloseReason::TimedOut);
        }
        self.stall.count_window_probe();
        let most = self.segment_payload_bytes_at(self.send.una(), ext) as u64;
        self.send.lose_front(most);
        self.rtt.back_off();
        self.retransmit.start(now + self.rtt.rto(&self.config), RetransmitKind::Timeout);
    }

    /// The timeout was genuine: what left before it goes out again. What left since is on its way, the first segment's copy above
    /// all, and an acknowledgment of nothing says nothing of it: the loss window is one segment (RFC 5682 §2.1, step 2a).
    fn lose_what_timed_out(&mut self) {
        let Phase::Timeout { until, since, .. } = self.recovery.phase() else { return };
        let lost = self.send.lose_before(until, since);
        self.delivery.count_lost(lost);
    }

    fn lose_everything(&mut self) {
        let lost = self.send.lose_all();
        self.delivery.count_lost(lost);
    }

    fn handshake_timeout(&mut self) {
        let limit = if self.state() == State::SynSent {
            self.config.syn_retries
        } else {
            self.config.syn_ack_retries
        };
        if self.stall.timeouts() >= limit {
            return self.close(CloseReason::TimedOut);
        }
        self.stall.count_timeout();
        self.recovery.count_timeout();
        self.rtt.back_off();
        self.handshake.send_syn();
    }

    /// RFC 5682 §2.1, steps 2 and 3.
    pub(super) fn follow_frto(&mut self, now: Instant, newly: &Newly, advanced: bool) {
        let state = self.recovery.frto();
        if state == Frto::Off {
            return;
        }
        let told = Told { advanced, original: newly.original, is_beyond: self.has_arrived_since_timeout() };
        let by_sack = self.config.loss_recovery.forward_rto == ForwardRto::Sack && self.handshake.has_sack();
        let answer = if by_sack { state.answer_with_sack(told) } else { state.answer(told) };
        match answer {
            Answer::None => {}
            Answer::SendNew => self.recovery.send_new_for_frto(),
            Answer::Spurious => self.undo(now),
            Answer::Genuine => {
                self.recovery.end_frto();
                match state {
                    // The two new segments would fill the window that retransmissions are to leave in.
                    Frto::SentNew => self.lose_everything(),
                    _ => self.lose_what_timed_out(),
                }
            }
        }
    }

    /// Something arrived that lies behind all that had left at the timeout.
    fn has_arrived_since_timeout(&self) -> bool {
        let Phase::Timeout { until, .. } = self.recovery.phase() else { return false };
        self.send.una().max(self.send.board().high_sacked()) > until
    }

    // ---- tail loss probes (RFC 8985 §7)

    pub(super) fn probe_tail(&mut self, now: Instant) {
        if self.send.is_idle() {
            return;
        }
        self.recovery.handle_tail_timeout(self.send.next());
        self.retransmit.start(now + self.rtt.rto(&self.config), RetransmitKind::Timeout);
    }

    /// RFC 8985 §7.4: a probe that repaired a loss without a trace is a congestion event all the same.
    pub(super) fn tail_probe_acknowledged<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        in_flight: u64,
        duplicate_sack: bool,
        ext: &mut X,
    ) {
        if self.recovery.handle_tail_probe_ack(self.send.una(), duplicate_sack) {
            let own = self.flow_view();
            self.controller.on_congestion(now, in_flight, &ext.flows(&own));
            self.controller.on_recovery_end(now);
        }
    }
}
