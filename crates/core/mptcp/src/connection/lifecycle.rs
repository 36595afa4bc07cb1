//! Where a connection is between its first SYN and its end: every transition in one place (RFC 8684 §3.3.3, §3.7, Appendix D).

use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

use crate::config::ConnectionConfig;

/// Who finished first, and whose last subflow was reset, answers for so long a peer that joins again as it missed the
/// acknowledgment of its DATA_FIN. Where subflows end in order, their TIME-WAIT does that (RFC 8684, Appendix C).
const TIME_WAIT_WITHOUT_SUBFLOW: Duration = Duration::from_secs(5);

/// How long a passive closer waits for the peer's FINs before it sends its own.
const PASSIVE_CLOSE_WAIT: Duration = Duration::from_secs(1);

/// How long FINs of subflows are waited for once either end has acknowledged everything: a path that died in between never
/// brings its peer's. As long as Linux stays in FIN-WAIT-2.
const LAST_FINS_WAIT: Duration = Duration::from_secs(60);

/// What the connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Mode {
    /// The first handshake is not complete.
    Negotiating,
    /// Multipath TCP.
    Mptcp,
    /// TCP: one subflow, no second sequence space.
    Plain,
}

/// How far both streams are (RFC 8684, Appendix D). After a fallback, the states of the subflow say it of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Streams {
    /// No end has finished.
    Established,
    /// Our DATA_FIN has left.
    FinWait1,
    /// It is acknowledged.
    FinWait2,
    /// All of the peer's stream has come, and its end.
    CloseWait,
    /// Our DATA_FIN has left, and then the peer's came.
    Closing,
    /// The peer's DATA_FIN came, and then ours left.
    LastAck,
    /// Both ends have finished, and know it of each other; subflows end.
    Finished,
}

/// The state, and the timers of what ends.
#[derive(Clone, Debug)]
pub(super) struct Lifecycle {
    /// Without a subflow, the connection waits so long for one.
    no_subflow_at: Instant,
    /// A passive closer leaves TIME-WAIT to the peer: it sends its FINs only after the peer's, or now.
    passive_close_at: Instant,
    /// FINs of subflows are waited for until then, with everything said.
    last_fins_at: Instant,
    /// The connection is given up, unless the peer acknowledges more than it had when this was set.
    stall_at: Instant,
    /// What it had: up to where, and whether everything.
    stalled_with: Option<(DataSeq, bool)>,
    mode: Mode,
    streams: Streams,
    is_closed: bool,
    /// The peer's DATA_FIN arrived before ours was sent: TIME-WAIT is the peer's.
    is_passive: bool,
    /// The application knows that the connection is open.
    is_announced: bool,
    /// The handshake is complete in which Multipath TCP was asked for, whatever came of it.
    is_negotiated: bool,
    /// The application will write no more.
    is_write_closed: bool,
    /// It has let go.
    is_released: bool,
    /// MP_FASTCLOSE goes with every RST.
    is_fastclose: bool,
    /// A subflow has ended in order since all was said: the peer knows that, too.
    is_agreed: bool,
    /// It was closed before the peer had everything.
    is_cut_short: bool,
}

impl Lifecycle {
    /// Begins with Multipath TCP asked for, or as TCP.
    pub(super) const fn new(mode: Mode) -> Self {
        Self {
            no_subflow_at: Instant::FAR_FUTURE,
            passive_close_at: Instant::FAR_FUTURE,
            last_fins_at: Instant::FAR_FUTURE,
            stall_at: Instant::FAR_FUTURE,
            stalled_with: None,
            mode,
            streams: Streams::Established,
            is_closed: false,
            is_passive: false,
            is_announced: false,
            is_negotiated: false,
            is_write_closed: false,
            is_released: false,
            is_fastclose: false,
            is_agreed: false,
            is_cut_short: false,
        }
    }

    // ---- transitions: what is spoken

    /// The keys are exchanged.
    pub(super) fn become_mptcp(&mut self) {
        if self.mode == Mode::Negotiating {
            self.mode = Mode::Mptcp;
        }
    }

    /// The connection falls back (RFC 8684 §3.7).
    pub(super) fn become_plain(&mut self) {
        self.mode = Mode::Plain;
    }

    /// A server that knew nothing of the connection is asked again.
    pub(super) fn become_negotiating(&mut self) {
        if self.mode == Mode::Mptcp {
            self.mode = Mode::Negotiating;
        }
    }

    /// The handshake is complete in which Multipath TCP was asked for.
    pub(super) fn handle_negotiated(&mut self) {
        self.is_negotiated = true;
    }

