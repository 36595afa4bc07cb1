//! Closing: DATA_FIN, FINs of subflows, MP_FASTCLOSE (RFC 8684 §3.3.3, §3.5).

use polypath_tcp::State;
use polypath_units::Instant;

use super::lifecycle::Mode;
use super::{Connection, Context, Request};
use crate::event::{CloseReason, Event};
use crate::misbehaviour::Misbehaviour;
use crate::subflow::{Stage, Subflow};

impl Connection {
    /// Once everything was handed out and the application writes no more: DATA_FIN, or FIN after a fallback.
    pub(super) fn schedule_fin(&mut self, cx: &mut Context<'_>) {
        if !self.stream.lifecycle.is_shut_down() || self.stream.send.unsent_bytes() > 0 {
            return;
        }
        match self.stream.lifecycle.mode() {
            Mode::Plain => {
                for subflow in self.subflows.iter_mut() {
                    subflow.finish();
                }
            }
            Mode::Mptcp => {
                if self.stream.send.finish() {
                    self.stream.lifecycle.handle_data_fin_sent();
                    self.retransmit_data_fin(cx.now);
                }
            }
            Mode::Negotiating => {}
        }
    }

    /// Sends DATA_FIN on every subflow, and again later.
    pub(super) fn retransmit_data_fin(&mut self, now: Instant) {
        let subflows = &self.subflows;
        let Some(is_first) = self.stream.send.poll_fin(now, || subflows.longest(|tcp| tcp.rto())) else {
            return;
        };
        for subflow in self.subflows.iter_mut() {
            subflow.state.owe_data_fin(is_first);
        }
    }

    /// Moves closing on after whatever happened.
    pub(super) fn update_close(&mut self, cx: &mut Context<'_>) {
        if self.stream.receive.has_discarded() && self.has_delivered_all() {
            return self.abort();
        }
        self.watch_progress(cx.now);
        if self.stream.lifecycle.is_closed()
            || !self.stream.lifecycle.is_mptcp()
            || !self.stream.lifecycle.is_all_said()
        {
            return;
        }
        if self.subflows.is_empty() {
            if !self.stream.lifecycle.awaits_subflow() {
                self.fail(CloseReason::Finished);
            }
            return;
        }
        if self.subflows.all(|subflow| subflow.state.ending.is_ending()) {
            return self.stream.lifecycle.await_last_fins(cx.now);
        }
        // Whoever finished first finishes the subflows first, and keeps TIME-WAIT; the other waits for the FINs.
        if !self.stream.lifecycle.is_passive() || self.subflows.all(|subflow| subflow.tcp.is_peer_finished())
        {
            self.finish_subflows();
        } else {
            self.stream.lifecycle.await_peer_fins(cx.now);
        }
    }

    /// The peer has all of our stream and its end: a RST takes nothing from it. Only then is the peer of an application that let go
    /// told that what it went on to send was lost (RFC 9293 §3.6.1).
    fn has_delivered_all(&self) -> bool {
        match self.stream.lifecycle.mode() {
            Mode::Mptcp => self.stream.send.is_fin_acked(),
            _ => self.subflows.all(|subflow| subflow.tcp.state() == State::FinWait2),
        }
    }

    /// Gives the connection up in time, if the peer acknowledges nothing more.
    #[inline]
    pub(super) fn watch_progress(&mut self, now: Instant) {
        if self.stream.lifecycle.watches_progress(&self.stream.config) {
            let progress = (self.stream.send.una(), self.has_delivered_all());
            let has_unacknowledged = self.stream.send.len_bytes() > 0;
            self.stream.lifecycle.watch_progress(now, &self.stream.config, progress, has_unacknowledged);
        }
    }

    /// The peer still has to get something: data, or its end.
    pub(crate) fn is_delivering(&self) -> bool {
        !self.stream.lifecycle.is_closed() && !self.has_delivered_all()
    }

    /// See [`Lifecycle::is_settled`](super::lifecycle::Lifecycle::is_settled).
    pub(crate) fn is_settled(&self) -> bool {
        self.stream.lifecycle.is_settled()
    }

