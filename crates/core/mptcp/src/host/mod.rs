//! A host: listeners, connections, the way from a packet to its connection, and one timer for all.

mod accept;
mod budgets;
mod ending;
mod endpoints;
mod error;
mod getters;
mod join_cookie;
mod old_peers;
mod options;
mod path_memory;
mod stateless;
mod syn;
#[cfg(test)]
mod tests;
mod time_waits;
mod token_table;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use bytes::Bytes;
use polypath_tcp::{
    FlowTable, HostSecrets, Key, ListenConfig, ListenError, ListenerId, Listeners, ReadyQueue, ReplyLimit,
    Slab, StrangerLimits, Strangers, SynCookies, TimerHandle, TimerWheel,
};
use polypath_units::Instant;
use polypath_wire::{Endpoint, FourTuple, Packet, Payload, Transport};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::config::{ConnectionConfig, HostConfig};
use crate::connection::{Birth, Connection, Context, Request};
use crate::event::Event;
use crate::mib::Mib;
use crate::path_manager::PathEvent;
use crate::receive_window::ReceiveMemory;
use crate::subflow::Stage;

pub(crate) use accept::is_rival;
pub(crate) use budgets::Budgets;
pub use error::{ConnectError, SendError};
use join_cookie::JoinCookies;
pub(crate) use join_cookie::LIFE as STATELESS_JOIN_LIFE;
use old_peers::OldPeers;
use path_memory::PathMemory;
pub(crate) use path_memory::PathQuality;
use token_table::TokenTable;

/// Names a connection of a [`Host`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(Key);

impl ConnectionId {
    /// A small number that no other present connection of the host has: an index for the caller's own tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0.index as usize
    }
}

/// What a flow leads to.
#[derive(Clone, Copy, Debug)]
enum Flow {
    Subflow { index: u32, id: u8 },
    TimeWait { index: u32 },
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    timer: TimerHandle,
    /// In the ready queue.
    queued: bool,
    /// Counted as half-open at this listener, and for the source that its first packet came from.
    half_open: Option<ListenerId>,
    remote: IpAddr,
}

/// Packets that one connection may send before the next has its turn.
const BURST_PACKETS: u32 = 16;

/// Ephemeral ports (RFC 6335 §6).
const EPHEMERAL_PORTS: core::ops::RangeInclusive<u16> = 49_152..=65_535;

/// What a call into a connection needs of the host: the host without its connections, one of which is borrowed beside.
macro_rules! context {
    ($host:ident, $now:expr) => {
        Context {
            now: $now,
            mib: &mut $host.mib,
            endpoints: &$host.config.endpoints,
            limits: $host.config.limits,
            max_announced_addresses: $host.config.max_announced_addresses,
            memory: &mut $host.memory,
            budgets: &mut $host.budgets,
            challenges: $host.strangers.challenges(),
        }
    };
}

/// A Multipath TCP host as a state machine: it has no socket, no clock, no task.
///
/// Four kinds of method:
/// - `handle_*` tell it what happened: a packet came, a deadline passed, an address came or went;
/// - commands of the application: [`Host::listen`], [`Host::connect`], [`Host::send`], [`Host::recv`],
///   [`Host::shutdown`], [`Host::abort`], [`Host::release`];
/// - `poll_*` say what it wants: after any of the above, call [`Host::poll_transmit`] until it returns `None`, then
///   [`Host::poll`] until it returns `None` (and again, if the application did something), then ask
///   [`Host::poll_timeout`] when [`Host::handle_timeout`] is due. A `handle_timeout` that comes early does nothing;
/// - getters.
///
/// `now` must never go back.
#[derive(Debug)]
pub struct Host {
    config: HostConfig,
    random: ChaCha12Rng,
    secrets: HostSecrets,
    strangers: Strangers,
    joins: JoinCookies,
    join_hmac_limit: ReplyLimit,
    listeners: Listeners,
    listener_configs: BTreeMap<ListenerId, Arc<ConnectionConfig>>,
    connections: Slab<Box<Entry>>,
    flows: FlowTable<Flow>,
    tokens: TokenTable,
    /// Of connections, by their index.
    timers: TimerWheel<u32>,
    ready: ReadyQueue,
    burst: u32,
    events: VecDeque<(ConnectionId, Event)>,
    mib: Mib,
    /// Promised by receive windows.
    memory: ReceiveMemory,
    path_memory: PathMemory,
    old_peers: OldPeers,
    budgets: Budgets,
}

