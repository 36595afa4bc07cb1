//! What arrives of a stream of numbered packets, in the terms of RFC 4737 and RFC 5236.

use polypath_tunnel::reordering::{
    Arrival, ArrivalOrder, ReorderBufferDensity, ReorderDensity, ReorderedRatio,
};
use polypath_units::{Duration, Instant};

use crate::run::DatagramOutcome;

/// Packets that are displaced by more count as lost for the densities: two seconds of the document's stream.
const THRESHOLD: u32 = 1000;

/// How often it is looked at what arrived.
const STEP: Duration = Duration::from_millis(100);
/// A stream has come back when so many steps together have this share of it.
const WHOLE_STEPS: usize = 5;
const WHOLE: f64 = 0.95;

#[derive(Debug)]
pub(super) struct Arrivals {
    order: ArrivalOrder,
    ratio: ReorderedRatio,
    density: ReorderDensity,
    /// In the order of arrival: what is lost is known at the end only.
    sequences: Vec<u64>,
    received_bytes: u64,
    /// Bytes of each step.
    steps: Vec<u64>,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            order: ArrivalOrder::default(),
            ratio: ReorderedRatio::default(),
            density: ReorderDensity::new(THRESHOLD),
            sequences: Vec::new(),
            received_bytes: 0,
            steps: Vec::new(),
        }
    }

    /// A packet of the stream arrived.
    pub(super) fn handle(&mut self, now: Instant, sequence: u64, bytes: u64) {
        let arrival = Arrival { sequence, at: now, payload_bytes: bytes as u32 };
        let before = self.ratio.received();
        self.ratio.handle_arrival(&self.order.handle_arrival(arrival));
        self.density.handle_arrival(sequence);
        // What comes twice counts once.
        if self.ratio.received() > before {
            self.sequences.push(sequence);
            self.received_bytes += bytes;
            let step = (now.as_nanos() / STEP.as_nanos()) as usize;
            if self.steps.len() <= step {
                self.steps.resize(step + 1, 0);
            }
            self.steps[step] += bytes;
        }
    }

    pub(super) const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// The longest time from one of these on until as much arrives as is sent, `step_bytes` in each step. Infinite if that is never.
    pub(super) fn longest_adaptation_s(&self, changes: &[Instant], step_bytes: f64) -> Option<f64> {
        let wanted = step_bytes * WHOLE_STEPS as f64 * WHOLE;
        let after = |change: &Instant| {
            let first = (change.as_nanos() / STEP.as_nanos()) as usize;
            let rest = self.steps.get(first..).unwrap_or_default();
            let came = rest.windows(WHOLE_STEPS).position(|steps| steps.iter().sum::<u64>() as f64 >= wanted);
            came.map_or(f64::INFINITY, |steps| (STEP * steps as u64).as_secs_f64())
        };
        changes.iter().map(after).max_by(f64::total_cmp)
    }

    /// No more arrive, of so many that were sent.
    pub(super) fn finish(mut self, sent: u64) -> DatagramOutcome {
        self.density.finish();
        let received = self.ratio.received();
        let buffer = buffer_of(&self.sequences);
        let most = |share: f64| buffer.percentile(share).unwrap_or(0) as u64;
        let late = self.density.iter().filter(|(displacement, _)| *displacement > 0);
        let late = late.max_by(|one, other| one.1.total_cmp(&other.1));
        DatagramOutcome {
            sent,
            received,
            reordered: self.ratio.ratio(),
            in_place: self.density.density(0),
            displacement: late.map_or(0, |(displacement, _)| displacement as u64),
            entropy: self.density.entropy(),
            buffer_p50: most(0.5),
            buffer_p95: most(0.95),
            buffer_p99: most(0.99),
            adaptation_s: None,
        }
    }
}

/// The buffer of a receiver that does not wait for what is lost: what arrived is numbered anew. Otherwise each loss would fill the buffer, whatever its
/// size, and its occupancy would say nothing of the order.
fn buffer_of(sequences: &[u64]) -> ReorderBufferDensity {
    let mut sorted = sequences.to_vec();
    sorted.sort_unstable();
    let mut buffer = ReorderBufferDensity::new(THRESHOLD as usize, 0);
    for sequence in sequences {
        // Each is there once.
        buffer.handle_arrival(sorted.partition_point(|other| other < sequence) as u64);
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_is_counted() {
        let mut arrivals = Arrivals::new();
        // The document's second sequence: packet 2 comes after four that were sent later.
        for (millis, sequence) in [(0, 0), (1, 2), (2, 3), (3, 4), (4, 5), (5, 1), (6, 6), (7, 6)] {
            arrivals.handle(Instant::from_millis(millis), sequence, 1000);
        }
        assert_eq!(arrivals.received_bytes(), 7000);
        let outcome = arrivals.finish(10);
        assert_eq!((outcome.sent, outcome.received, outcome.displacement), (10, 7, 4));
        assert!((outcome.reordered - 1.0 / 7.0).abs() < 1e-12);
        assert_eq!((outcome.buffer_p50, outcome.buffer_p99), (1, 4));
    }

    #[test]
    fn nobody_waits_for_what_is_lost() {
        let buffer = buffer_of(&[0, 5, 9, 8, 30]);
        assert_eq!((buffer.density(0), buffer.density(1)), (0.8, 0.2));
    }

    #[test]
    fn a_stream_comes_back_when_half_a_second_of_it_is_whole() {
        let mut arrivals = Arrivals::new();
        let mut sequence = 0;
        // Ten packets each 100 ms, but for a gap of 300 ms from the first second on.
        for step in (0..30).filter(|step| !(10..13).contains(step)) {
            for part in 0..10 {
                arrivals.handle(Instant::from_millis(step * 100 + part * 10), sequence, 100);
                sequence += 1;
            }
        }
        let adaptation = |changes: &[u64]| {
            let changes: Vec<Instant> = changes.iter().map(|millis| Instant::from_millis(*millis)).collect();
            arrivals.longest_adaptation_s(&changes, 1000.0)
        };
        assert_eq!(adaptation(&[]), None);
        assert_eq!(adaptation(&[0, 500]), Some(0.0));
        assert_eq!(adaptation(&[0, 800]), Some(0.5));
        assert_eq!(adaptation(&[0, 1000]), Some(0.3));
        assert_eq!(adaptation(&[2900]), Some(f64::INFINITY));
    }
}
