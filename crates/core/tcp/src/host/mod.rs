//! A plain TCP host: many connections behind one pair of packet queues.

mod config;
mod counters;
mod event;
mod input;
mod lifecycle;
mod reset;
mod secrets;
mod strangers;
mod syn_cookie;
#[cfg(test)]
mod tests;
mod time_wait;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::fmt;

use bytes::Bytes;
use polypath_congestion as congestion;
use polypath_units::Instant;
use polypath_wire::{Endpoint, FourTuple, Packet, Payload, SeqNumber, Transport};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use crate::flow_table::FlowTable;
use crate::listener::{ListenConfig, ListenError, ListenerId, Listeners};
use crate::ready_queue::ReadyQueue;
use crate::slab::{Key, Slab};
use crate::timer_wheel::{TimerHandle, TimerWheel};
use crate::{Connection, Info, Setup, State};

pub use config::HostConfig;
pub use counters::Counters;
pub use event::{ConnectError, ConnectionId, HostEvent, SendError};
pub use reset::{ReplyLimit, reset_in_reply};
pub use secrets::{HostSecrets, TupleHash};
pub use strangers::{StrangerCounts, StrangerLimits, Strangers};
pub use syn_cookie::{SynCookies, SynOptions, echo_age};
pub use time_wait::TimeWaitNumbers;

/// Most data that one call to [`Host::send`] takes.
const MAX_SEND_BYTES: u64 = 1 << 30;

/// A TCP host without Multipath TCP: it finds the connection of each packet, owns the timers, listens, resets
/// what it does not know and keeps TIME-WAIT. Sans-IO: it has no clock and no socket.
///
/// # How to drive it
/// There are three kinds of call. *Input*: [`Host::handle_packet`], [`Host::handle_timeout`]. *Application*:
/// [`Host::listen`], [`Host::connect`], [`Host::send`], [`Host::recv`], [`Host::shutdown`], [`Host::abort`],
/// [`Host::release`]. *Output*: [`Host::poll`], [`Host::poll_transmit`], [`Host::poll_timeout`].
///
/// After any input or application call, take events from `poll` and packets from `poll_transmit` until both return
/// `None`; only then does `poll_timeout` tell when to call `handle_timeout`. A driver may take fewer packets, if it
/// comes back for the rest without waiting for a timeout. Time never goes back. A `handle_timeout` that comes
/// early does nothing.
///
/// # Whose a connection is
/// A connection is the application's from `connect` or [`HostEvent::Accepted`] until `release`. Before and
/// after, the host frees it as soon as TCP is done with it: half-open connections that fail and released ones
/// that close leave nothing.
///
/// # Cost
/// A packet costs one look-up of its flow and the work of one connection; neither grows with the number of
/// connections.
pub struct Host {
    config: HostConfig,
    secrets: HostSecrets,
    strangers: Strangers,
    flows: FlowTable<FlowRef>,
    connections: Slab<Box<Entry>>,
    listeners: Listeners,
    /// Of connections, by their index.
    timers: TimerWheel<u32>,
    ready: ReadyQueue,
    events: VecDeque<(ConnectionId, HostEvent)>,
    half_open: usize,
    /// Of connections that are gone, and all that is counted per host and not by [`Strangers`].
    counters: Counters,
}

/// What a flow belongs to: the index of a connection or of a TIME-WAIT record, whose top bit tells them apart. Flows
/// go before the entry they refer to does, so no generation is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FlowRef(u32);

const TIME_WAIT_BIT: u32 = 1 << 31;

enum Referred {
    Connection(u32),
    TimeWait(u32),
}

impl FlowRef {
    fn connection(key: Key) -> Self {
        Self(key.index)
    }

    fn time_wait(index: u32) -> Self {
        Self(index | TIME_WAIT_BIT)
    }

    fn referred(self) -> Referred {
        if self.0 & TIME_WAIT_BIT == 0 {
            Referred::Connection(self.0)
        } else {
            Referred::TimeWait(self.0 & !TIME_WAIT_BIT)
        }
    }
}

/// A connection and what the host keeps with it.
struct Entry {
    tcp: Connection<()>,
    tuple: FourTuple,
    timer: TimerHandle,
    /// It is in the ready queue.
    queued: bool,
    /// Set while the handshake of a connection from outside is under way.
    half_open_of: Option<ListenerId>,
    /// The application knows it and has not released it.
    held: bool,
    /// Flow and timer are there; they go when TCP is done, the entry when the application is too.
    bound: bool,
    established: bool,
    closed: bool,
    finished: bool,
    wants_writable: bool,
    readable_queued: bool,
    /// When an orphan in FIN-WAIT-2 is given up.
    orphan_ends_at: Option<Instant>,
}

