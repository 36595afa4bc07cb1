use alloc::boxed::Box;
use core::fmt;
use core::net::IpAddr;
use core::ops::RangeInclusive;

use polypath_units::Instant;
use polypath_wire::{Endpoint, FourTuple, IcmpMessage, Packet, Transport};

use super::connection_id::ConnectionId;
use super::flow_index::FlowIndex;
use super::hosted::{Call, Handled, Hosted};
use super::population::Population;
use super::secrets::HostSecrets;
use super::strangers::Strangers;
use super::time_wait::TimeWaitNumbers;
use crate::listener::{ListenerId, Listeners};
use crate::ready_queue::ReadyQueue;
use crate::slab::Slab;
use crate::timer_wheel::TimerWheel;

/// What hosts of TCP and of Multipath TCP have in common: the way from a packet to its connection, turns to transmit, timers,
/// listeners, and [`Strangers`] with TIME-WAIT. A connection may have several flows, each with a tag of its choice.
///
/// # How a host uses it
/// - *Input*: [`HostCore::handle_packet`] says whose a packet was; what is nobody's is the host's to accept or to refuse. For
///   timeouts, [`HostCore::end_time_waits`] and then [`HostCore::poll_expired`] until it returns `None`.
/// - *Output*: [`HostCore::poll_reply`]; then, while [`HostCore::has_ready`], [`HostCore::poll_transmit`]. Where that returns `None`,
///   the host looks after the connection of [`HostCore::end_turn`], has [`HostCore::arm`] set its timer, and goes on.
/// - A connection that something was done to through [`HostCore::get_mut`] needs [`HostCore::mark_ready`].
///
/// # Cost
/// A packet costs a look-up of its flow, and of its connection by place. Neither grows with their number.
pub struct HostCore<C: Hosted> {
    secrets: HostSecrets,
    strangers: Strangers,
    listeners: Listeners,
    flows: FlowIndex<FlowEnd<C::Tag>>,
    connections: Slab<Box<Entry<C>>>,
    /// Of connections, by their index.
    timers: TimerWheel,
    ready: ReadyQueue,
    /// Packets sent by the connection whose turn it is.
    burst: u32,
    half_open: usize,
}

/// What a flow leads to. Flows go before the connection or the record they lead to does, so no generation is needed.
#[derive(Clone, Copy, Debug)]
enum FlowEnd<T> {
    Connection { index: u32, tag: T },
    TimeWait { index: u32 },
}

impl<T: Copy> FlowEnd<T> {
    /// Whether this flow leads here.
    fn is_of<C: Hosted<Tag = T>>(
        self,
        flow: &FourTuple,
        connections: &Slab<Box<Entry<C>>>,
        strangers: &Strangers,
    ) -> bool {
        match self {
            Self::Connection { index, tag } => connections
                .at(index)
                .and_then(|entry| entry.connection.flow(tag))
                .is_some_and(|known| known == *flow),
            Self::TimeWait { index } => strangers.is_in_time_wait(index, flow),
        }
    }
}

/// A connection, and what the core keeps with it.
struct Entry<C> {
    connection: C,
    /// It is in the ready queue.
    queued: bool,
    /// Apart, as it is there for the time of a handshake only.
    half_open: Option<Box<HalfOpen>>,
}

/// A handshake that counts against the bounds of a listener, for the source that its SYN came from.
struct HalfOpen {
    listener: ListenerId,
    remote: IpAddr,
}

impl<C: Hosted> fmt::Debug for HostCore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostCore")
            .field("connections", &self.connections.len())
            .field("half_open", &self.half_open)
            .field("flows", &self.flows.len())
            .field("time_waits", &self.strangers.time_wait_count())
            .field("listeners", &self.listeners.len())
            .field("timers", &self.timers.len())
            .field("ready", &self.ready.len())
            .finish_non_exhaustive()
    }
}

impl<C: Hosted> HostCore<C> {
    /// Without connections.
    #[must_use]
    pub fn new(secrets: HostSecrets, strangers: Strangers, listeners: Listeners) -> Self {
        Self {
            flows: FlowIndex::new(secrets.flow_table_seed()),
            secrets,
            strangers,
            listeners,
            connections: Slab::new(),
            timers: TimerWheel::new(),
            ready: ReadyQueue::new(),
            burst: 0,
            half_open: 0,
        }
    }

