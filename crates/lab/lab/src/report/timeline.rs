//! Rates and windows over time.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::figure::{self, Line};
use super::markup::{colour, escape};
use crate::experiment::{Experiment, RunKey, Topology, Traffic};
use crate::run::{Outcome, Quantity, Series};

/// The figures of the first repeat: rates by set, point and variant, and windows by set, point and path.
pub(super) fn write(
    page: &mut String,
    experiment: &Experiment,
    runs: &BTreeMap<RunKey, Outcome>,
) -> std::fmt::Result {
    write_rates(page, experiment, runs)?;
    write_windows(page, experiment, runs)
}

fn write_rates(
    page: &mut String,
    experiment: &Experiment,
    runs: &BTreeMap<RunKey, Outcome>,
) -> std::fmt::Result {
    let is_stream = matches!(experiment.traffic, Traffic::Datagrams(_));
    let timeline = match &experiment.topology {
        Topology::Shared(timeline) => Some(timeline),
        _ if is_stream => None,
        _ => return Ok(()),
    };
    for (key, outcome) in runs.iter().filter(|(key, _)| key.repeat == 0) {
        let name = |series: &Series| {
            let flow = timeline.map(|timeline| &timeline.flows[series.flow]);
            match (flow, series.path) {
                (None, None) => "all paths".to_string(),
                (None, Some(path)) => format!("path {}", path + 1),
                (Some(flow), None) => flow.name.clone(),
                (Some(flow), Some(path)) => {
                    format!("{}, address {} on path {}", flow.name, path + 1, flow.paths[path] + 1)
                }
            }
        };
        let shown = outcome.series.iter().map(|series| (name(series), series)).enumerate();
        let title = title(experiment, *key, Some(&experiment.variants[key.variant].name));
        write_figure(
            page,
            &title,
            "Mbit/s",
            shown.map(|(index, (name, series))| (index, name, series)),
            1e6,
        )?;
    }
    Ok(())
}

/// The windows of all variants on one path, to see them beside each other.
fn write_windows(
    page: &mut String,
    experiment: &Experiment,
    runs: &BTreeMap<RunKey, Outcome>,
) -> std::fmt::Result {
    for (key, outcome) in runs.iter().filter(|(key, _)| key.repeat == 0 && key.variant == 0) {
        let paths = outcome.series.iter().filter(|series| series.quantity == Quantity::Window);
        for path in paths.map(|series| series.path) {
            let of_variant = |variant: usize| {
                let all = &runs.get(&RunKey { variant, ..*key })?.series;
                all.iter().find(|series| (series.quantity, series.path) == (Quantity::Window, path))
            };
            let variants = experiment.variants.iter().enumerate();
            let shown = variants.filter_map(|(index, variant)| {
                of_variant(index)
                    .filter(|series| series.values.iter().any(|bytes| *bytes > 0.0))
                    .map(|series| (index, variant.name.clone(), series))
            });
            let name = format!("Congestion window on path {}", path.unwrap_or(0) + 1);
            write_figure(page, &title(experiment, *key, Some(&name)), "KB", shown, 1e3)?;
        }
    }
    Ok(())
}

fn title(experiment: &Experiment, key: RunKey, first: Option<&str>) -> String {
    let (set, point) = (&experiment.sets[key.set].name, &experiment.points[key.point].label);
    let parts = first.into_iter().chain([set.as_str(), point.as_str()]);
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).map(escape).collect();
    parts.join(", ")
}

/// Each series with its colour and its name; values are divided by `scale`.
fn write_figure<'a>(
    page: &mut String,
    title: &str,
    unit: &str,
    shown: impl Iterator<Item = (usize, String, &'a Series)>,
    scale: f64,
) -> std::fmt::Result {
    let mut legend = String::new();
    let mut lines = Vec::new();
    for (index, name, series) in shown {
        let (shade, name) = (colour(index), escape(&name));
        write!(legend, "<span><i style=\"background:var({shade})\"></i>{name}</span>")?;
        let interval = series.quantity.interval();
        let points = (1..).zip(&series.values);
        let points = points.map(|(place, value)| ((interval * place).as_secs_f64(), value / scale));
        lines.push(Line { colour: index, points: points.collect() });
    }
    writeln!(
        page,
        "<section><h2>{title} <small>{unit}</small></h2><div class=\"legend\">{legend}</div><figure>{}</figure></section>",
        figure::lines(&lines, "seconds", unit, None)
    )
}
