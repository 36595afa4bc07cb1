//! The simulated network: nodes, links, and the loop that moves time.

mod builder;
mod fabric;
mod node;
mod topology;

use std::collections::BTreeMap;
use std::fmt;

use polypath_link::Change;
use polypath_link::middlebox::Chain;
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, FourTuple, IcmpMessage, IpHeader, Packet, SeqNumber, Transport};

use crate::app::{Stack, StackInfo};
use crate::trace::Tracer;

pub use builder::{BoxPosition, LinkSpec, NetworkBuilder};
pub use fabric::ChannelStats;
use fabric::Fabric;
pub use node::{AppId, HostNode, Node, RouterStats};
pub use topology::{ChannelId, LinkId, NodeId, Prefix};
pub(crate) use topology::{End, Topology};

/// A Multipath TCP host with its applications.
pub type MptcpHost = HostNode<polypath_mptcp::Host>;

/// A plain TCP host with its applications.
pub type TcpHost = HostNode<polypath_tcp::Host>;

/// What a node is. The usual kinds are called directly, the rest through a virtual call.
#[derive(Debug)]
pub(crate) enum NodeKind {
    Mptcp(Box<MptcpHost>),
    Tcp(Box<TcpHost>),
    Router(RouterStats),
    Custom(Box<dyn Node>),
}

type Action = Box<dyn FnOnce(&mut Network)>;

/// A network in virtual time.
///
/// Everything random in it follows from seeds given at construction, and events at the same instant come in a
/// fixed order (nodes, channels and middleboxes by number, then scheduled actions by the order of their
/// scheduling), so that the same construction gives the same run, bit for bit.
///
/// ```
/// use polypath_link::{LinkConfig, QueueLimit};
/// use polypath_mptcp::HostConfig;
/// use polypath_sim::conversation::Conversation;
/// use polypath_sim::topologies::{PathConfig, parallel_paths};
/// use polypath_units::{BitRate, Duration, Instant};
/// use polypath_wire::Endpoint;
///
/// let queue = QueueLimit::Delay(Duration::from_millis(50));
/// let link = LinkConfig::new(BitRate::from_mbps(10), Duration::from_millis(10), queue);
/// let paths = ["wifi", "lte"].map(|name| PathConfig::symmetric(name, link.clone()));
/// let (builder, net) = parallel_paths(1, paths, HostConfig::default(), HostConfig::default());
/// let mut network = builder.build();
/// // A million bytes from client to server.
/// let (opener, acceptor) = Conversation::plans(1, Some(1_000_000), None);
/// let ends = network.converse(Conversation {
///     from: net.client,
///     local: net.client_addrs[0],
///     to: net.server,
///     remote: Endpoint::new(net.server_addr, 80),
///     start: Instant::ZERO,
///     config: None,
///     opener,
///     acceptor,
/// });
/// network.run_for(Duration::from_secs(2));
/// assert_eq!(network.report(ends.acceptor).received_bytes, 1_000_000);
/// ```
pub struct Network {
    nodes: Vec<NodeKind>,
    names: Vec<String>,
    fabric: Fabric,
    agenda: BTreeMap<(Instant, u64), Action>,
    scheduled: u64,
    events: u64,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("now", &self.now())
            .field("nodes", &self.names)
            .finish_non_exhaustive()
    }
}

impl Network {
    /// The virtual clock.
    pub fn now(&self) -> Instant {
        self.fabric.now
    }

