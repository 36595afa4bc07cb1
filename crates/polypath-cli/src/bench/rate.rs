//! `polypath bench rate`: small requests, each over a connection of its own.

use serde::Serialize;

use super::host::{Ground, Hosts};
use super::peer::Role;
use super::{BenchError, Contender, Spread};

/// What to compare.
#[derive(Clone, Debug)]
pub(crate) struct RateConfig {
    /// Rounds; each runs every contender once for every size and concurrency.
    pub rounds: u32,
    /// Time that requests are made.
    pub seconds: f64,
    /// Who takes part; iperf3 can't.
    pub contenders: Vec<Contender>,
    /// Sizes of the answers, in bytes.
    pub answer_bytes: Vec<u64>,
    /// Requests at a time.
    pub concurrent: Vec<u32>,
    /// Pairs of virtual Ethernet interfaces between the hosts.
    pub paths: u8,
}

/// One run of one contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RateRun {
    /// Who.
    pub contender: Contender,
    /// Counted from 0.
    pub round: u32,
    /// Size of each answer.
    pub answer_bytes: u64,
    /// Requests at a time.
    pub concurrent: u32,
    /// Requests that were answered in full.
    pub requests: u64,
    /// Requests that were not.
    pub failures: u64,
    /// Why the last that failed did.
    pub last_failure: Option<String>,
    /// Answered requests over time.
    pub requests_per_s: f64,
    /// User and system time of client and server, for each answered request.
    pub cpu_us_per_request: f64,
}

/// The runs of one contender at one size and concurrency together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RateRow {
    /// Who.
    pub contender: Contender,
    /// Size of each answer.
    pub answer_bytes: u64,
    /// Requests at a time.
    pub concurrent: u32,
    /// Answered requests per second.
    pub requests_per_s: Spread,
    /// User and system time of client and server, for each answered request.
    pub cpu_us_per_request: Spread,
    /// Requests that failed, in all rounds.
    pub failures: u64,
    /// Rate over that of the kernel's Multipath TCP in the same round.
    pub ratio_to_kernel_mptcp: Option<Spread>,
    /// Rate over that of the kernel's TCP in the same round.
    pub ratio_to_kernel_tcp: Option<Spread>,
}

/// The comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RateResult {
    /// Rounds.
    pub rounds: u32,
    /// Seconds of a run.
    pub seconds: f64,
    /// Paths.
    pub paths: u8,
    /// One for each contender, size and concurrency.
    pub rows: Vec<RateRow>,
    /// Every run.
    pub runs: Vec<RateRun>,
}

/// Runs the comparison; `on_run` is told of each run when it has ended.
pub(crate) fn run(config: &RateConfig, mut on_run: impl FnMut(&RateRun)) -> Result<RateResult, BenchError> {
    let mut runs = Vec::new();
    let cases: Vec<(u64, u32)> = config
        .answer_bytes
        .iter()
        .flat_map(|&bytes| config.concurrent.iter().map(move |&concurrent| (bytes, concurrent)))
        .collect();
    for round in 0..config.rounds {
        for &(answer_bytes, concurrent) in &cases {
            for &contender in &config.contenders {
                let run = run_once(config, contender, round, answer_bytes, concurrent)?;
                on_run(&run);
                runs.push(run);
            }
        }
    }
    let rows = cases
        .iter()
        .flat_map(|&case| config.contenders.iter().map(move |&contender| (case, contender)))
        .filter_map(|(case, contender)| row(&runs, case, contender))
        .collect();
    Ok(RateResult { rounds: config.rounds, seconds: config.seconds, paths: config.paths, rows, runs })
}

fn row(runs: &[RateRun], case: (u64, u32), contender: Contender) -> Option<RateRow> {
    let of = |who: Contender| {
        runs.iter().filter(move |run| (run.answer_bytes, run.concurrent) == case && run.contender == who)
    };
    let ratio_to = |other: Contender| {
        let pairs = of(contender).filter_map(|run| {
            let peer = of(other).find(|peer| peer.round == run.round)?;
            Some(run.requests_per_s / peer.requests_per_s)
        });
        Spread::of(pairs)
    };
    Some(RateRow {
        contender,
        answer_bytes: case.0,
        concurrent: case.1,
        requests_per_s: Spread::of(of(contender).map(|run| run.requests_per_s))?,
        cpu_us_per_request: Spread::of(of(contender).map(|run| run.cpu_us_per_request))?,
        failures: of(contender).map(|run| run.failures).sum(),
        ratio_to_kernel_mptcp: ratio_to(Contender::KernelMptcp),
        ratio_to_kernel_tcp: ratio_to(Contender::KernelTcp),
    })
}

fn run_once(
    config: &RateConfig,
    contender: Contender,
    round: u32,
    answer_bytes: u64,
    concurrent: u32,
) -> Result<RateRun, BenchError> {
    let hosts = Hosts::direct(Ground::of(contender, config.paths))?;
    let server = hosts.start(Role::Answer, config.seconds)?;
    let role = Role::Ask { answer_bytes, concurrent, seconds: config.seconds };
    let asked = hosts.start(role, config.seconds)?.finish()?;
    let answered = server.finish()?;
    if asked.requests == 0 {
        let message = asked.last_failure.unwrap_or_else(|| "no request was answered".to_string());
        return Err(BenchError::Peer { contender, role: "client", message });
    }
    let cpu_s = asked.user_s + asked.system_s + answered.user_s + answered.system_s;
    Ok(RateRun {
        contender,
        round,
        answer_bytes,
        concurrent,
        requests: asked.requests,
        failures: asked.failures,
        last_failure: asked.last_failure,
        requests_per_s: asked.requests as f64 / asked.seconds,
        cpu_us_per_request: cpu_s * 1e6 / asked.requests as f64,
    })
}
