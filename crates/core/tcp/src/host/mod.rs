//! A plain TCP host, and what it has in common with a Multipath TCP host: [`HostCore`].

mod config;
mod connection_id;
mod counters;
mod event;
mod flow_index;
mod host_core;
mod hosted;
mod input;
mod lifecycle;
mod plain;
mod population;
mod reset;
mod secrets;
mod strangers;
mod stream_host;
mod syn_cookie;
#[cfg(test)]
mod tests;
mod time_wait;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;
use polypath_units::Instant;
use polypath_wire::{Endpoint, FourTuple, Packet, Payload, SeqNumber};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use crate::listener::{ListenConfig, ListenError, ListenerId, Listeners};
use crate::{Connection, ConnectionOption, Info, Setup};

pub use config::HostConfig;
pub use connection_id::ConnectionId;
pub use counters::Counters;
pub use event::{ConnectError, HostEvent, SendError};
pub use host_core::HostCore;
pub use hosted::{Call, Handled, Hosted};
use plain::PlainConnection;
pub use population::Population;
pub use reset::{ReplyLimit, reset_in_reply};
pub use secrets::{HostSecrets, TupleHash};
pub use strangers::{StrangerCounts, StrangerLimits, Strangers};
pub use stream_host::StreamHost;
pub use syn_cookie::{SynCookies, SynOptions, echo_age};
pub use time_wait::TimeWaitNumbers;

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
///
/// # Example
/// ```
/// # mod polypath { pub use {polypath_tcp as tcp, polypath_units as units, polypath_wire as wire}; }
/// use polypath::tcp::{Host, HostConfig, HostEvent, ListenConfig};
/// use polypath::units::Instant;
/// use polypath::wire::Endpoint;
///
/// let (now, at) = (Instant::ZERO, Endpoint::new([10, 0, 0, 2].into(), 80));
/// let mut server = Host::new(HostConfig::default(), 1);
/// server.listen(at, ListenConfig::default()).unwrap();
/// let mut client = Host::new(HostConfig::default(), 2);
/// let id = client.connect(now, Endpoint::new([10, 0, 0, 1].into(), 0), at).unwrap();
/// for _ in 0..3 {
///     while let Some(packet) = client.poll_transmit(now) {
///         server.handle_packet(now, packet);
///     }
///     while let Some(packet) = server.poll_transmit(now) {
///         client.handle_packet(now, packet);
///     }
/// }
/// assert_eq!(client.poll(), Some((id, HostEvent::Connected)));
/// ```
#[derive(Debug)]
pub struct Host {
    config: HostConfig,
    core: HostCore<PlainConnection>,
    events: VecDeque<(ConnectionId, HostEvent)>,
    /// Of connections that are gone, and all that is counted per host and not by [`Strangers`].
    counters: Counters,
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
        let strangers = Strangers::new(cookies, limits, &mut random);
        Self {
            config,
            core: HostCore::new(secrets, strangers, Listeners::new(&mut random)),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Listens; see [`Listeners::insert`] for what an unspecified address means.
    pub fn listen(&mut self, local: Endpoint, config: ListenConfig) -> Result<ListenerId, ListenError> {
        self.core.listeners_mut().insert(local, config)
    }

    /// Listens at every address and port that no other listener has ([`Listeners::insert_catch_all`]).
    pub fn listen_everywhere(&mut self, config: ListenConfig) -> Result<ListenerId, ListenError> {
        self.core.listeners_mut().insert_catch_all(config)
    }

    /// Stops listening. Its half-open connections are reset; accepted ones go on. O(connections).
    pub fn close_listener(&mut self, id: ListenerId) {
        if self.core.listeners_mut().remove(id).is_none() {
            return;
        }
        let half_open: Vec<ConnectionId> = self.core.half_open_of(id).collect();
        for id in half_open {
            if let Some(connection) = self.core.get_mut(id) {
                connection.refuse();
                self.core.mark_ready(id);
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
        if self.core.len() >= self.config.max_connections {
            return Err(ConnectError::TooManyConnections);
        }
        if local.port == 0 {
            let is_unheard = |listeners: &Listeners, local| listeners.find(local).is_none();
            let ports = &self.config.ephemeral_ports;
            let flow = self.core.ephemeral_flow(local.addr, remote, ports, is_unheard);
            local = flow.ok_or(ConnectError::NoFreePort)?.local;
        }
        let tuple = FourTuple { local, remote };
        if self.core.has_flow(&tuple) {
            return Err(ConnectError::AddressInUse);
        }
        let setup = self.setup(tuple, self.core.secrets().isn(now, &tuple));
        let connection = PlainConnection::opened(Connection::connect(now, setup));
        self.counters.active_opens += 1;
        Ok(self.core.insert(tuple, (), connection, None))
    }

    fn setup(&self, tuple: FourTuple, isn: SeqNumber) -> Setup {
        Setup {
            tuple,
            isn,
            timestamp_offset: self.core.secrets().timestamp_offset(&tuple),
            config: self.config.connection.clone(),
            congestion: self.config.congestion.clone(),
        }
    }

    /// The next packet to put on the wire. Connections take turns, a packet (or aggregate) each.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        if let Some(packet) = self.core.poll_reply() {
            self.counters.count_sent(&packet);
            return Some(packet);
        }
        while self.core.has_ready() {
            if let Some(packet) = self.core.poll_transmit(now, &mut self.counters) {
                self.counters.count_sent(&packet);
                return Some(packet);
            }
            if let Some(id) = self.core.end_turn() {
                self.settle(now, id);
            }
        }
        None
    }

    /// The next event.
    #[must_use]
    pub fn poll(&mut self) -> Option<(ConnectionId, HostEvent)> {
        while let Some((id, event)) = self.events.pop_front() {
            // Events of a connection that was released meanwhile are nobody's.
            if let Some(connection) = self.held_mut(id) {
                connection.event_polled(event);
                return Some((id, event));
            }
        }
        None
    }

    /// When to call [`Host::handle_timeout`], provided that [`Host::poll_transmit`] has nothing to send.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.core.poll_timeout()
    }

