//! What a proxy tells of itself.

use std::net::SocketAddr;
use std::time::Duration;

use polypath_proxy::access::Memory;
use polypath_proxy::net::{Proxy, SessionState, Surroundings};
use polypath_proxy::throttle::{FlowKey, Limit, MinuteOfDay, PathSeen};
use polypath_stack::engine::StreamInfo;
use polypath_stack::stack::LimitFigures;
use serde::{Deserialize, Serialize};

use super::super::harmless;
use super::super::words::{amount, count};
use super::limits::{Limits, PathLimits};
use super::surroundings::Machine;
use super::throttle::ThrottleText;
use crate::live::{Carried, ClientSample, LimitNow, PathKey, PathNow, PathSample, ProxySample, Told};

/// A proxy at a moment; also what `--json` prints.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::command) struct ProxyReport {
    pub(super) name: String,
    pub(in crate::command) pid: u32,
    /// Carried since its start, by those that have left, too.
    #[serde(default)]
    to_server_bytes: u64,
    #[serde(default)]
    to_client_bytes: u64,
    /// Memory of the process, if that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryReport>,
    pub(super) listeners: Vec<ListenerReport>,
    /// How long those within have, if it was told to end; nobody enters then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ending_within_seconds: Option<f64>,
    pub(super) limits: Vec<LimitReport>,
    /// What limits and rules name that is not there, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    pub(super) connections: Vec<ConnectionReport>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct MemoryReport {
    bytes: u64,
    limit_bytes: u64,
}

impl From<Memory> for MemoryReport {
    fn from(Memory { octets, most }: Memory) -> Self {
        Self { bytes: octets, limit_bytes: most }
    }
}

/// Where clients enter.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct ListenerReport {
    pub(super) protocol: String,
    pub(super) address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    /// How clients come there, if by TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tls: Option<String>,
    /// Which connections are led there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) intercepted: Option<String>,
}

/// A limit, and whom it holds back.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct LimitReport {
    pub(super) limit: ThrottleText,
    /// Directions of connections that it is of, and those of them that wait for it. Of a limit of paths of our own stack: subflows, none of
    /// which waits as a whole.
    pub(super) flows: usize,
    pub(super) waiting_flows: usize,
    /// Clients that it knows of, if each has it for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) clients: Option<usize>,
    /// Of the budget, in the period that runs.
    pub(super) used_bytes: u64,
    /// Datagrams that found no place, or waited for too long.
    #[serde(default)]
    pub(super) dropped_datagrams: u64,
    /// What a limit of paths of our own stack has done with their packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) packets: Option<PacketsReport>,
}

/// Since the limit was set.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PacketsReport {
    pub(super) sent: WayReport,
    pub(super) received: WayReport,
}

/// With IP headers.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct WayReport {
    pub(super) passed_bytes: u64,
    pub(super) passed_packets: u64,
    pub(super) dropped_packets: u64,
    pub(super) waiting_packets: u64,
    pub(super) waiting_bytes: u64,
}

impl WayReport {
    fn words(&self, what: &str) -> String {
        let (passed, dropped) = (amount(self.passed_bytes), count(self.dropped_packets, "packet"));
        format!("{passed} {what}, {dropped} dropped, {}", wait(self.waiting_packets))
    }
}

/// `1 waits`, `2 wait`.
fn wait(number: u64) -> String {
    format!("{number} wait{}", if number == 1 { "s" } else { "" })
}

impl From<LimitFigures> for WayReport {
    fn from(figures: LimitFigures) -> Self {
        let LimitFigures { passed_bytes, passed_packets, dropped_packets, waiting_packets, waiting_bytes } =
            figures;
        Self { passed_bytes, passed_packets, dropped_packets, waiting_packets, waiting_bytes }
    }
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ConnectionReport {
    /// Which one since the proxy's start.
    #[serde(default)]
    number: u64,
    pub(super) protocol: String,
    pub(super) client: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    pub(super) age_seconds: f64,
    pub(super) to_server_bytes: u64,
    pub(super) to_client_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_side: Option<SideReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server_side: Option<SideReport>,
}

/// One of its two connections.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SideReport {
    pub(super) transport: String,
    pub(super) paths: Vec<PathReport>,
}

/// What a path has carried.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PathReport {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) interface: Option<String>,
    pub(super) local: String,
    pub(super) remote: String,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) retransmissions: u64,
    /// The smoothed round trip of what this end sent.
    pub(super) srtt_seconds: f64,
    /// What it estimates as a receiver, where that is newer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rcv_rtt_seconds: Option<f64>,
    /// What was sent again, as a share of all that was sent; none before anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retransmitted_share: Option<f64>,
    #[serde(default)]
    cwnd_packets: u64,
    pub(super) is_backup: bool,
    /// Limits of paths that it is one of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) limits: Vec<String>,
}