impl Entry {
    fn add_to(&self, counters: &mut Counters) {
        let info = self.tcp.info();
        counters.retrans_segs += info.retransmits;
        counters.tcp_timeouts += info.timeouts;
    }

    /// Bytes that the send buffer can take.
    fn send_space_bytes(&self) -> u64 {
        self.tcp
            .send_buffer_bytes()
            .saturating_sub(self.tcp.enqueued_offset().saturating_sub(self.tcp.acked_offset()))
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("connections", &self.connections.len())
            .field("half_open", &self.half_open)
            .field("time_waits", &self.strangers.time_wait_count())
            .field("listeners", &self.listeners.len())
            .field("timers", &self.timers.len())
            .finish_non_exhaustive()
    }
}

impl Host {
    /// A host without connections. The same seed and the same calls give the same packets; outside of a
    /// simulator the seed must be secret ([`HostSecrets`]).
    #[must_use]
    pub fn new(config: HostConfig, seed: u64) -> Self {
        let secrets = HostSecrets::new(seed);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(1);
        let limits = StrangerLimits {
            max_time_wait: config.max_time_wait,
            time_wait: config.connection.time_wait,
            max_replies: config.max_replies,
            resets_per_second: config.resets_per_second,
            challenge_acks_per_second: config.challenge_acks_per_second,
        };
        let cookies = SynCookies::new(&mut random);
        Self {
            strangers: Strangers::new(cookies, limits, &mut random),
            flows: FlowTable::new(secrets.flow_table_seed()),
            config,
            secrets,
            connections: Slab::new(),
            listeners: Listeners::new(&mut random),
            timers: TimerWheel::new(),
            ready: ReadyQueue::new(),
            events: VecDeque::new(),
            half_open: 0,
            counters: Counters::default(),
        }
    }

    /// Listens; see [`Listeners::insert`] for what an unspecified address means.
    pub fn listen(&mut self, local: Endpoint, config: ListenConfig) -> Result<ListenerId, ListenError> {
        self.listeners.insert(local, config)
    }

    /// Listens at every address and port that no other listener has ([`Listeners::insert_catch_all`]).
    pub fn listen_everywhere(&mut self, config: ListenConfig) -> Result<ListenerId, ListenError> {
        self.listeners.insert_catch_all(config)
    }

    /// Stops listening. Its half-open connections are reset; accepted ones go on. O(connections).
    pub fn unlisten(&mut self, id: ListenerId) {
        if self.listeners.remove(id).is_none() {
            return;
        }
        let half_open: alloc::vec::Vec<Key> = self
            .connections
            .iter()
            .filter(|(_, entry)| entry.half_open_of == Some(id))
            .map(|(key, _)| key)
            .collect();
        for key in half_open {
            if let Some(entry) = self.connections.get_mut(key) {
                entry.tcp.abort();
                self.ready.mark(key.index, &mut entry.queued);
            }
        }
    }

    /// Opens a connection. A local port of zero takes an ephemeral one. The outcome comes as an event.
    pub fn connect(
        &mut self,
        now: Instant,
        mut local: Endpoint,
        remote: Endpoint,
    ) -> Result<ConnectionId, ConnectError> {
        if local.addr.is_unspecified()
            || remote.addr.is_unspecified()
            || local.addr.is_ipv4() != remote.addr.is_ipv4()
            || remote.port == 0
        {
            return Err(ConnectError::InvalidAddress);
        }
        if self.connections.len() >= self.config.max_connections {
            return Err(ConnectError::TooManyConnections);
        }
        if local.port == 0 {
            let Self { secrets, flows, listeners, .. } = self;
            let is_free = |port| {
                let local = Endpoint::new(local.addr, port);
                !flows.contains(&FourTuple { local, remote }) && listeners.find(local).is_none()
            };
            local.port = secrets
                .ephemeral_port(local.addr, remote, &self.config.ephemeral_ports, is_free)
                .ok_or(ConnectError::NoFreePort)?;
        }
        let tuple = FourTuple { local, remote };
        if self.flows.contains(&tuple) {
            return Err(ConnectError::AddressInUse);
        }
        let tcp = Connection::connect(now, self.setup(tuple, self.secrets.isn(now, &tuple)));
        self.counters.active_opens += 1;
        Ok(ConnectionId(self.add(tuple, tcp, None)))
    }

