use polypath_units::Duration;

/// What a link has done. `sent + duplicated = delivered + dropped + inside` at any time, where dropped is
/// [`LinkStats::dropped_packets`] and inside [`LinkStats::inside_packets`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets handed to the link; an aggregate counts as the segments that it stands for.
    pub sent_packets: u64,
    /// Their bytes, IP headers included.
    pub sent_bytes: u64,
    /// Packets that came out.
    pub delivered_packets: u64,
    /// Their bytes, IP headers included.
    pub delivered_bytes: u64,
    /// Packets dropped by the queue.
    pub queue_drops: u64,
    /// Packets lost on the line.
    pub lost_packets: u64,
    /// Packets dropped because the link was or went down.
    pub down_drops: u64,
    /// Packets longer than the MTU.
    pub too_big_drops: u64,
    /// Copies made.
    pub duplicated_packets: u64,
    /// Packets that were held back for others to overtake.
    pub reordered_packets: u64,
    /// Packets that wait for the transmitter.
    pub queue_packets: u64,
    /// Bytes that wait for the transmitter.
    pub queue_bytes: u64,
    /// Most packets that ever waited.
    pub max_queue_packets: u64,
    /// Most bytes that ever waited.
    pub max_queue_bytes: u64,
    /// Packets being sent or under way.
    pub in_flight_packets: u64,
    /// How long the transmitter has been busy; a transmission counts in full when it starts.
    pub busy: Duration,
}

impl LinkStats {
    /// Packets that did not and will not come out.
    pub const fn dropped_packets(&self) -> u64 {
        self.queue_drops + self.lost_packets + self.down_drops + self.too_big_drops
    }

    /// Packets that are still in the link.
    pub const fn inside_packets(&self) -> u64 {
        self.queue_packets + self.in_flight_packets
    }
}