    /// It ended before the peer had everything.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.stream.lifecycle.is_cut_short()
    }

    pub(super) fn finish_subflows(&mut self) {
        // Whoever joins at the end, with nothing else left, has missed it: it is told before that subflow ends too.
        let only_joining = self.subflows.all(|subflow| subflow.state.stage() == Stage::JoinSynAck);
        if only_joining {
            return;
        }
        for subflow in self.subflows.iter_mut() {
            if subflow.state.stage().is_joining() {
                subflow.give_up();
            } else {
                subflow.finish();
            }
        }
    }

    /// A subflow's FIN arrived.
    pub(super) fn subflow_peer_finished(&mut self, cx: &mut Context<'_>, position: usize) {
        if !self.stream.lifecycle.is_mptcp() {
            if self.stream.receive.is_finished() {
                return;
            }
            if self.ends_early(position) {
                return self.answer(cx, position, Misbehaviour::StreamCutShort);
            }
            self.stream.receive.finish_plain();
            self.notify_peer_finished();
            return;
        }
        let is_all_said = self.stream.lifecycle.is_all_said();
        let Some(subflow) = self.subflows.get(position) else { return };
        let id = subflow.state.id;
        let is_last = subflow.state.stage() == Stage::Established && !self.is_other_in_use(id);
        if is_last && !is_all_said {
            // A FIN ends one direction of one subflow. Only DATA_FIN ends the stream, and ours is open (RFC 8684 §3.3.3).
            if !self.stream.receive.is_finished() {
                self.stream.lifecycle.await_subflow(cx.now + self.stream.config.patience_without_subflow());
            }
            return;
        }
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.finish();
        }
        // Whatever it still held can go elsewhere.
        self.reinject_from(id);
    }

    /// No subflow came up in time on which the peer's data could come.
    pub(super) fn no_subflow_timeout(&mut self, now: Instant) {
        let is_open = |subflow: &Subflow| !subflow.state.stage().is_joining();
        if !self.subflows.any(is_open) {
            let all_said = self.stream.lifecycle.is_all_said();
            return self.fail(if all_said { CloseReason::Finished } else { CloseReason::TimedOut });
        }
        let may_speak = |subflow: &Subflow| is_open(subflow) && !subflow.tcp.is_peer_finished();
        if self.stream.receive.is_finished() || self.subflows.any(may_speak) {
            return;
        }
        if self.stream.send.len_bytes() > 0 {
            // It hears us, and says so.
            self.stream.lifecycle.await_subflow(now + self.stream.config.patience_without_subflow());
        } else {
            self.fail(CloseReason::TimedOut);
        }
    }

    /// The FIN of a subflow that has fallen back leaves bytes of the peer's stream out, as far as the data level knows: it came
    /// in the middle of a mapping, before an infinite mapping for what could not be verified, or before what its DATA_FIN said.
    fn ends_early(&self, position: usize) -> bool {
        let is_cut = self.subflows.get(position).is_some_and(|subflow| subflow.rx.misses_bytes());
        is_cut || self.stream.receive.is_incomplete()
    }

    /// The connection is over for `reason`; what is left of subflows is reset.
    pub(super) fn fail(&mut self, reason: CloseReason) {
        let is_client = self.stream.negotiation.is_client();
        // Of a stream that has not ended, what is written counts.
        let is_owed = self.stream.send.len_bytes() > 0 || self.stream.lifecycle.is_write_closed();
        if reason != CloseReason::Finished && is_owed && !self.has_delivered_all() {
            self.stream.lifecycle.handle_cut_short();
        }
        if !self.stream.lifecycle.become_closed(is_client) {
            return;
        }
        self.outbox.ask(Request::ForgetToken);
        for subflow in self.subflows.iter_mut() {
            subflow.tcp.abort();
        }
        self.stream.send.stop();
        self.scheduling.stop();
        self.opening.stop();
        self.stream.fallback.stop();
        self.addresses.stop();
        self.silence_watch = None;
        if self.stream.lifecycle.is_announced() || is_client {
            self.outbox.emit(Event::Closed(reason));
        } else {
            // The application never heard of it.
            self.outbox.forget_events();
        }
    }

    /// The application aborts: MP_FASTCLOSE in a RST on every subflow (RFC 8684 §3.5), or a plain RST.
    pub(crate) fn abort(&mut self) {
        self.give_up(CloseReason::Aborted);
    }

    /// Ends the connection for `reason`, as an abort does.
    pub(super) fn give_up(&mut self, reason: CloseReason) {
        self.stream
            .lifecycle
            .set_fastclose(self.stream.lifecycle.is_mptcp() && self.stream.negotiation.knows_peer());
        self.fail(reason);
    }

    pub(super) fn handle_fastclose(&mut self, cx: &mut Context<'_>, position: usize, key: u64) {
        cx.counters.mp_fastclose_rx += 1;
        if !self.stream.lifecycle.is_mptcp() {
            return;
        }
        if self.stream.negotiation.is_local_key(key) {
            self.fail(CloseReason::Reset);
        } else {
            self.answer(cx, position, Misbehaviour::WrongKeyInFastclose);
        }
    }
}
