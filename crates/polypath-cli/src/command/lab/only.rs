//! `polypath lab run --only`: one run again, with all that can be seen of it.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use polypath_config::Policies;
use polypath_lab::analysis::run_values;
use polypath_lab::experiment::{Experiment, Job, RunKey};
use polypath_lab::report::number;
use polypath_lab::result::{Manifest, Results};
use polypath_lab::run::{Outcome, Watch};
use polypath_sim::scenario::RunResult;
use polypath_sim::trace::TraceOutputs;
use serde::Serialize;

use crate::command::{Failure, complain, harmless, is_full, print_json, print_line, sim, write_file};
use crate::report::render;

/// A metric of the run, if it needs no other.
#[derive(Serialize)]
struct Value {
    metric: &'static str,
    unit: &'static str,
    value: Option<f64>,
}

#[derive(Serialize)]
struct Json<'a> {
    experiment: &'a str,
    form: &'static str,
    build: &'a str,
    run: &'a str,
    /// As text: not every reader of JSON has so many bits.
    seed: String,
    folder: &'a Path,
    metrics: Vec<Value>,
    /// As in the results of the whole experiment; null if it is not there.
    same_as_before: Option<bool>,
    result: &'a RunResult,
}

/// The files of a run.
struct Files {
    folder: PathBuf,
}

impl Files {
    const PACKETS: &'static str = "packets.pcapng";
    const EVENTS: &'static str = "events.qlog";
    const TEXT: &'static str = "packets.txt";
    const NUMBERS: &'static str = "run.json";
    const REPORT: &'static str = "report.html";

    fn create(&self, name: &str) -> Result<Box<dyn Write>, Failure> {
        let path = self.folder.join(name);
        let file = File::create(&path).map_err(|error| self.refused(&path, &error))?;
        Ok(Box::new(BufWriter::with_capacity(1 << 20, file)))
    }

    fn bytes(&self, name: &str) -> u64 {
        fs::metadata(self.folder.join(name)).map_or(0, |found| found.len())
    }

    fn refused(&self, path: &Path, error: &std::io::Error) -> Failure {
        let path = path.display();
        if is_full(error) {
            return Failure::Run(format!("{path}: can't be written ({error})"));
        }
        Failure::Input(format!("{path}: can't be written ({error}); expected --out with a folder of yours"))
    }
}

/// What is to be told and kept of it.
pub(super) struct Wishes {
    pub(super) json: bool,
    pub(super) quiet: bool,
    /// Neither packets nor events.
    pub(super) report_only: bool,
}

/// About how many bytes the packets and events of a run take.
fn traces_bytes(job: &Job) -> u64 {
    // Beside its payload, a packet of data has headers and an acknowledgment, and both are in qlog and in text. Runs of all kinds
    // of traffic had 0.8 to 1.5 kB of that, by how many were acknowledged at once and how many were sent again.
    const PER_PACKET: u64 = 1200;
    job.payload_bytes() + job.packets() * PER_PACKET
}

/// Runs the run of this name, and writes its packets, events and report into a folder of its own below `out`.
pub(super) fn run(
    experiment: &Experiment,
    name: &str,
    (out, build): (&Path, &str),
    policies: &Policies,
    wishes: &Wishes,
) -> Result<(), Failure> {
    let key = experiment.run_named(name).map_err(|error| Failure::Input(format!("--only: {error}")))?;
    let name = experiment.run_name(key);
    let job = experiment.job_of(key);
    let manifest = Manifest::new(experiment, build);
    let results = out.join(manifest.folder());
    let files = Files { folder: results.join(file_name(&name)) };
    fs::create_dir_all(&files.folder).map_err(|error| files.refused(&files.folder, &error))?;
    let title = format!("{}, {name}", experiment.name);
    let comment = format!("{title}, seed {}", job.seed);
    let mut traces = TraceOutputs { hash: true, comment, ..TraceOutputs::default() };
    let mut names = vec![Files::REPORT, Files::NUMBERS];
    if !wishes.report_only {
        if !wishes.quiet {
            complain(&format!(
                "packets and events go to {}, about {:.0} MB; --report-only leaves them out",
                files.folder.display(),
                (traces_bytes(&job) as f64 / 1e6).max(1.0)
            ));
        }
        traces.pcapng = Some(files.create(Files::PACKETS)?);
        traces.qlog = Some(files.create(Files::EVENTS)?);
        traces.text = Some(files.create(Files::TEXT)?);
        names.extend([Files::PACKETS, Files::EVENTS, Files::TEXT]);
    }
    let mut watch = Watch::new(traces);
    let outcome = job.run_watched(&mut watch);
    let mut result = watch.into_result().map_err(|error| files.refused(&files.folder, &error))?;
    result.name = title;
    let values = run_values(experiment, key, &outcome);
    let metrics: Vec<Value> = values
        .into_iter()
        .map(|(metric, value)| Value { metric: metric.name, unit: metric.unit, value })
        .collect();
    let mut lines = sim::lines(&result);
    if has_own_connections(&result) {
        let name = harmless(&result.name);
        let told = headlines_of_own(&outcome).into_iter().map(|(value, what)| format!("{value} {what}"));
        let told = told.collect::<Vec<_>>().join(", ");
        lines = vec![format!("{name}: {told}, seed {}.", result.seed)];
    }
    lines.extend(metrics.iter().map(told));
    let compared = compare(&results, key, &outcome, policies);
    lines.push(compared.line(&results, !experiment.claims.is_empty()));
    let mut report = sim::report(&result, &lines);
    if has_own_connections(&result) {
        report.headlines = headlines_of_own(&outcome);
        // That of the streams has no rows.
        report.tables.retain(|table| !table.rows.is_empty());
    }
    write_file(&files.folder.join(Files::REPORT), render(&report))?;
    let told = Json {
        experiment: &experiment.name,
        form: experiment.form.name(),
        build,
        run: &name,
        seed: job.seed.to_string(),
        folder: &files.folder,
        metrics,
        same_as_before: match compared {
            Compared::Same => Some(true),
            Compared::Differs(_) => Some(false),
            Compared::WithNothing(_) => None,
        },
        result: &result,
    };
    let numbers = serde_json::to_string_pretty(&told).map_err(Failure::run)?;
    write_file(&files.folder.join(Files::NUMBERS), numbers)?;
    if wishes.json {
        print_json(&told)?;
    } else {
        for line in &lines {
            print_line(line)?;
        }
    }
    if !wishes.quiet {
        let bytes: u64 = names.iter().map(|name| files.bytes(name)).sum();
        complain(&format!(
            "{} in {}, {:.1} MB",
            names.join(", "),
            files.folder.display(),
            bytes as f64 / 1e6
        ));
    }
    match compared {
        Compared::Differs(why) => Err(Failure::Run(why)),
        Compared::Same | Compared::WithNothing(_) => Ok(()),
    }
}

