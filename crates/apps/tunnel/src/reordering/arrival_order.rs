use std::collections::BTreeMap;

use polypath_units::Instant;

/// As many holes are remembered if nothing else is said.
const DEFAULT_MOST_HOLES: usize = 1024;

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number in the order in which packets were sent: *s* of RFC 4737 §3.2, in units of packets.
    pub sequence: u64,
    /// When it arrived: *DstTime* of RFC 4737 §4.3.2.
    pub at: Instant,
    /// *PayloadSize* of RFC 4737 §3.2.
    pub payload_bytes: u32,
}

impl Arrival {
    /// An empty packet at time zero, for metrics that ask for neither time nor size.
    #[must_use]
    pub const fn of(sequence: u64) -> Self {
        Self { sequence, at: Instant::ZERO, payload_bytes: 0 }
    }
}

/// What is known of a packet as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evaluated {
    /// The packet.
    pub arrival: Arrival,
    /// Its arrival position *i* from one on (RFC 4737 §4.2.2). Only first copies have one; others repeat the last.
    pub position: u64,
    /// Whether it is in order.
    pub order: Order,
}

/// Whether a packet is in order: *Type-P-Reordered* (RFC 4737 §3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It was sent after all that arrived before: *Type-P-Reordered* is false.
    InOrder {
        /// The size of the sequence discontinuity (RFC 4737 §3.4): how many packets before it are missing that were not missing
        /// before. Zero if it is the next expected one.
        discontinuity_size: u64,
    },
    /// A packet sent later has overtaken it: *Type-P-Reordered* is true.
    Reordered {
        /// The first packet that did (RFC 4737 §4.5.3).
        discontinuity: Discontinuity,
        /// The payload of all that did.
        overtaken_by_bytes: u64,
    },
    /// A further copy, which no metric counts (RFC 4737 §3.6).
    Duplicate,
    /// It came so late that it had been taken for lost, or is a copy of something as old.
    TooLate,
}

/// The packet after which the missing ones before it are reordered, once they come (RFC 4737 §4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discontinuity {
    /// Its arrival position *j*.
    pub position: u64,
    /// When it arrived.
    pub at: Instant,
}

/// Says of each packet that arrives whether it is in order (RFC 4737 §3.3), and which packet overtook it first.
///
/// It remembers the packets that are missing, as RFC 4737 §6 proposes, in holes: runs of numbers that have not arrived. Of each hole it knows
/// what the metrics ask for, so that they are exact and no packet that arrived need be remembered. If there are too many holes, the packets of
/// the oldest one count as lost.
#[derive(Clone, Debug)]
pub struct ArrivalOrder {
    /// The largest number that arrived: *NextExp* less one.
    highest: Option<u64>,
    position: u64,
    /// By their first number.
    holes: BTreeMap<u64, Hole>,
    most_holes: usize,
    /// What is missing below is lost.
    settled_below: u64,
    duplicates: u64,
    too_late: u64,
}

/// Numbers that have not arrived.
#[derive(Clone, Copy, Debug)]
struct Hole {
    /// Behind the last of them.
    end: u64,
    /// What overtook all of them first.
    discontinuity: Discontinuity,
    /// The payload of what arrived between this hole and the next one.
    bytes_behind: u64,
}

impl ArrivalOrder {
    /// One that remembers so many holes.
    #[must_use]
    pub fn new(most_holes: usize) -> Self {
        Self {
            highest: None,
            position: 0,
            holes: BTreeMap::new(),
            most_holes,
            settled_below: 0,
            duplicates: 0,
            too_late: 0,
        }
    }

