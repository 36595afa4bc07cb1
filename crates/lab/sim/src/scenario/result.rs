//! What a run gives: serialized as the JSON of `polypath sim`.

use serde::{Serialize, Serializer};

use crate::network::ChannelStats;

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct RunResult {
    /// The scenario's name.
    pub name: String,
    /// The seed; text in JSON, as not every reader of it has so many bits.
    #[serde(serialize_with = "as_text")]
    pub seed: u64,
    /// Simulated time in seconds: the scenario's duration, or less if everything was done earlier.
    pub simulated_s: f64,
    /// Hash of every packet at both ends of every link, in hexadecimal: equal for equal runs.
    pub trace_hash: String,
    /// The connections, in the order of the file.
    pub connections: Vec<ConnectionResult>,
    /// The links, in the order of the file.
    pub links: Vec<LinkResult>,
}

fn as_text<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// A connection.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionResult {
    /// Its name in the scenario.
    pub name: String,
    /// The host that opened it.
    pub from: String,
    /// The host that accepted it.
    pub to: String,
    /// Whether it was to use Multipath TCP.
    pub mptcp: bool,
    /// Congestion control.
    pub congestion: String,
    /// Scheduler.
    pub scheduler: String,
    /// When it was open at the host that opened it, in seconds.
    pub opened_at_s: Option<f64>,
    /// When it was over at the host that opened it, in seconds.
    pub closed_at_s: Option<f64>,
    /// How it ended there, in words.
    pub closed: Option<String>,
    /// Why it fell back to TCP, if it did.
    pub fell_back: Option<String>,
    /// What went from the host that opened it.
    pub upload: Option<StreamResult>,
    /// What went to the host that opened it.
    pub download: Option<StreamResult>,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamResult {
    /// Bytes that the sender was to send; absent if there was no limit.
    pub planned_bytes: Option<u64>,
    /// Bytes that arrived in order at the receiving application.
    pub bytes: u64,
    /// Every byte that arrived was the right one.
    pub intact: bool,
    /// When the last of them arrived, in seconds; absent if nothing did.
    pub last_arrived_at_s: Option<f64>,
    /// When the last planned byte had arrived, in seconds; absent if it had not.
    pub completed_at_s: Option<f64>,
    /// Mean goodput from the opening of the connection to the last byte, in bits per second.
    pub goodput_bps: f64,
    /// Packets that were sent again, over all subflows.
    pub retransmitted_packets: u64,
    /// What arrived over time, and when.
    pub series: Series,
    /// The subflows as the sender sees them, in the order of their first sight.
    pub subflows: Vec<SubflowResult>,
    /// Delay of each block from its making to its arrival, in milliseconds, if there were blocks.
    pub block_delays_ms: Vec<f64>,
}

/// Goodput over time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// End of each interval in seconds; the first begins at 0.
    pub time_s: Vec<f64>,
    /// Mean goodput in the interval, in bits per second.
    pub goodput_bps: Vec<f64>,
}

/// A subflow as its sender sees it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SubflowResult {
    /// Identifier within the connection.
    pub id: u8,
    /// Local end.
    pub local: String,
    /// Remote end.
    pub remote: String,
    /// The link that tells it from the others: that of the sender, or that of the receiver where those of the sender are one.
    pub link: Option<String>,
    /// Payload bytes sent, retransmissions included.
    pub sent_bytes: u64,
    /// Payload bytes acknowledged.
    pub acked_bytes: u64,
    /// Packets sent again.
    pub retransmitted_packets: u64,
    /// Numbers over time.
    pub series: SubflowSeries,
}

/// A subflow over time. Points are missing while the subflow does not exist.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SubflowSeries {
    /// End of each interval in seconds.
    pub time_s: Vec<f64>,
    /// Mean rate at which payload was acknowledged in the interval, in bits per second.
    pub throughput_bps: Vec<f64>,
    /// Congestion window in bytes.
    pub cwnd_bytes: Vec<u64>,
    /// Smoothed round-trip time in milliseconds.
    pub srtt_ms: Vec<f64>,
    /// Payload in flight in bytes.
    pub in_flight_bytes: Vec<u64>,
}

/// A link.
#[derive(Clone, Debug, Serialize)]
pub struct LinkResult {
    /// Its name in the scenario.
    pub name: String,
    /// From the first node to the second.
    pub forward: ChannelResult,
    /// From the second node to the first.
    pub backward: ChannelResult,
}

/// One direction of a link.
#[derive(Clone, Debug, Serialize)]
pub struct ChannelResult {
    /// Rate at the start in bits per second, if it has one.
    pub rate_bps: Option<u64>,
    /// Totals.
    #[serde(flatten)]
    pub totals: ChannelStats,
    /// Delivered bits over what the rate at the start allows in the simulated time.
    pub utilisation: Option<f64>,
}