impl ProxyReport {
    pub(super) fn new(
        name: &str,
        (listeners, ending): (Vec<ListenerReport>, Option<Duration>),
        (proxy, limits, warnings): (&Proxy, &Limits, Vec<String>),
        machine: &Machine,
    ) -> Self {
        let (sessions, carried) = (proxy.sessions().states(), proxy.counts().carried);
        let of_paths = limits.of_paths();
        let connections = sessions.iter().map(|state| connection(state, machine, &of_paths));
        Self {
            name: name.into(),
            pid: std::process::id(),
            to_server_bytes: carried.to_server_bytes,
            to_client_bytes: carried.to_client_bytes,
            memory: proxy.memory().map(Into::into),
            listeners,
            ending_within_seconds: ending.map(|within| within.as_secs_f64()),
            limits: limit_reports(proxy, limits),
            warnings,
            connections: connections.collect(),
        }
    }
}

impl ProxyReport {
    /// Of memory, for people.
    pub(super) fn memory_line(&self) -> Option<String> {
        let MemoryReport { bytes, limit_bytes } = self.memory?;
        let is_full = if bytes > limit_bytes { ": no client comes in" } else { "" };
        Some(format!("memory: {} of {}{is_full}", amount(bytes), amount(limit_bytes)))
    }

    /// For the live view, with names that do nothing to a terminal: another user's proxy chose them.
    pub(in crate::command) fn sample(&self, socket: String) -> ProxySample {
        ProxySample {
            socket,
            name: harmless(&self.name),
            pid: self.pid,
            carried: Carried { up_bytes: self.to_server_bytes, down_bytes: self.to_client_bytes },
            memory: self.memory_line(),
            limits: self.limits.iter().map(LimitReport::sample).collect(),
            clients: self.connections.iter().map(ConnectionReport::sample).collect(),
        }
    }
}

impl LimitReport {
    /// For people.
    pub(super) fn line(&self) -> String {
        let (name, what) = (harmless(&self.limit.name), harmless(&self.limit.words()));
        let flows = self.flows as u64;
        if let Some(PacketsReport { sent, received }) = &self.packets {
            let (sent, received) = (sent.words("sent"), received.words("received"));
            return format!("limit {name}, {what}: of {}; {sent}; {received}", count(flows, "subflow"));
        }
        let waiting = wait(self.waiting_flows as u64);
        let mut text = format!("limit {name}, {what}: of {}, {waiting}", count(flows, "flow"));
        if let Some(clients) = self.clients {
            text += &format!(", of {}, each for itself", count(clients as u64, "client"));
        }
        if self.used_bytes > 0 {
            text += &format!(", {} used", amount(self.used_bytes));
        }
        if self.dropped_datagrams > 0 {
            text += &format!(", {} dropped", count(self.dropped_datagrams, "datagram"));
        }
        text
    }

    fn sample(&self) -> LimitNow {
        let Self { flows, waiting_flows, used_bytes, .. } = *self;
        let (name, what) = (harmless(&self.limit.name), harmless(&self.limit.words()));
        LimitNow { name, what, flows, waiting_flows, used_bytes, line: self.line() }
    }
}

impl ConnectionReport {
    fn sample(&self) -> ClientSample {
        let text = |text: &Option<String>| text.as_deref().map(harmless);
        let sides = [("client", &self.client_side), ("server", &self.server_side)];
        let paths = sides.into_iter().filter_map(|(name, side)| Some((name, side.as_ref()?)));
        ClientSample {
            number: self.number,
            told: Told {
                protocol: harmless(&self.protocol),
                client: harmless(&self.client),
                user: text(&self.user),
                target: text(&self.target),
            },
            carried: Carried { up_bytes: self.to_server_bytes, down_bytes: self.to_client_bytes },
            paths: paths.flat_map(|(name, side)| side.samples(name)).collect(),
        }
    }
}

