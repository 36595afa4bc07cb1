//! What was measured, with the field names of `iperf3 --json`: the beginning and the intervals.
//!
//! Beyond iperf3, `paths` says which subflows carried a stream.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use polypath_stack::engine::SubflowInfo;
use serde::Serialize;

use super::flow::{Flow, canonical};
use super::parameters::{Amount, Direction, Parameters};

/// What is measured, between whom.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Start {
    /// The data connections.
    pub connected: Vec<Connected>,
    /// This program.
    pub version: String,
    /// The operating system.
    pub system_info: String,
    /// When it began.
    pub timestamp: Timestamp,
    /// At a client: the server as it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connecting_to: Option<HostPort>,
    /// At a server: the client's control connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_connection: Option<HostPort>,
    /// Name of this measurement at both ends.
    pub cookie: String,
    /// Bytes of a segment that were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_mss: Option<u16>,
    /// Bytes of a segment of the control connection, over TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_mss_default: Option<u32>,
    /// Bits per second that each stream may send; 0 without limit.
    pub target_bitrate: u64,
    /// Always 0: the kernel does not pace.
    pub fq_rate: u64,
    /// Bytes of buffers that were asked for; 0 for the engine's own.
    pub sock_bufsize: u64,
    /// Bytes of the first stream's send buffer.
    pub sndbuf_actual: u64,
    /// Bytes of the first stream's receive buffer.
    pub rcvbuf_actual: u64,
    /// Parameters.
    pub test_start: TestStart,
}

/// A data connection.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Connected {
    /// Number of the stream.
    pub socket: u32,
    /// This end.
    pub local_host: String,
    /// This end.
    pub local_port: u16,
    /// The peer.
    pub remote_host: String,
    /// The peer.
    pub remote_port: u16,
}

impl From<&Flow> for Connected {
    fn from(flow: &Flow) -> Self {
        Self {
            socket: flow.socket(),
            local_host: flow.local.ip().to_string(),
            local_port: flow.local.port(),
            remote_host: flow.remote.ip().to_string(),
            remote_port: flow.remote.port(),
        }
    }
}

/// A moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Timestamp {
    /// For people.
    pub time: String,
    /// Seconds since 1970.
    pub timesecs: u64,
    /// Milliseconds since 1970.
    pub timemillisecs: u64,
}

impl Timestamp {
    fn now() -> Self {
        let now = SystemTime::now();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let timemillisecs = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Self { time: httpdate::fmt_http_date(now), timesecs: since.as_secs(), timemillisecs }
    }
}

/// A host and a port.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HostPort {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Parameters.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TestStart {
    /// `TCP` or `UDP`.
    pub protocol: &'static str,
    /// Connections in each direction.
    pub num_streams: u32,
    /// Bytes written or read at once.
    pub blksize: usize,
    /// Seconds that do not count.
    pub omit: f64,
    /// Seconds, or 0 if an amount is given.
    pub duration: f64,
    /// Bytes, or 0 if something else is given.
    pub bytes: u64,
    /// Blocks, or 0 if something else is given.
    pub blocks: u64,
    /// 1 if the server sends.
    pub reverse: u8,
    /// 1 if both send.
    pub bidir: u8,
    /// Type of service.
    pub tos: u8,
    /// Bits per second that each stream may send; 0 without limit.
    pub target_bitrate: u64,
    /// Always 0: the kernel does not pace.
    pub fqrate: u64,
    /// Seconds between reports; 0 for none.
    pub interval: f64,
    /// Always 0: each datagram goes alone.
    pub gso: u8,
    /// Always 0.
    pub gro: u8,
}

impl From<&Parameters> for TestStart {
    fn from(parameters: &Parameters) -> Self {
        let (mut duration, mut bytes, mut blocks) = Default::default();
        match parameters.amount {
            Amount::Time(time) => duration = time.as_secs_f64(),
            Amount::Bytes(count) => bytes = count,
            Amount::Blocks(count) => blocks = count,
        }
        Self {
            protocol: if parameters.is_udp() { "UDP" } else { "TCP" },
            num_streams: parameters.streams,
            blksize: parameters.block_bytes(),
            omit: parameters.omit.as_secs_f64(),
            duration,
            bytes,
            blocks,
            reverse: (parameters.direction == Direction::Download).into(),
            bidir: (parameters.direction == Direction::Both).into(),
            tos: parameters.tos,
            target_bitrate: parameters.rate_limit.unwrap_or(0),
            fqrate: 0,
            interval: parameters.interval.unwrap_or_default().as_secs_f64(),
            gso: 0,
            gro: 0,
        }
    }
}

