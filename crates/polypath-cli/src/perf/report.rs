//! What was measured, with the field names of `iperf3 --json`.
//!
//! Beyond iperf3, each stream says at the end which subflows carried it.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use polypath_stack::engine::{StreamInfo, SubflowInfo};
use serde::{Deserialize, Serialize};

use super::flow::canonical;
use super::{Amount, Direction, Parameters};

/// A measurement from beginning to end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// What is measured, between whom.
    pub start: Start,
    /// What happened in each interval.
    pub intervals: Vec<Interval>,
    /// The totals.
    pub end: End,
    /// Why it ended before its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

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
    /// Bits per second that each stream may send; 0 without limit.
    pub target_bitrate: u64,
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

/// A moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Timestamp {
    /// For people.
    pub time: String,
    /// Seconds since 1970.
    pub timesecs: u64,
}

impl Timestamp {
    fn now() -> Self {
        let now = SystemTime::now();
        let timesecs = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { time: httpdate::fmt_http_date(now), timesecs }
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
    /// Always `TCP`, whatever carries it.
    pub protocol: &'static str,
    /// Connections in each direction.
    pub num_streams: u32,
    /// Bytes written or read at once.
    pub blksize: usize,
    /// Seconds that do not count.
    pub omit: f64,
    /// Seconds, or 0 if bytes are given.
    pub duration: f64,
    /// Bytes, or 0 if a time is given.
    pub bytes: u64,
    /// Always 0: blocks are not counted.
    pub blocks: u64,
    /// 1 if the server sends.
    pub reverse: u8,
    /// 1 if both send.
    pub bidir: u8,
    /// Always 0: type of service.
    pub tos: u8,
    /// Bits per second that each stream may send; 0 without limit.
    pub target_bitrate: u64,
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

/// A stream in an interval.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StreamInterval {
    /// Number of the stream.
    pub socket: u32,
    /// Seconds from the beginning.
    pub start: f64,
    /// Seconds from the beginning.
    pub end: f64,
    /// Length.
    pub seconds: f64,
    /// Bytes written or read.
    pub bytes: u64,
    /// The same as a rate.
    pub bits_per_second: f64,
    /// Segments sent again, by a sender whose engine tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Bytes of congestion window, of all subflows together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snd_cwnd: Option<u64>,
    /// Microseconds of smoothed round-trip time, the least of all subflows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<u64>,
    /// Belongs to the beginning that does not count.
    pub omitted: bool,
    /// This end sends.
    pub sender: bool,
}

/// Several streams together.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Sum {
    /// Seconds from the beginning.
    pub start: f64,
    /// Seconds from the beginning.
    pub end: f64,
    /// Length.
    pub seconds: f64,
    /// Bytes written or read.
    pub bytes: u64,
    /// The same as a rate.
    pub bits_per_second: f64,
    /// Segments sent again, by senders whose engine tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// In intervals: belongs to the beginning that does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted: Option<bool>,
    /// This end sends.
    pub sender: bool,
}

/// The totals.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct End {
    /// Each stream, at both ends.
    pub streams: Vec<StreamEnd>,
    /// What was sent in the first direction.
    pub sum_sent: Sum,
    /// What of it was received.
    pub sum_received: Sum,
    /// With both directions, what the server sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_sent_bidir_reverse: Option<Sum>,
    /// What of it was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_received_bidir_reverse: Option<Sum>,
    /// Processor time in per cent of the time that it took; more than 100 with several processors.
    pub cpu_utilization_percent: CpuUtilization,
    /// Congestion control of the sending end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_tcp_congestion: Option<String>,
    /// Congestion control of the receiving end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_tcp_congestion: Option<String>,
}

/// A stream, at both ends.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StreamEnd {
    /// Where it was sent.
    pub sender: StreamTotal,
    /// Where it was received.
    pub receiver: StreamTotal,
    /// The subflows that this end has at the end of the measurement.
    pub subflows: Vec<Subflow>,
    /// Multipath TCP was in use at the end.
    pub is_multipath: bool,
}

