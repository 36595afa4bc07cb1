use alloc::vec::Vec;

use polypath_tcp::Info as TcpInfo;
use polypath_units::Duration;
use polypath_wire::{DataSeq, FourTuple, MptcpVersion};

use super::Connection;
use crate::identifiers::{AddressId, SubflowId};
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
    pub id: SubflowId,
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
    pub local_id: AddressId,
    /// Remote address identifier.
    pub remote_id: AddressId,
    /// In the words of `TCP_INFO`.
    pub tcp: TcpInfo,
}

impl SubflowInfo {
    /// Of a connection of plain TCP, which is its only subflow.
    #[must_use]
    pub fn plain(tuple: FourTuple, tcp: TcpInfo) -> Self {
        Self {
            id: SubflowId::INITIAL,
            tuple,
            established: true,
            backup: false,
            set_aside: false,
            held_up: Duration::ZERO,
            held_up_byte_seconds: 0.0,
            stale: false,
            local_id: AddressId::INITIAL,
            remote_id: AddressId::INITIAL,
            tcp,
        }
    }
}

impl Connection {
    /// Both ends of each subflow.
    pub(crate) fn tuples(&self) -> impl Iterator<Item = FourTuple> {
        self.subflows.iter().map(|subflow| subflow.tcp.tuple())
    }

    /// Both ends of the subflow `id`.
    #[inline]
    pub(crate) fn flow(&self, id: SubflowId) -> Option<FourTuple> {
        Some(self.subflows.find(id)?.tcp.tuple())
    }

    pub(crate) fn info(&self) -> ConnectionInfo {
        ConnectionInfo {
            mptcp: self.stream.lifecycle.is_mptcp(),
            version: self.stream.negotiation.version(),
            scheduler: self.scheduling.name(),
            checksum: self.stream.negotiation.has_checksum(),
            local_token: self.stream.negotiation.local_token(),
            remote_token: self.stream.negotiation.remote_token(),
            data_una: self.stream.send.una(),
            data_next: self.stream.send.next(),
            receive_next: self.stream.receive.next(),
            send_buffer_bytes: self.stream.send.len_bytes(),
            unsent_bytes: self.stream.send.unsent_bytes(),
            receive_buffer_bytes: self.stream.receive.window_bytes(&self.stream.config)
                + self.stream.receive.unread_bytes(),
            unread_bytes: self.stream.receive.unread_bytes(),
            reassembly_bytes: self.stream.receive.waiting_bytes(),
            subflows: self
                .subflows
                .iter()
                .map(|subflow| {
                    let (held_up, held_up_byte_seconds) = self.path_judge.held_up(subflow.state.id);
                    SubflowInfo {
                        id: subflow.state.id,
                        tuple: subflow.tcp.tuple(),
                        established: matches!(subflow.state.stage(), Stage::Established | Stage::Plain),
                        backup: subflow.state.role.is_backup(),
                        set_aside: subflow.state.role.is_aside(),
                        held_up,
                        held_up_byte_seconds,
                        stale: subflow.state.path.is_stale(),
                        local_id: subflow.state.role.local_id(),
                        remote_id: subflow.state.role.remote_id(),
                        tcp: subflow.tcp.info(),
                    }
                })
                .collect(),
        }
    }
}