    fn setup(&self, tuple: FourTuple, isn: SeqNumber) -> Setup {
        let config = &self.config.connection;
        let ip_header_bytes = if tuple.local.addr.is_ipv4() { 20 } else { 40 };
        Setup {
            tuple,
            isn,
            timestamp_offset: self.secrets.timestamp_offset(&tuple),
            controller: self.config.congestion.build_for(&congestion::Config {
                mss_bytes: u32::from(config.mtu_bytes.saturating_sub(ip_header_bytes + 20)),
                initial_window_packets: config.initial_window_packets,
                min_ssthresh_packets: config.min_ssthresh_packets,
                ..congestion::Config::default()
            }),
            config: config.clone(),
        }
    }

    /// Binds a new connection to its flow. It is the application's unless it is half-open from outside.
    fn add(&mut self, tuple: FourTuple, tcp: Connection<()>, half_open_of: Option<ListenerId>) -> Key {
        let mut queued = false;
        let key = self.connections.insert_with(|key| {
            self.ready.mark(key.index, &mut queued);
            Box::new(Entry {
                tcp,
                tuple,
                timer: TimerHandle::default(),
                queued,
                half_open_of,
                held: half_open_of.is_none(),
                bound: true,
                established: false,
                closed: false,
                finished: false,
                wants_writable: false,
                readable_queued: false,
                orphan_ends_at: None,
            })
        });
        self.flows.insert(tuple, FlowRef::connection(key));
        key
    }

