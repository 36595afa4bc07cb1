//! Receiving: options of established subflows, mappings, reassembly (RFC 8684 §3.3.2).

use polypath_units::{Duration, Instant};
use polypath_wire::{
    DataSeq, Dss, DssChecksum, DssMapping, MpJoin, MptcpOption, Payload, ResetReason, Segment, WireDataSeq,
};

use super::state::Mode;
use super::{Connection, Context};
use crate::event::{CloseReason, SubflowError};
use crate::mapping::MOST_MAPPED_BYTES;
use crate::reassembly::Inserted;
use crate::receive_window::Arrival;
use crate::subflow::{ReceiveMode, ReceivedMapping, Stage};

/// Below, a round-trip time by timestamps says less than that of the handshake.
const COARSE_RTT: Duration = Duration::from_millis(3);

impl Connection {
    /// Options of a segment that TCP accepted.
    pub(super) fn handle_options(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        let Some(subflow) = self.subflows.get(position) else { return };
        match subflow.meta.stage {
            Stage::Plain => return self.handle_plain_options(cx, position, segment),
            Stage::Established => {}
            _ => {
                if !self.handle_handshake(cx, position, segment) || self.shared.mode == Mode::Plain {
                    return;
                }
            }
        }
        if segment.flags.syn() {
            return;
        }
        if let Some(dss) = &segment.options.dss {
            self.shared.confirmed = true;
            self.handle_dss(cx, position, dss);
        }
        if segment.options.rest.is_empty() {
            if !self.shared.confirmed && segment.options.dss.is_none() {
                self.unconfirmed_without_dss(cx, position);
            }
        } else {
            self.handle_rare_options(cx, position, segment);
        }
    }

    /// Everything but the first DSS. Rare, so the cost of searching does not matter.
    fn handle_rare_options(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        for option in segment.options.mptcp() {
            match option {
                MptcpOption::Capable(capable) => {
                    if let Some(mapping) = self.first_mapping(capable) {
                        self.handle_mapping(cx, position, &mapping, false);
                    }
                }
                MptcpOption::Dss(dss) => self.handle_dss(cx, position, dss),
                MptcpOption::AddAddr(add) => self.handle_add_addr(cx, position, add),
                MptcpOption::RemoveAddr(remove) => self.handle_remove_addr(cx, remove),
                MptcpOption::Prio { backup, address_id } => {
                    self.handle_prio(cx, position, *backup, *address_id);
                }
                MptcpOption::Fail { data_seq } => self.handle_fail(cx, position, *data_seq),
                MptcpOption::Fastclose { receiver_key } => self.handle_fastclose(cx, *receiver_key),
                // The client repeats its third ACK until the fourth arrives, and sends nothing else before (RFC 8684 §3.2).
                MptcpOption::Join(MpJoin::Ack { .. }) => {
                    if let Some(subflow) = self.subflows.get_mut(position) {
                        subflow.tcp.request_ack();
                    }
                }
                _ => {}
            }
        }
    }

    /// Of a segment that is no more than a copy of an old one, only what it acknowledges counts: the rest was heard when it was
    /// new, or was never said by the peer.
    pub(super) fn handle_old_acknowledgment(&mut self, position: usize, segment: &Segment) {
        let is_established =
            self.subflows.get(position).is_some_and(|subflow| subflow.meta.stage == Stage::Established);
        if is_established && let Some(ack) = segment.options.dss.and_then(|dss| dss.data_ack) {
            self.handle_data_ack(position, ack.expand(self.shared.send.start()));
        }
    }

    /// A RST within the window that does not match exactly resets nothing (RFC 5961 §3.2), but the key in an MP_FASTCLOSE proves
    /// more than a sequence number would: what left before it may be lost.
    pub(super) fn handle_inexact_reset(&mut self, cx: &mut Context<'_>, segment: &Segment) {
        for option in segment.options.mptcp() {
            if let MptcpOption::Fastclose { receiver_key } = option {
                self.handle_fastclose(cx, *receiver_key);
            }
        }
    }

    /// Options of a RST that was believed.
    pub(super) fn handle_reset_options(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        for option in segment.options.mptcp() {
            match option {
                MptcpOption::Fastclose { receiver_key } => self.handle_fastclose(cx, *receiver_key),
                MptcpOption::Reset { flags, reason } => {
                    cx.mib.mp_rst_rx += 1;
                    if let Some(subflow) = self.subflows.get_mut(position) {
                        subflow.meta.is_refused_for_good = flags & 1 == 0;
                        subflow.meta.error.get_or_insert(SubflowError::Reset(Some(*reason)));
                    }
                }
                MptcpOption::Fail { .. } => cx.mib.mp_fail_rx += 1,
                _ => {}
            }
        }
    }

