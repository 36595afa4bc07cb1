//! What sends IP packets over several paths at the network layer, as those see it who carry its datagrams.

use std::fmt;

use bytes::Bytes;
use polypath_units::Instant;

/// One end of an aggregator: IP packets go in and come out, and datagrams go over paths to the other end. Without sockets and clocks.
///
/// Paths are numbered from zero, the same at both ends. After each call of `handle_*`, and when the time of [`poll_timeout`](Self::poll_timeout) has come,
/// [`poll_transmit`](Self::poll_transmit) and [`poll_packet`](Self::poll_packet) are asked until they have no more.
pub trait Aggregator: fmt::Debug + Send {
    /// An IP packet is to go to the other end.
    fn handle_packet(&mut self, now: Instant, packet: Bytes);

    /// A datagram came from the other end, over this path.
    fn handle_datagram(&mut self, now: Instant, path: usize, datagram: Bytes);

    /// The next datagram for the other end.
    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit>;

    /// The next IP packet that came from the other end.
    fn poll_packet(&mut self, now: Instant) -> Option<Bytes>;

    /// When to ask again, if nothing comes before.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// A datagram that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Over which path.
    pub path: usize,
    /// What the other end gets.
    pub datagram: Bytes,
    /// Bytes of headers that it has besides on the way, IP included. Zero if it is an IP packet itself.
    pub header_bytes: u16,
}
