//! Subflows that end, in order or not, and what that means for the connection (RFC 8684 §3.3.3, §3.6).

use polypath_tcp::{CloseReason as TcpCloseReason, Connection as TcpConnection, State};
use polypath_wire::ResetReason;

use super::{Connection, Context, Request};
use crate::carried::Carried;
use crate::event::{CloseReason, Event, SubflowError};
use crate::host::PathQuality;
use crate::mapping::Mapping;
use crate::path_manager::PathEvent;
use crate::subflow::{Stage, Subflow, SubflowState};

impl Connection {
    /// A subflow is over. `reason` is TCP's word for why.
    pub(super) fn subflow_closed(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        reason: Option<TcpCloseReason>,
    ) {
        let Some(subflow) = self.subflows.remove(position) else { return };
        let tuple = subflow.tcp.tuple();
        let was_established = subflow.state.stage() == Stage::Established;
        self.outbox.ask(Request::RemoveFlow { tuple, carried: Carried::by(&subflow) });
        if self.stream.negotiation.is_client() {
            self.remember_path(&subflow.tcp);
        }
        let error = subflow.state.ending.error().or(match reason {
            None | Some(TcpCloseReason::Finished) => None,
            Some(TcpCloseReason::Reset | TcpCloseReason::Refused) => Some(SubflowError::Reset(None)),
            Some(TcpCloseReason::Aborted) => Some(SubflowError::Local),
            Some(_) => Some(SubflowError::TimedOut),
        });
        if was_established && error.is_none() {
            self.stream.lifecycle.handle_subflow_finished();
        }
        if self.stream.lifecycle.is_mptcp() && !self.stream.lifecycle.is_closed() {
            self.outbox.emit(Event::SubflowClosed { subflow: subflow.state.id, tuple, error });
            self.note_refusal(cx.now, &subflow.state, error);
            self.reinject_from(subflow.state.id);
        }
        if self.stream.lifecycle.is_closed() {
            return;
        }
        self.judge_loss(cx, subflow.state.id);
        self.after_subflow_loss(cx, &subflow, reason, error);
        if self.stream.lifecycle.is_mptcp() && !self.stream.lifecycle.is_closed() {
            let (local, remote) = (tuple.local.addr, tuple.remote);
            let may_return = subflow.state.ending.may_return();
            self.notify_path_manager(
                cx,
                PathEvent::SubflowClosed { local, remote, was_established, may_return },
            );
        }
    }

    fn remember_path(&mut self, tcp: &TcpConnection<Mapping>) {
        let (min_rtt, srtt) = (tcp.min_rtt(), tcp.srtt());
        if srtt.is_zero() {
            return;
        }
        let info = tcp.info();
        let loss_events = info.loss_events().unwrap_or(0) as f64;
        let quality = PathQuality {
            min_rtt,
            bottleneck_bytes_per_s: tcp.bottleneck_bytes_per_s(),
            packets: info.data_segs_out as f64,
            loss_events,
        };
        self.outbox.ask(Request::Remember { tuple: tcp.tuple(), quality });
    }

    /// The peer has said that it has no such connection.
    fn is_unknown_to_peer(
        &self,
        state: &SubflowState,
        reason: Option<TcpCloseReason>,
        error: Option<SubflowError>,
    ) -> bool {
        let is_reset = matches!(reason, Some(TcpCloseReason::Reset | TcpCloseReason::Refused));
        state.stage() == Stage::JoinSyn && error.is_some_and(is_unknown_token)
            || self.is_unconfirmed() && is_reset
    }

    fn after_subflow_loss(
        &mut self,
        cx: &mut Context<'_>,
        subflow: &Subflow,
        reason: Option<TcpCloseReason>,
        error: Option<SubflowError>,
    ) {
        if self.subflows.any(|subflow| !subflow.state.stage().is_joining()) {
            return;
        }
        if !self.stream.lifecycle.is_mptcp() {
            let reason = match reason {
                None | Some(TcpCloseReason::Finished) => CloseReason::Finished,
                Some(TcpCloseReason::Refused) => CloseReason::Refused,
                Some(TcpCloseReason::Reset) => CloseReason::Reset,
                Some(TcpCloseReason::Aborted) => CloseReason::Aborted,
                Some(TcpCloseReason::Unreachable) => CloseReason::Unreachable,
                Some(_) => CloseReason::TimedOut,
            };
            self.fail(reason);
        } else if self.stream.lifecycle.is_all_said()
            && (self.stream.negotiation.is_client() || self.stream.lifecycle.is_passive() || error.is_none())
        {
            self.fail(CloseReason::Finished);
        } else if self.stream.lifecycle.is_all_said() {
            self.stream.lifecycle.await_stragglers(cx.now);
        } else if self.is_unknown_to_peer(&subflow.state, reason, error) {
            self.fail(CloseReason::Reset);
        } else {
            let is_silent =
                reason == Some(TcpCloseReason::TimedOut) && subflow.tcp.has_left_keepalives_unanswered();
            let patience = match (is_silent, self.subflows.is_empty()) {
                (false, _) => self.stream.config.patience_without_subflow(),
                // Keep-alives have asked for as long as was chosen, as over TCP. Another path asks once more.
                (true, false) => self.stream.config.tcp.keepalive_interval,
                (true, true) => return self.fail(CloseReason::TimedOut),
            };
            self.stream.lifecycle.keep_awaiting_subflow(cx.now + patience);
        }
    }

    /// Resets one subflow and says why.
    pub(super) fn reset_subflow(&mut self, position: usize, error: SubflowError, reason: ResetReason) {
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.state.ending.reset(error, reason);
            subflow.state.join.stop();
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
                    self.outbox.ask(Request::TimeWait { tuple, numbers });
                }
                State::Closed => {
                    let id = subflow.state.id;
                    self.handle_tcp_events(cx, id);
                    if self.subflows.position(id) == Some(position) {
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
