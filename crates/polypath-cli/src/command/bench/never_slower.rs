//! `polypath bench never-slower`.

mod beside_kernel;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use polypath_config::Policies;
use polypath_lab::never_slower::{
    Cases, NeverSlower, NeverSlowerResult, Sample, WriterSample, Writers, WritersResult,
};
use polypath_lab::run::Buffer;
use polypath_lab::{Variant, Workload};
use polypath_mptcp::ConnectionConfig;
use polypath_units::Duration;

use crate::command::jobs::parse_jobs;
use crate::command::{Failure, chosen, print_json, print_line, write_file};

#[derive(Args, Debug)]
#[command(after_long_help = SCHEMA)]
pub(crate) struct Arguments {
    /// Sets of two paths
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    sets: u32,
    /// How often a bulk transfer is repeated, and short ones up to 80 times as often; the mean counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    repeats: u64,
    /// Seed of the sets and of the runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Scheduler
    #[arg(long, default_value = "default")]
    scheduler: String,
    /// Congestion control over all paths [default: what connections have by default]
    #[arg(long)]
    congestion: Option<String>,
    /// Congestion control of plain TCP over each path; with --peer kernel of all that the kernels do
    #[arg(long, default_value = "cubic")]
    single_path_congestion: String,
    /// Only workloads whose name contains this, such as "bulk" or "64 KB"
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// The hosts have never talked; otherwise they have, over both paths, and remember them
    #[arg(long)]
    strangers: bool,
    /// Sizes: those of the list, or drawn anew for each set, together with other paths
    #[arg(long, value_enum, default_value_t = Sizes::Listed)]
    sizes: Sizes,
    /// One path falls to a tenth of its rate at a random moment, or rises from it; with drawn sizes
    #[arg(long)]
    changing: bool,
    /// Instead, how long blocks take that are written at 20 and at 80 % of what both paths carry, over paths that are drawn
    #[arg(long, conflicts_with_all = ["sizes", "changing", "only", "repeats", "no_loss"])]
    writers: bool,
    /// Who is at the other end: ours, in the simulator, or the kernel, in network namespaces and real time (Linux, root)
    #[arg(long, value_enum, default_value_t = Peer::Ours)]
    peer: Peer,
    /// With --peer kernel: whether we receive, send, or both in turn
    #[arg(long, value_enum, default_value_t = Ways::Both)]
    way: Ways,
    /// With --peer kernel: transfers take no longer than this by TCP over the better path, so much less is carried
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = parse_seconds)]
    most_seconds: f64,
    /// Paths lose nothing but what their queues drop
    #[arg(long)]
    no_loss: bool,
    /// Threads [default: one for each core]
    #[arg(long, value_parser = parse_jobs)]
    jobs: Option<NonZeroUsize>,
    /// Write every sample to this file, the worst first, as JSON lines
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.ok_or_else(|| "expected 0.1 to 600 seconds".into())
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Peer {
    /// Our stack, in virtual time
    Ours,
    /// The kernel's Multipath TCP
    Kernel,
}

/// What we do beside the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Ways {
    /// The kernel sends, we receive
    Receive,
    /// We send, the kernel receives
    Send,
    /// One after the other
    Both,
}

/// Which sizes, over which paths.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Sizes {
    /// A minute of bulk transfer and 64 KB to 32 MB, over each set
    Listed,
    /// 0.5 to 200 MB over 0.5 to 200 Mbit/s, 2 to 400 ms and queues of 5 to 1000 ms, log-uniform, one size a set
    Random,
}

