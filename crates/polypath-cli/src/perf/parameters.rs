//! What is measured, and the bounds of it.

use std::time::Duration;

/// Most data connections in one direction.
pub(crate) const MAX_STREAMS: u32 = 128;
/// Largest block of TCP.
pub(crate) const MAX_BLOCK_BYTES: usize = 1 << 20;
/// Smallest and largest datagram: the header of each, and what IPv4 carries.
pub(crate) const DATAGRAM_BYTES: std::ops::RangeInclusive<usize> = 16..=65_507;
/// Largest buffer of a socket that may be asked for.
pub(crate) const MAX_WINDOW_BYTES: u64 = 512 << 20;
/// Largest segment that may be asked for.
pub(crate) const MAX_MSS_BYTES: u16 = 32_767;
/// Most blocks that are sent at once before the rate is looked at.
pub(crate) const MAX_BURST: u32 = 1000;
/// Bits per second of UDP without a choice.
pub(crate) const DEFAULT_DATAGRAM_RATE: u64 = 1 << 20;
/// Longest test.
const MAX_TIME: Duration = Duration::from_secs(86_400);
/// Longest time that does not count.
const MAX_OMIT: Duration = Duration::from_secs(600);
/// Longest text that one end gives the other.
const MAX_TEXT_BYTES: usize = 1024;

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    /// What carries the data. Default TCP.
    pub protocol: Protocol,
    /// Data connections in each direction, 1–[`MAX_STREAMS`]. Default 1.
    pub streams: u32,
    /// Who sends. Default the client.
    pub direction: Direction,
    /// Bytes that are written or read at once. Default 128 KiB for TCP, what fits into a packet for UDP.
    pub block_bytes: Option<usize>,
    /// When it is over. Default after ten seconds.
    pub amount: Amount,
    /// Time at the beginning that does not count. Default none.
    pub omit: Duration,
    /// Time between reports; none without reports. Default one second.
    pub interval: Option<Duration>,
    /// Bits per second that each data connection sends at most. Default as many as the network takes.
    pub rate_limit: Option<u64>,
    /// Blocks that are sent before the rate is looked at. Default 1.
    pub burst: u32,
    /// Congestion control by name. Default the engine's.
    pub congestion: Option<String>,
    /// Size of the socket's buffers in bytes. Default the engine's.
    pub window_bytes: Option<u64>,
    /// Largest segment in bytes. Default the engine's.
    pub mss_bytes: Option<u16>,
    /// Small pieces leave at once. Default no.
    pub no_delay: bool,
    /// Type of service of packets. Default 0.
    pub tos: u8,
    /// Counters in datagrams have 64 bits, not 32. Default no.
    pub has_wide_counters: bool,
    /// The sender does not copy. Default no.
    pub is_zero_copy: bool,
    /// Multipath TCP was asked for by name. Default no.
    pub wants_mptcp: bool,
    /// The client wants what the server prints. Default no.
    pub wants_server_output: bool,
    /// Before every line, and in the report.
    pub title: Option<String>,
    /// In the reports of both ends.
    pub extra_data: Option<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            protocol: Protocol::Tcp,
            streams: 1,
            direction: Direction::Upload,
            block_bytes: None,
            amount: Amount::Time(Duration::from_secs(10)),
            omit: Duration::ZERO,
            interval: Some(Duration::from_secs(1)),
            rate_limit: None,
            burst: 1,
            congestion: None,
            window_bytes: None,
            mss_bytes: None,
            no_delay: false,
            tos: 0,
            has_wide_counters: false,
            is_zero_copy: false,
            wants_mptcp: false,
            wants_server_output: false,
            title: None,
            extra_data: None,
        }
    }
}

impl Parameters {
    /// Data connections in all.
    #[must_use]
    pub(crate) fn connections(&self) -> u32 {
        if self.direction == Direction::Both { self.streams * 2 } else { self.streams }
    }

    /// Whether the client sends on a data connection.
    #[must_use]
    pub(crate) fn is_upload(&self, number: u32) -> bool {
        match self.direction {
            Direction::Upload => true,
            Direction::Download => false,
            Direction::Both => number < self.streams,
        }
    }

    pub(super) fn is_udp(&self) -> bool {
        self.protocol == Protocol::Udp
    }

    /// Bytes that are written or read at once.
    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes.unwrap_or(match self.protocol {
            Protocol::Tcp => 128 << 10,
            Protocol::Udp => 1460,
        })
    }

    /// Bytes of each direction after which it is over, if not by time.
    pub(super) fn bytes(&self) -> Option<u64> {
        match self.amount {
            Amount::Time(_) => None,
            Amount::Bytes(bytes) => Some(bytes),
            Amount::Blocks(blocks) => Some(blocks.saturating_mul(self.block_bytes() as u64)),
        }
    }

    /// The first bound that they break, for a person to read.
    pub(super) fn check(&self) -> Result<(), String> {
        if !(1..=MAX_STREAMS).contains(&self.streams) {
            return Err(format!("{} parallel streams; expected 1 to {MAX_STREAMS}", self.streams));
        }
        let block = self.block_bytes();
        match self.protocol {
            Protocol::Tcp if !(1..=MAX_BLOCK_BYTES).contains(&block) => {
                return Err(format!("blocks of {block} bytes; expected 1 to {MAX_BLOCK_BYTES}"));
            }
            Protocol::Udp if !DATAGRAM_BYTES.contains(&block) => {
                let (least, most) = DATAGRAM_BYTES.into_inner();
                return Err(format!("datagrams of {block} bytes; expected {least} to {most}"));
            }
            _ => {}
        }
        if self.omit > MAX_OMIT {
            return Err(format!("{:?} to omit; expected at most {MAX_OMIT:?}", self.omit));
        }
        if self.window_bytes.is_some_and(|bytes| bytes > MAX_WINDOW_BYTES) {
            return Err(format!("buffers of more than {MAX_WINDOW_BYTES} bytes"));
        }
        if self.mss_bytes.is_some_and(|bytes| bytes > MAX_MSS_BYTES) {
            return Err(format!("segments of more than {MAX_MSS_BYTES} bytes"));
        }
        if !(1..=MAX_BURST).contains(&self.burst) {
            return Err(format!("bursts of {} blocks; expected 1 to {MAX_BURST}", self.burst));
        }
        if [&self.title, &self.extra_data].into_iter().flatten().any(|text| text.len() > MAX_TEXT_BYTES) {
            return Err(format!("a title or extra data of more than {MAX_TEXT_BYTES} bytes"));
        }
        match self.amount {
            Amount::Time(time) if time > MAX_TIME => {
                Err(format!("a test of {time:?}; expected at most {MAX_TIME:?}, or 0 for no end"))
            }
            Amount::Bytes(0) => Err("a test of no bytes; expected at least one".into()),
            Amount::Blocks(0) => Err("a test of no blocks; expected at least one".into()),
            _ if self.rate_limit == Some(0) => Err("a rate of nothing; expected at least 1 bit/s".into()),
            _ if self.interval.is_some_and(|interval| interval < Duration::from_millis(1)) => {
                Err("reports more often than every millisecond".into())
            }
            _ => Ok(()),
        }
    }
}

/// What carries the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Connections of the engine.
    Tcp,
    /// Datagrams over the system's sockets.
    Udp,
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The client.
    Upload,
    /// The server.
    Download,
    /// Both, on connections of their own.
    Both,
}

/// When a measurement is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// After this time; never if it is zero.
    Time(Duration),
    /// When so many bytes went in each direction, all its connections together.
    Bytes(u64),
    /// When so many blocks went.
    Blocks(u64),
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
