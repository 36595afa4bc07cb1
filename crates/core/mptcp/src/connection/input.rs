//! Segments that arrive, and their options (RFC 8684 §3).

use polypath_tcp::{Disposition, DropReason, Event as TcpEvent};
use polypath_wire::{Dss, IcmpMessage, MpJoin, MptcpOption, Segment, WireDataSeq};

use super::{Connection, Context, SubflowExtension};
use crate::identifiers::{AddressId, SubflowId};
use crate::misbehaviour::Misbehaviour;
use crate::subflow::{Stage, Subflow};

impl Connection {
    /// A segment for the subflow `id`.
    pub(crate) fn handle_segment(&mut self, cx: &mut Context<'_>, id: SubflowId, segment: &mut Segment) {
        let Some(position) = self.subflows.position(id) else { return };
        if !self.may_enter(position, segment) {
            return;
        }
        let is_negotiating = self.stream.lifecycle.is_negotiating() && self.stream.negotiation.is_client();
        let Some((subflow, views)) = self.subflows.with_views(position) else { return };
        let Subflow { tcp, state, .. } = subflow;
        let had_timed_out = tcp.consecutive_timeouts() > 0;
        let payload_bytes = segment.payload.len() as u64;
        let has_payload = payload_bytes > 0;
        let offset = has_payload.then(|| tcp.offset_of(segment.seq)).and_then(|at| u64::try_from(at).ok());
        self.stream.fallback.handle_segment(offset);
        let mut extension = SubflowExtension { stream: &self.stream, state, views, position };
        let (disposition, is_withheld) =
            tcp.handle_segment_within(cx.now, segment, &mut extension, cx.challenges);
        cx.counters.challenges_withheld += u64::from(is_withheld);
        let is_back = had_timed_out && tcp.consecutive_timeouts() == 0;
        self.subflows.refresh_view(position);
        self.scheduling.request();
        match disposition {
            Disposition::Accepted => {
                self.handle_options(cx, position, segment);
                self.receive_data(cx, position, segment);
                if has_payload {
                    self.tune_receive_window(cx, position, segment, payload_bytes);
                    self.judge_arrival(cx, position, segment, payload_bytes);
                    self.watch_for_silence(cx.now);
                }
                self.after_acknowledgment(cx, position);
            }
            Disposition::Acknowledged => {
                self.handle_old_acknowledgment(cx, position, segment);
                self.after_acknowledgment(cx, position);
            }
            Disposition::Reset => self.handle_reset_options(cx, position, segment),
            Disposition::Dropped(DropReason::Reset) => self.handle_inexact_reset(cx, position, segment),
            Disposition::Dropped(DropReason::Syn) => self.handle_crossed_syn(cx, position),
            Disposition::Dropped(_) => {}
        }
        self.handle_tcp_events(cx, id);
        if is_back {
            self.path_works_again(cx, id);
        }
        if is_negotiating && !self.stream.lifecycle.is_negotiating() {
            self.end_race();
        }
        self.update_close(cx);
    }

    /// An ICMP message about the subflow `id`.
    pub(crate) fn handle_icmp(&mut self, cx: &mut Context<'_>, id: SubflowId, message: &IcmpMessage) {
        if let Some(subflow) = self.subflows.find_mut(id) {
            subflow.tcp.handle_icmp(cx.now, message);
            self.scheduling.request();
            self.handle_tcp_events(cx, id);
            self.update_close(cx);
        }
    }

    /// What TCP has to say of a subflow.
    pub(super) fn handle_tcp_events(&mut self, cx: &mut Context<'_>, id: SubflowId) {
        while let Some(position) = self.subflows.position(id) {
            let Some(event) = self.subflows.get_mut(position).and_then(|subflow| subflow.tcp.poll()) else {
                return;
            };
            match event {
                TcpEvent::Connected if self.stream.lifecycle.is_plain() => self.notify_established(),
                TcpEvent::TimedOut => self.reinject_from(id),
                TcpEvent::PeerFinished => self.subflow_peer_finished(cx, position),
                TcpEvent::Closed(reason) => self.subflow_closed(cx, position, Some(reason)),
                _ => {}
            }
        }
    }

