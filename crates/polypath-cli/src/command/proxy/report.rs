//! What a proxy tells of itself.

use std::time::Duration;

use polypath_proxy::net::{Proxy, SessionState};
use polypath_stack::engine::StreamInfo;
use serde::{Deserialize, Serialize};

use super::super::uplink_names::UplinkNames;
use super::limits::Limits;
use super::throttle::ThrottleText;

/// A proxy at a moment; also what `--json` prints.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ProxyReport {
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) listeners: Vec<ListenerReport>,
    pub(super) limits: Vec<LimitReport>,
    pub(super) connections: Vec<ConnectionReport>,
}

/// Where clients enter.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct ListenerReport {
    pub(super) protocol: String,
    pub(super) address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    /// Which connections are led there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) intercepted: Option<String>,
}

/// A limit, and whom it holds back.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct LimitReport {
    pub(super) limit: ThrottleText,
    /// Directions of connections that it is of, and those of them that wait for it.
    pub(super) flows: usize,
    pub(super) waiting_flows: usize,
    /// Clients that it knows of, if each has it for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) clients: Option<usize>,
    /// Of the budget, in the period that runs.
    pub(super) used_bytes: u64,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ConnectionReport {
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
    pub(super) srtt_seconds: f64,
    pub(super) is_backup: bool,
}

impl ProxyReport {
    pub(super) fn new(
        name: &str,
        listeners: Vec<ListenerReport>,
        (proxy, limits): (&Proxy, &Limits),
        names: &UplinkNames,
    ) -> Self {
        let states = proxy.limits().into_iter().filter_map(|state| {
            let limit = limits.text(&state.limit.name)?;
            let (flows, waiting_flows, used_bytes) = (state.flows, state.waiting, state.used);
            Some(LimitReport { limit, flows, waiting_flows, clients: state.clients, used_bytes })
        });
        let sessions = proxy.sessions().states();
        Self {
            name: name.into(),
            pid: std::process::id(),
            listeners,
            limits: states.collect(),
            connections: sessions.iter().map(|state| connection(state, names)).collect(),
        }
    }
}

fn connection(state: &SessionState, names: &UplinkNames) -> ConnectionReport {
    let side = |info: &StreamInfo| SideReport {
        transport: if info.is_multipath { "mptcp" } else { "tcp" }.into(),
        paths: paths(info, names),
    };
    ConnectionReport {
        protocol: state.protocol.into(),
        client: state.client.to_string(),
        user: state.user.as_deref().map(Into::into),
        target: state.target.as_ref().map(ToString::to_string),
        server: state.server.map(|server| server.to_string()),
        age_seconds: state.flow.begun().elapsed().as_secs_f64(),
        to_server_bytes: state.flow.to_server_bytes(),
        to_client_bytes: state.flow.to_client_bytes(),
        client_side: state.client_side.as_ref().map(side),
        server_side: state.server_side.as_ref().map(side),
    }
}

fn paths(info: &StreamInfo, names: &UplinkNames) -> Vec<PathReport> {
    let path = |subflow: &polypath_mptcp::SubflowInfo| {
        let (local, remote) = (subflow.tuple.local.into(), subflow.tuple.remote.into());
        let (local, remote): (std::net::SocketAddr, std::net::SocketAddr) = (local, remote);
        PathReport {
            interface: names.name_of(local.ip()),
            local: local.to_string(),
            remote: remote.to_string(),
            sent_bytes: subflow.tcp.bytes_acked,
            received_bytes: subflow.tcp.bytes_received,
            retransmissions: subflow.tcp.retransmits,
            srtt_seconds: Duration::from(subflow.tcp.srtt).as_secs_f64(),
            is_backup: subflow.is_backup(),
        }
    };
    info.subflows.iter().map(path).collect()
}