    // ---- transitions: both streams

    /// True if the application is to hear now that the connection is open.
    pub(super) fn handle_open(&mut self) -> bool {
        !core::mem::replace(&mut self.is_announced, true)
    }

    /// The application writes no more.
    pub(super) fn handle_shutdown(&mut self) {
        self.is_write_closed = true;
    }

    /// Our DATA_FIN leaves for the first time.
    pub(super) fn handle_data_fin_sent(&mut self) {
        match self.streams {
            Streams::Established => self.streams = Streams::FinWait1,
            Streams::CloseWait => self.streams = Streams::LastAck,
            _ => {}
        }
    }

    /// It is acknowledged.
    pub(super) fn handle_data_fin_acked(&mut self) {
        match self.streams {
            Streams::FinWait1 => self.streams = Streams::FinWait2,
            Streams::Closing | Streams::LastAck => self.streams = Streams::Finished,
            _ => {}
        }
    }

    /// A DATA_FIN of the peer's tells where its stream ends, `is_first` if ours has not left: what is missing before it may come after
    /// ours has.
    pub(super) fn handle_peer_end_known(&mut self, is_first: bool) {
        self.is_passive = is_first;
    }

    /// The peer's stream is complete, by DATA_FIN or after a fallback by FIN.
    pub(super) fn handle_peer_finished(&mut self) {
        match self.streams {
            Streams::Established => self.streams = Streams::CloseWait,
            Streams::FinWait1 if self.is_passive => self.streams = Streams::LastAck,
            Streams::FinWait1 => self.streams = Streams::Closing,
            Streams::FinWait2 => self.streams = Streams::Finished,
            _ => {}
        }
    }

    /// A subflow has ended in order.
    pub(super) fn handle_subflow_finished(&mut self) {
        self.is_agreed |= self.is_all_said();
    }

    /// It closes while the peer lacks something that the application wrote.
    pub(super) fn handle_cut_short(&mut self) {
        self.is_cut_short |= self.is_announced && !self.is_closed;
    }

    /// The application lets go.
    pub(super) fn handle_release(&mut self) {
        self.is_released = true;
    }

    /// MP_FASTCLOSE goes with the RSTs that are to come.
    pub(super) fn set_fastclose(&mut self, is_fastclose: bool) {
        self.is_fastclose = is_fastclose;
    }

    /// It is over; false if it was before. Nobody will let go of what the application never heard of.
    pub(super) fn become_closed(&mut self, is_client: bool) -> bool {
        if self.is_closed {
            return false;
        }
        self.is_closed = true;
        self.is_released |= !self.is_announced && !is_client;
        self.stop_timers();
        true
    }

    // ---- what holds

    #[inline]
    pub(super) const fn mode(&self) -> Mode {
        self.mode
    }

    #[inline]
    pub(super) fn is_negotiating(&self) -> bool {
        self.mode == Mode::Negotiating
    }