impl Host {
    /// A host whose random choices all follow from `seed`. Outside of a simulator use [`Host::with_seed`].
    #[must_use]
    pub fn new(config: HostConfig, seed: u64) -> Self {
        let mut bytes = [0; 32];
        ChaCha12Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
        Self::with_seed(config, bytes)
    }

    /// A host whose keys, nonces, ports and initial sequence numbers follow from `seed`, which must come from the
    /// operating system's random generator.
    #[must_use]
    pub fn with_seed(config: HostConfig, seed: [u8; 32]) -> Self {
        let mut random = ChaCha12Rng::from_seed(seed);
        let secrets = HostSecrets::new(random.next_u64());
        let mut stateless = ChaCha12Rng::from_seed(seed);
        stateless.set_stream(1);
        let limits = StrangerLimits {
            max_time_wait: config.max_time_wait,
            time_wait: config.connection.tcp.time_wait,
            max_replies: config.max_replies,
            resets_per_second: config.resets_per_second,
            challenge_acks_per_second: config.challenge_acks_per_second,
        };
        let cookies = SynCookies::new(&mut stateless);
        Self {
            joins: JoinCookies::new(&mut stateless),
            strangers: Strangers::new(cookies, limits, &mut stateless),
            join_hmac_limit: ReplyLimit::new(config.join_hmacs_per_second, &mut stateless),
            flows: FlowTable::new(secrets.flow_table_seed()),
            memory: ReceiveMemory::new(config.receive_memory_bytes),
            path_memory: PathMemory::default(),
            old_peers: OldPeers::default(),
            budgets: Budgets::new(&config.endpoints),
            config,
            random,
            secrets,
            listeners: Listeners::new(&mut stateless),
            listener_configs: BTreeMap::new(),
            connections: Slab::new(),
            tokens: TokenTable::default(),
            timers: TimerWheel::new(),
            ready: ReadyQueue::new(),
            burst: 0,
            events: VecDeque::new(),
            mib: Mib::default(),
        }
    }

    // ---- commands

    /// Listens; an unspecified address stands for all. Connections come as [`Event::Accepted`], with the host's settings.
    pub fn listen(&mut self, local: Endpoint) -> Result<ListenerId, ListenError> {
        self.listeners.insert(local, self.listen_config())
    }

    /// Listens at every address and port where nothing else does: for hosts that terminate the connections of others.
    pub fn listen_everywhere(&mut self) -> Result<ListenerId, ListenError> {
        self.listeners.insert_catch_all(self.listen_config())
    }

    fn listen_config(&self) -> ListenConfig {
        let HostConfig { backlog, backlog_per_source, .. } = self.config;
        ListenConfig { backlog, backlog_per_source }
    }

    /// Gives the connections that a listener accepts from now on settings of their own.
    pub fn configure_listener(&mut self, id: ListenerId, config: Arc<ConnectionConfig>) {
        if self.listeners.get(id).is_some() {
            self.listener_configs.insert(id, config);
        }
    }

    /// Listens no more. Connections stay.
    pub fn close_listener(&mut self, id: ListenerId) {
        self.listeners.remove(id);
        self.listener_configs.remove(&id);
    }

