//! `polypath lab show`: results in the terminal.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use polypath_config::Policies;
use polypath_lab::analysis::{Analysis, Effect, Finding, Row, WorstSet};
use polypath_lab::experiment::Origin;
use polypath_lab::report;
use polypath_lab::result::{Manifest, Results};
use polypath_units::Duration;
use serde::Serialize;

use super::folder::find;
use crate::command::{Failure, complain, print_json, print_line, write_file};

#[derive(Args, Debug)]
pub(in crate::command) struct Arguments {
    /// A folder of results, or how its name begins, here or in results: low-bdp
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Name the N worst sets of each variant, by each metric
    #[arg(long, value_name = "N", default_value_t = 0)]
    worst: usize,
}

#[derive(Serialize)]
struct Json<'a> {
    folder: &'a Path,
    manifest: &'a Manifest,
    findings: Vec<Finding<'a>>,
    rows: Vec<FullRow<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    effects: Vec<Effect>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    worst: Vec<WorstSet>,
}

/// A row with all that has to be known to read it alone.
#[derive(Serialize)]
struct FullRow<'a> {
    experiment: &'a str,
    form: &'static str,
    build: &'a str,
    duration_s: Option<f64>,
    #[serde(flatten)]
    row: Row,
}

impl<'a> FullRow<'a> {
    fn all(results: &'a Results, rows: Vec<Row>) -> Vec<Self> {
        let Results { manifest, experiment, .. } = results;
        let full = |row| Self {
            experiment: &manifest.name,
            form: manifest.form.name(),
            build: &manifest.build,
            duration_s: experiment.traffic.duration().map(Duration::as_secs_f64),
            row,
        };
        rows.into_iter().map(full).collect()
    }
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    show(policies, &find(&arguments.dir)?, arguments.json, arguments.worst, false)
}

/// Shows the results in a folder and writes their report.
pub(super) fn show(
    policies: &Policies,
    dir: &Path,
    json: bool,
    worst: usize,
    quiet: bool,
) -> Result<(), Failure> {
    let results = Results::load(dir, policies).map_err(Failure::input)?;
    let analysis = Analysis::new(&results.experiment, &results.runs);
    let page = dir.join("report.html");
    write_file(&page, report::render(&results))?;
    let worst = analysis.worst_sets(worst);
    let worst_run = worst.first().map(|set| set.run.clone());
    if json {
        let rows = FullRow::all(&results, analysis.rows());
        let (findings, effects) = (analysis.findings(), analysis.effects());
        let manifest = &results.manifest;
        return print_json(&Json { folder: dir, manifest, findings, rows, effects, worst });
    }
    print_line(&text(&results, &analysis))?;
    if !worst.is_empty() {
        print_line(&worst_text(&worst))?;
    }
    if !quiet {
        if let Some(command) = results.replay(worst_run.as_deref()) {
            print_line(&format!("\nOne run again, with its packets:\n  {command}"))?;
        }
        complain(&format!("report in {}", page.display()));
    }
    Ok(())
}

fn text(results: &Results, analysis: &Analysis<'_>) -> String {
    let Manifest { title, form, runs, wall_s, complete, .. } = &results.manifest;
    // The time of what was interrupted is not known.
    let time = if *complete { format!("{wall_s:.1} s") } else { "not complete".into() };
    let mut text = format!("{title} ({}, {} of {runs} runs, {time})\n", form.name(), results.runs.len());
    let rows = analysis.rows();
    for metric in &results.experiment.metrics {
        let of_metric: Vec<&Row> = rows.iter().filter(|row| row.metric == metric.name).collect();
        let unit = if metric.unit.is_empty() { String::new() } else { format!(" ({})", metric.unit) };
        let label = |row: &Row| match row.point.is_empty() {
            true => row.variant.clone(),
            false => format!("{}, {}", row.point, row.variant),
        };
        let width = of_metric.iter().map(|row| label(row).chars().count()).max().unwrap_or(0).max(12);
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}{unit}, {}\n  {:width$}", metric.title, metric.better, "");
        for name in ["min", "p5", "p25", "median", "p75", "p95", "max"] {
            let _ = write!(text, "{name:>10}");
        }
        text.push('\n');
        for row in of_metric {
            let _ = write!(text, "  {:width$}", label(row));
            let [p5, p25, median, p75, p95] = row.distribution.five();
            for value in [row.distribution.min, p5, p25, median, p75, p95, row.distribution.max] {
                let _ = write!(text, "{:>10}", report::number(value));
            }
            text.push('\n');
        }
    }
    add_effects(&mut text, &analysis.effects());
    let (published, expected): (Vec<_>, Vec<_>) =
        analysis.findings().into_iter().partition(|finding| finding.claim.is_published());
    add_findings(&mut text, "Published and measured", &published);
    add_findings(&mut text, "Expected here", &expected);
    text.trim_end().to_string()
}

/// What the sets at each level of a parameter have on average, by the first metric.
fn add_effects(text: &mut String, effects: &[Effect]) {
    for of_parameter in effects.chunk_by(|one, other| one.parameter == other.parameter) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\nMean by {}", of_parameter[0].parameter);
        for Effect { variant, point, level, sets, mean, error, .. } in of_parameter {
            let separator = if point.is_empty() { "" } else { ", " };
            let (mean, error) = (report::number(*mean), report::number(*error));
            let _ =
                writeln!(text, "  {level:<24}{mean:>8} ± {error}, {sets} sets, {variant}{separator}{point}");
        }
    }
}

fn add_findings(text: &mut String, title: &str, findings: &[Finding<'_>]) {
    if findings.is_empty() {
        return;
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{title}");
    for finding in findings {
        let mark = match finding.holds {
            Some(true) => "✓",
            Some(false) => "✗",
            None => " ",
        };
        let _ = write!(text, "{mark} {}", finding.claim.text);
        if let Origin::Published { source } = &finding.claim.origin {
            let _ = write!(text, " ({source})");
        }
        if let Some(value) = finding.claim.value {
            let _ = write!(text, ": published {}", report::number(value));
        }
        if let Some(measured) = finding.measured {
            let before = if finding.claim.value.is_some() { "; measured" } else { ":" };
            let _ = write!(
                text,
                "{before} {} {}, {}",
                finding.measure,
                report::number(measured),
                finding.variant
            );
        }
        if let Some(demand) = report::demand(finding.claim) {
            let _ = write!(text, " (wanted: {demand})");
        }
        text.push('\n');
    }
}

fn worst_text(worst: &[WorstSet]) -> String {
    let mut text = "\nWorst sets".to_string();
    let label = |set: &WorstSet| match set.point.is_empty() {
        true => set.variant.clone(),
        false => format!("{}, {}", set.point, set.variant),
    };
    let width = worst.iter().map(|set| label(set).chars().count()).max().unwrap_or(0);
    let mut metric = "";
    for set in worst {
        if set.metric != metric {
            metric = set.metric;
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{metric}");
        }
        let (label, value) = (label(set), report::number(set.value));
        let _ = write!(text, "\n  {label:width$}{value:>10}  {:>4}  {}; run {}", set.set, set.paths, set.run);
    }
    text
}
