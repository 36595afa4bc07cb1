//! The connection's few timers.

use core::fmt::Debug;

use polypath_units::{Duration, Instant};

use super::keepalive::KeepaliveStep;
use super::{CloseReason, Connection};
use crate::extension::Extension;

/// Deadlines; [`Instant::FAR_FUTURE`] is off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    /// One slot for retransmission timeout, tail loss probe and RACK's reordering window, as they exclude each other.
    pub(super) retransmit: Instant,
    pub(super) retransmit_kind: RetransmitKind,
    /// End of TIME-WAIT.
    pub(super) time_wait: Instant,
    pub(super) pacing: Instant,
    /// A path that may be dead is probed at least so often; `None` leaves it to the backed-off timeout.
    pub(super) probe_interval: Option<Duration>,
    /// When the timeout is due that probes came before.
    pub(super) backed_off_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetransmitKind {
    Timeout,
    /// RFC 8985 §7.
    TailProbe,
    /// RFC 8985 §6.2: look again whether what is late is lost.
    Reordering,
}

impl Timers {
    pub(super) const OFF: Self = Self {
        retransmit: Instant::FAR_FUTURE,
        retransmit_kind: RetransmitKind::Timeout,
        time_wait: Instant::FAR_FUTURE,
        pacing: Instant::FAR_FUTURE,
        probe_interval: None,
        backed_off_until: Instant::ZERO,
    };

    #[inline]
    fn earliest(&self) -> Instant {
        self.retransmit.min(self.time_wait).min(self.pacing)
    }
}

