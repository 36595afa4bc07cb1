//! What was measured, with the field names of `iperf3 --json`: the totals.

use std::ops::RangeInclusive;

use serde::Serialize;

use super::blocks::{Exchanged, ExchangedStream, Number};
use super::parameters::{Direction, Parameters, Role};
use super::report::{Carried, Datagrams, Interval, Path, Received, Start, Sum, rate, together};

/// A measurement from beginning to end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// What is measured, between whom.
    pub start: Start,
    /// What happened in each interval.
    pub intervals: Vec<Interval>,
    /// The totals.
    pub end: End,
    /// As the client has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// As the client has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_data: Option<String>,
    /// What the server printed as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_json: Option<serde_json::Value>,
    /// What the server printed as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_text: Option<String>,
    /// Why it ended before its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The totals.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct End {
    /// Each stream, at both ends.
    pub streams: Vec<StreamEnd>,
    /// Over UDP: what was sent in the first direction, and what was lost of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<Sum>,
    /// What was sent in the first direction.
    pub sum_sent: Sum,
    /// What of it was received.
    pub sum_received: Sum,
    /// The same of the other direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_bidir_reverse: Option<Sum>,
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
    /// Over TCP: where it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<StreamTotal>,
    /// Over TCP: where it was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<StreamTotal>,
    /// Over UDP: both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<DatagramTotal>,
    /// The subflows that this end has at the end of the measurement.
    pub paths: Vec<Path>,
    /// Multipath TCP was in use at the end.
    pub is_multipath: bool,
}

/// Total of a stream at one end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StreamTotal {
    /// Number of the stream.
    pub socket: u32,
    /// When, and how much.
    #[serde(flatten)]
    pub carried: Carried,
    /// What a sender knows, if its engine tells.
    #[serde(flatten)]
    pub tcp: Option<SenderTotal>,
    /// The end that prints this sends.
    pub sender: bool,
}

/// What the sender of a stream knows.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct SenderTotal {
    /// Segments sent again.
    pub retransmits: u64,
    /// 1 if packets came in another order.
    pub reorder: u64,
    /// Largest congestion window seen, in bytes.
    pub max_snd_cwnd: u64,
    /// Largest window of the peer seen, in bytes.
    pub max_snd_wnd: u64,
    /// Microseconds.
    pub max_rtt: u64,
    /// Microseconds.
    pub min_rtt: u64,
    /// Microseconds.
    pub mean_rtt: u64,
}

/// Total of a stream of datagrams.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DatagramTotal {
    /// Number of the stream.
    pub socket: u32,
    /// When, and how much.
    #[serde(flatten)]
    pub carried: Carried,
    /// What became of them.
    #[serde(flatten)]
    pub datagrams: Datagrams,
    /// Datagrams that came after one with a higher number, where this end receives.
    pub out_of_order: u64,
    /// Datagrams sent, as their sender counts them.
    pub sent_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// The same as a rate.
    pub received_bits_per_second: f64,
    /// The end that prints this sends.
    pub sender: bool,
}

impl DatagramTotal {
    /// What arrived of it.
    pub(super) fn received(&self) -> Carried {
        Carried { bytes: self.received_bytes, bits_per_second: self.received_bits_per_second, ..self.carried }
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

/// What one end measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    pub(super) cpu_user_percent: f64,
    pub(super) cpu_system_percent: f64,
    pub(super) congestion: Option<String>,
    pub(super) flows: Vec<FlowResult>,
}

/// What one end measured of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowResult {
    pub(super) id: u32,
    pub(super) socket: u32,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// At a sender over TCP.
    pub(super) tcp: Option<SenderTotal>,
    /// Of datagrams: since the beginning, and what of it was omitted.
    pub(super) packets: u64,
    pub(super) lost: u64,
    pub(super) out_of_order: u64,
    pub(super) omitted_packets: u64,
    pub(super) omitted_lost: u64,
    /// Seconds.
    pub(super) jitter: f64,
    pub(super) paths: Vec<Path>,
    pub(super) is_multipath: bool,
}

