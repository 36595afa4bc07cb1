//! The intervals of a measurement that are kept for its end. However long it takes, there is a bound: beyond it, neighbours become one.

use super::parameters::Parameters;
use super::report::{Datagrams, Interval, PathInterval, Received, StreamInterval, Sum};

/// Intervals that are kept, each counted once for each of its streams: some 60 MB.
const MOST: usize = 100_000;

/// The intervals so far.
#[derive(Clone, Debug)]
pub(super) struct Intervals {
    /// Streams of the first direction.
    first: usize,
    most: usize,
    /// As many as were reported become one.
    reported_in_one: u64,
    kept: Vec<Kept>,
}

#[derive(Clone, Debug)]
struct Kept {
    interval: Interval,
    /// Intervals that were reported, and are this one now.
    reported: u64,
}

impl Intervals {
    pub(super) fn new(parameters: &Parameters) -> Self {
        let most = (MOST / parameters.connections().max(1) as usize).max(2);
        Self { first: parameters.streams as usize, most, reported_in_one: 1, kept: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) fn push(&mut self, interval: Interval) {
        if self.kept.len() == self.most {
            self.reported_in_one *= 2;
            for kept in std::mem::take(&mut self.kept) {
                self.add(kept);
            }
        }
        self.add(Kept { interval, reported: 1 });
    }

    /// Behind the last, or to it if it is not whole yet. What is omitted stays apart.
    fn add(&mut self, next: Kept) {
        match self.kept.last_mut() {
            Some(last)
                if last.reported + next.reported <= self.reported_in_one
                    && last.interval.sum.omitted == next.interval.sum.omitted =>
            {
                join(&mut last.interval, next.interval, self.first);
                last.reported += next.reported;
            }
            _ => self.kept.push(next),
        }
    }

    pub(super) fn into_vec(self) -> Vec<Interval> {
        self.kept.into_iter().map(|kept| kept.interval).collect()
    }
}

fn join(interval: &mut Interval, next: Interval, first: usize) {
    for (stream, next) in interval.streams.iter_mut().zip(next.streams) {
        join_stream(stream, next);
    }
    let (one, other) = interval.streams.split_at(first.min(interval.streams.len()));
    interval.sum = Sum::of_interval(one);
    interval.sum_bidir_reverse = interval.sum_bidir_reverse.take().map(|_| Sum::of_interval(other));
}

/// Counters add up; of what is a state, the later one is told.
fn join_stream(stream: &mut StreamInterval, next: StreamInterval) {
    stream.carried.add(next.carried);
    if let Some(mut state) = next.tcp {
        let before = stream.tcp.map_or(0, |tcp| tcp.retransmits);
        state.retransmits = state.retransmits.saturating_add(before);
        stream.tcp = Some(state);
    }
    if let (Some(one), Some(other)) = (stream.datagrams, next.datagrams) {
        let packets = one.packets.saturating_add(other.packets);
        let received = one.received.zip(other.received).map(|(one, other)| {
            let lost = one.lost_packets.saturating_add(other.lost_packets);
            Received::new(other.jitter_ms / 1000.0, lost, packets)
        });
        stream.datagrams = Some(Datagrams { received, packets });
    }
    stream.paths = join_paths(std::mem::take(&mut stream.paths), next.paths, stream.carried.seconds);
}

/// The paths of the later one; of each, what went over it before, too.
fn join_paths(before: Vec<PathInterval>, mut paths: Vec<PathInterval>, seconds: f64) -> Vec<PathInterval> {
    for path in &mut paths {
        let same = before.iter().find(|old| (old.local, old.remote) == (path.local, path.remote));
        path.add(same.map_or(0, |old| old.bytes), seconds);
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::super::parameters::Direction;
    use super::super::report::{Carried, SenderState};
    use super::*;

    fn interval(number: u32, streams: usize, omitted: bool) -> Interval {
        let start = f64::from(number);
        let stream = StreamInterval {
            carried: Carried::new(start, start + 1.0, 10),
            tcp: Some(SenderState { retransmits: 1, rtt: u64::from(number), ..SenderState::default() }),
            omitted,
            ..StreamInterval::default()
        };
        let streams = vec![stream; streams];
        let (first, second) = streams.split_at(streams.len() / 2);
        let (sum, sum_bidir_reverse) = (Sum::of_interval(first), Some(Sum::of_interval(second)));
        Interval { sum, sum_bidir_reverse, streams }
    }

    #[test]
    fn what_is_kept_of_an_endless_test_has_a_bound_and_loses_no_byte() {
        let parameters = Parameters { streams: 1, direction: Direction::Both, ..Parameters::default() };
        let mut intervals = Intervals { most: 10, ..Intervals::new(&parameters) };
        for number in 0..3 {
            intervals.push(interval(number, 2, true));
        }
        for number in 3..1003 {
            intervals.push(interval(number, 2, false));
            assert!(intervals.kept.len() <= 10);
        }
        let kept = intervals.into_vec();
        let bytes = |omitted| {
            let of_kind = kept.iter().filter(|interval| interval.sum.omitted == Some(omitted));
            of_kind.map(|interval| interval.sum.carried.bytes).sum::<u64>()
        };
        assert_eq!((bytes(true), bytes(false)), (30, 10_000));
        let back: u64 =
            kept.iter().filter_map(|it| it.sum_bidir_reverse.as_ref()).map(|it| it.carried.bytes).sum();
        assert_eq!(back, 10_030);
        // One follows the other, and each tells how long it took.
        for pair in kept.windows(2) {
            assert_eq!(pair[0].sum.carried.end, pair[1].sum.carried.start);
        }
        let longest = kept.iter().map(|interval| interval.sum.carried.seconds).fold(0.0, f64::max);
        assert!(kept.len() > 4 && longest <= 256.0, "{} of {longest}", kept.len());
        let middle = &kept[1].streams[0];
        let tcp = middle.tcp.expect("a sender");
        assert_eq!(tcp.retransmits as f64, middle.carried.seconds, "counters add up");
        assert_eq!(tcp.rtt as f64, middle.carried.end - 1.0, "states are the latest");
    }
}
