use polypath_units::Duration;

use crate::reordering::arrival_order::{Evaluated, Order};
use crate::reordering::distribution::Distribution;

/// *Type-P-Packet-Late-Time-Stream* (RFC 4737 §4.3): how long after the first packet that overtook it a reordered one comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LateTimes {
    nanos: Distribution,
}

impl LateTimes {
    /// A packet arrived.
    pub fn handle_arrival(&mut self, evaluated: &Evaluated) {
        if let Some(late) = Self::of(evaluated) {
            self.nanos.note(late.as_nanos());
        }
    }

    /// *LateTime* of a packet: *DstTime(i)* − *DstTime(j)* (RFC 4737 §4.3.3). One in order has none.
    #[must_use]
    pub const fn of(evaluated: &Evaluated) -> Option<Duration> {
        match evaluated.order {
            Order::Reordered { discontinuity, .. } => Some(evaluated.arrival.at.since(discontinuity.at)),
            _ => None,
        }
    }

    /// How often which late time occurred, in nanoseconds.
    #[must_use]
    pub const fn distribution(&self) -> &Distribution {
        &self.nanos
    }

    /// The share of reordered packets that are put in order by a buffer that holds packets for so long.
    #[must_use]
    pub fn accommodated_by(&self, buffer: Duration) -> f64 {
        self.nanos.share_up_to(buffer.as_nanos())
    }

    /// The time that this share of the reordered packets does not exceed; none if no packet was reordered.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Option<Duration> {
        self.nanos.percentile(share).map(Duration::from_nanos)
    }
}