    /// Events that were processed: deadlines of nodes, channels and scheduled actions.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The node of this name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.names.iter().position(|known| known == name).map(|index| NodeId(index as u32))
    }

    /// The name of a node.
    pub fn node_name(&self, node: NodeId) -> &str {
        &self.names[node.index()]
    }

    /// The addresses of a node, each once, in the order of its links.
    pub fn addresses(&self, node: NodeId) -> Vec<std::net::IpAddr> {
        self.fabric.topology.addresses(node)
    }

    /// True if packets from `src` at `node` reach a node that has `dst`.
    pub fn reaches(&self, node: NodeId, src: std::net::IpAddr, dst: std::net::IpAddr) -> bool {
        self.fabric.topology.reaches(node, src, dst)
    }

    /// The channel by which `node` sends packets from `src` to `dst`.
    pub fn next_hop(&self, node: NodeId, src: std::net::IpAddr, dst: std::net::IpAddr) -> Option<ChannelId> {
        self.fabric.topology.next_hop(node, src, dst)
    }

    /// A Multipath TCP host.
    ///
    /// # Panics
    /// If `node` is not one.
    pub fn host(&self, node: NodeId) -> &MptcpHost {
        match &self.nodes[node.index()] {
            NodeKind::Mptcp(host) => host,
            _ => panic!("{} is no Multipath TCP host", self.names[node.index()]),
        }
    }

    /// Does something with a Multipath TCP host at the present time, and then whatever follows from it.
    ///
    /// # Panics
    /// If `node` is not one.
    pub fn with_host<R>(&mut self, node: NodeId, action: impl FnOnce(Instant, &mut MptcpHost) -> R) -> R {
        self.with_kind(node, |now, kind| match kind {
            NodeKind::Mptcp(host) => action(now, host),
            _ => panic!("node {} is no Multipath TCP host", node.index()),
        })
    }

    /// A plain TCP host.
    ///
    /// # Panics
    /// If `node` is not one.
    pub fn tcp_host(&self, node: NodeId) -> &TcpHost {
        match &self.nodes[node.index()] {
            NodeKind::Tcp(host) => host,
            _ => panic!("{} is no TCP host", self.names[node.index()]),
        }
    }

    pub(crate) fn kind(&self, node: NodeId) -> &NodeKind {
        &self.nodes[node.index()]
    }

    /// Does something with a node at the present time, and then whatever follows from it.
    pub(crate) fn with_kind<R>(
        &mut self,
        node: NodeId,
        action: impl FnOnce(Instant, &mut NodeKind) -> R,
    ) -> R {
        let kind = &mut self.nodes[node.index()];
        let result = action(self.fabric.now, kind);
        service(kind, node, &mut self.fabric);
        self.empty_inbox();
        result
    }

    /// What a router did; zeros for anything else.
    pub fn router_stats(&self, node: NodeId) -> RouterStats {
        match &self.nodes[node.index()] {
            NodeKind::Router(stats) => *stats,
            _ => RouterStats::default(),
        }
    }

    /// What went over one direction of a link.
    pub fn channel_stats(&self, channel: ChannelId) -> ChannelStats {
        self.fabric.stats(channel)
    }

    /// Packets that arrived, over all links.
    pub fn delivered_packets(&self) -> u64 {
        let channels = (0..self.fabric.channel_count()).map(|index| ChannelId(index as u32));
        channels.map(|channel| self.fabric.stats(channel).delivered_packets).sum()
    }

    /// Packets that a host sent to where no way leads.
    pub fn unroutable_packets(&self) -> u64 {
        self.fabric.unroutable
    }

    /// The middleboxes of a link, if it has any.
    pub fn middleboxes(&self, link: LinkId) -> Option<&Chain> {
        self.fabric.chain(link)
    }

    /// Changes one direction of a link now.
    pub fn change(&mut self, channel: ChannelId, change: Change) {
        self.fabric.change(channel, change);
    }

    /// Does something at `at`, or now if that is past.
    pub fn schedule(&mut self, at: Instant, action: impl FnOnce(&mut Network) + 'static) {
        let at = at.max(self.fabric.now);
        self.agenda.insert((at, self.scheduled), Box::new(action));
        self.scheduled += 1;
        self.refresh_agenda();
    }

    /// Records packets from now on.
    pub fn set_tracer(&mut self, tracer: Option<Box<Tracer>>) {
        self.fabric.tracer = tracer;
    }

    /// The tracer, taken out.
    pub fn take_tracer(&mut self) -> Option<Box<Tracer>> {
        self.fabric.tracer.take()
    }

    /// Tells the tracer what the subflows of a connection are like now, as the sender of their data sees them.
    pub fn note_subflows(&mut self, info: &StackInfo) {
        let now = self.now();
        if let Some(tracer) = &mut self.fabric.tracer {
            tracer.note_subflows(now, &info.subflows);
        }
    }

    /// The hash of the trace so far, if the tracer makes one.
    pub fn trace_hash(&self) -> Option<u64> {
        self.fabric.tracer.as_ref().and_then(|tracer| tracer.hash())
    }

    /// When the next event is; `None` if nothing will ever happen.
    pub fn next_event_at(&self) -> Option<Instant> {
        Some(self.fabric.calendar.next().0).filter(|at| *at != Instant::FAR_FUTURE)
    }

    /// Runs for a span of virtual time.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now() + span);
    }

    /// Runs to `end`, events at `end` included, and leaves the clock there.
    pub fn run_until(&mut self, end: Instant) {
        self.run_until_or(end, |_| false);
    }

    /// The same, but stops after an event that `is_enough` says is enough; true if it did, with the clock at that event.
    pub(crate) fn run_until_or(&mut self, end: Instant, mut is_enough: impl FnMut(&Self) -> bool) -> bool {
        let first_channel = self.nodes.len();
        let first_boxes = first_channel + self.fabric.channel_count();
        let agenda = self.fabric.agenda_source();
        loop {
            let (at, source) = self.fabric.calendar.next();
            if at > end || at == Instant::FAR_FUTURE {
                break;
            }
            // A deadline in the past is due now.
            self.fabric.now = self.fabric.now.max(at);
            self.events += 1;
            if source < first_channel {
                self.node_timeout(NodeId(source as u32));
            } else if source < first_boxes {
                self.channel_timeout(ChannelId((source - first_channel) as u32));
            } else if source < agenda {
                self.fabric.boxes_timeout(LinkId((source - first_boxes) as u32));
            } else {
                self.run_agenda();
            }
            if !self.fabric.inbox.is_empty() {
                self.empty_inbox();
            }
            if is_enough(self) {
                return true;
            }
        }
        self.fabric.now = self.fabric.now.max(end);
        false
    }

    #[cold]
    fn empty_inbox(&mut self) {
        while let Some((node, packet)) = self.fabric.inbox.pop_front() {
            self.deliver(node, packet);
        }
    }

    fn node_timeout(&mut self, node: NodeId) {
        let kind = &mut self.nodes[node.index()];
        match kind {
            NodeKind::Mptcp(host) => host.handle_timeout(self.fabric.now),
            NodeKind::Tcp(host) => host.handle_timeout(self.fabric.now),
            NodeKind::Router(_) => {}
            NodeKind::Custom(custom) => custom.handle_timeout(self.fabric.now),
        }
        service(kind, node, &mut self.fabric);
    }

    fn channel_timeout(&mut self, channel: ChannelId) {
        let to = self.fabric.channel_timeout(channel);
        let direct = self.fabric.delivers_directly(channel);
        while let Some(packet) = self.fabric.poll_link(channel) {
            if direct {
                self.deliver(to, packet);
            } else {
                self.fabric.arrive(channel, packet);
                self.empty_inbox();
            }
        }
        self.fabric.refresh_channel(channel);
    }

    fn run_agenda(&mut self) {
        if let Some(entry) = self.agenda.first_entry() {
            entry.remove()(self);
        }
        self.refresh_agenda();
    }

    fn refresh_agenda(&mut self) {
        self.fabric.calendar.set(self.fabric.agenda_source(), self.agenda.keys().next().map(|(at, _)| *at));
    }

    /// Hands a packet to a node and sends what follows from it.
    #[inline(always)]
    fn deliver(&mut self, node: NodeId, packet: Packet) {
        let kind = &mut self.nodes[node.index()];
        match kind {
            NodeKind::Mptcp(host) => host.stack.handle_packet(self.fabric.now, packet),
            NodeKind::Tcp(host) => host.stack.handle_packet(self.fabric.now, packet),
            NodeKind::Router(stats) => return route(stats, node, packet, &mut self.fabric),
            NodeKind::Custom(custom) => custom.handle_packet(self.fabric.now, packet),
        }
        service(kind, node, &mut self.fabric);
    }
}

