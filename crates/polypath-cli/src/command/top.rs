//! `polypath top`.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use clap::Args;
use futures_util::future::join_all;
use polypath_control::{ANSWER_LIMIT, Ask};
use serde::Serialize;

use super::network::block_on_interruptibly;
use super::proxy::{ProxyReport, ask_all};
use super::ss::{disarm, parse_pid, peers};
use super::{Failure, harmless, harmless_json, print_line};
use crate::live::{ProxySample, Sample, Samples, Screen, View, table};

/// What a proxy may say of its clients: some hundred thousand of them.
const MOST_OF_CLIENTS_BYTES: u64 = 128 << 20;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  polypath top\n  polypath top -b -n 3")]
pub(super) struct Arguments {
    /// Print a table for each sample, where there is no terminal
    #[arg(short, long)]
    batch: bool,
    /// End after this many samples
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Time between two samples
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = parse_delay)]
    delay: Duration,
    /// Show this process alone
    #[arg(short, long, value_name = "PID", value_parser = parse_pid)]
    pid: Option<u32>,
    /// Print a JSON object for each sample
    #[arg(short = 'J', long)]
    json: bool,
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds, 0.1 to 3600".into())
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.batch || arguments.json {
        return block_on_interruptibly(lines(arguments));
    }
    if !io::stdout().is_terminal() {
        return Err(Failure::input(
            "top: standard output is no terminal; expected one, or -b for plain lines",
        ));
    }
    if arguments.count.is_some() {
        return Err(Failure::input("--count: expected -b or --json with it"));
    }
    let pid = arguments.pid;
    // A runtime of the view's own thread, made there.
    let mut runtime = None;
    let sampler = Box::new(move || {
        if runtime.is_none() {
            runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok();
        }
        let samples = runtime.as_ref().map(|runtime| runtime.block_on(sample(pid)));
        samples.and_then(Result::ok).unwrap_or_default()
    });
    block_on_interruptibly(async {
        let opened = Screen::open("polypath top", arguments.delay, sampler);
        let mut screen =
            opened.map_err(|error| Failure::Run(format!("the terminal can't be used: {error}")))?;
        screen.quit().await;
        Ok(())
    })
}

/// What all stacks and proxies say now, or those of one process.
async fn sample(pid: Option<u32>) -> Result<Samples, Failure> {
    let peers = peers()?;
    let asked = join_all(peers.iter().map(|peer| peer.ask(Ask::Connections)));
    let (answers, proxies) = tokio::join!(asked, proxies(pid));
    let stacks = peers.iter().zip(answers).filter_map(|(peer, answer)| {
        // A stack that is stopped or has ended has nothing to show.
        let mut answer = answer.ok()?;
        disarm(&mut answer);
        let socket = peer.path().display().to_string();
        pid.is_none_or(|pid| pid == answer.pid).then_some(Sample { socket, answer })
    });
    Ok(Samples { stacks: stacks.collect(), proxies })
}

async fn proxies(pid: Option<u32>) -> Vec<ProxySample> {
    let answers = ask_all::<ProxyReport>("status", MOST_OF_CLIENTS_BYTES, ANSWER_LIMIT).await;
    let reports = answers.into_iter().filter_map(|(asked, report)| Some((asked, report.ok()?)));
    let meant = reports.filter(|(_, report)| pid.is_none_or(|pid| pid == report.pid));
    meant.map(|(asked, report)| report.sample(asked.path.display().to_string())).collect()
}

/// A sample as JSON.
#[derive(Serialize)]
struct Timed<T> {
    time: String,
    #[serde(flatten)]
    report: T,
}

async fn look(view: &mut View, started: Instant, pid: Option<u32>) -> Result<(), Failure> {
    let samples = sample(pid).await?;
    let now = started.elapsed();
    view.handle_samples(now, &samples.stacks);
    view.handle_proxies(now, &samples.proxies);
    Ok(())
}

async fn lines(arguments: &Arguments) -> Result<(), Failure> {
    let (started, mut view) = (Instant::now(), View::default());
    // Rates need two samples: the first is not shown.
    look(&mut view, started, arguments.pid).await?;
    let mut ticks = tokio::time::interval(arguments.delay);
    ticks.tick().await;
    let mut shown = 0;
    while arguments.count.is_none_or(|count| shown < count) {
        ticks.tick().await;
        look(&mut view, started, arguments.pid).await?;
        let mut report = view.report();
        // The sum of no numbers at all is -0.0.
        (report.down_bps, report.up_bps) = (report.down_bps + 0.0, report.up_bps + 0.0);
        for connection in &mut report.connections {
            (connection.down_bps, connection.up_bps) = (connection.down_bps + 0.0, connection.up_bps + 0.0);
        }
        if arguments.json {
            let time = DateTime::<Utc>::from(SystemTime::now()).to_rfc3339_opts(SecondsFormat::Millis, true);
            let text = serde_json::to_string(&Timed { time, report }).map_err(Failure::run)?;
            print_line(&harmless_json(&text))?;
        } else {
            let gap = if shown > 0 { "\n" } else { "" };
            let table = table(&report);
            let safe: Vec<String> = table.lines().map(harmless).collect();
            print_line(&format!("{gap}{}", safe.join("\n")))?;
        }
        shown += 1;
    }
    Ok(())
}
