//! Closing: DATA_FIN, FINs of subflows, MP_FASTCLOSE, and subflows that die (RFC 8684 §3.3.3, §3.5).

use polypath_tcp::{CloseReason as TcpCloseReason, State};
use polypath_units::{Duration, Instant};
use polypath_wire::ResetReason;

use super::state::Mode;
use super::{Connection, Context, Request};
use crate::event::{CloseReason, Event, SubflowError};
use crate::host::PathQuality;
use crate::path_manager::PathEvent;
use crate::subflow::{ReceiveMode, Stage, Subflow};

const MIN_DATA_FIN_INTERVAL: Duration = Duration::from_millis(200);
const MAX_DATA_FIN_INTERVAL: Duration = Duration::from_secs(10);

/// Who finished first, and whose last subflow was reset, answers for so long a peer that joins again as it missed the
/// acknowledgment of its DATA_FIN. Where subflows end in order, their TIME-WAIT does that (RFC 8684, Appendix C).
const TIME_WAIT_WITHOUT_SUBFLOW: Duration = Duration::from_secs(5);

/// How long a passive closer waits for the peer's FINs before it sends its own.
const PASSIVE_CLOSE_WAIT: Duration = Duration::from_secs(1);

/// How long FINs of subflows are waited for once either end has acknowledged everything: a path that died in between never
/// brings its peer's. As long as Linux stays in FIN-WAIT-2.
const LAST_FINS_WAIT: Duration = Duration::from_secs(60);

impl Connection {
    /// Once everything was handed out and the application writes no more: DATA_FIN, or FIN after a fallback.
    pub(super) fn schedule_fin(&mut self, cx: &mut Context<'_>) {
        if !self.shared.write_closed || self.shared.send.unsent_bytes() > 0 {
            return;
        }
        match self.shared.mode {
            Mode::Plain => {
                for subflow in &mut self.subflows {
                    if !subflow.meta.finishing {
                        subflow.meta.finishing = true;
                        subflow.tcp.finish();
                    }
                }
            }
            Mode::Mptcp if self.shared.data_fin.is_none() => {
                self.shared.data_fin = Some(self.shared.send.end());
                self.timers.data_fin_interval = Duration::ZERO;
                self.retransmit_data_fin(cx.now);
            }
            _ => {}
        }
    }

    /// Sends DATA_FIN on every subflow, and again later.
    pub(super) fn retransmit_data_fin(&mut self, now: Instant) {
        self.timers.data_fin = Instant::FAR_FUTURE;
        if self.shared.data_fin.is_none() || self.shared.data_fin_acked {
            return;
        }
        let is_first = self.timers.data_fin_interval.is_zero();
        for subflow in &mut self.subflows {
            subflow.meta.owes_data_fin = matches!(subflow.meta.stage, Stage::Established | Stage::CapableAck);
            subflow.meta.keys_said &= is_first;
        }
        let slowest = self.subflows.iter().map(|subflow| subflow.tcp.rto()).max().unwrap_or_default();
        let wait =
            self.timers.data_fin_interval.max(slowest).max(MIN_DATA_FIN_INTERVAL).min(MAX_DATA_FIN_INTERVAL);
        self.timers.data_fin_interval = wait * 2;
        self.timers.data_fin = now + wait;
    }

    /// Moves closing on after whatever happened.
    pub(super) fn update_close(&mut self, cx: &mut Context<'_>) {
        if self.shared.discarded && self.has_delivered_all() {
            return self.abort();
        }
        self.watch_progress(cx.now);
        let shared = &self.shared;
        if self.closed.is_some()
            || shared.mode != Mode::Mptcp
            || !shared.peer_finished
            || !shared.data_fin_acked
        {
            return;
        }
        if self.subflows.is_empty() {
            if self.timers.no_subflow == Instant::FAR_FUTURE {
                self.fail(CloseReason::Finished);
            }
            return;
        }
        if self.subflows.iter().all(|subflow| subflow.meta.finishing) {
            if self.timers.last_fins == Instant::FAR_FUTURE {
                self.timers.last_fins = cx.now + LAST_FINS_WAIT;
            }
            return;
        }
        // Whoever finished first finishes the subflows first, and keeps TIME-WAIT; the other waits for the FINs.
        if !self.shared.peer_fin_first || self.subflows.iter().all(|subflow| subflow.tcp.is_peer_finished()) {
            self.finish_subflows();
        } else if self.timers.passive_close == Instant::FAR_FUTURE {
            self.timers.passive_close = cx.now + PASSIVE_CLOSE_WAIT;
        }
    }

