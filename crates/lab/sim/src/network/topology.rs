//! Nodes, links and the ways between them.

use std::collections::VecDeque;
use std::net::IpAddr;

/// Number of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

/// Number of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u32);

/// One direction of a link: channel 2n goes from the first node of link n to the second, 2n + 1 back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub(crate) u32);

impl NodeId {
    /// The number itself: nodes count from zero in the order of their addition.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// The number itself: links count from zero in the order of their addition.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// From the first node to the second.
    pub const fn forward(self) -> ChannelId {
        ChannelId(self.0 * 2)
    }

    /// From the second node to the first.
    pub const fn backward(self) -> ChannelId {
        ChannelId(self.0 * 2 + 1)
    }
}

impl ChannelId {
    /// The number itself.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The link that this is a direction of.
    pub const fn link(self) -> LinkId {
        LinkId(self.0 / 2)
    }

    /// The other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self(self.0 ^ 1)
    }

    pub(crate) const fn is_forward(self) -> bool {
        self.0 & 1 == 0
    }
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// An address with these bits.
    pub addr: IpAddr,
    /// How many bits count, 0–32 or 0–128.
    pub len: u8,
}

impl Prefix {
    /// One address.
    pub const fn host(addr: IpAddr) -> Self {
        Self { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
    }

    /// True if `addr` is of the same family and begins with these bits.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(32 - u32::from(self.len.min(32))).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(128 - u32::from(self.len.min(128))).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl std::str::FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (addr, len) = text.split_once('/').map_or((text, None), |(addr, len)| (addr, Some(len)));
        let addr: IpAddr = addr.parse().map_err(|_| format!("\"{addr}\" is no IP address"))?;
        let whole = Self::host(addr);
        match len {
            None => Ok(whole),
            Some(len) => match len.parse() {
                Ok(len) if len <= whole.len => Ok(Self { addr, len }),
                _ => Err(format!("\"/{len}\" is no prefix length of at most {}", whole.len)),
            },
        }
    }
}

/// One end of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) node: NodeId,
    pub(crate) addr: Option<IpAddr>,
}

#[derive(Clone, Debug)]
struct Vertex {
    forwards: bool,
    // Channels that leave the node.
    channels: Vec<ChannelId>,
    static_routes: Vec<(Prefix, ChannelId)>,
}

/// The graph of nodes and links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    vertices: Vec<Vertex>,
    links: Vec<[End; 2]>,
}

impl Topology {
    pub(crate) fn add_node(&mut self, forwards: bool) -> NodeId {
        self.vertices.push(Vertex { forwards, channels: Vec::new(), static_routes: Vec::new() });
        NodeId(self.vertices.len() as u32 - 1)
    }

    pub(crate) fn add_link(&mut self, ends: [End; 2]) -> LinkId {
        let link = LinkId(self.links.len() as u32);
        self.links.push(ends);
        for (end, channel) in ends.iter().zip([link.forward(), link.backward()]) {
            self.vertices[end.node.index()].channels.push(channel);
        }
        link
    }

