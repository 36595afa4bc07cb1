//! What was asked for of a history, and its sums and series.

use std::collections::BTreeMap;

use polypath_metrics::history::{Resolution, Row, Usage};

use crate::report::{Chart, Series};

/// What was asked for.
pub(super) struct Excerpt {
    pub(super) from_s: u64,
    pub(super) to_s: u64,
    pub(super) resolution: Resolution,
    /// Of interfaces.
    pub(super) rows: Vec<Row>,
    /// Of proxies, by their names.
    pub(super) proxies: Vec<Row>,
}

impl Excerpt {
    /// All that an interface did, and the most that it received and sent in a step.
    pub(super) fn interfaces(&self) -> BTreeMap<&str, (Usage, u64)> {
        sums(&self.rows)
    }

    pub(super) fn mbps(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.resolution.step_s() as f64 / 1e6
    }
}

/// All of each by its name, and the most of both ways in a step.
pub(super) fn sums(rows: &[Row]) -> BTreeMap<&str, (Usage, u64)> {
    let mut sums: BTreeMap<&str, (Usage, u64)> = BTreeMap::new();
    for row in rows {
        let (usage, most) = sums.entry(&row.interface).or_default();
        *usage = usage.and(row.usage);
        *most = (*most).max(row.usage.received_bytes.saturating_add(row.usage.sent_bytes));
    }
    sums
}

/// As large as it is: 1.2 GB.
pub(super) fn bytes(count: u64) -> String {
    let value = count as f64;
    let (unit, factor) = match count {
        0..1_000 => return format!("{count} B"),
        1_000..1_000_000 => ("kB", 1e3),
        1_000_000..1_000_000_000 => ("MB", 1e6),
        _ => ("GB", 1e9),
    };
    format!("{:.1} {unit}", value / factor)
}

/// Points of a chart: more can't be told apart.
const MOST_POINTS: u64 = 480;

pub(super) fn chart((title, unit, stacked): (&str, &str, bool), series: Vec<Series>) -> Chart {
    Chart { title: title.into(), unit: unit.into(), stacked, series, ..Chart::default() }
}

/// What was carried in each point of a chart, by name.
pub(super) struct Points<'a> {
    names: Vec<&'a str>,
    point_s: u64,
    count: u64,
    usages: BTreeMap<(&'a str, u64), Usage>,
}

impl<'a> Points<'a> {
    pub(super) fn of(excerpt: &Excerpt, rows: &'a [Row], names: &[&'a str]) -> Self {
        let span_s = excerpt.to_s.saturating_sub(excerpt.from_s).max(1);
        // Whole steps in a point.
        let point_s = span_s.div_ceil(MOST_POINTS).next_multiple_of(excerpt.resolution.step_s());
        let mut usages: BTreeMap<(&str, u64), Usage> = BTreeMap::new();
        for row in rows {
            let place = row.at_s.saturating_sub(excerpt.from_s) / point_s;
            let usage = usages.entry((row.interface.as_str(), place)).or_default();
            *usage = usage.and(row.usage);
        }
        Self { names: names.to_vec(), point_s, count: span_s / point_s, usages }
    }

    pub(super) fn mbps(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.point_s as f64 / 1e6
    }

    /// A line for each name.
    pub(super) fn lines(&self, of: &dyn Fn(Option<&Usage>) -> Option<f64>) -> Vec<Series> {
        let hours = |place: u64| (place * self.point_s) as f64 / 3600.0;
        let series = self.names.iter().enumerate().map(|(colour, name)| Series {
            name: (*name).to_string(),
            colour,
            points: (0..self.count)
                .filter_map(|place| Some((hours(place), of(self.usages.get(&(*name, place)))?)))
                .collect(),
        });
        series.collect()
    }
}
