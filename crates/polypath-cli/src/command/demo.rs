//! `polypath demo`.

#[cfg(feature = "full")]
mod namespaces;

use std::path::PathBuf;
use std::time::Duration as SystemDuration;

use crate::demo::{
    Baselines, Beside, Clock, Cut, Demo, DemoPath, Outcome, Sample, Shown, measure_baselines, report,
    sentence, table,
};
use crate::report::{Table, draw_picture, render};
use bytes::Bytes;
use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use polypath_config::Policies;
use polypath_mptcp::{ConnectionConfig, LiaOnSharedAccess};
use polypath_sim::trace::TraceOutputs;
use polypath_units::Duration;
use polypath_wire::MptcpVersion;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde::Serialize;

use super::{Failure, check_writable, chosen, create_file, print_json, print_line, write_file};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The file to send [default: random bytes]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How many MB of random bytes to send when no file is given
    #[arg(long, value_name = "MB", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=4096))]
    size: u64,
    /// An access link, such as name=wifi,rate=40mbit,rtt=20ms,queue=80ms; repeatable [default: a WiFi-like and an
    /// LTE-like one]
    #[arg(long = "path", value_name = "KEY=VALUE,…")]
    paths: Vec<DemoPath>,
    /// Cut a path and let it come back, such as wifi@2s..5s [default: the first path, 2s..5s]
    #[arg(long, value_name = "PATH@FROM..TO", conflicts_with = "no_cut")]
    cut: Option<String>,
    /// Cut nothing
    #[arg(long)]
    no_cut: bool,
    /// Run in the simulator, at once, instead of in real time
    #[arg(long = "virtual")]
    simulated: bool,
    #[cfg(feature = "full")]
    /// Run between network namespaces, from a stock nginx on the kernel's Multipath TCP (Linux, root, nginx, mptcpize)
    #[arg(
        long,
        conflicts_with_all = ["simulated", "pcap", "qlog", "scheduler", "congestion", "mptcp_version"]
    )]
    netns: bool,
    /// Scheduler
    #[arg(long, default_value = "default")]
    scheduler: String,
    /// Congestion control, of all subflows [default: cubic, and lia for a further subflow over the same access link]
    #[arg(long)]
    congestion: Option<String>,
    /// Wire version: 1 (RFC 8684) or 0 (RFC 6824)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    mptcp_version: u8,
    /// Use the DSS checksum
    #[arg(long)]
    checksum: bool,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the report goes
    #[arg(long, value_name = "FILE", default_value = "polypath-demo.html")]
    report: PathBuf,
    /// Write the sentence and the picture that the report begins with to an SVG file
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
    /// Write every packet to a pcapng file, an interface for each path
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write packets, events and the state of subflows to a qlog file
    #[arg(long, value_name = "FILE")]
    qlog: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Json<'a> {
    sentence: String,
    outcome: &'a Outcome,
    tcp_beside: &'a Beside,
    baselines: &'a Baselines,
    aggregation_benefit: f64,
    aggregation_benefit_without_cut: f64,
    intact: bool,
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let demo = plan(arguments, policies)?;
    check_writable(&arguments.report)?;
    if let Some(picture) = &arguments.picture {
        if picture.extension().is_none_or(|extension| extension != "svg") {
            let name = picture.display();
            return Err(Failure::Input(format!(
                "--picture: {name} is no SVG file; expected a name such as demo.svg"
            )));
        }
        check_writable(picture)?;
    }
    let Ran { outcome, beside, baselines, parameters } = run_somewhere(arguments, &demo)?;
    let shown = Shown { demo: &demo, outcome: &outcome, beside: &beside, baselines: &baselines };
    let page = report(&shown, parameters);
    write_file(&arguments.report, render(&page))?;
    if let Some(picture) = &arguments.picture {
        write_file(picture, draw_picture(&page))?;
    }
    if arguments.json {
        print_json(&Json {
            sentence: sentence(&shown),
            aggregation_benefit: baselines.benefit(outcome.goodput_bps),
            aggregation_benefit_without_cut: baselines.benefit(baselines.mptcp_bps),
            intact: outcome.is_intact(),
            outcome: &outcome,
            tcp_beside: &beside,
            baselines: &baselines,
        })?;
    } else {
        print_result(arguments, &sentence(&shown), &table(&shown), &outcome)?;
    }
    if outcome.is_intact() {
        Ok(())
    } else if outcome.complete {
        Err(Failure::run("the file arrived damaged"))
    } else {
        Err(Failure::run(format!("only {} of {} bytes arrived", outcome.received_bytes, demo.content.len())))
    }
}

