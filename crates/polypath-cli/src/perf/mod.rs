//! Throughput between two hosts, measured and reported in the shape that iperf3 made familiar.
//!
//! # Protocol, version 1
//!
//! Every connection begins with the line `polypath-perf 1` and one frame; a frame is a length of four bytes in network
//! order and so many bytes of JSON, an object whose `type` names it.
//!
//! 1. The client opens the control connection with `control`: a cookie and the [`Parameters`]. The server answers
//!    `accepted`, or `refused` with a reason.
//! 2. The client opens the data connections, each with `data`: the cookie and its number. The lower numbers carry data
//!    from the client; with both directions, the upper half carries data from the server.
//! 3. When all are there, the server sends `start` on the control connection, and the senders send whatever they like.
//! 4. With a number of bytes instead of a time, a sender shuts down its half after them; the server says `drained` when
//!    all that it receives has come to its end.
//! 5. The client sends `stop`. The server answers with `results`, the client sends its own, and both close.

mod client;
mod error;
mod flow;
mod measurement;
mod protocol;
pub(crate) mod report;
mod server;
pub(crate) mod text;

use std::time::Duration;

pub(crate) use client::Client;
pub(crate) use error::Error;
pub(crate) use report::Report;
use serde::{Deserialize, Serialize};
pub(crate) use server::Server;

/// The port that iperf3 uses, too.
pub(crate) const DEFAULT_PORT: u16 = 5201;
/// Most data connections in one direction.
pub(crate) const MAX_STREAMS: u32 = 128;
/// Largest block.
pub(crate) const MAX_BLOCK_BYTES: usize = 1 << 20;

/// What is measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Parameters {
    /// Data connections in each direction, 1–[`MAX_STREAMS`]. Default 1.
    pub streams: u32,
    /// Who sends. Default the client.
    pub direction: Direction,
    /// Bytes that are written or read at once, 1–[`MAX_BLOCK_BYTES`]. Default 128 KiB.
    pub block_bytes: usize,
    /// When it is over. Default after ten seconds.
    pub amount: Amount,
    /// Time at the beginning that does not count. Default none.
    pub omit: Duration,
    /// Time between reports; none without reports. Default one second.
    pub interval: Option<Duration>,
    /// Bits per second that each data connection sends at most. Default as many as the network takes.
    pub rate_limit: Option<u64>,
    /// Congestion control by name. Default the engine's.
    pub congestion: Option<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            streams: 1,
            direction: Direction::Upload,
            block_bytes: 128 << 10,
            amount: Amount::Time(Duration::from_secs(10)),
            omit: Duration::ZERO,
            interval: Some(Duration::from_secs(1)),
            rate_limit: None,
            congestion: None,
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

    /// The first bound that they break, for a person to read.
    fn check(&self) -> Result<(), String> {
        let hours = Duration::from_secs(86_400);
        if !(1..=MAX_STREAMS).contains(&self.streams) {
            return Err(format!("{} parallel streams; expected 1 to {MAX_STREAMS}", self.streams));
        }
        if !(1..=MAX_BLOCK_BYTES).contains(&self.block_bytes) {
            return Err(format!("blocks of {} bytes; expected 1 to {MAX_BLOCK_BYTES}", self.block_bytes));
        }
        if self.omit > Duration::from_secs(600) {
            return Err(format!("{:?} to omit; expected at most 600 s", self.omit));
        }
        match self.amount {
            Amount::Time(time) if time.is_zero() || time > hours => {
                Err(format!("a test of {time:?}; expected more than nothing and at most {hours:?}"))
            }
            Amount::Bytes(0) => Err("a test of no bytes; expected at least one".into()),
            _ if self.rate_limit == Some(0) => Err("a rate of nothing; expected at least 1 bit/s".into()),
            _ if self.interval.is_some_and(|interval| interval < Duration::from_millis(1)) => {
                Err("reports more often than every millisecond".into())
            }
            _ => Ok(()),
        }
    }
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    /// The client.
    Upload,
    /// The server.
    Download,
    /// Both, on connections of their own.
    Both,
}

/// When a measurement is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Amount {
    /// After this time.
    Time(Duration),
    /// When so many bytes have arrived in a direction, all its connections together.
    Bytes(u64),
}

/// What a caller is told while a measurement runs.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum Progress<'a> {
    /// The connections are open and data begins to flow.
    Started(&'a report::Start),
    /// An interval is over.
    Interval(&'a report::Interval),
}

#[cfg(test)]
mod tests;
