//! What a run gives.

use polypath_sim::network::{ChannelId, LinkId, Network};
use serde::{Deserialize, Serialize};

use super::series::Series;

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Bytes that arrived in order at the receiving application.
    pub received_bytes: u64,
    /// Those bytes over the time from the first SYN to the last byte, or to the end of a bulk transfer, in bits per
    /// second.
    pub goodput_bps: f64,
    /// From the first SYN to the last planned byte, in seconds, if it arrived in time. Of bulk transfers: never.
    pub completion_s: Option<f64>,
    /// The path that the connection was opened over.
    pub initial_path: usize,
    /// Each path.
    pub paths: Vec<PathOutcome>,
    /// Goodput of each connection in bits per second, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows_bps: Vec<f64>,
    /// Goodput of the variant's connections over that of plain TCP beside them, where there are both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// The longest time from a change of the paths until a connection has again what they carry, in seconds, if there is one connection
    /// and they change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptation_s: Option<f64>,
    /// Rates over time, where the experiment has a timeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// Delays of blocks, if blocks were sent.
    pub blocks: Option<BlockDelays>,
    /// What a player would have of a download.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub playback: Option<PlaybackOutcome>,
    /// What a player had of an adaptive stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamOutcome>,
    /// What arrived of a stream of datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<DatagramOutcome>,
    /// Largest receive buffer that was promised to the sender, in bytes, if that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes: Option<u64>,
    /// When the congestion window of the fastest path was first as large as slow start made it, or as the receive buffer, in
    /// seconds from the first SYN, if that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_start_s: Option<f64>,
    /// Events that the simulator processed.
    pub events: u64,
}

/// What went over a path, from the host that opened the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOutcome {
    /// Bytes that arrived, IP headers included.
    pub delivered_bytes: u64,
    /// Packets that arrived.
    pub delivered_packets: u64,
    /// Packets that the queue dropped.
    pub queue_drops: u64,
    /// Packets lost on the line.
    pub lost_packets: u64,
}

/// What somebody would have of a download who plays the file from its beginning while it comes (Kaspar 2011, §6.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaybackOutcome {
    /// The rate at which it is played, in bits per second.
    pub rate_bps: f64,
    /// The least time from the first request until the player begins, so that it never waits again, in seconds.
    pub startup_s: f64,
    /// The most bytes that are held at a time.
    pub buffer_bytes: u64,
    /// The most bytes behind a gap at a time.
    pub blocked_bytes: u64,
}

/// What a player had of an adaptive stream (Kaspar 2011, §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamOutcome {
    /// Segments that came.
    pub segments: u64,
    /// Segments of the movie.
    pub planned_segments: u64,
    /// Segments that came in the highest quality.
    pub top_segments: u64,
    /// The rate of the qualities that came, in the mean, in bits per second.
    pub mean_bps: f64,
    /// Neighbours of different qualities.
    pub changes: u64,
    /// From the first SYN until the player begins, in seconds, if it does.
    pub startup_s: Option<f64>,
    /// How often it waited in the middle.
    pub stalls: u64,
    /// How long it waited in the middle, in seconds.
    pub stalled_s: f64,
}

/// What arrived of a stream of numbered packets, in the terms of RFC 4737 and RFC 5236.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatagramOutcome {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Type-P-Reordered-Ratio-Stream: the share of those that arrived after one that was sent later.
    pub reordered: f64,
    /// The share of those that are displaced by no position.
    pub in_place: f64,
    /// By how many positions most of the late packets are displaced; zero if none is.
    pub displacement: u64,
    /// Reorder entropy.
    pub entropy: f64,
    /// How many packets wait for earlier ones at most, after half of the arrivals.
    pub buffer_p50: u64,
    /// After 95 % of them.
    pub buffer_p95: u64,
    /// After 99 % of them.
    pub buffer_p99: u64,
    /// The longest time from a change of the paths until the whole stream arrives again, in seconds, if they change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptation_s: Option<f64>,
}

/// How long blocks took from their making to their arrival, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockDelays {
    /// Blocks that were made.
    pub(crate) made: u64,
    /// Blocks that arrived.
    pub(crate) arrived: u64,
    /// The least delay.
    pub(crate) min_s: f64,
    /// Median.
    pub(crate) median_s: f64,
    /// 95th percentile.
    pub(crate) p95_s: f64,
    /// 99th percentile.
    pub(crate) p99_s: f64,
    /// The longest delay.
    pub(crate) max_s: f64,
}

impl PathOutcome {
    pub(super) fn of(network: &Network, link: LinkId) -> Self {
        Self::by(network, link.forward())
    }

    /// What went the other way: from the host that accepted the connection.
    pub(crate) fn from_server(network: &Network, link: LinkId) -> Self {
        Self::by(network, link.backward())
    }

    fn by(network: &Network, channel: ChannelId) -> Self {
        let stats = network.channel_stats(channel);
        Self {
            delivered_bytes: stats.delivered_bytes,
            delivered_packets: stats.delivered_packets,
            queue_drops: stats.queue_drops,
            lost_packets: stats.lost_packets,
        }
    }
}

impl BlockDelays {
    pub(super) fn new(made: u64, mut delays_s: Vec<f64>) -> Self {
        delays_s.sort_by(f64::total_cmp);
        let at = |share: f64| crate::metrics::percentile(&delays_s, share);
        Self {
            made,
            arrived: delays_s.len() as u64,
            min_s: at(0.0),
            median_s: at(0.5),
            p95_s: at(0.95),
            p99_s: at(0.99),
            max_s: at(1.0),
        }
    }
}
