//! MP_JOIN, both ends (RFC 8684 §3.2).

use polypath_tcp::{Connection as TcpConnection, State};
use polypath_units::Instant;
use polypath_wire::{MpJoin, MptcpOption, ResetReason, Segment};

use super::{Connection, Context};
use crate::event::{Event, SubflowError};
use crate::identifiers::{AddressId, SubflowId};
use crate::mapping::Mapping;
use crate::misbehaviour::Misbehaviour;
use crate::path_manager::PathEvent;
use crate::subflow::Stage;

/// An MP_JOIN SYN, ready to become a subflow.
pub(crate) struct IncomingJoin {
    pub(crate) remote_id: AddressId,
    pub(crate) remote_nonce: u32,
    pub(crate) local_id: AddressId,
    pub(crate) local_nonce: u32,
    /// The peer asks for a backup.
    pub(crate) remote_backup: bool,
    /// Subflows of the address that was joined are backups.
    pub(crate) local_backup: bool,
}

impl Connection {
    /// Opens a subflow: the caller has made the TCP connection.
    pub(crate) fn open_join(
        &mut self,
        now: Instant,
        tcp: TcpConnection<Mapping>,
        local_id: AddressId,
        nonce: u32,
        backup: bool,
    ) -> SubflowId {
        let tcp = self.coupled_if_shared(tcp);
        let id = self.add_subflow(tcp, Stage::JoinSyn);
        let is_aside = !backup && self.joins_aside(now);
        if let Some(subflow) = self.subflows.last_mut() {
            subflow.state.join.begin(nonce);
            subflow.state.role.begin_join(local_id, backup, is_aside);
        }
        id
    }

    /// The server side of MP_JOIN.
    pub(crate) fn accept_join(&mut self, tcp: TcpConnection<Mapping>, join: &IncomingJoin) -> SubflowId {
        let tcp = self.coupled_if_shared(tcp);
        let id = self.add_subflow(tcp, Stage::JoinSynAck);
        if let Some(subflow) = self.subflows.last_mut() {
            subflow.state.join.begin(join.local_nonce);
            subflow.state.join.handle_nonce(join.remote_nonce);
            subflow.state.role.accept_join(join.local_id, join.local_backup);
            subflow.state.role.handle_join(join.remote_id, join.remote_backup);
        }
        id
    }

    /// See [`lia_on_shared_access`](crate::ConnectionConfig::lia_on_shared_access).
    fn coupled_if_shared(&self, mut tcp: TcpConnection<Mapping>) -> TcpConnection<Mapping> {
        let access = |tcp: &TcpConnection<Mapping>| {
            let tuple = tcp.tuple();
            if self.stream.negotiation.is_client() { tuple.local.addr } else { tuple.remote.addr }
        };
        // One that steers recovery as well measures the path, and leaves room in a shared queue by itself.
        let chosen = tcp.controller();
        let is_uncoupled = !chosen.is_coupled() && !chosen.steers_recovery();
        let is_shared = self.subflows.any(|subflow| access(&subflow.tcp) == access(&tcp));
        if self.stream.config.couples_shared_access() && is_uncoupled && is_shared {
            tcp.set_congestion(&polypath_congestion::LIA);
        }
        tcp
    }

    /// An MP_JOIN can be answered: keys are known and there was no fallback. Even where all is said, the peer may have missed
    /// the last word.
    pub(crate) fn may_join(&self) -> bool {
        self.stream.lifecycle.is_mptcp()
            && self.stream.negotiation.knows_peer()
            && !self.stream.lifecycle.is_closed()
    }

    /// Another subflow is of use to this end.
    pub(super) fn may_open(&self) -> bool {
        self.may_join()
            && (self.stream.negotiation.is_confirmed() || self.opening.is_asking())
            && !self.stream.lifecycle.is_all_said()
    }

