use std::collections::BTreeSet;

/// Reorder buffer-occupancy density, *RBD* (RFC 5236 §3.11): how often how many packets wait in a buffer that puts packets in order.
///
/// A packet that comes before its turn waits in the buffer, until all before it have come. If the buffer is full, what it waits for counts as lost.
#[derive(Clone, Debug)]
pub struct ReorderBufferDensity {
    /// *E*
    expected: u64,
    /// *BT*
    threshold: usize,
    buffer: BTreeSet<u64>,
    /// *FB*
    frequencies: Vec<u64>,
    received: u64,
    duplicates: u64,
}

impl ReorderBufferDensity {
    /// A buffer for so many packets (RFC 5236 §3.9), for a stream that begins with this number.
    #[must_use]
    pub fn new(threshold: usize, first: u64) -> Self {
        Self {
            expected: first,
            threshold,
            buffer: BTreeSet::new(),
            frequencies: Vec::new(),
            received: 0,
            duplicates: 0,
        }
    }

    /// A packet with this number arrived (RFC 5236 §7.2).
    pub fn handle_arrival(&mut self, sequence: u64) {
        if sequence < self.expected || !self.buffer.insert(sequence) {
            self.duplicates += 1;
            return;
        }
        self.release();
        if self.buffer.len() > self.threshold
            && let Some(first) = self.buffer.first()
        {
            self.expected = *first;
            self.release();
        }
        let occupancy = self.buffer.len();
        if self.frequencies.len() <= occupancy {
            self.frequencies.resize(occupancy + 1, 0);
        }
        self.frequencies[occupancy] += 1;
        self.received += 1;
    }

    /// Takes out what is in order.
    fn release(&mut self) {
        while self.buffer.remove(&self.expected) {
            self.expected = self.expected.saturating_add(1);
        }
    }

    /// *N'*: how many packets the density is of.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// How many copies, and packets that came after they counted as lost, were left out.
    #[must_use]
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// *FB*: after how many arrivals so many packets waited (RFC 5236 §3.10).
    #[must_use]
    pub fn frequency(&self, occupancy: usize) -> u64 {
        self.frequencies.get(occupancy).copied().unwrap_or(0)
    }

    /// *RBD*: after what share of the arrivals so many packets waited; zero before any.
    #[must_use]
    pub fn density(&self, occupancy: usize) -> f64 {
        if self.received == 0 { 0.0 } else { self.frequency(occupancy) as f64 / self.received as f64 }
    }

    /// How many packets waited on average (RFC 5236 §9); zero before any arrives.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let all = self.frequencies.iter().enumerate();
        all.map(|(occupancy, _)| occupancy as f64 * self.density(occupancy)).sum()
    }

    /// How many packets waited at most after this share of the arrivals: a buffer for as many loses no more than the rest (Kaspar 2011, 2.2.2).
    /// None before any arrives.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Option<usize> {
        let wanted = share * self.received as f64;
        let mut below = 0;
        let reached = self.frequencies.iter().position(|count| {
            below += count;
            below as f64 >= wanted
        });
        reached.or(self.frequencies.len().checked_sub(1))
    }
}