/// Total of a stream at one end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StreamTotal {
    /// Number of the stream.
    pub socket: u32,
    /// Seconds from the beginning.
    pub start: f64,
    /// Seconds from the beginning.
    pub end: f64,
    /// Length.
    pub seconds: f64,
    /// Bytes written or read.
    pub bytes: u64,
    /// The same as a rate.
    pub bits_per_second: f64,
    /// Segments sent again, by a sender whose engine tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Largest congestion window seen, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_snd_cwnd: Option<u64>,
    /// Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rtt: Option<u64>,
    /// Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt: Option<u64>,
    /// Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_rtt: Option<u64>,
    /// The end that prints this sends.
    pub sender: bool,
}

/// A subflow, at the end of a measurement: a view of [`SubflowInfo`]. An end of another version may leave things out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Subflow {
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// Bytes sent and acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_acked: Option<u64>,
    /// Bytes received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_received: Option<u64>,
    /// Segments sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Microseconds of smoothed round-trip time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<u64>,
    /// Bytes of congestion window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snd_cwnd: Option<u64>,
    /// Used only when no regular path works.
    pub backup: bool,
}

impl From<&SubflowInfo> for Subflow {
    fn from(info: &SubflowInfo) -> Self {
        Self {
            local: canonical(info.tuple.local.into()),
            remote: canonical(info.tuple.remote.into()),
            bytes_acked: Some(info.tcp.bytes_acked),
            bytes_received: Some(info.tcp.bytes_received),
            retransmits: Some(info.tcp.retransmits),
            rtt: Some(info.tcp.srtt.as_micros()),
            snd_cwnd: Some(info.tcp.cwnd_bytes),
            backup: info.is_backup(),
        }
    }
}

/// Processor time in per cent of the time that it took.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct CpuUtilization {
    /// This end.
    pub host_total: f64,
    /// In its own code.
    pub host_user: f64,
    /// In its kernel.
    pub host_system: f64,
    /// The peer.
    pub remote_total: f64,
    /// In its own code.
    pub remote_user: f64,
    /// In its kernel.
    pub remote_system: f64,
}

/// What one end measured, as it goes to the other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Results {
    pub(super) cpu_user_percent: f64,
    pub(super) cpu_system_percent: f64,
    pub(super) congestion: Option<String>,
    pub(super) flows: Vec<FlowResult>,
}

/// What one end measured of a stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct FlowResult {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) retransmits: Option<u64>,
    pub(super) max_cwnd: Option<u64>,
    pub(super) max_rtt: Option<u64>,
    pub(super) min_rtt: Option<u64>,
    pub(super) mean_rtt: Option<u64>,
    pub(super) subflows: Vec<Subflow>,
    pub(super) is_multipath: bool,
}

/// Which end of a measurement this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

impl Role {
    pub(super) fn sends(self, parameters: &Parameters, number: u32) -> bool {
        parameters.is_upload(number) == (self == Self::Client)
    }
}

impl Start {
    pub(super) fn new(parameters: &Parameters, cookie: &str, connected: Vec<Connected>) -> Self {
        let (duration, bytes) = match parameters.amount {
            Amount::Time(time) => (time.as_secs_f64(), 0),
            Amount::Bytes(bytes) => (0.0, bytes),
        };
        let target_bitrate = parameters.rate_limit.unwrap_or(0);
        Self {
            connected,
            version: concat!("polypath ", env!("CARGO_PKG_VERSION")).into(),
            system_info: system_info(),
            timestamp: Timestamp::now(),
            connecting_to: None,
            accepted_connection: None,
            cookie: cookie.into(),
            target_bitrate,
            test_start: TestStart {
                protocol: "TCP",
                num_streams: parameters.streams,
                blksize: parameters.block_bytes,
                omit: parameters.omit.as_secs_f64(),
                duration,
                bytes,
                blocks: 0,
                reverse: (parameters.direction == Direction::Download).into(),
                bidir: (parameters.direction == Direction::Both).into(),
                tos: 0,
                target_bitrate,
            },
        }
    }
}

