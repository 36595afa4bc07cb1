//! `polypath bench`.

mod attacks;
mod backends;
mod behaviour;
mod disturbed;
mod emulate;
mod fetch;
mod fuzz;
mod handover;
mod never_slower;
mod proxy;
mod proxy_crowd;
mod rate;
mod state;
mod throughput;
mod tunnel;

use std::path::PathBuf;

use crate::bench::Contender;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use polypath_config::Policies;
use polypath_config::quantity::{Size, read};
use polypath_sim::trace::TraceOutputs;
use polypath_sim::{bench, matrix};
use polypath_units::Duration;
use serde::Serialize;

use super::{Failure, chosen, create_file, print_json, print_line};

#[derive(Debug, Subcommand)]
pub(super) enum Bench {
    /// Speed of the simulator: two paths of 100 Mbit/s, 100 simulated seconds
    Sim(Sim),
    /// Every middlebox, on every subflow, at either side, in both wire versions
    Middleboxes(Middleboxes),
    /// What the simulator gives, a line each with a hash: to show that a change of the code changes nothing else
    Behaviour(behaviour::Arguments),
    /// Floods and forgeries: what each costs its victims, beside what it may
    Attacks(attacks::Arguments),
    /// Two hosts, a hostile network and an attacker, in random runs: what must hold whatever happens
    Fuzz(fuzz::Arguments),
    /// Memory and speed of a host with many idle connections
    State(state::Arguments),
    /// One connection at full speed, beside the kernel's Multipath TCP and TCP (Linux, root)
    Throughput(throughput::Arguments),
    /// Small requests over fresh connections, beside the kernel's Multipath TCP and TCP (Linux, root)
    Rate(rate::Arguments),
    /// A path of a running transfer is lost and comes back, beside the kernel's Multipath TCP (Linux, root)
    Handover(handover::Arguments),
    /// Two paths against the better one alone, over a thousand sets of paths
    NeverSlower(never_slower::Arguments),
    /// The laboratory's simulator beside network namespaces in real time, and the kernel's Multipath TCP (Linux, root)
    Backends(backends::Arguments),
    /// A download over several interfaces, beside aria2 and curl (Linux, root)
    Fetch(fetch::Arguments),
    /// Downloads over two interfaces that something happens to: cut links, a lying server, a full disk, kill -9 (Linux, root)
    Disturbed(disturbed::Arguments),
    /// How exact emulated links are in rate and delay (Linux, root)
    Emulate(emulate::Arguments),
    /// A tunnel over two paths, beside wireguard-go, boringtun and a bare relay (Linux, root)
    Tunnel(tunnel::Arguments),
    /// Packets of a device in datagrams: what `bench tunnel` compares tunnels with
    #[command(hide = true)]
    TunnelRelay(tunnel::Relay),
    /// A forwarded port, HTTP's CONNECT and SOCKS, beside nginx, HAProxy, Squid, Dante and microsocks (Linux, root)
    Proxy(proxy::Arguments),
    /// Thousands of clients at once through our proxy, some as slow as they can be (Linux, root)
    ProxyCrowd(proxy_crowd::Arguments),
    /// What comes goes back: the server of `bench proxy-crowd`
    #[command(hide = true)]
    ProxyEcho,
    /// One end of a comparison: what the commands above start in their namespaces
    #[command(hide = true)]
    Peer(Peer),
}

#[derive(Args, Debug)]
pub(super) struct Peer {
    assignment: String,
}

