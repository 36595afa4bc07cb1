//! `polypath sim`.

mod beside;
mod stream;
mod words;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration as SystemDuration;

use crate::report::{Chart, Report, Series, Table, render};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use polypath_config::Policies;
use polypath_sim::scenario::{ConnectionResult, Progress, RunResult, Scenario, StreamResult};
use polypath_units::Instant;

use self::beside::Alone;
use super::{Failure, check_writable, complain, print_json, print_line, standard_input, write_file};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The scenario; - for standard input
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Print the results as JSON instead of words
    #[arg(long)]
    json: bool,
    /// Write the results as JSON to a file [default: the scenario's own choice, else nowhere]
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Where the report goes [default: the scenario's own choice, else beside the scenario; polypath-sim.html for one from
    /// standard input]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write every packet to a pcapng file, an interface for each link
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write packets, events and the state of subflows to a qlog file
    #[arg(long, value_name = "FILE")]
    qlog: Option<PathBuf>,
    /// Another seed than the file's
    #[arg(long)]
    seed: Option<u64>,
    /// Show no progress, and compare with nothing: plain TCP over each path alone takes a run for each
    #[arg(long, short)]
    quiet: bool,
}

struct Bar(ProgressBar);

impl Progress for Bar {
    fn at(&mut self, now: Instant, end: Instant, received_bytes: u64) {
        self.0.set_length(end.as_millis());
        self.0.set_position(now.as_millis());
        self.0.set_message(format!("{:.1} MB received", received_bytes as f64 / 1e6));
    }
}

/// Reads the scenario.
fn load(file: &Path, policies: &Policies) -> Result<Scenario, Failure> {
    if !standard_input::is_meant(file) {
        return Scenario::load(file, policies).map_err(Failure::input);
    }
    let text = standard_input::read("a scenario")?;
    Scenario::parse(standard_input::NAME, &text, policies).map_err(Failure::input)
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let mut scenario = load(&arguments.file, policies)?;
    if let Some(seed) = arguments.seed {
        scenario = scenario.with_seed(seed);
    }
    let outputs = scenario.outputs_mut();
    outputs.json = arguments.json_file.clone().or(outputs.json.take());
    outputs.qlog = arguments.qlog.clone().or(outputs.qlog.take());
    outputs.pcap = arguments.pcap.clone().or(outputs.pcap.take());
    let beside = || {
        if standard_input::is_meant(&arguments.file) {
            PathBuf::from("polypath-sim.html")
        } else {
            arguments.file.with_extension("html")
        }
    };
    let chosen = arguments.report.clone().or(outputs.report.take());
    let json_to = outputs.json.clone();
    let outputs = scenario.outputs();
    let source = |given: &Option<PathBuf>, option, key| if given.is_some() { option } else { key };
    let report_source = match chosen {
        Some(_) => source(&arguments.report, "--report", "output.report"),
        None => "the report, without --report",
    };
    let results = [
        (source(&arguments.json_file, "--json-file", "output.json"), &json_to),
        (source(&arguments.qlog, "--qlog", "output.qlog"), &outputs.qlog),
        (source(&arguments.pcap, "--pcap", "output.pcap"), &outputs.pcap),
        ("output.trace", &outputs.trace),
        (report_source, &Some(chosen.clone().unwrap_or_else(beside))),
    ];
    for (number, (source, path)) in results.iter().enumerate() {
        let others = results[..number].iter();
        let same = path.as_ref().and_then(|path| {
            let mut others = others.filter_map(|(source, other)| Some((source, other.as_ref()?)));
            others.find(|(_, other)| is_one_place(path, other)).map(|(other, _)| (other, path))
        });
        if let Some((other, path)) = same {
            let message =
                format!("{other} and {source}: {} is both; expected a file for each", path.display());
            return Err(Failure::Input(message));
        }
        if path.as_ref().is_some_and(|path| is_same_file(path, &arguments.file)) {
            let file = arguments.file.display();
            let message =
                format!("{source}: {file} is the scenario, and would be lost; expected another file");
            return Err(Failure::Input(message));
        }
    }
    for path in json_to.iter().chain(&chosen) {
        check_writable(path)?;
    }
    // Nobody asked for a report beside the scenario: that it can't be there is no reason not to run.
    let report_to = chosen.unwrap_or_else(beside);
    let no_report = check_writable(&report_to).err();
    let bar = if arguments.quiet { ProgressBar::hidden() } else { ProgressBar::new(1) };
    let style = ProgressStyle::with_template("  {bar:40.cyan/238} {percent:>3} %  {msg}  {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
    bar.enable_steady_tick(SystemDuration::from_millis(200));
    let result = scenario.run(&mut Bar(bar.clone())).map_err(Failure::run)?;
    let alone =
        if arguments.json || arguments.quiet { Vec::new() } else { tcp_alone(&scenario, &result, &bar)? };
    bar.finish_and_clear();
    let lines = words::lines(&result, &alone);
    if no_report.is_none() {
        write_file(&report_to, render(&report(&result, &lines)))?;
    }
    if let Some(path) = json_to {
        write_file(&path, serde_json::to_string_pretty(&result).map_err(Failure::run)?)?;
    }
    if arguments.json {
        print_json(&result)?;
    } else {
        for line in &lines {
            print_line(line)?;
        }
    }
    match no_report {
        Some(Failure::Input(why) | Failure::Run(why)) => {
            complain(&format!("there is no report: {why}, or --report FILE"))
        }
        _ if arguments.quiet => {}
        _ => complain(&format!("report in {}", report_to.display())),
    }
    if is_damaged(&result) {
        return Err(Failure::Run(format!("{}: bytes arrived damaged", result.name)));
    }
    Ok(())
}

/// Both are there, and are one file, by whatever names.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    !standard_input::is_meant(other) && of(one).is_some_and(|file| of(other) == Some(file))
}