/// Downloads and streams of films have connections of their own, which open and close as they like: what the simulator tells of
/// connections is not there.
fn has_own_connections(result: &RunResult) -> bool {
    result.connections.is_empty()
}

/// What is known of a run whose connections are its own.
fn headlines_of_own(outcome: &Outcome) -> Vec<(String, String)> {
    let received = format!("{:.1} MB", outcome.received_bytes as f64 / 1e6);
    let goodput = format!("{:.2} Mbit/s", outcome.goodput_bps / 1e6);
    vec![(received, "received by the application".into()), (goodput, "goodput".into())]
}

fn told(value: &Value) -> String {
    let Value { metric, unit, value } = value;
    match value {
        None => format!("  {metric}: compares runs, this is one."),
        Some(value) if unit.is_empty() => format!("  {metric}: {}.", number(*value)),
        Some(value) => format!("  {metric}: {} {unit}.", number(*value)),
    }
}

/// A run beside the same one in the results of the whole experiment.
enum Compared {
    Same,
    Differs(String),
    /// Why there is none.
    WithNothing(String),
}

/// Where the whole experiment was run with the same build, the run must give the same again.
fn compare(results: &Path, key: RunKey, outcome: &Outcome, policies: &Policies) -> Compared {
    if !results.join("manifest.json").exists() {
        return Compared::WithNothing(format!("the experiment has no results in {}", results.display()));
    }
    let there = match Results::load(results, policies) {
        Ok(there) => there,
        Err(error) => return Compared::WithNothing(error.to_string()),
    };
    let Some(earlier) = there.runs.get(&key) else {
        return Compared::WithNothing(format!("it is not yet in {}", results.display()));
    };
    let numbers = |outcome: &Outcome| (outcome.received_bytes, outcome.goodput_bps.to_bits(), outcome.events);
    if numbers(earlier) == numbers(outcome) {
        return Compared::Same;
    }
    Compared::Differs(format!(
        "the run is not the one in {}: {} bytes then, {} now",
        results.display(),
        earlier.received_bytes,
        outcome.received_bytes
    ))
}

impl Compared {
    fn line(&self, results: &Path, has_claims: bool) -> String {
        let earlier = match self {
            Self::Same => format!("The same as the run in {}", results.display()),
            Self::Differs(_) => format!("NOT the same as the run in {}", results.display()),
            Self::WithNothing(why) => format!("Compared with no earlier run: {}", harmless(why)),
        };
        // What is published or expected is of a statistic over all sets.
        let claims = match has_claims {
            true => {
                " What the file has as published or expected is about all runs, and not compared with one."
            }
            false => "",
        };
        format!("  {earlier}.{claims}")
    }
}

/// A name of letters, digits, points and hyphens.
fn file_name(run: &str) -> String {
    let fits = |letter: char| letter.is_alphanumeric() || ".-_".contains(letter);
    let parts = run.split(|letter| !fits(letter)).filter(|part| !part.is_empty());
    format!("run-{}", parts.collect::<Vec<_>>().join("-"))
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn the_name_of_a_folder_has_no_spaces() {
        assert_eq!(
            file_name("17/64KB, best/4 MB, lowest RTT + RP/1"),
            "run-17-64KB-best-4-MB-lowest-RTT-RP-1"
        );
        assert_eq!(file_name("../x/1"), "run-..-x-1");
    }
}
