//! MP_CAPABLE, both ends, both versions (RFC 8684 §3.1).

use polypath_tcp::{Connection as TcpConnection, State};
use polypath_units::Instant;
use polypath_wire::{DssMapping, MpCapable, MpCapableKeys, MptcpOption, Segment, WireDataSeq};

use super::{Connection, Context, Request};
use crate::carried::Carried;
use crate::crypto::Key;
use crate::event::{Event, FallbackReason};
use crate::host::Rivals;
use crate::identifiers::SubflowId;
use crate::mapping::Mapping;
use crate::misbehaviour::Misbehaviour;
use crate::path_manager::PathEvent;
use crate::subflow::Stage;

impl Connection {
    /// The server side of the first handshake: what the SYN said. The key is in it in version 0 only.
    pub(crate) fn accept_capable(&mut self, capable: &MpCapable) {
        self.stream.negotiation.handle_flags(&self.stream.config, capable.flags);
        if let MpCapableKeys::Sender(key) = capable.keys {
            self.set_remote_key(Key(key));
        }
    }

    /// The first handshake over another path: the caller has made the TCP connection.
    pub(crate) fn open_rival(&mut self, tcp: TcpConnection<Mapping>) -> SubflowId {
        self.add_subflow(tcp, Stage::CapableSyn)
    }

    /// The paths that were asked have until then to answer, before these are asked too.
    pub(crate) fn race_at(&mut self, at: Instant, rivals: Rivals) {
        self.opening.race_at(at, rivals);
    }

    /// The peer has answered over one path: the handshakes over others are given up. An answer to them finds no flow, and is
    /// reset.
    pub(super) fn end_race(&mut self) {
        self.opening.end_race();
        while let Some(position) =
            self.subflows.position_where(|subflow| subflow.state.stage() == Stage::CapableSyn)
        {
            let Some(loser) = self.subflows.remove(position) else { break };
            self.outbox.ask(Request::RemoveFlow { tuple: loser.tcp.tuple(), carried: Carried::by(&loser) });
        }
        if let (1, Some(winner)) = (self.subflows.len(), self.subflows.first()) {
            self.addresses.set_initial(winner.tcp.tuple());
        }
    }

    /// Checks that come before TCP sees the segment. A version 1 server that still lacks the client's key can make
    /// nothing of a DSS; the client repeats its keys until they are acknowledged, so the segment can wait for them.
    pub(super) fn may_enter(&self, position: usize, segment: &Segment) -> bool {
        let Some(subflow) = self.subflows.get(position) else { return false };
        let lacks_key =
            subflow.state.stage() == Stage::CapableSynAck && !self.stream.negotiation.knows_peer();
        let has_keys = segment.options.mptcp().any(|option| matches!(option, MptcpOption::Capable(_)));
        !(lacks_key && segment.options.dss.is_some() && !has_keys)
    }

    /// The part of option handling that moves a handshake on. Returns false if the segment is to go no further.
    pub(super) fn handle_handshake(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        segment: &Segment,
    ) -> bool {
        let Some(subflow) = self.subflows.get(position) else { return false };
        let state = subflow.tcp.state();
        match subflow.state.stage() {
            Stage::Established | Stage::Plain => true,
            // Simultaneous open: no order of SYN and SYN/ACK, hence no Multipath TCP.
            Stage::CapableSyn if state == State::SynReceived => {
                self.fall_back_in_handshake(position, FallbackReason::PeerLacksMptcp);
                true
            }
            Stage::CapableSyn if segment.flags.syn() => {
                self.client_got_syn_ack(cx, position, segment);
                true
            }
            Stage::CapableSyn => true,
            Stage::CapableSynAck => self.server_got_third_ack(cx, position, segment),
            Stage::CapableAck if segment.flags.syn() => true,
            Stage::CapableAck => {
                // A server that only announces addresses has got our keys too; Linux sends such an ADD_ADDR without DSS.
                let announces = |option: &MptcpOption| matches!(option, MptcpOption::AddAddr(add) if !add.echo && self.stream.negotiation.is_genuine(add));
                if segment.options.dss.is_some() || segment.options.mptcp().any(announces) {
                    self.confirm(cx, position);
                } else if segment.options.mptcp().next().is_none() {
                    self.unconfirmed_without_dss(cx, position);
                }
                true
            }
            Stage::JoinSyn => self.client_got_join_syn_ack(cx, position, segment),
            Stage::JoinSynAck => self.server_got_join_ack(cx, position, segment),
            Stage::JoinAck if segment.flags.syn() => false,
            Stage::JoinAck => self.client_got_fourth_ack(cx, position, segment),
        }
    }

