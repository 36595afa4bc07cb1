//! MP_CAPABLE and MP_JOIN, both ends, both versions (RFC 8684 §3.1, §3.2).

use polypath_tcp::State;
use polypath_units::{Duration, Instant};
use polypath_wire::{
    MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, ResetReason, Segment, WireDataSeq,
};

use super::state::{Mode, Shared};
use super::{Connection, Context, Request};
use crate::crypto::{Key, verify_join_hmac};
use crate::event::{Event, FallbackReason, SubflowError};
use crate::mapping::Mapping;
use crate::path_manager::PathEvent;
use crate::subflow::Stage;

/// First wait before the third ACK of MP_JOIN is sent again; doubles.
const JOIN_RETRY: Duration = Duration::from_millis(250);

/// Where MP_PRIO goes with it, it is repeated at once: Linux looks for that only in what comes after it.
const JOIN_REPEAT: Duration = Duration::from_millis(1);

/// After so many the subflow is given up.
const JOIN_RETRIES: u8 = 4;

/// An MP_JOIN SYN, ready to become a subflow.
pub(crate) struct IncomingJoin {
    pub(crate) remote_id: u8,
    pub(crate) remote_nonce: u32,
    pub(crate) local_id: u8,
    pub(crate) local_nonce: u32,
    /// The peer asks for a backup.
    pub(crate) remote_backup: bool,
    /// Subflows of the address that was joined are backups.
    pub(crate) local_backup: bool,
}

impl Connection {
    /// The server side of the first handshake: what the SYN said. The key is in it in version 0 only.
    pub(crate) fn accept_capable(&mut self, capable: &MpCapable) {
        self.note_flags(capable.flags);
        if let MpCapableKeys::Sender(key) = capable.keys {
            self.set_remote_key(Key(key));
        }
    }

    /// The first handshake over another path: the caller has made the TCP connection.
    pub(crate) fn open_rival(&mut self, tcp: polypath_tcp::Connection<Mapping>) -> u8 {
        self.add_subflow(tcp, Stage::CapableSyn)
    }

    /// The path that is remembered as the best has until then to answer.
    pub(crate) fn race_at(&mut self, at: Instant) {
        self.timers.race = at;
    }

    /// The peer has answered over one path: the handshakes over others are given up. An answer to them finds no flow, and is
    /// reset.
    pub(super) fn end_race(&mut self) {
        self.timers.race = Instant::FAR_FUTURE;
        while let Some(position) =
            self.subflows.iter().position(|subflow| subflow.meta.stage == Stage::CapableSyn)
        {
            let loser = self.subflows.remove(position);
            if position < self.shared.views.len() {
                self.shared.views.remove(position);
            }
            self.requests.push(Request::RemoveFlow { tuple: loser.tcp.tuple() });
        }
        if let [winner] = &self.subflows[..] {
            self.addresses.initial = winner.tcp.tuple();
        }
    }

    /// Opens a subflow: the caller has made the TCP connection.
    pub(crate) fn open_join(
        &mut self,
        now: Instant,
        tcp: polypath_tcp::Connection<Mapping>,
        local_id: u8,
        nonce: u32,
        backup: bool,
    ) -> u8 {
        let tcp = self.coupled_if_shared(tcp);
        let id = self.add_subflow(tcp, Stage::JoinSyn);
        let is_aside = !backup && self.joins_aside(now);
        if let Some(subflow) = self.subflows.last_mut() {
            subflow.meta.local_id = local_id;
            subflow.meta.local_nonce = nonce;
            subflow.meta.backup_local = backup;
            subflow.meta.is_aside = is_aside;
            subflow.meta.joined_aside = is_aside;
        }
        id
    }

    /// The server side of MP_JOIN.
    pub(crate) fn accept_join(&mut self, tcp: polypath_tcp::Connection<Mapping>, join: &IncomingJoin) -> u8 {
        let tcp = self.coupled_if_shared(tcp);
        let id = self.add_subflow(tcp, Stage::JoinSynAck);
        if let Some(subflow) = self.subflows.last_mut() {
            subflow.meta.local_id = join.local_id;
            subflow.meta.remote_id = join.remote_id;
            subflow.meta.local_nonce = join.local_nonce;
            subflow.meta.remote_nonce = join.remote_nonce;
            subflow.meta.backup_remote = join.remote_backup;
            subflow.meta.backup_local = join.local_backup;
        }
        id
    }

