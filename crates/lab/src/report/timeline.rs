//! Rates over time, of experiments with a timeline.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::figure::{self, Line};
use super::html::{colour, escape};
use crate::experiment::{Experiment, RunKey, Topology};
use crate::run::{Outcome, Series};

/// A figure for each set, point and variant, of the first repeat.
pub(super) fn write(
    page: &mut String,
    experiment: &Experiment,
    runs: &BTreeMap<RunKey, Outcome>,
) -> std::fmt::Result {
    let Topology::Shared(timeline) = &experiment.topology else { return Ok(()) };
    for (key, outcome) in runs.iter().filter(|(key, _)| key.repeat == 0) {
        let name = |series: &Series| {
            let flow = &timeline.flows[series.flow];
            match series.path {
                None => flow.name.clone(),
                Some(path) => format!("{}, address {} on path {}", flow.name, path + 1, flow.paths[path] + 1),
            }
        };
        let mut legend = String::new();
        for (index, series) in outcome.series.iter().enumerate() {
            let (shade, name) = (colour(index), escape(&name(series)));
            write!(legend, "<span><i style=\"background:var({shade})\"></i>{name}</span>")?;
        }
        let lines: Vec<Line> = outcome
            .series
            .iter()
            .enumerate()
            .map(|(index, series)| Line {
                colour: index,
                points: (1..)
                    .zip(&series.bps)
                    .map(|(place, bps)| ((Series::INTERVAL * place).as_secs_f64(), bps / 1e6))
                    .collect(),
            })
            .collect();
        let set = &experiment.sets[key.set].name;
        let parts = [&experiment.variants[key.variant].name, set, &experiment.points[key.point].label];
        let parts: Vec<String> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| escape(part)).collect();
        writeln!(
            page,
            "<section><h2>{} <small>Mbit/s</small></h2><div class=\"legend\">{legend}</div><figure>{}</figure></section>",
            parts.join(", "),
            figure::lines(&lines, "seconds", "Mbit/s", None)
        )?;
    }
    Ok(())
}
