//! By what the next segments would do to the player (Yin, Jindal, Sekar and Sinopoli: a control-theoretic approach for dynamic
//! adaptive video streaming over HTTP, 2015; RobustMPC).

use std::collections::VecDeque;

use polypath_units::Duration;

use super::view::{Adaptation, View};

/// So many segments are looked ahead.
const HORIZON: usize = 5;
/// So many throughputs, and errors of what was foretold, are remembered.
const REMEMBERED: usize = 5;
/// What the first foretelling may be wrong by, as a part of what then comes; less with each that was measured. Connections begin in
/// bursts that full queues have let through, and no error is known yet.
const ERROR_AT_FIRST: f64 = 0.5;
/// More plans than these are not compared: with many qualities it looks less far ahead.
const MOST_PLANS: usize = 4096;
/// What a change of quality costs, in its own difference.
const WEIGHT_OF_CHANGES: f64 = 1.0;
/// What a second of waiting costs: as much as the highest quality gains in it, so many times. Whoever waits goes away.
const WEIGHT_OF_WAITING: f64 = 5.0;
/// A segment whose size is not known may have so many times the mean: rates are variable.
const DOUBT: f64 = 1.2;
/// So much of what is buffered is not planned with: a segment that comes a little late is no stall.
const RESERVE: Duration = Duration::from_secs(1);

/// The first step of the plan for some segments that pleases most: high qualities, few changes, no waiting, at a throughput that is
/// foretold carefully.
#[derive(Clone, Debug, Default)]
pub(super) struct RobustMpc {
    /// Bits per second, the latest last.
    throughputs: VecDeque<f64>,
    errors: VecDeque<f64>,
    foretold: Option<f64>,
}

impl RobustMpc {
    /// The harmonic mean of what was measured, less the worst error of late.
    fn foretell(&mut self, measured: f64) -> f64 {
        let remember = |values: &mut VecDeque<f64>, value| {
            values.push_back(value);
            if values.len() > REMEMBERED {
                values.pop_front();
            }
        };
        if let Some(foretold) = self.foretold {
            // What came faster than foretold harms nobody.
            remember(&mut self.errors, ((foretold - measured) / measured).max(0.0));
        }
        let unknown = (REMEMBERED - self.throughputs.len()) as f64 / REMEMBERED as f64;
        remember(&mut self.throughputs, measured);
        let mean =
            self.throughputs.len() as f64 / self.throughputs.iter().map(|each| 1.0 / each).sum::<f64>();
        self.foretold = Some(mean);
        mean / (1.0
            + self.errors.iter().fold(ERROR_AT_FIRST * unknown, |worst: f64, error| worst.max(*error)))
    }
}

impl Adaptation for RobustMpc {
    fn choose(&mut self, view: &View<'_>) -> usize {
        let Some(measured) = view.throughput.map(|rate| rate.as_bps() as f64).filter(|rate| *rate > 0.0)
        else {
            return 0;
        };
        let throughput = self.foretell(measured);
        let plan = Plan { view, throughput, capacity: view.capacity.as_secs_f64() };
        let count = view.rates.len();
        let depth = (1..=HORIZON).rev().find(|depth| count.pow(*depth as u32) <= MOST_PLANS).unwrap_or(1);
        let buffered = view.buffered.saturating_sub(RESERVE.min(view.capacity / 8)).as_secs_f64();
        let value = |quality: usize| plan.value(quality, view.last, buffered, (0, depth));
        (0..count).max_by(|one, other| value(*one).total_cmp(&value(*other))).unwrap_or(0)
    }
}

/// The plan for the rest of the horizon.
struct Plan<'a> {
    view: &'a View<'a>,
    throughput: f64,
    capacity: f64,
}

impl Plan<'_> {
    /// What the best plan is worth that begins with this quality: megabits of a second, summed over its segments.
    fn value(
        &self,
        quality: usize,
        last: Option<usize>,
        buffered: f64,
        (ahead, depth): (usize, usize),
    ) -> f64 {
        let segment = self.view.segment.as_secs_f64();
        let worth = |quality: usize| self.view.rates[quality].as_mbps_f64();
        let doubt = if ahead < self.view.sizes.len() { 1.0 } else { DOUBT };
        let takes = self.view.bytes_ahead(ahead, quality) * doubt * 8.0 / self.throughput;
        let waits = (takes - buffered).max(0.0);
        let buffered = ((buffered - takes).max(0.0) + segment).min(self.capacity);
        let change = last.map_or(0.0, |last| (worth(quality) - worth(last)).abs());
        let waiting = WEIGHT_OF_WAITING * worth(self.view.rates.len() - 1) * waits / segment;
        let own = worth(quality) - WEIGHT_OF_CHANGES * change - waiting;
        if ahead + 1 >= depth {
            return own;
        }
        let rest = (0..self.view.rates.len())
            .map(|next| self.value(next, Some(quality), buffered, (ahead + 1, depth)))
            .fold(f64::NEG_INFINITY, f64::max);
        own + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rates_are_believed_less_than_later_ones() {
        let mut model = RobustMpc::default();
        let foretold: Vec<f64> = (0..8).map(|_| model.foretell(3e6)).collect();
        assert_eq!((foretold[0], foretold[1]), (2e6, 3e6 / 1.4));
        assert_eq!(foretold[5..], [3e6; 3]);
    }
}
