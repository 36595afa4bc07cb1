//! What is known of a connection, in words that all engines share.

use std::net::SocketAddr;
use std::time::Duration;

/// What is known of a connection, whatever carries it.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StreamInfo {
    /// Multipath TCP is in use; false after a fallback.
    pub is_multipath: bool,
    /// The subflows, in the order they were made.
    pub subflows: Vec<SubflowInfo>,
}

/// What is known of a subflow.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SubflowInfo {
    /// This end's address, as the stack sees it.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Bytes of data sent and acknowledged, if the engine tells.
    pub bytes_acked: Option<u64>,
    /// Bytes of data received, if the engine tells.
    pub bytes_received: Option<u64>,
    /// Segments sent again, if the engine tells.
    pub retransmissions: Option<u64>,
    /// Smoothed round-trip time, if the engine tells.
    pub srtt: Option<Duration>,
    /// Congestion window in bytes, if the engine tells.
    pub cwnd_bytes: Option<u64>,
    /// Used only when no regular path works.
    pub is_backup: bool,
}

impl StreamInfo {
    /// Bytes acknowledged and received on all subflows, as far as the engine tells. It changes whenever the network has
    /// carried data; a subflow that goes takes its bytes with it.
    #[must_use]
    pub fn bytes_carried(&self) -> u64 {
        let of = |subflow: &SubflowInfo| [subflow.bytes_acked, subflow.bytes_received];
        self.subflows.iter().flat_map(of).flatten().fold(0, u64::wrapping_add)
    }
}

impl From<polypath_mptcp::ConnectionInfo> for StreamInfo {
    fn from(info: polypath_mptcp::ConnectionInfo) -> Self {
        let subflows = info.subflows.into_iter().map(|subflow| SubflowInfo {
            local: subflow.tuple.local.into(),
            remote: subflow.tuple.remote.into(),
            bytes_acked: Some(subflow.tcp.bytes_acked),
            bytes_received: Some(subflow.tcp.bytes_received),
            retransmissions: Some(subflow.tcp.retransmits),
            srtt: Some(subflow.tcp.srtt.into()),
            cwnd_bytes: Some(subflow.tcp.cwnd_bytes),
            is_backup: subflow.backup,
        });
        Self { is_multipath: info.mptcp, subflows: subflows.collect() }
    }
}