    /// Opens a connection from `local` (port 0: an ephemeral one) to `remote`, with the host's settings or its own.
    pub fn connect(
        &mut self,
        now: Instant,
        local: Endpoint,
        remote: Endpoint,
        config: Option<Arc<ConnectionConfig>>,
    ) -> Result<ConnectionId, ConnectError> {
        if self.connections.len() >= self.config.max_connections {
            return Err(ConnectError::TooMany(self.config.max_connections));
        }
        let config = config.unwrap_or_else(|| self.config.connection.clone());
        let may_choose = config.race && config.mptcp && local.port == 0;
        let advice = if may_choose { self.advice(now, local.addr, remote.addr) } else { None };
        let local = Endpoint::new(advice.as_ref().map_or(local.addr, |advice| advice.best), local.port);
        let tuple = self.local_tuple(local, remote)?;
        let stage = if config.mptcp { Stage::CapableSyn } else { Stage::Plain };
        let version = self.old_peers.version_for(now, remote.addr, config.version);
        let local_key = self.fresh_key(version);
        let setup = self.tcp_setup(now, tuple, &config, None);
        let tcp = polypath_tcp::Connection::connect(now, setup);
        self.mib.mp_capable_syn_tx += u64::from(config.mptcp);
        let birth = Birth { config, is_client: true, version, local_key, tcp, stage };
        let key = self.insert(now, birth, None);
        if may_choose {
            let waiting = advice.as_ref().map_or(&[][..], |advice| &advice.worse);
            self.race(now, key, tuple, waiting);
        }
        if let Some(advice) = advice.filter(|advice| !advice.worse.is_empty())
            && let Some(entry) = self.connections.get_mut(key)
        {
            entry.connection.race_at(now + advice.patience);
        }
        Ok(ConnectionId(key))
    }

    /// Queues data; returns how many bytes the send buffer took. [`Event::Writable`] follows when there is room again.
    pub fn send(&mut self, _now: Instant, id: ConnectionId, data: Bytes) -> Result<usize, SendError> {
        let entry = self.connections.get_mut(id.0).ok_or(SendError::Unknown)?;
        if entry.connection.is_write_closed() {
            return Err(SendError::Closed);
        }
        let taken = entry.connection.send(data);
        if taken > 0 {
            self.ready.mark(id.0.index, &mut entry.queued);
        }
        Ok(taken)
    }

    /// Asks for [`Event::Writable`] when acknowledgments have made room, as a [`Host::send`] that is cut short does.
    pub fn request_writable(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(id.0) {
            entry.connection.request_writable();
        }
    }

    /// The next data in order, without copying it; `None` until [`Event::Readable`].
    pub fn recv(&mut self, now: Instant, id: ConnectionId) -> Option<Payload> {
        let entry = self.connections.get_mut(id.0)?;
        let payload = entry.connection.recv(now);
        if payload.is_some() {
            self.ready.mark(id.0.index, &mut entry.queued);
        }
        payload
    }

    /// Ends this side's stream after what is queued.
    pub fn shutdown(&mut self, now: Instant, id: ConnectionId) {
        self.with(now, id.0, |connection, cx| connection.shutdown(cx));
    }

    /// Ends the connection at once: MP_FASTCLOSE, or RST after a fallback.
    pub fn abort(&mut self, now: Instant, id: ConnectionId) {
        self.with(now, id.0, |connection, _| connection.abort());
    }

    /// Lets go: the host forgets the connection when both ends are done. Until then it is closed in order, however long the peer
    /// takes, or aborted if there is unread data. It is given up when the peer acknowledges nothing more for
    /// [`orphan_timeout`](polypath_tcp::Config::orphan_timeout), or does not end for
    /// [`fin_wait_2`](polypath_tcp::Config::fin_wait_2) once it has all. `id` means nothing afterwards.
    pub fn release(&mut self, now: Instant, id: ConnectionId) {
        self.with(now, id.0, |connection, cx| connection.release(cx));
    }

    /// Asks the peer to use a subflow as a backup, or as a regular one again.
    pub fn set_backup(&mut self, now: Instant, id: ConnectionId, subflow: u8, backup: bool) {
        self.with(now, id.0, |connection, cx| connection.set_backup(cx, subflow, backup));
    }