    /// The secrets that sequence numbers, timestamps and ports follow from.
    #[must_use]
    pub fn secrets(&self) -> &HostSecrets {
        &self.secrets
    }

    /// Those that the host has no connection with.
    #[must_use]
    pub fn strangers(&self) -> &Strangers {
        &self.strangers
    }

    /// The same, to answer them.
    pub fn strangers_mut(&mut self) -> &mut Strangers {
        &mut self.strangers
    }

    /// Who listens.
    #[must_use]
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// The same, to change them.
    pub fn listeners_mut(&mut self) -> &mut Listeners {
        &mut self.listeners
    }

    // ---- connections

    /// Takes in a connection and its first flow. It is ready to transmit. With a listener, which has admitted it, it counts as
    /// half-open there until [`HostCore::end_half_open`].
    pub fn insert(
        &mut self,
        flow: FourTuple,
        tag: C::Tag,
        connection: C,
        listener: Option<ListenerId>,
    ) -> ConnectionId {
        let half_open = listener.map(|listener| Box::new(HalfOpen { listener, remote: flow.remote.addr }));
        self.half_open += usize::from(half_open.is_some());
        let key = self.connections.insert(Box::new(Entry { connection, queued: false, half_open }));
        let id = ConnectionId(key);
        self.add_flow(id, flow, tag);
        self.mark_ready(id);
        id
    }

    /// Takes out a connection, whose flows must have been removed.
    pub fn remove(&mut self, id: ConnectionId) -> Option<C> {
        self.end_half_open(id);
        // Its place in the ready queue, if it has one, finds nothing, or a successor that does no harm to ask.
        let entry = self.connections.remove(id.0)?;
        self.timers.cancel(id.0.index);
        Some(entry.connection)
    }

    /// The handshake is over, well or not: returns the listener that the connection came to, if it was half-open.
    pub fn end_half_open(&mut self, id: ConnectionId) -> Option<ListenerId> {
        let HalfOpen { listener, remote } = *self.connections.get_mut(id.0)?.half_open.take()?;
        self.half_open -= 1;
        self.listeners.leave(listener, remote);
        Some(listener)
    }

    /// A connection.
    #[inline]
    #[must_use]
    pub fn get(&self, id: ConnectionId) -> Option<&C> {
        Some(&self.connections.get(id.0)?.connection)
    }