impl End {
    pub(super) fn new(parameters: &Parameters, role: Role, own: &Results, peer: &Results) -> Self {
        let mut streams = Vec::new();
        let nothing = FlowResult::default();
        for (number, ours) in (0..).zip(&own.flows) {
            let theirs = peer.flows.get(number as usize).unwrap_or(&nothing);
            let sends = role.sends(parameters, number);
            let (sender, receiver) = if sends { (ours, theirs) } else { (theirs, ours) };
            streams.push(StreamEnd {
                sender: StreamTotal::new(number, sender, sends, true),
                receiver: StreamTotal::new(number, receiver, sends, false),
                subflows: ours.subflows.clone(),
                is_multipath: ours.is_multipath,
            });
        }
        let (first, second) = streams.split_at((parameters.streams as usize).min(streams.len()));
        let sum = |part: &[StreamEnd], end: fn(&StreamEnd) -> &StreamTotal| {
            Sum::of(part.iter().map(end).map(|total| (total.seconds, total.bytes, total.retransmits)))
                .seen_by(part.first().is_some_and(|stream| stream.sender.sender))
        };
        let is_both = parameters.direction == Direction::Both;
        let is_sender = role.sends(parameters, 0);
        let (sending, receiving) = if is_sender { (own, peer) } else { (peer, own) };
        Self {
            sum_sent: sum(first, |stream| &stream.sender),
            sum_received: sum(first, |stream| &stream.receiver),
            sum_sent_bidir_reverse: is_both.then(|| sum(second, |stream| &stream.sender)),
            sum_received_bidir_reverse: is_both.then(|| sum(second, |stream| &stream.receiver)),
            cpu_utilization_percent: CpuUtilization {
                host_total: own.cpu_user_percent + own.cpu_system_percent,
                host_user: own.cpu_user_percent,
                host_system: own.cpu_system_percent,
                remote_total: peer.cpu_user_percent + peer.cpu_system_percent,
                remote_user: peer.cpu_user_percent,
                remote_system: peer.cpu_system_percent,
            },
            sender_tcp_congestion: sending.congestion.clone(),
            receiver_tcp_congestion: receiving.congestion.clone(),
            streams,
        }
    }
}

impl StreamTotal {
    fn new(number: u32, result: &FlowResult, sender: bool, is_sending_end: bool) -> Self {
        let only = |value: Option<u64>| value.filter(|_| is_sending_end);
        Self {
            socket: 5 + 2 * number,
            start: 0.0,
            end: result.seconds,
            seconds: result.seconds,
            bytes: result.bytes,
            bits_per_second: rate(result.bytes, result.seconds),
            retransmits: only(result.retransmits),
            max_snd_cwnd: only(result.max_cwnd),
            max_rtt: only(result.max_rtt),
            min_rtt: only(result.min_rtt),
            mean_rtt: only(result.mean_rtt),
            sender,
        }
    }
}

impl Sum {
    /// Of streams: seconds, bytes and retransmissions.
    pub(super) fn of(parts: impl Iterator<Item = (f64, u64, Option<u64>)>) -> Self {
        let mut sum = Self::default();
        for (seconds, bytes, retransmits) in parts {
            sum.seconds = sum.seconds.max(seconds);
            sum.bytes += bytes;
            if let Some(more) = retransmits {
                *sum.retransmits.get_or_insert(0) += more;
            }
        }
        sum.end = sum.seconds;
        sum.bits_per_second = rate(sum.bytes, sum.seconds);
        sum
    }

    pub(super) fn seen_by(self, sender: bool) -> Self {
        Self { sender, ..self }
    }
}

/// Bits per second; 0 where no time passed.
pub(super) fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}

/// What retransmissions, window and round-trip time are now, of all subflows together.
pub(super) fn summary(info: &StreamInfo) -> (Option<u64>, Option<u64>, Option<u64>) {
    let tcp = || info.subflows.iter().map(|subflow| &subflow.tcp);
    let rtt = tcp().map(|tcp| tcp.srtt.as_micros()).min();
    let retransmits = tcp().map(|tcp| tcp.retransmits).reduce(u64::saturating_add);
    (retransmits, tcp().map(|tcp| tcp.cwnd_bytes).reduce(u64::saturating_add), rtt)
}

fn system_info() -> String {
    let parts = ["ostype", "hostname", "osrelease", "version"].map(|name| {
        std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default().trim().to_string()
    });
    format!("{} {}", parts.join(" "), std::env::consts::ARCH)
}
