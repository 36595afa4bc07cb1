//! `polypath bench handover`.

use std::time::Duration;

use crate::bench::Contender;
use crate::bench::handover::{self, HandoverConfig, HandoverResult};
use clap::Args;
use polypath_config::quantity::parse_span;
use polypath_units::Duration as Span;

use crate::command::{Failure, print_json, print_line};

#[derive(Args, Debug)]
#[command(after_long_help = SCHEMA)]
pub(crate) struct Arguments {
    /// How often each of two paths is lost in each manner by each engine
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Engines, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = super::parse_contender,
        default_value = "ours-tun,kernel-mptcp"
    )]
    engines: Vec<Contender>,
    /// Rate of each path in Mbit/s
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Round-trip times of the two paths, separated by a comma
    #[arg(
        long,
        value_name = "TIME,TIME",
        value_delimiter = ',',
        default_value = "20ms,40ms",
        value_parser = parse_span
    )]
    delay: Vec<Span>,
    /// Seconds of the transfer before the loss (up to half a second longer), of the outage, and after it
    #[arg(long, default_value_t = 2.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Seed of the moments at which paths are lost
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const SCHEMA: &str = "\
One connection over two emulated paths, each with a rate and a delay, behind queues of 50 ms. A path is lost by carrier (as when a cable \
is pulled at the client) or silently (packets vanish, the interfaces stay up), and comes back.\n\n\
JSON: repeats, rate_mbit_per_s, rtts_ms, seed; rows, one for each engine, path and manner of loss: contender, path, loss \
(carrier or silent), longest_gap_ms {median, min, max} in which the receiving application got nothing, failures; runs, \
one for each run: contender, repeat, path, loss, longest_gap_ms, longest_gap_before_ms, mbit_per_s, failure.";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(unfit) =
        arguments.engines.iter().find(|&&engine| !engine.is_ours() && engine != Contender::KernelMptcp)
    {
        return Err(Failure::input(format!(
            "--engines: {unfit} has nothing to hand over to; expected ours-tun, kernel-mptcp"
        )));
    }
    let &[first, second] = arguments.delay.as_slice() else {
        return Err(Failure::input("--delay: expected two times, such as 20ms,40ms"));
    };
    let config = HandoverConfig {
        rtts: [first, second],
        repeats: arguments.repeats,
        contenders: arguments.engines.clone(),
        rate_mbit_per_s: arguments.rate,
        phase: Duration::from_secs_f64(arguments.seconds),
        seed: arguments.seed,
    };
    let bar = super::progress(u64::from(config.repeats) * 4 * config.contenders.len() as u64);
    let result = handover::run(&config, |run| {
        let gap = run.longest_gap_ms.map_or("failed".to_string(), |gap| format!("{gap:.0} ms"));
        bar.set_message(format!("{} {} {gap}", run.contender, run.loss.name()));
        bar.inc(1);
    });
    bar.finish_and_clear();
    let result = result.map_err(Failure::run)?;
    if arguments.json { print_json(&result) } else { print_table(&result) }
}

fn print_table(result: &HandoverResult) -> Result<(), Failure> {
    print_line(&format!(
        "Longest gap in delivery when a path is lost and comes back, two paths of {} Mbit/s and {} and \
         {} ms round trip, {} repeats, seed {}",
        result.rate_mbit_per_s, result.rtts_ms[0], result.rtts_ms[1], result.repeats, result.seed
    ))?;
    print_line(&format!(
        "{:>4}  {:<9}{:<14}{:>11}{:>10}{:>10}{:>10}",
        "path", "loss", "engine", "median ms", "min ms", "max ms", "failures"
    ))?;
    for row in &result.rows {
        let [median, min, max] =
            row.longest_gap_ms.map_or(["-".to_string(), "-".into(), "-".into()], |gap| {
                [gap.median, gap.min, gap.max].map(|gap| format!("{gap:.0}"))
            });
        print_line(&format!(
            "{:>4}  {:<9}{:<14}{median:>11}{min:>10}{max:>10}{:>10}",
            row.path,
            row.loss.name(),
            row.contender,
            row.failures
        ))?;
    }
    Ok(())
}
