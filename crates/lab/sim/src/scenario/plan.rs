//! What a scenario file means: names resolved, defaults filled in, contradictions found.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use polypath_config::{FileError, FileErrorKind, Policies, Source};
use polypath_mptcp::path_manager::{Budget, Limits, LocalEndpoint};
use polypath_mptcp::{ConnectionConfig, HostConfig, LiaOnSharedAccess};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::{Endpoint, MptcpVersion};

use super::check::Check;
use super::defaults::{FIRST_PORT, SAMPLE_INTERVAL};
use super::file::{ConnectionFile, DirectionWord, File, HostFile};
use super::links::LinkPlan;
use super::outputs::Outputs;
use crate::network::{Prefix, Topology};
use polypath_config::quantity::Amount;

/// A scenario that makes sense.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) duration: Duration,
    pub(super) seed: u64,
    pub(super) sample_interval: Duration,
    /// Hosts first, then routers.
    pub(super) nodes: Vec<NodePlan>,
    pub(super) links: Vec<LinkPlan>,
    pub(super) routes: Vec<RoutePlan>,
    pub(super) connections: Vec<ConnectionPlan>,
    pub(super) outputs: Outputs,
}

#[derive(Clone, Debug)]
pub(super) struct NodePlan {
    pub(super) name: String,
    /// `None` for a router.
    pub(super) host: Option<HostConfig>,
}

#[derive(Clone, Debug)]
pub(super) struct RoutePlan {
    pub(super) node: usize,
    pub(super) prefix: Prefix,
    pub(super) link: usize,
}

#[derive(Clone, Debug)]
pub(super) struct ConnectionPlan {
    pub(super) name: String,
    /// Nodes: who opens, who accepts.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) local: IpAddr,
    pub(super) remote: Endpoint,
    pub(super) upload: bool,
    pub(super) download: bool,
    /// Bytes each way; `u64::MAX` for unlimited.
    pub(super) bytes: u64,
    pub(super) blocks: Option<(u64, BitRate)>,
    pub(super) start: Instant,
    pub(super) stop: Option<Instant>,
    pub(super) config: Arc<ConnectionConfig>,
}

impl Plan {
    pub(super) fn new(source: Source<'_>, file: &File, policies: &Policies) -> Result<Self, FileError> {
        let check = Check { source, file, policies };
        if file.duration.0.is_zero() {
            return Err(check.wrong("duration", "is zero; expected a time such as \"60s\""));
        }
        if file.sample_interval.is_some_and(|interval| interval.0.is_zero()) {
            return Err(check.wrong("sample-interval", "is zero; expected a time such as \"100ms\""));
        }
        check.names()?;
        let mut nodes = check.node_names();
        let links = check.links()?;
        let topology = check.topology(&nodes, &links);
        let routes = check.routes(&links)?;
        let mut topology_with_routes = topology;
        for route in &routes {
            let forward = crate::network::LinkId(route.link as u32).forward();
            let from_first = topology_with_routes.from(forward).node.index() == route.node;
            let channel = if from_first { forward } else { forward.reversed() };
            topology_with_routes.add_route(crate::network::NodeId(route.node as u32), route.prefix, channel);
        }
        let connections = check.connections(&topology_with_routes)?;
        for (index, host) in file.hosts.iter().enumerate() {
            let mut config = check.host_config(index, host, &topology_with_routes)?;
            // What a host accepts gets the settings of the first connection that it accepts.
            if let Some(accepted) = connections.iter().find(|connection| connection.to == index) {
                config.connection = accepted.config.clone();
            }
            nodes[index].host = Some(config);
        }
        let stem = Path::new(source.file)
            .file_stem()
            .map_or_else(|| "scenario".into(), |stem| stem.to_string_lossy());
        Ok(Self {
            name: file.name.clone().unwrap_or_else(|| stem.into_owned()),
            duration: file.duration.0,
            seed: file.seed,
            sample_interval: file.sample_interval.map_or(SAMPLE_INTERVAL, |interval| interval.0),
            nodes,
            links,
            routes,
            connections,
            outputs: Outputs {
                json: file.output.json.clone(),
                pcap: file.output.pcap.clone(),
                qlog: file.output.qlog.clone(),
                trace: file.output.trace.clone(),
                report: file.output.report.clone(),
            },
        })
    }
}

