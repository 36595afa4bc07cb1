//! `polypath bench behaviour`: what the simulator gives, to be compared with what it gave.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use polypath_config::Policies;
use polypath_lab::analysis::Analysis;
use polypath_lab::experiment::{Experiment, Form};
use polypath_lab::never_slower::{Cases, NeverSlower};
use polypath_lab::run::{Buffer, in_parallel};
use polypath_lab::{Variant, Workload};
use polypath_mptcp::{ConnectionConfig, scheduler};
use polypath_sim::matrix;
use polypath_sim::soak::SoakScenario;
use polypath_sim::trace::{TraceHash, TraceOutputs};

use crate::command::jobs::parse_jobs;
use crate::command::{Failure, complain, print_line, write_file};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Random scenarios, by seeds from 0 on
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// Sets of `never-slower`; other numbers are other sets, not fewer of the same
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    sets: u32,
    /// The folder of experiments, which run in their reduced form
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    experiments: PathBuf,
    /// Only lines that begin with this, such as "soak" or "experiment low-bdp"
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Compare with what was recorded here; what differs is printed, and an error
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Write what there is now to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Threads [default: one for each core]
    #[arg(long, value_parser = parse_jobs)]
    jobs: Option<NonZeroUsize>,
}

/// Something that gives lines.
enum Part {
    Soak(u64),
    Middlebox(matrix::Case),
    Experiment(Box<Experiment>),
    NeverSlower(u32),
}

impl Part {
    /// What its lines begin with.
    fn name(&self) -> String {
        match self {
            Self::Soak(seed) => format!("soak {seed}:"),
            Self::Middlebox(case) => format!("middlebox {case}:"),
            Self::Experiment(experiment) => format!("experiment {}", experiment.name),
            Self::NeverSlower(_) => "never-slower".to_owned(),
        }
    }

    fn lines(&self, jobs: NonZeroUsize) -> Vec<String> {
        match self {
            Self::Soak(seed) => {
                let told = match SoakScenario::from_seed(*seed, &Policies::default()).run(true) {
                    Ok(outcome) => format!(
                        "{} bytes, {} packets, trace {:016x}",
                        outcome.received_bytes,
                        outcome.packets,
                        outcome.trace_hash.unwrap_or(0)
                    ),
                    Err(failure) => format!("failed: {failure}"),
                };
                vec![format!("{} {told}", self.name())]
            }
            Self::Middlebox(case) => {
                let outputs = TraceOutputs { hash: true, ..TraceOutputs::default() };
                let told = match matrix::run_traced(case, Some(outputs)) {
                    Ok(outcome) => format!("trace {:016x}", outcome.trace_hash.unwrap_or(0)),
                    Err(failure) => format!("failed: {failure}"),
                };
                vec![format!("{} {told}", self.name())]
            }
            Self::Experiment(experiment) => experiment_lines(experiment, jobs),
            Self::NeverSlower(sets) => never_slower_lines(*sets, jobs),
        }
    }
}

fn experiment_lines(experiment: &Experiment, jobs: NonZeroUsize) -> Vec<String> {
    let numbers: Vec<usize> = (0..experiment.run_count()).collect();
    let runs: BTreeMap<_, _> = in_parallel(jobs, &numbers, |_, number| {
        let job = experiment.job(*number);
        (job.key, job.run())
    })
    .into_iter()
    .collect();
    let analysis = Analysis::new(experiment, &runs);
    let mut lines = Vec::new();
    for (metric, told) in experiment.metrics.iter().enumerate() {
        for (variant, by) in experiment.compared_variants().iter().enumerate() {
            for (point, at) in experiment.points.iter().enumerate() {
                let Some(distribution) = analysis.distribution(metric, variant, point) else { continue };
                let mut hash = TraceHash::default();
                analysis.sets(metric, variant, point).iter().for_each(|value| hash.add(value.to_bits()));
                let at = if at.label.is_empty() { String::new() } else { format!(" at {}", at.label) };
                lines.push(format!(
                    "experiment {}: {}, {}{at}: median {:.4} of {}, {:016x}",
                    experiment.name,
                    told.name,
                    by.name,
                    distribution.median,
                    distribution.count,
                    hash.value()
                ));
            }
        }
    }
    lines
}