/// What happened, what to compare it with, and the settings.
struct Ran {
    outcome: Outcome,
    beside: Beside,
    baselines: Baselines,
    parameters: Vec<(String, String)>,
}

fn run_somewhere(arguments: &Arguments, demo: &Demo) -> Result<Ran, Failure> {
    #[cfg(feature = "full")]
    if arguments.netns {
        return namespaces::run(arguments, demo);
    }
    run_here(arguments, demo)
}

/// Both hosts in this process, and beside them two that have TCP alone.
fn run_here(arguments: &Arguments, demo: &Demo) -> Result<Ran, Failure> {
    let traces = TraceOutputs {
        pcapng: arguments.pcap.as_deref().map(create_file).transpose()?,
        qlog: arguments.qlog.as_deref().map(create_file).transpose()?,
        comment: "polypath demo".into(),
        ..TraceOutputs::default()
    };
    let spinner = if arguments.json { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    spinner.set_message("which path is the best for TCP?");
    spinner.enable_steady_tick(SystemDuration::from_millis(100));
    let baselines = measure_baselines(demo).map_err(Failure::run)?;
    spinner.finish_and_clear();
    let (path, _) = baselines.best().ok_or_else(|| Failure::run("there is no path"))?;
    let tcp = demo.tcp_on(path);
    let bars = if arguments.json { None } else { Some(Bars::new(demo, Some(&demo.paths[path].name))) };
    let watch = |number: usize, sample: &Sample| match (&bars, number) {
        (Some(bars), 0) => bars.show(sample),
        (Some(bars), _) => bars.show_beside(sample),
        (None, _) => {}
    };
    let [outcome, beside] = demo.run_beside(&tcp, traces, watch).map_err(Failure::run)?;
    if let Some(bars) = &bars {
        bars.finish();
    }
    let beside = Beside { path, outcome: beside };
    Ok(Ran { outcome, beside, baselines, parameters: parameters(arguments) })
}

fn plan(arguments: &Arguments, policies: &Policies) -> Result<Demo, Failure> {
    let paths = if arguments.paths.is_empty() {
        vec![DemoPath::wifi(), DemoPath::lte()]
    } else {
        arguments.paths.clone()
    };
    for (number, path) in paths.iter().enumerate() {
        if paths[..number].iter().any(|other| other.name == path.name) {
            return Err(Failure::Input(format!(
                "--path: two are named \"{}\"; expected a name for each",
                path.name
            )));
        }
    }
    let cut = match &arguments.cut {
        Some(text) => {
            Some(Cut::parse(text, &paths).map_err(|error| Failure::Input(format!("--cut: {error}")))?)
        }
        None if arguments.no_cut || paths.len() < 2 => None,
        None => Some(Cut { path: 0, from: Duration::from_secs(2), to: Duration::from_secs(5) }),
    };
    let content = match &arguments.file {
        Some(path) => Bytes::from(std::fs::read(path).map_err(|error| {
            Failure::Input(format!("{}: can't be read ({error}); expected a file to send", path.display()))
        })?),
        None => random_bytes(arguments.size * 1_000_000, arguments.seed),
    };
    if content.is_empty() {
        return Err(Failure::input("the file is empty; expected something to send"));
    }
    let version = if arguments.mptcp_version == 0 { MptcpVersion::V0 } else { MptcpVersion::V1 };
    let mut connection = ConnectionConfig {
        scheduler: chosen(policies, "--scheduler", &arguments.scheduler)?,
        version,
        checksum: arguments.checksum,
        ..Default::default()
    };
    if let Some(name) = &arguments.congestion {
        connection.congestion = chosen(policies, "--congestion", name)?;
        connection.lia_on_shared_access = LiaOnSharedAccess::Never;
    }
    Ok(Demo {
        paths,
        content,
        cut,
        connection,
        clock: if arguments.simulated { Clock::Virtual } else { Clock::Real },
        seed: arguments.seed,
        limit: Duration::from_secs(600),
    })
}

fn random_bytes(len: u64, seed: u64) -> Bytes {
    let mut content = vec![0; len as usize];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut content);
    content.into()
}