    /// See [`couple_shared_access`](crate::ConnectionConfig::couple_shared_access).
    fn coupled_if_shared(
        &self,
        mut tcp: polypath_tcp::Connection<Mapping>,
    ) -> polypath_tcp::Connection<Mapping> {
        let config = &self.shared.config;
        let access = |tcp: &polypath_tcp::Connection<Mapping>| {
            let tuple = tcp.tuple();
            if self.shared.is_client { tuple.local.addr } else { tuple.remote.addr }
        };
        // One that steers recovery as well measures the path, and leaves room in a shared queue by itself.
        let chosen = tcp.controller();
        let is_uncoupled = !chosen.is_coupled() && !chosen.steers_recovery();
        let is_shared = self.subflows.iter().any(|subflow| access(&subflow.tcp) == access(&tcp));
        if config.couple_shared_access && is_uncoupled && is_shared {
            let settings = polypath_congestion::Config {
                mss_bytes: tcp.mss_bytes(),
                initial_window_packets: config.tcp.initial_window_packets,
                min_ssthresh_packets: config.tcp.min_ssthresh_packets,
                hystart: None,
            };
            tcp.set_controller(polypath_congestion::LIA.build_for(&settings));
        }
        tcp
    }

    /// An MP_JOIN can be answered: keys are known and there was no fallback. Even where all is said, the peer may have missed
    /// the last word.
    pub(crate) fn may_join(&self) -> bool {
        self.shared.mode == Mode::Mptcp && self.shared.remote_key.is_some() && self.closed.is_none()
    }

    /// Another subflow is of use to this end.
    pub(super) fn may_open(&self) -> bool {
        self.may_join() && (self.shared.confirmed || self.unconfirmed.is_asking()) && !self.is_all_said()
    }

    /// Both ends have finished, and know it of each other, as far as this end knows.
    pub(super) fn is_all_said(&self) -> bool {
        self.shared.data_fin_acked && self.shared.peer_finished
    }

