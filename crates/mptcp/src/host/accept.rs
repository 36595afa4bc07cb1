//! How connections and subflows come to be.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::IpAddr;

use arrayvec::ArrayVec;
use polypath_tcp::{Connection as TcpConnection, Key, ListenerId, Setup, TimerHandle, reset_in_reply};
use polypath_units::Instant;
use polypath_wire::{
    Endpoint, FourTuple, MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, ResetReason, Segment,
    TcpOption,
};
use rand_core::Rng;

use super::path_memory::{Advice, MOST_CANDIDATES};
use super::{ConnectError, EPHEMERAL_PORTS, Entry, Flow, Host};
use crate::config::ConnectionConfig;
use crate::connection::{Birth, Connection, IncomingJoin};
use crate::crypto;
use crate::path_manager::LocalEndpoint;
use crate::subflow::Stage;

/// Paths that the first handshake is tried over, beside the one asked for.
const MAX_RIVALS: usize = MOST_CANDIDATES - 1;

impl Host {
    /// A segment that belongs to no flow.
    pub(super) fn handle_unknown(&mut self, now: Instant, tuple: FourTuple, segment: &mut Segment) {
        let is_first_syn = segment.flags.syn() && !segment.flags.ack() && !segment.flags.rst();
        if !is_first_syn {
            return self.refuse(tuple, segment, None);
        }
        let mut capable = None;
        for option in segment.options.mptcp() {
            match option {
                MptcpOption::Join(MpJoin::Syn { backup, address_id, token, nonce }) => {
                    let join = (*token, *nonce, *address_id, *backup);
                    return self.accept_join(now, tuple, segment, join);
                }
                MptcpOption::Capable(option) => capable = capable.or(Some(*option)),
                _ => {}
            }
        }
        let Some(listener) = self.listeners.find(tuple.local) else {
            return self.refuse(tuple, segment, None);
        };
        self.accept(now, tuple, segment, listener, capable);
    }

    fn refuse(&mut self, tuple: FourTuple, segment: &Segment, reason: Option<ResetReason>) {
        if let Some(mut reset) = reset_in_reply(segment) {
            reset.src_port = tuple.local.port;
            reset.dst_port = tuple.remote.port;
            if let Some(reason) = reason {
                reset.options.rest.push(TcpOption::Mptcp(MptcpOption::Reset { flags: 0, reason }));
            }
            self.reply(tuple, reset);
        }
    }

    fn accept(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment,
        listener: ListenerId,
        capable: Option<MpCapable>,
    ) {
        let full = self.connections.len() >= self.config.max_connections;
        let Some(listening) = self.listeners.get_mut(listener) else { return };
        if full || listening.half_open >= listening.config.backlog {
            // The client's SYN comes again.
            return;
        }
        listening.half_open += 1;
        let config = self.listener_configs.get(&listener).unwrap_or(&self.config.connection).clone();
        self.mib.mp_capable_syn_rx += u64::from(capable.is_some());
        let version =
            capable.filter(|_| config.mptcp).and_then(|capable| match (capable.version, capable.keys) {
                (0, MpCapableKeys::Sender(_)) => Some(MptcpVersion::V0),
                (1, MpCapableKeys::None) => Some(MptcpVersion::V1),
                _ => None,
            });
        let stage = if version.is_some() { Stage::CapableSynAck } else { Stage::Plain };
        let local_key = self.fresh_key(version.unwrap_or_default());
        let setup = self.tcp_setup(now, tuple, &config);
        let tcp = TcpConnection::accept(now, setup, segment);
        let version_in_use = version.unwrap_or_default();
        let birth = Birth { config, is_client: false, version: version_in_use, local_key, tcp, stage };
        let key = self.insert(now, birth, Some(listener));
        if let (Some(capable), Some(_), Some(entry)) = (capable, version, self.connections.get_mut(key)) {
            entry.connection.accept_capable(&capable);
        }
        self.settle(now, key);
    }

