use crate::reordering::arrival_order::{Evaluated, Order};
use crate::reordering::distribution::Distribution;

/// *Type-P-Packet-Reordering-Extent-Stream* (RFC 4737 §4.2): by how many arrivals a reordered packet comes after the first one that overtook it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    distribution: Distribution,
}

impl Extents {
    /// A packet arrived.
    pub fn handle_arrival(&mut self, evaluated: &Evaluated) {
        if let Some(extent) = Self::of(evaluated) {
            self.distribution.note(extent);
        }
    }

    /// The reordering extent *e* of a packet: *i* − *j* (RFC 4737 §4.2.3). One in order has none.
    #[must_use]
    pub const fn of(evaluated: &Evaluated) -> Option<u64> {
        match evaluated.order {
            Order::Reordered { discontinuity, .. } => Some(evaluated.position - discontinuity.position),
            _ => None,
        }
    }

    /// How often which extent occurred.
    #[must_use]
    pub const fn distribution(&self) -> &Distribution {
        &self.distribution
    }
}
