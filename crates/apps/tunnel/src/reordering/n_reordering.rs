use std::collections::VecDeque;

use crate::reordering::arrival_order::{Evaluated, Order};

/// *Type-P-Packet-n-Reordering-Stream* (RFC 4737 §5): how many packets came right after *n* that were sent later.
///
/// A TCP sender with a threshold of *n* duplicate acknowledgments takes such a packet for lost; three is usual.
#[derive(Clone, Debug)]
pub struct NReordering {
    /// The last that arrived, the newest at the back.
    last: VecDeque<u64>,
    most: usize,
    /// At *n* − 1, how many are *n*-reordered.
    counts: Vec<u64>,
    received: u64,
}

impl NReordering {
    /// For each *n* up to `most`.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { last: VecDeque::new(), most, counts: Vec::new(), received: 0 }
    }

    /// A packet arrived.
    pub fn handle_arrival(&mut self, evaluated: &Evaluated) {
        if matches!(evaluated.order, Order::Duplicate | Order::TooLate) {
            return;
        }
        let sequence = evaluated.arrival.sequence;
        // It is n-reordered for each n up to this one (RFC 4737 §5.3).
        let n = self.last.iter().rev().take_while(|earlier| **earlier > sequence).count();
        if self.counts.len() < n {
            self.counts.resize(n, 0);
        }
        self.counts[..n].iter_mut().for_each(|count| *count += 1);
        self.received += 1;
        self.last.push_back(sequence);
        if self.last.len() > self.most {
            self.last.pop_front();
        }
    }

    /// *m*, how many packets are *n*-reordered; all of them are *n'*-reordered for each *n'* below *n*.
    #[must_use]
    pub fn count(&self, n: usize) -> u64 {
        n.checked_sub(1).and_then(|index| self.counts.get(index)).copied().unwrap_or(0)
    }

    /// The degree of *n*-reordering, *m*/*l* (RFC 4737 §5.3); zero before any packet arrives. That of one is the degree of monotonic reordering.
    #[must_use]
    pub fn degree(&self, n: usize) -> f64 {
        if self.received == 0 { 0.0 } else { self.count(n) as f64 / self.received as f64 }
    }
}