/// A peer may delay its acknowledgment of a lone segment by so much (RFC 8985 §7.2).
const WORST_DELAYED_ACK: Duration = Duration::from_millis(200);

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// When [`Connection::handle_timeout`] is due.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let earliest = self
            .timers
            .earliest()
            .min(self.acks.poll_timeout())
            .min(self.stall.poll_timeout())
            .min(self.keepalive.poll_timeout());
        (earliest != Instant::FAR_FUTURE).then_some(earliest)
    }

    /// Deadlines passed. Does nothing if it comes early.
    pub fn handle_timeout<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &mut X) {
        if self.timers.pacing <= now {
            self.timers.pacing = Instant::FAR_FUTURE;
        }
        self.acks.handle_timeout(now);
        if self.timers.retransmit <= now {
            self.timers.retransmit = Instant::FAR_FUTURE;
            match self.timers.retransmit_kind {
                RetransmitKind::Timeout if now < self.timers.backed_off_until => self.probe_path(now, ext),
                RetransmitKind::Timeout => self.retransmission_timeout(now, ext),
                RetransmitKind::TailProbe => self.probe_tail(now),
                RetransmitKind::Reordering => self.look_for_losses(now, ext),
            }
        }
        if self.stall.poll_timeout() <= now {
            self.probe_window(now);
        }
        if self.keepalive.poll_timeout() <= now {
            self.probe_peer(now);
        }
        if self.timers.time_wait <= now {
            self.close(CloseReason::Finished);
        }
    }

    /// Starts the retransmission timer, or lets it run: a tail loss probe where one may help, else the timeout.
    pub(super) fn arm_retransmit(&mut self, now: Instant, restart: bool) {
        if self.send.is_idle() {
            self.timers.retransmit = Instant::FAR_FUTURE;
            return;
        }
        let kind = self.timers.retransmit_kind;
        let running = self.timers.retransmit != Instant::FAR_FUTURE;
        // New data arms a probe anew (RFC 8985 §7.2). It brings it forward where more than one segment is out now, and not back:
        // the acknowledgment of what left first is due as before.
        let moves = running && !restart && kind == RetransmitKind::TailProbe;
        if running && !moves && (!restart || kind == RetransmitKind::Reordering) {
            return;
        }
        let rto = self.rtt.rto();
        let (srtt, alone) = (self.rtt.srtt(), self.send.outstanding_bytes() <= u64::from(self.mss_bytes()));
        let may_probe = self.handshake.has_sack()
            && !srtt.is_zero()
            && self.recovery.may_probe_tail()
            && self.send.board().sacked_bytes() == 0;
        let wait = srtt * 2 + if alone { WORST_DELAYED_ACK } else { Duration::from_millis(2) };
        if may_probe {
            let latest = if moves { self.timers.retransmit } else { Instant::FAR_FUTURE };
            self.timers.retransmit_kind = RetransmitKind::TailProbe;
            self.timers.retransmit = (now + wait.min(rto)).min(latest);
        } else if !moves {
            self.timers.retransmit_kind = RetransmitKind::Timeout;
            self.timers.retransmit = now + rto;
        }
    }

    /// Starts the retransmission timeout, and has probes of the path come before it if it is far.
    pub(super) fn arm_timeout(&mut self, now: Instant) {
        self.timers.retransmit_kind = RetransmitKind::Timeout;
        self.timers.retransmit = self.stall.limit(now + self.rtt.rto(), &self.config);
        self.timers.backed_off_until = Instant::ZERO;
        self.bring_timeout_forward(now);
    }

    pub(super) fn bring_timeout_forward(&mut self, now: Instant) {
        if let Some(interval) = self.timers.probe_interval
            && self.is_waiting_for_timeout()
            && self.timers.retransmit > now + interval
        {
            self.timers.backed_off_until = self.timers.backed_off_until.max(self.timers.retransmit);
            self.timers.retransmit = now + interval;
        }
    }

    /// Data is outstanding, has timed out, and the retransmission timer runs.
    fn is_waiting_for_timeout(&self) -> bool {
        self.stall.timeouts() > 0
            && self.state.is_synchronized()
            && !self.send.is_idle()
            && self.timers.retransmit != Instant::FAR_FUTURE
            && self.timers.retransmit_kind == RetransmitKind::Timeout
    }

    /// After a timeout, sends the first unacknowledged segment again at least every `interval`, however far the timeout has
    /// backed off, until something is acknowledged; `None` ends that. These probes are no timeouts: they count neither
    /// towards giving the connection up nor for congestion control.
    ///
    /// For an owner that has another path to use meanwhile, and wants to know soon when this one is back. Alone, a connection
    /// has to back off (RFC 6298 §5.5).
    pub fn probe_every(&mut self, now: Instant, interval: Option<Duration>) {
        self.timers.probe_interval = interval;
        if interval.is_none() && self.timers.backed_off_until > now && self.is_waiting_for_timeout() {
            self.timers.retransmit = self.timers.backed_off_until;
        }
        self.bring_timeout_forward(now);
    }

    /// After a timeout, lets the next [`Connection::handle_timeout`] probe the path, which may be back.
    pub fn probe_at_once(&mut self, now: Instant) {
        if self.is_waiting_for_timeout() && self.timers.retransmit > now {
            self.timers.backed_off_until = self.timers.backed_off_until.max(self.timers.retransmit);
            self.timers.retransmit = now;
        }
    }

    /// Data waits, and nothing is in flight that would bring news: the window is closed (RFC 9293 §3.8.6.1), or holds less than a
    /// segment (§3.8.6.2.1), or the application holds data back.
    pub(super) fn arm_persist(&mut self, now: Instant) {
        self.stall.start_persisting(now, self.rtt.rto(), &self.config);
    }

    fn probe_window(&mut self, now: Instant) {
        self.stall.stop_persisting();
        if self.unsent_bytes() == 0 || !self.send.is_idle() {
            return;
        }
        if self.send.window().end() > self.send.next() {
            self.stall.let_sliver_leave();
            return;
        }
        if self.stall.has_probed_enough(now, &self.config) {
            return self.close_after_reset(CloseReason::TimedOut);
        }
        self.stall.count_window_probe();
        self.pending.probe = true;
        self.rtt.back_off();
        self.stall.persist_again(now, self.rtt.rto(), &self.config);
    }

    fn probe_peer(&mut self, now: Instant) {
        if !self.send.is_idle() || self.unsent_bytes() > 0 {
            // The retransmission and persist timers ask already.
            return self.keepalive.start(now, &self.config);
        }
        match self.keepalive.handle_timeout(now, &self.config) {
            KeepaliveStep::Probe => self.pending.probe = true,
            KeepaliveStep::GiveUp => self.close_after_reset(CloseReason::TimedOut),
        }
    }

    pub(super) fn close_after_reset(&mut self, reason: CloseReason) {
        self.close(reason);
        self.pending.reset = true;
    }
}
