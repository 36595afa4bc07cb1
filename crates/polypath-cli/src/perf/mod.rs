//! Throughput between two hosts, measured in iperf3's protocol: the peer may be iperf3 or another of our own.
//!
//! # Protocol
//!
//! Every connection begins with the cookie of its test ([`wire`]). On the control connection, single bytes are states, and some
//! are followed by a block of JSON ([`blocks`]).
//!
//! 1. The client opens the control connection. The server answers `ParameterExchange`, and the client sends the parameters.
//! 2. The server answers `CreateStreams`. The client opens the data connections one after the other, first those on which it
//!    sends: their order is all that tells them apart. Over UDP, a word goes to and fro for each ([`datagram`]).
//! 3. When all are there, the server says `TestStart` and `TestRunning`, and the senders send whatever they like.
//! 4. When the time is over or the amount has gone, the client says `TestEnd`. The server answers `ExchangeResults`; the client
//!    sends what it measured, then the server does.
//! 5. The server says `DisplayResults`, the client `Done`.
//!
//! A server that runs a test already says `AccessDenied`; one that can't go on says `ServerError` and two numbers.

mod blocks;
mod candidates;
mod client;
mod control;
mod datagram;
mod error;
mod flow;
mod greeting;
mod intervals;
mod measurement;
mod parameters;
mod printed;
mod progress;
mod quota;
mod report;
mod server;
mod sockets;
pub(crate) mod text;
mod totals;
mod uncopied;
mod watched;
mod wire;

pub(crate) use client::Client;
pub(crate) use error::Error;
pub(crate) use parameters::{
    Amount, DATAGRAM_BYTES, DEFAULT_DATAGRAM_RATE, Direction, MAX_BLOCK_BYTES, MAX_BURST, MAX_MSS_BYTES,
    MAX_STREAMS, MAX_WINDOW_BYTES, Parameters, Protocol,
};
pub(crate) use progress::Progress;
pub(crate) use server::Server;
pub(crate) use totals::Report;

/// The port that iperf3 uses, too.
pub(crate) const DEFAULT_PORT: u16 = 5201;

#[cfg(test)]
mod tests;
