use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use polypath_link::middlebox::{Chain, Outputs};
use polypath_link::{Link, LinkConfig};
use polypath_mptcp::{Host, HostConfig};
use polypath_units::BitRate;

use super::fabric::{Boxes, Channel, Fabric};
use super::topology::{End, RouteCache};
use super::{HostNode, LinkId, Network, Node, NodeId, NodeKind, Prefix, RouterStats, Topology};
use crate::calendar::Calendar;
use crate::trace::{Interface, TraceOutputs, Tracer};

/// Where on a link its middleboxes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BoxPosition {
    /// At the first node: before the forward link, behind the backward one.
    #[default]
    First,
    /// At the second node.
    Second,
}

/// A duplex link between two nodes.
#[derive(Debug)]
pub struct LinkSpec {
    /// Shown in traces and results.
    pub name: String,
    /// The two nodes.
    pub nodes: [NodeId; 2],
    /// Their addresses on this link; routers need none. A node may have one address on several links.
    pub addrs: [Option<IpAddr>; 2],
    /// From the first node to the second; `None` passes everything at once.
    pub forward: Option<LinkConfig>,
    /// From the second node to the first.
    pub backward: Option<LinkConfig>,
    /// Middleboxes.
    pub boxes: Option<(BoxPosition, Chain)>,
}

impl LinkSpec {
    /// A link that passes everything at once.
    pub fn new(name: impl Into<String>, nodes: [NodeId; 2], addrs: [Option<IpAddr>; 2]) -> Self {
        Self { name: name.into(), nodes, addrs, forward: None, backward: None, boxes: None }
    }

    /// The same with a link in each direction.
    #[must_use]
    pub fn with(mut self, forward: LinkConfig, backward: LinkConfig) -> Self {
        self.forward = Some(forward);
        self.backward = Some(backward);
        self
    }

    /// The same with middleboxes.
    #[must_use]
    pub fn with_boxes(mut self, position: BoxPosition, chain: Chain) -> Self {
        self.boxes = Some((position, chain));
        self
    }
}

/// Puts a network together.
#[derive(Debug)]
pub struct NetworkBuilder {
    seed: u64,
    nodes: Vec<(String, NodeKind)>,
    topology: Topology,
    links: Vec<LinkSpec>,
}