    pub(crate) fn add_route(&mut self, node: NodeId, prefix: Prefix, channel: ChannelId) {
        let routes = &mut self.vertices[node.index()].static_routes;
        routes.push((prefix, channel));
        // Longest prefix first; among equals, the first added.
        routes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len));
    }

    pub(crate) fn from(&self, channel: ChannelId) -> End {
        self.links[channel.link().index()][usize::from(!channel.is_forward())]
    }

    pub(crate) fn to(&self, channel: ChannelId) -> End {
        self.from(channel.reversed())
    }

    /// The channels that leave `node`.
    pub(crate) fn channels(&self, node: NodeId) -> &[ChannelId] {
        &self.vertices[node.index()].channels
    }

    /// The addresses of `node`, each once, in the order of its links.
    pub(crate) fn addresses(&self, node: NodeId) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for channel in self.channels(node) {
            if let Some(addr) = self.from(*channel).addr
                && !addresses.contains(&addr)
            {
                addresses.push(addr);
            }
        }
        addresses
    }

    /// True if `node` has `addr`.
    pub(crate) fn owns(&self, node: NodeId, addr: IpAddr) -> bool {
        self.channels(node).iter().any(|channel| self.from(*channel).addr == Some(addr))
    }

    /// The channel by which `node` sends a packet from `src` to `dst`, or `None` if there is no way.
    ///
    /// A host leaves by a link that owns the source address, as multipath needs; of several such links, or
    /// where none owns it, by the one from which the way is shortest.
    pub(crate) fn next_hop(&self, node: NodeId, src: IpAddr, dst: IpAddr) -> Option<ChannelId> {
        let vertex = &self.vertices[node.index()];
        if let Some((_, channel)) = vertex.static_routes.iter().find(|(prefix, _)| prefix.contains(dst)) {
            return Some(*channel);
        }
        let owning: Vec<ChannelId> = if vertex.forwards {
            Vec::new()
        } else {
            vertex.channels.iter().copied().filter(|channel| self.from(*channel).addr == Some(src)).collect()
        };
        let candidates = if owning.is_empty() { &vertex.channels } else { &owning };
        let distances = self.distances_to(dst);
        let hops = |channel: ChannelId| {
            let end = self.to(channel);
            if end.addr == Some(dst) {
                return Some(0);
            }
            // A neighbour that has the address on another of its links takes the packet as well, if there is
            // no way over the link of that address.
            let detour = self.owns(end.node, dst).then_some(u32::MAX);
            distances[end.node.index()].map(|hops| hops + 1).or(detour)
        };
        candidates
            .iter()
            .filter_map(|channel| hops(*channel).map(|hops| (hops, *channel)))
            .min()
            .map(|(_, c)| c)
    }

    /// Hops from each router to the link end that has `dst`.
    fn distances_to(&self, dst: IpAddr) -> Vec<Option<u32>> {
        let mut distances = vec![None; self.vertices.len()];
        let mut queue = VecDeque::new();
        for ends in &self.links {
            for (end, neighbour) in [(ends[0], ends[1]), (ends[1], ends[0])] {
                if end.addr == Some(dst)
                    && self.vertices[neighbour.node.index()].forwards
                    && distances[neighbour.node.index()].is_none()
                {
                    distances[neighbour.node.index()] = Some(1);
                    queue.push_back(neighbour.node);
                }
            }
        }
        while let Some(node) = queue.pop_front() {
            let hops = distances[node.index()].unwrap_or(0);
            for channel in self.channels(node) {
                let next = self.to(*channel).node;
                if self.vertices[next.index()].forwards && distances[next.index()].is_none() {
                    distances[next.index()] = Some(hops + 1);
                    queue.push_back(next);
                }
            }
        }
        distances
    }

    /// True if a packet from `src` at `node` reaches a node that has `dst`.
    pub(crate) fn reaches(&self, node: NodeId, src: IpAddr, dst: IpAddr) -> bool {
        let mut at = node;
        for _ in 0..=self.vertices.len() {
            if self.owns(at, dst) {
                return true;
            }
            if at != node && !self.vertices[at.index()].forwards {
                return false;
            }
            let Some(channel) = self.next_hop(at, src, dst) else { return false };
            at = self.to(channel).node;
        }
        false
    }
}

/// Next hops of one node, remembered by the low bits of the addresses, so that a packet costs one comparison.
#[derive(Debug)]
pub(crate) struct RouteCache {
    slots: Vec<Option<Cached>>,
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    src: IpAddr,
    dst: IpAddr,
    channel: ChannelId,
}

const CACHE_SLOTS: usize = 256;

impl RouteCache {
    pub(crate) fn new() -> Self {
        Self { slots: vec![None; CACHE_SLOTS] }
    }

    fn slot(src: IpAddr, dst: IpAddr) -> usize {
        let low = |addr| match addr {
            IpAddr::V4(addr) => std::net::Ipv4Addr::to_bits(addr),
            IpAddr::V6(addr) => addr.to_bits() as u32,
        };
        // Addresses of one run differ in their last two bytes mostly.
        let mixed = low(src).wrapping_mul(0x9e37_79b1) ^ low(dst).wrapping_mul(0x85eb_ca6b);
        (mixed >> 24) as usize
    }

