//! How fast bytes came or went over each interface, for a chart.

use std::collections::HashMap;
use std::time::Instant;

use crate::report::{Chart, Series};

/// The first bins are so long, in seconds.
const LEAST_BIN_S: f64 = 0.02;
/// When there are more, neighbours become one.
const MOST_BINS: usize = 1024;
/// More points of a line can't be told apart.
const MOST_POINTS: usize = 140;
/// A point of a chart stands for so many seconds at least, as far as there are some points: what is shorter shows bursts, not rates.
const LEAST_POINT_S: f64 = 0.25;
const LEAST_POINTS: f64 = 20.0;

/// Bytes over time, of each way. They take the same memory however long it lasts.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    begun: Instant,
    bin_s: f64,
    ways: Vec<Way>,
    /// What was counted, and when, of those of which a sum is told.
    totals: HashMap<String, u64>,
    counted_s: f64,
}

#[derive(Clone, Debug)]
struct Way {
    name: String,
    bins: Vec<f64>,
}

impl Rates {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            bin_s: LEAST_BIN_S,
            ways: Vec::new(),
            totals: HashMap::new(),
            counted_s: 0.0,
        }
    }

    /// Bytes came over a way just now.
    pub(super) fn note(&mut self, name: &str, bytes: u64) {
        let now_s = self.begun.elapsed().as_secs_f64();
        self.add(name, now_s, now_s, bytes);
    }

    /// What all ways have carried until now, by their names. What is new came since the time before.
    pub(super) fn count<'a>(&mut self, totals: impl Iterator<Item = (&'a str, u64)>) {
        let now_s = self.begun.elapsed().as_secs_f64();
        for (name, total) in totals {
            let before = self.totals.insert(name.to_string(), total).unwrap_or(0);
            self.add(name, self.counted_s, now_s, total.saturating_sub(before));
        }
        self.counted_s = now_s;
    }

    /// Bytes that came between two times, evenly.
    fn add(&mut self, name: &str, from_s: f64, to_s: f64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        while (to_s / self.bin_s) as usize >= MOST_BINS {
            self.bin_s *= 2.0;
            for way in &mut self.ways {
                way.bins = way.bins.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
        }
        let number = self.ways.iter().position(|way| way.name == name).unwrap_or_else(|| {
            self.ways.push(Way { name: name.into(), bins: Vec::new() });
            self.ways.len() - 1
        });
        let (first, last) = ((from_s / self.bin_s) as usize, (to_s / self.bin_s) as usize);
        let bins = &mut self.ways[number].bins;
        if bins.len() <= last {
            bins.resize(last + 1, 0.0);
        }
        for (at, bin) in (first..).zip(&mut bins[first..=last]) {
            let (low, high) = (at as f64 * self.bin_s, (at + 1) as f64 * self.bin_s);
            let share = if first == last {
                1.0
            } else {
                (high.min(to_s) - low.max(from_s)).max(0.0) / (to_s - from_s)
            };
            *bin += bytes as f64 * share;
        }
    }

    /// With other names. Those with the same are one.
    pub(super) fn renamed(mut self, name: impl Fn(&str) -> String) -> Self {
        let mut ways: Vec<Way> = Vec::new();
        for way in self.ways {
            let name = name(&way.name);
            match ways.iter_mut().find(|known| known.name == name) {
                Some(known) => {
                    if known.bins.len() < way.bins.len() {
                        known.bins.resize(way.bins.len(), 0.0);
                    }
                    known.bins.iter_mut().zip(&way.bins).for_each(|(all, bytes)| *all += bytes);
                }
                None => ways.push(Way { name, ..way }),
            }
        }
        self.ways = ways;
        self
    }

    /// With those first that carried most.
    pub(super) fn most_first(mut self) -> Self {
        let bytes = |way: &Way| way.bins.iter().sum::<f64>();
        self.ways.sort_by(|one, other| bytes(other).total_cmp(&bytes(one)));
        self
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.ways.iter().map(|way| way.name.as_str())
    }

    /// The rates from `zero` on, for so many seconds, on top of each other; none if nothing came.
    pub(super) fn chart(&self, zero: Instant, end_s: f64) -> Option<Chart> {
        // Since then, and since this began.
        let shift_s = zero.saturating_duration_since(self.begun).as_secs_f64()
            - self.begun.saturating_duration_since(zero).as_secs_f64();
        let least_s = (end_s / LEAST_POINTS).min(LEAST_POINT_S).max(end_s / MOST_POINTS as f64);
        let points = (end_s / least_s.max(self.bin_s)).floor().max(1.0);
        let point_s = end_s / points;
        let line = |way: &Way| -> Vec<(f64, f64)> {
            let middle = |point: usize| {
                let from_s = point as f64 * point_s + shift_s;
                let bytes = self.bytes_between(way, from_s, from_s + point_s);
                ((point as f64 + 0.5) * point_s, bytes * 8.0 / 1e6 / point_s)
            };
            let middles: Vec<(f64, f64)> = (0..points as usize).map(middle).collect();
            let ends =
                middles.first().zip(middles.last()).map(|(first, last)| [(0.0, first.1), (end_s, last.1)]);
            let [begin, end] = ends.unwrap_or_default();
            [begin].into_iter().chain(middles).chain([end]).collect()
        };
        let series = self.ways.iter().enumerate().map(|(colour, way)| Series {
            name: way.name.clone(),
            colour,
            points: line(way),
        });
        let is_empty =
            self.ways.is_empty() || point_s.partial_cmp(&0.0).is_none_or(std::cmp::Ordering::is_le);
        (!is_empty).then(|| Chart {
            title: "Rate over each interface".into(),
            unit: "Mbit/s".into(),
            stacked: true,
            series: series.collect(),
            ..Chart::default()
        })
    }

    /// What a way carried in a time, of bins that are partly in it a part.
    fn bytes_between(&self, way: &Way, from_s: f64, to_s: f64) -> f64 {
        let first = (from_s / self.bin_s).max(0.0) as usize;
        let bins = way.bins.iter().enumerate().skip(first);
        let within = bins.take_while(|(at, _)| (*at as f64) * self.bin_s < to_s);
        within
            .map(|(at, bytes)| {
                let (low, high) = (at as f64 * self.bin_s, (at + 1) as f64 * self.bin_s);
                bytes * ((high.min(to_s) - low.max(from_s)) / self.bin_s).max(0.0)
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Bytes under the lines.
    fn bytes(chart: &Chart, way: usize) -> f64 {
        let points = &chart.series[way].points;
        let step = points[2].0 - points[1].0;
        points[1..points.len() - 1].iter().map(|(_, rate)| rate * 1e6 / 8.0 * step).sum()
    }

    #[test]
    fn however_long_it_lasts_all_bytes_are_in_the_chart() {
        let mut rates = Rates::new();
        for second in 0..100_000_u32 {
            let at_s = f64::from(second);
            rates.add("wifi", at_s, at_s, 1_000_000);
            if second >= 50_000 {
                rates.add("lte", at_s, at_s + 1.0, 3_000_000);
            }
        }
        assert!(rates.ways.iter().all(|way| way.bins.len() <= MOST_BINS));
        let chart = rates.chart(rates.begun, 100_000.0).expect("a chart");
        assert!(chart.series.iter().all(|series| series.points.len() <= MOST_POINTS + 2));
        assert_eq!(rates.names().collect::<Vec<_>>(), ["wifi", "lte"]);
        assert_eq!(rates.clone().most_first().names().collect::<Vec<_>>(), ["lte", "wifi"]);
        for (way, expected) in [(0, 1e11), (1, 1.5e11)] {
            assert!((bytes(&chart, way) / expected - 1.0).abs() < 0.002, "{}", bytes(&chart, way));
        }
        // The first half is wifi's alone, at 8 Mbit/s.
        let at = |way: usize, point: usize| chart.series[way].points[point].1;
        assert!((at(0, 10) - 8.0).abs() < 0.2 && at(1, 10) == 0.0 && (at(1, 120) - 24.0).abs() < 0.5);
    }

    #[test]
    fn what_is_counted_came_since_the_time_before() {
        let mut rates = Rates::new();
        rates.begun -= Duration::from_secs(2);
        rates.count([("10.0.0.1", 1000), ("10.0.0.2", 0)].into_iter());
        rates.begun -= Duration::from_secs(2);
        rates.count([("10.0.0.1", 3000), ("10.0.0.3", 500)].into_iter());
        let rates = rates.renamed(|name| if name.ends_with(".1") { "wifi".into() } else { "lte".into() });
        let chart = rates.chart(rates.begun, 4.0).expect("a chart");
        assert!((bytes(&chart, 0) - 3000.0).abs() < 5.0 && (bytes(&chart, 1) - 500.0).abs() < 5.0);
        let later = rates.chart(rates.begun + Duration::from_secs(2), 2.0).expect("a chart");
        assert!((bytes(&later, 0) - 2000.0).abs() < 5.0);
        assert!(Rates::new().chart(Instant::now(), 1.0).is_none());
    }
}