impl NetworkBuilder {
    /// An empty network; everything random in it follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed, nodes: Vec::new(), topology: Topology::default(), links: Vec::new() }
    }

    /// A seed for part number `part` of a kind; parts of equal seeds would be in step with each other.
    fn seed_of(&self, kind: u64, part: u64) -> u64 {
        let mut hash = crate::trace::TraceHash::default();
        hash.add(self.seed);
        hash.add(kind);
        hash.add(part);
        hash.value()
    }

    fn add_node(&mut self, name: impl Into<String>, kind: NodeKind) -> NodeId {
        let forwards = matches!(kind, NodeKind::Router(_));
        self.nodes.push((name.into(), kind));
        self.topology.add_node(forwards)
    }

    /// Adds a Multipath TCP host.
    pub fn host(&mut self, name: impl Into<String>, config: HostConfig) -> NodeId {
        let seed = self.seed_of(1, self.nodes.len() as u64);
        let host = HostNode::new(Host::new(config, seed));
        self.add_node(name, NodeKind::Mptcp(Box::new(host)))
    }

    /// Adds a plain TCP host.
    pub fn tcp_host(&mut self, name: impl Into<String>, config: polypath_tcp::HostConfig) -> NodeId {
        let seed = self.seed_of(1, self.nodes.len() as u64);
        let host = HostNode::new(polypath_tcp::Host::new(config, seed));
        self.add_node(name, NodeKind::Tcp(Box::new(host)))
    }

    /// Adds a router.
    pub fn router(&mut self, name: impl Into<String>) -> NodeId {
        self.add_node(name, NodeKind::Router(RouterStats::default()))
    }

    /// Adds a node of any other kind. It forwards nothing.
    pub fn custom(&mut self, name: impl Into<String>, node: Box<dyn Node>) -> NodeId {
        self.add_node(name, NodeKind::Custom(node))
    }

    /// Adds a link.
    pub fn link(&mut self, spec: LinkSpec) -> LinkId {
        let [first, second] = [0, 1].map(|end| End { node: spec.nodes[end], addr: spec.addrs[end] });
        self.links.push(spec);
        self.topology.add_link([first, second])
    }

    /// Adds a static route: `node` sends what goes to `prefix` over `link`. The longest prefix wins, and any
    /// static route goes before the shortest way, which is what counts elsewhere.
    pub fn route(&mut self, node: NodeId, prefix: Prefix, link: LinkId) {
        let forward = link.forward();
        let channel = if self.topology.from(forward).node == node { forward } else { link.backward() };
        self.topology.add_route(node, prefix, channel);
    }

    /// A tracer for the links of this network.
    ///
    /// # Errors
    /// What the outputs report.
    pub fn tracer(&self, outputs: TraceOutputs) -> std::io::Result<Box<Tracer>> {
        let interfaces: Vec<Interface> = self.links.iter().map(|link| self.interface(link)).collect();
        Tracer::new(&interfaces, outputs).map(Box::new)
    }

    /// The links so far: name, and rate in each direction.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&str, [Option<BitRate>; 2])> {
        let rate = |config: &Option<LinkConfig>| config.as_ref().and_then(|config| config.rate);
        self.links.iter().map(move |link| (link.name.as_str(), [rate(&link.forward), rate(&link.backward)]))
    }

    fn interface(&self, link: &LinkSpec) -> Interface {
        let [first, second] = link.nodes.map(|node| self.nodes[node.index()].0.as_str());
        Interface {
            name: link.name.clone(),
            description: format!("{first} - {second}, seen at {first}"),
            speed: link.forward.as_ref().and_then(|config| config.rate),
        }
    }

    /// The network, at time zero.
    pub fn build(mut self) -> Network {
        let mut channels = Vec::with_capacity(2 * self.links.len());
        let mut boxes = Vec::with_capacity(self.links.len());
        for (index, mut spec) in std::mem::take(&mut self.links).into_iter().enumerate() {
            let position = spec.boxes.as_ref().map(|(position, _)| *position);
            let configs = [spec.forward.take(), spec.backward.take()];
            for (direction, config) in configs.into_iter().enumerate() {
                let seed = self.seed_of(2, 2 * index as u64 + direction as u64);
                let at_start = match direction {
                    0 => BoxPosition::First,
                    _ => BoxPosition::Second,
                };
                channels.push(Channel {
                    link: config.map(|config| Box::new(Link::new(config, seed))),
                    from: spec.nodes[direction],
                    to: spec.nodes[1 - direction],
                    boxes_at_entry: position == Some(at_start),
                    boxes_at_exit: position.is_some_and(|position| position != at_start),
                });
            }
            boxes.push(spec.boxes.map(|(_, chain)| Box::new(Boxes { chain, outputs: Outputs::default() })));
        }
        let node_count = self.nodes.len();
        let mut calendar = Calendar::new(node_count + channels.len() + boxes.len() + 1);
        let (names, nodes): (Vec<String>, Vec<NodeKind>) = self.nodes.into_iter().unzip();
        // A custom node may have something to do from the start.
        for (index, node) in nodes.iter().enumerate() {
            if matches!(node, NodeKind::Custom(_)) {
                calendar.set(index, Some(polypath_units::Instant::ZERO));
            }
        }
        Network {
            names,
            fabric: Fabric {
                now: polypath_units::Instant::ZERO,
                topology: self.topology,
                calendar,
                channels,
                boxes,
                routes: (0..node_count).map(|_| RouteCache::new()).collect(),
                inbox: VecDeque::new(),
                tracer: None,
                unroutable: 0,
                first_channel_source: node_count,
            },
            nodes,
            agenda: BTreeMap::new(),
            scheduled: 0,
            events: 0,
        }
    }
}
