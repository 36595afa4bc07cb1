//! Falling back to TCP, in the handshake and later (RFC 8684 §3.7).

use polypath_units::{Duration, Instant};
use polypath_wire::{DataSeq, DssMapping, MptcpOption, Payload, ResetReason, Segment};

use super::state::{InfiniteMapping, Mode};
use super::{Connection, Context, Request};
use crate::event::{CloseReason, Event, FallbackReason, SubflowError};
use crate::subflow::{ReceiveMode, Stage};

/// How often, and how long apart, MP_FAIL is sent while no infinite mapping comes.
const FAIL_INTERVAL: Duration = Duration::from_millis(500);
const FAIL_RETRIES: u8 = 6;

impl Connection {
    /// The handshake shows that Multipath TCP does not work: TCP from the first byte on.
    pub(super) fn fall_back_in_handshake(&mut self, position: usize, reason: FallbackReason) {
        self.shared.mode = Mode::Plain;
        self.shared.data_fin = None;
        self.timers.data_fin = Instant::FAR_FUTURE;
        self.timers.confirm = Instant::FAR_FUTURE;
        self.requests.push(Request::ForgetToken);
        self.forget_reinjections();
        self.abort_others(position);
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.meta.stage = Stage::Plain;
            subflow.meta.signals.clear();
            // Mappings that arrived say nothing that the subflow itself does not.
            let (offset, data_seq) = (subflow.rx.gathered_from(), self.shared.receive_next);
            let gathered = core::mem::take(&mut subflow.rx.gathered);
            subflow.rx.forget_mappings();
            subflow.rx.mode = ReceiveMode::Infinite { offset, data_seq };
            self.deliver_in_order(gathered);
        }
        self.emit(Event::FellBack(reason));
        self.needs_schedule = true;
    }

    /// A segment without any Multipath TCP option, before any DSS came: options do not pass. Where the peer has answered an MP_JOIN
    /// with the HMAC that only the keys yield, it uses Multipath TCP, and so do we: this subflow is one of several then, of which
    /// none may fall back (RFC 8684 §3.7).
    pub(super) fn unconfirmed_without_dss(&mut self, cx: &mut Context<'_>, position: usize) {
        let has_joined = self.subflows.iter().any(|subflow| subflow.meta.stage == Stage::JoinAck);
        if self.shared.confirmed || has_joined || self.carrying_count() > 1 {
            return;
        }
        cx.mib.fallbacks += 1;
        self.fall_back_in_handshake(position, FallbackReason::DssMissing);
    }

    /// TCP has one subflow: those beside the one at `position` end.
    fn abort_others(&mut self, position: usize) {
        // What the path manager wanted just before comes too late as well.
        self.requests.retain(|request| !matches!(request, Request::OpenSubflow { .. }));
        for (_, subflow) in self.subflows.iter_mut().enumerate().filter(|(at, _)| *at != position) {
            subflow.meta.error = Some(SubflowError::Local);
            subflow.meta.finishing = true;
            subflow.tcp.abort();
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
        cx.mib.mp_fail_tx += 1;
        let alone = self.carrying_count() <= 1;
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        if !alone {
            subflow.meta.fail_on_reset = Some(data_seq);
            self.reset_subflow(position, SubflowError::Middlebox, ResetReason::MIDDLEBOX);
            return;
        }
        subflow.rx.forget_mappings();
        subflow.rx.mode = ReceiveMode::Held { from, bytes: held };
        self.timers.fail_retries = 0;
        self.send_fail(cx, position);
    }

    fn send_fail(&mut self, cx: &mut Context<'_>, position: usize) {
        let data_seq = self.shared.receive_next;
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.meta.signals.push(MptcpOption::Fail { data_seq });
            subflow.tcp.request_ack();
        }
        self.timers.fail = cx.now + FAIL_INTERVAL;
    }

    pub(super) fn retry_fail(&mut self, cx: &mut Context<'_>) {
        self.timers.fail = Instant::FAR_FUTURE;
        let held =
            self.subflows.iter().position(|subflow| matches!(subflow.rx.mode, ReceiveMode::Held { .. }));
        let Some(position) = held else { return };
        self.timers.fail_retries += 1;
        if self.timers.fail_retries < FAIL_RETRIES {
            self.send_fail(cx, position);
        } else {
            self.reset_subflow(position, SubflowError::Middlebox, ResetReason::MIDDLEBOX);
        }
    }

    /// The peer could not verify our data.
    pub(super) fn handle_fail(&mut self, cx: &mut Context<'_>, position: usize, data_seq: DataSeq) {
        cx.mib.mp_fail_rx += 1;
        if data_seq.before(self.shared.send.start()) || data_seq.after(self.shared.send.next()) {
            // Nothing of that number is outstanding.
            return;
        }
        if self.carrying_count() > 1 {
            // Comes with a RST then; without one, the subflow is of no use either.
            self.reset_subflow(position, SubflowError::Middlebox, ResetReason::MIDDLEBOX);
            return;
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
        if self.shared.infinite_mapping.is_some() {
            if let Some(subflow) = self.subflows.get_mut(position) {
                subflow.tcp.request_ack();
            }
            return;
        }
        let Some(subflow) = self.subflows.get(position) else { return };
        let (id, enqueued) = (subflow.meta.id, subflow.tcp.enqueued_offset());
        let found = self.contiguous_from(id, wanted);
        let (data_seq, offset) = match found {
            Some(found) => found,
            None => {
                let una = self.shared.send.start();
                self.shared.send.rewind(una);
                self.shared.sent.clear();
                (una, enqueued)
            }
        };
        cx.mib.infinite_map_tx += 1;
        let seen_at = enqueued + 1;
        self.shared.infinite_mapping =
            Some(InfiniteMapping { data_seq, offset, seen_at, anew: found.is_none() });
        self.become_plain(cx, position, reason);
    }

    /// Where data number `wanted` is on subflow `id`, if everything sent from it on follows it there in one piece, and was
    /// never anywhere else: a copy is behind what the peer could not verify, so the peer would take its place for that of
    /// the mapping itself (see `InfiniteMapping::anew`).
    fn contiguous_from(&self, id: u8, wanted: DataSeq) -> Option<(DataSeq, u64)> {
        let shared = &self.shared;
        let subflow = self.subflows.get(self.position(id)?)?;
        let end = shared.send.next();
        if shared.sent.is_empty() {
            return (wanted == end).then_some((end, subflow.tcp.enqueued_offset()));
        }
        let mut expected: Option<(DataSeq, u64)> = None;
        let mut first = None;
        for chunk in shared.sent.iter().filter(|chunk| chunk.end().after(wanted)) {
            let start_offset = chunk.end_offset.checked_sub(u64::from(chunk.len))?;
            if chunk.subflow != id
                || chunk.again
                || expected.is_some_and(|at| at != (chunk.seq, start_offset))
            {
                return None;
            }
            first.get_or_insert((chunk.seq, start_offset));
            expected = Some((chunk.end(), chunk.end_offset));
        }
        let (seq, offset) = first?;
        let (last_seq, last_offset) = expected?;
        let ahead = wanted.diff(seq);
        let complete = last_seq == end && last_offset == subflow.tcp.enqueued_offset() && ahead >= 0;
        complete.then(|| (wanted, offset + ahead as u64))
    }

    /// No DSS from here on, but for the infinite mapping.
    fn become_plain(&mut self, cx: &mut Context<'_>, position: usize, reason: FallbackReason) {
        cx.mib.fallbacks += 1;
        self.forget_reinjections();
        self.requests.push(Request::ForgetToken);
        self.shared.mode = Mode::Plain;
        self.timers.data_fin = Instant::FAR_FUTURE;
        self.timers.data_retransmit = Instant::FAR_FUTURE;
        self.shared.data_fin = None;
        self.abort_others(position);
        // What is in reassembly came from other subflows, and comes again.
        self.shared.reassembly.clear();
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.meta.stage = Stage::Plain;
            subflow.tcp.request_ack();
        }
        self.subflows.swap(0, position);
        self.shared.views.swap(0, position);
        self.emit(Event::FellBack(reason));
        self.needs_schedule = true;
        // Its FIN, which said nothing of the stream before, is the end of it now.
        if self.subflows.first().is_some_and(|subflow| subflow.tcp.is_peer_finished()) {
            self.subflow_peer_finished(cx, 0);
        }
    }

    /// From which subflow offset on everything is data, and from which number on, if an infinite mapping is to be believed: on
    /// the only subflow (RFC 8684 §3.7), and so that the stream goes on without a gap. An end would else be taken for that of a
    /// stream of which bytes are missing.
    fn place_of_infinite(&self, position: usize, mapping: &DssMapping) -> Option<(u64, DataSeq)> {
        // DATA_FIN takes a number, but no place in the stream.
        let next =
            self.shared.peer_fin.filter(|_| self.shared.peer_finished).unwrap_or(self.shared.receive_next);
        let data_seq = mapping.data_seq.expand(next);
        let subflow = self.subflows.get(position)?;
        // Where our third ACK is on its way, the peer may send data already.
        let is_other = |other: &crate::subflow::Subflow| {
            (other.meta.stage.carries_data() || other.meta.stage == Stage::JoinAck)
                && other.meta.id != subflow.meta.id
        };
        if self.subflows.iter().any(|other| is_other(other)) {
            return None;
        }
        let near = subflow.rx.offset;
        let start = mapping.subflow_offset.wrapping_sub(1);
        let offset = near.checked_add_signed(i64::from(start.wrapping_sub(near as u32) as i32))?;
        let first_missing = match &subflow.rx.mode {
            ReceiveMode::Held { from, .. } => *from,
            ReceiveMode::Mapped => subflow.rx.gathered_from(),
            ReceiveMode::Infinite { .. } => return None,
        };
        let repeats = next.diff(data_seq);
        match self.segment_offset {
            // Not retroactive: what counts is the place of the segment itself (see `InfiniteMapping::anew`). The peer sends
            // everything anew that we miss, so if this segment has overtaken others, what they bring lies before it.
            Some(own) if offset > first_missing && repeats < 0 => {
                let overtaken = repeats.unsigned_abs();
                let offset = own.checked_sub(overtaken).filter(|offset| *offset >= first_missing)?;
                Some((offset, next))
            }
            // It repeats no more than may be outstanding.
            Some(own) if offset > first_missing || offset == own => {
                let is_near = repeats >= 0 && repeats as u64 <= self.shared.config.tcp.receive_buffer_bytes;
                is_near.then_some((own, data_seq))
            }
            _ if offset > first_missing => None,
            // Retroactive: what comes next is what is missing.
            _ => (data_seq.add(first_missing - offset) == next).then_some((offset, data_seq)),
        }
    }

    /// The peer's infinite mapping: its bytes are the stream from the given offset on.
    pub(super) fn handle_infinite_mapping(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        mapping: &DssMapping,
    ) {
        let Some((offset, data_seq)) = self.place_of_infinite(position, mapping) else { return };
        cx.mib.infinite_map_rx += 1;
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        let gathered_from = subflow.rx.gathered_from();
        let held = core::mem::take(&mut subflow.rx.mode);
        let gathered = core::mem::take(&mut subflow.rx.gathered);
        subflow.rx.forget_mappings();
        let (from, bytes) = match held {
            ReceiveMode::Held { from, bytes } => (from, bytes),
            _ => (gathered_from, gathered),
        };
        self.start_infinite(cx, position, offset, data_seq, from, bytes);
        if self.shared.mode == Mode::Mptcp {
            // Both directions fall back: ours starts at what the peer has not acknowledged.
            let una = self.shared.send.start();
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
        self.timers.fail = Instant::FAR_FUTURE;
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.rx.mode = ReceiveMode::Infinite { offset, data_seq };
        }
        bytes.advance(offset.saturating_sub(from).min(bytes.len() as u64) as usize);
        let seq = data_seq.add(from.saturating_sub(offset));
        self.deliver(cx, seq, bytes);
        self.notify_readable();
    }

    /// Data without DSS on the only subflow, right where the last mapping ended: options pass no more.
    pub(super) fn infinite_from_here(&mut self, cx: &mut Context<'_>, position: usize, bytes: Payload) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        let offset = subflow.rx.gathered_from();
        let mut all = core::mem::take(&mut subflow.rx.gathered);
        subflow.rx.offset += bytes.len() as u64;
        all.append(bytes);
        subflow.rx.forget_mappings();
        let next = self.shared.receive_next;
        self.start_infinite(cx, position, offset, next, offset, all);
        if self.shared.mode == Mode::Mptcp {
            let una = self.shared.send.start();
            self.send_infinite(cx, position, una, FallbackReason::DssMissing);
        }
    }

    /// The peer sends plain data while we wait for its infinite mapping: take it as that.
    pub(super) fn plain_data_while_held(&mut self, cx: &mut Context<'_>, position: usize) {
        let next = self.shared.receive_next;
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        if let ReceiveMode::Held { from, bytes } = core::mem::take(&mut subflow.rx.mode) {
            self.start_infinite(cx, position, from, next, from, bytes);
            if self.shared.mode == Mode::Mptcp {
                let una = self.shared.send.start();
                self.send_infinite(cx, position, una, FallbackReason::ChecksumFailed);
            }
        }
    }

    /// The segment says of its own bytes, which follow an infinite mapping, that they are other data: that mapping was not the
    /// peer's, and bytes are missing from what the application has.
    fn contradicts_infinite(&self, position: usize, mapping: &DssMapping) -> bool {
        let Some(subflow) = self.subflows.get(position) else { return false };
        let (ReceiveMode::Infinite { offset, data_seq }, Some(own)) = (&subflow.rx.mode, self.segment_offset)
        else {
            return false;
        };
        // Something that changes lengths moves bytes away from where their mappings say they are.
        let is_in_place = mapping.subflow_offset.wrapping_sub(1) == own as u32;
        let is_covered = mapping.len > 0 && own >= *offset && is_in_place;
        let expected = data_seq.add(own.saturating_sub(*offset));
        is_covered && mapping.data_seq.expand(expected) != expected
    }

    /// Options on a subflow that has fallen back: only those that complete the fallback count.
    pub(super) fn handle_plain_options(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        if let Some(infinite) = self.shared.infinite_mapping {
            let acked = self.subflows.get(position).map_or(0, |subflow| subflow.tcp.acked_offset());
            if acked >= infinite.seen_at {
                self.shared.infinite_mapping = None;
            }
        }
        // Until the peer's infinite mapping arrives, its data has mappings. Where its key never came, they say nothing: it falls
        // back once nothing is answered to them.
        let dss = segment.options.dss.filter(|_| self.shared.remote_key.is_some());
        if let Some((mapping, data_fin)) = dss.and_then(|dss| Some((dss.mapping?, dss.data_fin))) {
            if self.contradicts_infinite(position, &mapping) {
                return self.fail(CloseReason::Damaged);
            }
            self.handle_mapping(cx, position, &mapping, data_fin);
        }
        let fails = segment.options.mptcp().any(|option| matches!(option, MptcpOption::Fail { .. }));
        if fails && self.shared.infinite_mapping.is_some() {
            cx.mib.mp_fail_rx += 1;
            if let Some(subflow) = self.subflows.get_mut(position) {
                subflow.tcp.request_ack();
            }
        }
    }
}
