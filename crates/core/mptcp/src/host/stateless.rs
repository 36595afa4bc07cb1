//! Handshakes that leave nothing behind until they are complete: SYN cookies with MP_CAPABLE, and MP_JOIN.

use core::net::IpAddr;

use polypath_tcp::{
    Connection as TcpConnection, ConnectionId, ListenerId, Setup, SynOptions, echo_age, stateless_syn_ack,
};
use polypath_units::{Duration, Instant};
use polypath_wire::{
    FourTuple, MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, ResetReason, Segment, TcpOption,
};

use super::Host;
use super::join_cookie::{JoinFacts, PLACES};
use super::syn::{JoinSyn, version_of};
use crate::connection::{Connection, ConnectionSetup, IncomingJoin, capable_flags};
use crate::crypto::{Hmac160, Key};
use crate::identifiers::SubflowId;
use crate::misbehaviour::{Consequence, Misbehaviour};
use crate::subflow::Stage;

/// For so long after our SYN/ACK, the third ACK with the keys may still come behind a segment that overtook it, and that comes
/// again. Later it is lost, and as the keys in it do not come again, the client had better hear of that. Without timestamps nothing
/// tells how long ago it was: the client hears of it when the cookie is too old.
const OVERTAKEN: Duration = Duration::from_secs(3);

/// What became of a SYN with MP_JOIN that is to be answered without holding anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinAnswer {
    Sent,
    /// The connection is gone, or its keys are not there yet: the client asks again.
    NoConnection,
    /// The client lacks timestamps, by which it would be known again.
    NoTimestamps,
}

impl Host {
    /// Answers a SYN for which there is no room.
    pub(super) fn answer_with_cookie(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        syn: &Segment,
        listener: ListenerId,
        capable: Option<MpCapable>,
    ) {
        let config = self.listener_configs.get(&listener).unwrap_or(&self.resources.config.connection);
        let clock = self.core.secrets().timestamp(now, &tuple);
        let window_bytes = config.first_window_bytes();
        let mut answer =
            self.core.strangers_mut().syn_ack(now, &tuple, syn, &config.tcp, clock, window_bytes);
        if let Some(capable) = capable
            && version_of(&capable, config).is_some()
        {
            let keys = MpCapableKeys::Sender(self.core.strangers().secret(now, &tuple, syn));
            let checksum = capable.flags & MpCapable::CHECKSUM != 0;
            let capable =
                MpCapable { version: capable.version, flags: capable_flags(config, checksum), keys };
            answer.options.rest.push(TcpOption::Mptcp(MptcpOption::Capable(capable)));
        }
        self.core.strangers_mut().answer_syn(tuple, answer);
    }

    /// The third ACK of a client that was answered with a cookie, if it is one.
    pub(super) fn accept_cookie(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &mut Segment,
        listener: ListenerId,
    ) {
        let clock = self.core.secrets().timestamp(now, &tuple);
        let Some((syn, secret)) = self.core.strangers_mut().check_cookie(now, tuple, segment, clock) else {
            return;
        };
        if self.core.len() >= self.resources.config.max_connections {
            self.resources.counters.listen_drops += 1;
            return;
        }
        let config =
            self.listener_configs.get(&listener).unwrap_or(&self.resources.config.connection).clone();
        let capable = if config.mptcp { third_ack_keys(segment, Key(secret)) } else { None };
        if capable.is_none() && is_confirmed(segment, Key(secret)) {
            if echo_age(segment, clock).is_some_and(|age| age > OVERTAKEN) {
                self.refuse(now, tuple, segment, None);
            }
            return;
        }
        self.resources.counters.syncookies_recv += 1;
        // Nobody kept the token free meanwhile. If it is taken, the connection is TCP.
        let capable = capable.filter(|(_, version)| self.is_free(Key(secret), *version));
        let (version, stage) = match capable {
            Some((_, version)) => (version, Stage::CapableSynAck),
            None => (MptcpVersion::default(), Stage::Plain),
        };
        let setup = Setup { isn: segment.ack.sub(1), ..self.tcp_setup(now, tuple, &config, None) };
        let tcp = TcpConnection::resume(now, setup, &syn, config.first_window_bytes());
        self.core.listeners_mut().admit_always(listener, tuple.remote.addr);
        let local_key = Key(secret);
        let connection = ConnectionSetup { config, is_client: false, version, local_key, tcp, stage };
        let id = self.insert(now, connection, Some(listener));
        if let (Some((capable, _)), Some(connection)) = (capable, self.core.get_mut(id)) {
            self.resources.counters.mp_capable_syn_rx += 1;
            // The third ACK confirms what both agreed on (RFC 8684 §3.1).
            connection.accept_capable(&MpCapable { keys: MpCapableKeys::None, ..capable });
        }
        self.with(now, id, |connection, cx| connection.handle_segment(cx, SubflowId::INITIAL, segment));
        if self.core.get(id).is_some_and(Connection::is_half_open) {
            self.core.remove_flow(id, &tuple);
            self.forget(id);
        }
    }

