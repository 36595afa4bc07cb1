//! The charts of a report.

use super::words::pause;
use super::{Cut, Outcome, Sample, Shown};
use crate::report::{Chart, Label, Series};

/// Rates are means over so many samples.
const WINDOW: usize = 2;

/// Two moments are the same if they are as near as this: the wall clock is not exact.
const SAME_S: f64 = 0.005;

/// What is seen first: how fast it went, and how much of the file is there.
pub(super) fn pictures(shown: &Shown<'_>) -> Vec<Chart> {
    vec![speed(shown), arrival(shown)]
}

/// What the sender knows of each path.
pub(super) fn details(shown: &Shown<'_>) -> Vec<Chart> {
    let per_path = |title: &str, unit: &str, value: fn(&super::PathSample) -> f64| {
        let line = |(path, name): (usize, &str)| Series {
            name: name.to_string(),
            colour: path,
            points: lines(&shown.outcome.samples, shown.cut(), path, |after| {
                let value = value(&after.paths[path]);
                if value > 0.0 { value } else { f64::NAN }
            }),
        };
        Chart {
            title: title.into(),
            unit: unit.into(),
            series: shown.names().into_iter().enumerate().map(line).collect(),
            ..Chart::default()
        }
    };
    vec![
        per_path("Congestion window", "kB", |path| path.cwnd_bytes as f64 / 1e3),
        per_path("Smoothed round-trip time", "ms", |path| path.srtt_ms),
    ]
}

fn tcp(shown: &Shown<'_>) -> String {
    format!("TCP over {} alone", shown.best())
}

fn speed(shown: &Shown<'_>) -> Chart {
    let of_path = |(path, name): (usize, &str)| Series {
        name: format!("Multipath TCP over {name}"),
        colour: path,
        points: rates(shown.outcome, shown.cut(), path),
    };
    let mut series: Vec<Series> = shown.names().into_iter().enumerate().map(of_path).collect();
    let beside = &shown.beside.outcome;
    let cut = shown.cut().filter(|cut| cut.path == shown.beside.path).map(|cut| Cut { path: 0, ..cut });
    series.push(Series { name: tcp(shown), colour: Series::PEER, points: rates(beside, cut, 0) });
    let millis = super::SAMPLE_INTERVAL.as_millis_f64() * WINDOW as f64;
    Chart {
        title: "Speed".into(),
        unit: "Mbit/s".into(),
        stacked: true,
        series,
        note: format!(
            "What each link carries, mean of {millis:.0} ms. A gap: the path is down. A line at zero: the path is up, and \
             nothing comes over it."
        ),
        ..Chart::default()
    }
}

fn arrival(shown: &Shown<'_>) -> Chart {
    let line = |name: String, colour, outcome: &Outcome| {
        let samples = outcome.samples.iter().map(|sample| (sample.at_s, sample.received_bytes));
        let points = samples.filter(|(at_s, _)| *at_s <= outcome.duration_s);
        let points = points.chain([(outcome.duration_s, outcome.received_bytes)]);
        Series { name, colour, points: points.map(|(at_s, bytes)| (at_s, bytes as f64 / 1e6)).collect() }
    };
    let beside = &shown.beside.outcome;
    let at_s = beside.longest_gap_from_s + beside.longest_gap_s / 2.0;
    let before = beside.samples.iter().take_while(|sample| sample.at_s <= at_s).last();
    let label =
        before.filter(|_| shown.cut().is_some_and(|cut| cut.path == shown.beside.path)).map(|sample| Label {
            at_s,
            value: sample.received_bytes as f64 / 1e6,
            text: format!("TCP {}", pause(beside.longest_gap_s)),
            colour: Series::PEER,
        });
    Chart {
        title: "How much of the file is there".into(),
        unit: "MB".into(),
        series: vec![
            line(format!("Multipath TCP over {}", super::words::list(&shown.names())), Series::TOTAL, shown.outcome),
            line(tcp(shown), Series::PEER, beside),
        ],
        labels: label.into_iter().collect(),
        note: "What follows a lost piece waits for it, and reaches the program at once when that has come: a step.".into(),
        ..Chart::default()
    }
}

/// What the link of a path carried, in Mbit/s.
fn rates(outcome: &Outcome, cut: Option<Cut>, path: usize) -> Vec<(f64, f64)> {
    let mut window: Vec<&Sample> = Vec::new();
    let mut points = Vec::new();
    // The last window would have less to show than it has time.
    for after in outcome.samples.iter().filter(|sample| sample.at_s <= outcome.duration_s) {
        if window.last().is_some_and(|before| is_down(cut, path, before.at_s, after.at_s)) {
            points.push((after.at_s, f64::NAN));
            window.clear();
        } else if let Some(before) = window.first() {
            let bytes = after.paths[path].carried_bytes.saturating_sub(before.paths[path].carried_bytes);
            points.push((after.at_s, bytes as f64 * 8.0 / 1e6 / (after.at_s - before.at_s).max(1e-9)));
        }
        window.push(after);
        if window.len() > WINDOW {
            window.remove(0);
        }
    }
    points
}

/// A value of a path at each sample, with gaps where it is down.
fn lines(
    samples: &[Sample],
    cut: Option<Cut>,
    path: usize,
    value: impl Fn(&Sample) -> f64,
) -> Vec<(f64, f64)> {
    let pairs = samples.iter().zip(samples.iter().skip(1));
    let point = |(before, after): (&Sample, &Sample)| {
        let down = is_down(cut, path, before.at_s, after.at_s);
        (after.at_s, if down { f64::NAN } else { value(after) })
    };
    pairs.map(point).collect()
}

/// The path is down at some time between the two.
fn is_down(cut: Option<Cut>, path: usize, from_s: f64, to_s: f64) -> bool {
    cut.is_some_and(|cut| {
        let (down_s, up_s) = (cut.from.as_secs_f64(), cut.to.as_secs_f64());
        cut.path == path && to_s > down_s + SAME_S && from_s < up_s - SAME_S
    })
}

#[cfg(test)]
mod tests {
    use polypath_units::Duration;

    use super::*;
    use crate::demo::PathSample;

    #[test]
    fn rates_have_gaps_where_a_path_is_down_and_no_window_reaches_into_them() {
        let samples = (0..=8u64)
            .map(|tenth| Sample {
                at_s: tenth as f64 / 10.0,
                // 1 MB in each tenth of a second but for the fourth and the fifth.
                paths: vec![PathSample {
                    carried_bytes: 1_000_000 * (tenth + 3 - tenth.clamp(3, 5)),
                    ..PathSample::default()
                }],
                ..Sample::default()
            })
            .collect();
        let cut = Cut { path: 0, from: Duration::from_millis(300), to: Duration::from_millis(500) };
        let outcome = Outcome { samples, duration_s: 0.85, ..Outcome::default() };
        let rates = rates(&outcome, Some(cut), 0);
        let of = |range: std::ops::Range<usize>| {
            rates[range].iter().map(|point| point.1.round()).collect::<Vec<_>>()
        };
        assert_eq!((of(0..3), of(5..8)), (vec![80.0; 3], vec![80.0; 3]), "{rates:?}");
        assert!(of(3..5).iter().all(|rate| rate.is_nan()), "{rates:?}");
    }
}