    /// The peer has all of our stream and its end: a RST takes nothing from it. Only then is the peer of an application that let go
    /// told that what it went on to send was lost (RFC 9293 §3.6.1).
    fn has_delivered_all(&self) -> bool {
        match self.shared.mode {
            Mode::Mptcp => self.shared.data_fin_acked,
            _ => self.subflows.iter().all(|subflow| subflow.tcp.state() == State::FinWait2),
        }
    }

    /// The application may have set how long its data may stay unacknowledged, whatever subflows do (RFC 5482). After it has let
    /// go, the connection may take as long as its peer goes on to take data. Once all is delivered, the peer's end is waited for as
    /// in FIN-WAIT-2.
    pub(super) fn watch_progress(&mut self, now: Instant) {
        let tcp = &self.shared.config.tcp;
        if !self.released && tcp.user_timeout.is_none() || self.closed.is_some() {
            return;
        }
        let is_delivered = self.has_delivered_all();
        let waits = self.announced && self.shared.send.len_bytes() > 0;
        let by_user = tcp.user_timeout.filter(|_| waits);
        let as_orphan =
            self.released.then_some(if is_delivered { tcp.fin_wait_2 } else { tcp.orphan_timeout });
        let Some(limit) = by_user.into_iter().chain(as_orphan).min() else {
            (self.timers.stall, self.timers.stalled_at) = (Instant::FAR_FUTURE, None);
            return;
        };
        let acknowledged = Some((self.shared.send.start(), is_delivered));
        if self.timers.stalled_at != acknowledged {
            self.timers.stalled_at = acknowledged;
            self.timers.stall = now + limit;
        }
    }

    /// The peer still has to get something: data, or its end.
    pub(crate) fn is_delivering(&self) -> bool {
        self.closed.is_none() && !self.has_delivered_all()
    }

    pub(super) fn finish_subflows(&mut self) {
        // Whoever joins at the end, with nothing else left, has missed it: it is told before that subflow ends too.
        let only_joining = self.subflows.iter().all(|subflow| subflow.meta.stage == Stage::JoinSynAck);
        if only_joining {
            return;
        }
        for subflow in &mut self.subflows {
            if subflow.meta.stage.is_joining() {
                subflow.meta.error = Some(SubflowError::Local);
                subflow.tcp.abort();
            } else if !subflow.meta.finishing {
                subflow.tcp.finish();
            }
            subflow.meta.finishing = true;
        }
    }