    /// Queues data; returns how many bytes the send buffer had room for. If fewer than all,
    /// [`HostEvent::Writable`] tells when to go on.
    pub fn send(&mut self, id: ConnectionId, data: Bytes) -> Result<usize, SendError> {
        let taken = self.held_mut(id).ok_or(SendError::UnknownConnection)?.send(data)?;
        if taken > 0 {
            self.core.mark_ready(id);
        }
        Ok(taken)
    }

    /// The data that has arrived in order, if any. Reading opens the receive window.
    pub fn recv(&mut self, id: ConnectionId) -> Option<Payload> {
        let connection = self.held_mut(id)?;
        let payload = connection.recv()?;
        if connection.is_open() {
            self.core.mark_ready(id);
        }
        Some(payload)
    }

    /// Changes a setting of a live connection, as `setsockopt` does.
    pub fn set_option(&mut self, now: Instant, id: ConnectionId, option: ConnectionOption) {
        if let Some(connection) = self.held_mut(id).filter(|connection| connection.is_open()) {
            connection.set_option(now, option);
            self.after_input(id);
        }
    }

    /// The application sends no more: a FIN follows the data that is queued. Receiving goes on.
    pub fn shutdown(&mut self, id: ConnectionId) {
        if let Some(connection) = self.held_mut(id).filter(|connection| connection.may_finish()) {
            connection.finish();
            self.core.mark_ready(id);
        }
    }

    /// Resets the connection. It is still the application's, until it is released.
    pub fn abort(&mut self, id: ConnectionId) {
        if let Some(connection) = self.held_mut(id).filter(|connection| connection.is_open()) {
            connection.abort();
            self.core.mark_ready(id);
        }
    }

    /// The application lets go of the connection, and its id means nothing any more. What it queued is still
    /// delivered, then the connection closes; with data unread it is reset instead (RFC 2525 §2.17), and so
    /// it is if more arrives, or if nothing more is acknowledged for [`Config::orphan_timeout`].
    ///
    /// [`Config::orphan_timeout`]: crate::Config::orphan_timeout
    pub fn release(&mut self, id: ConnectionId) {
        let Some(connection) = self.held_mut(id) else { return };
        let is_unread = connection.release();
        let is_bound = connection.is_bound();
        self.counters.tcp_abort_on_close += u64::from(is_unread);
        if is_bound {
            self.core.mark_ready(id);
        } else {
            self.forget(id);
        }
    }

    /// The connection in numbers; `None` once it is released.
    #[must_use]
    pub fn info(&self, id: ConnectionId) -> Option<Info> {
        Some(self.held(id)?.info())
    }

    /// Its addresses and ports; `None` once it is released.
    #[must_use]
    pub fn tuple(&self, id: ConnectionId) -> Option<FourTuple> {
        Some(self.held(id)?.flow())
    }

    /// Bytes that [`Host::send`] would take now; zero if the connection is released or closed for sending.
    #[must_use]
    pub fn send_room_bytes(&self, id: ConnectionId) -> u64 {
        self.held(id).map_or(0, PlainConnection::send_room_bytes)
    }

    /// All counters as of now. O(connections).
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        for (_, connection) in self.core.iter() {
            connection.add_to(&mut counters);
            counters.curr_estab += u64::from(connection.is_up());
        }
        // The kernel counts a retransmission as such and not as sent.
        counters.out_segs = counters.out_segs.saturating_sub(counters.retrans_segs);
        counters.add_strangers(self.core.strangers().counts());
        counters
    }

    /// How much state there is.
    #[must_use]
    pub fn population(&self) -> Population {
        self.core.population()
    }

    /// The application's connection of that id.
    fn held(&self, id: ConnectionId) -> Option<&PlainConnection> {
        self.core.get(id).filter(|connection| connection.is_held())
    }

    fn held_mut(&mut self, id: ConnectionId) -> Option<&mut PlainConnection> {
        self.core.get_mut(id).filter(|connection| connection.is_held())
    }
}
