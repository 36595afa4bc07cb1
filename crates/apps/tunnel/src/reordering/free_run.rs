use crate::reordering::arrival_order::{Evaluated, Order};

/// *Type-P-Packet-Reordering-Free-Run* (RFC 4737 §4.6): how many packets in order come between reordered ones.
///
/// A run ends with a reordered packet; what came in order since the last one is no run yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeRuns {
    /// *r*
    run: u64,
    /// *x*
    runs: u64,
    /// *a*
    in_order: u64,
    /// *q*
    sum_of_squares: u128,
}

impl FreeRuns {
    /// A packet arrived.
    pub fn handle_arrival(&mut self, evaluated: &Evaluated) {
        match evaluated.order {
            Order::InOrder { .. } => {
                self.run += 1;
                self.in_order += 1;
            }
            Order::Reordered { .. } => {
                self.sum_of_squares += u128::from(self.run).pow(2);
                self.run = 0;
                self.runs += 1;
            }
            Order::Duplicate | Order::TooLate => {}
        }
    }

    /// *x*, the number of runs, which is that of reordered packets.
    #[must_use]
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// *a*, the packets in order.
    #[must_use]
    pub const fn in_order(&self) -> u64 {
        self.in_order
    }

    /// *p*, all packets: *x* + *a*.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.runs + self.in_order
    }

    /// *q*, the sum of the squares of the runs.
    #[must_use]
    pub const fn sum_of_squares(&self) -> u128 {
        self.sum_of_squares
    }

    /// How long a run is on average: *a*/*x* (RFC 4737 §4.6.3); none if no packet was reordered.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.runs > 0).then(|| self.in_order as f64 / self.runs as f64)
    }

    /// How much runs differ: (*q*/*a*)/(*a*/*x*) (RFC 4737 §4.6.3), which is one if all are alike; none without runs.
    #[must_use]
    pub fn variation(&self) -> Option<f64> {
        let mean = self.mean().filter(|mean| *mean > 0.0)?;
        Some(self.sum_of_squares as f64 / self.in_order as f64 / mean)
    }
}
