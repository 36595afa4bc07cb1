use alloc::vec::Vec;

use polypath_tcp::Info as TcpInfo;
use polypath_units::Duration;
use polypath_wire::{DataSeq, FourTuple, MptcpVersion};

use super::Connection;
use super::state::Mode;
use crate::subflow::Stage;

/// State of a connection, in the words of `MPTCP_INFO`.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Multipath TCP is in use; false after a fallback.
    pub mptcp: bool,
    /// Version in use.
    pub version: MptcpVersion,
    /// Name of the scheduler.
    pub scheduler: &'static str,
    /// The DSS checksum is in use.
    pub checksum: bool,
    /// Token by which the peer addresses this end.
    pub local_token: u32,
    /// Token by which this end addresses the peer.
    pub remote_token: u32,
    /// First byte that the peer has not data-acknowledged.
    pub data_una: DataSeq,
    /// First byte never sent.
    pub data_next: DataSeq,
    /// Next byte expected from the peer.
    pub receive_next: DataSeq,
    /// Bytes in the send buffer.
    pub send_buffer_bytes: u64,
    /// Bytes of it that were never sent.
    pub unsent_bytes: u64,
    /// Size of the receive buffer as promised to the peer: the window, and what the application has not read.
    pub receive_buffer_bytes: u64,
    /// Bytes that the application has not read.
    pub unread_bytes: u64,
    /// Bytes that wait for others before them.
    pub reassembly_bytes: u64,
    /// Live subflows.
    pub subflows: Vec<SubflowInfo>,
}

/// State of a subflow.
#[derive(Clone, Debug)]
pub struct SubflowInfo {
    /// Identifier within the connection.
    pub id: u8,
    /// Both ends.
    pub tuple: FourTuple,
    /// Ready for data.
    pub established: bool,
    /// Either end made it a backup.
    pub backup: bool,
    /// The peer is asked not to send over it while another subflow works: see [`JudgePaths`](crate::JudgePaths).
    pub set_aside: bool,
    /// How long what came over other subflows waited for what came over this one, where paths are judged.
    pub held_up: Duration,
    /// How much waited, times how long, in byte seconds.
    pub held_up_byte_seconds: f64,
    /// Data is outstanding, and nothing was acknowledged over several retransmission timeouts
    /// ([`stale_loss_count`](crate::ConnectionConfig::stale_loss_count)).
    pub stale: bool,
    /// Local address identifier.
    pub local_id: u8,
    /// Remote address identifier.
    pub remote_id: u8,
    /// In the words of `TCP_INFO`.
    pub tcp: TcpInfo,
}

impl Connection {
    /// Both ends of each subflow.
    pub(crate) fn tuples(&self) -> impl Iterator<Item = FourTuple> {
        self.subflows.iter().map(|subflow| subflow.tcp.tuple())
    }

    pub(crate) fn info(&self) -> ConnectionInfo {
        let shared = &self.shared;
        ConnectionInfo {
            mptcp: shared.mode == Mode::Mptcp,
            version: shared.version,
            scheduler: self.scheduler.name(),
            checksum: shared.checksum,
            local_token: shared.local_token,
            remote_token: shared.remote_token,
            data_una: shared.send.start(),
            data_next: shared.send.next(),
            receive_next: shared.receive_next,
            send_buffer_bytes: shared.send.len_bytes(),
            unsent_bytes: shared.send.unsent_bytes(),
            receive_buffer_bytes: shared.receive_window_bytes() + shared.unread_bytes,
            unread_bytes: shared.unread_bytes,
            reassembly_bytes: shared.reassembly.len_bytes(),
            subflows: self
                .subflows
                .iter()
                .map(|subflow| {
                    let (held_up, held_up_byte_seconds) = self.held_up(subflow.meta.id);
                    SubflowInfo {
                        id: subflow.meta.id,
                        tuple: subflow.tcp.tuple(),
                        established: matches!(subflow.meta.stage, Stage::Established | Stage::Plain),
                        backup: subflow.meta.backup(),
                        set_aside: subflow.meta.is_aside,
                        held_up,
                        held_up_byte_seconds,
                        stale: subflow.meta.is_stale,
                        local_id: subflow.meta.local_id,
                        remote_id: subflow.meta.remote_id,
                        tcp: subflow.tcp.info(),
                    }
                })
                .collect(),
        }
    }
}