/// As `polypath bench never-slower --repeats 1` goes by default.
fn never_slower_lines(sets: u32, jobs: NonZeroUsize) -> Vec<String> {
    let congestion = ConnectionConfig::default().congestion;
    let variant = Variant::multipath("multipath", scheduler::Policy::default(), congestion);
    let comparison = NeverSlower {
        sets: sets as usize,
        repeats: 1,
        seed: 1,
        cases: Cases::Listed(NeverSlower::all_workloads()),
        multipath: Variant { buffer: Buffer::Stack, acquainted: true, ..variant },
        single_path: polypath_congestion::CUBIC,
        loss: true,
        jobs,
    };
    let mut samples = comparison.run(|| {}).samples;
    let place = |workload: &str| {
        NeverSlower::all_workloads().iter().position(|one: &Workload| one.to_string() == workload)
    };
    samples.sort_by_key(|sample| (sample.set, place(&sample.workload), sample.initial_path));
    let lines = samples.iter().map(|sample| {
        let mut hash = TraceHash::default();
        hash.add(sample.goodput_bps.to_bits());
        sample.capacities_bps.iter().for_each(|capacity| hash.add(capacity.to_bits()));
        format!(
            "never-slower {} {}, opened over path {}: benefit {:.4}, {:016x}",
            sample.set,
            sample.workload,
            sample.initial_path + 1,
            sample.benefit,
            hash.value()
        )
    });
    lines.collect()
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = arguments.jobs.unwrap_or(cores);
    let recorded = arguments.against.as_deref().map(read_lines).transpose()?;
    let (small, large) = parts(arguments)?;
    let bar = super::progress((small.len() + large.len()) as u64);
    let mut lines = in_parallel(jobs, &small, |_, part| {
        bar.inc(1);
        part.lines(NonZeroUsize::MIN)
    })
    .concat();
    for part in &large {
        bar.set_message(part.name());
        lines.extend(part.lines(jobs));
        bar.inc(1);
    }
    bar.finish_and_clear();
    lines.retain(|line| line.starts_with(&arguments.only));
    if let Some(path) = &arguments.out {
        write_file(path, lines.join("\n") + "\n")?;
    }
    match recorded {
        Some(recorded) => compare(&recorded, &lines, &arguments.only),
        None if arguments.out.is_some() => Ok(()),
        None => lines.iter().try_for_each(|line| print_line(line)),
    }
}

/// What is asked for: what runs beside others, and what takes all threads for itself.
fn parts(arguments: &Arguments) -> Result<(Vec<Part>, Vec<Part>), Failure> {
    let mut small: Vec<Part> = (0..arguments.seeds).map(Part::Soak).collect();
    small.extend(matrix::cases(&Policies::default()).into_iter().map(Part::Middlebox));
    let mut large = vec![Part::NeverSlower(arguments.sets)];
    let folder = &arguments.experiments;
    let failed = |error| Failure::input(format!("--experiments: {}: {error}", folder.display()));
    let entries: Result<Vec<_>, _> = fs::read_dir(folder).map_err(failed)?.collect();
    let mut files: Vec<PathBuf> = entries.map_err(failed)?.iter().map(fs::DirEntry::path).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    for file in files {
        let experiment =
            Experiment::load(file, Form::Reduced, &Policies::default()).map_err(Failure::input)?;
        large.push(Part::Experiment(Box::new(experiment)));
    }
    for parts in [&mut small, &mut large] {
        parts.retain(|part| {
            let name = part.name();
            name.starts_with(&arguments.only) || arguments.only.starts_with(&name)
        });
    }
    Ok((small, large))
}

fn read_lines(path: &Path) -> Result<Vec<String>, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::input(format!("--against: {}: {error}", path.display())))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Prints what differs, as `diff` does.
fn compare(recorded: &[String], now: &[String], only: &str) -> Result<(), Failure> {
    // Two of the drawn pairs of middleboxes have one name.
    let by_name = |lines: &[String]| -> BTreeMap<String, Vec<String>> {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, told) in
            lines.iter().filter(|line| line.starts_with(only)).filter_map(|line| line.rsplit_once(": "))
        {
            all.entry(name.to_owned()).or_default().push(told.to_owned());
        }
        all
    };
    let (recorded, now) = (by_name(recorded), by_name(now));
    let names: BTreeSet<&String> = recorded.keys().chain(now.keys()).collect();
    let of = |all: &BTreeMap<String, Vec<String>>, name: &str| {
        all.get(name).map_or_else(|| "nothing".to_owned(), |told| told.join("; "))
    };
    let mut different = 0;
    for name in &names {
        let (old, new) = (of(&recorded, name), of(&now, name));
        if new != old {
            different += 1;
            print_line(&format!("{name}\n  - {old}\n  + {new}"))?;
        }
    }
    if different > 0 {
        return Err(Failure::run(format!("{different} of {} results are not as recorded", names.len())));
    }
    complain(&format!("{} results are as recorded", now.values().map(Vec::len).sum::<usize>()));
    Ok(())
}