const SCHEMA: &str = "\
Sets of two paths of 0.1 to 100 Mbit/s, round-trip times up to 400 ms, queues up to 2 s and loss up to 2.5 %. Over each, a minute of \
bulk transfer and 64 KB to 32 MB, by plain TCP over each path alone and by Multipath TCP opened over either. Aggregation \
benefit: 0 is the best path alone, 1 the sum of both, -1 nothing. The hosts have sent 1 MB before, and remember what the paths \
carried and lost; with --strangers they know nothing.\n\n\
With --sizes random: one size a set, 0.5 to 200 MB, over 0.5 to 200 Mbit/s, 2 to 400 ms and queues of 5 to 1000 ms, all log-uniform, \
opened over the first path, nothing lost but what queues drop.\n\n\
With --writers: over such paths, blocks of 8000 bytes are written for two minutes, at 20 and at 80 % of what both paths carry. The 99th \
percentile of the time from writing to arrival is compared with that of plain TCP on the path where it is least.\n\n\
With --peer kernel: other sets of two paths, 1 to 100 Mbit/s, 2 to 400 ms, queues of 5 to 1000 ms and 1 to 100 MB, log-uniform, as much as the better path \
carries in --most-seconds; TCP over each path, then in real time, one after the other: ours at one end; ours that judges paths; the kernel's Multipath TCP at \
both ends; TCP over the better path once more, which shows the noise. JSON: peer, congestion, sets, seed, share_held (share of the sets at -0.05 or above), median, \
kernel_median; rows, each: client, way, share_held, benefit; load; samples.\n\n\
JSON: sets, median, p1 (1st percentile), min, share_slower (below 0), share_behind (below -0.05), worst_seed; workloads, each: workload, benefit {count, mean, min, p1, p5, p25, \
median, p75, p95, p99, max}. With --writers: sets; loads, each: load (a share), share_held (ratio 1 at most), share_within_percent (1.01 at most), ratio and excess_s, each \
as benefit.";

pub(crate) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    if arguments.peer == Peer::Kernel {
        return beside_kernel::run(arguments);
    }
    let multipath = match &arguments.congestion {
        Some(name) => chosen(policies, "--congestion", name)?,
        None => ConnectionConfig::default().congestion,
    };
    let single_path = chosen(policies, "--single-path-congestion", &arguments.single_path_congestion)?;
    let scheduler = chosen(policies, "--scheduler", &arguments.scheduler)?;
    let cases = arguments.cases()?;
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let variant = Variant::multipath("multipath", scheduler, multipath);
    let multipath = Variant { buffer: Buffer::Stack, acquainted: !arguments.strangers, ..variant };
    let jobs = arguments.jobs.unwrap_or(cores);
    if arguments.writers {
        let writers = Writers {
            sets: arguments.sets as usize,
            loads: WRITER_LOADS.to_vec(),
            duration: WRITERS_WRITE_FOR,
            seed: arguments.seed,
            multipath,
            single_path,
            jobs,
        };
        return run_writers(arguments, &writers);
    }
    let comparison = NeverSlower {
        sets: arguments.sets as usize,
        repeats: arguments.repeats,
        seed: arguments.seed,
        cases,
        multipath,
        single_path,
        loss: !arguments.no_loss,
        jobs,
    };
    let bar = super::progress(u64::from(arguments.sets));
    let result = comparison.run(|| bar.inc(1));
    bar.finish_and_clear();
    write_samples(arguments, &result.samples)?;
    if arguments.json { print_json(&result) } else { print_table(&result) }
}

/// Shares of what both paths carry at which programs write, and for how long.
const WRITER_LOADS: [f64; 2] = [0.2, 0.8];
const WRITERS_WRITE_FOR: Duration = Duration::from_secs(120);

fn run_writers(arguments: &Arguments, writers: &Writers) -> Result<(), Failure> {
    let bar = super::progress(u64::from(arguments.sets));
    let result = writers.run(|| bar.inc(1));
    bar.finish_and_clear();
    write_samples(arguments, &result.samples)?;
    if arguments.json { print_json(&result) } else { print_writers(&result) }
}

fn write_samples<T: serde::Serialize>(arguments: &Arguments, samples: &[T]) -> Result<(), Failure> {
    let Some(path) = &arguments.samples else { return Ok(()) };
    let lines: Result<String, _> =
        samples.iter().map(|sample| serde_json::to_string(sample).map(|line| line + "\n")).collect();
    write_file(path, lines.map_err(Failure::run)?)
}

