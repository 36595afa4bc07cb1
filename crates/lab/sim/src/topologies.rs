//! Networks of the usual shapes.

use std::net::{IpAddr, Ipv4Addr};

use polypath_link::LinkConfig;
use polypath_link::middlebox::Chain;
use polypath_mptcp::HostConfig;
use polypath_mptcp::path_manager::LocalEndpoint;

use crate::network::{BoxPosition, LinkId, LinkSpec, NetworkBuilder, NodeId};

/// A path between two hosts.
#[derive(Debug)]
pub struct PathConfig {
    /// Shown in traces and results.
    pub name: String,
    /// From client to server.
    pub up: LinkConfig,
    /// From server to client.
    pub down: LinkConfig,
    /// Middleboxes.
    pub boxes: Option<(BoxPosition, Chain)>,
}

impl PathConfig {
    /// A path that is the same in both directions.
    pub fn symmetric(name: impl Into<String>, link: LinkConfig) -> Self {
        Self { name: name.into(), up: link.clone(), down: link, boxes: None }
    }
}

/// A client and a server with links between them, one for each path. The client has an address on each; the
/// server has one address, as behind a provider's network.
#[derive(Clone, Debug)]
pub struct ParallelPaths {
    /// The host with an address for each path.
    pub client: NodeId,
    /// The host with one address.
    pub server: NodeId,
    /// The client's addresses, by path.
    pub client_addrs: Vec<IpAddr>,
    /// The server's address.
    pub server_addr: IpAddr,
    /// The links, by path, from client to server.
    pub links: Vec<LinkId>,
}

/// A network of parallel paths between two hosts and nothing else; see [`add_parallel_paths`].
pub fn parallel_paths(
    seed: u64,
    paths: impl IntoIterator<Item = PathConfig>,
    client: HostConfig,
    server: HostConfig,
) -> (NetworkBuilder, ParallelPaths) {
    let mut builder = NetworkBuilder::new(seed);
    let net = add_parallel_paths(&mut builder, 0, paths, client, server);
    (builder, net)
}

/// Adds parallel paths between two new hosts; `number` sets their addresses apart from those of other pairs.
/// The client's addresses become endpoints of its path manager with `subflow` and `fullmesh`, unless it has
/// endpoints of its own.
pub fn add_parallel_paths(
    builder: &mut NetworkBuilder,
    number: usize,
    paths: impl IntoIterator<Item = PathConfig>,
    mut client: HostConfig,
    server: HostConfig,
) -> ParallelPaths {
    let paths: Vec<PathConfig> = paths.into_iter().collect();
    let addr = |host: usize| {
        let net = 10 << 24 | (number as u32 & 0xffff) << 8;
        IpAddr::V4(Ipv4Addr::from_bits(net | host as u32))
    };
    let server_addr = addr(1);
    let client_addrs: Vec<IpAddr> = (0..paths.len()).map(|path| addr(2 + path)).collect();
    if client.endpoints.is_empty() {
        client.endpoints =
            (1..).zip(&client_addrs).map(|(id, addr)| LocalEndpoint::subflow(*addr, id)).collect();
    }
    let client = builder.host(format!("client {number}"), client);
    let server = builder.host(format!("server {number}"), server);
    let mut links = Vec::with_capacity(paths.len());
    for (path, addr) in paths.into_iter().zip(&client_addrs) {
        let mut spec = LinkSpec::new(path.name, [client, server], [Some(*addr), Some(server_addr)])
            .with(path.up, path.down);
        spec.boxes = path.boxes;
        links.push(builder.link(spec));
    }
    ParallelPaths { client, server, client_addrs, server_addr, links }
}

/// Pairs of hosts whose traffic shares one link: `left[i]` talks to `right[i]` over two routers.
#[derive(Debug)]
pub struct Dumbbell {
    /// The network; more can be added to it.
    pub builder: NetworkBuilder,
    /// The hosts on the left, and their addresses.
    pub left: Vec<(NodeId, IpAddr)>,
    /// The hosts on the right, and their addresses.
    pub right: Vec<(NodeId, IpAddr)>,
    /// The shared link, from the left router to the right one.
    pub bottleneck: LinkId,
}

/// A dumbbell with a pair of hosts for each entry of `access`, which is the link of both hosts to their
/// routers.
pub fn dumbbell(
    seed: u64,
    bottleneck: LinkConfig,
    access: impl IntoIterator<Item = LinkConfig>,
    config: &HostConfig,
) -> Dumbbell {
    let mut builder = NetworkBuilder::new(seed);
    let routers = [builder.router("left"), builder.router("right")];
    let shared = LinkSpec::new("bottleneck", routers, [None, None]).with(bottleneck.clone(), bottleneck);
    let bottleneck = builder.link(shared);
    let mut sides = [Vec::new(), Vec::new()];
    for (pair, link) in access.into_iter().enumerate() {
        for (side, name) in ["left", "right"].iter().enumerate() {
            let host = builder.host(format!("{name} {pair}"), config.clone());
            let addr = IpAddr::V4(Ipv4Addr::new(10, 1 + side as u8, (pair >> 8) as u8, 1 + pair as u8));
            let spec =
                LinkSpec::new(format!("{name} access {pair}"), [host, routers[side]], [Some(addr), None]);
            builder.link(spec.with(link.clone(), link.clone()));
            sides[side].push((host, addr));
        }
    }
    let [left, right] = sides;
    Dumbbell { builder, left, right, bottleneck }
}
