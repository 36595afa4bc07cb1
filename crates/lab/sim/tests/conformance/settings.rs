//! Settings of the host under test: what `set` changes.

use std::sync::Arc;

use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_units::Duration;
use polypath_wire::MptcpVersion;

use crate::parse::time;

/// The defaults of the crates, but for what is no matter of a protocol: segments leave one by one, at once, and no larger
/// ones are tried.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    tcp: polypath_tcp::Config,
    connection: ConnectionConfig,
    host: HostConfig,
    congestion: polypath_congestion::Policy,
}

impl Default for Settings {
    fn default() -> Self {
        let connection = ConnectionConfig::default();
        let tcp = polypath_tcp::Config {
            pacing: false,
            max_aggregate_bytes: 0,
            mtu_probing: false,
            ..(*connection.tcp).clone()
        };
        let congestion = polypath_congestion::RENO;
        Self { tcp, connection, host: HostConfig::default(), congestion }
    }
}

impl Settings {
    pub(crate) fn tcp_host(&self) -> polypath_tcp::HostConfig {
        polypath_tcp::HostConfig {
            connection: Arc::new(self.tcp.clone()),
            congestion: self.congestion.clone(),
            ..polypath_tcp::HostConfig::default()
        }
    }

    pub(crate) fn multipath_host(&self, mptcp: bool) -> HostConfig {
        let connection = ConnectionConfig {
            mptcp: mptcp && self.connection.mptcp,
            tcp: Arc::new(self.tcp.clone()),
            congestion: self.congestion.clone(),
            ..self.connection.clone()
        };
        HostConfig { connection: Arc::new(connection), ..self.host.clone() }
    }

    pub(crate) fn listen(&self) -> polypath_tcp::ListenConfig {
        polypath_tcp::ListenConfig { backlog: self.host.backlog, ..polypath_tcp::ListenConfig::default() }
    }

    pub(crate) fn version(&self) -> MptcpVersion {
        self.connection.version
    }

    pub(crate) fn endpoint(&mut self, endpoint: LocalEndpoint) {
        self.host.endpoints.push(endpoint);
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let (tcp, connection) = (&mut self.tcp, &mut self.connection);
        match name {
            "version" => {
                connection.version = if value == "0" { MptcpVersion::V0 } else { MptcpVersion::V1 };
            }
            "mptcp" => connection.mptcp = switch(value)?,
            "checksum" => connection.checksum = switch(value)?,
            "no-join-initial" => connection.no_join_initial = switch(value)?,
            "race" => connection.race = switch(value)?,
            "syns-with-option" => connection.syn_retries_before_fallback = number(value)?,
            "no-subflow-timeout" => connection.no_subflow_timeout = time(value)?,
            "receive-autotuning" => connection.receive_autotuning = switch(value)?,
            "backlog" => self.host.backlog = number(value)?,
            "half-open-joins" => self.host.max_half_open_joins = number(value)?,
            "additional-subflows" => self.host.limits.subflows = number(value)?,
            "scheduler" => {
                let unknown = |_| format!("no scheduler `{value}`");
                connection.scheduler = value.parse().map_err(unknown)?;
            }
            "sack" => tcp.sack = switch(value)?,
            "timestamps" => tcp.timestamps = switch(value)?,
            "window-scaling" => tcp.window_scaling = switch(value)?,
            "nagle" => tcp.no_delay = !switch(value)?,
            "receive-buffer" => tcp.receive_buffer_bytes = number(value)?,
            "mtu" => tcp.mtu_bytes = number(value)?,
            "min-mtu" => tcp.min_mtu_bytes = number(value)?,
            "initial-window" => tcp.initial_window_packets = number(value)?,
            "quick-acks" => tcp.quick_ack_packets = number(value)?,
            "retries" => tcp.retries = number(value)?,
            "syn-retries" => tcp.syn_retries = number(value)?,
            "syn-ack-retries" => tcp.syn_ack_retries = number(value)?,
            "keepalive-probes" => tcp.keepalive_probes = number(value)?,
            "challenge-acks" => tcp.challenge_acks_per_second = number(value)?,
            "keepalive-idle" => tcp.keepalive_idle = Some(time(value)?),
            "user-timeout" => tcp.user_timeout = Some(time(value)?),
            _ => *self.duration(name)? = time(value)?,
        }
        Ok(())
    }

    fn duration(&mut self, name: &str) -> Result<&mut Duration, String> {
        let tcp = &mut self.tcp;
        Ok(match name {
            "delayed-ack" => &mut tcp.delayed_ack,
            "min-rto" => &mut tcp.min_rto,
            "max-rto" => &mut tcp.max_rto,
            "keepalive-interval" => &mut tcp.keepalive_interval,
            "time-wait" => &mut tcp.time_wait,
            "fin-wait-2" => &mut tcp.fin_wait_2,
            "orphan-timeout" => &mut tcp.orphan_timeout,
            _ => return Err(format!("no setting `{name}`")),
        })
    }
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{value}` is neither on nor off")),
    }
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{value}` is no number that fits"))
}