    /// Lets an acknowledgment leave on a subflow: for whoever knows that the peer may have missed one, or forgotten the connection.
    pub fn acknowledge(&mut self, now: Instant, flow: FourTuple) {
        if let Some(Flow::Subflow { index, id }) = self.flows.get(&flow)
            && let Some((key, _)) = self.connections.at_mut(index)
        {
            self.with(now, key, |connection, _| connection.acknowledge(id));
        }
    }

    fn path_event(&mut self, now: Instant, event: PathEvent) {
        self.each_connection(now, |connection, cx| connection.handle_path_event(cx, event));
    }

    fn each_connection(&mut self, now: Instant, mut call: impl FnMut(&mut Connection, &mut Context<'_>)) {
        let keys: Vec<Key> = self.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.with(now, key, &mut call);
        }
    }

    // ---- input

    /// A packet arrived.
    pub fn handle_packet(&mut self, now: Instant, mut packet: Packet) {
        let Some(tuple) = packet.receiver_tuple() else {
            return self.handle_other(now, &packet);
        };
        let ecn = packet.ip.ecn;
        let len_bytes = if self.budgets.are_in_use() { budgets::counted_bytes(&packet) } else { 0 };
        let Transport::Tcp(segment) = &mut packet.transport else { return };
        match self.flows.get(&tuple) {
            Some(Flow::Subflow { index, id }) => {
                let Some((key, entry)) = self.connections.at_mut(index) else { return };
                let mut cx = context!(self, now);
                if len_bytes > 0 {
                    entry.connection.count_received(&mut cx, id, len_bytes);
                }
                entry.connection.handle_segment(&mut cx, id, ecn, segment);
                self.settle(now, key);
                self.enforce_budgets(now);
            }
            Some(Flow::TimeWait { index }) => self.handle_in_time_wait(now, index, tuple, segment),
            None => self.handle_unknown(now, tuple, ecn, segment),
        }
    }

    fn handle_other(&mut self, now: Instant, packet: &Packet) {
        let Transport::Icmp(message) = packet.transport else { return };
        let (polypath_wire::IcmpMessage::PacketTooBig { flow, .. }
        | polypath_wire::IcmpMessage::Unreachable { flow, .. }) = message;
        if let Some(Flow::Subflow { index, id }) = self.flows.get(&flow)
            && let Some((key, _)) = self.connections.at_mut(index)
        {
            self.with(now, key, |connection, cx| connection.handle_icmp(cx, id, &message));
        }
    }