impl Start {
    pub(super) fn new(
        parameters: &Parameters,
        cookie: String,
        mss_bytes: Option<u32>,
        flows: &[Flow],
    ) -> Self {
        let (sndbuf_actual, rcvbuf_actual) = flows.first().map_or((0, 0), Flow::buffers);
        let is_default = !parameters.is_udp() && parameters.mss_bytes.is_none();
        Self {
            connected: flows.iter().map(Connected::from).collect(),
            version: concat!("polypath ", env!("CARGO_PKG_VERSION")).into(),
            system_info: system_info(),
            timestamp: Timestamp::now(),
            connecting_to: None,
            accepted_connection: None,
            cookie,
            tcp_mss: parameters.mss_bytes.filter(|_| !parameters.is_udp()),
            tcp_mss_default: is_default.then(|| mss_bytes.unwrap_or(0)),
            target_bitrate: parameters.rate_limit.unwrap_or(0),
            fq_rate: 0,
            sock_bufsize: parameters.window_bytes.unwrap_or(0),
            sndbuf_actual,
            rcvbuf_actual,
            test_start: parameters.into(),
        }
    }
}

fn system_info() -> String {
    let parts = ["ostype", "hostname", "osrelease", "version"].map(|name| {
        std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default().trim().to_string()
    });
    format!("{} {}", parts.join(" "), std::env::consts::ARCH)
}

/// What happened in an interval.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Interval {
    /// Each stream.
    pub streams: Vec<StreamInterval>,
    /// All streams of the first direction.
    pub sum: Sum,
    /// With both directions, the streams that the client receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_bidir_reverse: Option<Sum>,
}

/// What went between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Carried {
    /// Seconds from the beginning.
    pub start: f64,
    /// Seconds from the beginning.
    pub end: f64,
    /// Length.
    pub seconds: f64,
    /// Bytes written or read; of a total of datagrams, bytes sent.
    pub bytes: u64,
    /// The same as a rate.
    pub bits_per_second: f64,
}

impl Carried {
    pub(super) fn new(start: f64, end: f64, bytes: u64) -> Self {
        let seconds = end - start;
        Self { start, end, seconds, bytes, bits_per_second: rate(bytes, seconds) }
    }

    /// Together with what went next.
    pub(super) fn add(&mut self, next: Self) {
        *self = Self::new(self.start, next.end, self.bytes.saturating_add(next.bytes));
    }
}

/// A stream in an interval.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct StreamInterval {
    /// Number of the stream.
    pub socket: u32,
    /// When, and how much.
    #[serde(flatten)]
    pub carried: Carried,
    /// What a sender over TCP knows, if its engine tells.
    #[serde(flatten)]
    pub tcp: Option<SenderState>,
    /// What is known of datagrams.
    #[serde(flatten)]
    pub datagrams: Option<Datagrams>,
    /// Belongs to the beginning that does not count.
    pub omitted: bool,
    /// This end sends.
    pub sender: bool,
    /// The subflows that carried it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathInterval>,
}

/// What the sender of a stream knows, of all subflows together.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct SenderState {
    /// Segments sent again.
    pub retransmits: u64,
    /// Bytes of congestion window.
    pub snd_cwnd: u64,
    /// Bytes of the peer's window, the largest of all subflows.
    pub snd_wnd: u64,
    /// Microseconds of smoothed round-trip time, the least of all subflows.
    pub rtt: u64,
    /// Microseconds of its variance, of the same subflow.
    pub rttvar: u64,
    /// Bytes of a packet, the least of all subflows.
    pub pmtu: u64,
    /// 1 if packets came in another order on some subflow.
    pub reorder: u64,
}

/// What is known of datagrams at one end.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Datagrams {
    /// What a receiver knows.
    #[serde(flatten)]
    pub received: Option<Received>,
    /// Datagrams.
    pub packets: u64,
}

