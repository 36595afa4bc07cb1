//! What is sent over a set of paths.

use std::fmt;

use polypath_sim::app::{ExchangePlan, SendPlan, TrafficPlan};
use polypath_sim::conversation::{Conversation, Ends};
use polypath_sim::network::Network;
use polypath_units::{BitRate, Duration, Instant};

/// What is sent, from the host that opens the connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// As much as possible for so long.
    Bulk {
        /// From the opening of the connection on.
        duration: Duration,
    },
    /// So many bytes.
    Transfer {
        /// How many.
        bytes: u64,
        /// When to give up.
        timeout: Duration,
    },
    /// Blocks, each of which is timed from its making to its arrival.
    Blocks {
        /// Size of a block in bytes.
        block_bytes: u64,
        /// Rate at which blocks are made; if none, each is made when the send buffer has taken the one before.
        rate: Option<BitRate>,
        /// How long blocks are made.
        duration: Duration,
    },
    /// Requests and responses in turn; the response comes from the host that accepted the connection.
    Requests {
        /// Size of a request in bytes.
        request_bytes: u64,
        /// Size of a response in bytes.
        response_bytes: u64,
        /// How many.
        count: u64,
        /// When to give up.
        timeout: Duration,
    },
    /// One file by HTTP, over plain TCP of each path.
    Download {
        /// How many bytes.
        bytes: u64,
        /// When to give up.
        timeout: Duration,
        /// Who plays it meanwhile; if nobody is given, somebody at the rate that it could be played for ever.
        player: Option<Player>,
    },
    /// An adaptive stream of the document's sample movie, by HTTP over plain TCP of each path (Kaspar 2011, §6.3).
    Stream(StreamTraffic),
    /// A stream of datagrams, by an aggregator at the network layer (Kaspar 2011, ch. 4).
    Datagrams(DatagramTraffic),
}

/// A stream of packets of one length at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DatagramTraffic {
    /// Its rate, headers of IP and UDP included.
    pub rate: BitRate,
    /// Length of a packet, with these headers.
    pub packet_bytes: u64,
    /// For how long it is sent.
    pub duration: Duration,
    /// Paths let so many bytes pass at once, as a token bucket does. If none, each packet takes its time on the path's transmitter.
    pub burst_bytes: Option<u64>,
    /// How often the sum of the paths' rates is shared out anew between them; from the start on.
    pub redrawn: Option<Duration>,
}

/// An adaptive stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamTraffic {
    /// Length of the movie.
    pub duration: Duration,
    /// How much the player holds. It begins when it has so much.
    pub buffer: Duration,
    /// When it is given up.
    pub timeout: Duration,
}

/// Who plays a file while it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Player {
    /// At which rate.
    pub rate: BitRate,
    /// How long after the first request it begins.
    pub startup: Duration,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: u64| if bytes >= 1 << 20 { (bytes >> 20, "MB") } else { (bytes >> 10, "KB") };
        match *self {
            Self::Bulk { duration } => write!(f, "bulk {duration}"),
            Self::Transfer { bytes, .. } => {
                let (count, unit) = size(bytes);
                write!(f, "{count} {unit}")
            }
            Self::Blocks { block_bytes, rate: Some(rate), .. } => {
                write!(f, "blocks of {block_bytes} bytes at {rate}")
            }
            Self::Blocks { block_bytes, rate: None, .. } => write!(f, "blocks of {block_bytes} bytes"),
            Self::Download { bytes, .. } => {
                let (count, unit) = size(bytes);
                write!(f, "download of {count} {unit}")
            }
            Self::Stream(StreamTraffic { duration, .. }) => write!(f, "stream of {duration}"),
            Self::Datagrams(DatagramTraffic { packet_bytes, rate, .. }) => {
                write!(f, "datagrams of {packet_bytes} bytes at {rate}")
            }
            Self::Requests { response_bytes, count, .. } => {
                write!(f, "{count} responses of {response_bytes} bytes")
            }
        }
    }
}