    fn accept_join(&mut self, now: Instant, tuple: FourTuple, segment: &Segment, join: (u32, u32, u8, bool)) {
        let (token, remote_nonce, remote_id, backup) = join;
        self.mib.mp_join_syn_rx += 1;
        let Some(index) = self.tokens.get(token) else {
            self.mib.mp_join_no_token_found += 1;
            return self.refuse(tuple, segment, Some(ResetReason::MPTCP));
        };
        let Some((key, entry)) = self.connections.at_mut(index) else { return };
        if !entry.connection.may_join() {
            return self.refuse(tuple, segment, Some(ResetReason::MPTCP));
        }
        let most = usize::from(self.config.limits.subflows) + 1;
        if entry.connection.subflow_count() >= most {
            return self.refuse(tuple, segment, Some(ResetReason::PROHIBITED));
        }
        if entry.connection.half_open_joins() >= self.config.max_half_open_joins {
            return;
        }
        let config = entry.connection.config().clone();
        let local_nonce = self.random.next_u32();
        let setup = self.tcp_setup(now, tuple, &config);
        let tcp = TcpConnection::accept(now, setup, segment);
        let local_id = self.local_id(tuple.local.addr);
        let Some(entry) = self.connections.get_mut(key) else { return };
        let incoming = IncomingJoin { remote_id, remote_nonce, local_id, local_nonce, backup };
        let id = entry.connection.accept_join(tcp, &incoming);
        let (local, remote) = (tuple.local.addr, tuple.remote.addr);
        entry.connection.remember_rate(id, self.path_memory.bottleneck_bytes_per_s(now, local, remote));
        self.flows.insert(tuple, Flow::Subflow { index, id });
        self.settle(now, key);
    }

    /// The client side of MP_JOIN.
    pub(super) fn open_subflow(
        &mut self,
        now: Instant,
        key: Key,
        local: IpAddr,
        local_id: u8,
        remote: Endpoint,
        backup: bool,
    ) {
        let Ok(tuple) = self.local_tuple(Endpoint::new(local, 0), remote) else { return };
        let Some(config) = self.connections.get(key).map(|entry| entry.connection.config().clone()) else {
            return;
        };
        let nonce = self.random.next_u32();
        let setup = self.tcp_setup(now, tuple, &config);
        let tcp = TcpConnection::connect(now, setup);
        let Some(entry) = self.connections.get_mut(key) else { return };
        let id = entry.connection.open_join(tcp, local_id, nonce, backup);
        entry.connection.remember_rate(id, self.path_memory.bottleneck_bytes_per_s(now, local, remote.addr));
        self.flows.insert(tuple, Flow::Subflow { index: key.index, id });
        self.settle(now, key);
    }

    /// How to open a connection, if the paths are remembered.
    pub(super) fn advice(&self, now: Instant, asked: IpAddr, remote: IpAddr) -> Option<Advice> {
        let rivals = self.config.endpoints.iter().filter(|endpoint| is_rival(endpoint, asked, remote));
        let rivals = rivals.map(|endpoint| endpoint.addr).take(MAX_RIVALS);
        let candidates: ArrayVec<IpAddr, MOST_CANDIDATES> = core::iter::once(asked).chain(rivals).collect();
        self.path_memory.advise(now, &candidates, remote)
    }

    /// Sends the first SYN of a connection over the other endpoints too, but those that are to wait.
    pub(super) fn race(&mut self, now: Instant, key: Key, initial: FourTuple, waiting: &[IpAddr]) {
        let Some(connection) = self.connections.get(key).map(|entry| &entry.connection) else { return };
        let config = connection.config().clone();
        if !config.race || !config.mptcp {
            return;
        }
        let (asked, remote) = (initial.local.addr, initial.remote.addr);
        let endpoints = self.config.endpoints.iter().filter(|endpoint| is_rival(endpoint, asked, remote));
        let is_due = |addr: &IpAddr| !waiting.contains(addr) && !connection.has_subflow_from(*addr);
        let rivals: ArrayVec<IpAddr, MAX_RIVALS> =
            endpoints.map(|endpoint| endpoint.addr).filter(is_due).take(MAX_RIVALS).collect();
        for addr in rivals {
            let Ok(tuple) = self.local_tuple(Endpoint::new(addr, 0), initial.remote) else { continue };
            let setup = self.tcp_setup(now, tuple, &config);
            let Some(entry) = self.connections.get_mut(key) else { return };
            let id = entry.connection.open_rival(TcpConnection::connect(now, setup));
            let remembered = self.path_memory.bottleneck_bytes_per_s(now, addr, remote);
            entry.connection.remember_rate(id, remembered);
            self.flows.insert(tuple, Flow::Subflow { index: key.index, id });
            self.mib.mp_capable_syn_tx += 1;
        }
        self.settle(now, key);
    }

