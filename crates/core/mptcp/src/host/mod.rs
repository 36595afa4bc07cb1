//! A Multipath TCP host: what it adds to [`HostCore`](polypath_tcp::HostCore): joins, tokens, endpoints and the memory of paths.

mod accept;
mod attached;
mod budgets;
mod ending;
mod endpoints;
mod error;
mod getters;
mod hosted;
mod join_cookie;
mod old_peers;
mod open;
mod options;
mod path_memory;
mod rivals;
mod stateless;
mod stream_host;
mod syn;
#[cfg(test)]
mod tests;
mod token_table;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use polypath_tcp::{
    ConnectionId, Handled, HostCore, HostSecrets, ListenConfig, ListenError, ListenerId, Listeners,
    ReplyLimit, SendError, StrangerLimits, Strangers, SynCookies,
};
use polypath_units::Instant;
use polypath_wire::{Endpoint, FourTuple, Packet, Payload, Transport};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::carried::CarriedByAddress;
use crate::config::{ConnectionConfig, HostConfig};
use crate::connection::{Connection, ConnectionSetup, Context, Request};
use crate::event::Event;
use crate::identifiers::SubflowId;
use crate::path_manager::PathEvent;
use crate::subflow::Stage;

use attached::Attached;
pub use attached::Attachment;
pub(crate) use budgets::Budgets;
pub use error::ConnectError;
use hosted::Resources;
use join_cookie::JoinCookies;
pub(crate) use join_cookie::LIFE as STATELESS_JOIN_LIFE;
use old_peers::OldPeers;
use path_memory::PathMemory;
pub(crate) use path_memory::PathQuality;
pub(crate) use rivals::Rivals;
use token_table::TokenTable;

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
///
/// ```
/// # mod polypath { pub use {polypath_mptcp as mptcp, polypath_units as units, polypath_wire as wire}; }
/// use polypath::mptcp::{Event, Host, HostConfig};
/// use polypath::units::Instant;
/// use polypath::wire::Endpoint;
///
/// let (now, at) = (Instant::ZERO, Endpoint::new([10, 0, 0, 2].into(), 80));
/// let mut server = Host::new(HostConfig::default(), 1);
/// server.listen(at).unwrap();
/// let mut client = Host::new(HostConfig::default(), 2);
/// let id = client.connect(now, Endpoint::new([10, 0, 0, 1].into(), 0), at, None).unwrap();
/// // A driver carries packets; here they take no time.
/// for _ in 0..3 {
///     while let Some(packet) = client.poll_transmit(now) {
///         server.handle_packet(now, packet);
///     }
///     while let Some(packet) = server.poll_transmit(now) {
///         client.handle_packet(now, packet);
///     }
/// }
/// assert!(std::iter::from_fn(|| client.poll()).any(|event| event == (id, Event::Connected)));
/// let is_accepted = |event| matches!(event, (_, Event::Accepted { local, .. }) if local == at);
/// assert!(std::iter::from_fn(|| server.poll()).any(is_accepted));
/// ```
#[derive(Debug)]
pub struct Host {
    core: HostCore<Connection>,
    resources: Resources,
    events: VecDeque<(ConnectionId, Event)>,
    random: ChaCha12Rng,
    joins: JoinCookies,
    join_hmac_limit: ReplyLimit,
    listener_configs: BTreeMap<ListenerId, Arc<ConnectionConfig>>,
    tokens: TokenTable,
    path_memory: PathMemory,
    old_peers: OldPeers,
    /// By subflows that are gone.
    ended: CarriedByAddress,
    /// Connections that ended before their peers had everything.
    cut_short: u64,
    attached: Attached,
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
        // The order in which secrets are drawn.
        let joins = JoinCookies::new(&mut stateless);
        let strangers = Strangers::new(cookies, limits, &mut stateless);
        let join_hmac_limit = ReplyLimit::new(config.join_hmacs_per_second, &mut stateless);
        let listeners = Listeners::new(&mut stateless);
        Self {
            core: HostCore::new(secrets, strangers, listeners),
            resources: Resources::new(config),
            events: VecDeque::new(),
            random,
            joins,
            join_hmac_limit,
            listener_configs: BTreeMap::new(),
            tokens: TokenTable::default(),
            path_memory: PathMemory::default(),
            old_peers: OldPeers::default(),
            ended: CarriedByAddress::default(),
            cut_short: 0,
            attached: Attached::default(),
        }
    }

    // ---- commands

    /// Listens; an unspecified address stands for all. Connections come as [`Event::Accepted`], with the host's settings.
    pub fn listen(&mut self, local: Endpoint) -> Result<ListenerId, ListenError> {
        let config = self.listen_config();
        self.core.listeners_mut().insert(local, config)
    }

    /// Listens at every address and port where nothing else does: for hosts that terminate the connections of others.
    pub fn listen_everywhere(&mut self) -> Result<ListenerId, ListenError> {
        let config = self.listen_config();
        self.core.listeners_mut().insert_catch_all(config)
    }

    fn listen_config(&self) -> ListenConfig {
        let HostConfig { backlog, backlog_per_source, .. } = self.resources.config;
        ListenConfig { backlog, backlog_per_source }
    }

    /// Gives the connections that a listener accepts from now on settings of their own.
    pub fn configure_listener(&mut self, id: ListenerId, config: Arc<ConnectionConfig>) {
        if self.core.listeners().get(id).is_some() {
            self.listener_configs.insert(id, config);
        }
    }

    /// Listens no more. Connections stay.
    pub fn close_listener(&mut self, id: ListenerId) {
        self.core.listeners_mut().remove(id);
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
        if self.core.len() >= self.resources.config.max_connections {
            return Err(ConnectError::TooMany(self.resources.config.max_connections));
        }
        let config = config.unwrap_or_else(|| self.resources.config.connection.clone());
        let may_choose = config.race && config.mptcp && local.port == 0;
        let advice = if may_choose { self.advice(now, local.addr, remote.addr) } else { None };
        let local = Endpoint::new(advice.as_ref().map_or(local.addr, |advice| advice.best), local.port);
        let tuple = self.local_tuple(local, remote)?;
        let stage = if config.mptcp { Stage::CapableSyn } else { Stage::Plain };
        let version = self.old_peers.version_for(now, remote.addr, config.version);
        let local_key = self.fresh_key(version);
        let setup = self.tcp_setup(now, tuple, &config, None);
        let tcp = polypath_tcp::Connection::connect(now, setup);
        self.resources.counters.mp_capable_syn_tx += u64::from(config.mptcp);
        let connection = ConnectionSetup { config, is_client: true, version, local_key, tcp, stage };
        let id = self.insert(now, connection, None);
        if may_choose {
            let waiting = advice.as_ref().map_or(&[][..], |advice| &advice.worse);
            self.race(now, id, tuple, Rivals::Regular, waiting);
        }
        if let Some(advice) = advice.filter(|advice| !advice.worse.is_empty())
            && let Some(connection) = self.core.get_mut(id)
        {
            connection.race_at(now + advice.patience, Rivals::Regular);
        }
        Ok(id)
    }

    /// Queues data; returns how many bytes the send buffer took. [`Event::Writable`] follows when there is room again.
    pub fn send(&mut self, id: ConnectionId, data: Bytes) -> Result<usize, SendError> {
        let connection = self.core.get_mut(id).ok_or(SendError::UnknownConnection)?;
        if connection.is_write_closed() {
            return Err(SendError::Closed);
        }
        let taken = connection.send(data);
        if taken > 0 {
            self.core.mark_ready(id);
        }
        Ok(taken)
    }

    /// Asks for [`Event::Writable`] when acknowledgments have made room, as a [`Host::send`] that is cut short does.
    pub fn request_writable(&mut self, id: ConnectionId) {
        if let Some(connection) = self.core.get_mut(id) {
            connection.request_writable();
        }
    }

    /// The next data in order, without copying it; `None` until [`Event::Readable`].
    pub fn recv(&mut self, id: ConnectionId) -> Option<Payload> {
        let payload = self.core.get_mut(id)?.recv()?;
        self.core.mark_ready(id);
        Some(payload)
    }

    /// Ends this side's stream after what is queued.
    pub fn shutdown(&mut self, now: Instant, id: ConnectionId) {
        self.with(now, id, |connection, cx| connection.shutdown(cx));
    }

    /// Ends the connection at once: MP_FASTCLOSE, or RST after a fallback.
    pub fn abort(&mut self, now: Instant, id: ConnectionId) {
        self.with(now, id, |connection, _| connection.abort());
    }

    /// Lets go: the host forgets the connection when both ends are done. Until then it is closed in order, however long the peer
    /// takes, or aborted if there is unread data. It is given up when the peer acknowledges nothing more for
    /// [`orphan_timeout`](polypath_tcp::Config::orphan_timeout), or does not end for
    /// [`fin_wait_2`](polypath_tcp::Config::fin_wait_2) once it has all. `id` means nothing afterwards.
    pub fn release(&mut self, now: Instant, id: ConnectionId) {
        self.with(now, id, |connection, cx| connection.release(cx));
    }

    /// Keeps something with a connection, in place of what was kept with it before, until the host forgets the connection: that is not before
    /// the peer has all that was sent, though the application let go long ago. A connection that is forgotten keeps nothing.
    pub fn attach(&mut self, id: ConnectionId, what: Attachment) {
        if self.core.get(id).is_some() {
            self.attached.insert(id, what);
        }
    }

    /// Asks the peer to use a subflow as a backup, or as a regular one again.
    pub fn set_backup(&mut self, now: Instant, id: ConnectionId, subflow: SubflowId, backup: bool) {
        self.with(now, id, |connection, cx| connection.set_backup(cx, subflow, backup));
    }

    /// Lets an acknowledgment leave on a subflow: for whoever knows that the peer may have missed one, or forgotten the connection.
    pub fn acknowledge(&mut self, now: Instant, flow: FourTuple) {
        if let Some((id, subflow)) = self.core.find(&flow) {
            self.with(now, id, |connection, _| connection.acknowledge(subflow));
        }
    }

    fn path_event(&mut self, now: Instant, event: PathEvent) {
        self.each_connection(now, |connection, cx| connection.handle_path_event(cx, event));
    }

    fn each_connection(&mut self, now: Instant, mut call: impl FnMut(&mut Connection, &mut Context<'_>)) {
        let ids: Vec<ConnectionId> = self.core.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.with(now, id, &mut call);
        }
    }

    // ---- input

    /// A packet arrived.
    pub fn handle_packet(&mut self, now: Instant, mut packet: Packet) {
        match self.core.handle_packet(now, &mut self.resources, &mut packet) {
            Handled::ByConnection(id) => {
                self.collect(now, id);
                self.enforce_budgets(now);
            }
            Handled::ByNobody { flow, isn_after } => {
                let Transport::Tcp(segment) = &mut packet.transport else { return };
                self.handle_unknown(now, flow, segment, isn_after);
            }
            Handled::Entirely => {}
        }
    }

    /// Deadlines passed. Does nothing if it comes early.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.core.end_time_waits(now);
        while let Some(id) = self.core.poll_expired(now, &mut self.resources) {
            self.settle(now, id);
        }
    }

    // ---- output

    /// The next packet to send; call until `None`. Connections take turns.
    ///
    /// It may be an aggregate of several segments, as network cards split them
    /// ([`Segment::segment_size`](polypath_wire::Segment::segment_size)). [`Config::max_aggregate_bytes`](polypath_tcp::Config::max_aggregate_bytes) has how large it may be.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        if let Some(packet) = self.core.poll_reply() {
            return Some(packet);
        }
        while self.core.has_ready() {
            let packet = self.core.poll_transmit(now, &mut self.resources);
            if packet.is_some() {
                self.enforce_budgets(now);
                return packet;
            }
            if let Some(id) = self.core.end_turn() {
                self.core.arm(id);
                self.collect(now, id);
            }
        }
        None
    }

    /// When [`Host::handle_timeout`] is due, once [`Host::poll_transmit`] has returned `None`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.core.poll_timeout()
    }

    /// The next thing that applications should know.
    #[must_use]
    pub fn poll(&mut self) -> Option<(ConnectionId, Event)> {
        self.events.pop_front()
    }

    // ---- keeping things in step

    /// Calls into a connection and settles what follows.
    fn with(&mut self, now: Instant, id: ConnectionId, call: impl FnOnce(&mut Connection, &mut Context<'_>)) {
        let called = self.core.call(now, &mut self.resources, id, |connection, lent| {
            call(connection, &mut Context::from(lent));
        });
        if called.is_some() {
            self.settle(now, id);
        }
    }

    /// After a connection was touched: it may transmit, and may have told us something.
    fn settle(&mut self, now: Instant, id: ConnectionId) {
        self.core.mark_ready(id);
        self.collect(now, id);
    }

    /// Takes a connection's events and requests, and forgets it if it is done.
    fn collect(&mut self, now: Instant, id: ConnectionId) {
        let mut rare = false;
        let connection = loop {
            let Some(connection) = self.core.get_mut(id) else { return };
            let Some(mut event) = connection.poll_event() else { break connection };
            rare |= !matches!(event, Event::Readable | Event::Writable);
            if let Event::Accepted { listener, .. } = &mut event {
                *listener = self.core.end_half_open(id);
            }
            self.events.push_back((id, event));
        };
        if rare {
            connection.trim();
        }
        let mut is_done = connection.is_done();
        if connection.has_requests() {
            for request in connection.take_requests() {
                self.serve(now, id, request);
            }
            is_done = self.core.get(id).is_some_and(Connection::is_done);
        }
        if is_done {
            self.forget(id);
        }
    }

    fn serve(&mut self, now: Instant, id: ConnectionId, request: Request) {
        let is_over = self.core.get(id).is_none_or(Connection::is_over);
        match request {
            // Asked for by the same event that ended the connection.
            Request::OpenSubflow { .. } | Request::Race { .. } if is_over => {}
            Request::OpenSubflow { local, local_id, remote, backup } => {
                self.open_subflow(now, id, local, local_id, remote, backup);
            }
            Request::Race { initial, rivals } => self.race(now, id, initial, rivals, &[]),
            Request::AskInVersion0 { remote } => self.old_peers.remember(now, remote),
            Request::Remember { tuple, quality } => {
                self.path_memory.remember(now, tuple.local.addr, tuple.remote.addr, quality);
            }
            Request::RemoveFlow { tuple, carried } => {
                self.ended.add(tuple.local.addr, carried);
                self.core.remove_flow(id, &tuple);
            }
            Request::TimeWait { tuple, numbers } => {
                let ends_at = now + self.resources.config.connection.tcp.time_wait;
                self.core.enter_time_wait(id, tuple, numbers, ends_at);
            }
            Request::ForgetToken => {
                if let Some(connection) = self.core.get(id) {
                    self.tokens.remove(connection.local_token(), id.index() as u32);
                }
            }
        }
    }

    fn forget(&mut self, id: ConnectionId) {
        let Some(mut connection) = self.core.remove(id) else { return };
        connection.carried().for_each(|(addr, carried)| self.ended.add(addr, carried));
        self.cut_short += u64::from(connection.is_cut_short());
        connection.release_memory(&mut self.resources.memory);
        self.attached.remove(id);
        self.tokens.remove(connection.local_token(), id.index() as u32);
    }
}