impl Workload {
    /// How many bytes the choice of a best path should think of.
    pub(super) fn expected_bytes(&self) -> u64 {
        match *self {
            // Long enough for the rate alone to matter.
            Self::Bulk { .. } | Self::Stream(_) | Self::Datagrams(_) => 1 << 30,
            Self::Transfer { bytes, .. } | Self::Download { bytes, .. } => bytes,
            Self::Blocks { block_bytes, .. } => block_bytes,
            Self::Requests { request_bytes, response_bytes, .. } => request_bytes.max(response_bytes),
        }
    }

    /// How many bytes each direction that is used has, if they are limited.
    pub(super) fn planned_bytes(&self) -> Option<u64> {
        match *self {
            Self::Transfer { bytes, .. } | Self::Download { bytes, .. } => Some(bytes),
            Self::Bulk { .. }
            | Self::Blocks { .. }
            | Self::Requests { .. }
            | Self::Stream(_)
            | Self::Datagrams(_) => None,
        }
    }

    /// When a run ends at the latest.
    pub(super) fn end(&self) -> Instant {
        let span = match *self {
            Self::Bulk { duration } | Self::Datagrams(DatagramTraffic { duration, .. }) => duration,
            Self::Transfer { timeout, .. }
            | Self::Requests { timeout, .. }
            | Self::Download { timeout, .. }
            | Self::Stream(StreamTraffic { timeout, .. }) => timeout,
            // What is under way at the end still arrives.
            Self::Blocks { duration, .. } => duration + Duration::from_secs(60),
        };
        Instant::ZERO + span
    }

    /// Nothing happens any more that a result would show: the last byte has arrived.
    pub(super) fn is_complete(&self, network: &Network, ends: Ends) -> bool {
        match *self {
            // Those that have connections of their own, or none, say themselves when they are over.
            Self::Bulk { .. } | Self::Download { .. } | Self::Stream(_) | Self::Datagrams(_) => false,
            Self::Transfer { bytes, .. } => network.report(ends.acceptor).received_bytes >= bytes,
            Self::Blocks { .. } => network.report(ends.acceptor).peer_finished_at.is_some(),
            Self::Requests { count, .. } => network.report(ends.opener).exchanges >= count,
        }
    }

    /// What the ends of connection number `index` do.
    pub(super) fn plans_of(&self, index: u64) -> (TrafficPlan, TrafficPlan) {
        let (mut opener, mut acceptor) = Conversation::plans(index, None, None);
        match *self {
            Self::Bulk { .. } => opener.send = SendPlan::Bytes(u64::MAX),
            Self::Transfer { bytes, .. } => opener.send = SendPlan::Bytes(bytes),
            Self::Blocks { block_bytes, rate, duration } => {
                // What was made in time is sent, however late. Without a rate, nothing is made that can't be sent at once.
                let total_bytes = rate.map_or(u64::MAX, |rate| {
                    let interval = rate.time_to_send(block_bytes).as_nanos().max(1);
                    (duration.as_nanos() / interval + 1).saturating_mul(block_bytes)
                });
                opener.send = SendPlan::Blocks { block_bytes, rate, total_bytes };
                opener.stop_at = rate.is_none().then(|| Instant::ZERO + duration);
            }
            Self::Requests { request_bytes, response_bytes, count, .. } => {
                let plan = |initiates| {
                    SendPlan::Exchange(ExchangePlan { initiates, request_bytes, response_bytes, count })
                };
                (opener.send, acceptor.send) = (plan(true), plan(false));
            }
            // They have connections of their own, or none.
            Self::Download { .. } | Self::Stream(_) | Self::Datagrams(_) => {}
        }
        // Thousands of runs: what arrives is compared in the tests of the stack.
        opener.verify = false;
        acceptor.verify = false;
        (opener, acceptor)
    }
}