    /// Deadlines passed. Does nothing if it comes early.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(tuple) = self.strangers.poll_ended(now) {
            self.flows.remove(&tuple);
        }
        while let Some(index) = self.timers.poll_expired(now) {
            let Some((key, entry)) = self.connections.at_mut(index) else { continue };
            // The entry fires early when the deadline has moved; `settle` arms it again.
            if entry.connection.poll_timeout().is_some_and(|at| at <= now) {
                self.with(now, key, |connection, cx| connection.handle_timeout(cx));
            } else if let Some(at) = entry.connection.poll_timeout() {
                self.timers.schedule(&mut entry.timer, index, at);
            }
        }
    }

    // ---- output

    /// The next packet to send; call until `None`. Connections take turns.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        if let Some(packet) = self.strangers.poll_transmit() {
            return Some(packet);
        }
        while let Some(index) = self.ready.peek() {
            let Some((key, entry)) = self.connections.at_mut(index) else {
                self.ready.pop();
                continue;
            };
            let mut cx = context!(self, now);
            if let Some(packet) = entry.connection.poll_transmit(&mut cx) {
                if cx.budgets.are_in_use() {
                    entry.connection.count_transmitted(&mut cx, budgets::counted_bytes(&packet));
                }
                self.burst += 1;
                if self.burst >= BURST_PACKETS {
                    self.burst = 0;
                    self.ready.rotate();
                }
                self.enforce_budgets(now);
                return Some(packet);
            }
            self.ready.pop();
            self.burst = 0;
            entry.queued = false;
            if let Some(at) = entry.connection.poll_timeout() {
                self.timers.schedule(&mut entry.timer, index, at);
            }
            self.collect(now, key);
        }
        None
    }

    /// When [`Host::handle_timeout`] is due, once [`Host::poll_transmit`] has returned `None`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.timers.next_deadline(), self.strangers.poll_timeout()].into_iter().flatten().min()
    }

    /// The next thing that applications should know.
    #[must_use]
    pub fn poll(&mut self) -> Option<(ConnectionId, Event)> {
        self.events.pop_front()
    }

    // ---- keeping things in step

    /// Calls into a connection and settles what follows.
    fn with(&mut self, now: Instant, key: Key, call: impl FnOnce(&mut Connection, &mut Context<'_>)) {
        let Some(entry) = self.connections.get_mut(key) else { return };
        let mut cx = context!(self, now);
        call(&mut entry.connection, &mut cx);
        self.settle(now, key);
    }

    /// After a connection was touched: it may transmit, and may have told us something.
    fn settle(&mut self, now: Instant, key: Key) {
        if let Some(entry) = self.connections.get_mut(key) {
            self.ready.mark(key.index, &mut entry.queued);
        }
        self.collect(now, key);
    }

    /// Takes a connection's events and requests, and forgets it if it is done.
    fn collect(&mut self, now: Instant, key: Key) {
        let Some(entry) = self.connections.get_mut(key) else { return };
        let mut rare = false;
        while let Some(event) = entry.connection.poll_event() {
            rare |= !matches!(event, Event::Readable | Event::Writable);
            let mut event = event;
            if let Event::Accepted { listener, .. } = &mut event
                && let Some(id) = entry.half_open.take()
            {
                *listener = Some(id);
                self.listeners.leave(id, entry.remote);
            }
            self.events.push_back((ConnectionId(key), event));
        }
        if rare {
            entry.connection.trim();
        }
        if entry.connection.has_requests() {
            let requests = entry.connection.take_requests();
            for request in requests {
                self.serve(now, key, request);
            }
        }
        if self.connections.get(key).is_some_and(|entry| entry.connection.is_done()) {
            self.forget(key);
        }
    }

    fn serve(&mut self, now: Instant, key: Key, request: Request) {
        let is_over = self.connections.get(key).is_none_or(|entry| entry.connection.is_over());
        match request {
            // Asked for by the same event that ended the connection.
            Request::OpenSubflow { .. } | Request::Race { .. } if is_over => {}
            Request::OpenSubflow { local, local_id, remote, backup } => {
                self.open_subflow(now, key, local, local_id, remote, backup);
            }
            Request::Race { initial } => self.race(now, key, initial, &[]),
            Request::AskInVersion0 { remote } => self.old_peers.remember(now, remote),
            Request::Remember { tuple, quality } => {
                self.path_memory.remember(now, tuple.local.addr, tuple.remote.addr, quality);
            }
            Request::RemoveFlow { tuple } => self.remove_flow(key, &tuple),
            Request::TimeWait { tuple, numbers } => self.keep_time_wait(now, key, tuple, numbers),
            Request::ForgetToken => {
                if let Some(entry) = self.connections.get(key) {
                    self.tokens.remove(entry.connection.local_token(), key.index);
                }
            }
        }
    }

    /// The flow leads to this connection no more.
    fn remove_flow(&mut self, key: Key, tuple: &FourTuple) {
        if matches!(self.flows.get(tuple), Some(Flow::Subflow { index, .. }) if index == key.index) {
            self.flows.remove(tuple);
        }
    }

    fn forget(&mut self, key: Key) {
        let Some(mut entry) = self.connections.remove(key) else { return };
        entry.connection.release_memory(&mut self.memory);
        self.timers.cancel(&mut entry.timer);
        self.tokens.remove(entry.connection.local_token(), key.index);
        if let Some(listener) = entry.half_open.take() {
            self.listeners.leave(listener, entry.remote);
        }
        // Its place in the ready queue, if it has one, finds nothing, or a successor that does no harm to ask.
    }
}
