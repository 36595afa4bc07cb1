//! Everything between the nodes: links, middleboxes, routes, and the calendar of their events.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use polypath_link::middlebox::{Chain, Direction, Outputs};
use polypath_link::{Change, Link};
use polypath_units::Instant;
use polypath_wire::Packet;

use super::topology::RouteCache;
use super::{ChannelId, LinkId, NodeId, Topology};
use crate::calendar::Calendar;
use crate::trace::{PacketDirection, Sighting, Tracer};

/// What went over one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ChannelStats {
    /// Packets that the node handed over.
    pub sent_packets: u64,
    /// Bytes that the node handed over, IP headers included.
    pub sent_bytes: u64,
    /// Packets that arrived.
    pub delivered_packets: u64,
    /// Bytes that arrived, IP headers included.
    pub delivered_bytes: u64,
    /// Packets dropped by a full queue.
    pub queue_drops: u64,
    /// Packets lost on the line.
    pub lost_packets: u64,
    /// Packets dropped because the link was or went down.
    pub down_drops: u64,
    /// Packets longer than the MTU.
    pub too_big_drops: u64,
}

pub(super) struct Channel {
    /// `None` passes everything at once.
    pub(super) link: Option<Box<Link>>,
    pub(super) to: NodeId,
    pub(super) from: NodeId,
    /// Where a chain of middleboxes is: before the link, or behind it.
    pub(super) boxes_at_entry: bool,
    pub(super) boxes_at_exit: bool,
}

/// The chain of middleboxes of a link.
pub(super) struct Boxes {
    pub(super) chain: Chain,
    pub(super) outputs: Outputs,
}

pub(super) struct Fabric {
    pub(super) now: Instant,
    pub(super) topology: Topology,
    pub(super) calendar: Calendar,
    pub(super) channels: Vec<Channel>,
    pub(super) boxes: Vec<Option<Box<Boxes>>>,
    pub(super) routes: Vec<RouteCache>,
    /// Packets that arrive at once, by a link without delay or from a middlebox.
    pub(super) inbox: VecDeque<(NodeId, Packet)>,
    pub(super) tracer: Option<Box<Tracer>>,
    pub(super) unroutable: u64,
    pub(super) first_channel_source: usize,
}

impl Fabric {
    pub(super) fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// The source of scheduled actions, which is the last: nodes, channels and the middleboxes of each link
    /// come first.
    pub(super) fn agenda_source(&self) -> usize {
        self.first_channel_source + self.channels.len() + self.boxes.len()
    }

    /// The middleboxes of a link.
    pub(super) fn chain(&self, link: LinkId) -> Option<&Chain> {
        self.boxes[link.index()].as_ref().map(|boxes| &boxes.chain)
    }

    #[inline]
    pub(super) fn next_hop(&mut self, node: NodeId, src: IpAddr, dst: IpAddr) -> Option<ChannelId> {
        self.routes[node.index()].next_hop(&self.topology, node, src, dst)
    }

    /// Sends a packet of a host by the link that its source address names.
    #[inline(always)]
    pub(super) fn send_from(&mut self, node: NodeId, packet: Packet) {
        match self.next_hop(node, packet.ip.src, packet.ip.dst) {
            Some(channel) => self.transmit(channel, packet),
            None => self.unroutable += 1,
        }
    }

    /// Sends a packet over a channel.
    #[inline(always)]
    pub(super) fn transmit(&mut self, id: ChannelId, packet: Packet) {
        if self.tracer.is_some() {
            self.trace(id, &packet, false);
        }
        if self.channels[id.index()].boxes_at_entry {
            self.through_boxes(id, packet);
        } else {
            self.enter(id, packet);
        }
    }

    /// Hands a packet to a channel's link.
    #[inline(always)]
    fn enter(&mut self, id: ChannelId, packet: Packet) {
        let channel = &mut self.channels[id.index()];
        let Some(link) = &mut channel.link else {
            self.arrive(id, packet);
            return;
        };
        link.handle_packet(self.now, packet);
        while let Some(reply) = link.poll_reverse() {
            self.inbox.push_back((channel.from, reply));
        }
        self.calendar.set(self.first_channel_source + id.index(), link.poll_timeout());
    }

    /// A packet comes out of a link, by the way that minds middleboxes and traces.
    #[cold]
    pub(super) fn arrive(&mut self, id: ChannelId, packet: Packet) {
        if self.channels[id.index()].boxes_at_exit {
            self.through_boxes(id, packet);
            return;
        }
        if self.tracer.is_some() {
            self.trace(id, &packet, true);
        }
        self.inbox.push_back((self.channels[id.index()].to, packet));
    }