    fn client_got_syn_ack(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) {
        let capable = understood(segment);
        let dropped = self.subflows.get(position).is_some_and(|subflow| subflow.state.owed.is_syn_bare());
        let version = self.stream.negotiation.version_number();
        let reason = match capable {
            _ if dropped => Some(FallbackReason::SynDropped),
            None => Some(FallbackReason::PeerLacksMptcp),
            Some(capable) => match capable.keys {
                // A host that echoes options it does not know sends back what we sent (Paasch 2.3).
                MpCapableKeys::None => Some(FallbackReason::Mirrored),
                MpCapableKeys::Sender(key) if self.stream.negotiation.is_local_key(key) => {
                    Some(FallbackReason::Mirrored)
                }
                MpCapableKeys::Sender(_) if capable.version == version => None,
                _ => Some(FallbackReason::PeerLacksMptcp),
            },
        };
        if let (None, Some(MpCapable { flags, keys: MpCapableKeys::Sender(key), .. })) = (reason, capable) {
            cx.counters.mp_capable_syn_ack_rx += 1;
            self.stream.negotiation.handle_flags(&self.stream.config, flags);
            self.set_remote_key(Key(key));
            self.enter_mptcp(cx.now, position);
            self.await_confirmation(cx, position);
        } else {
            cx.counters.mp_capable_fallback_syn_ack += 1;
            if let (1, Some(MpCapable { version: 0, keys: MpCapableKeys::Sender(_), .. })) =
                (version, capable)
                && let Some(subflow) = self.subflows.get(position)
            {
                self.outbox.ask(Request::AskInVersion0 { remote: subflow.tcp.tuple().remote.addr });
            }
            self.fall_back_in_handshake(position, reason.unwrap_or(FallbackReason::PeerLacksMptcp));
        }
        self.stream.lifecycle.handle_negotiated();
        self.notify_established();
    }

    /// A SYN/ACK that crossed ours may have connected the subflow (RFC 9293 §3.5). It proves no keys, and nothing else may follow it.
    pub(super) fn handle_crossed_syn(&mut self, cx: &mut Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get(position) else { return };
        if subflow.tcp.state() != State::Established {
            return;
        }
        match subflow.state.stage() {
            Stage::CapableSynAck => {
                cx.counters.mp_capable_fallback_ack += 1;
                self.stream.lifecycle.handle_negotiated();
                self.fall_back_in_handshake(position, FallbackReason::ThirdAckStripped);
                self.notify_established();
            }
            Stage::JoinSyn | Stage::JoinSynAck => {
                self.answer(cx, position, Misbehaviour::JoinWithoutOption);
            }
            _ => {}
        }
    }

    fn server_got_third_ack(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) -> bool {
        let state = self.subflows.get(position).map(|subflow| subflow.tcp.state());
        if matches!(state, None | Some(State::SynReceived)) {
            return false;
        }
        let capable = understood(segment);
        let keys = match capable.map(|capable| capable.keys) {
            Some(MpCapableKeys::Both { sender, receiver }) => Some((sender, receiver, None)),
            Some(MpCapableKeys::BothWithData { sender, receiver, data_len, checksum }) => {
                Some((sender, receiver, Some((data_len, checksum))))
            }
            _ => None,
        };
        let knows_peer = self.stream.negotiation.knows_peer();
        match keys {
            Some((sender, receiver, first))
                if self.stream.negotiation.is_local_key(receiver)
                    && (!knows_peer || self.stream.negotiation.is_remote_key(sender)) =>
            {
                cx.counters.mp_capable_ack_rx += 1;
                self.set_remote_key(Key(sender));
                self.enter_mptcp(cx.now, position);
                if first.is_none() {
                    // Tells the client at once that options pass, so that it may join other paths.
                    if let Some(subflow) = self.subflows.get_mut(position) {
                        subflow.tcp.request_ack();
                    }
                }
            }
            // Version 0: the key came with the SYN, so a DSS says as much as the keys.
            None if knows_peer && segment.options.dss.is_some() => {
                self.enter_mptcp(cx.now, position);
            }
            _ => {
                cx.counters.mp_capable_fallback_ack += 1;
                self.fall_back_in_handshake(position, FallbackReason::ThirdAckStripped);
            }
        }
        self.stream.lifecycle.handle_negotiated();
        self.notify_established();
        if self.stream.lifecycle.is_mptcp() {
            self.notify_path_manager(cx, PathEvent::Established);
        }
        true
    }

    /// The first mapping of a version 1 client, which comes with its keys.
    pub(super) fn first_mapping(&self, capable: &MpCapable) -> Option<DssMapping> {
        match capable.keys {
            MpCapableKeys::BothWithData { sender, data_len, checksum, .. }
                if self.stream.negotiation.is_remote_key(sender) =>
            {
                let data_seq = WireDataSeq::Full(self.stream.negotiation.first_data_seq_of(sender));
                Some(DssMapping { data_seq, subflow_offset: 1, len: data_len, checksum })
            }
            _ => None,
        }
    }

    /// The first DSS arrived at the client.
    fn confirm(&mut self, cx: &mut Context<'_>, position: usize) {
        self.stream.negotiation.confirm();
        self.opening.stop_waiting();
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.state.handle_confirmation();
        }
        self.notify_path_manager(cx, PathEvent::Established);
    }

    fn set_remote_key(&mut self, key: Key) {
        let first = self.stream.negotiation.handle_key(key);
        self.stream.receive.begin(first);
    }

    /// The keys are exchanged, as far as this end knows.
    fn enter_mptcp(&mut self, now: Instant, position: usize) {
        self.stream.lifecycle.become_mptcp();
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        subflow.state.handle_capable();
        self.stream.negotiation.handle_open(now - subflow.tcp.srtt());
        self.stream.send.handle_open(subflow.tcp.peer_window_bytes());
        let (id, tuple, backup) = (subflow.state.id, subflow.tcp.tuple(), subflow.state.role.is_backup());
        self.outbox.emit(Event::SubflowEstablished { subflow: id, tuple, backup });
    }
}

/// The MP_CAPABLE of a segment, if it asks for nothing that is not known.
fn understood(segment: &Segment) -> Option<MpCapable> {
    segment.options.mptcp().find_map(|option| match option {
        MptcpOption::Capable(capable) if capable.is_understood() => Some(*capable),
        _ => None,
    })
}
