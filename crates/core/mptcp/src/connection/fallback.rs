//! Falling back to TCP, in the handshake and later (RFC 8684 §3.7).

use polypath_wire::{DataSeq, DssMapping, MptcpOption, Payload};

use super::infinite_mapping::InfiniteMapping;
use super::{Connection, Context, Request};
use crate::event::{Event, FallbackReason};
use crate::misbehaviour::{Consequence, Misbehaviour};
use crate::subflow::{Stage, Subflow};

impl Connection {
    /// The handshake shows that Multipath TCP does not work: TCP from the first byte on.
    pub(super) fn fall_back_in_handshake(&mut self, position: usize, reason: FallbackReason) {
        self.stream.lifecycle.become_plain();
        self.stream.send.forget_fin();
        self.opening.stop_waiting();
        self.outbox.ask(Request::ForgetToken);
        self.abort_others(position);
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.state.handle_fallback();
            subflow.state.owed.forget_signals();
            // Mappings that arrived say nothing that the subflow itself does not.
            let (offset, undelivered) = subflow.rx.release();
            subflow.rx.become_infinite(offset, self.stream.receive.next());
            self.stream.receive.handle_in_order(undelivered);
        }
        self.outbox.emit(Event::FellBack(reason));
        self.scheduling.request();
    }

    /// A segment without any Multipath TCP option, before any DSS came: options do not pass. Where the peer has answered an MP_JOIN
    /// with the HMAC that only the keys yield, it uses Multipath TCP, and so do we: this subflow is one of several then, of which
    /// none may fall back (RFC 8684 §3.7).
    pub(super) fn unconfirmed_without_dss(&mut self, cx: &mut Context<'_>, position: usize) {
        let has_joined = self.subflows.any(|subflow| subflow.state.stage() == Stage::JoinAck);
        if self.stream.negotiation.is_confirmed() || has_joined || self.carrying_count() > 1 {
            return;
        }
        cx.counters.fallbacks += 1;
        self.fall_back_in_handshake(position, FallbackReason::DssMissing);
    }

    /// TCP has one subflow: those beside the one at `position` end.
    fn abort_others(&mut self, position: usize) {
        // What the path manager wanted just before comes too late as well.
        self.outbox.forget_subflows();
        for (_, subflow) in self.subflows.iter_mut().enumerate().filter(|(at, _)| *at != position) {
            subflow.give_up();
        }
    }

    /// A checksum failed at subflow offset `from`, where data number `data_seq` was to start.
    pub(super) fn checksum_failed(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        data_seq: DataSeq,
        from: u64,
        held: Payload,
    ) {
        let is_alone = self.carrying_count() <= 1;
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        if is_alone {
            subflow.rx.hold(from, held);
            self.stream.fallback.begin_to_fail();
        } else if !subflow.state.ending.is_ending() {
            // It goes with the RST.
            subflow.state.ending.set_fail(data_seq);
            cx.counters.mp_fail_tx += 1;
        }
        let left = self.answer_partly(cx, position, Misbehaviour::WrongChecksum { is_alone });
        if left == Some(Consequence::SendFail) {
            self.send_fail(cx, position);
        }
    }

    /// MP_FAIL leaves: the peer is to send an infinite mapping.
    pub(super) fn send_fail(&mut self, cx: &mut Context<'_>, position: usize) {
        let data_seq = self.stream.receive.next();
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.state.owed.signal(MptcpOption::Fail { data_seq });
            subflow.tcp.request_ack();
            cx.counters.mp_fail_tx += 1;
        }
        self.stream.fallback.handle_fail_sent(cx.now);
    }

    /// MP_FAIL was not answered.
    pub(super) fn retry_fail(&mut self, cx: &mut Context<'_>) {
        let Some(position) = self.subflows.position_where(|subflow| subflow.rx.is_held()) else { return };
        if self.stream.fallback.may_fail_again() {
            self.send_fail(cx, position);
        } else {
            self.answer(cx, position, Misbehaviour::FailUnanswered);
        }
    }

    /// The peer could not verify our data.
    pub(super) fn handle_fail(&mut self, cx: &mut Context<'_>, position: usize, data_seq: DataSeq) {
        cx.counters.mp_fail_rx += 1;
        if data_seq.before(self.stream.send.una()) || data_seq.after(self.stream.send.next()) {
            return self.answer(cx, position, Misbehaviour::FailOfUnsent);
        }
        if self.carrying_count() > 1 {
            // Comes with a RST then; without one, the subflow is of no use either.
            return self.answer(cx, position, Misbehaviour::FailOfOneOfSeveral);
        }
        self.send_infinite(cx, position, data_seq, FallbackReason::ChecksumFailed);
    }

    /// Our side of a mid-connection fallback. Where the unacknowledged data lies in one piece on this subflow, the
    /// mapping is retroactive, as the standard has it; else all of it goes out again from here on.
    fn send_infinite(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        wanted: DataSeq,
        reason: FallbackReason,
    ) {
        if self.stream.fallback.ours().is_some() {
            if let Some(subflow) = self.subflows.get_mut(position) {
                subflow.tcp.request_ack();
            }
            return;
        }
        let Some(subflow) = self.subflows.get(position) else { return };
        let (id, enqueued) = (subflow.state.id, subflow.tcp.enqueued_offset());
        let found = self.stream.send.place_on(id, enqueued, wanted);
        let (data_seq, offset) = found.unwrap_or_else(|| (self.stream.send.rewind(), enqueued));
        cx.counters.infinite_map_tx += 1;
        let seen_at = enqueued + 1;
        self.stream.fallback.send(InfiniteMapping { data_seq, offset, seen_at, is_restart: found.is_none() });
        self.become_plain(cx, position, reason);
    }

    /// No DSS from here on, but for the infinite mapping.
    fn become_plain(&mut self, cx: &mut Context<'_>, position: usize, reason: FallbackReason) {
        cx.counters.fallbacks += 1;
        self.outbox.ask(Request::ForgetToken);
        self.stream.lifecycle.become_plain();
        self.stream.send.become_plain();
        self.abort_others(position);
        // What is in reassembly came from other subflows, and comes again.
        self.stream.receive.forget_reassembly();
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.state.handle_fallback();
            subflow.tcp.request_ack();
        }
        self.outbox.emit(Event::FellBack(reason));
        self.scheduling.request();
        // Its FIN, which said nothing of the stream before, is the end of it now.
        if self.subflows.get(position).is_some_and(|subflow| subflow.tcp.is_peer_finished()) {
            self.subflow_peer_finished(cx, position);
        }
    }

    /// No other subflow carries data. Where our third ACK is on its way, the peer may send data already.
    fn is_only_subflow(&self, position: usize) -> bool {
        let carries = |subflow: &Subflow| {
            let stage = subflow.state.stage();
            stage.carries_data() || stage == Stage::JoinAck
        };
        !self.subflows.iter().enumerate().any(|(at, subflow)| at != position && carries(subflow))
    }

    /// The peer's infinite mapping: its bytes are the stream from the given offset on.
    pub(super) fn handle_infinite_mapping(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        mapping: &DssMapping,
    ) {
        // DATA_FIN takes a number, but no place in the stream.
        let next = self.stream.receive.next_in_stream();
        let most_repeated_bytes = self.stream.config.tcp.receive_buffer_bytes;
        let is_only = self.is_only_subflow(position);
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        let place = self.stream.fallback.place(&subflow.rx, next, mapping, most_repeated_bytes);
        let Some((offset, data_seq)) = place.filter(|_| is_only) else {
            return self.answer(cx, position, Misbehaviour::InfiniteMappingMisplaced);
        };
        cx.counters.infinite_map_rx += 1;
        let (from, bytes) = subflow.rx.release();
        self.start_infinite(cx, position, offset, data_seq, from, bytes);
        if self.stream.lifecycle.is_mptcp() {
            // Both directions fall back: ours starts at what the peer has not acknowledged.
            let una = self.stream.send.una();
            self.send_infinite(cx, position, una, FallbackReason::InfiniteMapping);
        }
    }

    /// Switches the receive side to "everything from `offset` on is data from `data_seq` on", and delivers `bytes`, which
    /// start at subflow offset `from`.
    fn start_infinite(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        offset: u64,
        data_seq: DataSeq,
        from: u64,
        mut bytes: Payload,
    ) {
        self.stream.fallback.stop();
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.rx.become_infinite(offset, data_seq);
        }
        bytes.advance(offset.saturating_sub(from).min(bytes.len() as u64) as usize);
        let seq = data_seq.add(from.saturating_sub(offset));
        self.deliver(cx, position, seq, bytes);
        self.notify_readable();
    }

    /// Data without DSS on the only subflow, right where the last mapping ended: options pass no more.
    pub(super) fn infinite_from_here(&mut self, cx: &mut Context<'_>, position: usize, bytes: Payload) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        let (offset, mut all) = subflow.rx.release();
        subflow.rx.skip(bytes.len());
        all.append(bytes);
        let next = self.stream.receive.next();
        self.start_infinite(cx, position, offset, next, offset, all);
        if self.stream.lifecycle.is_mptcp() {
            let una = self.stream.send.una();
            self.send_infinite(cx, position, una, FallbackReason::DssMissing);
        }
    }

    /// The peer sends plain data while we wait for its infinite mapping: take it as that.
    pub(super) fn plain_data_while_held(&mut self, cx: &mut Context<'_>, position: usize) {
        let next = self.stream.receive.next();
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        if subflow.rx.is_held() {
            let (from, bytes) = subflow.rx.release();
            self.start_infinite(cx, position, from, next, from, bytes);
            if self.stream.lifecycle.is_mptcp() {
                let una = self.stream.send.una();
                self.send_infinite(cx, position, una, FallbackReason::ChecksumFailed);
            }
        }
    }
}
