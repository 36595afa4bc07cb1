//! `polypath lab run`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration as SystemDuration, Instant as SystemInstant};

use crate::bench::netns::{Endpoints, Netns};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use polypath_config::Policies;
use polypath_lab::experiment::{Experiment, Form};
use polypath_lab::result::{Store, StoreError};
use polypath_lab::run::{Backend, ExecuteError, Progress, Simulator, check, execute};

use super::{only, show};
use crate::command::jobs::parse_jobs;
use crate::command::{Failure, build, complain, is_full, standard_input};

#[derive(Args, Debug)]
pub(in crate::command) struct Arguments {
    /// The experiment; - for standard input
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Where results go, a folder for each
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// In the size of the document, not in the reduced form
    #[arg(long)]
    full: bool,
    /// One run alone, by its name in the results, such as 17/CUBIC/1: with its packets (pcapng), events (qlog) and report
    #[arg(long, value_name = "RUN")]
    only: Option<String>,
    /// With --only: write the report and the numbers alone, not the packets and events, which may take hundreds of MB
    #[arg(long, requires = "only")]
    report_only: bool,
    /// What carries the runs
    #[arg(long, value_name = "NAME", value_enum, default_value_t = BackendName::Sim)]
    backend: BackendName,
    /// Runs at a time [default: one for each core; in real time always one]
    #[arg(long, value_name = "N", value_parser = parse_jobs)]
    jobs: Option<NonZeroUsize>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackendName {
    /// The simulator, in virtual time
    Sim,
    /// Our stack between network namespaces, over emulated paths, in real time (Linux, root)
    Netns,
    /// The kernel's Multipath TCP and TCP there
    NetnsKernel,
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

fn load(file: &Path, form: Form, policies: &Policies) -> Result<Experiment, Failure> {
    if !standard_input::is_meant(file) {
        return Experiment::load(file, form, policies).map_err(Failure::input);
    }
    let text = standard_input::read("an experiment")?;
    Experiment::parse(standard_input::NAME, &text, form, policies).map_err(Failure::input)
}

pub(super) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let form = if arguments.full { Form::Full } else { Form::Reduced };
    let experiment = load(&arguments.file, form, policies)?;
    let (backend, suffix): (&dyn Backend, _) = match arguments.backend {
        BackendName::Sim => (&Simulator, ""),
        BackendName::Netns => (&Netns { endpoints: Endpoints::Polypath }, "+netns"),
        BackendName::NetnsKernel => (&Netns { endpoints: Endpoints::Kernel }, "+netns-kernel"),
    };
    let is_real_time = arguments.backend != BackendName::Sim;
    if is_real_time && arguments.jobs.is_some_and(|jobs| jobs > NonZeroUsize::MIN) {
        return Err(Failure::input("--jobs: runs in real time would disturb each other; expected 1"));
    }
    if let Some(name) = &arguments.only {
        if is_real_time {
            return Err(Failure::input(
                "--only: one run is recorded in the simulator; expected --backend sim",
            ));
        }
        let wishes =
            only::Wishes { json: arguments.json, quiet: arguments.quiet, report_only: arguments.report_only };
        return only::run(&experiment, name, (&arguments.out, &build::name()), policies, &wishes);
    }
    check(&experiment, backend).map_err(Failure::input)?;
    let mut store =
        Store::open(&arguments.out, &experiment, &(build::name() + suffix)).map_err(store_failure)?;
    let (done, runs) = (store.runs().len(), store.manifest().runs);
    if (1..runs).contains(&done) {
        complain(&format!("{done} of {runs} runs were done before"));
    }
    let bar = if arguments.quiet { ProgressBar::hidden() } else { ProgressBar::new(1) };
    let style = ProgressStyle::with_template("  {bar:40.cyan/238} {percent:>3} %  {msg}  {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
    bar.enable_steady_tick(SystemDuration::from_millis(200));
    // What was done earlier says nothing about the pace of the rest.
    bar.set_position(0);
    bar.reset_eta();
    let cores = std::thread::available_parallelism().ok().filter(|_| !is_real_time);
    let jobs = arguments.jobs.or(cores).unwrap_or(NonZeroUsize::MIN);
    let started = SystemInstant::now();
    let never = AtomicBool::new(false);
    let result = execute(&experiment, backend, &mut store, jobs, &never, &mut Bar(bar.clone()));
    bar.finish_and_clear();
    let wall_time = match store.manifest().complete {
        true => Ok(()),
        false => store.add_wall_time(started.elapsed().as_secs_f64()),
    };
    // Why the runs ended is what a person needs to know first.
    let is_complete = result.map_err(|error| match error {
        ExecuteError::Store(error) => store_failure(error),
        _ => Failure::run(error),
    })?;
    wall_time.map_err(store_failure)?;
    if is_complete {
        store.complete(&experiment).map_err(store_failure)?;
    }
    show::show(policies, store.dir(), arguments.json, 0, arguments.quiet)
}

/// Another --out helps, unless there is no room.
fn store_failure(error: StoreError) -> Failure {
    match &error {
        StoreError::Io { error: cause, .. } if is_full(cause) => Failure::run(error),
        _ => Failure::input(error),
    }
}