    /// Options of a segment that TCP accepted.
    fn handle_options(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        let Some(subflow) = self.subflows.get(position) else { return };
        match subflow.state.stage() {
            Stage::Plain => return self.handle_plain_options(cx, position, segment),
            Stage::Established => {}
            _ => {
                if !self.handle_handshake(cx, position, segment) || self.stream.lifecycle.is_plain() {
                    return;
                }
            }
        }
        if segment.flags.syn() {
            return;
        }
        if let Some(dss) = &segment.options.dss {
            self.stream.negotiation.confirm();
            self.handle_dss(cx, position, dss);
        }
        if segment.options.rest.is_empty() {
            if !self.stream.negotiation.is_confirmed() && segment.options.dss.is_none() {
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
                    self.handle_prio(cx, position, *backup, address_id.map(AddressId));
                }
                MptcpOption::Fail { data_seq } => self.handle_fail(cx, position, *data_seq),
                MptcpOption::Fastclose { receiver_key } => self.handle_fastclose(cx, position, *receiver_key),
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
    fn handle_old_acknowledgment(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        let is_established =
            self.subflows.get(position).is_some_and(|subflow| subflow.state.stage() == Stage::Established);
        if is_established && let Some(ack) = segment.options.dss.and_then(|dss| dss.data_ack) {
            self.handle_data_ack(cx, position, ack);
        }
    }

    /// A RST within the window that does not match exactly resets nothing (RFC 5961 §3.2), but the key in an MP_FASTCLOSE proves
    /// more than a sequence number would: what left before it may be lost.
    fn handle_inexact_reset(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        for option in segment.options.mptcp() {
            if let MptcpOption::Fastclose { receiver_key } = option {
                self.handle_fastclose(cx, position, *receiver_key);
            }
        }
    }

    /// Options of a RST that was believed.
    fn handle_reset_options(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        for option in segment.options.mptcp() {
            match option {
                MptcpOption::Fastclose { receiver_key } => self.handle_fastclose(cx, position, *receiver_key),
                MptcpOption::Reset { flags, reason } => {
                    cx.counters.mp_rst_rx += 1;
                    if let Some(subflow) = self.subflows.get_mut(position) {
                        subflow.state.ending.handle_reset(*flags, *reason);
                    }
                }
                MptcpOption::Fail { .. } => cx.counters.mp_fail_rx += 1,
                _ => {}
            }
        }
    }

    /// Options on a subflow that has fallen back: only those that complete the fallback count.
    fn handle_plain_options(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        self.stream
            .fallback
            .handle_acked(self.subflows.get(position).map_or(0, |subflow| subflow.tcp.acked_offset()));
        // Until the peer's infinite mapping arrives, its data has mappings. Where its key never came, they say nothing: it falls
        // back once nothing is answered to them.
        let dss = segment.options.dss.filter(|_| self.stream.negotiation.knows_peer());
        if let Some((mapping, data_fin)) = dss.and_then(|dss| Some((dss.mapping?, dss.data_fin))) {
            let Some(subflow) = self.subflows.get(position) else { return };
            if self.stream.fallback.contradicts(&subflow.rx, &mapping) {
                return self.answer(cx, position, Misbehaviour::InfiniteMappingContradicted);
            }
            self.handle_mapping(cx, position, &mapping, data_fin);
        }
        let fails = segment.options.mptcp().any(|option| matches!(option, MptcpOption::Fail { .. }));
        if fails && self.stream.fallback.ours().is_some() {
            cx.counters.mp_fail_rx += 1;
            if let Some(subflow) = self.subflows.get_mut(position) {
                subflow.tcp.request_ack();
            }
        }
    }

    fn handle_dss(&mut self, cx: &mut Context<'_>, position: usize, dss: &Dss) {
        if let Some(ack) = dss.data_ack {
            self.handle_data_ack(cx, position, ack);
        }
        if let Some(mapping) = &dss.mapping {
            let is_long = matches!(mapping.data_seq, WireDataSeq::Full(_));
            self.stream.send.handle_number_len(is_long);
            self.note_sender(cx, is_long);
            self.handle_mapping(cx, position, mapping, dss.data_fin);
        }
    }

    fn handle_data_ack(&mut self, cx: &mut Context<'_>, position: usize, ack: WireDataSeq) {
        let Some(subflow) = self.subflows.get(position) else { return };
        let until = ack.expand(self.stream.send.una());
        match self.stream.send.handle_data_ack(until, subflow.tcp.peer_window_bytes()) {
            Ok(acked) => {
                if acked.fin {
                    self.stream.lifecycle.handle_data_fin_acked();
                }
                if acked.frees {
                    self.notify_writable();
                }
            }
            Err(misbehaviour) => self.answer(cx, position, misbehaviour),
        }
    }
}
