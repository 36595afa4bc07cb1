//! `polypath lab run`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration as SystemDuration, Instant as SystemInstant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use polypath::lab::experiment::{Experiment, Form};
use polypath::lab::result::Store;
use polypath::lab::run::{Progress, execute};
use sha2::{Digest, Sha256};

use super::show;
use crate::command::Failure;

#[derive(Args, Debug)]
pub(in crate::command) struct Arguments {
    /// The experiment
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Where results go, a folder for each
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// In the size of the document, not in the reduced form
    #[arg(long)]
    full: bool,
    /// Runs at a time [default: one for each core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

struct Bar(ProgressBar);

impl Progress for Bar {
    fn at(&mut self, done_runs: usize, runs: usize, done_cost: u64, cost: u64) {
        // By cost and not by number: the longest runs come first.
        self.0.set_length(cost);
        self.0.set_position(done_cost);
        self.0.set_message(format!("{done_runs} of {runs} runs"));
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let form = if arguments.full { Form::Full } else { Form::Reduced };
    let experiment = Experiment::load(&arguments.file, form).map_err(Failure::input)?;
    let mut store = Store::open(&arguments.out, &experiment, &build()).map_err(Failure::input)?;
    let bar = if arguments.quiet { ProgressBar::hidden() } else { ProgressBar::new(1) };
    let style = ProgressStyle::with_template("  {bar:40.cyan/238} {percent:>3} %  {msg}  {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
    bar.enable_steady_tick(SystemDuration::from_millis(200));
    // What was done earlier says nothing about the pace of the rest.
    bar.set_position(0);
    bar.reset_eta();
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let started = SystemInstant::now();
    let never = AtomicBool::new(false);
    let result =
        execute(&experiment, &mut store, arguments.jobs.unwrap_or(cores), &never, &mut Bar(bar.clone()));
    bar.finish_and_clear();
    if !store.manifest().complete {
        store.add_wall_time(started.elapsed().as_secs_f64()).map_err(Failure::run)?;
    }
    if result.map_err(Failure::run)? {
        store.complete(&experiment).map_err(Failure::run)?;
    }
    show::show(store.dir(), arguments.json, arguments.quiet)
}

/// What results depend on besides the experiment: the version, and the very program, since a change of the stack that
/// is not in the version changes results too.
fn build() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let program = std::env::current_exe().and_then(std::fs::read);
    program.map_or_else(
        |_| version.to_string(),
        |bytes| {
            let hash: String =
                Sha256::digest(bytes).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
            format!("{version}+{hash}")
        },
    )
}