/// What the receiver of datagrams knows.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Received {
    /// Milliseconds.
    pub jitter_ms: f64,
    /// Datagrams that did not arrive.
    pub lost_packets: u64,
    /// The same in per cent.
    pub lost_percent: f64,
}

impl Received {
    pub(super) fn new(jitter_seconds: f64, lost_packets: u64, packets: u64) -> Self {
        let share = if packets > 0 { lost_packets as f64 / packets as f64 } else { 0.0 };
        Self { jitter_ms: jitter_seconds * 1000.0, lost_packets, lost_percent: 100.0 * share }
    }
}

/// A subflow in an interval.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PathInterval {
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// Bytes that were acknowledged, or received.
    pub bytes: u64,
    /// The same as a rate.
    pub bits_per_second: f64,
    /// Microseconds of smoothed round-trip time.
    pub rtt: u64,
    /// Bytes of congestion window.
    pub snd_cwnd: u64,
    /// Segments sent again, since the beginning.
    pub retransmits: u64,
}

impl PathInterval {
    /// What went over it before belongs to it, in an interval of so many seconds.
    pub(super) fn add(&mut self, bytes: u64, seconds: f64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.bits_per_second = rate(self.bytes, seconds);
    }
}

/// A subflow, at the end of a measurement: a view of [`SubflowInfo`].
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Path {
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// Bytes sent and acknowledged.
    pub bytes_acked: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Microseconds of smoothed round-trip time.
    pub rtt: u64,
    /// Bytes of congestion window.
    pub snd_cwnd: u64,
    /// Used only when no regular path works.
    pub backup: bool,
}

impl From<&SubflowInfo> for Path {
    fn from(info: &SubflowInfo) -> Self {
        Self {
            local: canonical(info.tuple.local.into()),
            remote: canonical(info.tuple.remote.into()),
            bytes_acked: info.tcp.bytes_acked,
            bytes_received: info.tcp.bytes_received,
            retransmits: info.tcp.retransmits,
            rtt: info.tcp.srtt.as_micros(),
            snd_cwnd: info.tcp.cwnd_bytes,
            backup: info.is_backup(),
        }
    }
}

/// Several streams together, in an interval.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Sum {
    /// When, and how much.
    #[serde(flatten)]
    pub carried: Carried,
    /// Segments sent again, by senders whose engine tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// What is known of datagrams.
    #[serde(flatten)]
    pub datagrams: Option<Datagrams>,
    /// In intervals: belongs to the beginning that does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted: Option<bool>,
    /// This end sends.
    pub sender: bool,
}

impl Sum {
    /// Of the streams of one direction.
    pub(super) fn of_interval(streams: &[StreamInterval]) -> Self {
        let Some(first) = streams.first() else { return Self::default() };
        let carried = first.carried;
        let bytes = streams.iter().map(|stream| stream.carried.bytes).fold(0, u64::saturating_add);
        let retransmits = streams.iter().filter_map(|stream| stream.tcp).map(|tcp| tcp.retransmits);
        Self {
            carried: Carried { bytes, bits_per_second: rate(bytes, carried.seconds), ..carried },
            retransmits: retransmits.reduce(u64::saturating_add),
            datagrams: together(streams.iter().filter_map(|stream| stream.datagrams)),
            omitted: Some(first.omitted),
            sender: first.sender,
        }
    }
}

/// Datagrams of several streams; their jitter is the mean.
pub(super) fn together(parts: impl Iterator<Item = Datagrams>) -> Option<Datagrams> {
    let (mut jitter, mut lost, mut packets, mut receivers, mut any) = (0.0, 0, 0u64, 0u32, false);
    for part in parts {
        any = true;
        packets = packets.saturating_add(part.packets);
        if let Some(received) = part.received {
            jitter += received.jitter_ms / 1000.0;
            lost = received.lost_packets.saturating_add(lost);
            receivers += 1;
        }
    }
    let received = (receivers > 0).then(|| Received::new(jitter / f64::from(receivers), lost, packets));
    any.then_some(Datagrams { received, packets })
}

/// More than any link carries: what a peer says it measured can be anything.
const MOST_BITS_PER_SECOND: f64 = 1e18;

/// Bits per second; 0 where no time passed.
pub(super) fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { (bytes as f64 * 8.0 / seconds).min(MOST_BITS_PER_SECOND) } else { 0.0 }
}