impl Arguments {
    fn cases(&self) -> Result<Cases, Failure> {
        let all = NeverSlower::all_workloads();
        match self.sizes {
            Sizes::Random if self.only.is_empty() => Ok(Cases::Drawn { changing: self.changing }),
            Sizes::Random => Err(Failure::Input(
                "--only: chooses among listed sizes; leave it out with --sizes random".to_owned(),
            )),
            Sizes::Listed if self.changing => Err(Failure::Input(
                "--changing: goes with --sizes random; the listed sets do not change".to_owned(),
            )),
            Sizes::Listed => {
                let known: Vec<String> = all.iter().map(Workload::to_string).collect();
                let chosen: Vec<Workload> =
                    all.into_iter().filter(|workload| workload.to_string().contains(&self.only)).collect();
                if chosen.is_empty() {
                    let message = format!(
                        "--only: no workload's name has \"{}\" in it; there are {}",
                        self.only,
                        known.join(", ")
                    );
                    return Err(Failure::Input(message));
                }
                Ok(Cases::Listed(chosen))
            }
        }
    }
}

fn print_table(result: &NeverSlowerResult) -> Result<(), Failure> {
    print_line(&format!(
        "{:<12}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "benefit", "runs", "median", "p25", "p5", "p1", "min", "mean"
    ))?;
    for row in &result.workloads {
        let benefit = &row.benefit;
        let figures = [benefit.median, benefit.p25, benefit.p5, benefit.p1, benefit.min, benefit.mean];
        let figures = figures.map(|figure| format!("{figure:>8.3}")).concat();
        print_line(&format!("{:<12}{:>8}{figures}", row.workload, benefit.count))?;
    }
    print_line(&format!("{:<12}{:>8}{:>8.3}", "all", result.samples.len(), result.median))?;
    print_line(&format!(
        "1st percentile {:.3}, least {:.3}; slower in {:.1} % of the cases, by more than 5 % in {:.1} %; the worst:",
        result.p1,
        result.min,
        100.0 * result.share_slower,
        100.0 * result.share_behind
    ))?;
    result.samples.iter().take(5).try_for_each(|sample| print_line(&describe(sample)))
}

fn print_writers(result: &WritersResult) -> Result<(), Failure> {
    for load in &result.loads {
        print_line(&format!(
            "at {:.0} % of both: the 99th percentile of the delays is no longer than on the best path alone in {:.1} % of {} sets, \
             longer by 1 % at most in {:.1} %; median ratio {:.3}, 95th percentile {:.3}; longer by {:.1} ms at the 95th percentile",
            100.0 * load.load,
            100.0 * load.share_held,
            result.sets,
            100.0 * load.share_within_percent,
            load.ratio.median,
            load.ratio.p95,
            1e3 * load.excess_s.p95
        ))?;
    }
    print_line("the worst:")?;
    result.samples.iter().take(5).try_for_each(|sample| print_line(&describe_writer(sample)))
}

fn describe_writer(sample: &WriterSample) -> String {
    let delay = |delay_s: Option<f64>| {
        delay_s.map_or_else(|| "not all arrived".to_owned(), |delay_s| format!("{:.1} ms", 1e3 * delay_s))
    };
    let alone: Vec<String> = sample.alone_p99_s.iter().map(|delay_s| delay(*delay_s)).collect();
    format!(
        "  set {} ({}), {:.2} Mbit/s: {}, alone {}: {:.3}",
        sample.set,
        sample.paths.join("; "),
        sample.rate_bps as f64 / 1e6,
        delay(sample.delay_p99_s),
        alone.join(" and "),
        sample.ratio
    )
}

fn describe(sample: &Sample) -> String {
    let alone: Vec<String> =
        sample.capacities_bps.iter().map(|capacity| format!("{:.3}", capacity / 1e6)).collect();
    format!(
        "  set {} ({}), {}, opened over path {}: {:.3} Mbit/s, alone {}: {:.3}",
        sample.set,
        sample.paths.join("; "),
        sample.bytes.map_or_else(|| sample.workload.clone(), |bytes| format!("{:.2} MB", bytes as f64 / 1e6)),
        sample.initial_path + 1,
        sample.goodput_bps / 1e6,
        alone.join(" and "),
        sample.benefit
    )
}
