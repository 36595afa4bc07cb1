//! The examples of the standards and of the document, and the definitions written out against what is computed as packets arrive.

use std::collections::{BTreeMap, BTreeSet};

use polypath_units::{Duration, Instant};
use proptest::prelude::*;

use super::*;

/// All metrics of RFC 4737, of one stream.
struct Rfc4737 {
    evaluated: Vec<Evaluated>,
    ratio: ReorderedRatio,
    extents: Extents,
    late_times: LateTimes,
    byte_offsets: ByteOffsets,
    gaps: Gaps,
    free_runs: FreeRuns,
    n_reordering: NReordering,
}

impl Rfc4737 {
    fn of(arrivals: impl IntoIterator<Item = Arrival>) -> Self {
        let mut order = ArrivalOrder::default();
        let evaluated = arrivals.into_iter().map(|arrival| order.handle_arrival(arrival)).collect();
        let mut all = Self {
            evaluated,
            ratio: ReorderedRatio::default(),
            extents: Extents::default(),
            late_times: LateTimes::default(),
            byte_offsets: ByteOffsets::default(),
            gaps: Gaps::default(),
            free_runs: FreeRuns::default(),
            n_reordering: NReordering::new(100),
        };
        for evaluated in &all.evaluated {
            all.ratio.handle_arrival(evaluated);
            all.extents.handle_arrival(evaluated);
            all.late_times.handle_arrival(evaluated);
            all.byte_offsets.handle_arrival(evaluated);
            all.gaps.handle_arrival(evaluated);
            all.free_runs.handle_arrival(evaluated);
            all.n_reordering.handle_arrival(evaluated);
        }
        all
    }

    fn of_sequences(sequences: impl IntoIterator<Item = u64>) -> Self {
        Self::of(sequences.into_iter().map(Arrival::of))
    }

    /// Of each reordered packet: its number, extent, byte offset, and late time in milliseconds.
    fn reordered(&self) -> Vec<(u64, u64, u64, u64)> {
        let reordered = self.evaluated.iter().filter_map(|evaluated| {
            let late = LateTimes::of(evaluated)?.as_millis();
            Some((evaluated.arrival.sequence, Extents::of(evaluated)?, ByteOffsets::of(evaluated)?, late))
        });
        reordered.collect()
    }

    fn n_reordered(&self) -> Vec<u64> {
        (1..100).map(|n| self.n_reordering.count(n)).take_while(|count| *count > 0).collect()
    }
}

/// A row of one of the tables of RFC 4737 §7.1 to 7.3: a number and *DstTime*, with a payload of 100 bytes.
fn row((sequence, millis): (u64, u64)) -> Arrival {
    Arrival { sequence, at: Instant::from_millis(millis), payload_bytes: 100 }
}

