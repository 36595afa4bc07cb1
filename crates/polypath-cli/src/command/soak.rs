//! `polypath soak`.

use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use polypath_config::Policies;
use polypath_sim::soak::{self, SoakScenario};
use polypath_sim::trace::TraceOutputs;
use serde::Serialize;

use super::{Failure, create_file, print_json, print_line};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// Replay the scenario of this seed, with a trace
    #[arg(long, conflicts_with_all = ["count", "from"])]
    seed: Option<u64>,
    /// How many scenarios to run
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run each of so many twice and compare the traces: every nth
    #[arg(long, value_name = "N", default_value_t = 20)]
    twice: u64,
    /// With --seed: write every packet to a pcapng file
    #[arg(long, value_name = "FILE", requires = "seed")]
    pcap: Option<PathBuf>,
    /// With --seed: write one line for each packet
    #[arg(long, value_name = "FILE", requires = "seed")]
    trace: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Json {
    scenarios: u64,
    passed: u64,
    run_twice: u64,
    received_bytes: u64,
    packets: u64,
    failed_seeds: Vec<u64>,
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    match arguments.seed {
        Some(seed) => replay(arguments, seed, policies),
        None => run_many(arguments, policies),
    }
}

fn replay(arguments: &Arguments, seed: u64, policies: &Policies) -> Result<(), Failure> {
    let outputs = TraceOutputs {
        hash: true,
        pcapng: arguments.pcap.as_deref().map(create_file).transpose()?,
        text: arguments.trace.as_deref().map(create_file).transpose()?,
        comment: format!("polypath soak --seed {seed}"),
        ..TraceOutputs::default()
    };
    let scenario = SoakScenario::from_seed(seed, policies);
    if !arguments.json {
        print_line(&scenario.to_string())?;
    }
    let result = scenario.run_traced(outputs);
    if !arguments.json {
        let outcome = result.map_err(Failure::run)?;
        let hash = outcome.trace_hash.map_or_else(String::new, |hash| format!("; trace {hash:016x}"));
        return print_line(&format!(
            "passed: {} bytes in {} packets until {}{hash}",
            outcome.received_bytes, outcome.packets, outcome.finished_at
        ));
    }
    let (bytes, packets) =
        result.as_ref().map_or((0, 0), |outcome| (outcome.received_bytes, outcome.packets));
    print_json(&Json {
        scenarios: 1,
        passed: u64::from(result.is_ok()),
        run_twice: 0,
        received_bytes: bytes,
        packets,
        failed_seeds: result.as_ref().err().map(|failure| failure.seed).into_iter().collect(),
    })?;
    result.map(|_| ()).map_err(Failure::run)
}

fn run_many(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let bar = if arguments.json { ProgressBar::hidden() } else { ProgressBar::new(arguments.count) };
    let style =
        ProgressStyle::with_template("  {bar:40.cyan/238} {pos} of {len}  {per_sec}  {eta} left  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
    let mut result = Json {
        scenarios: 0,
        passed: 0,
        run_twice: 0,
        received_bytes: 0,
        packets: 0,
        failed_seeds: Vec::new(),
    };
    let mut first_failure = None;
    for seed in arguments.from..arguments.from.saturating_add(arguments.count) {
        let twice = arguments.twice > 0 && seed % arguments.twice == 0;
        result.scenarios += 1;
        result.run_twice += u64::from(twice);
        let run = if twice { soak::run_twice } else { soak::run };
        match run(seed, policies) {
            Ok(outcome) => {
                result.passed += 1;
                result.received_bytes += outcome.received_bytes;
                result.packets += outcome.packets;
            }
            Err(failure) => {
                bar.println(format!("{failure}\n  replay: polypath soak --seed {seed}"));
                result.failed_seeds.push(seed);
                first_failure.get_or_insert(failure);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if arguments.json {
        print_json(&result)?;
    } else {
        print_line(&format!(
            "{} of {} scenarios passed ({} run twice): {:.1} GB, {} packets",
            result.passed,
            result.scenarios,
            result.run_twice,
            result.received_bytes as f64 / 1e9,
            result.packets
        ))?;
    }
    match first_failure {
        None => Ok(()),
        Some(failure) => {
            Err(Failure::run(format!("{failure}; replay: polypath soak --seed {}", failure.seed)))
        }
    }
}