    #[inline]
    pub(super) fn is_mptcp(&self) -> bool {
        self.mode == Mode::Mptcp
    }

    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.mode == Mode::Plain
    }

    /// How far both streams are.
    #[cfg(test)]
    pub(super) const fn streams(&self) -> Streams {
        self.streams
    }

    /// Both ends have finished, and know it of each other, as far as this end knows.
    #[inline]
    pub(super) fn is_all_said(&self) -> bool {
        self.streams == Streams::Finished
    }

    /// See [`Lifecycle::handle_peer_end_known`].
    #[inline]
    pub(super) const fn is_passive(&self) -> bool {
        self.is_passive
    }

    #[inline]
    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    #[inline]
    pub(super) const fn is_announced(&self) -> bool {
        self.is_announced
    }

    pub(super) const fn is_negotiated(&self) -> bool {
        self.is_negotiated
    }

    /// The application has said that it writes no more.
    #[inline]
    pub(super) const fn is_shut_down(&self) -> bool {
        self.is_write_closed
    }

    /// Nothing more can be written.
    pub(super) const fn is_write_closed(&self) -> bool {
        self.is_write_closed || self.is_closed
    }

    pub(super) const fn is_released(&self) -> bool {
        self.is_released
    }

    pub(super) const fn is_fastclose(&self) -> bool {
        self.is_fastclose
    }

    /// Nobody waits for anything: it is over, or both ends know that all is said. What is left of subflows is a matter of theirs.
    pub(super) const fn is_settled(&self) -> bool {
        self.is_closed || self.is_agreed
    }

    pub(super) const fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    // ---- timers

    /// No subflow is left on which the peer's data could come: one is waited for.
    pub(super) fn await_subflow(&mut self, until: Instant) {
        self.no_subflow_at = until;
    }

    /// The same, unless one is waited for already.
    pub(super) fn keep_awaiting_subflow(&mut self, until: Instant) {
        if !self.awaits_subflow() {
            self.no_subflow_at = until;
        }
    }

    /// All is said, and the last subflow was reset: see [`TIME_WAIT_WITHOUT_SUBFLOW`].
    pub(super) fn await_stragglers(&mut self, now: Instant) {
        self.no_subflow_at = now + TIME_WAIT_WITHOUT_SUBFLOW;
    }

    /// A subflow is there.
    pub(super) fn stop_awaiting_subflow(&mut self) {
        self.no_subflow_at = Instant::FAR_FUTURE;
    }

    pub(super) fn awaits_subflow(&self) -> bool {
        self.no_subflow_at != Instant::FAR_FUTURE
    }

    /// All subflows have sent their FINs.
    pub(super) fn await_last_fins(&mut self, now: Instant) {
        if self.last_fins_at == Instant::FAR_FUTURE {
            self.last_fins_at = now + LAST_FINS_WAIT;
        }
    }

    /// The peer finished first, so its FINs are to come first.
    pub(super) fn await_peer_fins(&mut self, now: Instant) {
        if self.passive_close_at == Instant::FAR_FUTURE {
            self.passive_close_at = now + PASSIVE_CLOSE_WAIT;
        }
    }

    /// The application may have set how long its data may stay unacknowledged, whatever subflows do (RFC 5482). After it has let
    /// go, the connection may take as long as its peer goes on to take data. Once all is delivered, the peer's end is waited for as
    /// in FIN-WAIT-2. `acknowledged` is up to where the peer has our data, and `has_unacknowledged` says that there is more.
    pub(super) fn watch_progress(
        &mut self,
        now: Instant,
        config: &ConnectionConfig,
        (acknowledged, is_delivered): (DataSeq, bool),
        has_unacknowledged: bool,
    ) {
        let tcp = &config.tcp;
        let waits = self.is_announced && has_unacknowledged;
        let by_user = tcp.user_timeout.filter(|_| waits);
        let as_orphan =
            self.is_released.then_some(if is_delivered { tcp.fin_wait_2 } else { tcp.orphan_timeout });
        let Some(limit) = by_user.into_iter().chain(as_orphan).min() else { return self.stop_watching() };
        let progress = Some((acknowledged, is_delivered));
        if self.stalled_with != progress {
            self.stalled_with = progress;
            self.stall_at = now + limit;
        }
    }

    /// There is something to watch at all.
    #[inline]
    pub(super) fn watches_progress(&self, config: &ConnectionConfig) -> bool {
        (self.is_released || config.tcp.user_timeout.is_some()) && !self.is_closed
    }

    /// Nothing is watched, until something is anew.
    pub(super) fn stop_watching(&mut self) {
        (self.stall_at, self.stalled_with) = (Instant::FAR_FUTURE, None);
    }

    /// The time that is left is counted anew from the next look on.
    pub(super) fn watch_anew(&mut self) {
        self.stalled_with = None;
    }

    fn stop_timers(&mut self) {
        self.no_subflow_at = Instant::FAR_FUTURE;
        self.passive_close_at = Instant::FAR_FUTURE;
        self.last_fins_at = Instant::FAR_FUTURE;
        self.stop_watching();
    }

    /// FINs have been waited for long enough.
    pub(super) fn is_last_fins_due(&self, now: Instant) -> bool {
        self.last_fins_at <= now
    }

    /// The peer's FINs have been waited for long enough; once.
    pub(super) fn take_passive_close(&mut self, now: Instant) -> bool {
        let is_due = self.passive_close_at <= now;
        if is_due {
            self.passive_close_at = Instant::FAR_FUTURE;
        }
        is_due
    }

    /// A subflow has been waited for long enough; once.
    pub(super) fn take_no_subflow(&mut self, now: Instant) -> bool {
        let is_due = self.no_subflow_at <= now;
        if is_due {
            self.no_subflow_at = Instant::FAR_FUTURE;
        }
        is_due
    }

    /// The peer has acknowledged nothing for too long.
    pub(super) fn is_stall_due(&self, now: Instant) -> bool {
        self.stall_at <= now
    }

    #[inline]
    pub(super) fn next_timeout(&self) -> Instant {
        self.no_subflow_at.min(self.passive_close_at).min(self.last_fins_at).min(self.stall_at)
    }
}