impl SideReport {
    fn samples(&self, side: &'static str) -> impl Iterator<Item = PathSample> {
        let transport = if self.transport == "mptcp" { "mptcp" } else { "tcp" };
        self.paths.iter().map(move |path| {
            let key = PathKey { side, local: harmless(&path.local), remote: harmless(&path.remote) };
            // What comes from a client goes up.
            let (up_bytes, down_bytes) = match side {
                "client" => (path.received_bytes, path.sent_bytes),
                _ => (path.sent_bytes, path.received_bytes),
            };
            let local = || path.local.parse::<SocketAddr>().ok().map(|local| local.ip().to_string());
            let interface = path.interface.as_deref().map(harmless).or_else(local).unwrap_or_default();
            let now = PathNow {
                interface,
                state: if path.is_backup { "backup" } else { transport },
                rtt_ms: path.rcv_rtt_seconds.unwrap_or(path.srtt_seconds) * 1e3,
                retransmitted_share: path.retransmitted_share,
                cwnd_packets: path.cwnd_packets,
            };
            PathSample { key, carried: Carried { up_bytes, down_bytes }, now }
        })
    }
}

/// Of all limits, by name.
fn limit_reports(proxy: &Proxy, limits: &Limits) -> Vec<LimitReport> {
    let of_bytes = proxy.limits().into_iter().filter_map(|state| {
        Some(LimitReport {
            limit: limits.text(&state.limit.name)?,
            flows: state.flows,
            waiting_flows: state.waiting,
            clients: state.clients,
            used_bytes: state.used,
            dropped_datagrams: state.dropped_datagrams,
            packets: None,
        })
    });
    let of_packets = proxy.path_limits().into_iter().filter_map(|state| {
        let packets = PacketsReport { sent: state.sent.into(), received: state.received.into() };
        Some(LimitReport {
            limit: limits.text(&state.name)?,
            flows: state.subflows,
            waiting_flows: 0,
            clients: None,
            used_bytes: 0,
            dropped_datagrams: 0,
            packets: Some(packets),
        })
    });
    let mut reports: Vec<LimitReport> = of_bytes.chain(of_packets).collect();
    reports.sort_by(|one, other| one.limit.name.cmp(&other.limit.name));
    reports
}

fn connection(state: &SessionState, machine: &Machine, limits: &PathLimits) -> ConnectionReport {
    let (owner, minute) = (state.owner(), machine.minute());
    let side = |info: &StreamInfo, limits: &[Limit]| SideReport {
        transport: if info.is_multipath { "mptcp" } else { "tcp" }.into(),
        paths: paths(info, machine, limits, (owner.as_ref(), minute)),
    };
    ConnectionReport {
        number: state.number,
        protocol: state.protocol.into(),
        client: state.client.to_string(),
        user: state.user.as_deref().map(Into::into),
        target: state.target.as_ref().map(ToString::to_string),
        server: state.server.map(|server| server.to_string()),
        age_seconds: state.flow.begun().elapsed().as_secs_f64(),
        to_server_bytes: state.flow.to_server_bytes(),
        to_client_bytes: state.flow.to_client_bytes(),
        client_side: state.client_side.as_ref().map(|info| side(info, limits.of_clients())),
        server_side: state.server_side.as_ref().map(|info| side(info, limits.of_servers())),
    }
}

fn paths(
    info: &StreamInfo,
    machine: &Machine,
    limits: &[Limit],
    (owner, minute): (Option<&FlowKey>, MinuteOfDay),
) -> Vec<PathReport> {
    let path = |subflow: &polypath_mptcp::SubflowInfo| {
        let (local, remote) = (subflow.tuple.local.into(), subflow.tuple.remote.into());
        let (local, remote): (SocketAddr, SocketAddr) = (local, remote);
        let interface = machine.interface_of(local.ip());
        let seen = PathSeen { interface: interface.as_deref(), local: local.ip(), remote: remote.ip() };
        let holding = limits.iter().filter(|limit| limit.holds_for_path(&seen, owner, minute));
        PathReport {
            limits: holding.map(|limit| limit.name.to_string()).collect(),
            interface: interface.map(Into::into),
            local: local.to_string(),
            remote: remote.to_string(),
            sent_bytes: subflow.tcp.bytes_acked,
            received_bytes: subflow.tcp.bytes_received,
            retransmissions: subflow.tcp.retransmits,
            srtt_seconds: Duration::from(subflow.tcp.srtt).as_secs_f64(),
            rcv_rtt_seconds: (subflow.tcp.rcv_rtt_is_newer)
                .then(|| Duration::from(subflow.tcp.rcv_rtt).as_secs_f64()),
            retransmitted_share: (subflow.tcp.bytes_sent > 0)
                .then(|| subflow.tcp.bytes_retrans as f64 / subflow.tcp.bytes_sent as f64),
            cwnd_packets: subflow.tcp.cwnd_bytes / u64::from(subflow.tcp.mss_bytes.max(1)),
            is_backup: subflow.is_backup(),
        }
    };
    info.subflows.iter().map(path).collect()
}
