//! `polypath bench throughput`: one connection, as fast as it goes.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use polypath_congestion as congestion;
use polypath_testbed::Testbed;
use serde::Serialize;

use super::host::{Ground, Hosts, MachineTime};
use super::peer::Role;
use super::{BenchError, Contender, CpuPerGb, Spread};

/// The kernel's Multipath TCP, whichever program uses it.
const KERNEL_MPTCP: [Contender; 2] = [Contender::KernelMptcp, Contender::Iperf3Mptcp];

/// What to compare.
#[derive(Clone, Debug)]
pub(crate) struct ThroughputConfig {
    /// Rounds; each runs every contender once.
    pub rounds: u32,
    /// Time that each sender writes.
    pub seconds: f64,
    /// Who takes part.
    pub contenders: Vec<Contender>,
    /// Pairs of virtual Ethernet interfaces between the hosts.
    pub paths: u8,
    /// MTU of the interfaces, in bytes; 1500 if not given.
    pub mtu_bytes: Option<u16>,
    /// Congestion control of our engines; theirs if not given. The kernel's has its own.
    pub congestion: Option<congestion::Policy>,
}

/// One run of one contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ThroughputRun {
    /// Who.
    pub contender: Contender,
    /// Counted from 0.
    pub round: u32,
    /// What arrived, over the time from the first byte to the end, in Gbit/s.
    pub gbit_per_s: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// What it cost.
    pub cpu_per_gb: CpuPerGb,
    /// Share of each path in what arrived.
    pub path_shares: Vec<f64>,
}

/// The runs of one contender together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ThroughputRow {
    /// Who.
    pub contender: Contender,
    /// In Gbit/s.
    pub gbit_per_s: Spread,
    /// User and system seconds of sender and receiver, for 1e9 bytes.
    pub cpu_s_per_gb: Spread,
    /// Busy seconds of the whole machine, for 1e9 bytes.
    pub machine_s_per_gb: Spread,
    /// Speed over the kernel's Multipath TCP in the same round.
    pub ratio_to_kernel_mptcp: Option<Spread>,
    /// Speed over the kernel's TCP in the same round.
    pub ratio_to_kernel_tcp: Option<Spread>,
}

/// The comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ThroughputResult {
    /// Rounds.
    pub rounds: u32,
    /// Seconds of a run.
    pub seconds: f64,
    /// Paths.
    pub paths: u8,
    /// In bytes.
    pub mtu_bytes: u16,
    /// Processors of this machine.
    pub processors: usize,
    /// One for each contender.
    pub rows: Vec<ThroughputRow>,
    /// Ours through TUN over the kernel's Multipath TCP: the median of the rounds. The kernel's speed is that of our
    /// program or of iperf3, whichever was faster in the round.
    pub ratio_to_kernel_mptcp: Option<f64>,
    /// The median speed of ours through TUN over the best run of the kernel's Multipath TCP: the kernel's speed varies
    /// much from run to run, and this does not hold its bad runs against it.
    pub ratio_to_best_kernel_mptcp: Option<f64>,
    /// Every run.
    pub runs: Vec<ThroughputRun>,
}

/// Runs the comparison; `on_run` is told of each run when it has ended.
pub(crate) fn run(
    config: &ThroughputConfig,
    mut on_run: impl FnMut(&ThroughputRun),
) -> Result<ThroughputResult, BenchError> {
    let mut runs = Vec::new();
    for round in 0..config.rounds {
        for &contender in &config.contenders {
            let run = run_once(config, contender, round)?;
            on_run(&run);
            runs.push(run);
        }
    }
    let rows: Vec<ThroughputRow> =
        config.contenders.iter().filter_map(|&contender| row(&runs, contender)).collect();
    let ours = rows.iter().find(|row| row.contender == Contender::OursTun);
    let kernel = rows.iter().filter(|row| KERNEL_MPTCP.contains(&row.contender));
    let best_kernel = kernel.map(|row| row.gbit_per_s.max).max_by(f64::total_cmp);
    Ok(ThroughputResult {
        rounds: config.rounds,
        seconds: config.seconds,
        paths: config.paths,
        mtu_bytes: config.mtu_bytes.unwrap_or(1500),
        processors: thread::available_parallelism()?.get(),
        ratio_to_kernel_mptcp: ours.and_then(|row| row.ratio_to_kernel_mptcp).map(|ratio| ratio.median),
        ratio_to_best_kernel_mptcp: ours.zip(best_kernel).map(|(row, best)| row.gbit_per_s.median / best),
        rows,
        runs,
    })
}

