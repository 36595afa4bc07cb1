//! What is known of a connection, in words that all engines share.

use polypath_mptcp::{ConnectionInfo, SubflowInfo};

use crate::stack::Stack;

/// What is known of a connection, whatever carries it.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StreamInfo {
    /// Multipath TCP is in use; false after a fallback.
    pub is_multipath: bool,
    /// The subflows, in the order they were made.
    #[cfg_attr(feature = "serde", serde(serialize_with = "view::serialize"))]
    pub subflows: Vec<SubflowInfo>,
}

impl StreamInfo {
    /// Bytes acknowledged and received on all subflows. It changes whenever the network has carried data; a subflow that goes
    /// takes its bytes with it.
    #[must_use]
    pub fn bytes_carried(&self) -> u64 {
        let of = |subflow: &SubflowInfo| [subflow.tcp.bytes_acked, subflow.tcp.bytes_received];
        self.subflows.iter().flat_map(of).fold(0, u64::wrapping_add)
    }

    /// With the addresses by which the network knows a stack's subflows.
    pub(super) fn seen_from(mut self, stack: &Stack) -> Self {
        self.subflows.iter_mut().for_each(|subflow| subflow.tuple = stack.seen_subflow(subflow.tuple));
        self
    }
}

impl From<ConnectionInfo> for StreamInfo {
    fn from(info: ConnectionInfo) -> Self {
        Self { is_multipath: info.mptcp, subflows: info.subflows }
    }
}

/// Subflows as they are serialized.
#[cfg(feature = "serde")]
mod view {
    use std::net::SocketAddr;
    use std::time::Duration;

    use serde::{Serialize, Serializer};

    use super::SubflowInfo;

    #[derive(Serialize)]
    struct Subflow {
        local: SocketAddr,
        remote: SocketAddr,
        bytes_acked: u64,
        bytes_received: u64,
        retransmissions: u64,
        srtt: Duration,
        cwnd_bytes: u64,
        is_backup: bool,
    }

    impl From<&SubflowInfo> for Subflow {
        fn from(info: &SubflowInfo) -> Self {
            Self {
                local: info.tuple.local.into(),
                remote: info.tuple.remote.into(),
                bytes_acked: info.tcp.bytes_acked,
                bytes_received: info.tcp.bytes_received,
                retransmissions: info.tcp.retransmits,
                srtt: info.tcp.srtt.into(),
                cwnd_bytes: info.tcp.cwnd_bytes,
                is_backup: info.is_backup(),
            }
        }
    }

    pub(super) fn serialize<S: Serializer>(
        subflows: &[SubflowInfo],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(subflows.iter().map(Subflow::from))
    }
}
