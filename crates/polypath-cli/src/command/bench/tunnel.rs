//! `polypath bench tunnel`.

mod flavours;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::bench::tunnel::{self, Row, System, TunnelConfig, TunnelResult, relay};
use crate::command::{Failure, complain, print_json, print_line};

#[derive(Args, Debug)]
#[command(after_long_help = SCHEMA)]
pub(crate) struct Arguments {
    /// How often each shows its throughput, by turns; medians count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each transfer and stream
    #[arg(long, default_value_t = 8.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Tunnels, separated by commas; all that are there by default
    #[arg(long, value_delimiter = ',', value_parser = parse_system)]
    systems: Vec<System>,
    /// Folder with wireguard-go and boringtun-cli, such as `make setup-tunnels` fills; else they are looked for as all programs are
    #[arg(long, value_name = "FOLDER")]
    peers: Option<PathBuf>,
    /// Instead, one TCP of the kernel through our tunnel over WLAN and HSPA, by congestion control and by what repairs losses
    #[arg(long, conflicts_with_all = ["systems", "peers"])]
    flavours: bool,
    /// Only flavours whose name contains this, such as "sack"
    #[arg(long, value_name = "TEXT", default_value = "", requires = "flavours")]
    only: String,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Relay {
    device: String,
    peer: Ipv4Addr,
    port: u16,
}

const SCHEMA: &str = "\
Four tunnels, one at a time between the same two hosts: `polypath` over all paths; wireguard-go and boringtun over the better path; and `udp-relay`, which \
puts packets into datagrams and protects nothing. Throughput is that of one connection of the kernel's TCP (CUBIC) over one pair of virtual Ethernet \
interfaces. All else is over two emulated paths of 20 and 10 Mbit/s with round trips of 20 and 60 ms and queues of 100 ms: one connection; a stream of datagrams at 80 % of the \
rates of the paths that the tunnel uses; small datagrams there and back beside a bulk transfer; and a transfer during which the better path loses all packets for half \
the seconds. Times of the processor are those of the tunnel's two processes, for 1e9 bytes of the connection.\n\n\
JSON: of polypath, null if it takes no part: throughput_ratio_to_wireguard and cpu_ratio_to_wireguard (medians over the rounds, to wireguard-go), tcp_share_of_sum (payload, of both paths' rates), udp_loss (share), \
jitter_ms, latency_under_load_ms (median), failover_gap_ms; rounds, seconds, lines (mbit_per_s, rtt_ms, queue_ms); rows: system, gbit_per_s, cpu_s_per_gb, machine_s_per_gb (the whole machine's busy \
time), throughput_ratio_to_wireguard, cpu_ratio_to_wireguard, each {median, min, max}, tcp_share_of_sum, stream {mbit_per_s, loss, reordered, jitter_ms}, latency_ms, latency_under_load_ms, \
failover {gap_ms, went_on (before the path came back), survived}; skipped: why, by name.\n\n\
With --flavours it is our tunnel alone, and one connection of the kernel's TCP through it: over WLAN of 4.8 Mbit/s and 10 ms, over HSPA of 3.2 Mbit/s and 100 ms, over both with WLAN first in the tunnel's file, \
and with HSPA first. Queues have 200 packets. The four run side by side, in namespaces of their own, each through a fresh tunnel; slow start counts. A flavour is each congestion control that the kernel has, with all else as Linux has it, and CUBIC without SACK, without DSACK, without F-RTO, without timestamps, or with \
tcp_reordering = 127; `newreno` is Reno without the first four; `split` is CUBIC with `tcp = \"split\"`. The benefit is 0 at what the better path gave the same flavour alone, 1 at the sum of both, and -1 at nothing.\n\n\
JSON of --flavours: rounds, seconds, wlan, hspa (mbit_per_s, rtt_ms, queue_ms); rows: name, congestion, variables (those of net/ipv4 that differ from Linux's), is_split, wlan_mbit_per_s, hspa_mbit_per_s, wlan_first and \
hspa_first {mbit_per_s, benefit_over_tcp}, each {median, min, max}; skipped: why, by name.";

fn parse_system(text: &str) -> Result<System, String> {
    System::ALL.into_iter().find(|system| system.name() == text).ok_or_else(|| {
        let names: Vec<&str> = System::ALL.iter().map(|system| system.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let length = Duration::from_secs_f64(arguments.seconds);
    if arguments.flavours {
        return flavours::run(&arguments.only, arguments.rounds, length, arguments.json);
    }
    let wanted = if arguments.systems.is_empty() { &System::ALL[..] } else { &arguments.systems };
    let (mut systems, mut skipped) = (Vec::new(), BTreeMap::new());
    for system in wanted {
        match system.find(arguments.peers.as_deref()) {
            Ok(program) => systems.push((*system, program)),
            Err(why) => {
                complain(&format!("SKIPPED {system}: {why}"));
                skipped.insert(system.name(), why);
            }
        }
    }
    let config = TunnelConfig { rounds: arguments.rounds, length, systems };
    let bar = super::progress(tunnel::steps(&config));
    let result = tunnel::run(&config, skipped, |message| {
        bar.set_message(message);
        bar.inc(1);
    });
    bar.finish_and_clear();
    let result = result.map_err(Failure::run)?;
    if arguments.json { print_json(&result) } else { print_table(&result) }
}

pub(crate) fn run_relay(arguments: &Relay) -> Result<(), Failure> {
    relay::run(&arguments.device, arguments.peer, arguments.port).map_err(Failure::run)
}

fn print_table(result: &TunnelResult) -> Result<(), Failure> {
    print_line(&format!(
        "Throughput over virtual Ethernet, medians of {}; then two paths of 20 and 10 Mbit/s, 20 and 60 ms; {} s each",
        result.rounds, result.seconds
    ))?;
    print_line(&format!(
        "{:<14}{:>8}{:>10}{:>14}{:>12}{:>10}{:>11}{:>12}{:>14}{:>10}  TCP",
        "tunnel",
        "Gbit/s",
        "CPU s/GB",
        "x wireguard",
        "share/sum",
        "UDP lost",
        "jitter ms",
        "idle RTT",
        "loaded RTT",
        "gap ms"
    ))?;
    result.rows.iter().try_for_each(|row| print_line(&line(row)))
}

fn line(row: &Row) -> String {
    let median = |spread: Option<crate::bench::Spread>| {
        spread.map_or("-".to_string(), |spread| format!("{:.2}", spread.median))
    };
    let tcp = match (row.failover.went_on, row.failover.survived) {
        (true, true) => "went on",
        (false, true) => "waited",
        (_, false) => "stood still",
    };
    format!(
        "{:<14}{:>8}{:>10}{:>14}{:>10.1} %{:>8.2} %{:>11.2}{:>12.1}{:>14.1}{:>10.0}  {tcp}",
        row.system,
        median(row.gbit_per_s),
        median(row.cpu_s_per_gb),
        median(row.throughput_ratio_to_wireguard),
        row.tcp_share_of_sum * 100.0,
        row.stream.loss * 100.0,
        row.stream.jitter_ms,
        row.latency_ms,
        row.latency_under_load_ms,
        row.failover.gap_ms,
    )
}