/// One result would go over the other. Devices take any number.
fn is_one_place(one: &Path, other: &Path) -> bool {
    if one.exists() || other.exists() {
        return one.is_file() && is_same_file(one, other);
    }
    let folder = |path: &Path| match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new(".").canonicalize().ok(),
        Some(folder) => folder.canonicalize().ok(),
        None => None,
    };
    one.file_name() == other.file_name() && folder(one) == folder(other)
}

fn is_damaged(result: &RunResult) -> bool {
    let streams = result.connections.iter().flat_map(|connection| [&connection.upload, &connection.download]);
    streams.flatten().any(|stream| !stream.intact)
}

/// Plain TCP over each path, if there is one connection and it has several.
fn tcp_alone(scenario: &Scenario, result: &RunResult, bar: &ProgressBar) -> Result<Vec<Alone>, Failure> {
    if result.connections.len() != 1 {
        return Ok(Vec::new());
    }
    let over = scenario.over_tcp(0).map_err(Failure::run)?;
    let runs = over.into_iter().map(|(link, scenario)| {
        let mut result = scenario.run(&mut Bar(bar.clone())).map_err(Failure::run)?;
        Ok((link, result.connections.remove(0)))
    });
    runs.collect()
}

/// A run in words.
#[cfg(feature = "full")]
pub(super) fn lines(result: &RunResult) -> Vec<String> {
    words::lines(result, &[])
}