#[derive(Args, Debug)]
pub(super) struct Sim {
    /// Connections, each with two paths of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: u16,
    /// Simulated seconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..))]
    seconds: u64,
    /// Congestion control by name
    #[arg(long, default_value = "lia")]
    congestion: String,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct Middleboxes {
    /// Only cases whose name contains this, such as "nat both client v1"
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Write one line for each packet; of the last case, if several run
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct MiddleboxResult {
    cases: usize,
    passed: usize,
    failures: Vec<String>,
}

pub(super) fn run(bench: &Bench, policies: &Policies) -> Result<(), Failure> {
    match bench {
        Bench::Sim(arguments) => sim(arguments, policies),
        Bench::Middleboxes(arguments) => middleboxes(arguments, policies),
        Bench::Behaviour(arguments) => behaviour::run(arguments),
        Bench::Attacks(arguments) => attacks::run(arguments),
        Bench::Fuzz(arguments) => fuzz::run(arguments),
        Bench::State(arguments) => state::run(arguments),
        Bench::Throughput(arguments) => throughput::run(arguments, policies),
        Bench::Rate(arguments) => rate::run(arguments),
        Bench::Handover(arguments) => handover::run(arguments),
        Bench::NeverSlower(arguments) => never_slower::run(arguments, policies),
        Bench::Backends(arguments) => backends::run(arguments, policies),
        Bench::Disturbed(arguments) => disturbed::run(arguments),
        Bench::Emulate(arguments) => emulate::run(arguments),
        Bench::Fetch(arguments) => fetch::run(arguments),
        Bench::Tunnel(arguments) => tunnel::run(arguments),
        Bench::TunnelRelay(arguments) => tunnel::run_relay(arguments),
        Bench::Proxy(arguments) => proxy::run(arguments),
        Bench::ProxyCrowd(arguments) => proxy_crowd::run(arguments),
        Bench::ProxyEcho => proxy_crowd::run_echo(),
        Bench::Peer(peer) => crate::bench::peer::run(&peer.assignment, policies).map_err(Failure::run),
    }
}

fn sim(arguments: &Sim, policies: &Policies) -> Result<(), Failure> {
    let result = bench::run(&bench::BenchConfig {
        connections: usize::from(arguments.connections),
        simulated: Duration::from_secs(arguments.seconds),
        congestion: chosen(policies, "--congestion", &arguments.congestion)?,
        ..bench::BenchConfig::default()
    });
    if arguments.json {
        return print_json(&result);
    }
    let least = result.path_utilisation.iter().copied().fold(f64::INFINITY, f64::min);
    print_line(&format!(
        "{:.2} million data packets per second ({} in {:.3} s), least path utilisation {:.1} %, peak {} kB",
        result.packets_per_s / 1e6,
        result.data_packets,
        result.wall_s,
        least * 100.0,
        result.peak_rss_kb
    ))
}

fn middleboxes(arguments: &Middleboxes, policies: &Policies) -> Result<(), Failure> {
    let mut result = MiddleboxResult { cases: 0, passed: 0, failures: Vec::new() };
    for case in matrix::cases(policies).iter().filter(|case| case.to_string().contains(&arguments.only)) {
        result.cases += 1;
        let text = arguments.trace.as_deref().map(create_file).transpose()?;
        let outputs = text.map(|text| TraceOutputs { text: Some(text), ..TraceOutputs::default() });
        match matrix::run_traced(case, outputs) {
            Ok(_) => result.passed += 1,
            Err(failure) => result.failures.push(failure.to_string()),
        }
    }
    if arguments.json {
        print_json(&result)?;
    } else {
        for failure in &result.failures {
            print_line(failure)?;
        }
        print_line(&format!("{} of {} cases passed", result.passed, result.cases))?;
    }
    match result.failures.first() {
        None => Ok(()),
        Some(failure) => Err(Failure::run(failure)),
    }
}

fn parse_contender(text: &str) -> Result<Contender, String> {
    Contender::ALL.into_iter().find(|contender| contender.name() == text).ok_or_else(|| {
        let names: Vec<&str> = Contender::ALL.iter().map(|contender| contender.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.05..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "expected a number of seconds from 0.05 to 3600".to_string())
}

fn parse_size(text: &str) -> Result<u64, String> {
    read(text).map(|Size(bytes)| bytes)
}

/// A bar on standard error, which shows only on a terminal.
fn progress(runs: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({eta} left)");
    ProgressBar::new(runs).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
