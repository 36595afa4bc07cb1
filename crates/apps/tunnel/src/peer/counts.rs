//! What is counted of a peer.

/// Packets of a peer, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// Carried to the peer.
    pub sent: u64,
    /// Came from the peer and were let out.
    pub received: u64,
    /// From an address that the peer may not use.
    pub foreign: u64,
    /// Sent again as their path had lost them, or fallen silent.
    pub sent_again: u64,
    /// Repair packets that were sent.
    pub repairs_sent: u64,
    /// Repair packets that came.
    pub repairs_received: u64,
    /// Lost, and rebuilt from repair packets.
    pub rebuilt: u64,
    /// Protected packets that did not come, or much too late, and were not rebuilt. They may have been sent again.
    pub not_rebuilt: u64,
    /// Dropped as no path takes packets of their length.
    pub too_long: u64,
    /// Dropped as too many waited.
    pub dropped: u64,
    /// Of the dropped ones, those whose rule pins them to a path that is not there, or does not work.
    pub pinned_dropped: u64,
    /// Came twice.
    pub replayed: u64,
    /// Were not the peer's, or changed on the way.
    pub not_authentic: u64,
    /// Authentic, and without sense.
    pub malformed: u64,
    /// Handshakes that ended well.
    pub handshakes: u64,
}