fn parameters(arguments: &Arguments) -> Vec<(String, String)> {
    let clock = if arguments.simulated { "virtual (simulator)" } else { "real" };
    [
        ("Clock", clock.to_string()),
        ("Scheduler", arguments.scheduler.clone()),
        ("Congestion control", arguments.congestion.clone().unwrap_or_else(|| "cubic".into())),
        ("Wire version", arguments.mptcp_version.to_string()),
        ("DSS checksum", if arguments.checksum { "on" } else { "off" }.to_string()),
        ("Seed", arguments.seed.to_string()),
        ("Polypath", env!("CARGO_PKG_VERSION").to_string()),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec()
}

fn print_result(
    arguments: &Arguments,
    sentence: &str,
    table: &Table,
    outcome: &Outcome,
) -> Result<(), Failure> {
    print_line(&format!("\n{sentence}\n"))?;
    let widths: Vec<usize> = (0..table.columns.len())
        .map(|column| {
            let rows = table.rows.iter().filter(|row| row.len() > 1).chain([&table.columns]);
            rows.map(|row| row[column].chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in [&table.columns].into_iter().chain(&table.rows) {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line += &if column == 0 { format!("  {cell:<width$}") } else { format!("  {cell:>width$}") };
        }
        if let [part] = &row[..] {
            line = format!(" {part}:");
        }
        print_line(line.trim_end())?;
    }
    let verdict = if outcome.is_intact() { "identical at both ends" } else { "DIFFERENT" };
    print_line(&format!("\n  the file: {verdict}, SHA-256 {}", outcome.received_sha256))?;
    print_line(&format!("  report: {}", arguments.report.display()))?;
    for (what, file) in [("picture", &arguments.picture), ("packets", &arguments.pcap)] {
        if let Some(file) = file {
            print_line(&format!("  {what}: {}", file.display()))?;
        }
    }
    if let Some(qlog) = &arguments.qlog {
        print_line(&format!("  events: {}", qlog.display()))?;
    }
    Ok(())
}

/// One line for each path, one for the file, and one for TCP beside it.
struct Bars {
    /// The bars stay on the screen, above the table.
    _all: MultiProgress,
    paths: Vec<ProgressBar>,
    names: Vec<String>,
    file: ProgressBar,
    beside: Option<ProgressBar>,
    last: std::cell::RefCell<Option<Sample>>,
}

impl Bars {
    /// With the name of the path that TCP goes over beside, if it does.
    fn new(demo: &Demo, beside: Option<&str>) -> Self {
        let all = MultiProgress::new();
        let total = demo.content.len() as u64;
        let beside = beside.map(|name| format!("TCP over {name}"));
        let labels =
            demo.paths.iter().map(|path| path.name.as_str()).chain(["file"]).chain(beside.as_deref());
        let width = labels.map(|label| label.chars().count()).max().unwrap_or(0);
        let path_style = format!("  {{prefix:<{width}}} {{bar:36.cyan/238}} {{msg}}");
        let file_style = format!(
            "  {{prefix:<{width}}} {{bar:36.green/238}} {{percent:>3}} %  {{decimal_bytes:>10}} of {{decimal_total_bytes}}"
        );
        let beside_style = file_style.replace(".green", ".red");
        // The templates are constant but for a number.
        let style = |template: &str| {
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("━╸─")
        };
        let bar = |capacity: u64, prefix: &str, template: &str| {
            let bar = all.add(ProgressBar::new(capacity));
            bar.set_style(style(template));
            bar.set_prefix(prefix.to_string());
            bar
        };
        let paths = demo.paths.iter().map(|path| bar(path.rate.as_bps(), &path.name, &path_style)).collect();
        let file = bar(total, "file", &file_style);
        file.enable_steady_tick(SystemDuration::from_millis(200));
        let beside = beside.map(|label| bar(total, &label, &beside_style));
        let names = demo.paths.iter().map(|path| path.name.clone()).collect();
        Self { _all: all, paths, names, file, beside, last: std::cell::RefCell::new(None) }
    }

    fn show(&self, sample: &Sample) {
        let last = self.last.borrow_mut().replace(sample.clone()).unwrap_or_default();
        for (path, bar) in self.paths.iter().enumerate() {
            let now = sample.paths[path];
            let before = last.paths.get(path).copied().unwrap_or_default();
            let bits = now.acked_bytes.saturating_sub(before.acked_bytes) as f64 * 8.0;
            let bps = bits / (sample.at_s - last.at_s).max(1e-3);
            bar.set_position(bps as u64);
            let state = if now.down { "  down" } else { "" };
            bar.set_message(format!(
                "{:>5.1} Mbit/s  {:>6.1} MB  cwnd {:>4} kB  srtt {:>4.0} ms{state}",
                bps / 1e6,
                now.acked_bytes as f64 / 1e6,
                now.cwnd_bytes / 1000,
                now.srtt_ms
            ));
        }
        self.file.set_position(sample.received_bytes);
    }

    fn show_beside(&self, sample: &Sample) {
        if let Some(bar) = &self.beside {
            bar.set_position(sample.received_bytes);
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.beside {
            bar.abandon();
        }
        for (bar, name) in self.paths.iter().zip(&self.names) {
            bar.finish_with_message(format!("{name} done"));
        }
        self.file.finish();
    }
}
