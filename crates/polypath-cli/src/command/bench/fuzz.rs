//! `polypath bench fuzz`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use indicatif::ProgressBar;
use polypath_sim::fuzz::{Case, Failure as Found, Outcome, known, shrink};
use serde::Serialize;

use super::super::{Failure, create_file, print_json, print_line};
use super::progress;

/// Runs that shrinking may take.
const MOST_SHRINKING_RUNS: u32 = 5000;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// How many packets the hosts are to send, over all runs
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    packets: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Replay the run of this seed, and show what happens in it
    #[arg(long, conflicts_with_all = ["from", "packets", "threads", "json"])]
    seed: Option<u64>,
    /// Replay the run of a file, as cargo-fuzz writes them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "from", "packets", "threads", "json"])]
    file: Option<PathBuf>,
    /// Make a replayed run that fails shorter and plainer
    #[arg(long)]
    shrink: bool,
    /// Write one line for each packet, event and operation of a replayed run
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Default, Serialize)]
struct Json {
    runs: u64,
    packets: u64,
    connections: u64,
    read_bytes: u64,
    next_seed: u64,
    expected_failures: BTreeMap<String, u64>,
    failed: Vec<FailedSeed>,
}

#[derive(Serialize)]
struct FailedSeed {
    seed: u64,
    kind: String,
    failure: String,
}

impl Json {
    fn add(&mut self, seed: u64, result: Result<Outcome, Found>) {
        self.runs += 1;
        match result {
            Ok(outcome) => {
                self.packets += outcome.packets;
                self.connections += outcome.connections;
                self.read_bytes += outcome.read_bytes;
            }
            Err(failure) => {
                let kind = format!("{:?}", failure.finding.kind);
                if known(&failure).is_some() {
                    *self.expected_failures.entry(kind).or_default() += 1;
                } else {
                    self.failed.push(FailedSeed { seed, kind, failure: failure.to_string() });
                }
            }
        }
    }
}

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // Where a panic ends the process, this line is all that is left of the run.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        let _written = writeln!(std::io::stderr(), "polypath bench fuzz --seed {}", SEED.get());
    }));
    match (&arguments.seed, &arguments.file) {
        (Some(seed), _) => {
            SEED.set(*seed);
            replay(arguments, &Case::from_seed(*seed))
        }
        (None, Some(file)) => {
            let bytes = std::fs::read(file)
                .map_err(|error| Failure::Input(format!("--file {}: {error}", file.display())))?;
            replay(arguments, &Case::from_bytes(&bytes))
        }
        (None, None) => run_many(arguments),
    }
}

fn replay(arguments: &Arguments, case: &Case) -> Result<(), Failure> {
    let result = case.run();
    let mut case = case.clone();
    if let (Err(failure), true) = (&result, arguments.shrink) {
        let shrunk = shrink(&case, failure.clone(), MOST_SHRINKING_RUNS);
        print_line(&format!("shrunk in {} runs", shrunk.runs))?;
        case = shrunk.case;
    }
    print_line(&case.describe_briefly())?;
    let (result, log) = case.run_traced();
    if let Some(path) = &arguments.trace {
        let mut file = create_file(path)?;
        file.write_all(log.join("\n").as_bytes()).map_err(Failure::run)?;
    }
    match result {
        Ok(outcome) => print_line(&format!("{outcome:#?}")),
        Err(failure) => Err(Failure::run(failure)),
    }
}

fn run_many(arguments: &Arguments) -> Result<(), Failure> {
    let bar = if arguments.json { ProgressBar::hidden() } else { progress(arguments.packets) };
    let (next, result) = (AtomicU64::new(arguments.from), Mutex::new(Json::default()));
    let threads = NonZero::new(arguments.threads).map_or(1, NonZero::get);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            SEED.set(seed);
            let outcome = Case::from_seed(seed).run();
            let Ok(mut result) = result.lock() else { return };
            if let Err(failure) = &outcome
                && known(failure).is_none()
            {
                bar.println(format!("seed {seed}: {failure}"));
            }
            result.add(seed, outcome);
            bar.set_position(result.packets.min(arguments.packets));
            if result.packets >= arguments.packets {
                return;
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    bar.finish_and_clear();
    let mut result = result.into_inner().map_err(|_| Failure::run("a run panicked"))?;
    result.next_seed = next.into_inner();
    result.failed.sort_by_key(|failed| failed.seed);
    report(arguments, &result)
}

fn report(arguments: &Arguments, result: &Json) -> Result<(), Failure> {
    if arguments.json {
        print_json(result)?;
    } else {
        let expected: u64 = result.expected_failures.values().sum();
        print_line(&format!(
            "{} runs, {} packets, {} connection ends, {:.1} MB read; {} failed, {expected} of them as expected",
            result.runs,
            result.packets,
            result.connections,
            result.read_bytes as f64 / 1e6,
            result.failed.len() as u64 + expected,
        ))?;
    }
    match result.failed.first() {
        None => Ok(()),
        Some(FailedSeed { seed, failure, .. }) => {
            let short: String = failure.chars().take(300).collect();
            Err(Failure::run(format!("{short}; replay: polypath bench fuzz --seed {seed} --shrink")))
        }
    }
}