impl Results {
    /// What the peer is told.
    pub(super) fn exchanged(&self, parameters: &Parameters, role: Role) -> Exchanged {
        let sends = (0..parameters.connections()).any(|number| role.sends(parameters, number));
        let knows = self.flows.iter().any(|flow| flow.tcp.is_some());
        Exchanged {
            cpu_util_total: Number(self.cpu_user_percent + self.cpu_system_percent),
            cpu_util_user: Number(self.cpu_user_percent),
            cpu_util_system: Number(self.cpu_system_percent),
            sender_has_retransmits: Number(match (sends, knows) {
                (_, true) => 1.0,
                (true, false) => 0.0,
                (false, false) => -1.0,
            }),
            congestion_used: self.congestion.clone(),
            server_output_text: None,
            server_output_json: None,
            streams: self.flows.iter().map(ExchangedStream::from).collect(),
        }
    }

    /// A peer that tells nothing.
    pub(super) fn of_nobody(own: &Self) -> Self {
        Self::of_peer(&Exchanged::default(), own)
    }

    /// What the peer tells of the streams that this end has.
    pub(super) fn of_peer(exchanged: &Exchanged, own: &Self) -> Self {
        let user = exchanged.cpu_util_user.real();
        let flow = |own: &FlowResult| {
            let told = exchanged.streams.iter().find(|stream| stream.id.count() == u64::from(own.id));
            FlowResult::of_peer(told, own.socket)
        };
        Self {
            cpu_user_percent: user,
            cpu_system_percent: exchanged.cpu_util_system.real(),
            congestion: exchanged.congestion_used.clone(),
            flows: own.flows.iter().map(flow).collect(),
        }
    }
}

impl From<&FlowResult> for ExchangedStream {
    fn from(flow: &FlowResult) -> Self {
        Self {
            id: Number::whole(flow.id.into()),
            bytes: Number::whole(flow.bytes),
            retransmits: flow.tcp.map_or(Number(-1.0), |tcp| Number::whole(tcp.retransmits)),
            jitter: Number(flow.jitter),
            errors: Number::whole(flow.lost),
            omitted_errors: Number::whole(flow.omitted_lost),
            packets: Number::whole(flow.packets),
            omitted_packets: Number::whole(flow.omitted_packets),
            start_time: Number(0.0),
            end_time: Number(flow.seconds),
        }
    }
}

/// Of datagrams nobody counts any. Peers say so by -1, and iperf3 also by the same without a sign: 2^64 - 1.
const KNOWN_RETRANSMITS: RangeInclusive<f64> = 0.0..=9e15;

impl FlowResult {
    fn of_peer(told: Option<&ExchangedStream>, socket: u32) -> Self {
        let Some(told) = told else { return Self { socket, ..Self::default() } };
        let retransmits = told.retransmits.count();
        Self {
            id: 0,
            socket,
            bytes: told.bytes.count(),
            seconds: (told.end_time.real() - told.start_time.real()).max(0.0),
            tcp: KNOWN_RETRANSMITS
                .contains(&told.retransmits.0)
                .then(|| SenderTotal { retransmits, ..SenderTotal::default() }),
            packets: told.packets.count(),
            lost: told.errors.count(),
            omitted_packets: told.omitted_packets.count(),
            omitted_lost: told.omitted_errors.count(),
            jitter: told.jitter.real(),
            ..Self::default()
        }
    }

    fn datagrams(&self) -> (u64, u64) {
        (self.packets.saturating_sub(self.omitted_packets), self.lost.saturating_sub(self.omitted_lost))
    }
}

/// A stream as its two ends saw it.
struct Pair<'a> {
    sender: &'a FlowResult,
    receiver: &'a FlowResult,
    /// This end sends.
    sends: bool,
}

impl Pair<'_> {
    fn total(&self, at: &FlowResult, is_sending_end: bool) -> StreamTotal {
        StreamTotal {
            socket: at.socket,
            carried: Carried::new(0.0, at.seconds, at.bytes),
            tcp: at.tcp.filter(|_| is_sending_end),
            sender: self.sends,
        }
    }

    fn received(&self) -> Datagrams {
        let (packets, lost) = self.receiver.datagrams();
        Datagrams { received: Some(Received::new(self.receiver.jitter, lost, packets)), packets }
    }

    fn sent(&self) -> Datagrams {
        let (packets, _) = self.sender.datagrams();
        Datagrams { received: Some(Received::new(0.0, 0, packets)), packets }
    }

    fn datagram_total(&self) -> DatagramTotal {
        let seconds = self.sender.seconds.max(self.receiver.seconds);
        DatagramTotal {
            socket: self.sender.socket,
            carried: Carried::new(0.0, seconds, self.sender.bytes),
            datagrams: self.received(),
            out_of_order: self.receiver.out_of_order,
            sent_packets: self.sender.datagrams().0,
            received_bytes: self.receiver.bytes,
            received_bits_per_second: rate(self.receiver.bytes, seconds),
            sender: self.sends,
        }
    }

    fn stream(&self, is_udp: bool) -> StreamEnd {
        let own = if self.sends { self.sender } else { self.receiver };
        StreamEnd {
            sender: (!is_udp).then(|| self.total(self.sender, true)),
            receiver: (!is_udp).then(|| self.total(self.receiver, false)),
            udp: is_udp.then(|| self.datagram_total()),
            paths: own.paths.clone(),
            is_multipath: own.is_multipath,
        }
    }
}

