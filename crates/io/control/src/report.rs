use std::fmt;
use std::net::{IpAddr, SocketAddr};

use polypath_mptcp::{ConnectionInfo, FallbackReason, SubflowError, SubflowInfo};
use polypath_tcp::State;
use serde::{Deserialize, Serialize};

/// A connection, in the words of `ss -Mi`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// This end of the first subflow; none while there is no subflow.
    pub local: Option<SocketAddr>,
    /// The peer's end of the first subflow.
    pub remote: Option<SocketAddr>,
    /// Multipath TCP is in use; false after a fallback.
    pub is_multipath: bool,
    /// Version of Multipath TCP.
    pub version: u8,
    /// The DSS checksum is in use.
    pub csum_enabled: bool,
    /// Name of the scheduler.
    pub scheduler: String,
    /// By which the peer addresses this end.
    pub token: u32,
    /// By which this end addresses the peer.
    pub remote_token: u32,
    /// Data sequence number of the next byte to be sent for the first time.
    pub write_seq: u64,
    /// First byte that the peer has not acknowledged.
    pub snd_una: u64,
    /// Next byte expected.
    pub rcv_nxt: u64,
    /// Bytes that the application has not read.
    pub recv_q_bytes: u64,
    /// Bytes that are not acknowledged or not sent.
    pub send_q_bytes: u64,
    /// Bytes that wait for others before them.
    pub reassembly_bytes: u64,
    /// Live subflows.
    pub subflows: Vec<SubflowReport>,
}

/// Where connections are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerReport {
    /// At this address, or at all of them; with port 0 at every port where nothing else listens.
    pub local: SocketAddr,
    /// Connections that the application has not taken.
    pub waiting: u64,
    /// How many of them may wait.
    pub most_waiting: u64,
}

/// A subflow, in the words of `ss -ti`: a view of [`SubflowInfo`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubflowReport {
    /// Identifier within the connection.
    pub id: u8,
    /// Name of the interface that it goes over, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// This end, as the network knows it.
    pub local: SocketAddr,
    /// The peer, as the network knows it.
    pub remote: SocketAddr,
    /// Local address identifier.
    pub local_id: u8,
    /// Remote address identifier.
    pub remote_id: u8,
    /// State of its TCP, by the name that `ss state` has for it.
    #[serde(default)]
    pub state: String,
    /// Ready for data.
    pub is_established: bool,
    /// Used only when no regular path works.
    pub is_backup: bool,
    /// Nothing was acknowledged over several retransmission timeouts.
    #[serde(default)]
    pub is_stale: bool,
    /// The peer was asked not to send over it, since it held up the rest, or would.
    #[serde(default)]
    pub is_set_aside: bool,
    /// Milliseconds for which what came over others waited for what came over it.
    #[serde(default)]
    pub held_up_ms: f64,
    /// Congestion control.
    pub congestion: String,
    /// Milliseconds until a retransmission.
    pub rto_ms: f64,
    /// Milliseconds of smoothed round-trip time.
    pub rtt_ms: f64,
    /// Milliseconds of its variation.
    pub rttvar_ms: f64,
    /// Milliseconds of the least round-trip time.
    pub minrtt_ms: f64,
    /// Milliseconds of round-trip time by the timestamps that come back with data; 0 before the first sample.
    #[serde(default)]
    pub rcv_rtt_ms: f64,
    /// It was measured later than `rtt_ms`: this end receives, and sends hardly anything.
    #[serde(default)]
    pub is_rcv_rtt_newer: bool,
    /// Bytes of payload in a segment.
    pub mss_bytes: u32,
    /// Path MTU.
    pub pmtu_bytes: u32,
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow-start threshold; none before the first loss.
    pub ssthresh_bytes: Option<u64>,
    /// Sent and neither acknowledged nor lost.
    pub in_flight_bytes: u64,
    /// Handed over and not sent.
    pub notsent_bytes: u64,
    /// Payload sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload acknowledged.
    pub bytes_acked: u64,
    /// Payload received.
    pub bytes_received: u64,
    /// Payload sent again.
    pub bytes_retrans: u64,
    /// Data segments sent.
    pub data_segs_out: u64,
    /// Segments sent again.
    pub retrans: u64,
    /// The peer's window.
    pub snd_wnd_bytes: u64,
    /// Bits per second at which segments leave; 0 while nothing limits it.
    pub pacing_rate_bps: u64,
    /// Bits per second that arrived lately.
    pub delivery_rate_bps: u64,
}

