//! What a piece remembers from when it left, for the rate sample that its acknowledgment ends.

use polypath_units::{Duration, Instant};

/// Time between sending a piece and the first of its interval is kept in units of so many nanoseconds, up to 68 s.
const SENDING_UNIT_NANOS: u64 = 16;

/// The start of a rate sample, as of the moment when a piece leaves. Small, as there is one for each piece in flight:
/// counters are modulo 2³², which is more than is delivered or lost while a piece is under way, as no window is larger
/// than 2³⁰ bytes (RFC 7323 §2.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateStart {
    /// When something was delivered last.
    delivered_at: Instant,
    delivered: u32,
    lost: u32,
    /// In flight, the piece included.
    in_flight: u32,
    /// How long before this piece the one left that was acknowledged last.
    sending: u32,
}

impl RateStart {
    /// Of nothing.
    #[cfg(any(test, feature = "attacks"))]
    pub(crate) const NONE: Self =
        Self { delivered_at: Instant::ZERO, delivered: 0, lost: 0, in_flight: 0, sending: 0 };

    /// With the counters of delivered and lost bytes as they are now.
    #[inline]
    pub(crate) fn new(
        delivered_at: Instant,
        delivered: u64,
        lost: u64,
        in_flight_bytes: u64,
        sending: Duration,
    ) -> Self {
        let sending = sending.as_nanos() / SENDING_UNIT_NANOS;
        Self {
            delivered_at,
            delivered: delivered as u32,
            lost: lost as u32,
            in_flight: u32::try_from(in_flight_bytes).unwrap_or(u32::MAX),
            sending: u32::try_from(sending).unwrap_or(u32::MAX),
        }
    }

    /// When something was delivered last before the piece left.
    pub(crate) const fn delivered_at(&self) -> Instant {
        self.delivered_at
    }

    /// How long before this piece the one left that was acknowledged last.
    pub(crate) fn sending(&self) -> Duration {
        Duration::from_nanos(u64::from(self.sending) * SENDING_UNIT_NANOS)
    }

    /// In flight when the piece left, itself included.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        u64::from(self.in_flight)
    }

    /// Bytes delivered since, if the counter is now there.
    pub(crate) fn delivered_until(&self, delivered: u64) -> u64 {
        since(delivered, self.delivered)
    }

    /// Bytes lost since, if the counter is now there.
    pub(crate) fn lost_until(&self, lost: u64) -> u64 {
        since(lost, self.lost)
    }
}

/// How far a counter has come since.
fn since(now: u64, then: u32) -> u64 {
    u64::from((now as u32).wrapping_sub(then))
}