/// Runs a node's applications, sends its packets, and notes its deadline.
#[inline(always)]
fn service(kind: &mut NodeKind, node: NodeId, fabric: &mut Fabric) {
    let now = fabric.now;
    let deadline = match kind {
        NodeKind::Mptcp(host) => service_host(host, node, fabric),
        NodeKind::Tcp(host) => service_host(host, node, fabric),
        NodeKind::Router(_) => None,
        NodeKind::Custom(custom) => {
            while let Some(packet) = custom.poll_transmit(now) {
                fabric.send_from(node, packet);
            }
            custom.poll_timeout()
        }
    };
    fabric.calendar.set(node.index(), deadline);
}

#[inline(always)]
fn service_host<S: Stack>(host: &mut HostNode<S>, node: NodeId, fabric: &mut Fabric) -> Option<Instant> {
    let now = fabric.now;
    host.run_apps(now);
    while let Some(packet) = host.stack.poll_transmit(now) {
        fabric.send_from(node, packet);
    }
    host.poll_timeout()
}

/// What a router does with a packet (RFC 1812 §5.2.1): time to live, next hop, or an ICMP error.
fn route(stats: &mut RouterStats, node: NodeId, mut packet: Packet, fabric: &mut Fabric) {
    if packet.ip.ttl <= 1 {
        stats.ttl_expired += 1;
        return;
    }
    packet.ip.ttl -= 1;
    match fabric.next_hop(node, packet.ip.src, packet.ip.dst) {
        Some(channel) => {
            stats.forwarded += 1;
            fabric.transmit(channel, packet);
        }
        None => {
            stats.unroutable += 1;
            if let Some(error) = unreachable(fabric.router_address(node, packet.ip.src), &packet)
                && let Some(channel) = fabric.next_hop(node, error.ip.src, error.ip.dst)
            {
                fabric.transmit(channel, error);
            }
        }
    }
}

/// "Destination unreachable, no route" about a TCP or UDP packet; nothing about ICMP (RFC 1122 §3.2.2).
fn unreachable(router: Option<std::net::IpAddr>, packet: &Packet) -> Option<Packet> {
    let (src_port, dst_port, seq) = match &packet.transport {
        Transport::Tcp(segment) => (segment.src_port, segment.dst_port, segment.seq),
        Transport::Udp(datagram) => (datagram.src_port, datagram.dst_port, SeqNumber(0)),
        Transport::Icmp(_) => return None,
    };
    let flow = FourTuple {
        local: Endpoint::new(packet.ip.src, src_port),
        remote: Endpoint::new(packet.ip.dst, dst_port),
    };
    Some(Packet {
        ip: IpHeader::new(router?, packet.ip.src),
        transport: Transport::Icmp(IcmpMessage::Unreachable { code: 0, flow, seq }),
    })
}

#[cfg(test)]
mod tests;