/// A run as a page.
pub(super) fn report(result: &RunResult, lines: &[String]) -> Report {
    let streams: Vec<(String, &ConnectionResult, &StreamResult)> = result
        .connections
        .iter()
        .flat_map(|connection| {
            let both = [("up", &connection.upload), ("down", &connection.download)];
            both.into_iter().filter_map(move |(way, stream)| {
                let stream = stream.as_ref().filter(|stream| stream.planned_bytes != Some(0))?;
                Some((format!("{} {way}", connection.name), connection, stream))
            })
        })
        .collect();
    let received: u64 = streams.iter().map(|(_, _, stream)| stream.bytes).sum();
    let intact = streams.iter().all(|(_, _, stream)| stream.intact);
    Report {
        title: result.name.clone(),
        pictures: Vec::new(),
        bars: Vec::new(),
        terms: Vec::new(),
        summary: lines.iter().skip(1).map(|line| line.trim()).collect::<Vec<_>>().join(" "),
        headlines: vec![
            (format!("{:.1} MB", received as f64 / 1e6), "received by applications".into()),
            (
                format!("{:.1} Mbit/s", received as f64 * 8.0 / 1e6 / result.simulated_s.max(1e-9)),
                "mean over the whole run".into(),
            ),
            (if intact { "intact" } else { "DAMAGED" }.into(), "every byte compared".into()),
        ],
        tables: vec![stream_table(&streams), link_table(result)],
        charts: charts(&streams),
        marks: Vec::new(),
        parameters: vec![
            ("Seed".into(), result.seed.to_string()),
            ("Trace hash".into(), result.trace_hash.clone()),
            ("Polypath".into(), env!("CARGO_PKG_VERSION").into()),
        ],
    }
}

fn stream_table(streams: &[(String, &ConnectionResult, &StreamResult)]) -> Table {
    let rows = streams.iter().map(|(name, connection, stream)| {
        vec![
            name.clone(),
            format!("{:.2}", stream.bytes as f64 / 1e6),
            stream.completed_at_s.map_or("–".into(), |at| format!("{at:.2}")),
            format!("{:.2}", stream.goodput_bps / 1e6),
            stream.retransmitted_packets.to_string(),
            stream.subflows.len().to_string(),
            connection.fell_back.clone().or(connection.closed.clone()).unwrap_or_else(|| "open".into()),
        ]
    });
    let columns = ["", "MB", "complete at s", "Mbit/s", "resent", "subflows", "ended"];
    Table {
        title: "Streams".into(),
        columns: columns.map(String::from).to_vec(),
        rows: rows.collect(),
        note: String::new(),
    }
}

fn link_table(result: &RunResult) -> Table {
    let mut rows = Vec::new();
    for link in &result.links {
        for (way, channel) in [("→", &link.forward), ("←", &link.backward)] {
            rows.push(vec![
                format!("{} {way}", link.name),
                channel.totals.delivered_packets.to_string(),
                format!("{:.2}", channel.totals.delivered_bytes as f64 / 1e6),
                channel.utilisation.map_or("–".into(), |share| format!("{:.1} %", share * 100.0)),
            ]);
        }
    }
    Table {
        title: "Links".into(),
        columns: ["", "packets delivered", "MB", "utilisation"].map(String::from).to_vec(),
        rows,
        note: String::new(),
    }
}

fn charts(streams: &[(String, &ConnectionResult, &StreamResult)]) -> Vec<Chart> {
    type Value = fn(&polypath_sim::scenario::SubflowSeries, usize) -> f64;
    let per_subflow = |value: Value| -> Vec<Series> {
        let subflows =
            streams.iter().flat_map(|(name, _, stream)| stream.subflows.iter().map(move |s| (name, s)));
        subflows
            .enumerate()
            .map(|(colour, (name, subflow))| Series {
                name: format!("{name}, {}", subflow.link.clone().unwrap_or_else(|| subflow.remote.clone())),
                colour,
                points: (0..subflow.series.time_s.len())
                    .map(|at| (subflow.series.time_s[at], value(&subflow.series, at)))
                    .collect(),
            })
            .collect()
    };
    let mut throughput = per_subflow(|series, at| series.throughput_bps[at] / 1e6);
    throughput.extend(streams.iter().map(|(name, _, stream)| {
        Series {
            name: format!("{name}, data at the application"),
            colour: Series::TOTAL,
            points: stream
                .series
                .time_s
                .iter()
                .copied()
                .zip(stream.series.goodput_bps.iter().map(|bps| bps / 1e6))
                .collect(),
        }
    }));
    let chart = |title: &str, unit: &str, series| Chart {
        title: title.into(),
        unit: unit.into(),
        series,
        ..Chart::default()
    };
    vec![
        // The subflows of one stream add up; those of several would hide each other.
        Chart {
            stacked: streams.len() == 1,
            note: "Of paths, what was acknowledged in each interval; at the application, what reached it. What follows a lost \
                   piece waits for it, and then counts at once: a peak."
                .into(),
            ..chart("Throughput", "Mbit/s", throughput)
        },
        chart("Congestion window", "kB", per_subflow(|series, at| series.cwnd_bytes[at] as f64 / 1e3)),
        chart("Smoothed round-trip time", "ms", per_subflow(|series, at| series.srtt_ms[at])),
    ]
}