    /// The 4-tuple of an outgoing flow; chooses the port if none was.
    pub(super) fn local_tuple(
        &mut self,
        local: Endpoint,
        remote: Endpoint,
    ) -> Result<FourTuple, ConnectError> {
        if local.addr.is_ipv4() != remote.addr.is_ipv4() {
            return Err(ConnectError::FamilyMismatch);
        }
        if local.port != 0 {
            let tuple = FourTuple { local, remote };
            return if self.flows.contains(&tuple) { Err(ConnectError::InUse(tuple)) } else { Ok(tuple) };
        }
        let flows = &self.flows;
        let is_free = |port| !flows.contains(&FourTuple { local: Endpoint::new(local.addr, port), remote });
        let port = self
            .secrets
            .ephemeral_port(local.addr, remote, &EPHEMERAL_PORTS, is_free)
            .ok_or(ConnectError::NoPort(remote))?;
        Ok(FourTuple { local: Endpoint::new(local.addr, port), remote })
    }

    /// A key whose token is free.
    pub(super) fn fresh_key(&mut self, version: MptcpVersion) -> crypto::Key {
        loop {
            let key = crypto::Key(self.random.next_u64());
            let (token, _) = key.derive(version);
            if token != 0 && self.tokens.get(token).is_none() {
                return key;
            }
        }
    }

    pub(super) fn tcp_setup(&self, now: Instant, tuple: FourTuple, config: &Arc<ConnectionConfig>) -> Setup {
        let tcp = config.tcp.clone();
        let overhead = if tuple.local.addr.is_ipv4() { 40 } else { 60 };
        let controller = config.congestion.build(&polypath_congestion::Config {
            mss_bytes: u32::from(tcp.mtu_bytes.saturating_sub(overhead)).max(1),
            initial_window_packets: tcp.initial_window_packets,
            min_ssthresh_packets: tcp.min_ssthresh_packets,
            ..polypath_congestion::Config::default()
        });
        Setup {
            tuple,
            isn: self.secrets.isn(now, &tuple),
            timestamp_offset: self.secrets.timestamp_offset(&tuple),
            config: tcp,
            controller,
        }
    }

    fn local_id(&self, addr: IpAddr) -> u8 {
        self.config.endpoints.iter().find(|endpoint| endpoint.addr == addr).map_or(0, |endpoint| endpoint.id)
    }

    pub(super) fn insert(&mut self, now: Instant, birth: Birth, half_open: Option<ListenerId>) -> Key {
        let tuple = birth.tcp.tuple();
        let is_mptcp = birth.stage != Stage::Plain;
        let mut connection = Connection::new(birth);
        connection.remember_rate(
            0,
            self.path_memory.bottleneck_bytes_per_s(now, tuple.local.addr, tuple.remote.addr),
        );
        let token = connection.local_token();
        let entry = Box::new(Entry { connection, timer: TimerHandle::default(), queued: false, half_open });
        let key = self.connections.insert(entry);
        self.flows.insert(tuple, Flow::Subflow { index: key.index, id: 0 });
        if is_mptcp {
            self.tokens.insert(token, key.index);
        }
        if let Some(entry) = self.connections.get_mut(key) {
            self.ready.mark(key.index, &mut entry.queued);
        }
        key
    }
}

/// A connection to `remote` that is to be opened from `asked` may as well be opened from this endpoint.
fn is_rival(endpoint: &LocalEndpoint, asked: IpAddr, remote: IpAddr) -> bool {
    let addr = endpoint.addr;
    endpoint.subflow && !endpoint.backup && addr != asked && addr.is_ipv4() == remote.is_ipv4()
}