/// The streams of one direction.
struct Way<'a> {
    pairs: &'a [Pair<'a>],
    is_udp: bool,
}

impl Way<'_> {
    fn sum(&self, at: impl Fn(&Pair<'_>) -> FlowResult, sender: bool) -> Sum {
        let results: Vec<FlowResult> = self.pairs.iter().map(at).collect();
        let bytes = results.iter().map(|result| result.bytes).fold(0, u64::saturating_add);
        let seconds = results.iter().map(|result| result.seconds).fold(0.0, f64::max);
        let retransmits = results.iter().filter_map(|result| result.tcp).map(|tcp| tcp.retransmits);
        Sum {
            carried: Carried::new(0.0, seconds, bytes),
            retransmits: retransmits.reduce(u64::saturating_add),
            sender,
            ..Sum::default()
        }
    }

    fn sends(&self) -> bool {
        self.pairs.first().is_some_and(|pair| pair.sends)
    }

    fn sent(&self) -> Sum {
        let datagrams = self.is_udp.then(|| together(self.pairs.iter().map(Pair::sent))).flatten();
        // iperf3 says of datagrams which end it is, and of connections which one prints.
        let sender = self.is_udp || self.sends();
        Sum { datagrams, ..self.sum(|pair| pair.sender.clone(), sender) }
    }

    fn received(&self) -> Sum {
        let datagrams = self.is_udp.then(|| together(self.pairs.iter().map(Pair::received))).flatten();
        let of = |pair: &Pair<'_>| FlowResult { tcp: None, ..pair.receiver.clone() };
        Sum { datagrams, ..self.sum(of, !self.is_udp && self.sends()) }
    }

    /// What was sent, and what was lost of it.
    fn both(&self) -> Sum {
        let datagrams = together(self.pairs.iter().map(Pair::received));
        Sum { datagrams, ..self.sum(|pair| pair.sender.clone(), self.sends()) }
    }
}

impl End {
    pub(super) fn new(parameters: &Parameters, role: Role, own: &Results, peer: &Results) -> Self {
        let is_udp = parameters.is_udp();
        let pair = |((number, ours), theirs): ((u32, _), _)| {
            let sends = role.sends(parameters, number);
            let (sender, receiver) = if sends { (ours, theirs) } else { (theirs, ours) };
            Pair { sender, receiver, sends }
        };
        let pairs: Vec<Pair<'_>> = (0..).zip(&own.flows).zip(&peer.flows).map(pair).collect();
        let (first, second) = pairs.split_at((parameters.streams as usize).min(pairs.len()));
        let (first, second) = (Way { pairs: first, is_udp }, Way { pairs: second, is_udp });
        let is_both = parameters.direction == Direction::Both;
        let (sending, receiving) = if role.sends(parameters, 0) { (own, peer) } else { (peer, own) };
        Self {
            streams: pairs.iter().map(|pair| pair.stream(is_udp)).collect(),
            sum: is_udp.then(|| first.both()),
            sum_sent: first.sent(),
            sum_received: first.received(),
            sum_bidir_reverse: (is_udp && is_both).then(|| second.both()),
            sum_sent_bidir_reverse: is_both.then(|| second.sent()),
            sum_received_bidir_reverse: is_both.then(|| second.received()),
            cpu_utilization_percent: CpuUtilization {
                host_total: own.cpu_user_percent + own.cpu_system_percent,
                host_user: own.cpu_user_percent,
                host_system: own.cpu_system_percent,
                remote_total: peer.cpu_user_percent + peer.cpu_system_percent,
                remote_user: peer.cpu_user_percent,
                remote_system: peer.cpu_system_percent,
            },
            sender_tcp_congestion: sending.congestion.clone().filter(|_| !is_udp),
            receiver_tcp_congestion: receiving.congestion.clone().filter(|_| !is_udp),
        }
    }
}