    /// Answers a SYN with MP_JOIN to the connection at `index`, which has its fill of half-open ones.
    pub(super) fn answer_join(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        syn: &Segment,
        index: u32,
        join: JoinSyn,
    ) -> JoinAnswer {
        let (local_id, backup) = (self.local_id(tuple.local.addr), self.is_backup(tuple.local.addr));
        let Some((_, connection)) = self.core.at_mut(index) else { return JoinAnswer::NoConnection };
        let config = connection.config();
        if !config.tcp.timestamps || syn.options.timestamps.is_none() {
            return JoinAnswer::NoTimestamps;
        }
        let facts = JoinFacts {
            remote_nonce: join.nonce,
            place: index % PLACES,
            remote_id: join.address_id,
            backup: join.backup,
            options: SynOptions::of(&tuple, syn),
        };
        let numbers = self.joins.numbers(now, &tuple, syn.seq, facts);
        let Some(truncated_hmac) = connection.join_syn_ack_hmac(numbers.nonce, join.nonce) else {
            return JoinAnswer::NoConnection;
        };
        let window = connection.receive_window_bytes();
        let mut answer = stateless_syn_ack(&config.tcp, &tuple, syn, numbers.isn, numbers.timestamp, window);
        answer.options.rest.push(TcpOption::Mptcp(MptcpOption::Join(MpJoin::SynAck {
            backup,
            address_id: local_id.0,
            truncated_hmac,
            nonce: numbers.nonce,
        })));
        self.core.strangers_mut().answer_syn(tuple, answer);
        JoinAnswer::Sent
    }

    /// The third ACK of a join that was answered without state, if its HMAC proves that.
    pub(super) fn accept_join_cookie(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &mut Segment,
        hmac: &Hmac160,
    ) {
        let (peer_isn, isn) = (segment.seq.sub(1), segment.ack.sub(1));
        let Some(timestamps) = segment.options.timestamps else {
            return self.refuse(now, tuple, segment, Some(ResetReason::MPTCP));
        };
        if !self.join_hmac_limit.allows_many(now, tuple.remote.addr, self.most_hmacs()) {
            self.resources.counters.join_acks_dropped += 1;
            return;
        }
        let (facts, nonces) = self.joins.recall(now, &tuple, peer_isn, isn, timestamps.echo);
        let Some((index, local_nonce)) = self.signed_join(facts, nonces, hmac) else {
            return self.answer_stranger(now, tuple, segment, Misbehaviour::WrongHmacInJoinAck);
        };
        let local_backup = self.is_backup(tuple.local.addr);
        let (limits, local_id) = (self.resources.config.limits, self.local_id(tuple.local.addr));
        let Some((id, connection)) = self.core.at_mut(index) else { return };
        if !connection.may_take_join(limits) || !connection.note_stateless_join(now, local_nonce) {
            return self.refuse(now, tuple, segment, Some(ResetReason::NO_RESOURCES));
        }
        self.resources.counters.syncookies_recv += 1;
        let config = connection.config().clone();
        let window_bytes = connection.receive_window_bytes();
        let setup = Setup {
            isn,
            timestamp_offset: timestamps.echo.wrapping_sub(now.as_millis() as u32),
            ..self.tcp_setup(now, tuple, &config, None)
        };
        let tcp = TcpConnection::resume(now, setup, &facts.options.to_syn(segment), window_bytes);
        let JoinFacts { remote_id, remote_nonce, backup: remote_backup, .. } = facts;
        let incoming =
            IncomingJoin { remote_id, remote_nonce, local_id, local_nonce, remote_backup, local_backup };
        let subflow = self.add_join(now, id, tuple, tcp, &incoming);
        self.with(now, id, |connection, cx| {
            connection.handle_segment(cx, subflow, segment);
            if connection.is_half_open_join(subflow) {
                connection.forget_join(subflow);
            }
        });
    }

