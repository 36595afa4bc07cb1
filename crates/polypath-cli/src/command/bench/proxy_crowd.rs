//! `polypath bench proxy-crowd`.

use std::time::Duration;

use clap::Args;

use crate::bench::proxy::System;
use crate::bench::proxy::crowd::{self, CrowdConfig, CrowdResult, Look};
use crate::command::{Failure, print_json, print_line};

#[derive(Args, Debug)]
#[command(after_long_help = SCHEMA)]
pub(crate) struct Arguments {
    /// Clients at a time
    #[arg(long, default_value_t = 9900, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Those of them that are as slow as they can be
    #[arg(long, default_value_t = 3000)]
    slow: u32,
    /// Seconds, from the first who comes to the first who goes
    #[arg(long, default_value_t = 600.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Which of ours: polypath-tcp, polypath-kernel or polypath-tun
    #[arg(long, default_value = "polypath-tcp", value_parser = parse_system)]
    system: System,
    /// What clients say and when is drawn from this
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const SCHEMA: &str = "\
Clients, proxy and server are three hosts in a row, in network namespaces. A third of the clients each uses a forwarded port, HTTP's CONNECT and SOCKS. They come over 20 seconds. Each says something, hears it back, rests, up to eight times, and goes; \
one in twenty resets its connection. Then it comes again. Slow ones send an octet of their request a second, or read an octet a second. Somebody passes by twenty times a second, and asks one thing on a connection of its own.\n\n\
JSON: rows: name, ours, bound (the most it is to be), held. memory-growth is the median of the proxy's memory in the last quarter of the time, for that of the second one. wrong-bytes, cut-short and refused count what went wrong for those who are not slow. \
sockets-left is how many more the proxy has than before when all have gone. honest-delay-ms is the longest that the passer-by waited for its answer, less its median without the crowd. Then system, connections, slow, seconds, counted, quiet_ms and crowd_ms \
(the passer-by's times), before, looks and after (at_s, memory_bytes, descriptors, sockets, cpu_s, open).";

fn parse_system(text: &str) -> Result<System, String> {
    let ours = || System::ALL.into_iter().filter(|system| system.is_ours());
    ours().find(|system| system.name() == text).ok_or_else(|| {
        let names: Vec<&str> = ours().map(System::name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.slow > arguments.connections {
        return Err(Failure::Input(format!(
            "--slow {}: expected at most as many as --connections, {}",
            arguments.slow, arguments.connections
        )));
    }
    let config = CrowdConfig {
        connections: arguments.connections as usize,
        slow: arguments.slow as usize,
        length: Duration::from_secs_f64(arguments.seconds),
        system: arguments.system,
        program: arguments.system.find().map_err(Failure::Run)?,
        seed: arguments.seed,
    };
    let bar = super::progress(crowd::steps());
    let result = crowd::run(&config, |look| {
        bar.set_message(seen(look));
        bar.inc(1);
    });
    bar.finish_and_clear();
    let result = result.map_err(Failure::run)?;
    if arguments.json { print_json(&result) } else { print_table(&result) }
}

pub(crate) fn run_echo() -> Result<(), Failure> {
    crowd::echo::serve().map_err(Failure::run)
}

fn seen(look: &Look) -> String {
    let mb = look.memory_bytes as f64 / 1e6;
    format!("{} connections, {mb:.1} MB, {} descriptors", look.open, look.descriptors)
}

fn print_table(result: &CrowdResult) -> Result<(), Failure> {
    let counted = &result.counted;
    let last = result.looks.last().copied().unwrap_or(result.before);
    print_line(&format!(
        "{}: {} clients, {} of them slow, {} s: {} connections, {:.1} MB there and back; at the end {}",
        result.system,
        result.connections,
        result.slow,
        result.seconds,
        counted.begun + counted.slow_begun,
        counted.bytes as f64 / 1e6,
        seen(&last),
    ))?;
    let (quiet, crowd) = (&result.quiet_ms, &result.crowd_ms);
    print_line(&format!(
        "somebody who passes by waits {:.2} ms alone (median), in the crowd {:.2} (median), {:.2} (99 %), {:.2} (most)",
        quiet.median, crowd.median, crowd.p99, crowd.max
    ))?;
    if let Some(worst) = result.worst.first() {
        let dropped = result.dropped_packets.map_or("?".into(), |dropped| dropped.to_string());
        print_line(&format!(
            "the longest wait began after {:.1} s, by {}; the machine dropped {dropped} packets in all that time",
            worst.at_s,
            worst.service.name()
        ))?;
    }
    result.rows.iter().try_for_each(|row| {
        let verdict = if row.held { "held" } else { "not held" };
        print_line(&format!("{:<20}{:>12.2}  at most {:.2}; {verdict}", row.name, row.ours, row.bound))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ours_has_a_crowd() {
        assert_eq!(parse_system("polypath-tun"), Ok(System::PolypathTun));
        assert!(parse_system("nginx").is_err_and(|message| message.contains("polypath-kernel")));
    }
}
