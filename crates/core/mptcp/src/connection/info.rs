use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_tcp::Info as TcpInfo;
use polypath_units::Duration;
use polypath_wire::{DataSeq, FourTuple, MptcpVersion};

use super::Connection;
use crate::carried::Carried;
use crate::identifiers::{AddressId, SubflowId};
use crate::subflow::Stage;

/// State of a connection, in the words of `MPTCP_INFO`.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Multipath TCP is in use; false after a fallback.
    pub mptcp: bool,
    /// This end opened the connection.
    pub is_client: bool,
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

/// A subflow in numbers, whichever engine carries it: our own stack, the kernel's Multipath TCP, or plain TCP, whose
/// only subflow is the connection.
///
/// There is no other type for this. What commands print, what goes over a control socket and what C programs read are views
/// of it, each made by one `From`.
///
/// ```
/// # mod polypath { pub use {polypath_mptcp as mptcp, polypath_units as units, polypath_wire as wire}; }
/// use polypath::mptcp::{Host, HostConfig, SubflowInfo};
/// use polypath::units::Instant;
/// use polypath::wire::Endpoint;
///
/// fn describe(subflow: &SubflowInfo) -> String {
///     let backup = match &subflow.multipath {
///         Some(multipath) => if multipath.backup { "a backup" } else { "no backup" },
///         None => "perhaps a backup",
///     };
///     let tcp = &subflow.tcp;
///     format!("{}: {backup}, window of {} bytes, {} bytes acknowledged", subflow.tuple.remote, tcp.cwnd_bytes, tcp.bytes_acked)
/// }
///
/// # let now = Instant::ZERO;
/// let mut server = Host::new(HostConfig::default(), 1);
/// let at = Endpoint::new([10, 0, 0, 2].into(), 80);
/// server.listen(at).unwrap();
/// let mut client = Host::new(HostConfig::default(), 2);
/// let id = client.connect(now, Endpoint::new([10, 0, 0, 1].into(), 0), at, None).unwrap();
/// for _ in 0..3 {
///     while let Some(packet) = client.poll_transmit(now) {
///         server.handle_packet(now, packet);
///     }
///     while let Some(packet) = server.poll_transmit(now) {
///         client.handle_packet(now, packet);
///     }
/// }
/// let info = client.info(id).unwrap();
/// assert!(info.subflows[0].established);
/// assert_eq!(describe(&info.subflows[0]), "10.0.0.2:80: no backup, window of 14600 bytes, 0 bytes acknowledged");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SubflowInfo {
    /// Both ends. Addresses are as the engine has them: a socket of the kernel for IPv6 may have an IPv4 address mapped to it.
    pub tuple: FourTuple,
    /// Ready for data.
    pub established: bool,
    /// What Multipath TCP knows of it; `None` where there is none, and of an engine that does not tell, as the kernel's.
    pub multipath: Option<MultipathInfo>,
    /// In the words of `TCP_INFO`.
    pub tcp: TcpInfo,
}

/// What Multipath TCP knows of a subflow beyond TCP.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MultipathInfo {
    /// Identifier within the connection.
    pub id: SubflowId,
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
}

impl SubflowInfo {
    /// Of a connection of plain TCP, which is its only subflow.
    #[must_use]
    pub fn plain(tuple: FourTuple, tcp: TcpInfo) -> Self {
        Self { tuple, established: tcp.state.is_synchronized(), multipath: None, tcp }
    }

    /// Known to be a backup.
    #[must_use]
    pub fn is_backup(&self) -> bool {
        self.multipath.as_ref().is_some_and(|multipath| multipath.backup)
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

    /// What each subflow has carried.
    pub(crate) fn carried(&self) -> impl Iterator<Item = (IpAddr, Carried)> {
        self.subflows.iter().map(|subflow| (subflow.tcp.tuple().local.addr, Carried::by(subflow)))
    }

    /// This end opened the connection.
    pub(crate) fn is_client(&self) -> bool {
        self.stream.negotiation.is_client()
    }

    pub(crate) fn info(&self) -> ConnectionInfo {
        ConnectionInfo {
            mptcp: self.stream.lifecycle.is_mptcp(),
            is_client: self.is_client(),
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
                        tuple: subflow.tcp.tuple(),
                        established: matches!(subflow.state.stage(), Stage::Established | Stage::Plain),
                        multipath: Some(MultipathInfo {
                            id: subflow.state.id,
                            backup: subflow.state.role.is_backup(),
                            set_aside: subflow.state.role.is_aside(),
                            held_up,
                            held_up_byte_seconds,
                            stale: subflow.state.path.is_stale(),
                            local_id: subflow.state.role.local_id(),
                            remote_id: subflow.state.role.remote_id(),
                        }),
                        tcp: subflow.tcp.info(),
                    }
                })
                .collect(),
        }
    }
}
