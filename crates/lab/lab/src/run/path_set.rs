//! Parallel paths between two hosts.

use std::fmt;

use polypath_link::middlebox::Chain;
use polypath_link::{Jitter, LinkConfig, Loss, QueueLimit};
use polypath_link::{impairment, middlebox, queue};
use polypath_units::{BitRate, Duration};

/// A path between two hosts, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathSpec {
    /// Rate of the transmitter, IP headers included.
    pub rate: BitRate,
    /// Round-trip time of an empty path: twice the propagation delay.
    pub rtt: Duration,
    /// How long a full queue takes to empty. At least [`PathSpec::LEAST_QUEUE_PACKETS`] fit.
    pub queue: Duration,
    /// Probability that a packet is lost on the line, 0 to 1.
    pub loss: f64,
    /// It becomes another on the way.
    pub change: Option<RateChange>,
}

/// A path that goes on at another rate, as those of radio do. Its queue keeps its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateChange {
    /// From the opening of the connection on.
    pub after: Duration,
    /// The new rate.
    pub rate: BitRate,
}

/// Paths between two hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathSet {
    /// The paths.
    pub paths: Vec<PathSpec>,
    /// What all of them have.
    pub line: Line,
}

/// What happens to packets on a path besides what its numbers say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// What decides about waiting packets.
    pub discipline: queue::Policy,
    /// Impairments, in this order.
    pub impairments: Vec<impairment::Policy>,
    /// Middleboxes, from the host that opens connections to the other.
    pub middleboxes: Vec<middlebox::Policy>,
    /// How the delay of each path varies, by number; only datagrams heed it. Those that are not there have a constant delay.
    pub jitters: Vec<Jitter>,
}

impl Line {
    /// The middleboxes of path number `path`, if paths have any. Those of different paths have different luck.
    pub(crate) fn chain(&self, seed: u64, path: usize) -> Option<Chain> {
        let boxes = (1..).zip(&self.middleboxes);
        let boxes = boxes.map(|(number, kind)| kind.build_for(&(seed ^ number << 32 ^ (path as u64) << 48)));
        (!self.middleboxes.is_empty()).then(|| boxes.collect())
    }
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} Mbit/s", self.rate.as_mbps_f64())?;
        if let Some(RateChange { after, rate }) = self.change {
            write!(f, " (after {after} {:.2})", rate.as_mbps_f64())?;
        }
        write!(f, " {:.0} ms, queue {:.0} ms", self.rtt.as_secs_f64() * 1e3, self.queue.as_secs_f64() * 1e3)
    }
}

impl PathSpec {
    /// Fewer places in a queue than this would drop parts of every pair of segments.
    pub const LEAST_QUEUE_PACKETS: u64 = 3;

    const PACKET_BYTES: u64 = 1500;
    /// A full segment's payload with timestamps, over IPv4.
    pub(crate) const PAYLOAD_BYTES: u64 = 1448;

    /// The most goodput that plain TCP can have here: the payload's share of full-sized packets.
    #[must_use]
    pub fn capacity_bps(&self) -> f64 {
        self.rate.as_bps() as f64 * Self::PAYLOAD_BYTES as f64 / Self::PACKET_BYTES as f64
    }

    /// One direction, with this propagation delay.
    fn one_way_link(&self, delay: Duration) -> LinkConfig {
        let queue_bytes = self.rate.bytes_in(self.queue).max(Self::LEAST_QUEUE_PACKETS * Self::PACKET_BYTES);
        LinkConfig {
            loss: if self.loss > 0.0 { Loss::Random(self.loss) } else { Loss::None },
            ..LinkConfig::new(self.rate, delay, QueueLimit::Bytes(queue_bytes))
        }
    }

    /// What plain TCP is expected to need for a transfer, in seconds: handshake, slow start, then the path's rate or
    /// what random loss leaves of it (Mathis et al. 1997).
    pub(crate) fn expected_time_s(&self, bytes: u64) -> f64 {
        let rtt_s = self.rtt.as_secs_f64().max(1e-4);
        let payload_bytes = Self::PAYLOAD_BYTES as f64;
        let by_loss = if self.loss > 0.0 {
            payload_bytes / (rtt_s + self.queue.as_secs_f64() / 2.0) * (1.5 / self.loss).sqrt()
        } else {
            f64::INFINITY
        };
        let bytes_per_s = (self.capacity_bps() / 8.0).min(by_loss);
        let bytes = bytes as f64;
        // Rounds until the transfer is over or the path is full.
        let first_round_bytes = 10.0 * payload_bytes;
        let full = (bytes.min(bytes_per_s * rtt_s) / first_round_bytes + 1.0).log2();
        rtt_s * (1.5 + full) + bytes / bytes_per_s
    }
}

impl From<Vec<PathSpec>> for PathSet {
    fn from(paths: Vec<PathSpec>) -> Self {
        Self { paths, line: Line::default() }
    }
}

impl PathSet {
    /// Each direction of a path of these.
    #[must_use]
    pub fn link(&self, path: &PathSpec) -> LinkConfig {
        self.one_way_link(path, Duration::from_nanos(path.rtt.as_nanos() / 2))
    }

    /// One direction, with this propagation delay.
    pub(super) fn one_way_link(&self, path: &PathSpec, delay: Duration) -> LinkConfig {
        let Line { discipline, impairments, .. } = self.line.clone();
        LinkConfig { discipline, impairments, ..path.one_way_link(delay) }
    }

    /// The buffer that never limits: 2 · Σ rate · longest round trip, with full queues.
    #[must_use]
    pub fn recommended_buffer_bytes(&self) -> u64 {
        let longest = self.paths.iter().map(|path| path.rtt + path.queue).max().unwrap_or_default();
        self.paths.iter().map(|path| path.rate.bytes_in(longest)).sum::<u64>().saturating_mul(2)
    }
}
