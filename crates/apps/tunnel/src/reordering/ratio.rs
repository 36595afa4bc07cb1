use crate::reordering::arrival_order::{Evaluated, Order};

/// *Type-P-Reordered-Ratio-Stream* (RFC 4737 §4.1): the share of packets that arrive after one that was sent later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReorderedRatio {
    received: u64,
    reordered: u64,
}

impl ReorderedRatio {
    /// A packet arrived.
    pub fn handle_arrival(&mut self, evaluated: &Evaluated) {
        match evaluated.order {
            Order::InOrder { .. } => self.received += 1,
            Order::Reordered { .. } => {
                self.received += 1;
                self.reordered += 1;
            }
            Order::Duplicate | Order::TooLate => {}
        }
    }

    /// How many packets arrived: *L*.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// How many of them were reordered.
    #[must_use]
    pub const fn reordered(&self) -> u64 {
        self.reordered
    }

    /// *R*, the reordered packets over all that arrived (RFC 4737 §4.1.3); zero before any arrives.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.received == 0 { 0.0 } else { self.reordered as f64 / self.received as f64 }
    }
}