    /// The deadline of a channel came; returns whom it delivers to.
    #[inline]
    pub(super) fn channel_timeout(&mut self, id: ChannelId) -> NodeId {
        let channel = &mut self.channels[id.index()];
        if let Some(link) = &mut channel.link {
            link.handle_timeout(self.now);
        }
        channel.to
    }

    /// Nothing stands between the link and the node.
    #[inline]
    pub(super) fn delivers_directly(&self, id: ChannelId) -> bool {
        self.tracer.is_none() && !self.channels[id.index()].boxes_at_exit
    }

    /// The next packet that a channel's link delivers.
    #[inline(always)]
    pub(super) fn poll_link(&mut self, id: ChannelId) -> Option<Packet> {
        self.channels[id.index()].link.as_mut()?.poll_transmit(self.now)
    }

    #[inline]
    pub(super) fn refresh_channel(&mut self, id: ChannelId) {
        let deadline = self.channels[id.index()].link.as_mut().and_then(|link| link.poll_timeout());
        self.calendar.set(self.first_channel_source + id.index(), deadline);
    }

    /// Takes a packet through the middleboxes of its link. What comes out goes on in its direction: to the
    /// link if it is ahead, else to the node.
    fn through_boxes(&mut self, id: ChannelId, packet: Packet) {
        let Some(mut boxes) = self.boxes[id.link().index()].take() else { return };
        let direction = if id.is_forward() { Direction::Forward } else { Direction::Backward };
        boxes.chain.handle_packet(self.now, direction, packet, &mut boxes.outputs);
        self.settle_boxes(id.link(), boxes);
    }

    /// The deadline of a link's middleboxes came.
    pub(super) fn boxes_timeout(&mut self, link: LinkId) {
        let Some(mut boxes) = self.boxes[link.index()].take() else { return };
        boxes.chain.handle_timeout(self.now, &mut boxes.outputs);
        self.settle_boxes(link, boxes);
    }

    /// After middleboxes were called: what came out goes on, and their deadline is noted.
    fn settle_boxes(&mut self, link: LinkId, mut boxes: Box<Boxes>) {
        self.empty_boxes(link.forward(), &mut boxes);
        let source = self.first_channel_source + self.channels.len() + link.index();
        self.calendar.set(source, boxes.chain.poll_timeout());
        self.boxes[link.index()] = Some(boxes);
    }

    fn empty_boxes(&mut self, forward: ChannelId, boxes: &mut Boxes) {
        while let Some((direction, packet)) = boxes.outputs.pop() {
            let id = if direction == Direction::Forward { forward } else { forward.reversed() };
            if self.channels[id.index()].boxes_at_entry {
                self.enter(id, packet);
            } else {
                if self.tracer.is_some() {
                    self.trace(id, &packet, true);
                }
                self.inbox.push_back((self.channels[id.index()].to, packet));
            }
        }
    }

    pub(super) fn change(&mut self, id: ChannelId, change: Change) {
        if let Some(link) = &mut self.channels[id.index()].link {
            link.apply(self.now, change);
        }
        self.refresh_channel(id);
    }

    pub(super) fn stats(&self, id: ChannelId) -> ChannelStats {
        let Some(link) = &self.channels[id.index()].link else { return ChannelStats::default() };
        let stats = link.stats();
        ChannelStats {
            sent_packets: stats.sent_packets,
            sent_bytes: stats.sent_bytes,
            delivered_packets: stats.delivered_packets,
            delivered_bytes: stats.delivered_bytes,
            queue_drops: stats.queue_drops,
            lost_packets: stats.lost_packets,
            down_drops: stats.down_drops,
            too_big_drops: stats.too_big_drops,
        }
    }

    /// The address that a router's messages to `peer` come from: one of its own, or the dummy address for
    /// routers without one (RFC 7600 §4.8).
    pub(super) fn router_address(&self, node: NodeId, peer: IpAddr) -> Option<IpAddr> {
        let own = self.topology.addresses(node).into_iter().find(|addr| addr.is_ipv4() == peer.is_ipv4());
        own.or(peer.is_ipv4().then_some(IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8))))
    }

    #[cold]
    fn trace(&mut self, id: ChannelId, packet: &Packet, at_exit: bool) {
        let Some(tracer) = &mut self.tracer else { return };
        tracer.hash_packet(self.now, u64::from(id.0) << 1 | u64::from(at_exit), packet);
        // Packets are seen at the link's first node.
        if id.is_forward() != at_exit {
            let direction = if at_exit { PacketDirection::Inbound } else { PacketDirection::Outbound };
            tracer.see(self.now, Sighting { link: id.link().0, direction }, packet);
        }
    }
}
