use std::collections::{BTreeSet, VecDeque};

use crate::reordering::entropy::entropy;

/// Reorder density, *RD* (RFC 5236 §3.6): the share of packets that are displaced by each number of positions.
///
/// Each packet that arrives gets a *receive index*: the numbers of all packets that arrive, in order. Its displacement is that less its own number:
/// negative if it is early, positive if it is late (RFC 5236 §3.3). Losses and copies displace nothing.
///
/// What is lost is known only when later packets have come, so the density lags behind by up to as many packets as the displacement threshold is
/// (the *stay-back method*, RFC 5236 §6). [`finish`](Self::finish) takes in the rest.
#[derive(Clone, Debug)]
pub struct ReorderDensity {
    /// *DT*
    threshold: u32,
    /// *RI*
    receive_index: u64,
    /// What arrived and is not evaluated yet, in the order of arrival.
    window: VecDeque<u64>,
    /// Numbers of the window, and of early packets that are evaluated: those whose turn to be a receive index may come.
    indexes: BTreeSet<u64>,
    /// *FD*, from displacement −*DT* on.
    frequencies: Vec<u64>,
    evaluated: u64,
    duplicates: u64,
    discarded: u64,
}

impl ReorderDensity {
    /// One with this displacement threshold (RFC 5236 §3.4): a packet that is displaced by more counts as lost, and *DT* + 1 are remembered.
    #[must_use]
    pub fn new(threshold: u32) -> Self {
        Self {
            threshold,
            receive_index: 0,
            window: VecDeque::new(),
            indexes: BTreeSet::new(),
            frequencies: vec![0; 2 * threshold as usize + 1],
            evaluated: 0,
            duplicates: 0,
            discarded: 0,
        }
    }

    /// A packet with this number arrived.
    pub fn handle_arrival(&mut self, sequence: u64) {
        if sequence < self.receive_index || !self.indexes.insert(sequence) {
            self.duplicates += 1;
            return;
        }
        self.window.push_back(sequence);
        if self.window.len() > self.threshold as usize {
            self.evaluate();
        }
    }

    /// No more packets arrive: those that wait are evaluated. A packet that comes later is compared with the others nonetheless.
    pub fn finish(&mut self) {
        while !self.window.is_empty() {
            self.evaluate();
        }
    }

    /// The oldest packet of the window (RFC 5236 §7.1).
    fn evaluate(&mut self) {
        // The next number that arrived, or will not be waited for. There is one: each packet that was evaluated has used up one of them, or none.
        if let Some(index) = self.indexes.range(self.receive_index..).next() {
            self.receive_index = *index;
        }
        let Some(sequence) = self.window.pop_front() else { return };
        let displacement = i128::from(self.receive_index) - i128::from(sequence);
        let cell = usize::try_from(displacement + i128::from(self.threshold)).ok();
        let Some(frequency) = cell.and_then(|cell| self.frequencies.get_mut(cell)) else {
            self.discarded += 1;
            self.indexes.remove(&sequence);
            return;
        };
        *frequency += 1;
        self.evaluated += 1;
        self.indexes.remove(&self.receive_index);
        self.receive_index = self.receive_index.saturating_add(1);
    }

    /// *N'*: how many packets the density is of.
    #[must_use]
    pub const fn evaluated(&self) -> u64 {
        self.evaluated
    }

    /// How many copies, and packets that came after they counted as lost, were left out.
    #[must_use]
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// How many were displaced by more than the threshold, and left out.
    #[must_use]
    pub const fn discarded(&self) -> u64 {
        self.discarded
    }

    /// *FD*: how many packets are displaced by so many positions (RFC 5236 §3.5).
    #[must_use]
    pub fn frequency(&self, displacement: i64) -> u64 {
        let cell =
            displacement.checked_add(i64::from(self.threshold)).and_then(|cell| usize::try_from(cell).ok());
        cell.and_then(|cell| self.frequencies.get(cell)).copied().unwrap_or(0)
    }

    /// *RD*: the share of packets that are displaced by so many positions; zero before any is evaluated.
    #[must_use]
    pub fn density(&self, displacement: i64) -> f64 {
        if self.evaluated == 0 { 0.0 } else { self.frequency(displacement) as f64 / self.evaluated as f64 }
    }

    /// Each displacement that occurs, and its density; from the earliest.
    pub fn iter(&self) -> impl Iterator<Item = (i64, f64)> {
        let threshold = i64::from(self.threshold);
        let all = (-threshold..=threshold).map(|displacement| (displacement, self.density(displacement)));
        all.filter(|(_, density)| *density > 0.0)
    }

    /// The share of packets that are late by as many positions or more (RFC 5236 §9): three or more make TCP retransmit.
    #[must_use]
    pub fn late_by_at_least(&self, displacement: i64) -> f64 {
        self.iter().filter(|(at, _)| *at >= displacement).map(|(_, density)| density).sum()
    }

    /// The [entropy] of the density.
    #[must_use]
    pub fn entropy(&self) -> f64 {
        entropy(self.iter().map(|(_, density)| density))
    }
}
