//! The connection's few timers.

use core::fmt::Debug;

use polypath_units::{Duration, Instant};

use super::retransmit_timer::{RetransmitKind, RetransmitStep};
use super::{CloseReason, Connection};
use crate::extension::Extension;

/// A peer may delay its acknowledgment of a lone segment by so much (RFC 8985 §7.2).
const WORST_DELAYED_ACK: Duration = Duration::from_millis(200);

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// When [`Connection::handle_timeout`] is due.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let earliest = self
            .retransmit
            .poll_timeout()
            .min(self.lifecycle.poll_timeout())
            .min(self.departure.poll_timeout())
            .min(self.acks.poll_timeout())
            .min(self.stall.poll_timeout())
            .min(self.keepalive.poll_timeout());
        (earliest != Instant::FAR_FUTURE).then_some(earliest)
    }

    /// Deadlines passed. Does nothing if it comes early.
    pub fn handle_timeout<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &mut X) {
        self.departure.handle_timeout(now);
        self.acks.handle_timeout(now);
        match self.retransmit.handle_timeout(now) {
            None => {}
            Some(RetransmitStep::ProbePath) => self.probe_path(now, ext),
            Some(RetransmitStep::TimeOut) => self.retransmission_timeout(now, ext),
            Some(RetransmitStep::ProbeTail) => self.probe_tail(now),
            Some(RetransmitStep::LookForLosses) => self.look_for_losses(now, ext),
        }
        if self.stall.poll_timeout() <= now {
            self.probe_window(now);
        }
        if self.keepalive.poll_timeout() <= now {
            self.probe_peer(now);
        }
        if self.lifecycle.poll_timeout() <= now {
            self.close(CloseReason::Finished);
        }
    }

    /// Starts the retransmission timer, or lets it run: a tail loss probe where one may help, else the timeout.
    #[inline]
    pub(super) fn arm_retransmit(&mut self, now: Instant, restart: bool) {
        if self.send.is_idle() {
            self.retransmit.stop();
            return;
        }
        let kind = self.retransmit.kind();
        let running = self.retransmit.is_running();
        // New data arms a probe anew (RFC 8985 §7.2). It brings it forward where more than one segment is out now, and not back:
        // the acknowledgment of what left first is due as before.
        let moves = running && !restart && kind == RetransmitKind::TailProbe;
        if running && !moves && (!restart || kind == RetransmitKind::Reordering) {
            return;
        }
        let rto = self.rtt.rto(&self.config);
        let (srtt, alone) = (self.rtt.srtt(), self.send.outstanding_bytes() <= u64::from(self.mss_bytes()));
        let may_probe = self.handshake.has_sack()
            && !srtt.is_zero()
            && self.recovery.may_probe_tail()
            && self.send.board().sacked_bytes() == 0;
        let wait = srtt * 2 + if alone { WORST_DELAYED_ACK } else { Duration::from_millis(2) };
        if may_probe {
            let latest = if moves { self.retransmit.poll_timeout() } else { Instant::FAR_FUTURE };
            self.retransmit.start((now + wait.min(rto)).min(latest), RetransmitKind::TailProbe);
        } else if !moves {
            self.retransmit.start(now + rto, RetransmitKind::Timeout);
        }
    }

    /// Starts the retransmission timeout, and has probes of the path come before it if it is far.
    pub(super) fn arm_timeout(&mut self, now: Instant) {
        self.retransmit.start_timeout(self.stall.limit(now + self.rtt.rto(&self.config), &self.config));
        self.bring_timeout_forward(now);
    }

    pub(super) fn bring_timeout_forward(&mut self, now: Instant) {
        if self.is_waiting_for_timeout() {
            self.retransmit.bring_forward(now);
        }
    }

    /// Data is outstanding, has timed out, and the retransmission timer runs.
    fn is_waiting_for_timeout(&self) -> bool {
        self.stall.timeouts() > 0
            && self.state().is_synchronized()
            && !self.send.is_idle()
            && self.retransmit.is_running()
            && self.retransmit.kind() == RetransmitKind::Timeout
    }

    /// After a timeout, sends the first unacknowledged segment again at least every `interval`, however far the timeout has
    /// backed off, until something is acknowledged; `None` ends that. These probes are no timeouts: they count neither
    /// towards giving the connection up nor for congestion control.
    ///
    /// For an owner that has another path to use meanwhile, and wants to know soon when this one is back. Alone, a connection
    /// has to back off (RFC 6298 §5.5).
    pub fn probe_every(&mut self, now: Instant, interval: Option<Duration>) {
        self.retransmit.set_probe_interval(interval);
        if self.is_waiting_for_timeout() {
            self.retransmit.end_probes(now);
            self.retransmit.bring_forward(now);
        }
    }

    /// After a timeout, lets the next [`Connection::handle_timeout`] probe the path, which may be back.
    pub fn probe_at_once(&mut self, now: Instant) {
        if self.is_waiting_for_timeout() {
            self.retransmit.probe_by(now);
        }
    }

    /// Data waits, and nothing is in flight that would bring news: the window is closed (RFC 9293 §3.8.6.1), or holds less than a
    /// segment (§3.8.6.2.1), or the application holds data back.
    pub(super) fn arm_persist(&mut self, now: Instant) {
        self.stall.start_persisting(now, self.rtt.rto(&self.config), &self.config);
    }

    fn probe_window(&mut self, now: Instant) {
        self.stall.stop_persisting();
        if self.unsent_bytes() == 0 || !self.send.is_idle() {
            return;
        }
        if self.send.window_end() > self.send.next() {
            self.stall.let_sliver_leave();
            return;
        }
        if self.stall.has_probed_enough(now, &self.config) {
            return self.close_after_reset(CloseReason::TimedOut);
        }
        self.stall.count_window_probe();
        self.keepalive.send_probe();
        self.rtt.back_off();
        self.stall.persist_again(now, self.rtt.rto(&self.config), &self.config);
    }

    fn probe_peer(&mut self, now: Instant) {
        if !self.send.is_idle() || self.unsent_bytes() > 0 {
            // The retransmission and persist timers ask already.
            return self.keepalive.start(now, &self.config);
        }
        if !self.keepalive.handle_timeout(now, &self.config) {
            self.close_after_reset(CloseReason::TimedOut);
        }
    }
}