    /// Checks that come before TCP sees the segment. A version 1 server that still lacks the client's key can make
    /// nothing of a DSS; the client repeats its keys until they are acknowledged, so the segment can wait for them.
    pub(super) fn may_enter(&self, position: usize, segment: &Segment) -> bool {
        let Some(subflow) = self.subflows.get(position) else { return false };
        let lacks_key = subflow.meta.stage == Stage::CapableSynAck && self.shared.remote_key.is_none();
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
        match subflow.meta.stage {
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
                let announces = |option: &MptcpOption| matches!(option, MptcpOption::AddAddr(add) if !add.echo && self.is_genuine(add));
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
        let dropped = self.subflows.get(position).is_some_and(|subflow| subflow.meta.syn_without_option);
        let version = match self.shared.version {
            MptcpVersion::V0 => 0,
            MptcpVersion::V1 => 1,
        };
        let reason = match capable {
            _ if dropped => Some(FallbackReason::SynDropped),
            None => Some(FallbackReason::PeerLacksMptcp),
            Some(capable) => match capable.keys {
                // A host that echoes options it does not know sends back what we sent (Paasch 2.3).
                MpCapableKeys::None => Some(FallbackReason::Mirrored),
                MpCapableKeys::Sender(key) if key == self.shared.local_key.0 => {
                    Some(FallbackReason::Mirrored)
                }
                MpCapableKeys::Sender(_) if capable.version == version => None,
                _ => Some(FallbackReason::PeerLacksMptcp),
            },
        };
        if let (None, Some(MpCapable { flags, keys: MpCapableKeys::Sender(key), .. })) = (reason, capable) {
            cx.mib.mp_capable_syn_ack_rx += 1;
            self.note_flags(flags);
            self.set_remote_key(Key(key));
            self.enter_mptcp(cx.now, position, Stage::CapableAck);
            self.await_confirmation(cx, position);
        } else {
            cx.mib.mp_capable_fallback_syn_ack += 1;
            if let (1, Some(MpCapable { version: 0, keys: MpCapableKeys::Sender(_), .. })) =
                (version, capable)
                && let Some(subflow) = self.subflows.get(position)
            {
                self.requests.push(Request::AskInVersion0 { remote: subflow.tcp.tuple().remote.addr });
            }
            self.fall_back_in_handshake(position, reason.unwrap_or(FallbackReason::PeerLacksMptcp));
        }
        self.negotiated = true;
        self.notify_established();
    }

    /// A SYN/ACK that crossed ours may have connected the subflow (RFC 9293 §3.5). It proves no keys, and nothing else may follow it.
    pub(super) fn handle_crossed_syn(&mut self, cx: &mut Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get(position) else { return };
        if subflow.tcp.state() != State::Established {
            return;
        }
        match subflow.meta.stage {
            Stage::CapableSynAck => {
                cx.mib.mp_capable_fallback_ack += 1;
                self.negotiated = true;
                self.fall_back_in_handshake(position, FallbackReason::ThirdAckStripped);
                self.notify_established();
            }
            Stage::JoinSyn | Stage::JoinSynAck => {
                self.reset_subflow(position, SubflowError::JoinStripped, ResetReason::MPTCP);
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
        let known = self.shared.remote_key;
        match keys {
            Some((sender, receiver, first))
                if receiver == self.shared.local_key.0 && known.is_none_or(|key| key.0 == sender) =>
            {
                cx.mib.mp_capable_ack_rx += 1;
                self.set_remote_key(Key(sender));
                self.enter_mptcp(cx.now, position, Stage::Established);
                if first.is_none() {
                    // Tells the client at once that options pass, so that it may join other paths.
                    if let Some(subflow) = self.subflows.get_mut(position) {
                        subflow.tcp.request_ack();
                    }
                }
            }
            // Version 0: the key came with the SYN, so a DSS says as much as the keys.
            None if known.is_some() && segment.options.dss.is_some() => {
                self.enter_mptcp(cx.now, position, Stage::Established);
            }
            _ => {
                cx.mib.mp_capable_fallback_ack += 1;
                self.fall_back_in_handshake(position, FallbackReason::ThirdAckStripped);
            }
        }
        self.negotiated = true;
        self.notify_established();
        if self.shared.mode == Mode::Mptcp {
            self.notify_path_manager(cx, PathEvent::Established);
        }
        true
    }

    /// The first mapping of a version 1 client, which comes with its keys.
    pub(super) fn first_mapping(&self, capable: &MpCapable) -> Option<polypath_wire::DssMapping> {
        match capable.keys {
            MpCapableKeys::BothWithData { sender, data_len, checksum, .. }
                if self.shared.remote_key == Some(Key(sender)) =>
            {
                let (_, idsn) = Key(sender).derive(self.shared.version);
                let data_seq = WireDataSeq::Full(idsn.add(1));
                Some(polypath_wire::DssMapping { data_seq, subflow_offset: 1, len: data_len, checksum })
            }
            _ => None,
        }
    }

    /// The first DSS arrived at the client.
    fn confirm(&mut self, cx: &mut Context<'_>, position: usize) {
        self.shared.confirmed = true;
        self.timers.confirm = Instant::FAR_FUTURE;
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.meta.stage = Stage::Established;
        }
        self.notify_path_manager(cx, PathEvent::Established);
    }

    fn client_got_join_syn_ack(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) -> bool {
        if !segment.flags.syn() {
            return false;
        }
        let join = segment.options.mptcp().find_map(|option| match option {
            MptcpOption::Join(MpJoin::SynAck { backup, address_id, truncated_hmac, nonce }) => {
                Some((*backup, *address_id, *truncated_hmac, *nonce))
            }
            _ => None,
        });
        let Some((backup, address_id, hmac, nonce)) = join else {
            self.reset_subflow(position, SubflowError::JoinStripped, ResetReason::MPTCP);
            return false;
        };
        cx.mib.mp_join_syn_ack_rx += 1;
        if !self.is_peer_hmac(position, nonce, &hmac.to_be_bytes()) {
            cx.mib.mp_join_syn_ack_hmac_failure += 1;
            self.reset_subflow(position, SubflowError::WrongHmac, ResetReason::MPTCP);
            return false;
        }
        if let Some(subflow) = self.subflows.get_mut(position) {
            subflow.meta.remote_nonce = nonce;
            subflow.meta.remote_id = address_id;
            // Linux before 6.11 says of its own what we asked for.
            subflow.meta.backup_remote = backup && !subflow.meta.is_aside;
            subflow.meta.stage = Stage::JoinAck;
            subflow.meta.join_retry_at = cx.now + JOIN_RETRY;
            subflow.tcp.request_ack();
        }
        self.judge_subflow(cx, position);
        if let Some(subflow) = self.subflows.get_mut(position)
            && subflow.meta.is_tried()
        {
            subflow.meta.join_retry_at = cx.now + JOIN_REPEAT;
        }
        false
    }

    fn server_got_join_ack(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) -> bool {
        let Some(subflow) = self.subflows.get(position) else { return false };
        if subflow.tcp.state() == State::SynReceived {
            return false;
        }
        let nonce = subflow.meta.remote_nonce;
        let hmac = segment.options.mptcp().find_map(|option| match option {
            MptcpOption::Join(MpJoin::Ack { hmac }) => Some(*hmac),
            _ => None,
        });
        match hmac {
            Some(hmac) if !self.is_peer_hmac(position, nonce, &hmac) => {
                cx.mib.mp_join_ack_hmac_failure += 1;
                self.reset_subflow(position, SubflowError::WrongHmac, ResetReason::MPTCP);
                false
            }
            Some(_) if !self.has_room_for_join(cx) => {
                self.reset_subflow(position, SubflowError::Local, ResetReason::PROHIBITED);
                false
            }
            Some(_) => {
                cx.mib.mp_join_ack_rx += 1;
                self.join_established(cx, position);
                if let Some(subflow) = self.subflows.get_mut(position) {
                    // The fourth ACK.
                    subflow.tcp.request_ack();
                }
                true
            }
            None => {
                self.reset_subflow(position, SubflowError::JoinStripped, ResetReason::MIDDLEBOX);
                false
            }
        }
    }

    fn client_got_fourth_ack(&mut self, cx: &mut Context<'_>, position: usize, segment: &Segment) -> bool {
        if segment.options.dss.is_none() {
            // An acknowledgment from a middlebox, or from a peer whose options do not pass. The retries decide.
            return false;
        }
        self.join_established(cx, position);
        true
    }

    fn join_established(&mut self, cx: &mut Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        subflow.meta.stage = Stage::Established;
        subflow.meta.join_retry_at = Instant::FAR_FUTURE;
        let may_catch_up = self.scheduler.knows_slow_paths() && !subflow.tcp.controller().is_coupled();
        if self.shared.config.catch_up && may_catch_up {
            let shared = &self.shared;
            let buffer_bytes = shared.most_peer_window_bytes.min(shared.config.tcp.send_buffer_bytes);
            subflow.catch_up(cx.now, self.opened_at, buffer_bytes);
        }
        let (id, tuple, backup) = (subflow.meta.id, subflow.tcp.tuple(), subflow.meta.backup());
        self.shared.confirmed = true;
        self.timers.confirm = Instant::FAR_FUTURE;
        self.timers.no_subflow = Instant::FAR_FUTURE;
        self.emit(Event::SubflowEstablished { subflow: id, tuple, backup });
        self.judge_subflow(cx, position);
        self.notify_path_manager(cx, PathEvent::SubflowEstablished { subflow: id });
        self.rescue_stalled();
        self.needs_schedule = true;
    }

    /// The third ACK is sent reliably (RFC 8684 §3.2).
    pub(super) fn retry_join_ack(&mut self, cx: &mut Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        if subflow.meta.join_retries >= JOIN_RETRIES {
            self.reset_subflow(position, SubflowError::JoinStripped, ResetReason::MIDDLEBOX);
            return;
        }
        subflow.meta.join_retries += 1;
        let wait = Duration::from_nanos(JOIN_RETRY.as_nanos() << subflow.meta.join_retries);
        subflow.meta.join_retry_at = cx.now + wait;
        subflow.tcp.request_ack();
    }

    /// The peer sent the HMAC that it has to send, given its nonce, or the beginning of it.
    fn is_peer_hmac(&self, position: usize, peer_nonce: u32, hmac: &[u8]) -> bool {
        let Shared { version, local_key, remote_key, .. } = self.shared;
        let (Some(subflow), Some(peer)) = (self.subflows.get(position), remote_key) else { return false };
        verify_join_hmac(version, peer, local_key, peer_nonce, subflow.meta.local_nonce, hmac)
    }

    fn note_flags(&mut self, flags: u8) {
        self.shared.checksum = self.shared.config.checksum || flags & MpCapable::CHECKSUM != 0;
        self.shared.no_join_initial |= flags & MpCapable::NO_JOIN_INITIAL_ADDRESS != 0;
    }

    fn set_remote_key(&mut self, key: Key) {
        let (token, idsn) = key.derive(self.shared.version);
        self.shared.remote_key = Some(key);
        self.shared.remote_token = token;
        self.shared.receive_next = idsn.add(1);
    }

    fn enter_mptcp(&mut self, now: Instant, position: usize, stage: Stage) {
        self.shared.mode = Mode::Mptcp;
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        subflow.meta.stage = stage;
        self.opened_at = now - subflow.tcp.srtt();
        self.shared.most_peer_window_bytes = subflow.tcp.peer_window_bytes();
        self.shared.window_end = self.shared.send.start().add(self.shared.most_peer_window_bytes);
        let (id, tuple, backup) = (subflow.meta.id, subflow.tcp.tuple(), subflow.meta.backup());
        self.emit(Event::SubflowEstablished { subflow: id, tuple, backup });
    }
}

/// The MP_CAPABLE of a segment, if it asks for nothing that is not known.
fn understood(segment: &Segment) -> Option<MpCapable> {
    segment.options.mptcp().find_map(|option| match option {
        MptcpOption::Capable(capable) if capable.is_understood() => Some(*capable),
        _ => None,
    })
}