    /// How many packets arrived, without further copies: *L* of RFC 4737 §4.1.2.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.position
    }

    /// How many further copies arrived.
    #[must_use]
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// How many arrived after they had been taken for lost.
    #[must_use]
    pub const fn too_late(&self) -> u64 {
        self.too_late
    }

    /// A packet arrived.
    pub fn handle_arrival(&mut self, arrival: Arrival) -> Evaluated {
        let order = match self.highest {
            Some(highest) if arrival.sequence <= highest => self.fill(arrival),
            highest => self.advance(arrival, highest),
        };
        match order {
            Order::Duplicate => self.duplicates += 1,
            Order::TooLate => self.too_late += 1,
            Order::InOrder { .. } | Order::Reordered { .. } => {}
        }
        while self.holes.len() > self.most_holes {
            if let Some((_, hole)) = self.holes.pop_first() {
                self.settled_below = hole.end;
            }
        }
        Evaluated { arrival, position: self.position, order }
    }

    /// A packet beyond all others.
    fn advance(&mut self, arrival: Arrival, highest: Option<u64>) -> Order {
        let Arrival { sequence, at, payload_bytes } = arrival;
        let bytes = u64::from(payload_bytes);
        self.highest = Some(sequence);
        self.position += 1;
        let expected = highest.map_or(0, |highest| highest + 1);
        if expected < sequence {
            let discontinuity = Discontinuity { position: self.position, at };
            self.holes.insert(expected, Hole { end: sequence, discontinuity, bytes_behind: bytes });
        } else if let Some(mut last) = self.holes.last_entry() {
            last.get_mut().bytes_behind += bytes;
        }
        // Before the first packet none is expected (RFC 4737 §3.6).
        Order::InOrder { discontinuity_size: highest.map_or(0, |_| sequence - expected) }
    }

    /// A packet with a number that is not beyond all others: one that was missing, or a copy.
    fn fill(&mut self, arrival: Arrival) -> Order {
        let sequence = arrival.sequence;
        let around = self.holes.range(..=sequence).next_back().filter(|(_, hole)| sequence < hole.end);
        let Some((&first, &hole)) = around else {
            return if sequence < self.settled_below { Order::TooLate } else { Order::Duplicate };
        };
        let overtaken_by_bytes = self.holes.range(first..).map(|(_, hole)| hole.bytes_behind).sum();
        self.position += 1;
        self.holes.remove(&first);
        let mut bytes_behind = u64::from(arrival.payload_bytes);
        if sequence + 1 < hole.end {
            self.holes.insert(sequence + 1, hole);
        } else {
            bytes_behind += hole.bytes_behind;
        }
        if first < sequence {
            self.holes.insert(first, Hole { end: sequence, bytes_behind, ..hole });
        } else if let Some((_, below)) = self.holes.range_mut(..first).next_back() {
            below.bytes_behind += bytes_behind;
        }
        Order::Reordered { discontinuity: hole.discontinuity, overtaken_by_bytes }
    }
}

impl Default for ArrivalOrder {
    /// One that remembers 1024 holes.
    fn default() -> Self {
        Self::new(DEFAULT_MOST_HOLES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(most_holes: usize, sequences: &[u64]) -> Vec<Order> {
        let mut order = ArrivalOrder::new(most_holes);
        sequences.iter().map(|sequence| order.handle_arrival(Arrival::of(*sequence)).order).collect()
    }

    fn in_order(discontinuity_size: u64) -> Order {
        Order::InOrder { discontinuity_size }
    }

    fn reordered(position: u64) -> Order {
        let discontinuity = Discontinuity { position, at: Instant::ZERO };
        Order::Reordered { discontinuity, overtaken_by_bytes: 0 }
    }

    #[test]
    fn losses_and_copies_are_not_reordered() {
        assert_eq!(orders(9, &[1, 3, 4, 5]), [in_order(0), in_order(1), in_order(0), in_order(0)]);
        let copies = [in_order(0), in_order(0), in_order(0), Order::Duplicate, in_order(0), Order::Duplicate];
        assert_eq!(orders(9, &[1, 2, 3, 2, 4, 4]), copies);
    }

    #[test]
    fn the_first_packet_is_in_order_whatever_its_number() {
        assert_eq!(orders(9, &[5, 3, 4, 6]), [in_order(0), reordered(1), reordered(1), in_order(0)]);
        assert_eq!(orders(9, &[u64::MAX, u64::MAX, 0]), [in_order(0), Order::Duplicate, reordered(1)]);
    }

    #[test]
    fn what_is_missing_for_too_long_is_lost() {
        let mut order = ArrivalOrder::new(2);
        for sequence in [0, 2, 4, 6] {
            order.handle_arrival(Arrival::of(sequence));
        }
        let late = [1, 3, 5].map(|sequence| order.handle_arrival(Arrival::of(sequence)).order);
        assert_eq!(late, [Order::TooLate, reordered(3), reordered(4)]);
        assert_eq!((order.received(), order.duplicates(), order.too_late()), (6, 0, 1));
    }
}
