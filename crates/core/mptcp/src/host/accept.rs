//! How connections and subflows from outside come to be, and what all of them begin with.

use alloc::sync::Arc;
use core::net::IpAddr;

use polypath_tcp::{Connection as TcpConnection, ConnectionId, ListenerId, Setup};
use polypath_units::Instant;
use polypath_wire::{
    FourTuple, MpCapable, MpJoin, MptcpOption, MptcpVersion, ResetReason, Segment, SeqNumber, TcpOption,
};
use rand_core::Rng;

use super::Host;
use super::stateless::JoinAnswer;
use super::syn::{JoinSyn, version_of};
use crate::config::ConnectionConfig;
use crate::connection::{Connection, ConnectionSetup, IncomingJoin};
use crate::crypto;
use crate::identifiers::{AddressId, SubflowId};
use crate::subflow::Stage;

impl Host {
    /// A segment that belongs to no flow.
    pub(super) fn handle_unknown(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &mut Segment,
        isn_after: Option<SeqNumber>,
    ) {
        let flags = segment.flags;
        match (flags.syn(), flags.ack()) {
            _ if flags.rst() => {}
            (true, false) => self.handle_syn(now, tuple, segment, isn_after),
            (false, true) => self.handle_stray_ack(now, tuple, segment),
            _ => self.refuse(now, tuple, segment, None),
        }
    }

    /// A first SYN. With `isn_after`, its connection follows a TIME-WAIT between the same ends, and its initial sequence number
    /// comes after that one (RFC 6191 §2), unless there is no room and it gets a cookie.
    fn handle_syn(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment,
        isn_after: Option<SeqNumber>,
    ) {
        let mut capable = None;
        for option in segment.options.mptcp() {
            match option {
                MptcpOption::Join(MpJoin::Syn { backup, address_id, token, nonce }) => {
                    let join = JoinSyn {
                        token: *token,
                        nonce: *nonce,
                        address_id: AddressId(*address_id),
                        backup: *backup,
                    };
                    return self.accept_join(now, tuple, segment, join, isn_after);
                }
                MptcpOption::Capable(option) if option.is_understood() => capable = capable.or(Some(*option)),
                _ => {}
            }
        }
        let Some(listener) = self.core.listeners().find(tuple.local) else {
            return self.refuse(now, tuple, segment, None);
        };
        self.accept(now, tuple, segment, listener, capable, isn_after);
    }

    /// An acknowledgment without a flow: the third ACK of a handshake that left nothing here, or one to refuse.
    fn handle_stray_ack(&mut self, now: Instant, tuple: FourTuple, segment: &mut Segment) {
        if self.joins.are_in_use(now) {
            let hmac = segment.options.mptcp().find_map(|option| match option {
                MptcpOption::Join(MpJoin::Ack { hmac }) => Some(*hmac),
                _ => None,
            });
            if let Some(hmac) = hmac {
                return self.accept_join_cookie(now, tuple, segment, &hmac);
            }
        }
        if self.core.strangers().are_cookies_in_use(now)
            && let Some(listener) = self.core.listeners().find(tuple.local)
        {
            return self.accept_cookie(now, tuple, segment, listener);
        }
        self.refuse(now, tuple, segment, None);
    }

    pub(super) fn refuse(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment,
        reason: Option<ResetReason>,
    ) {
        let option = reason.map(|reason| {
            let flags = u8::from(reason.is_transient());
            TcpOption::Mptcp(MptcpOption::Reset { flags, reason })
        });
        self.core.strangers_mut().refuse(now, tuple, segment, option);
    }

    fn accept(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment,
        listener: ListenerId,
        capable: Option<MpCapable>,
        isn_after: Option<SeqNumber>,
    ) {
        if self.core.len() >= self.resources.config.max_connections {
            // The client's SYN comes again.
            self.resources.counters.listen_drops += 1;
            return;
        }
        if !self.core.listeners_mut().admit(listener, tuple.remote.addr) {
            self.resources.counters.listen_overflows += 1;
            return self.answer_with_cookie(now, tuple, segment, listener, capable);
        }
        let config =
            self.listener_configs.get(&listener).unwrap_or(&self.resources.config.connection).clone();
        self.resources.counters.mp_capable_syn_rx += u64::from(capable.is_some());
        let version = capable.and_then(|capable| version_of(&capable, &config));
        let stage = if version.is_some() { Stage::CapableSynAck } else { Stage::Plain };
        let version_in_use = version.unwrap_or_default();
        let mut setup = self.tcp_setup(now, tuple, &config, isn_after);
        let mut local_key = None;
        if let Some(isn) = self.core.strangers().cookie_in_use(now, &tuple, segment)
            && isn_after.is_none()
        {
            setup.isn = isn;
            let key = crypto::Key(self.core.strangers().secret(now, &tuple, segment));
            local_key = Some(key).filter(|key| self.is_free(*key, version_in_use));
        }
        let local_key = local_key.unwrap_or_else(|| self.fresh_key(version_in_use));
        let tcp = TcpConnection::accept(now, setup, segment);
        let connection =
            ConnectionSetup { config, is_client: false, version: version_in_use, local_key, tcp, stage };
        let id = self.insert(now, connection, Some(listener));
        if let (Some(capable), Some(_), Some(connection)) = (capable, version, self.core.get_mut(id)) {
            connection.accept_capable(&capable);
        }
        self.settle(now, id);
    }

