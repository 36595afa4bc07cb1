//! `polypath bench throughput`.

use crate::bench::throughput::{self, ThroughputConfig, ThroughputResult};
use crate::bench::{Contender, Spread};
use clap::Args;
use polypath_config::Policies;

use crate::command::{Failure, chosen, print_json, print_line};

#[derive(Args, Debug)]
#[command(after_long_help = SCHEMA)]
pub(crate) struct Arguments {
    /// Rounds; each runs every engine once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds that each sender writes
    #[arg(long, default_value_t = 3.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Engines, separated by commas; all that are there by default (iperf3-mptcp needs iperf3 and mptcpize)
    #[arg(long, value_delimiter = ',', value_parser = super::parse_contender)]
    engines: Vec<Contender>,
    /// Pairs of virtual Ethernet interfaces between the two hosts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    paths: u8,
    /// MTU of the interfaces in bytes [default: 1500]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1280..=65_500))]
    mtu: Option<u16>,
    /// Congestion control of our engines, by name
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const SCHEMA: &str = "\
JSON: rounds, seconds, paths, mtu_bytes, processors; ratio_to_kernel_mptcp (median over the rounds of ours-tun over \
kernel-mptcp or iperf3-mptcp, whichever was faster in that round); ratio_to_best_kernel_mptcp (median of ours-tun over the best of all their runs); rows, one for each engine: contender, gbit_per_s, \
cpu_s_per_gb (user and system time of both processes for 1e9 bytes), machine_s_per_gb (busy time of the whole machine, \
which includes interrupts and whatever else runs), ratio_to_kernel_mptcp, ratio_to_kernel_tcp, each {median, min, max}; \
runs, one for each run: contender, round, gbit_per_s, bytes, cpu_per_gb {user_s, system_s, machine_s, interrupts_s}, \
path_shares.";

pub(crate) fn run(arguments: &Arguments, policies: &Policies) -> Result<(), Failure> {
    let congestion = arguments.congestion.as_deref();
    let congestion = congestion.map(|name| chosen(policies, "--congestion", name)).transpose()?;
    let contenders = match arguments.engines.as_slice() {
        [] => Contender::ALL
            .into_iter()
            .filter(|&contender| contender != Contender::Iperf3Mptcp || throughput::has_iperf3())
            .collect(),
        chosen => chosen.to_vec(),
    };
    let config = ThroughputConfig {
        rounds: arguments.rounds,
        seconds: arguments.seconds,
        contenders,
        paths: arguments.paths,
        mtu_bytes: arguments.mtu,
        congestion,
    };
    let bar = super::progress(u64::from(config.rounds) * config.contenders.len() as u64);
    let result = throughput::run(&config, |run| {
        bar.set_message(format!("{} {:.2} Gbit/s", run.contender, run.gbit_per_s));
        bar.inc(1);
    });
    bar.finish_and_clear();
    let result = result.map_err(Failure::run)?;
    if arguments.json { print_json(&result) } else { print_table(&result) }
}

fn print_table(result: &ThroughputResult) -> Result<(), Failure> {
    print_line(&format!(
        "One connection over {} paths of MTU {}, {} rounds of {} s, {} processors; medians, range in brackets",
        result.paths, result.mtu_bytes, result.rounds, result.seconds, result.processors
    ))?;
    print_line(&format!(
        "{:<14}{:>24}{:>14}{:>18}{:>24}",
        "engine", "Gbit/s", "CPU s/GB", "machine CPU s/GB", "times kernel MPTCP"
    ))?;
    for row in &result.rows {
        print_line(&format!(
            "{:<14}{:>24}{:>14.2}{:>18.2}{:>24}",
            row.contender,
            spread(row.gbit_per_s),
            row.cpu_s_per_gb.median,
            row.machine_s_per_gb.median,
            row.ratio_to_kernel_mptcp.map_or("-".to_string(), spread),
        ))?;
    }
    if let Some(ratio) = result.ratio_to_best_kernel_mptcp {
        print_line(&format!(
            "ours-tun's median is {ratio:.2} times the best run of the kernel's Multipath TCP"
        ))?;
    }
    Ok(())
}

fn spread(spread: Spread) -> String {
    format!("{:.2} [{:.2} .. {:.2}]", spread.median, spread.min, spread.max)
}