fn row(runs: &[ThroughputRun], contender: Contender) -> Option<ThroughputRow> {
    let own: Vec<&ThroughputRun> = runs.iter().filter(|run| run.contender == contender).collect();
    let ratio_to = |others: &[Contender]| {
        let mut best = BTreeMap::<u32, f64>::new();
        for run in runs.iter().filter(|run| others.contains(&run.contender)) {
            let best = best.entry(run.round).or_default();
            *best = best.max(run.gbit_per_s);
        }
        Spread::of(own.iter().filter_map(|run| Some(run.gbit_per_s / best.get(&run.round)?)))
    };
    Some(ThroughputRow {
        contender,
        gbit_per_s: Spread::of(own.iter().map(|run| run.gbit_per_s))?,
        cpu_s_per_gb: Spread::of(own.iter().map(|run| run.cpu_per_gb.user_s + run.cpu_per_gb.system_s))?,
        machine_s_per_gb: Spread::of(own.iter().map(|run| run.cpu_per_gb.machine_s))?,
        ratio_to_kernel_mptcp: ratio_to(&KERNEL_MPTCP),
        ratio_to_kernel_tcp: ratio_to(&[Contender::KernelTcp]),
    })
}

/// What both processes did.
struct Measured {
    bytes: u64,
    seconds: f64,
    user_s: f64,
    system_s: f64,
}

fn run_once(
    config: &ThroughputConfig,
    contender: Contender,
    round: u32,
) -> Result<ThroughputRun, BenchError> {
    let hosts = Hosts::direct(Ground {
        mtu_bytes: config.mtu_bytes,
        congestion: config.congestion.clone(),
        ..Ground::of(contender, config.paths)
    })?;
    let before = MachineTime::now()?;
    let measured = match contender {
        Contender::Iperf3Mptcp => run_iperf3(&hosts, config.seconds)?,
        _ => {
            let receiver = hosts.start(Role::Receive, config.seconds)?;
            let sender = hosts.start(Role::Send { seconds: config.seconds }, config.seconds)?;
            let (sent, received) = (sender.finish()?, receiver.finish()?);
            if sent.bytes != received.bytes {
                let message = format!("{} bytes were sent, but {} arrived", sent.bytes, received.bytes);
                return Err(BenchError::Peer { contender, role: "server", message });
            }
            Measured {
                bytes: received.bytes,
                seconds: received.seconds,
                user_s: sent.user_s + received.user_s,
                system_s: sent.system_s + received.system_s,
            }
        }
    };
    let (busy_s, interrupts_s) = MachineTime::now()?.since(before);
    let gigabytes = measured.bytes as f64 / 1e9;
    Ok(ThroughputRun {
        contender,
        round,
        gbit_per_s: 8.0 * gigabytes / measured.seconds,
        bytes: measured.bytes,
        cpu_per_gb: CpuPerGb {
            user_s: measured.user_s / gigabytes,
            system_s: measured.system_s / gigabytes,
            machine_s: busy_s / gigabytes,
            interrupts_s: interrupts_s / gigabytes,
        },
        path_shares: hosts.path_shares()?,
    })
}

/// Whether iperf3 and mptcpize are there.
#[must_use]
pub(crate) fn has_iperf3() -> bool {
    ["iperf3", "mptcpize"].iter().all(|program| {
        Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    })
}

fn iperf3(arguments: &[&str]) -> Command {
    let mut command = Command::new("mptcpize");
    command.args(["run", "iperf3"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run_iperf3(hosts: &Hosts, seconds: f64) -> Result<Measured, BenchError> {
    let missing = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => BenchError::Missing {
            program: "mptcpize",
            purpose: "to check the kernel's figures with iperf3",
            package: "mptcpize and iperf3",
        },
        _ => error.into(),
    };
    let refused =
        |message: String| BenchError::Peer { contender: Contender::Iperf3Mptcp, role: "client", message };
    let server = hosts.testbed.server.run(|| iperf3(&["-s", "-1"]).spawn())?.map_err(missing)?;
    let mut server = Reaped(server);
    let addr = Testbed::server_v4(0).to_string();
    // It counts in whole seconds.
    let seconds = seconds.ceil().max(1.0).to_string();
    let mut attempts = 0;
    let report = loop {
        let client = || iperf3(&["-c", &addr, "-t", &seconds, "-J"]).output();
        let output = hosts.testbed.client.run(client)?.map_err(missing)?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| refused(format!("a report that can't be read: {error}")))?;
        attempts += 1;
        match report["error"].as_str() {
            None => break report,
            // The server takes a moment to listen.
            Some(error) if error.contains("refused") && attempts < 50 => {
                thread::sleep(Duration::from_millis(20));
            }
            Some(error) => return Err(refused(error.to_string())),
        }
    };
    server.0.wait()?;
    let end = &report["end"];
    let number = |value: &serde_json::Value, what: &str| {
        value.as_f64().ok_or_else(|| refused(format!("the report has no {what}")))
    };
    let sent_s = number(&end["sum_sent"]["seconds"], "time of sending")?;
    let percent = |name: &str| number(&end["cpu_utilization_percent"][name], "processor time");
    Ok(Measured {
        bytes: number(&end["sum_received"]["bytes"], "bytes received")? as u64,
        seconds: number(&end["sum_received"]["seconds"], "time of receiving")?,
        user_s: (percent("host_user")? + percent("remote_user")?) / 100.0 * sent_s,
        system_s: (percent("host_system")? + percent("remote_system")?) / 100.0 * sent_s,
    })
}

/// A process that does not outlive its handle.
struct Reaped(std::process::Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // Fails when it has ended already, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
