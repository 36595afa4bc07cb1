//! What a tunnel tells of itself.

use polypath_tunnel::driver::Losses;
use polypath_tunnel::{PeerStatus, ResequencerCounts, Rule};
use polypath_units::Duration;
use serde::{Deserialize, Serialize};

use super::super::pinned;

/// A tunnel at a moment; also what `--json` prints.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct TunnelReport {
    pub(super) name: String,
    pub(super) public_key: String,
    pub(super) listen_port: Option<u16>,
    pub(super) peers: Vec<PeerReport>,
    pub(super) budgets: Vec<BudgetReport>,
    pub(super) dropped: Dropped,
    pub(super) lost: Lost,
}

/// What may still go over an interface.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct BudgetReport {
    pub(super) interface: String,
    pub(super) budget_bytes: u64,
    pub(super) is_daily: bool,
    /// Spent, it carries nothing; else it is a backup then.
    pub(super) is_hard: bool,
    pub(super) used_bytes: u64,
    pub(super) left_bytes: u64,
}

/// What was lost between the tunnel and the kernel.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Lost {
    pub(super) unsent_datagrams: u64,
    pub(super) overflowed_datagrams: u64,
    pub(super) unwritten_packets: u64,
    pub(super) overflowed_packets: u64,
    pub(super) malformed_frames: u64,
}

impl From<Losses> for Lost {
    fn from(losses: Losses) -> Self {
        let Losses { unsent_datagrams, overflowed_datagrams, .. } = losses;
        let Losses { unwritten_packets, overflowed_packets, malformed_frames, .. } = losses;
        Self {
            unsent_datagrams,
            overflowed_datagrams,
            unwritten_packets,
            overflowed_packets,
            malformed_frames,
        }
    }
}

/// What belonged to no peer, in datagrams or packets.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Dropped {
    pub(super) malformed: u64,
    pub(super) unknown_session: u64,
    pub(super) refused_handshakes: u64,
    pub(super) replayed_handshakes: u64,
    pub(super) unknown_peers: u64,
    pub(super) no_peer: u64,
    pub(super) too_long: u64,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PeerReport {
    pub(super) name: Option<String>,
    pub(super) public_key: String,
    /// `polypath` or `wireguard`; none before the first handshake.
    pub(super) kind: Option<String>,
    pub(super) keys_age_seconds: Option<f64>,
    pub(super) endpoint: Option<String>,
    pub(super) sent_packets: u64,
    pub(super) received_packets: u64,
    pub(super) dropped_packets: u64,
    /// Of them, those whose rule pins them to a path that is not there, or does not work.
    pub(super) pinned_dropped_packets: u64,
    /// Paths that rules pin packets to, and that are not there or do not work now.
    pub(super) missing_pinned_paths: Vec<usize>,
    pub(super) sent_again_packets: u64,
    pub(super) repair_packets_sent: u64,
    pub(super) repair_packets_received: u64,
    pub(super) rebuilt_packets: u64,
    pub(super) not_rebuilt_packets: u64,
    pub(super) foreign_packets: u64,
    pub(super) replayed_packets: u64,
    pub(super) not_authentic_packets: u64,
    pub(super) late_packets: u64,
    pub(super) missing_packets: u64,
    /// Came more than once, of those that are numbered.
    pub(super) copied_packets: u64,
    pub(super) waiting_bytes: usize,
    pub(super) held_bytes: usize,
    /// Flows of TCP that are carried by Multipath TCP.
    pub(super) split_flows: usize,
    pub(super) paths: Vec<PathReport>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PathReport {
    pub(super) number: usize,
    pub(super) interface: Option<String>,
    pub(super) remote: String,
    pub(super) state: String,
    pub(super) rtt_ms: Option<f64>,
    pub(super) rate_mbps: f64,
    /// The longest packet that comes through, its IP header included.
    pub(super) mtu_bytes: usize,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) lost_packets: u64,
    pub(super) silent_seconds: Option<f64>,
}

impl PeerReport {
    pub(super) fn new(
        name: Option<String>,
        status: &PeerStatus,
        rules: &[Rule],
        interface: impl Fn(polypath_tunnel::PathId) -> Option<String>,
    ) -> Self {
        let (counts, order) = (&status.counts, &status.order);
        let ResequencerCounts { late, missing, copies, .. } = *order;
        let kind = status.keys_age.map(|_| if status.knows_paths { "polypath" } else { "wireguard" });
        Self {
            name,
            public_key: status.key.to_string(),
            kind: kind.map(str::to_owned),
            keys_age_seconds: status.keys_age.map(Duration::as_secs_f64),
            endpoint: status.plain_remote.map(|remote| remote.to_string()),
            sent_packets: counts.sent,
            received_packets: counts.received,
            dropped_packets: counts.dropped,
            pinned_dropped_packets: counts.pinned_dropped,
            missing_pinned_paths: pinned::missing(rules, status).map(|(_, path)| path.index()).collect(),
            sent_again_packets: counts.sent_again,
            repair_packets_sent: counts.repairs_sent,
            repair_packets_received: counts.repairs_received,
            rebuilt_packets: counts.rebuilt,
            not_rebuilt_packets: counts.not_rebuilt,
            foreign_packets: counts.foreign,
            replayed_packets: counts.replayed,
            not_authentic_packets: counts.not_authentic,
            late_packets: late,
            missing_packets: missing,
            copied_packets: copies,
            waiting_bytes: status.waiting_bytes,
            held_bytes: status.held_bytes,
            split_flows: status.split_flows,
            paths: status
                .paths
                .iter()
                .map(|path| PathReport {
                    number: path.id.index(),
                    interface: interface(path.id),
                    remote: path.remote.to_string(),
                    state: state_of(path).to_owned(),
                    rtt_ms: path.srtt.map(Duration::as_millis_f64),
                    rate_mbps: path.rate.as_mbps_f64(),
                    mtu_bytes: path.mtu_bytes,
                    sent_bytes: path.sent.1,
                    received_bytes: path.received.1,
                    lost_packets: path.sent.2,
                    silent_seconds: path.silent_for.map(Duration::as_secs_f64),
                })
                .collect(),
        }
    }
}

fn state_of(path: &polypath_tunnel::PathStatus) -> &'static str {
    match path {
        _ if !path.is_up => "down",
        _ if !path.is_believed => "asked",
        _ if path.is_closed => "closed",
        _ if !path.is_usable => "silent",
        _ if path.is_backup => "backup",
        _ => "used",
    }
}