impl From<&ConnectionInfo> for ConnectionReport {
    fn from(info: &ConnectionInfo) -> Self {
        let first = info.subflows.first();
        Self {
            local: first.map(|subflow| subflow.tuple.local.into()),
            remote: first.map(|subflow| subflow.tuple.remote.into()),
            is_multipath: info.mptcp,
            version: match info.version {
                polypath_wire::MptcpVersion::V0 => 0,
                polypath_wire::MptcpVersion::V1 => 1,
            },
            csum_enabled: info.checksum,
            scheduler: info.scheduler.into(),
            token: info.local_token,
            remote_token: info.remote_token,
            write_seq: info.data_next.0,
            snd_una: info.data_una.0,
            rcv_nxt: info.receive_next.0,
            recv_q_bytes: info.unread_bytes,
            send_q_bytes: info.send_buffer_bytes,
            reassembly_bytes: info.reassembly_bytes,
            subflows: info.subflows.iter().map(SubflowReport::from).collect(),
        }
    }
}

impl SubflowReport {
    /// Milliseconds of round-trip time, by the estimate that was measured last.
    #[must_use]
    pub const fn latest_rtt_ms(&self) -> f64 {
        if self.is_rcv_rtt_newer { self.rcv_rtt_ms } else { self.rtt_ms }
    }
}

impl From<&SubflowInfo> for SubflowReport {
    fn from(info: &SubflowInfo) -> Self {
        let tcp = &info.tcp;
        // Only stacks of Multipath TCP are observed, and they tell.
        let multipath = info.multipath.clone().unwrap_or_default();
        Self {
            id: multipath.id.0,
            interface: None,
            local: info.tuple.local.into(),
            remote: info.tuple.remote.into(),
            local_id: multipath.local_id.0,
            remote_id: multipath.remote_id.0,
            state: state_name(tcp.state).into(),
            is_established: info.established,
            is_backup: multipath.backup,
            is_stale: multipath.stale,
            is_set_aside: multipath.set_aside,
            held_up_ms: multipath.held_up.as_millis_f64(),
            congestion: tcp.congestion.unwrap_or_default().into(),
            rto_ms: tcp.rto.as_millis_f64(),
            rtt_ms: tcp.srtt.as_millis_f64(),
            rttvar_ms: tcp.rttvar.as_millis_f64(),
            minrtt_ms: tcp.min_rtt.as_millis_f64(),
            rcv_rtt_ms: tcp.rcv_rtt.as_millis_f64(),
            is_rcv_rtt_newer: tcp.rcv_rtt_is_newer,
            mss_bytes: tcp.mss_bytes,
            pmtu_bytes: tcp.pmtu_bytes,
            cwnd_bytes: tcp.cwnd_bytes,
            // Without a loss, the threshold is beyond every window.
            ssthresh_bytes: Some(tcp.ssthresh_bytes).filter(|bytes| *bytes < 1 << 40),
            in_flight_bytes: tcp.in_flight_bytes,
            notsent_bytes: tcp.unsent_bytes,
            bytes_sent: tcp.bytes_sent,
            bytes_acked: tcp.bytes_acked,
            bytes_received: tcp.bytes_received,
            bytes_retrans: tcp.bytes_retrans,
            data_segs_out: tcp.data_segs_out,
            retrans: tcp.retransmits,
            snd_wnd_bytes: tcp.peer_window_bytes,
            pacing_rate_bps: tcp.pacing_rate.as_bps(),
            delivery_rate_bps: tcp.delivery_rate.as_bps(),
        }
    }
}

/// As `ss state` names it.
fn state_name(state: State) -> &'static str {
    match state {
        State::SynSent => "syn-sent",
        State::SynReceived => "syn-recv",
        State::Established => "established",
        State::FinWait1 => "fin-wait-1",
        State::FinWait2 => "fin-wait-2",
        State::CloseWait => "close-wait",
        State::Closing => "closing",
        State::LastAck => "last-ack",
        State::TimeWait => "time-wait",
        State::Closed => "closed",
    }
}

/// What happened. The words are those of `ip mptcp monitor`, and a few more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum EventKind {
    /// A connection is new.
    Created,
    /// A connection is open.
    Established,
    /// A connection is over.
    Closed,
    /// The peer announced an address.
    Announced,
    /// The peer withdrew an address.
    Removed,
    /// A further subflow is ready for data.
    SfEstablished,
    /// A subflow ended.
    SfClosed,
    /// Nothing was acknowledged on a subflow over several retransmission timeouts. The kernel does not tell.
    SfStale,
    /// Something was, on one that had been stale. The kernel does not tell.
    SfRecovered,
    /// The peer was asked to use a subflow, or not to.
    SfPriority,
    /// A connection is plain TCP from now on. The kernel does not tell.
    FellBack,
    /// The receiver was too slow and missed events. The kernel does not tell.
    Missed,
}

