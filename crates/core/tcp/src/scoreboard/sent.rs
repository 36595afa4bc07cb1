//! What leaves in one piece, and what an acknowledgment says of it.

use polypath_units::Instant;

use crate::rate_start::RateStart;

/// A stretch of sequence space that left in one piece. Positions count from the initial sequence number, which is 0,
/// and don't wrap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) start: u64,
    /// When it left last.
    pub(crate) at: Instant,
    /// The start of a delivery-rate sample.
    pub(crate) rate: RateStart,
    pub(super) len: u32,
    pub(crate) flags: Flags,
}

/// State of a [`Sent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) const NONE: Self = Self(0);
    /// Selectively acknowledged.
    pub(crate) const SACKED: Self = Self(1);
    /// Taken for lost.
    pub(crate) const LOST: Self = Self(2);
    /// Its retransmission is in flight.
    pub(crate) const RESENT: Self = Self(4);
    /// It was retransmitted at some time: its round trip says nothing without timestamps (Karn).
    pub(crate) const EVER_RESENT: Self = Self(8);
    /// The application had no more to send.
    pub(crate) const APP_LIMITED: Self = Self(16);

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl Sent {
    pub(crate) fn new(start: u64, end: u64, at: Instant, rate: RateStart, flags: Flags) -> Self {
        // No window is larger than 2³⁰ bytes (RFC 7323 §2.3).
        Self { start, at, rate, len: (end - start) as u32, flags }
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len as u64
    }

    pub(crate) const fn end(&self) -> u64 {
        self.start + self.len as u64
    }

    /// What of it lies between two positions inside.
    pub(super) const fn part(&self, start: u64, end: u64) -> Self {
        Self { start, len: (end - start) as u32, ..*self }
    }

    /// RACK's order: by time, then by position (RFC 8985 §6.1).
    pub(super) const fn order(&self) -> (Instant, u64) {
        (self.at, self.end())
    }

    /// Taken for lost, and not resent yet.
    pub(super) const fn waits(&self) -> bool {
        self.flags.has(Flags::LOST) && !self.flags.has(Flags::RESENT)
    }
}

/// What an acknowledgment newly acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newly {
    /// Bytes that were neither acknowledged nor selectively acknowledged before.
    pub(crate) bytes: u64,
    /// The piece that left last among them: RACK's and the rate sample's reference.
    pub(crate) latest: Option<Sent>,
    /// When the last of the pieces that left only once did: the round-trip sample (RFC 6298 §3).
    pub(crate) rtt_from: Option<Instant>,
    /// When the first of them did.
    pub(crate) oldest: Option<Instant>,
    /// Something never retransmitted was acknowledged.
    pub(crate) original: bool,
    /// Something lost or retransmitted was: what lies behind a hole may have arrived long before it was filled, so that no
    /// round trip is measured.
    pub(crate) resent: bool,
    /// A piece below the highest one acknowledged arrived now, and had not been retransmitted: reordering.
    pub(crate) reordered: bool,
    /// Where the first such piece begins.
    pub(crate) reordered_from: Option<u64>,
    /// What was cumulatively acknowledged before, if that advanced.
    pub(crate) from: u64,
}

impl Newly {
    /// A piece that had a mark arrived.
    pub(super) fn count(&mut self, sent: &Sent, high_sacked: u64) {
        if sent.end() < high_sacked && !sent.flags.has(Flags::EVER_RESENT) {
            self.note_reordered(sent.start);
        }
        self.count_latest(sent, sent.len());
    }

    /// Of what arrived and left once, something had left then.
    #[inline]
    pub(super) fn note_departure(&mut self, at: Instant) {
        self.oldest = Some(self.oldest.map_or(at, |oldest| oldest.min(at)));
    }

    /// What begins here was overtaken.
    #[inline]
    pub(super) fn note_reordered(&mut self, start: u64) {
        self.reordered = true;
        self.reordered_from = Some(self.reordered_from.map_or(start, |first| first.min(start)));
    }

    /// Bytes arrived, of which `sent` left last.
    #[inline]
    pub(super) fn count_latest(&mut self, sent: &Sent, bytes: u64) {
        self.bytes += bytes;
        if self.latest.is_none_or(|latest| latest.order() < sent.order()) {
            self.latest = Some(*sent);
        }
        self.resent |= sent.flags.has(Flags::EVER_RESENT.with(Flags::LOST));
        if !sent.flags.has(Flags::EVER_RESENT) {
            self.original = true;
            self.rtt_from = Some(self.rtt_from.map_or(sent.at, |at| at.max(sent.at)));
            self.note_departure(sent.at);
        }
    }
}