    /// The next packet to put on the wire. Connections take turns, a packet (or aggregate) each.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        if let Some(packet) = self.strangers.poll_transmit() {
            self.count_sent(&packet);
            return Some(packet);
        }
        while let Some(index) = self.ready.peek() {
            let Some((key, entry)) = self.connections.at_mut(index) else {
                self.ready.pop();
                continue;
            };
            let packet = entry.tcp.poll_transmit(now, &mut ());
            if let Some(packet) = packet {
                self.ready.rotate();
                self.count_sent(&packet);
                return Some(packet);
            }
            self.ready.pop();
            entry.queued = false;
            self.settle(now, key);
        }
        None
    }

    /// The next event.
    #[must_use]
    pub fn poll(&mut self) -> Option<(ConnectionId, HostEvent)> {
        while let Some((id, event)) = self.events.pop_front() {
            // Events of a connection that was released meanwhile are nobody's.
            if let Some(entry) = self.connections.get_mut(id.0).filter(|entry| entry.held) {
                if event == HostEvent::Readable {
                    entry.readable_queued = false;
                }
                return Some((id, event));
            }
        }
        None
    }

    /// When to call [`Host::handle_timeout`], provided that [`Host::poll_transmit`] has nothing to send.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.timers.next_deadline(), self.strangers.poll_timeout()].into_iter().flatten().min()
    }

    /// Lets timers expire.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(tuple) = self.strangers.poll_ended(now) {
            self.flows.remove(&tuple);
        }
        while let Some(index) = self.timers.poll_expired(now) {
            self.handle_connection_timeout(now, index);
        }
    }

    /// Queues data; returns how many bytes the send buffer had space for. If fewer than all,
    /// [`HostEvent::Writable`] tells when to go on.
    pub fn send(&mut self, _now: Instant, id: ConnectionId, mut data: Bytes) -> Result<usize, SendError> {
        let entry = held_mut(&mut self.connections, id).ok_or(SendError::UnknownConnection)?;
        if entry.closed || entry.finished {
            return Err(SendError::Closed);
        }
        let space = entry.send_space_bytes();
        let len = data.len().min(space.min(MAX_SEND_BYTES) as usize);
        entry.wants_writable = len < data.len();
        if len > 0 {
            data.truncate(len);
            entry.tcp.enqueue(Payload::from(data), ());
            self.ready.mark(id.0.index, &mut entry.queued);
        }
        Ok(len)
    }

    /// The data that has arrived in order, if any. Reading opens the receive window.
    pub fn recv(&mut self, now: Instant, id: ConnectionId) -> Option<Payload> {
        let entry = held_mut(&mut self.connections, id)?;
        let payload = entry.tcp.read()?;
        if !entry.closed {
            entry.tcp.window_may_have_opened(now, &());
            self.ready.mark(id.0.index, &mut entry.queued);
        }
        Some(payload)
    }

    /// The application sends no more: a FIN follows the data that is queued. Receiving goes on.
    pub fn shutdown(&mut self, id: ConnectionId) {
        if let Some(entry) =
            held_mut(&mut self.connections, id).filter(|entry| !entry.finished && !entry.closed)
        {
            entry.finished = true;
            entry.tcp.finish();
            self.ready.mark(id.0.index, &mut entry.queued);
        }
    }

    /// Resets the connection. It is still the application's, until it is released.
    pub fn abort(&mut self, id: ConnectionId) {
        if let Some(entry) = held_mut(&mut self.connections, id).filter(|entry| !entry.closed) {
            entry.finished = true;
            entry.tcp.abort();
            self.ready.mark(id.0.index, &mut entry.queued);
        }
    }

    /// The application lets go of the connection, and its id means nothing any more. What it queued is still
    /// delivered, then the connection closes; with data unread it is reset instead (RFC 2525 §2.17), and so
    /// it is if more arrives, or if nothing more is acknowledged for [`Config::orphan_timeout`].
    ///
    /// [`Config::orphan_timeout`]: crate::Config::orphan_timeout
    pub fn release(&mut self, id: ConnectionId) {
        let Some(entry) = held_mut(&mut self.connections, id) else { return };
        entry.held = false;
        if entry.tcp.readable_bytes() > 0 && !entry.closed {
            entry.tcp.abort();
            entry.closed = true;
            self.counters.tcp_abort_on_close += 1;
        } else if entry.tcp.state() == State::SynSent && entry.tcp.enqueued_offset() == 0 {
            // Nobody waits for it to open (RFC 9293 §3.10.4).
            entry.tcp.abort();
        } else if !entry.finished {
            entry.finished = true;
            entry.tcp.finish();
        }
        if entry.bound {
            self.ready.mark(id.0.index, &mut entry.queued);
        } else {
            self.forget(id.0);
        }
    }

    /// The connection in numbers; `None` once it is released.
    #[must_use]
    pub fn info(&self, id: ConnectionId) -> Option<Info> {
        Some(self.held(id)?.tcp.info())
    }

    /// Its addresses and ports; `None` once it is released.
    #[must_use]
    pub fn tuple(&self, id: ConnectionId) -> Option<FourTuple> {
        Some(self.held(id)?.tuple)
    }

    /// Bytes that [`Host::send`] would take now; zero if the connection is released or closed for sending.
    #[must_use]
    pub fn send_space_bytes(&self, id: ConnectionId) -> u64 {
        self.held(id)
            .filter(|entry| !entry.closed && !entry.finished)
            .map_or(0, |entry| entry.send_space_bytes())
    }

    /// All counters as of now. O(connections).
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        for (_, entry) in self.connections.iter() {
            entry.add_to(&mut counters);
            let is_up = matches!(entry.tcp.state(), State::Established | State::CloseWait);
            counters.curr_estab += u64::from(is_up && entry.bound);
        }
        // The kernel counts a retransmission as such and not as sent.
        counters.out_segs = counters.out_segs.saturating_sub(counters.retrans_segs);
        counters.add_strangers(self.strangers.counts());
        counters
    }

    /// How much state there is.
    #[must_use]
    pub fn population(&self) -> Population {
        Population {
            connections: self.connections.len(),
            half_open: self.half_open,
            time_waits: self.strangers.time_wait_count(),
            flows: self.flows.len(),
            timers: self.timers.len() + self.strangers.timer_count(),
            listeners: self.listeners.len(),
        }
    }

    fn held(&self, id: ConnectionId) -> Option<&Entry> {
        self.connections.get(id.0).filter(|entry| entry.held).map(|entry| &**entry)
    }
}

/// The application's entry of that id. A function of the slab, so that the rest of the host can be used
/// beside it.
fn held_mut(connections: &mut Slab<Box<Entry>>, id: ConnectionId) -> Option<&mut Entry> {
    connections.get_mut(id.0).filter(|entry| entry.held).map(|entry| &mut **entry)
}

/// How much state a [`Host`] has; everything is zero when all connections are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// Connections, half-open ones and those included that have ended and are not released.
    pub connections: usize,
    /// Connections from outside whose handshake is under way.
    pub half_open: usize,
    /// TIME-WAIT records.
    pub time_waits: usize,
    /// Entries of the flow table.
    pub flows: usize,
    /// Timers of connections and of TIME-WAIT records.
    pub timers: usize,
    /// Listeners.
    pub listeners: usize,
}