/// RFC 4737 §7.1.
#[test]
fn one_packet_reordered() {
    let times = [68, 88, 108, 148, 168, 188, 208, 210, 228, 248];
    let stream = Rfc4737::of([1, 2, 3, 5, 6, 7, 8, 4, 9, 10].into_iter().zip(times).map(row));
    assert_eq!(stream.reordered(), [(4, 4, 400, 62)]);
    assert_eq!(stream.n_reordered(), [1; 4]);
    assert_eq!((stream.ratio.ratio(), stream.n_reordering.degree(4)), (0.1, 0.1));
    let sizes = stream.evaluated.iter().filter_map(|evaluated| match evaluated.order {
        Order::InOrder { discontinuity_size } => Some(discontinuity_size),
        _ => None,
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [0, 0, 0, 1, 0, 0, 0, 0, 0]);
    assert_eq!(stream.late_times.accommodated_by(Duration::from_millis(61)), 0.0);
    assert_eq!(stream.late_times.accommodated_by(Duration::from_millis(62)), 1.0);
}

/// RFC 4737 §7.2.
#[test]
fn two_packets_reordered() {
    let times = [68, 88, 108, 128, 188, 189, 190, 208, 228, 248];
    let stream = Rfc4737::of([1, 2, 3, 4, 7, 5, 6, 8, 9, 10].into_iter().zip(times).map(row));
    assert_eq!(stream.reordered(), [(5, 1, 100, 1), (6, 2, 100, 2)]);
    assert_eq!(stream.n_reordered(), [1]);
    assert_eq!(stream.gaps.distribution().count(), 0);
}

/// RFC 4737 §7.3, and the example of §5.3.
#[test]
fn three_packets_reordered() {
    let times = [68, 88, 108, 188, 208, 228, 248, 250, 252, 256, 268];
    let stream = Rfc4737::of([1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11].into_iter().zip(times).map(row));
    assert_eq!(stream.reordered(), [(4, 4, 400, 62), (5, 5, 400, 64), (6, 6, 400, 68)]);
    assert_eq!(stream.extents.distribution().iter().collect::<Vec<_>>(), [(4, 1), (5, 1), (6, 1)]);
    assert_eq!(stream.byte_offsets.distribution().iter().collect::<Vec<_>>(), [(400, 3)]);
    assert_eq!(stream.late_times.percentile(0.5), Some(Duration::from_millis(64)));
    assert_eq!(stream.n_reordered(), [1; 4]);
    assert_eq!(Rfc4737::of_sequences([1, 2, 3, 7, 8, 9, 4, 5, 6]).n_reordered(), [1; 3]);
}

/// RFC 4737 §7.4. The RFC gives no times; here a packet comes each millisecond.
#[test]
fn two_discontinuities() {
    let sequences = [1, 2, 3, 6, 7, 4, 5, 8, 9, 10, 12, 13, 11, 14, 15, 16];
    let stream = Rfc4737::of(sequences.into_iter().zip(1..).map(row));
    let extents =
        stream.reordered().iter().map(|(sequence, extent, ..)| (*sequence, *extent)).collect::<Vec<_>>();
    assert_eq!(extents, [(4, 2), (5, 3), (11, 2)]);
    assert_eq!(stream.gaps.distribution().iter().collect::<Vec<_>>(), [(7, 1)]);
    assert_eq!(stream.gaps.percentile_of_times(1.0), Some(Duration::from_millis(7)));
    // Runs of 5, 0 and 5.
    assert_eq!((stream.free_runs.runs(), stream.free_runs.sum_of_squares()), (3, 50));
    assert_eq!((stream.free_runs.in_order(), stream.free_runs.packets()), (13, 16));
}

/// RFC 4737 §4.6.4.
#[test]
fn runs_between_reordered_packets() {
    let of = |runs: [u64; 3]| {
        let mut free_runs = FreeRuns::default();
        let mut order = ArrivalOrder::default();
        // Before each run a number is left out, which comes behind it.
        let mut next = 0;
        for run in runs {
            for sequence in (next + 1..=next + run).chain([next]) {
                free_runs.handle_arrival(&order.handle_arrival(Arrival::of(sequence)));
            }
            next += run + 1;
        }
        free_runs
    };
    let alike = of([11, 11, 11]);
    assert_eq!((alike.packets(), alike.runs(), alike.in_order(), alike.sum_of_squares()), (36, 3, 33, 363));
    assert_eq!((alike.mean(), alike.variation()), (Some(11.0), Some(1.0)));
    let unlike = of([1, 1, 31]);
    assert_eq!(
        (unlike.packets(), unlike.runs(), unlike.in_order(), unlike.sum_of_squares()),
        (36, 3, 33, 963)
    );
    assert_eq!(unlike.mean(), Some(11.0));
    assert!((unlike.variation().unwrap() - 2.65).abs() < 0.005);
    assert_eq!((FreeRuns::default().mean(), FreeRuns::default().variation()), (None, None));
}

/// Kaspar 2011, 2.2.2: the sequences S1, S2 and S3.
#[test]
fn ratios_of_the_document() {
    let ratio = |sequences: &[u64]| {
        let ratio = Rfc4737::of_sequences(sequences.iter().copied()).ratio;
        (ratio.reordered(), ratio.received())
    };
    assert_eq!(ratio(&[1, 6, 2, 3, 4, 5, 7]), (4, 7));
    assert_eq!(ratio(&[1, 3, 4, 5, 6, 2, 7]), (1, 7));
    assert_eq!(ratio(&[2, 1, 4, 3, 6, 5]), (3, 6));
    assert_eq!(ReorderedRatio::default().ratio(), 0.0);
}

/// A discontinuity may be known as one after a later one is.
#[test]
fn gaps_do_not_depend_on_what_comes_first() {
    let gaps =
        |sequences: [u64; 9]| Rfc4737::of_sequences(sequences).gaps.distribution().iter().collect::<Vec<_>>();
    // Discontinuities at positions 2, 3 and 5.
    assert_eq!(gaps([1, 3, 5, 6, 8, 2, 4, 7, 9]), [(1, 1), (2, 1)]);
    assert_eq!(gaps([1, 3, 5, 6, 8, 7, 2, 4, 9]), [(1, 1), (2, 1)]);
    assert_eq!(gaps([1, 3, 5, 6, 8, 4, 7, 2, 9]), [(1, 1), (2, 1)]);
}

fn density(threshold: u32, sequences: &[u64]) -> ReorderDensity {
    let mut density = ReorderDensity::new(threshold);
    sequences.iter().for_each(|sequence| density.handle_arrival(*sequence));
    density.finish();
    density
}

fn frequencies(density: &ReorderDensity) -> Vec<(i64, u64)> {
    density.iter().map(|(displacement, _)| (displacement, density.frequency(displacement))).collect()
}

/// RFC 5236 §3.3, example 3; and §4, examples 4 and 5.
#[test]
fn displacements() {
    let copy = density(4, &[1, 4, 3, 5, 3, 8, 7, 6]);
    assert_eq!(frequencies(&copy), [(-2, 1), (-1, 1), (0, 3), (1, 1), (2, 1)]);
    assert_eq!(copy.duplicates(), 1);
    assert_eq!(frequencies(&density(4, &[1, 2, 3, 5, 4, 6])), [(-1, 1), (0, 4), (1, 1)]);
    assert_eq!(frequencies(&density(4, &[1, 2, 5, 3, 6, 2])), [(-2, 1), (0, 3), (2, 1)]);
}

/// RFC 5236 §8, tables 1 and 2; 5 to 7.
#[test]
fn reorder_density() {
    let no_loss = density(4, &[1, 4, 2, 5, 3, 6, 7, 8]);
    assert_eq!(
        no_loss.iter().collect::<Vec<_>>(),
        [(-2, 0.125), (-1, 0.125), (0, 0.5), (1, 0.125), (2, 0.125)]
    );
    assert_eq!((no_loss.late_by_at_least(1), no_loss.late_by_at_least(3)), (0.25, 0.0));
    let entropy = 0.5 * 2.0_f64.ln() + 0.5 * 8.0_f64.ln();
    assert!((no_loss.entropy() - entropy).abs() < 1e-12);

    let loss = density(3, &[1, 2, 4, 5, 6, 7]);
    assert_eq!((loss.iter().collect::<Vec<_>>(), loss.entropy()), (vec![(0, 1.0)], 0.0));
    assert_eq!(density(2, &[1, 3, 2, 3, 4, 5]).iter().collect::<Vec<_>>(), [(-1, 0.2), (0, 0.6), (1, 0.2)]);
}

/// RFC 5236 §6: one packet with a wrong number. What comes after it counts for what it is.
#[test]
fn a_rogue_packet_has_no_influence() {
    let rogue = density(4, &[1, 5430, 2, 3, 4, 5, 6]);
    assert_eq!((frequencies(&rogue), rogue.discarded()), (vec![(0, 6)], 1));
    let rogue = density(4, &[1, u64::MAX, 2, 3, 4, 5, 6]);
    assert_eq!((frequencies(&rogue), rogue.discarded()), (vec![(0, 6)], 1));
    // Later than by the threshold: it is like a copy.
    let late = density(2, &[1, 3, 4, 5, 6, 7, 2, 8]);
    assert_eq!((frequencies(&late), late.duplicates()), (vec![(0, 7)], 1));
}

/// RFC 5236 §6: with a window of *DT* + 1 the density lags by *DT*.
#[test]
fn the_density_lags_by_no_more_than_the_threshold() {
    let mut density = ReorderDensity::new(3);
    for sequence in 1..=10 {
        density.handle_arrival(sequence);
        assert_eq!(density.evaluated(), sequence.saturating_sub(3));
    }
}

fn buffer(threshold: usize, sequences: &[u64]) -> ReorderBufferDensity {
    let mut buffer = ReorderBufferDensity::new(threshold, 1);
    sequences.iter().for_each(|sequence| buffer.handle_arrival(*sequence));
    buffer
}

/// RFC 5236 §8, tables 3, 4, 6 and 8.
#[test]
fn reorder_buffer_density() {
    let no_loss = buffer(4, &[1, 4, 2, 5, 3, 6, 7, 8]);
    assert_eq!([0, 1, 2, 3].map(|occupancy| no_loss.density(occupancy)), [0.625, 0.25, 0.125, 0.0]);
    assert_eq!(no_loss.mean(), 0.5);
    assert_eq!([0.625, 0.875, 0.99].map(|share| no_loss.percentile(share).unwrap()), [0, 1, 2]);
    let loss = buffer(3, &[1, 2, 4, 5, 6, 7]);
    assert_eq!([0, 1, 2, 3].map(|occupancy| loss.frequency(occupancy)), [3, 1, 1, 1]);
    let copy = buffer(2, &[1, 3, 2, 3, 4, 5]);
    assert_eq!([0, 1].map(|occupancy| copy.density(occupancy)), [0.8, 0.2]);
    assert_eq!((copy.duplicates(), copy.received()), (1, 5));
    assert_eq!(buffer(2, &[]).percentile(0.5), None);
}

/// RFC 5236 §3.8: the occupancy counts the packet that just arrived, also when it makes room for itself.
#[test]
fn who_comes_to_a_full_buffer_waits_in_it() {
    // 10 finds 4 and 8 waiting for 3; 3 counts as lost, 4 leaves, 8 and 10 wait.
    let full = buffer(2, &[1, 2, 4, 8, 10]);
    assert_eq!([0, 1, 2].map(|occupancy| full.frequency(occupancy)), [2, 1, 2]);
    let none = buffer(0, &[1, 3, 2, u64::MAX]);
    assert_eq!((none.frequency(0), none.duplicates()), (3, 1));
}

/// Packets in some order; some are lost, and some come again.
fn streams() -> impl Strategy<Value = Vec<u64>> {
    let packets = prop::collection::vec((0_u64..40, 0_u64..10), 0..40);
    packets.prop_map(|packets| {
        // Each is delayed by up to ten others.
        let mut delayed: Vec<_> =
            packets.into_iter().map(|(sequence, delay)| (sequence + delay, sequence)).collect();
        delayed.sort_unstable();
        delayed.into_iter().map(|(_, sequence)| sequence).collect()
    })
}

/// Without further copies.
fn first_copies(stream: &[u64]) -> Vec<u64> {
    let mut seen = BTreeSet::new();
    stream.iter().copied().filter(|sequence| seen.insert(*sequence)).collect()
}

proptest! {
    #[test]
    fn metrics_are_as_they_are_defined(stream in streams()) {
        let of = |sequence: &u64| Arrival { sequence: *sequence, at: Instant::ZERO, payload_bytes: 1 << (sequence % 16) };
        let computed = Rfc4737::of(stream.iter().map(of));
        let s = first_copies(&stream);
        let mut expected = Vec::new();
        let mut n_reordered = BTreeMap::new();
        let mut discontinuities = BTreeSet::new();
        for i in 0..s.len() {
            let overtaken_by = |j: &usize| s[*j] > s[i];
            if let Some(j) = (0..i).find(overtaken_by) {
                let bytes = (j..i).filter(overtaken_by).map(|j| u64::from(of(&s[j]).payload_bytes)).sum::<u64>();
                expected.push((s[i], (i - j) as u64, bytes, 0));
                discontinuities.insert(j);
            }
            for n in (1..=i).take_while(|n| s[i - n] > s[i]) {
                *n_reordered.entry(n).or_insert(0) += 1;
            }
        }
        prop_assert_eq!(computed.reordered(), expected);
        prop_assert_eq!(computed.n_reordered(), n_reordered.into_values().collect::<Vec<u64>>());
        let mut gaps = BTreeMap::new();
        for (j, next) in discontinuities.iter().zip(discontinuities.iter().skip(1)) {
            *gaps.entry((next - j) as u64).or_insert(0) += 1;
        }
        prop_assert_eq!(computed.gaps.distribution().iter().collect::<BTreeMap<_, u64>>(), gaps);
        prop_assert_eq!(computed.free_runs.packets(), s.len() as u64);
    }

    #[test]
    fn with_a_large_threshold_the_density_is_that_of_the_whole_stream(stream in streams()) {
        let s = first_copies(&stream);
        let mut indexes = s.clone();
        indexes.sort_unstable();
        let mut expected = BTreeMap::new();
        for (index, sequence) in indexes.iter().zip(&s) {
            *expected.entry(*index as i64 - *sequence as i64).or_insert(0) += 1;
        }
        let computed = density(100, &stream);
        prop_assert_eq!(frequencies(&computed).into_iter().collect::<BTreeMap<_, u64>>(), expected);
        prop_assert_eq!(computed.duplicates(), (stream.len() - s.len()) as u64);
    }

    #[test]
    fn whatever_comes_is_counted_once(sequences in prop::collection::vec(any::<u64>().prop_map(|n| n % 12), 0..60), threshold in 0_u32..6) {
        let density = density(threshold, &sequences);
        prop_assert_eq!(density.evaluated() + density.duplicates() + density.discarded(), sequences.len() as u64);
        let mut buffer = ReorderBufferDensity::new(threshold as usize, 0);
        sequences.iter().for_each(|sequence| buffer.handle_arrival(*sequence));
        prop_assert_eq!(buffer.received() + buffer.duplicates(), sequences.len() as u64);
        prop_assert_eq!((0..=threshold as usize).map(|occupancy| buffer.frequency(occupancy)).sum::<u64>(), buffer.received());
        let mut order = ArrivalOrder::new(threshold as usize);
        sequences.iter().for_each(|sequence| { order.handle_arrival(Arrival::of(*sequence)); });
        prop_assert_eq!(order.received() + order.duplicates() + order.too_late(), sequences.len() as u64);
    }
}
