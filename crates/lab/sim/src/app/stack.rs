use std::fmt;

use bytes::Bytes;
use polypath_units::{Duration, Instant};
use polypath_wire::{Endpoint, FourTuple, Packet, Payload};

/// A host stack as applications and the simulator see it: packets and time on one side, byte streams on the
/// other. Multipath TCP hosts and plain TCP hosts are both.
pub trait Stack: fmt::Debug {
    /// Names a connection.
    type Id: Copy + PartialEq + fmt::Debug;

    /// A small number that no other live connection of this host has.
    fn slot(id: Self::Id) -> usize;

    /// A packet arrived.
    fn handle_packet(&mut self, now: Instant, packet: Packet);
    /// The next packet to send, until `None`.
    fn poll_transmit(&mut self, now: Instant) -> Option<Packet>;
    /// When [`Stack::handle_timeout`] is to be called.
    fn poll_timeout(&mut self) -> Option<Instant>;
    /// The instant of [`Stack::poll_timeout`] came.
    fn handle_timeout(&mut self, now: Instant);
    /// The next event, until `None`.
    fn poll(&mut self) -> Option<(Self::Id, StreamEvent)>;

    /// Queues data; returns how many bytes of it were taken.
    fn send(&mut self, now: Instant, id: Self::Id, data: Bytes) -> usize;
    /// The next received data in order, if there is any.
    fn recv(&mut self, now: Instant, id: Self::Id) -> Option<Payload>;
    /// No more data will be sent.
    fn shutdown(&mut self, now: Instant, id: Self::Id);
    /// Ends the connection at once, without regard for data.
    fn abort(&mut self, now: Instant, id: Self::Id);
    /// The application is done with the connection and will not name it again.
    fn release(&mut self, now: Instant, id: Self::Id);
    /// The connection in numbers.
    fn info(&self, id: Self::Id) -> StackInfo;
}

/// A connection in numbers, as its sending side sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackInfo {
    /// Its subflows; plain TCP has one.
    pub subflows: Vec<SubflowInfo>,
    /// Size of the receive buffer as promised to the peer; zero if the stack does not say.
    pub receive_buffer_bytes: u64,
}

/// A subflow in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubflowInfo {
    /// Identifier within the connection.
    pub id: u8,
    /// Both ends.
    pub tuple: FourTuple,
    /// Congestion window in bytes.
    pub cwnd_bytes: u64,
    /// Slow-start threshold in bytes; `u64::MAX` before there is one.
    pub ssthresh_bytes: u64,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Payload in flight in bytes.
    pub in_flight_bytes: u64,
    /// Payload bytes sent, retransmissions included.
    pub sent_bytes: u64,
    /// Payload bytes acknowledged.
    pub acked_bytes: u64,
    /// Packets with data sent, retransmissions included.
    pub sent_packets: u64,
    /// Packets sent again.
    pub retransmitted_packets: u64,
}

impl SubflowInfo {
    pub(super) fn of_tcp(id: u8, tuple: FourTuple, info: &polypath_tcp::Info) -> Self {
        Self {
            id,
            tuple,
            cwnd_bytes: info.cwnd_bytes,
            ssthresh_bytes: info.ssthresh_bytes,
            srtt: info.srtt,
            in_flight_bytes: info.in_flight_bytes,
            sent_bytes: info.bytes_sent,
            acked_bytes: info.bytes_acked,
            sent_packets: info.segs_out,
            retransmitted_packets: info.retransmits,
        }
    }
}

/// What a stack tells an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// A listener has a new connection.
    Accepted {
        /// The local end that listened.
        local: Endpoint,
    },
    /// The connection is open.
    Connected,
    /// There is data to read.
    Readable,
    /// There is room in the send buffer again.
    Writable,
    /// The peer will send no more data.
    PeerFinished,
    /// The connection is over; nothing follows.
    Closed {
        /// Both ends closed in order.
        in_order: bool,
        /// Why, in words.
        reason: &'static str,
    },
    /// The connection is plain TCP from now on.
    FellBack {
        /// Why, in words.
        reason: &'static str,
    },
    /// A subflow is ready for data.
    SubflowEstablished,
    /// A subflow ended.
    SubflowClosed,
    /// Something that applications have no use for.
    Other,
}
