//! `polypath bench emulate`.

use crate::bench::emulate::{self, EmulateConfig, EmulateResult, RateError};
use clap::Args;
use polypath_config::quantity::parse_span;
use polypath_units::Duration;

use crate::command::{Failure, print_json, print_line};

#[derive(Args, Debug)]
#[command(after_long_help = SCHEMA)]
pub(crate) struct Arguments {
    /// Rates of the link in Mbit/s, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "10,100,1000",
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    rates: Vec<u32>,
    /// Delay of the link in each direction
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_span)]
    delay: Duration,
    /// Seconds that each of four measurements at each rate takes
    #[arg(long, default_value_t = 3.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const SCHEMA: &str = "\
A link between network namespaces, emulated by a thread with one processor for itself. Bars: rates within 1 %, delays \
within 0.2 ms (99 of 100 packets), nothing lost at 95 % of the rate.\n\n\
JSON: delay_ms, seconds, is_pinned; rows, one for each rate: rate_mbit_per_s; udp (a load of 110 %) and tcp, each: \
mbit_per_s, error_percent, cpu_percent (of one processor, by the emulating thread); delay (one way, a packet in each \
millisecond, beyond what is configured): packets, unobserved_packets (in which the measuring thread had no processor), max_lateness_ms (by the emulator's own account), min_ms, median_ms, p99_ms, max_ms, cpu_percent; below_rate (a load of \
95 %): sent_packets, lost_packets, queue_drops, missed_packets, cpu_percent; is_within_bars.";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config = EmulateConfig {
        rates_mbit_per_s: arguments.rates.clone(),
        delay: arguments.delay,
        seconds: arguments.seconds,
    };
    let bar = super::progress(4 * config.rates_mbit_per_s.len() as u64);
    let result = emulate::run(&config, |step| {
        bar.set_message(step.to_string());
        bar.inc(1);
    });
    bar.finish_and_clear();
    let result = result.map_err(Failure::run)?;
    if arguments.json { print_json(&result) } else { print_table(&result) }
}

fn print_table(result: &EmulateResult) -> Result<(), Failure> {
    print_line(&format!(
        "An emulated link of {} ms, {} s for each measurement; CPU of the emulating thread{}",
        result.delay_ms,
        result.seconds,
        if result.is_pinned { ", on a processor for itself" } else { "" }
    ))?;
    print_line(&format!(
        "{:>7}  {:>18}{:>6}  {:>18}{:>6}  {:>29}{:>6}  {:>16}{:>6}  {}",
        "Mbit/s",
        "UDP 110 %, error",
        "CPU",
        "TCP, error",
        "CPU",
        "late: median/p99/max ms",
        "CPU",
        "lost at 95 %",
        "CPU",
        "bars"
    ))?;
    let rate = |rate: &RateError| {
        format!("{:>9.2} {:>+7.3}%{:>5.0}%", rate.mbit_per_s, rate.error_percent, rate.cpu_percent)
    };
    for row in &result.rows {
        print_line(&format!(
            "{:>7}  {:>24}  {:>24}  {:>29}{:>5.0}%  {:>16}{:>5.0}%  {}",
            row.rate_mbit_per_s,
            rate(&row.udp),
            rate(&row.tcp),
            format!("{:.3}/{:.3}/{:.3}", row.delay.median_ms, row.delay.p99_ms, row.delay.max_ms),
            row.delay.cpu_percent,
            format!("{} of {}", row.below_rate.lost_packets, row.below_rate.sent_packets),
            row.below_rate.cpu_percent,
            if row.is_within_bars { "met" } else { "MISSED" }
        ))?;
    }
    Ok(())
}
