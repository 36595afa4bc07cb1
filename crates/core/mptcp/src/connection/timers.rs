//! Deadlines: each part has its own, and says what became of it.

use polypath_units::Instant;

use super::{Connection, Context, Request, SubflowExtension};
use crate::event::CloseReason;
use crate::subflow::Subflow;

impl Connection {
    /// When [`Connection::handle_timeout`] is due next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let mut earliest =
            self.own_timeout().min(self.addresses.next_timeout()).min(self.path_judge.next_timeout());
        for subflow in self.subflows.iter() {
            earliest = earliest.min(subflow.state.join.next_timeout());
            if let Some(at) = subflow.tcp.poll_timeout() {
                earliest = earliest.min(at);
            }
        }
        (earliest != Instant::FAR_FUTURE).then_some(earliest)
    }

    fn own_timeout(&self) -> Instant {
        self.stream
            .send
            .next_timeout()
            .min(self.scheduling.next_timeout())
            .min(self.stream.lifecycle.next_timeout())
            .min(self.stream.fallback.next_timeout())
            .min(self.opening.next_timeout())
            .min(self.silence_timeout_at())
    }

    /// Deadlines passed. Does nothing if it comes early.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let mut position = 0;
        while let Some((subflow, views)) = self.subflows.with_views(position) {
            let Subflow { tcp, state, .. } = subflow;
            let (id, join_due) = (state.id, state.join.next_timeout() <= cx.now);
            if tcp.poll_timeout().is_some_and(|at| at <= cx.now) {
                let was_probing = tcp.is_probing();
                tcp.handle_timeout(
                    cx.now,
                    &mut SubflowExtension { stream: &self.stream, state, views, position },
                );
                let is_silent = tcp.is_probing() && !was_probing;
                self.subflows.refresh_view(position);
                self.scheduling.request();
                if is_silent {
                    self.reinject_from(id);
                }
                self.handle_tcp_events(cx, id);
                if self.subflows.position(id) == Some(position) {
                    self.watch_path(cx, position);
                }
            }
            if join_due && self.subflows.position(id) == Some(position) {
                self.retry_join_ack(cx, position);
            }
            // A subflow that ended has made room at its position for the next.
            if self.subflows.position(id) == Some(position) {
                position += 1;
            }
        }
        if self.own_timeout() <= cx.now {
            self.handle_own_timers(cx);
        }
        self.addresses_timeout(cx);
        self.judge_timeout(cx);
        self.update_close(cx);
    }

    fn handle_own_timers(&mut self, cx: &mut Context<'_>) {
        if self.stream.send.take_retransmit(cx.now) {
            self.data_retransmit(cx);
        }
        self.scheduling.handle_timeout(cx.now);
        if self.stream.send.is_fin_due(cx.now) {
            self.retransmit_data_fin(cx.now);
        }
        if self.stream.lifecycle.is_last_fins_due(cx.now) {
            self.fail(CloseReason::Finished);
            return;
        }
        if self.stream.lifecycle.take_passive_close(cx.now) {
            self.finish_subflows();
        }
        if self.stream.fallback.take_fail(cx.now) {
            self.retry_fail(cx);
        }
        if self.stream.lifecycle.take_no_subflow(cx.now) {
            self.no_subflow_timeout(cx.now);
        }
        if let Some(rivals) = self.opening.take_race(cx.now) {
            self.outbox.ask(Request::Race { initial: self.addresses.initial(), rivals });
        }
        if self.opening.take_confirm(cx.now) {
            self.watch_handshake(cx);
        }
        self.look_for_silence(cx);
        if self.stream.lifecycle.is_stall_due(cx.now) {
            self.give_up(CloseReason::TimedOut);
        }
    }
}