    pub(super) fn handle_dss(&mut self, cx: &mut Context<'_>, position: usize, dss: &Dss) {
        if let Some(ack) = dss.data_ack {
            let until = ack.expand(self.shared.send.start());
            self.handle_data_ack(position, until);
        }
        if let Some(mapping) = &dss.mapping {
            let is_long = matches!(mapping.data_seq, WireDataSeq::Full(_));
            self.shared.numbers.is_ack_full = is_long;
            self.note_sender(cx, is_long);
            self.handle_mapping(cx, position, mapping, dss.data_fin);
        }
    }

    fn handle_data_ack(&mut self, position: usize, until: DataSeq) {
        let shared = &mut self.shared;
        let fin = shared.data_fin;
        let mut data_until = until;
        if let Some(fin) = fin
            && until == fin.add(1)
        {
            data_until = fin;
            if !shared.data_fin_acked {
                shared.data_fin_acked = true;
                self.timers.data_fin = Instant::FAR_FUTURE;
            }
        }
        if data_until.after(shared.send.next()) {
            // Acknowledges what was never sent.
            return;
        }
        // The window holds relative to this DATA_ACK, and its right edge never moves back (RFC 8684 §3.3.4).
        if let Some(subflow) = self.subflows.get(position) {
            let window_bytes = subflow.tcp.peer_window_bytes();
            shared.most_peer_window_bytes = shared.most_peer_window_bytes.max(window_bytes);
            shared.window_end = shared.window_end.max(until.add(window_bytes));
        }
        if shared.send.acknowledge(data_until) > 0 {
            self.timers.data_retransmit_interval = polypath_units::Duration::ZERO;
            self.drop_acknowledged(data_until);
            self.notify_writable();
        }
    }

    pub(super) fn handle_mapping(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        mapping: &DssMapping,
        data_fin: bool,
    ) {
        if mapping.len == 0 {
            self.handle_infinite_mapping(cx, position, mapping);
            return;
        }
        let data_seq = mapping.data_seq.expand(self.shared.receive_next);
        let payload_len = u32::from(mapping.len) - u32::from(data_fin);
        if data_fin {
            self.note_peer_fin(cx, data_seq.add(u64::from(payload_len)));
        }
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        // Offsets count from 1 on the wire; 32 bits of a 64-bit offset, so take the nearest.
        let near = subflow.rx.offset;
        let start = mapping.subflow_offset.wrapping_sub(1);
        let ahead = i64::from(start.wrapping_sub(near as u32) as i32);
        let Some(start) = near.checked_add_signed(ahead) else { return };
        let known = subflow.rx.add(ReceivedMapping {
            start,
            len: payload_len,
            data_seq,
            subflow_offset: mapping.subflow_offset,
            wire_len: mapping.len,
            checksum: if self.shared.checksum { mapping.checksum } else { None },
        });
        if !known {
            cx.mib.dss_not_matching += 1;
        }
    }

    /// A DATA_FIN can only be where data that is there ends, or behind that, and no further than the window reaches. Of two
    /// that differ the later one holds, since the peer repeats its own.
    fn note_peer_fin(&mut self, cx: &mut Context<'_>, seq: DataSeq) {
        let shared = &mut self.shared;
        if shared.peer_finished {
            // Our DATA_ACK of it was lost: say it again on each subflow.
            if shared.peer_fin == Some(seq) {
                self.acknowledge_everywhere();
            }
            return;
        }
        let known = shared.reassembly.end().unwrap_or(shared.receive_next).max(shared.receive_next);
        if seq.before(known) || seq.after(shared.taken_edge()) {
            cx.mib.no_dss_in_window += 1;
            return;
        }
        if shared.peer_fin.replace(seq).is_none() {
            shared.peer_fin_first = shared.data_fin.is_none();
        }
        self.check_peer_fin();
    }

    /// Data came from behind what was said to be the end. While the application has not heard of it, that was wrong; else bytes
    /// are missing from what it has.
    fn data_after_fin(&mut self) {
        if self.shared.peer_finished {
            self.fail(CloseReason::Damaged);
        } else {
            self.shared.peer_fin = None;
        }
    }

    /// The peer's stream is complete once everything before its DATA_FIN is there.
    fn check_peer_fin(&mut self) {
        if self.shared.peer_finished || self.shared.peer_fin != Some(self.shared.receive_next) {
            return;
        }
        self.shared.peer_finished = true;
        self.shared.receive_next = self.shared.receive_next.add(1);
        self.shared.reassembly.clear();
        self.notify_peer_finished();
        self.acknowledge_everywhere();
    }

    pub(super) fn acknowledge_everywhere(&mut self) {
        for subflow in &mut self.subflows {
            if subflow.meta.stage == Stage::Established {
                subflow.tcp.request_ack();
            }
        }
    }