impl EventKind {
    /// As `ip mptcp monitor` writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Established => "ESTABLISHED",
            Self::Closed => "CLOSED",
            Self::Announced => "ANNOUNCED",
            Self::Removed => "REMOVED",
            Self::SfStale => "SF_STALE",
            Self::SfRecovered => "SF_RECOVERED",
            Self::SfPriority => "SF_PRIO",
            Self::SfEstablished => "SF_ESTABLISHED",
            Self::SfClosed => "SF_CLOSED",
            Self::FellBack => "FELL_BACK",
            Self::Missed => "MISSED",
        }
    }
}

/// An event. Written with `{}` it is a line of `ip mptcp monitor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReport {
    /// What happened.
    pub event: EventKind,
    /// When, in microseconds since 1970 (UTC); 0 from a stack that does not tell.
    #[serde(default)]
    pub time_us: u64,
    /// The connection, by its local token.
    pub token: u32,
    /// Remote address identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remid: Option<u8>,
    /// Local address identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locid: Option<u8>,
    /// This end of the subflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// The peer's end, or the address that it announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<SocketAddr>,
    /// Name of the interface that the subflow goes over. The kernel tells its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The subflow is a backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<bool>,
    /// Why a subflow ended, by the system's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<i32>,
    /// Why the peer reset a subflow (RFC 8684 §3.6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_reason: Option<u8>,
    /// The peer opened the connection.
    #[serde(default)]
    pub server_side: bool,
    /// More, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl EventReport {
    /// An event without details.
    #[must_use]
    pub fn new(event: EventKind, token: u32) -> Self {
        Self {
            event,
            time_us: 0,
            token,
            remid: None,
            locid: None,
            local: None,
            remote: None,
            interface: None,
            backup: None,
            error: None,
            reset_reason: None,
            server_side: false,
            reason: None,
        }
    }

    pub(super) fn with_subflow(self, subflow: &SubflowReport) -> Self {
        Self {
            remid: Some(subflow.remote_id),
            locid: Some(subflow.local_id),
            local: Some(subflow.local),
            remote: Some(subflow.remote),
            interface: subflow.interface.clone(),
            ..self
        }
    }
}

/// `saddr4=…` or `saddr6=…`.
fn address(f: &mut fmt::Formatter<'_>, name: &str, address: IpAddr) -> fmt::Result {
    let family = if address.is_ipv4() { 4 } else { 6 };
    write!(f, " {name}{family}={address}")
}

impl fmt::Display for EventReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:>14}] token={:08x}", self.event.name(), self.token)?;
        if let Some(id) = self.remid {
            write!(f, " remid={id}")?;
        }
        if let Some(id) = self.locid {
            write!(f, " locid={id}")?;
        }
        if let Some(local) = self.local {
            address(f, "saddr", local.ip())?;
        }
        if let Some(remote) = self.remote {
            address(f, "daddr", remote.ip())?;
        }
        if let Some(local) = self.local {
            write!(f, " sport={}", local.port())?;
        }
        if let Some(remote) = self.remote {
            write!(f, " dport={}", remote.port())?;
        }
        if let Some(interface) = &self.interface {
            write!(f, " dev={interface}")?;
        }
        if let Some(backup) = self.backup {
            write!(f, " backup={}", u8::from(backup))?;
        }
        if let Some(error) = self.error {
            write!(f, " error={error}")?;
        }
        if let Some(reason) = self.reset_reason {
            write!(f, " reset_reason={reason}")?;
        }
        // As the kernel, which says it of these two.
        if self.server_side && matches!(self.event, EventKind::Created | EventKind::Established) {
            f.write_str(" server_side")?;
        }
        match &self.reason {
            Some(reason) => write!(f, " reason={reason}"),
            None => Ok(()),
        }
    }
}

/// The system's number for why a subflow ended.
pub(super) fn error_number(error: SubflowError) -> i32 {
    match error {
        SubflowError::Reset(_) => libc::ECONNRESET,
        SubflowError::TimedOut => libc::ETIMEDOUT,
        SubflowError::JoinStripped | SubflowError::WrongHmac | SubflowError::Middlebox => libc::EPROTO,
        SubflowError::Local => libc::ECONNABORTED,
    }
}

pub(super) fn fallback_words(reason: FallbackReason) -> &'static str {
    match reason {
        FallbackReason::Disabled => "disabled",
        FallbackReason::PeerLacksMptcp => "peer_lacks_mptcp",
        FallbackReason::SynDropped => "syn_dropped",
        FallbackReason::Mirrored => "mirrored",
        FallbackReason::ThirdAckStripped => "third_ack_stripped",
        FallbackReason::DssMissing => "dss_missing",
        FallbackReason::ChecksumFailed => "checksum_failed",
        FallbackReason::InfiniteMapping => "infinite_mapping",
    }
}