    /// The next hop, looked up in `topology` at the first packet.
    #[inline]
    pub(crate) fn next_hop(
        &mut self,
        topology: &Topology,
        node: NodeId,
        src: IpAddr,
        dst: IpAddr,
    ) -> Option<ChannelId> {
        let slot = &mut self.slots[Self::slot(src, dst)];
        if let Some(cached) = slot
            && cached.src == src
            && cached.dst == dst
        {
            return Some(cached.channel);
        }
        let channel = topology.next_hop(node, src, dst)?;
        *slot = Some(Cached { src, dst, channel });
        Some(channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn end(node: NodeId, addr: &str) -> End {
        End { node, addr: (!addr.is_empty()).then(|| ip(addr)) }
    }

    #[test]
    fn prefixes_match_their_bits_only() {
        let prefix: Prefix = "10.1.0.0/16".parse().unwrap();
        assert!(prefix.contains(ip("10.1.200.3")));
        assert!(!prefix.contains(ip("10.2.0.1")));
        assert!("0.0.0.0/0".parse::<Prefix>().unwrap().contains(ip("1.2.3.4")));
        assert!(!"0.0.0.0/0".parse::<Prefix>().unwrap().contains(ip("::1")));
        assert!("2001:db8::/32".parse::<Prefix>().unwrap().contains(ip("2001:db8:1::1")));
        assert!("10.0.0.0/33".parse::<Prefix>().is_err());
        assert!("ten/8".parse::<Prefix>().is_err());
    }

    #[test]
    fn a_host_leaves_by_the_link_of_its_source_and_routers_take_the_shortest_way() {
        // client - r1 - r2 - server, and client - r2; the server has one address, and r3 is alone.
        let mut topology = Topology::default();
        let client = topology.add_node(false);
        let server = topology.add_node(false);
        let [r1, r2, r3] = [0; 3].map(|_| topology.add_node(true));
        let first = topology.add_link([end(client, "10.0.1.1"), end(r1, "")]);
        let second = topology.add_link([end(client, "10.0.2.1"), end(r2, "")]);
        let middle = topology.add_link([end(r1, ""), end(r2, "")]);
        let last = topology.add_link([end(r2, ""), end(server, "10.0.9.1")]);
        let dst = ip("10.0.9.1");
        assert_eq!(topology.next_hop(client, ip("10.0.1.1"), dst), Some(first.forward()));
        assert_eq!(topology.next_hop(client, ip("10.0.2.1"), dst), Some(second.forward()));
        assert_eq!(topology.next_hop(client, ip("192.0.2.1"), dst), Some(second.forward()));
        assert_eq!(topology.next_hop(r1, ip("10.0.1.1"), dst), Some(middle.forward()));
        assert_eq!(topology.next_hop(r2, dst, ip("10.0.1.1")), Some(middle.backward()));
        assert_eq!(topology.next_hop(server, dst, ip("10.0.2.1")), Some(last.backward()));
        assert!(topology.reaches(server, dst, ip("10.0.1.1")));
        assert!(!topology.reaches(client, ip("10.0.1.1"), ip("10.0.7.7")));
        assert_eq!(topology.next_hop(r3, dst, dst), None);

        topology.add_route(r1, "10.0.9.0/24".parse().unwrap(), first.backward());
        assert_eq!(topology.next_hop(r1, ip("10.0.1.1"), dst), Some(first.backward()));
        assert!(!topology.reaches(client, ip("10.0.1.1"), dst));
    }

    #[test]
    fn a_host_with_one_address_on_two_links_answers_by_the_link_that_the_peer_is_on() {
        let mut topology = Topology::default();
        let client = topology.add_node(false);
        let server = topology.add_node(false);
        let links = ["10.0.1.1", "10.0.2.1"]
            .map(|addr| topology.add_link([end(client, addr), end(server, "10.0.9.1")]));
        let mut cache = RouteCache::new();
        for _ in 0..2 {
            for (link, addr) in links.iter().zip(["10.0.1.1", "10.0.2.1"]) {
                let hop = cache.next_hop(&topology, server, ip("10.0.9.1"), ip(addr));
                assert_eq!(hop, Some(link.backward()));
                let hop = cache.next_hop(&topology, client, ip(addr), ip("10.0.9.1"));
                assert_eq!(hop, Some(link.forward()));
            }
        }
        assert_eq!(topology.addresses(server), [ip("10.0.9.1")]);
        assert_eq!(topology.addresses(client), [ip("10.0.1.1"), ip("10.0.2.1")]);
    }
}