    /// A connection, to be changed.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut C> {
        Some(&mut self.connections.get_mut(id.0)?.connection)
    }

    /// The present connection with that [`ConnectionId::index`].
    #[must_use]
    pub fn at_mut(&mut self, index: u32) -> Option<(ConnectionId, &mut C)> {
        let (key, entry) = self.connections.at_mut(index)?;
        Some((ConnectionId(key), &mut entry.connection))
    }

    /// Calls into a connection with what a host lends; `None` if it is gone.
    #[inline]
    pub fn call<T>(
        &mut self,
        now: Instant,
        resources: &mut C::Resources,
        id: ConnectionId,
        call: impl FnOnce(&mut C, Call<'_, C::Resources>) -> T,
    ) -> Option<T> {
        let entry = self.connections.get_mut(id.0)?;
        let challenges = self.strangers.challenges();
        Some(call(&mut entry.connection, Call { now, challenges, resources }))
    }

    /// All connections, in the order of their places. O(connections).
    pub fn iter(&self) -> impl Iterator<Item = (ConnectionId, &C)> {
        self.connections.iter().map(|(key, entry)| (ConnectionId(key), &entry.connection))
    }

    /// Connections that are half-open at a listener. O(connections).
    pub(crate) fn half_open_of(&self, listener: ListenerId) -> impl Iterator<Item = ConnectionId> {
        let of = |entry: &Entry<C>| entry.half_open.as_ref().map(|half_open| half_open.listener);
        let entries = self.connections.iter();
        entries.filter(move |(_, entry)| of(entry) == Some(listener)).map(|(key, _)| ConnectionId(key))
    }

    /// Connections present.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// True if there is no connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Every [`ConnectionId::index`] is below.
    #[must_use]
    pub fn places(&self) -> usize {
        self.connections.places()
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

    // ---- flows

    /// A flow leads to the connection from now on, which is told the tag with each of its packets.
    pub fn add_flow(&mut self, id: ConnectionId, flow: FourTuple, tag: C::Tag) {
        self.flows.insert(&flow, FlowEnd::Connection { index: id.0.index, tag });
    }

    /// The flow leads to this connection no more, which may have forgotten it already.
    pub fn remove_flow(&mut self, id: ConnectionId, flow: &FourTuple) {
        let Some(Entry { connection, .. }) = self.connections.get(id.0).map(|entry| &**entry) else { return };
        self.flows.remove(flow, |end| match end {
            FlowEnd::Connection { index, tag } if index == id.0.index => {
                connection.flow(tag).is_none_or(|known| known == *flow)
            }
            _ => false,
        });
    }

    /// The flow leads to the connection no more: the host answers for it until `ends_at`, unless it does so for too many.
    pub fn enter_time_wait(
        &mut self,
        id: ConnectionId,
        flow: FourTuple,
        numbers: TimeWaitNumbers,
        ends_at: Instant,
    ) {
        self.remove_flow(id, &flow);
        if let Some(index) = self.strangers.keep_time_wait(flow, numbers, ends_at) {
            self.flows.insert(&flow, FlowEnd::TimeWait { index });
        }
    }

    /// The connection that a flow leads to, and the flow's tag.
    #[must_use]
    pub fn find(&mut self, flow: &FourTuple) -> Option<(ConnectionId, C::Tag)> {
        let FlowEnd::Connection { index, tag } = self.lookup(flow)? else { return None };
        let (key, _) = self.connections.at_mut(index)?;
        Some((ConnectionId(key), tag))
    }

    /// What a flow leads to.
    #[inline]
    fn lookup(&mut self, flow: &FourTuple) -> Option<FlowEnd<C::Tag>> {
        let Self { flows, connections, strangers, .. } = self;
        flows.get(flow, |end| end.is_of(flow, connections, strangers))
    }

    /// The record at `index` was of this flow.
    fn forget_time_wait(&mut self, index: u32, flow: &FourTuple) {
        self.flows.remove(flow, |end| matches!(end, FlowEnd::TimeWait { index: known } if known == index));
    }

    /// The flow leads to a connection, or is in TIME-WAIT.
    #[must_use]
    pub fn has_flow(&self, flow: &FourTuple) -> bool {
        self.flows.find(flow, |end| end.is_of(flow, &self.connections, &self.strangers)).is_some()
    }

    /// A flow from a local port of that range (RFC 6056 §3.3.3) which leads nowhere yet, and from an endpoint that `may_use` allows.
    pub fn ephemeral_flow(
        &mut self,
        local: IpAddr,
        remote: Endpoint,
        ports: &RangeInclusive<u16>,
        may_use: impl Fn(&Listeners, Endpoint) -> bool,
    ) -> Option<FourTuple> {
        let Self { secrets, flows, listeners, connections, strangers, .. } = self;
        let is_free = |port| {
            let local = Endpoint::new(local, port);
            let flow = FourTuple { local, remote };
            let is_taken = flows.find(&flow, |end| end.is_of(&flow, connections, strangers)).is_some();
            !is_taken && may_use(listeners, local)
        };
        let port = secrets.ephemeral_port(local, remote, ports, is_free)?;
        Some(FourTuple { local: Endpoint::new(local, port), remote })
    }

    // ---- input

    /// Gives a packet to the connection that it belongs to, which is ready to transmit then, or to the TIME-WAIT of its flow.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now: Instant,
        resources: &mut C::Resources,
        packet: &mut Packet,
    ) -> Handled {
        let Some(flow) = packet.receiver_tuple() else {
            return self.handle_icmp(now, resources, packet);
        };
        match self.lookup(&flow) {
            Some(FlowEnd::Connection { index, tag }) => {
                let Some((key, entry)) = self.connections.at_mut(index) else { return Handled::Entirely };
                let call = Call { now, challenges: self.strangers.challenges(), resources };
                entry.connection.handle_packet(call, tag, packet);
                self.ready.mark(index, &mut entry.queued);
                Handled::ByConnection(ConnectionId(key))
            }
            Some(FlowEnd::TimeWait { index }) => self.handle_in_time_wait(now, index, flow, packet),
            None => Handled::ByNobody { flow, isn_after: None },
        }
    }

    fn handle_in_time_wait(&mut self, now: Instant, index: u32, flow: FourTuple, packet: &Packet) -> Handled {
        let Transport::Tcp(segment) = &packet.transport else { return Handled::Entirely };
        let isn_after = self.strangers.handle_in_time_wait(now, index, flow, segment);
        if isn_after.is_none() {
            return Handled::Entirely;
        }
        self.forget_time_wait(index, &flow);
        Handled::ByNobody { flow, isn_after }
    }

    fn handle_icmp(&mut self, now: Instant, resources: &mut C::Resources, packet: &Packet) -> Handled {
        // There is no UDP service here.
        let Transport::Icmp(message) = &packet.transport else { return Handled::Entirely };
        let (IcmpMessage::PacketTooBig { flow, .. } | IcmpMessage::Unreachable { flow, .. }) = message;
        let Some((id, tag)) = self.find(flow) else { return Handled::Entirely };
        self.call(now, resources, id, |connection, call| connection.handle_icmp(call, tag, message));
        self.mark_ready(id);
        Handled::ByConnection(id)
    }

    /// Forgets the flows whose TIME-WAIT is over.
    pub fn end_time_waits(&mut self, now: Instant) {
        while let Some((index, flow)) = self.strangers.poll_ended(now) {
            self.forget_time_wait(index, &flow);
        }
    }

    /// The next connection whose deadline has passed; it was told. It is the host's to mark ready.
    #[must_use]
    pub fn poll_expired(&mut self, now: Instant, resources: &mut C::Resources) -> Option<ConnectionId> {
        while let Some(index) = self.timers.poll_expired(now) {
            let Some((key, entry)) = self.connections.at_mut(index) else { continue };
            let due = entry.connection.poll_timeout();
            if due.is_some_and(|at| at <= now) {
                let call = Call { now, challenges: self.strangers.challenges(), resources };
                entry.connection.handle_timeout(call);
                return Some(ConnectionId(key));
            }
            // The timer fires early when the deadline has moved.
            self.timers.arm(index, due);
        }
        None
    }

    // ---- output

    /// The next answer to a stranger.
    #[inline]
    #[must_use]
    pub fn poll_reply(&mut self) -> Option<Packet> {
        self.strangers.poll_transmit()
    }

    /// A connection is ready to transmit.
    #[inline]
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next packet of the connection whose turn it is; after the last of a burst, the next connection has its turn. `None` if it
    /// has nothing to send: [`HostCore::end_turn`] follows.
    #[inline]
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant, resources: &mut C::Resources) -> Option<Packet> {
        let front = self.ready.peek().and_then(|index| self.connections.at_mut(index));
        // Returned from one place only, so that the packet is made where it is returned, and not copied.
        let packet = match front {
            Some((_, entry)) => {
                let challenges = self.strangers.challenges();
                entry.connection.poll_transmit(Call { now, challenges, resources })
            }
            None => None,
        };
        if packet.is_some() {
            self.burst += 1;
            if self.burst >= C::BURST_PACKETS {
                self.burst = 0;
                self.ready.rotate();
            }
        }
        packet
    }

    /// The connection whose turn it is is ready no more. Returns which it was, unless it is gone.
    #[inline]
    pub fn end_turn(&mut self) -> Option<ConnectionId> {
        self.burst = 0;
        let (key, entry) = self.connections.at_mut(self.ready.pop()?)?;
        entry.queued = false;
        Some(ConnectionId(key))
    }

    /// The connection may have something to transmit.
    #[inline]
    pub fn mark_ready(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(id.0) {
            self.ready.mark(id.0.index, &mut entry.queued);
        }
    }

    /// Sets the timer of a connection for its [`Hosted::poll_timeout`].
    #[inline]
    pub fn arm(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.get(id.0) {
            self.timers.arm(id.0.index, entry.connection.poll_timeout());
        }
    }

    /// Takes the timer away from a connection that has nothing more to do.
    pub(crate) fn disarm(&mut self, id: ConnectionId) {
        if self.connections.get(id.0).is_some() {
            self.timers.cancel(id.0.index);
        }
    }

    /// When [`HostCore::end_time_waits`] and [`HostCore::poll_expired`] are due.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.timers.next_deadline(), self.strangers.poll_timeout()].into_iter().flatten().min()
    }
}
