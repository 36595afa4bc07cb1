use polypath_units::Instant;
use polypath_wire::{FourTuple, IcmpMessage, Packet, SeqNumber};

use super::connection_id::ConnectionId;
use super::reset::ReplyLimit;

/// A connection as a [`HostCore`](super::HostCore) sees it: packets and deadlines go in, packets come out. Everything else is between
/// the connection and the host that it was made for.
pub trait Hosted {
    /// What the connections of a host draw on together, such as its counters and budgets. The host lends it to each call.
    type Resources;

    /// What a connection knows its flows by.
    type Tag: Copy;

    /// Packets that a connection may send before the next one has its turn.
    const BURST_PACKETS: u32;

    /// The flow that was added with this tag, until the connection has forgotten it.
    fn flow(&self, tag: Self::Tag) -> Option<FourTuple>;

    /// A TCP packet came on the flow that was added with this tag.
    fn handle_packet(&mut self, call: Call<'_, Self::Resources>, tag: Self::Tag, packet: &mut Packet);

    /// An ICMP message came about the flow that was added with this tag.
    fn handle_icmp(&mut self, call: Call<'_, Self::Resources>, tag: Self::Tag, message: &IcmpMessage);

    /// The instant of [`Hosted::poll_timeout`] came.
    fn handle_timeout(&mut self, call: Call<'_, Self::Resources>);

    /// The next packet to send; `None` ends the connection's turn.
    fn poll_transmit(&mut self, call: Call<'_, Self::Resources>) -> Option<Packet>;

    /// When [`Hosted::handle_timeout`] is due, if ever.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// What a host lends a connection for the length of a call.
#[derive(Debug)]
pub struct Call<'a, R> {
    /// The time, which never goes back.
    pub now: Instant,
    /// The host's bound for challenge ACKs (RFC 5961 §7).
    pub challenges: &'a mut ReplyLimit,
    /// What the connections of the host share.
    pub resources: &'a mut R,
}

/// What became of a packet that a [`HostCore`](super::HostCore) was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// A connection took it, and may have something to say and to send.
    ByConnection(ConnectionId),
    /// It is a TCP packet of a flow that leads nowhere.
    ByNobody {
        /// The flow, as this host has it.
        flow: FourTuple,
        /// It is a SYN that ended a TIME-WAIT: the initial sequence number of its connection comes after this one (RFC 6191 §2).
        isn_after: Option<SeqNumber>,
    },
    /// There is nothing more to do about it.
    Entirely,
}