    /// Takes what TCP has in order, and makes data of it.
    pub(super) fn receive_data(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        // Until MP_JOIN is complete, whoever knows the token may have sent it (RFC 8684 §3.2).
        if self.subflows.get(position).is_none_or(|subflow| subflow.meta.stage.is_joining()) {
            return;
        }
        while let Some(subflow) = self.subflows.get_mut(position)
            && let Some(bytes) = subflow.tcp.read()
        {
            match &mut subflow.rx.mode {
                ReceiveMode::Mapped => self.receive_mapped(cx, position, bytes, segment),
                ReceiveMode::Held { bytes: held, .. } => {
                    subflow.rx.offset += bytes.len() as u64;
                    held.append(bytes);
                    if segment.options.dss.is_none() && segment.options.rest.is_empty() {
                        self.plain_data_while_held(cx, position);
                    }
                }
                ReceiveMode::Infinite { offset, data_seq } => {
                    let at = subflow.rx.offset;
                    let seq = data_seq.add(at.saturating_sub(*offset));
                    let skip = offset.saturating_sub(at).min(bytes.len() as u64);
                    subflow.rx.offset += bytes.len() as u64;
                    let mut bytes = bytes;
                    bytes.advance(skip as usize);
                    self.deliver(cx, seq, bytes);
                }
            }
        }
        self.notify_readable();
    }

    fn receive_mapped(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        mut bytes: Payload,
        segment: &Segment,
    ) {
        let mut is_within = false;
        while !bytes.is_empty() {
            let Some(subflow) = self.subflows.get_mut(position) else { return };
            let mapping = match subflow.rx.current() {
                Ok(mapping) => mapping,
                Err(before_next) => {
                    if is_within {
                        // Each mapping may begin in a segment that is merged with another, until the peer misses its DATA_ACKs;
                        // one, however small the window is.
                        let most = self.shared.receive_window_bytes().max(MOST_MAPPED_BYTES);
                        subflow.rx.unmapped_until = subflow.rx.offset + most;
                    }
                    let count = before_next.map_or(bytes.len(), |count| bytes.len().min(count as usize));
                    if self.unmapped(cx, position, &bytes, segment) {
                        return;
                    }
                    self.skip(position, count);
                    bytes.advance(count);
                    continue;
                }
            };
            is_within = true;
            subflow.rx.unmapped_until = 0;
            let left = (mapping.end() - subflow.rx.offset) as usize;
            let into = subflow.rx.offset - mapping.start;
            let rest = if left < bytes.len() {
                let head = bytes.split_to(left);
                core::mem::replace(&mut bytes, head)
            } else {
                Payload::EMPTY
            };
            subflow.rx.newest = mapping.data_seq.add(into + bytes.len() as u64);
            subflow.rx.offset += bytes.len() as u64;
            let has_head = into == 0 || !subflow.rx.gathered.is_empty();
            if mapping.checksum.is_some() && !has_head {
                // Its head came without a mapping and was dropped, so it can't be verified; all of it comes again.
                cx.mib.dss_not_matching += 1;
            } else if mapping.checksum.is_some() {
                subflow.rx.gathered.append(bytes);
                if subflow.rx.offset == mapping.end() {
                    let gathered = core::mem::take(&mut subflow.rx.gathered);
                    if !self.verify(cx, position, &mapping, gathered, &rest) {
                        return;
                    }
                }
            } else {
                self.deliver(cx, mapping.data_seq.add(into), bytes);
            }
            bytes = rest;
        }
    }

