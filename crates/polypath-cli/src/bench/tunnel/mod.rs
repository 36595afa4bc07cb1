//! `polypath bench tunnel`: our tunnel beside WireGuard's programs in user space and a relay that protects nothing.

mod datagrams;
pub(crate) mod flavours;
mod flow;
mod keys;
pub(crate) mod relay;
mod scenes;
mod system;
mod uapi;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

pub(crate) use datagrams::Stream;
pub(crate) use scenes::Failover;
use scenes::{OnePath, Throughput, TwoPaths};
use system::Given;
pub(crate) use system::System;

use super::beside_kernel::scene::AccessLink;
use super::{BenchError, Spread};

/// The two paths of all scenes but that of throughput, the better one first.
const LINES: [AccessLink; 2] = [line(20.0, 20.0), line(10.0, 60.0)];
/// The longest that a packet may wait.
const QUEUE_MS: f64 = 100.0;
/// Of the sum of the rates: what streams send.
const STREAM_SHARE: f64 = 0.8;

const fn line(mbit_per_s: f64, rtt_ms: f64) -> AccessLink {
    AccessLink { mbit_per_s, rtt_ms, queue_ms: QUEUE_MS }
}

/// What to compare.
#[derive(Clone, Debug)]
pub(crate) struct TunnelConfig {
    /// How often each shows its throughput, by turns.
    pub(crate) rounds: u32,
    /// Of each transfer and stream.
    pub(crate) length: Duration,
    /// Who takes part, and the program of each.
    pub(crate) systems: Vec<(System, PathBuf)>,
}

/// All about one system.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) system: System,
    pub(crate) gbit_per_s: Option<Spread>,
    pub(crate) cpu_s_per_gb: Option<Spread>,
    pub(crate) machine_s_per_gb: Option<Spread>,
    /// Over wireguard-go's of the same round.
    pub(crate) throughput_ratio_to_wireguard: Option<Spread>,
    pub(crate) cpu_ratio_to_wireguard: Option<Spread>,
    /// What one connection got of the sum of both paths' rates.
    pub(crate) tcp_share_of_sum: f64,
    /// At 80 % of the rates of the paths that it uses.
    pub(crate) stream: Stream,
    /// Round trips of small datagrams, medians, without and beside a bulk transfer.
    pub(crate) latency_ms: f64,
    pub(crate) latency_under_load_ms: f64,
    pub(crate) failover: Failover,
}

/// The comparison. The first figures are those of our own tunnel.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TunnelResult {
    pub(crate) throughput_ratio_to_wireguard: Option<f64>,
    pub(crate) cpu_ratio_to_wireguard: Option<f64>,
    pub(crate) tcp_share_of_sum: Option<f64>,
    pub(crate) udp_loss: Option<f64>,
    pub(crate) jitter_ms: Option<f64>,
    pub(crate) latency_under_load_ms: Option<f64>,
    pub(crate) failover_gap_ms: Option<f64>,
    pub(crate) rounds: u32,
    pub(crate) seconds: f64,
    pub(crate) lines: [AccessLink; 2],
    pub(crate) rows: Vec<Row>,
    /// Who takes no part, and why.
    pub(crate) skipped: BTreeMap<&'static str, String>,
}

/// Measurements of a run, for a bar.
pub(crate) fn steps(config: &TunnelConfig) -> u64 {
    config.systems.len() as u64 * (u64::from(config.rounds) + TwoPaths::STEPS)
}

/// Runs the comparison; `on_step` is told what each measurement gave.
pub(crate) fn run(
    config: &TunnelConfig,
    skipped: BTreeMap<&'static str, String>,
    mut on_step: impl FnMut(String),
) -> Result<TunnelResult, BenchError> {
    let folder = tempfile::tempdir()?;
    let mut throughputs: Vec<Vec<Throughput>> = vec![Vec::new(); config.systems.len()];
    for _ in 0..config.rounds {
        for ((system, program), throughputs) in config.systems.iter().zip(&mut throughputs) {
            let measured = OnePath::start(*system, program, folder.path())?.throughput(config.length)?;
            on_step(format!("{system} {:.2} Gbit/s", measured.gbit_per_s));
            throughputs.push(measured);
        }
    }
    let mut rows = Vec::new();
    for (at, (system, program)) in config.systems.iter().enumerate() {
        let scene = TwoPaths::start(*system, program, Given::alone(folder.path()), &LINES)?;
        let latency_ms = scene.latency_ms(config.length / 4)?;
        let tcp_share_of_sum = scene.tcp_share(config.length)?;
        on_step(format!("{system} {:.1} % of the sum", tcp_share_of_sum * 100.0));
        let stream = scene.stream(STREAM_SHARE, config.length)?;
        on_step(format!("{system} {:.2} % lost", stream.loss * 100.0));
        let latency_under_load_ms = scene.latency_under_load_ms(config.length)?;
        on_step(format!("{system} {latency_under_load_ms:.0} ms under load"));
        let failover = scene.failover(config.length / 2)?;
        on_step(format!("{system} gap of {:.0} ms", failover.gap_ms));
        let own = &throughputs[at];
        let base = config.systems.iter().position(|(system, _)| *system == System::WireguardGo);
        let ratio = |of: fn(&Throughput) -> f64| {
            let base = &throughputs[base?];
            Spread::of(own.iter().zip(base).map(|(own, base)| of(own) / of(base)))
        };
        let spread = |of: fn(&Throughput) -> f64| Spread::of(own.iter().map(of));
        rows.push(Row {
            system: *system,
            gbit_per_s: spread(|run| run.gbit_per_s),
            cpu_s_per_gb: spread(|run| run.cpu_s_per_gb),
            machine_s_per_gb: spread(|run| run.machine_s_per_gb),
            throughput_ratio_to_wireguard: ratio(|run| run.gbit_per_s),
            cpu_ratio_to_wireguard: ratio(|run| run.cpu_s_per_gb),
            tcp_share_of_sum,
            stream,
            latency_ms,
            latency_under_load_ms,
            failover,
        });
    }
    let ours = rows.iter().find(|row| row.system == System::Polypath);
    let median = |of: fn(&Row) -> Option<Spread>| ours.and_then(of).map(|spread| spread.median);
    Ok(TunnelResult {
        throughput_ratio_to_wireguard: median(|row| row.throughput_ratio_to_wireguard),
        cpu_ratio_to_wireguard: median(|row| row.cpu_ratio_to_wireguard),
        tcp_share_of_sum: ours.map(|row| row.tcp_share_of_sum),
        udp_loss: ours.map(|row| row.stream.loss),
        jitter_ms: ours.map(|row| row.stream.jitter_ms),
        latency_under_load_ms: ours.map(|row| row.latency_under_load_ms),
        failover_gap_ms: ours.map(|row| row.failover.gap_ms),
        rounds: config.rounds,
        seconds: config.length.as_secs_f64(),
        lines: LINES,
        rows,
        skipped,
    })
}