    pub(super) fn client_got_join_syn_ack(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        segment: &Segment,
    ) -> bool {
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
            self.answer(cx, position, Misbehaviour::JoinWithoutOption);
            return false;
        };
        cx.counters.mp_join_syn_ack_rx += 1;
        if !self.is_peer_hmac(position, nonce, &hmac.to_be_bytes()) {
            self.answer(cx, position, Misbehaviour::WrongHmacInJoinSynAck);
            return false;
        }
        if let Some(subflow) = self.subflows.get_mut(position) {
            // Linux before 6.11 says of its own what we asked for.
            let is_backup = backup && !subflow.state.role.is_aside();
            subflow.state.role.handle_join(AddressId(address_id), is_backup);
            subflow.state.join.handle_nonce(nonce);
            subflow.state.handle_join_syn_ack(cx.now);
            subflow.tcp.request_ack();
        }
        self.judge_subflow(cx, position);
        if let Some(subflow) = self.subflows.get_mut(position)
            && subflow.state.role.is_tried()
        {
            subflow.state.join.repeat_at_once(cx.now);
        }
        false
    }

    pub(super) fn server_got_join_ack(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        segment: &Segment,
    ) -> bool {
        let Some(subflow) = self.subflows.get(position) else { return false };
        if subflow.tcp.state() == State::SynReceived {
            return false;
        }
        let nonce = subflow.state.join.nonces().1;
        let hmac = segment.options.mptcp().find_map(|option| match option {
            MptcpOption::Join(MpJoin::Ack { hmac }) => Some(*hmac),
            _ => None,
        });
        match hmac {
            Some(hmac) if !self.is_peer_hmac(position, nonce, &hmac) => {
                self.answer(cx, position, Misbehaviour::WrongHmacInJoinAck);
                false
            }
            Some(_) if !self.has_room_for_join(cx) => {
                self.reset_subflow(position, SubflowError::Local, ResetReason::PROHIBITED);
                false
            }
            Some(_) => {
                cx.counters.mp_join_ack_rx += 1;
                self.join_established(cx, position);
                if let Some(subflow) = self.subflows.get_mut(position) {
                    // The fourth ACK.
                    subflow.tcp.request_ack();
                }
                true
            }
            None => {
                self.answer(cx, position, Misbehaviour::JoinAckWithoutOption);
                false
            }
        }
    }

    pub(super) fn client_got_fourth_ack(
        &mut self,
        cx: &mut Context<'_>,
        position: usize,
        segment: &Segment,
    ) -> bool {
        if segment.options.dss.is_none() {
            // An acknowledgment from a middlebox, or from a peer whose options do not pass. The retries decide.
            return false;
        }
        self.join_established(cx, position);
        true
    }

    fn join_established(&mut self, cx: &mut Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        subflow.state.handle_join_ack();
        let may_catch_up = self.scheduling.knows_slow_paths() && !subflow.tcp.controller().is_coupled();
        if self.stream.config.catch_up && may_catch_up {
            let buffer_bytes =
                self.stream.send.most_peer_window_bytes().min(self.stream.config.tcp.send_buffer_bytes);
            subflow.catch_up(cx.now, self.stream.negotiation.opened_at(), buffer_bytes);
        }
        let (id, tuple, backup) = (subflow.state.id, subflow.tcp.tuple(), subflow.state.role.is_backup());
        self.stream.negotiation.confirm();
        self.opening.stop_waiting();
        self.stream.lifecycle.stop_awaiting_subflow();
        self.outbox.emit(Event::SubflowEstablished { subflow: id, tuple, backup });
        self.judge_subflow(cx, position);
        self.notify_path_manager(cx, PathEvent::SubflowEstablished { subflow: id });
        self.end_removed(cx);
        self.rescue_stalled();
        self.scheduling.request();
    }

    /// The third ACK is sent reliably (RFC 8684 §3.2).
    pub(super) fn retry_join_ack(&mut self, cx: &mut Context<'_>, position: usize) {
        let Some(subflow) = self.subflows.get_mut(position) else { return };
        if subflow.state.join.retry(cx.now) {
            subflow.tcp.request_ack();
        } else {
            self.answer(cx, position, Misbehaviour::JoinAckUnanswered);
        }
    }

    /// The peer sent the HMAC that it has to send, given its nonce, or the beginning of it.
    fn is_peer_hmac(&self, position: usize, peer_nonce: u32, hmac: &[u8]) -> bool {
        let Some(subflow) = self.subflows.get(position) else { return false };
        self.stream.negotiation.is_join_hmac(subflow.state.join.nonces().0, peer_nonce, hmac)
    }
}