    fn accept_join(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment,
        join: JoinSyn,
        isn_after: Option<SeqNumber>,
    ) {
        self.resources.counters.mp_join_syn_rx += 1;
        let Some(index) = self.tokens.get(join.token) else {
            self.resources.counters.mp_join_no_token_found += 1;
            return self.refuse(now, tuple, segment, Some(ResetReason::MPTCP));
        };
        let limits = self.resources.config.limits;
        let Some((id, connection)) = self.core.at_mut(index) else { return };
        if !connection.may_join() {
            return self.refuse(now, tuple, segment, Some(ResetReason::MPTCP));
        }
        if !connection.may_take_join(limits) {
            return self.refuse(now, tuple, segment, Some(ResetReason::NO_RESOURCES));
        }
        // While some are answered without state, all are: which answer a client gets to its SYN, sent twice, makes no difference.
        let is_full = connection.half_open_joins() >= self.resources.config.max_half_open_joins;
        if is_full || self.joins.are_in_use(now) {
            if self.answer_join(now, tuple, segment, index, join) != JoinAnswer::NoTimestamps {
                return;
            }
            let Some(connection) = self.core.get_mut(id) else { return };
            if is_full && !connection.evict_half_open_join() {
                return;
            }
        }
        let Some(config) = self.core.get(id).map(|connection| connection.config().clone()) else {
            return;
        };
        let local_nonce = self.random.next_u32();
        let setup = self.tcp_setup(now, tuple, &config, isn_after);
        let tcp = TcpConnection::accept(now, setup, segment);
        let (local_id, local_backup) = (self.local_id(tuple.local.addr), self.is_backup(tuple.local.addr));
        let JoinSyn { address_id: remote_id, nonce: remote_nonce, backup: remote_backup, .. } = join;
        let incoming =
            IncomingJoin { remote_id, remote_nonce, local_id, local_nonce, remote_backup, local_backup };
        self.add_join(now, id, tuple, tcp, &incoming);
        self.settle(now, id);
    }

    /// No connection has the token of this key.
    pub(super) fn is_free(&self, key: crypto::Key, version: MptcpVersion) -> bool {
        let (token, _) = key.derive(version);
        token != 0 && self.tokens.get(token).is_none()
    }

    /// A key whose token is free.
    pub(super) fn fresh_key(&mut self, version: MptcpVersion) -> crypto::Key {
        loop {
            let key = crypto::Key(self.random.next_u64());
            if self.is_free(key, version) {
                return key;
            }
        }
    }

    /// With `isn_after`, the initial sequence number comes after that one.
    pub(super) fn tcp_setup(
        &self,
        now: Instant,
        tuple: FourTuple,
        config: &Arc<ConnectionConfig>,
        isn_after: Option<SeqNumber>,
    ) -> Setup {
        Setup {
            tuple,
            isn: self.core.secrets().isn_after(now, &tuple, isn_after),
            timestamp_offset: self.core.secrets().timestamp_offset(&tuple),
            config: config.tcp.clone(),
            congestion: config.congestion.clone(),
        }
    }

    pub(super) fn local_id(&self, addr: IpAddr) -> AddressId {
        self.resources
            .config
            .endpoints
            .iter()
            .find(|endpoint| endpoint.addr == addr)
            .map_or(AddressId::INITIAL, |endpoint| endpoint.id)
    }

    /// Whether subflows of an address are backups.
    pub(super) fn is_backup(&self, addr: IpAddr) -> bool {
        self.resources.config.endpoints.iter().any(|endpoint| endpoint.addr == addr && endpoint.backup)
    }

    pub(super) fn insert(
        &mut self,
        now: Instant,
        setup: ConnectionSetup,
        listener: Option<ListenerId>,
    ) -> ConnectionId {
        let tuple = setup.tcp.tuple();
        let is_mptcp = setup.stage != Stage::Plain;
        let mut connection = Connection::new(setup);
        connection.remember_rate(
            SubflowId::INITIAL,
            self.path_memory.bottleneck_bytes_per_s(now, tuple.local.addr, tuple.remote.addr),
        );
        let token = connection.local_token();
        let id = self.core.insert(tuple, SubflowId::INITIAL, connection, listener);
        if is_mptcp {
            self.tokens.insert(token, id.index() as u32);
        }
        id
    }
}