    /// Somebody who has no subflow here misbehaves: see [`crate::misbehaviour`].
    fn answer_stranger(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment,
        misbehaviour: Misbehaviour,
    ) {
        misbehaviour.count(&mut self.resources.counters);
        if let Consequence::Reset(_, reason) = misbehaviour.consequence() {
            self.refuse(now, tuple, segment, Some(reason));
        }
    }

    /// HMACs that [`Host::signed_join`] computes at most.
    fn most_hmacs(&self) -> u32 {
        2 * u32::try_from(self.core.places()).unwrap_or(u32::MAX).div_ceil(PLACES).max(1)
    }

    /// The connection whose keys made `hmac`, and which of the nonces went with it. A cookie does not tell apart connections whose
    /// places differ by a multiple of [`PLACES`]: two HMACs for each, that is for one in 32 768 connections.
    fn signed_join(&mut self, facts: JoinFacts, nonces: [u32; 2], hmac: &Hmac160) -> Option<(u32, u32)> {
        let places = u32::try_from(self.core.places()).unwrap_or(u32::MAX);
        for index in (facts.place..places).step_by(PLACES as usize) {
            let Some((_, connection)) = self.core.at_mut(index) else { continue };
            let is_signed = |nonce: &u32| connection.is_join_signed(*nonce, facts.remote_nonce, hmac);
            if let Some(nonce) = nonces.into_iter().find(|nonce| is_signed(nonce)) {
                return Some((index, nonce));
            }
        }
        None
    }

    pub(super) fn add_join(
        &mut self,
        now: Instant,
        id: ConnectionId,
        tuple: FourTuple,
        tcp: TcpConnection<crate::mapping::Mapping>,
        incoming: &IncomingJoin,
    ) -> SubflowId {
        let (local, remote): (IpAddr, IpAddr) = (tuple.local.addr, tuple.remote.addr);
        let remembered = self.path_memory.bottleneck_bytes_per_s(now, local, remote);
        let Some(connection) = self.core.get_mut(id) else { return SubflowId::INITIAL };
        let subflow = connection.accept_join(tcp, incoming);
        connection.remember_rate(subflow, remembered);
        self.core.add_flow(id, tuple, subflow);
        subflow
    }
}

/// MP_CAPABLE of a third ACK that has our key.
fn third_ack_keys(segment: &Segment, own: Key) -> Option<(MpCapable, MptcpVersion)> {
    let capable = segment.options.mptcp().find_map(|option| match option {
        MptcpOption::Capable(capable) => Some(*capable),
        _ => None,
    })?;
    let receiver = match capable.keys {
        MpCapableKeys::Both { receiver, .. } | MpCapableKeys::BothWithData { receiver, .. } => receiver,
        _ => return None,
    };
    let version = match capable.version {
        0 => MptcpVersion::V0,
        1 => MptcpVersion::V1,
        _ => return None,
    };
    (Key(receiver) == own).then_some((capable, version))
}

/// The client has heard a DSS of ours, so its segment is of a connection that both ends had and this one has no more: as TCP, its
/// data would be taken for another stream than the one that it numbers. Before that, a client of version 1 repeats its keys (RFC 8684
/// §3.1); of version 0, nothing tells.
fn is_confirmed(segment: &Segment, local_key: Key) -> bool {
    let (_, idsn) = local_key.derive(MptcpVersion::V1);
    let acknowledged = segment.options.dss.and_then(|dss| dss.data_ack);
    acknowledged.is_some_and(|ack| ack.expand(idsn).diff(idsn) == 1)
}
