//! `polypath bench backends`.

use crate::bench::backends::{BackendsConfig, BackendsResult, BackendsRow};
use clap::Args;
use polypath_config::Policies;
use polypath_lab::run::BackendError;
use polypath_mptcp::ConnectionConfig;
use polypath_units::Duration;

use crate::command::{Failure, chosen, print_json, print_line};

#[derive(Args, Debug)]
#[command(after_long_help = SCHEMA)]
pub(crate) struct Arguments {
    /// Sets of two paths
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=1000))]
    sets: u32,
    /// Only the set of this number, counted from 0
    #[arg(long, value_name = "N")]
    only: Option<usize>,
    /// Seconds of each transfer
    #[arg(long, default_value_t = 10.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Runs of each set; medians count
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    repeats: u64,
    /// Scheduler of our stack
    #[arg(long, default_value = "default")]
    scheduler: String,
    /// Congestion control of our stack [default: what connections have by default]
    #[arg(long)]
    congestion: Option<String>,
    /// Share of packets that each path loses, in percent
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Without the kernel's Multipath TCP
    #[arg(long)]
    no_kernel: bool,
    /// Seed of the sets and of losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const SCHEMA: &str = "\
Sets of two paths of 1 to 50 Mbit/s, round-trip times of 5 to 100 ms and queues of 20 to 200 ms. Over each a bulk transfer in \
the simulator, by the same stack between network namespaces in real time, and by the kernel's Multipath TCP (cubic) \
there. Goodput is what the receiving application got from the opening of the connection on. Bar: within 5 % in every \
set.\n\n\
JSON: seconds, congestion, scheduler, loss, repeats, seed, median_ratio, worst_ratio, sets_within_bar, is_within_bar; rows, one for each set: \
set, paths [{rate_mbit_per_s, rtt_ms, queue_ms}], capacity_mbit_per_s, sim_mbit_per_s and netns_mbit_per_s {median, min, max}, \
ratio (between namespaces over simulated), kernel_mbit_per_s {median, min, max}, queue_drops [simulated, between \
namespaces, the kernel's].";

pub(crate) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let congestion = match &arguments.congestion {
        Some(name) => chosen(policies, "--congestion", name)?,
        None => ConnectionConfig::default().congestion,
    };
    if !(0.0..100.0).contains(&arguments.loss) {
        return Err(Failure::Input(format!(
            "--loss: {} is no share; expected percent from 0 to below 100",
            arguments.loss
        )));
    }
    if let Some(only) = arguments.only.filter(|only| *only >= arguments.sets as usize) {
        return Err(Failure::Input(format!("--only: no set {only}; expected 0 to {}", arguments.sets - 1)));
    }
    let config = BackendsConfig {
        sets: arguments.sets as usize,
        only: arguments.only,
        duration: Duration::from_secs_f64(arguments.seconds),
        congestion,
        scheduler: chosen(policies, "--scheduler", &arguments.scheduler)?,
        loss: arguments.loss / 100.0,
        repeats: arguments.repeats,
        kernel: !arguments.no_kernel,
        seed: arguments.seed,
    };
    let bar = super::progress(if arguments.only.is_some() { 1 } else { u64::from(arguments.sets) });
    let result = config.run(|row| {
        bar.set_message(format!("set {}: {:.3}", row.set, row.ratio));
        bar.inc(1);
    });
    bar.finish_and_clear();
    let result = result.map_err(|error| match error {
        BackendError::Unfit(_) => Failure::input(error),
        _ => Failure::run(error),
    })?;
    if arguments.json { print_json(&result) } else { print_table(&result) }
}

fn print_table(result: &BackendsResult) -> Result<(), Failure> {
    print_line(&format!(
        "Goodput in Mbit/s of bulk transfers of {} s, scheduler {}, congestion control {}, loss {} %, seed {}; medians of {}",
        result.seconds,
        result.scheduler,
        result.congestion,
        result.loss * 100.0,
        result.seed,
        result.repeats
    ))?;
    print_line(&format!(
        "{:>3}  {:<36}{:>9}{:>8}{:>8}{:>8}{:>8}  {}",
        "set",
        "paths: Mbit/s, RTT ms, queue ms",
        "capacity",
        "sim",
        "netns",
        "ratio",
        "kernel",
        "queue drops"
    ))?;
    result.rows.iter().try_for_each(print_row)?;
    print_line(&format!(
        "netns over sim: median {:.3}, worst {:.3}; {} of {} sets within 5 %",
        result.median_ratio,
        result.worst_ratio,
        result.sets_within_bar,
        result.rows.len()
    ))
}

fn print_row(row: &BackendsRow) -> Result<(), Failure> {
    let paths = row
        .paths
        .iter()
        .map(|path| format!("{:>5.1} {:>4.0} {:>4.0}", path.rate_mbit_per_s, path.rtt_ms, path.queue_ms));
    let paths: Vec<String> = paths.collect();
    let kernel = row.kernel_mbit_per_s.map_or("-".to_string(), |kernel| format!("{:.2}", kernel.median));
    let [sim, ours, theirs] = row.queue_drops;
    print_line(&format!(
        "{:>3}  {:<36}{:>9.2}{:>8.2}{:>8.2}{:>8.3}{kernel:>8}  {sim} {ours} {theirs}",
        row.set,
        paths.join("  + "),
        row.capacity_mbit_per_s,
        row.sim_mbit_per_s.median,
        row.netns_mbit_per_s.median,
        row.ratio,
    ))
}