impl Check<'_> {
    fn node_names(&self) -> Vec<NodePlan> {
        let hosts = self.file.hosts.iter().map(|host| &host.name);
        let routers = self.file.routers.iter().map(|router| &router.name);
        hosts.chain(routers).map(|name| NodePlan { name: name.clone(), host: None }).collect()
    }

    fn topology(&self, nodes: &[NodePlan], links: &[LinkPlan]) -> Topology {
        let mut topology = Topology::default();
        for index in 0..nodes.len() {
            topology.add_node(index >= self.file.hosts.len());
        }
        for link in links {
            topology.add_link(link.ends());
        }
        topology
    }

    fn routes(&self, links: &[LinkPlan]) -> Result<Vec<RoutePlan>, FileError> {
        let mut plans = Vec::new();
        for (router, file) in self.file.routers.iter().enumerate() {
            let node = self.file.hosts.len() + router;
            for (index, route) in file.routes.iter().enumerate() {
                let key = |field: &str| format!("routers[{router}].routes[{index}].{field}");
                let prefix: Prefix = route.to.parse().map_err(|reason| {
                    self.wrong(key("to"), format!("{reason}; expected a prefix such as \"10.1.0.0/16\""))
                })?;
                let via = self.node(&key("via"), &route.via)?;
                let is_between = |link: &LinkPlan| link.nodes == [node, via] || link.nodes == [via, node];
                let link = links.iter().position(is_between).ok_or_else(|| {
                    let message =
                        format!("\"{}\" is no neighbour; expected a node with a link to it", route.via);
                    self.wrong(key("via"), message)
                })?;
                plans.push(RoutePlan { node, prefix, link });
            }
        }
        Ok(plans)
    }

    fn host_config(
        &self,
        index: usize,
        host: &HostFile,
        topology: &Topology,
    ) -> Result<HostConfig, FileError> {
        let node = crate::network::NodeId(index as u32);
        let addresses = topology.addresses(node);
        if addresses.is_empty() {
            let message = "is at no link; expected a link with it in `between`";
            return Err(self.wrong(format!("hosts[{index}].name"), message));
        }
        let mut endpoints = Vec::new();
        if let Some(listed) = &host.endpoints {
            for (number, endpoint) in listed.iter().enumerate() {
                let key = |field: &str| format!("hosts[{index}].endpoints[{number}].{field}");
                if !addresses.contains(&endpoint.address) {
                    let message = format!(
                        "{} is no address of \"{}\"; expected one of its links'",
                        endpoint.address, host.name
                    );
                    return Err(self.wrong(key("address"), message));
                }
                let mut local = LocalEndpoint::subflow(endpoint.address, number as u8 + 1);
                (local.subflow, local.fullmesh, local.port) = (false, false, endpoint.port);
                local.priority = endpoint.priority.unwrap_or(0);
                let is_hard = endpoint.hard.unwrap_or(false);
                local.budget = endpoint.budget.map(|budget| Budget { bytes: budget.0, is_hard, pool: 0 });
                if endpoint.hard.is_some() && endpoint.budget.is_none() {
                    return Err(self.wrong(key("hard"), "comes without `budget`; expected both"));
                }
                for (position, flag) in endpoint.flags.iter().enumerate() {
                    match flag.as_str() {
                        "signal" => local.signal = true,
                        "subflow" => local.subflow = true,
                        "backup" => local.backup = true,
                        "fullmesh" => local.fullmesh = true,
                        _ => {
                            let known = ["signal", "subflow", "backup", "fullmesh"];
                            let key = format!("{}[{position}]", key("flags"));
                            return Err(self.unknown(key, "flag", flag, known));
                        }
                    }
                }
                endpoints.push(local);
            }
        } else if self.opens(host) {
            endpoints.extend((1..).zip(&addresses).map(|(id, addr)| LocalEndpoint::subflow(*addr, id)));
        } else if addresses.len() > 1 {
            endpoints.extend((1..).zip(&addresses).map(|(id, addr)| LocalEndpoint::signal(*addr, id)));
        }
        let default = Limits::default();
        let limits = Limits {
            subflows: host.limits.subflows.unwrap_or(default.subflows),
            add_addr_accepted: host.limits.add_addr_accepted.unwrap_or(default.add_addr_accepted),
        };
        Ok(HostConfig { endpoints, limits, ..HostConfig::default() })
    }

    fn connections(&self, topology: &Topology) -> Result<Vec<ConnectionPlan>, FileError> {
        if self.file.connections.is_empty() {
            return Err(self.wrong("connections", "is empty; expected a connection at least"));
        }
        let mut plans: Vec<ConnectionPlan> = Vec::new();
        for (index, file) in self.file.connections.iter().enumerate() {
            let plan = self.connection(index, file, topology)?;
            let taken = plans.iter().position(|other| (other.to, other.remote) == (plan.to, plan.remote));
            if let Some(other) = taken {
                let message = format!(
                    "port {} of \"{}\" is taken by connections[{other}]; expected a port of its own",
                    plan.remote.port, file.to
                );
                return Err(self.wrong(format!("connections[{index}].port"), message));
            }
            plans.push(plan);
        }
        Ok(plans)
    }

    fn connection(
        &self,
        index: usize,
        file: &ConnectionFile,
        topology: &Topology,
    ) -> Result<ConnectionPlan, FileError> {
        let key = |field: &str| format!("connections[{index}].{field}");
        let from = self.host(&key("from"), &file.from)?;
        let to = self.host(&key("to"), &file.to)?;
        if from == to {
            return Err(
                self.wrong(key("to"), format!("\"{}\" is also `from`; expected another host", file.to))
            );
        }
        let [from_node, to_node] = [from, to].map(|node| crate::network::NodeId(node as u32));
        let locals = topology.addresses(from_node);
        if let Some(local) = file.local.filter(|local| !locals.contains(local)) {
            let message = format!("{local} is no address of \"{}\"; expected one of its links'", file.from);
            return Err(self.wrong(key("local"), message));
        }
        let reachable = |local: &IpAddr| {
            topology.addresses(to_node).into_iter().map(move |remote| (*local, remote)).find(
                |(local, remote)| {
                    local.is_ipv4() == remote.is_ipv4()
                        && topology.reaches(from_node, *local, *remote)
                        && topology.reaches(to_node, *remote, *local)
                },
            )
        };
        let chosen =
            file.local.iter().chain(locals.iter().filter(|_| file.local.is_none())).find_map(reachable);
        let Some((local, remote)) = chosen else {
            let message = format!(
                "no route from \"{}\" to \"{}\" and back; expected links that join them",
                file.from, file.to
            );
            return Err(self.source.error(FileErrorKind::NoRoute, key("to"), message));
        };
        let port = file.port.unwrap_or(FIRST_PORT.wrapping_add(index as u16));
        if port == 0 {
            return Err(self.wrong(key("port"), "is 0; expected 1 to 65535"));
        }
        let start = Instant::ZERO + file.start.map_or(Duration::ZERO, |start| start.0);
        if start.since(Instant::ZERO) >= self.file.duration.0 {
            return Err(
                self.wrong(key("start"), "is not before the end of the run; expected less than `duration`")
            );
        }
        let stop = file.stop.map(|stop| Instant::ZERO + stop.0);
        if stop.is_some_and(|stop| stop <= start) {
            return Err(self.wrong(key("stop"), "is not after `start`; expected a later time"));
        }
        let blocks = self.blocks(index, file)?;
        let bytes = match file.bytes {
            Some(Amount::Bytes(bytes)) => bytes,
            Some(Amount::Unlimited) | None => u64::MAX,
        };
        Ok(ConnectionPlan {
            name: file.name.clone().unwrap_or_else(|| format!("{} to {}", file.from, file.to)),
            from,
            to,
            local,
            remote: Endpoint::new(remote, port),
            upload: file.direction != DirectionWord::Download,
            download: file.direction != DirectionWord::Upload,
            bytes,
            blocks,
            start,
            stop,
            config: Arc::new(self.connection_config(index, file)?),
        })
    }

    /// Size and rate of the blocks in which data is written, if it is.
    fn blocks(&self, index: usize, file: &ConnectionFile) -> Result<Option<(u64, BitRate)>, FileError> {
        let wrong = |field: &str, message| self.wrong(format!("connections[{index}].{field}"), message);
        match (file.block, file.block_rate) {
            (None, None) => Ok(None),
            (Some(block), Some(rate)) if block.0 > 0 => Ok(Some((block.0, rate.0))),
            (Some(_), Some(_)) => Err(wrong("block", "is zero; expected a size such as \"8KB\"")),
            (Some(_), None) => Err(wrong("block", "comes without `block-rate`; expected both")),
            (None, Some(_)) => Err(wrong("block-rate", "comes without `block`; expected both")),
        }
    }

    fn connection_config(&self, index: usize, file: &ConnectionFile) -> Result<ConnectionConfig, FileError> {
        let key = |field: &str| format!("connections[{index}].{field}");
        let version = match file.version {
            None | Some(1) => MptcpVersion::V1,
            Some(0) => MptcpVersion::V0,
            Some(other) => return Err(self.wrong(key("version"), format!("is {other}; expected 0 or 1"))),
        };
        let mut config = ConnectionConfig {
            mptcp: file.mptcp.unwrap_or(true),
            checksum: file.checksum.unwrap_or(false),
            version,
            ..ConnectionConfig::default()
        };
        if let Some(name) = &file.scheduler {
            config.scheduler = self.source.policy(key("scheduler"), name, self.policies)?;
        }
        if let Some(name) = &file.path_manager {
            config.path_manager = self.source.policy(key("path-manager"), name, self.policies)?;
        }
        if let Some(name) = &file.congestion {
            config.congestion = self.source.policy(key("congestion"), name, self.policies)?;
            config.lia_on_shared_access = LiaOnSharedAccess::Never;
        }
        let mut tcp = (*config.tcp).clone();
        // One segment at a time, as links see them.
        tcp.max_aggregate_bytes = 0;
        for (size, field, target) in [
            (file.receive_buffer, "receive-buffer", &mut tcp.receive_buffer_bytes),
            (file.send_buffer, "send-buffer", &mut tcp.send_buffer_bytes),
        ] {
            if let Some(size) = size {
                if size.0 < 4096 {
                    return Err(self.wrong(key(field), "is too small; expected 4KiB or more"));
                }
                *target = size.0;
            }
        }
        config.tcp = Arc::new(tcp);
        Ok(config)
    }
}
