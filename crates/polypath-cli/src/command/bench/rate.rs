//! `polypath bench rate`.

use crate::bench::Contender;
use crate::bench::rate::{self, RateConfig, RateResult};
use clap::Args;

use crate::command::{Failure, print_json, print_line};

#[derive(Args, Debug)]
#[command(after_long_help = SCHEMA)]
pub(crate) struct Arguments {
    /// Rounds; each runs every engine once for every size and concurrency
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds that requests are made in each run
    #[arg(long, default_value_t = 1.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Engines, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = super::parse_contender,
        default_value = "ours-tun,kernel-mptcp,kernel-tcp"
    )]
    engines: Vec<Contender>,
    /// Sizes of the answers in bytes, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,30000,100000,1000000")]
    bytes: Vec<u64>,
    /// Requests at a time, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,32",
        value_parser = clap::value_parser!(u32).range(1..=4096)
    )]
    concurrent: Vec<u32>,
    /// Pairs of virtual Ethernet interfaces between the two hosts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    paths: u8,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const SCHEMA: &str = "\
A request is: connect, send 64 bytes, read the answer to its end, close.\n\n\
JSON: rounds, seconds, paths; rows, one for each engine, size and concurrency: contender, answer_bytes, concurrent, \
requests_per_s, cpu_us_per_request (user and system time of both processes), ratio_to_kernel_mptcp, \
ratio_to_kernel_tcp (each {median, min, max}; ratios are formed within a round), failures; runs, one for each run: \
contender, round, answer_bytes, concurrent, requests, failures, last_failure, requests_per_s, cpu_us_per_request.";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.engines.contains(&Contender::Iperf3Mptcp) {
        return Err(Failure::input(
            "--engines: iperf3 makes no requests; expected ours-tun, kernel-mptcp, kernel-tcp",
        ));
    }
    let config = RateConfig {
        rounds: arguments.rounds,
        seconds: arguments.seconds,
        contenders: arguments.engines.clone(),
        answer_bytes: arguments.bytes.clone(),
        concurrent: arguments.concurrent.clone(),
        paths: arguments.paths,
    };
    let cases = config.contenders.len() * config.answer_bytes.len() * config.concurrent.len();
    let bar = super::progress(u64::from(config.rounds) * cases as u64);
    let result = rate::run(&config, |run| {
        bar.set_message(format!("{} {:.0} per second", run.contender, run.requests_per_s));
        bar.inc(1);
    });
    bar.finish_and_clear();
    let result = result.map_err(Failure::run)?;
    if arguments.json { print_json(&result) } else { print_table(&result) }
}

fn print_table(result: &RateResult) -> Result<(), Failure> {
    print_line(&format!(
        "Requests over fresh connections, {} paths, {} rounds of {} s; medians",
        result.paths, result.rounds, result.seconds
    ))?;
    print_line(&format!(
        "{:>9}{:>6}  {:<14}{:>12}{:>16}{:>20}{:>18}{:>10}",
        "bytes",
        "at a",
        "engine",
        "per second",
        "CPU us each",
        "times kernel MPTCP",
        "times kernel TCP",
        "failures"
    ))?;
    for row in &result.rows {
        let ratio = |ratio: Option<crate::bench::Spread>| {
            ratio.map_or("-".to_string(), |ratio| format!("{:.2}", ratio.median))
        };
        print_line(&format!(
            "{:>9}{:>6}  {:<14}{:>12.0}{:>16.1}{:>20}{:>18}{:>10}",
            row.answer_bytes,
            row.concurrent,
            row.contender,
            row.requests_per_s.median,
            row.cpu_us_per_request.median,
            ratio(row.ratio_to_kernel_mptcp),
            ratio(row.ratio_to_kernel_tcp),
            row.failures
        ))?;
    }
    Ok(())
}