    fn skip(&mut self, position: usize, count: usize) {
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.rx.offset += count as u64;
        }
    }

    /// Checks a whole mapping and delivers it. False ends the work on this subflow's bytes.
    fn verify(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        mapping: &ReceivedMapping,
        data: Payload,
        rest: &Payload,
    ) -> bool {
        let mut sum = DssChecksum::new(mapping.data_seq, mapping.subflow_offset, mapping.wire_len);
        sum.push_payload(&data);
        if mapping.checksum.is_some_and(|checksum| sum.matches(checksum)) {
            self.deliver(cx, mapping.data_seq, data);
            return true;
        }
        cx.mib.data_csum_err += 1;
        let mut held = data;
        held.append(rest.clone());
        let offset = self.subflows.get(position).map_or(0, |subflow| subflow.rx.offset) + rest.len() as u64;
        self.skip(position, rest.len());
        let from = offset - held.len() as u64;
        self.checksum_failed(cx, position, mapping.data_seq, from, held);
        false
    }

    /// Bytes without a mapping. True if they were taken care of.
    fn unmapped(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        bytes: &Payload,
        segment: &Segment,
    ) -> bool {
        cx.mib.dss_not_matching += 1;
        if self.shared.mode == Mode::Plain {
            // We have fallen back; so has the peer, and what told so was lost.
            self.infinite_from_here(cx, position, bytes.clone());
            return true;
        }
        if self.shared.peer_finished {
            // A copy of what came elsewhere: nothing follows the end.
            return false;
        }
        let alone = self.carrying_count() <= 1;
        let is_merged =
            self.subflows.get(position).is_some_and(|subflow| subflow.rx.offset < subflow.rx.unmapped_until);
        if is_merged || segment.options.dss.is_some() || !segment.options.rest.is_empty() {
            // Coalesced with a mapped segment: the peer sees that DATA_ACK leaves them out and sends them again.
            return false;
        }
        if alone && self.shared.reassembly.is_empty() {
            self.infinite_from_here(cx, position, bytes.clone());
        } else {
            self.reset_subflow(position, SubflowError::Middlebox, ResetReason::MIDDLEBOX);
        }
        true
    }

    /// Data with its number: in order to the application, else to reassembly.
    pub(super) fn deliver(&mut self, cx: &mut Context<'_>, seq: DataSeq, mut data: Payload) {
        if data.is_empty() {
            return;
        }
        let end = seq.add(data.len() as u64);
        let next = self.shared.receive_next;
        self.shared.most_window_bytes = self.shared.most_window_bytes.max(self.shared.receive_window_bytes());
        let edge = self.shared.taken_edge();
        let is_possible = self.shared.mode == Mode::Mptcp && !end.after(edge);
        if is_possible && self.shared.peer_fin.is_some_and(|fin| end.after(fin)) {
            self.data_after_fin();
        }
        if !end.after(next) || self.shared.peer_finished {
            cx.mib.duplicate_data += 1;
            return;
        }
        // In TCP's order the subflow's own window is the bound. What an infinite mapping puts behind a gap is not in that order.
        let is_bounded_above = self.shared.mode == Mode::Plain && !seq.after(next);
        if end.after(edge) && !is_bounded_above {
            cx.mib.no_dss_in_window += 1;
            return;
        }
        if seq.after(next) {
            cx.mib.ofo_queue += 1;
            if self.shared.reassembly.insert(seq, data) == Inserted::Duplicate {
                cx.mib.duplicate_data += 1;
            }
            return;
        }
        data.advance(next.diff(seq) as usize);
        self.deliver_in_order(data);
        if !self.shared.reassembly.is_empty() {
            while let Some(data) = self.shared.reassembly.pop(self.shared.receive_next) {
                self.deliver_in_order(data);
            }
        }
        self.check_peer_fin();
    }

    pub(super) fn deliver_in_order(&mut self, data: Payload) {
        if data.is_empty() {
            return;
        }
        let shared = &mut self.shared;
        shared.receive_next = shared.receive_next.add(data.len() as u64);
        if shared.discard {
            shared.discarded = true;
            return;
        }
        shared.unread_bytes += data.len() as u64;
        let at = shared.in_order.len();
        shared.in_order.push_back(data);
        polypath_tcp::join_tiny(&mut shared.in_order, at);
    }

    /// Data came over a subflow: the promise to the peer keeps ahead of it.
    pub(super) fn tune_receive_window(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        segment: &Segment,
        len_bytes: u64,
    ) {
        let Some(subflow) = self.subflows.get(position) else { return };
        if !self.shared.config.receive_autotuning || self.shared.peer_finished {
            return;
        }
        // In order, or the newest of what waits for its turn.
        let end = self.shared.reassembly.end().unwrap_or(self.shared.receive_next);
        let arrival = Arrival {
            now: cx.now,
            subflow: subflow.meta.id,
            rtt: match subflow.tcp.receiver_rtt(cx.now, segment) {
                // The timestamps' clock ticks in milliseconds.
                Some(rtt) if rtt > COARSE_RTT => rtt,
                _ => subflow.tcp.srtt(),
            },
            longest_rtt: self.subflows.iter().map(|subflow| subflow.tcp.srtt()).max().unwrap_or_default(),
            longest_min_rtt: self
                .subflows
                .iter()
                .map(|subflow| subflow.tcp.min_rtt())
                .max()
                .unwrap_or_default(),
            len_bytes,
            end: end.max(self.shared.receive_next),
        };
        let buffer = self.shared.receive_buffer();
        self.shared.receive_window.on_arrival(arrival, buffer, cx.memory);
    }

    /// Subflows that carry data: the initial one does before the first DSS comes on it, too.
    pub(super) fn carrying_count(&self) -> usize {
        self.subflows.iter().filter(|subflow| subflow.meta.stage.carries_data()).count()
    }
}
