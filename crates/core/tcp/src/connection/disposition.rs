//! What became of a segment that arrived.

/// What became of a segment, and how much of it may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Sequence, flags and acknowledgment were acceptable (RFC 9293 §3.10.7.4): its options may be believed.
    Accepted,
    /// Its sequence number was not acceptable, though it lies where a copy of what was received before may lie. Only what it
    /// acknowledges was taken, and nothing else of it may be believed: anybody can make one up. Its payload stays in the segment.
    Acknowledged,
    /// A RST that was to be believed (RFC 5961 §3): the connection is over, and its options may say why.
    Reset,
    /// It changed nothing, but may have caused an acknowledgment.
    Dropped(DropReason),
}

impl Disposition {
    /// True for [`Disposition::Accepted`].
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        matches!(self, Self::Accepted)
    }
}

/// Why a segment was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The connection is closed.
    Closed,
    /// Outside of the receive window (RFC 9293 §3.10.7.4, first).
    Sequence,
    /// All of it was received before, and its acknowledgment is of no use either.
    Duplicate,
    /// An old timestamp (RFC 7323 §5).
    Paws,
    /// No timestamp where timestamps were negotiated (RFC 7323 §3.2).
    NoTimestamp,
    /// RST that did not match exactly (RFC 5961 §3), or that has nothing left to reset.
    Reset,
    /// SYN on a synchronized connection (RFC 5961 §4).
    Syn,
    /// Acknowledges what was never sent, or lies too far back (RFC 5961 §5).
    Ack,
    /// No ACK flag where one is required.
    NoAck,
}