    /// A subflow's FIN arrived.
    pub(super) fn subflow_peer_finished(&mut self, cx: &Context<'_>, position: usize) {
        if self.shared.mode != Mode::Mptcp {
            if self.shared.peer_finished {
                return;
            }
            if self.ends_early(position) {
                return self.fail(CloseReason::Damaged);
            }
            self.shared.peer_finished = true;
            self.notify_peer_finished();
            return;
        }
        let is_all_said = self.is_all_said();
        let Some(subflow) = self.subflows.get(position) else { return };
        let id = subflow.meta.id;
        let is_last = subflow.meta.stage == Stage::Established && !self.is_other_in_use(id);
        if is_last && !is_all_said {
            // A FIN ends one direction of one subflow. Only DATA_FIN ends the stream, and ours is open (RFC 8684 §3.3.3).
            if !self.shared.peer_finished {
                self.timers.no_subflow = cx.now + self.shared.config.no_subflow_timeout;
            }
            return;
        }
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.meta.finishing = true;
            subflow.tcp.finish();
        }
        // Whatever it still held can go elsewhere.
        self.reinject_from(id);
    }

    /// No subflow came up in time on which the peer's data could come.
    pub(super) fn no_subflow_timeout(&mut self, now: Instant) {
        self.timers.no_subflow = Instant::FAR_FUTURE;
        let is_open = |subflow: &Subflow| !subflow.meta.stage.is_joining();
        if !self.subflows.iter().any(|subflow| is_open(subflow)) {
            let all_said = self.is_all_said();
            return self.fail(if all_said { CloseReason::Finished } else { CloseReason::TimedOut });
        }
        let may_speak = |subflow: &Subflow| is_open(subflow) && !subflow.tcp.is_peer_finished();
        if self.shared.peer_finished || self.subflows.iter().any(|subflow| may_speak(subflow)) {
            return;
        }
        if self.shared.send.len_bytes() > 0 {
            // It hears us, and says so.
            self.timers.no_subflow = now + self.shared.config.no_subflow_timeout;
        } else {
            self.fail(CloseReason::TimedOut);
        }
    }

    /// The FIN of a subflow that has fallen back leaves bytes of the peer's stream out, as far as the data level knows: it came
    /// in the middle of a mapping, before an infinite mapping for what could not be verified, or before what its DATA_FIN said.
    fn ends_early(&self, position: usize) -> bool {
        let shared = &self.shared;
        let is_cut = self.subflows.get(position).is_some_and(|subflow| match subflow.rx.mode {
            ReceiveMode::Mapped => subflow.rx.is_within_mapping(),
            ReceiveMode::Held { .. } => true,
            ReceiveMode::Infinite { .. } => false,
        });
        let before_fin = shared.peer_fin.is_some_and(|fin| shared.receive_next.before(fin));
        is_cut || before_fin || !shared.reassembly.is_empty()
    }

    /// A subflow is over. `reason` is TCP's word for why.
    pub(super) fn subflow_closed(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        reason: Option<TcpCloseReason>,
    ) {
        if position >= self.subflows.len() {
            return;
        }
        let subflow = self.subflows.remove(position);
        if position < self.shared.views.len() {
            self.shared.views.remove(position);
        }
        let tuple = subflow.tcp.tuple();
        let was_established = subflow.meta.stage == Stage::Established;
        self.requests.push(Request::RemoveFlow { tuple });
        if self.shared.is_client {
            self.remember_path(&subflow.tcp);
        }
        let error = subflow.meta.error.or(match reason {
            None | Some(TcpCloseReason::Finished) => None,
            Some(TcpCloseReason::Reset | TcpCloseReason::Refused) => Some(SubflowError::Reset(None)),
            Some(TcpCloseReason::Aborted) => Some(SubflowError::Local),
            Some(_) => Some(SubflowError::TimedOut),
        });
        if self.shared.mode == Mode::Mptcp && self.closed.is_none() {
            self.emit(Event::SubflowClosed { subflow: subflow.meta.id, tuple, error });
            self.note_refusal(cx.now, &subflow.meta, error);
            self.reinject_from(subflow.meta.id);
        }
        if self.closed.is_some() {
            return;
        }
        self.judge_loss(cx, subflow.meta.id);
        self.after_subflow_loss(cx, &subflow.meta, reason, error);
        if self.shared.mode == Mode::Mptcp && self.closed.is_none() {
            let (local, remote) = (tuple.local.addr, tuple.remote);
            let may_return = !subflow.meta.is_refused_for_good;
            self.notify_path_manager(
                cx,
                PathEvent::SubflowClosed { local, remote, was_established, may_return },
            );
        }
    }

    fn remember_path(&mut self, tcp: &polypath_tcp::Connection<crate::mapping::Mapping>) {
        let (min_rtt, srtt) = (tcp.min_rtt(), tcp.srtt());
        if srtt.is_zero() {
            return;
        }
        let info = tcp.info();
        let loss_events = (info.recoveries + info.timeouts).saturating_sub(info.spurious) as f64;
        let quality = PathQuality {
            min_rtt,
            bottleneck_bytes_per_s: tcp.bottleneck_bytes_per_s(),
            packets: info.segs_out as f64,
            loss_events,
        };
        self.requests.push(Request::Remember { tuple: tcp.tuple(), quality });
    }

    /// The peer has said that it has no such connection.
    fn is_unknown_to_peer(
        &self,
        meta: &crate::subflow::Meta,
        reason: Option<TcpCloseReason>,
        error: Option<SubflowError>,
    ) -> bool {
        let is_reset = matches!(reason, Some(TcpCloseReason::Reset | TcpCloseReason::Refused));
        meta.stage == Stage::JoinSyn && error.is_some_and(is_unknown_token)
            || self.is_unconfirmed() && is_reset
    }

    fn after_subflow_loss(
        &mut self,
        cx: &mut Context<'_>,
        meta: &crate::subflow::Meta,
        reason: Option<TcpCloseReason>,
        error: Option<SubflowError>,
    ) {
        if self.subflows.iter().any(|subflow| !subflow.meta.stage.is_joining()) {
            return;
        }
        if self.shared.mode != Mode::Mptcp {
            let reason = match reason {
                None | Some(TcpCloseReason::Finished) => CloseReason::Finished,
                Some(TcpCloseReason::Refused) => CloseReason::Refused,
                Some(TcpCloseReason::Reset) => CloseReason::Reset,
                Some(TcpCloseReason::Aborted) => CloseReason::Aborted,
                Some(TcpCloseReason::Unreachable) => CloseReason::Unreachable,
                Some(_) => CloseReason::TimedOut,
            };
            self.fail(reason);
        } else if self.is_all_said()
            && (self.shared.is_client || self.shared.peer_fin_first || error.is_none())
        {
            self.fail(CloseReason::Finished);
        } else if self.is_all_said() {
            self.timers.no_subflow = cx.now + TIME_WAIT_WITHOUT_SUBFLOW;
        } else if self.is_unknown_to_peer(meta, reason, error) {
            self.fail(CloseReason::Reset);
        } else if self.timers.no_subflow == Instant::FAR_FUTURE {
            self.timers.no_subflow = cx.now + self.shared.config.no_subflow_timeout;
        }
    }

    /// The connection is over for `reason`; what is left of subflows is reset.
    pub(super) fn fail(&mut self, reason: CloseReason) {
        if self.closed.is_some() {
            return;
        }
        self.closed = Some(reason);
        self.requests.push(Request::ForgetToken);
        for subflow in &mut self.subflows {
            subflow.tcp.abort();
        }
        self.timers = super::Timers::OFF;
        self.addresses.stop();
        self.forget_reinjections();
        self.shared.sent.clear();
        if self.announced || self.shared.is_client {
            self.emit(Event::Closed(reason));
        } else {
            // The application never heard of it, so nobody will let go of it.
            self.events.clear();
            self.released = true;
        }
    }

    /// The application aborts: MP_FASTCLOSE in a RST on every subflow (RFC 8684 §3.5), or a plain RST.
    pub(crate) fn abort(&mut self) {
        self.give_up(CloseReason::Aborted);
    }

    /// Ends the connection for `reason`, as an abort does.
    pub(super) fn give_up(&mut self, reason: CloseReason) {
        self.shared.fastclose = self.shared.mode == Mode::Mptcp && self.shared.remote_key.is_some();
        self.fail(reason);
    }

    /// What a MP_FASTCLOSE for the peer needs; none if this is no Multipath TCP connection.
    pub(crate) fn fastclose_key(&self) -> Option<u64> {
        self.shared.remote_key.filter(|_| self.shared.mode == Mode::Mptcp).map(|key| key.0)
    }

    pub(super) fn handle_fastclose(&mut self, cx: &mut Context<'_>, key: u64) {
        cx.mib.mp_fastclose_rx += 1;
        if key == self.shared.local_key.0 && self.shared.mode == Mode::Mptcp {
            self.fail(CloseReason::Reset);
        }
    }

    /// Resets one subflow and says why.
    pub(super) fn reset_subflow(&mut self, position: usize, error: SubflowError, reason: ResetReason) {
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.meta.error = Some(error);
            subflow.meta.reset_reason = Some(reason);
            subflow.meta.finishing = true;
            subflow.meta.join_retry_at = Instant::FAR_FUTURE;
            subflow.tcp.abort();
        }
    }

    /// Lets go of subflows that have nothing more to send: closed ones, and those in TIME-WAIT, which the host answers
    /// for from now on.
    pub(super) fn reap(&mut self, cx: &mut Context<'_>) {
        let mut position = 0;
        while let Some(subflow) = self.subflows.get(position) {
            match subflow.tcp.state() {
                State::TimeWait => {
                    let (tuple, numbers) = (subflow.tcp.tuple(), subflow.tcp.time_wait_numbers());
                    self.subflow_closed(cx, position, None);
                    self.requests.push(Request::TimeWait { tuple, numbers });
                }
                State::Closed => {
                    let id = subflow.meta.id;
                    self.handle_tcp_events(cx, id);
                    if self.position(id) == Some(position) {
                        self.subflow_closed(cx, position, None);
                    }
                }
                _ => position += 1,
            }
        }
        self.update_close(cx);
    }
}

/// An MP_JOIN was answered by who has no connection of that token any more (RFC 8684 §3.2). Who has one and no room for another
/// subflow says so, and may have room once it knows of those that ended.
pub(super) fn is_unknown_token(error: SubflowError) -> bool {
    let reasons = [None, Some(ResetReason::UNSPECIFIED), Some(ResetReason::MPTCP)];
    matches!(error, SubflowError::Reset(reason) if reasons.contains(&reason))
}