#[cfg(all(test, feature = "full"))]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn a_result_that_would_go_over_the_scenario_is_refused_by_what_names_it() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/wifi-lte.toml");
        let example = std::fs::read_to_string(example).expect("the example");
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("scenario.html");
        let name = file.to_str().expect("a name").to_string();
        let none = dir.path().join("none").display().to_string();
        let elsewhere = ["--report", &none];
        let own = |key: &str| format!("[output]\n{key} = {name:?}\n");
        for (output, options, source) in [
            (String::new(), vec![], "the report, without --report"),
            (String::new(), vec!["--report", &name], "--report"),
            (own("report"), vec![], "output.report"),
            (own("qlog"), elsewhere.to_vec(), "output.qlog"),
            (own("pcap"), elsewhere.to_vec(), "output.pcap"),
            (own("json"), elsewhere.to_vec(), "output.json"),
            (own("trace"), elsewhere.to_vec(), "output.trace"),
            (own("qlog"), [&elsewhere[..], &["--qlog", &name]].concat(), "--qlog"),
            (String::new(), [&elsewhere[..], &["--pcap", &name]].concat(), "--pcap"),
            (String::new(), [&elsewhere[..], &["--json-file", &name]].concat(), "--json-file"),
        ] {
            let text = format!("{example}\n{output}");
            std::fs::write(&file, &text).expect("a scenario");
            let line = [&["sim", &name], &options[..]].concat();
            let line = <Line as clap::Parser>::try_parse_from(line).expect("a line");
            let told = match run(&line.arguments, &Policies::default()) {
                Err(Failure::Input(told)) => told,
                other => panic!("{source}: {other:?}"),
            };
            assert_eq!(
                told,
                format!("{source}: {name} is the scenario, and would be lost; expected another file")
            );
            assert_eq!(std::fs::read_to_string(&file).expect("a scenario"), text);
        }
    }

    #[test]
    fn two_results_have_two_files() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/wifi-lte.toml");
        let dir = tempfile::tempdir().expect("a folder");
        let name = dir.path().join("both").display().to_string();
        // It is refused whether it is there or not.
        for is_there in [false, true] {
            if is_there {
                std::fs::write(&name, "").expect("a file");
            }
            let line = ["sim", example, "--report", &name, "--pcap", &name];
            let line = <Line as clap::Parser>::try_parse_from(line).expect("a line");
            let told = match run(&line.arguments, &Policies::default()) {
                Err(Failure::Input(told)) => told,
                other => panic!("{other:?}"),
            };
            assert_eq!(told, format!("--pcap and --report: {name} is both; expected a file for each"));
        }
        let device = Path::new("/dev/null");
        assert!(!is_one_place(device, device));
    }

    #[test]
    fn a_file_is_the_same_by_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link, other] = ["a.toml", "b.toml", "c.toml"].map(|name| dir.path().join(name));
        std::fs::write(&file, "").unwrap();
        std::fs::hard_link(&file, &link).unwrap();
        assert!(is_same_file(&file, &file) && is_same_file(&dir.path().join("./a.toml"), &link));
        assert!(
            !is_same_file(&other, &file) && !is_same_file(&file, &other) && !is_same_file(&other, &other)
        );
        std::fs::write(&other, "").unwrap();
        assert!(!is_same_file(&other, &file) && !is_same_file(&file, Path::new("-")));
    }
}
