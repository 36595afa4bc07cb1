//! Running totals of a connection.

/// What was sent, and what it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    bytes_sent: u64,
    bytes_resent: u64,
    segments_sent: u64,
    resends: u64,
    timeouts: u64,
    recoveries: u64,
    spurious: u64,
    duplicates: u64,
}

impl Totals {
    /// Payload left, in so many segments.
    #[inline]
    pub(super) fn count_sent(&mut self, bytes: u64, segments: u64) {
        self.bytes_sent += bytes;
        self.segments_sent += segments;
    }

    /// Payload left again, and is counted as sent as well.
    #[inline]
    pub(super) fn count_resent(&mut self, bytes: u64) {
        self.bytes_resent += bytes;
        self.resends += 1;
    }

    /// The retransmission timer passed.
    pub(super) fn count_timeout(&mut self) {
        self.timeouts += 1;
    }

    /// Losses were found without a timeout.
    pub(super) fn count_recovery(&mut self) {
        self.recoveries += 1;
    }

    /// A recovery or timeout turned out spurious.
    pub(super) fn count_spurious(&mut self) {
        self.spurious += 1;
    }

    /// A duplicate was reported (RFC 2883).
    pub(super) fn count_duplicate(&mut self) {
        self.duplicates += 1;
    }

    /// More duplicates were reported than left: the network makes them (RFC 3708 §3).
    pub(super) const fn has_foreign_duplicates(&self) -> bool {
        self.duplicates > self.resends
    }

    /// Payload sent, retransmissions included.
    pub(super) const fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Payload retransmitted.
    pub(super) const fn bytes_resent(&self) -> u64 {
        self.bytes_resent
    }

    /// Data segments sent, an aggregate by its parts.
    pub(super) const fn segments_sent(&self) -> u64 {
        self.segments_sent
    }

    /// Segments retransmitted.
    pub(super) const fn resends(&self) -> u64 {
        self.resends
    }

    /// Retransmission timeouts.
    pub(super) const fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// Fast recoveries.
    pub(super) const fn recoveries(&self) -> u64 {
        self.recoveries
    }

    /// Recoveries and timeouts that turned out spurious.
    pub(super) const fn spurious(&self) -> u64 {
        self.spurious
    }

    /// Duplicates that the peer reported.
    pub(super) const fn duplicates(&self) -> u64 {
        self.duplicates
    }
}
