//! The page around the figures.

use std::fmt::Write;

use super::figure::{self, Line, PALETTE, PALETTE_DARK, Sample};
use super::markup::{colour, escape};
use super::{demand, number, timeline};
use crate::analysis::{Analysis, Finding};
use crate::experiment::{Experiment, Metric, Origin};
use crate::result::{Manifest, Results};

const STYLE: &str = "
:root { color-scheme: light dark; --text: #1c2026; --dim: #667080; --line: #dde1e7; --page: #f6f7f9; --card: #fff; --good: #1b7f4b; --alarm: #c22f2f; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e9ee; --dim: #9aa4b2; --line: #343a44; --page: #14171c; --card: #1d2128; --good: #5fd39a; --alarm: #ff8a80; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 36px 24px 60px; }
h1 { font-size: 27px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -.01em; }
h2 { font-size: 16px; margin: 0 0 10px; }
h2 small { color: var(--dim); font-weight: 400; margin-left: 6px; }
p.summary { color: var(--dim); margin: 0 0 24px; max-width: 90ch; text-wrap: pretty; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; margin: 0 0 18px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.words { text-align: left; white-space: normal; }
th.words { text-align: left; }
th { color: var(--dim); font-weight: 500; font-size: 13px; }
tr:last-child td { border-bottom: 0; }
td.good { color: var(--good); } td.bad { color: var(--alarm); }
td small { display: block; color: var(--dim); }
p.command { margin: 0; overflow-wrap: anywhere; }
.note { color: var(--dim); font-size: 13px; margin: 8px 0 0; }
figure { margin: 0; overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 620px; height: auto; }
figure svg [stroke='#E4E7EC'], figure svg [stroke='#BEC3CB'] { stroke: var(--line); }
figure svg [fill='#6E747E'] { fill: var(--dim); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--dim); margin: 0 0 4px; }
.legend i { display: inline-block; width: 18px; height: 4px; border-radius: 2px; vertical-align: middle; margin-right: 7px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 22px; margin: 0; font-size: 14px; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
";

/// Distributions of more points than this are shown as lines only.
const MOST_FIGURES: usize = 8;
/// So many sets are told in full.
const MOST_NAMED_SETS: usize = 8;
/// Named for each variant.
const WORST_SETS: usize = 3;

pub(super) fn page(results: &Results, analysis: &Analysis<'_>) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut page, results, analysis);
    page
}

fn write_page(page: &mut String, results: &Results, analysis: &Analysis<'_>) -> std::fmt::Result {
    let Results { manifest, runs, .. } = results;
    let finished = runs.len();
    let experiment = analysis.experiment();
    let title = escape(&experiment.title);
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style>{STYLE}{}</style></head><body><main>\n<h1>{title}</h1>\n\
         <p class=\"summary\">{}</p>\n",
        palette(),
        escape(&experiment.description)
    )?;
    if finished < manifest.runs {
        writeln!(page, "<p class=\"summary\">Not complete: {finished} of {} runs.</p>", manifest.runs)?;
    }
    write_findings(page, analysis)?;
    timeline::write(page, experiment, runs)?;
    for (index, metric) in experiment.metrics.iter().enumerate() {
        write_figures(page, analysis, index, metric)?;
        write_distributions(page, analysis, index, metric)?;
    }
    write_effects(page, analysis)?;
    write_worst(page, analysis)?;
    write_replay(page, results, analysis)?;
    write_parameters(page, manifest, experiment)?;
    page.push_str("</main></body></html>\n");
    Ok(())
}

/// The tables of what the document found, and of what is expected here.
fn write_findings(page: &mut String, analysis: &Analysis<'_>) -> std::fmt::Result {
    let (published, expected): (Vec<_>, Vec<_>) =
        analysis.findings().into_iter().partition(|finding| finding.claim.is_published());
    write_claims(page, ["Published and measured", "the document", "source"], &published)?;
    write_claims(page, ["Expected here", "expected", "reason"], &expected)
}

fn write_claims(
    page: &mut String,
    [title, what, origin]: [&str; 3],
    findings: &[Finding<'_>],
) -> std::fmt::Result {
    if findings.is_empty() {
        return Ok(());
    }
    let has_values = findings.iter().any(|finding| finding.claim.value.is_some());
    let value = if has_values { "<th>value</th>" } else { "" };
    write!(
        page,
        "<section><h2>{title}</h2><table><thead><tr><th>{what}</th><th class=\"words\">{origin}</th>{value}\
         <th class=\"words\">measured here</th><th>value</th><th>wanted</th></tr></thead><tbody>"
    )?;
    for finding in findings {
        let claim = finding.claim;
        let mark = match finding.holds {
            Some(true) => " class=\"good\"",
            Some(false) => " class=\"bad\"",
            None => "",
        };
        let remark = match claim.remark.as_str() {
            "" => String::new(),
            remark => format!("<small>{}</small>", escape(remark)),
        };
        let what = match finding.variant {
            "" => String::new(),
            variant => format!("{}, {}", escape(&finding.measure), escape(variant)),
        };
        let (Origin::Published { source: origin } | Origin::Expected { reason: origin }) = &claim.origin;
        let value = match has_values {
            true => format!("<td>{}</td>", claim.value.map(number).unwrap_or_default()),
            false => String::new(),
        };
        write!(
            page,
            "<tr><td class=\"words\">{}{remark}</td><td class=\"words\">{}</td>{value}<td class=\"words\">{what}</td>\
             <td{mark}>{}</td><td>{}</td></tr>",
            escape(&claim.text),
            escape(origin),
            finding.measured.map(number).unwrap_or_default(),
            demand(claim).unwrap_or_default(),
        )?;
    }
    page.push_str("</tbody></table></section>\n");
    Ok(())
}

fn axis(metric: &Metric) -> String {
    if metric.unit.is_empty() {
        metric.title.to_string()
    } else {
        format!("{} ({})", metric.title, metric.unit)
    }
}

/// The heading of a metric's table.
fn heading(metric: &Metric) -> String {
    format!("{} <small>{}</small>", escape(&axis(metric)), metric.better)
}

fn write_figures(
    page: &mut String,
    analysis: &Analysis<'_>,
    index: usize,
    metric: &Metric,
) -> std::fmt::Result {
    let experiment = analysis.experiment();
    let legend = legend(experiment);
    let axis = axis(metric);
    let one_set = experiment.sets.len() < 5;
    let title = escape(metric.title);
    if experiment.points.len() > 1 {
        for (set, name) in
            one_set.then_some(&experiment.sets).into_iter().flatten().map(|set| &set.name).enumerate()
        {
            let value = |variant, point: usize| analysis.sets(index, variant, point)[set];
            let svg = sweep_figure(experiment, &axis, &value);
            writeln!(
                page,
                "<section><h2>{title} <small>{}</small></h2>{legend}<figure>{svg}</figure></section>",
                escape(name)
            )?;
        }
        if !one_set {
            let value = |variant, point: usize| {
                analysis.distribution(index, variant, point).map_or(f64::NAN, |all| all.median)
            };
            let svg = sweep_figure(experiment, &axis, &value);
            writeln!(
                page,
                "<section><h2>{title} <small>median of {} sets</small></h2>{legend}<figure>{svg}</figure></section>",
                experiment.sets.len()
            )?;
        }
    }
    // The first metric is what the experiment is about; the others stand in the tables.
    if one_set || index > 0 || experiment.points.len() > MOST_FIGURES {
        return Ok(());
    }
    for (point, sweep) in experiment.points.iter().enumerate() {
        let samples: Vec<Sample<'_>> = experiment
            .variants
            .iter()
            .enumerate()
            .map(|(colour, variant)| Sample {
                name: &variant.name,
                colour,
                values: analysis.sets(index, colour, point).to_vec(),
            })
            .filter(|sample| sample.values.iter().any(|value| !value.is_nan()))
            .collect();
        writeln!(
            page,
            "<section><h2>{title} <small>{} {} sets</small></h2>{legend}<figure>{}</figure><figure>{}</figure>\
             <p class=\"note\">Above: which share of the sets has at most so much. Below: median, middle half, 5th and \
             95th percentiles, and the extremes.</p></section>",
            escape(&sweep.label),
            experiment.sets.len(),
            figure::cumulative(&samples, &axis),
            figure::boxes(&samples, &axis),
        )?;
    }
    Ok(())
}

fn sweep_figure(experiment: &Experiment, axis: &str, value: &dyn Fn(usize, usize) -> f64) -> String {
    let points = &experiment.points;
    // Bytes on an axis of their own if they are one even sweep; else one place after the other.
    let values: Option<Vec<f64>> = points.iter().map(|point| point.value).collect();
    let even =
        values.filter(|values| values.windows(2).all(|pair| pair[1] > pair[0] && pair[1] < 3.0 * pair[0]));
    let names: Vec<String> = points.iter().map(|point| point.label.clone()).collect();
    let places: Vec<f64> = match &even {
        Some(values) if values[0] >= 1000.0 => values.iter().map(|bytes| bytes / 1e3).collect(),
        _ => (0..points.len()).map(|place| place as f64).collect(),
    };
    let on_axis = even.is_some_and(|values| values[0] >= 1000.0);
    let lines: Vec<Line> = (0..experiment.variants.len())
        .map(|variant| Line {
            colour: variant,
            points: (0..points.len())
                .map(|point| (places[point], value(variant, point)))
                .filter(|(_, value)| value.is_finite())
                .collect(),
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    if on_axis {
        figure::lines(&lines, "KB", axis, None)
    } else {
        figure::lines(&lines, "", axis, Some(&names))
    }
}

fn legend(experiment: &Experiment) -> String {
    let entries = experiment.variants.iter().enumerate().map(|(index, variant)| {
        format!("<span><i style=\"background:var({})\"></i>{}</span>", colour(index), escape(&variant.name))
    });
    format!("<div class=\"legend\">{}</div>", entries.collect::<String>())
}

fn write_distributions(
    page: &mut String,
    analysis: &Analysis<'_>,
    index: usize,
    metric: &Metric,
) -> std::fmt::Result {
    let experiment = analysis.experiment();
    if experiment.sets.len() == 1 {
        return write_values(page, analysis, index, metric);
    }
    let has_points = experiment.points.len() > 1;
    let rows: Vec<_> =
        analysis.rows().into_iter().filter(|row| row.metric == experiment.metrics[index].name).collect();
    write!(page, "<section><h2>{}</h2><table><thead><tr><th></th>", heading(metric))?;
    if has_points {
        page.push_str("<th></th>");
    }
    for name in ["sets", "min", "1 %", "5 %", "25 %", "median", "75 %", "95 %", "99 %", "max", "mean"] {
        write!(page, "<th>{name}</th>")?;
    }
    page.push_str("</tr></thead><tbody>");
    for row in &rows {
        write!(page, "<tr><td>{}</td>", escape(&row.variant))?;
        if has_points {
            write!(page, "<td>{}</td>", escape(&row.point))?;
        }
        let all = &row.distribution;
        write!(page, "<td>{}</td>", all.count)?;
        for value in
            [all.min, all.p1, all.p5, all.p25, all.median, all.p75, all.p95, all.p99, all.max, all.mean]
        {
            write!(page, "<td>{}</td>", number(value))?;
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></section>\n");
    if rows.iter().any(|row| row.sensitivity.is_some()) {
        write!(
            page,
            "<section><h2>Sensitivity <small>standard deviation of the percentiles over {} designs</small></h2>\
             <table><thead><tr><th></th><th></th><th>5 %</th><th>25 %</th><th>median</th><th>75 %</th><th>95 %</th>\
             </tr></thead><tbody>",
            experiment.design_count()
        )?;
        for row in &rows {
            let Some(spread) = row.sensitivity else { continue };
            write!(page, "<tr><td>{}</td><td>{}</td>", escape(&row.variant), escape(&row.point))?;
            for value in spread {
                write!(page, "<td>{value:.4}</td>")?;
            }
            page.push_str("</tr>");
        }
        page.push_str("</tbody></table></section>\n");
    }
    Ok(())
}

/// The values of the only set: a row for each point of the sweep, a column for each variant.
fn write_values(
    page: &mut String,
    analysis: &Analysis<'_>,
    index: usize,
    metric: &Metric,
) -> std::fmt::Result {
    let experiment = analysis.experiment();
    write!(page, "<section><h2>{}</h2><table><thead><tr><th></th>", heading(metric))?;
    for variant in &experiment.variants {
        write!(page, "<th>{}</th>", escape(&variant.name))?;
    }
    page.push_str("</tr></thead><tbody>");
    for (point, sweep) in experiment.points.iter().enumerate() {
        let name = if sweep.label.is_empty() { &experiment.sets[0].name } else { &sweep.label };
        write!(page, "<tr><td>{}</td>", escape(name))?;
        for variant in 0..experiment.variants.len() {
            write!(page, "<td>{}</td>", number(analysis.sets(index, variant, point)[0]))?;
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></section>\n");
    Ok(())
}

/// What the sets at each level of a parameter have on average.
fn write_effects(page: &mut String, analysis: &Analysis<'_>) -> std::fmt::Result {
    let effects = analysis.effects();
    let metric = &analysis.experiment().metrics[0];
    for of_parameter in effects.chunk_by(|one, other| one.parameter == other.parameter) {
        write!(
            page,
            "<section><h2>{} <small>mean of {}, and the interval of 95 %</small></h2><table><thead><tr><th></th>\
             <th class=\"words\">variant</th><th>sets</th><th>mean</th><th>±</th></tr></thead><tbody>",
            escape(&of_parameter[0].parameter),
            escape(metric.title)
        )?;
        for effect in of_parameter {
            let separator = if effect.point.is_empty() { "" } else { ", " };
            write!(
                page,
                "<tr><td>{}</td><td class=\"words\">{}{separator}{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(&effect.level),
                escape(&effect.variant),
                escape(&effect.point),
                effect.sets,
                number(effect.mean),
                number(effect.error)
            )?;
        }
        page.push_str("</tbody></table></section>\n");
    }
    Ok(())
}

/// In which sets each variant does worst by the first metric.
fn write_worst(page: &mut String, analysis: &Analysis<'_>) -> std::fmt::Result {
    let experiment = analysis.experiment();
    if experiment.sets.len() <= WORST_SETS {
        return Ok(());
    }
    let metric = &experiment.metrics[0];
    let worst = analysis.worst_sets(WORST_SETS);
    write!(
        page,
        "<section><h2>Worst sets <small>{}, {}</small></h2><table><thead><tr><th></th><th>set</th><th>value</th>\
         <th class=\"words\">rate, round-trip time and queue of each path</th><th class=\"words\">run</th></tr></thead><tbody>",
        escape(&axis(metric)),
        metric.better
    )?;
    for set in worst.iter().filter(|set| set.metric == metric.name) {
        let point = if set.point.is_empty() { String::new() } else { format!(", {}", escape(&set.point)) };
        write!(
            page,
            "<tr><td>{}{point}</td><td>{}</td><td>{}</td><td class=\"words\">{}</td><td class=\"words\">{}</td></tr>",
            escape(&set.variant),
            escape(&set.set),
            number(set.value),
            escape(&set.paths),
            escape(&set.run)
        )?;
    }
    page.push_str("</tbody></table></section>\n");
    Ok(())
}

/// How a run is played again.
fn write_replay(page: &mut String, results: &Results, analysis: &Analysis<'_>) -> std::fmt::Result {
    let worst = analysis.worst_sets(1);
    let Some(command) = results.replay(worst.first().map(|set| set.run.as_str())) else { return Ok(()) };
    let names = match results.experiment.points.len() {
        1 => "set/variant/repeat",
        _ => "set/value of the sweep/variant/repeat",
    };
    writeln!(
        page,
        "<section><h2>One run again</h2><p class=\"command\"><code>{}</code></p><p class=\"note\">In the simulator, with its \
         packets (pcapng), events (qlog) and a report of its own. Runs are called {names}; the column <code>run</code> of \
         runs.parquet has all names.</p></section>",
        escape(&command)
    )
}

fn write_parameters(page: &mut String, manifest: &Manifest, experiment: &Experiment) -> std::fmt::Result {
    page.push_str("<section><h2>Experiment</h2><dl>");
    let designs = experiment.design_count();
    let sets = match designs {
        0 | 1 => experiment.sets.len().to_string(),
        _ => format!("{} in {designs} designs", experiment.sets.len()),
    };
    // A sweep may change it.
    let mut traffic: Vec<String> =
        (0..experiment.points.len()).map(|point| experiment.traffic_at(point).to_string()).collect();
    traffic.dedup();
    let mut parameters = vec![
        ("Figure", experiment.figure.clone()),
        ("Document", experiment.document.clone()),
        ("Form", manifest.form.name().to_string()),
        ("Traffic", traffic.join("; ")),
        ("Sets", sets),
    ];
    parameters.extend(experiment.factors.iter().chain(&experiment.parameters).cloned());
    if experiment.factors.is_empty() && experiment.sets.len() <= MOST_NAMED_SETS {
        parameters
            .extend(experiment.sets.iter().map(|set| ("Set", format!("{}: {}", set.name, set.words()))));
    }
    if experiment.points.len() > 1 {
        let labels: Vec<&str> = experiment.points.iter().map(|point| point.label.as_str()).collect();
        parameters.push(("Sweep", labels.join("; ")));
    }
    parameters.extend([
        ("Repeats", experiment.repeats.to_string()),
        ("Runs", manifest.runs.to_string()),
        ("Time", format!("{:.1} s", manifest.wall_s)),
        ("Polypath", manifest.build.clone()),
        ("Identity", manifest.identity.clone()),
    ]);
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        write!(page, "<dt>{name}</dt><dd>{}</dd>", escape(value))?;
    }
    page.push_str("</dl></section>\n");
    Ok(())
}

/// The colours of the lines: figures are drawn in those of the light page, and the page gives each its own shade.
fn palette() -> String {
    let hex = |(red, green, blue): (u8, u8, u8)| format!("#{red:02X}{green:02X}{blue:02X}");
    let set = |shades: &[(u8, u8, u8)]| -> String {
        shades
            .iter()
            .enumerate()
            .map(|(index, shade)| format!("{}: {}; ", colour(index), hex(*shade)))
            .collect()
    };
    let mut style = format!(
        ":root {{ {}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {}}} }}\n",
        set(&PALETTE),
        set(&PALETTE_DARK)
    );
    for (index, drawn) in PALETTE.into_iter().map(hex).enumerate() {
        let shade = colour(index);
        style += &format!(
            "figure svg [stroke='{drawn}'] {{ stroke: var({shade}); }} figure svg [fill='{drawn}'] {{ fill: var({shade}); }}\n"
        );
    }
    style
}
