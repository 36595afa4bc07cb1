//! `polypath bench proxy-crowd`: thousands of clients at once through one proxy, for minutes. What it holds, what becomes of their bytes, and how long
//! somebody waits who comes along.

mod clients;
pub(crate) mod echo;
mod passer_by;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use polypath_system::process::{descriptor_limit, raise_descriptor_limit};
use serde::Serialize;

use super::scene::{ORIGIN, Scene};
use super::system::{self, System};
use crate::bench::outcome::monotonic_s;
use crate::bench::program::Program;
use crate::bench::{BenchError, Spread};
use clients::{Comers, Counted, Crowd};
use passer_by::{Delay, PasserBy, Wait};

/// How long the passer-by is alone.
const QUIET: Duration = Duration::from_secs(5);
/// Between two looks for sockets that are left.
const LOOKING: Duration = Duration::from_millis(50);
/// Waits that are told with their time.
const WORST: usize = 5;
/// Looks at the proxy, in all.
const LOOKS: u32 = 60;
/// For connections to end when all have gone.
const LEAVING: Duration = Duration::from_secs(30);
/// Of its memory while all are there: the last quarter beside the second one.
const MOST_GROWTH: f64 = 1.05;
/// Of what somebody waits longer than alone.
const MOST_DELAY_MS: f64 = 100.0;
/// Of one connection in one process: two sockets.
const DESCRIPTORS: u64 = 2;
/// What a process has besides.
const SPARE_DESCRIPTORS: u64 = 100;

/// Who comes, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct CrowdConfig {
    /// Clients at a time.
    pub(crate) connections: usize,
    /// Those of them that are as slow as they can be.
    pub(crate) slow: usize,
    pub(crate) length: Duration,
    /// Which of ours, and its program.
    pub(crate) system: System,
    pub(crate) program: PathBuf,
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CrowdResult {
    pub(crate) rows: Vec<CrowdRow>,
    pub(crate) system: System,
    pub(crate) connections: usize,
    pub(crate) slow: usize,
    pub(crate) seconds: f64,
    pub(crate) counted: Counted,
    /// Of the passer-by, alone and in the crowd.
    pub(crate) quiet_ms: Delay,
    pub(crate) crowd_ms: Delay,
    /// The longest of its waits in the crowd, longest first.
    pub(crate) worst: Vec<Wait>,
    /// Packets that the machine dropped meanwhile, as more came than its queue holds (`net.core.netdev_max_backlog`). Who sent one waits 200 ms.
    pub(crate) dropped_packets: Option<u64>,
    pub(crate) before: Look,
    pub(crate) looks: Vec<Look>,
    pub(crate) after: Look,
}

/// A figure and its bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CrowdRow {
    pub(crate) name: &'static str,
    pub(crate) ours: f64,
    /// The most that it is to be.
    pub(crate) bound: f64,
    pub(crate) held: bool,
}

/// What the proxy's processes have, at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Look {
    /// Since the crowd began to come.
    pub(crate) at_s: f64,
    pub(crate) memory_bytes: u64,
    /// Pipes that wait for the next connection included.
    pub(crate) descriptors: u64,
    pub(crate) sockets: u64,
    pub(crate) cpu_s: f64,
    /// Clients with an open connection.
    pub(crate) open: u64,
}

/// Runs it; `on_look` is told what was seen, [`steps`] times.
pub(crate) fn run(config: &CrowdConfig, mut on_look: impl FnMut(&Look)) -> Result<CrowdResult, BenchError> {
    raise_descriptor_limit();
    check_descriptors(config)?;
    let scene = Scene::new()?;
    let folder = tempfile::tempdir()?;
    let origin = SocketAddr::from((ORIGIN, echo::PORT));
    let _echo = Program::spawn(echo::command()?, &scene.server, &folder.path().join("echo"))?;
    let mut program = system::start_all(config.system, &config.program, origin, &scene, folder.path())?;
    measure(config, &scene, origin, &program, &mut on_look).map_err(|error| program.explain(&error).into())
}

/// Looks, for a bar.
pub(crate) const fn steps() -> u64 {
    LOOKS as u64
}

/// The proxy has as few as we have.
fn check_descriptors(config: &CrowdConfig) -> Result<(), BenchError> {
    let sockets = if config.system == System::PolypathTun { 1 } else { DESCRIPTORS };
    let (needed, limit) = (config.connections as u64 * sockets + SPARE_DESCRIPTORS, descriptor_limit());
    if needed <= limit {
        return Ok(());
    }
    let most = (limit - SPARE_DESCRIPTORS.min(limit)) / sockets;
    let why = format!(
        "{} connections need {needed} descriptors in the proxy, and the system allows a process {limit}: \
         expected at most {most}, or a higher limit (ulimit -Hn)",
        config.connections
    );
    Err(io::Error::other(why).into())
}

fn measure(
    config: &CrowdConfig,
    scene: &Scene,
    origin: SocketAddr,
    program: &Program,
    on_look: &mut impl FnMut(&Look),
) -> io::Result<CrowdResult> {
    let quiet = PasserBy::begin(&scene.client, origin);
    thread::sleep(QUIET);
    let quiet = Delay::of(&quiet.end()?);
    let dropped_before = dropped_packets();
    let (begun, begun_s) = (Instant::now(), monotonic_s());
    let look = |open: u64| -> io::Result<Look> {
        Ok(Look {
            at_s: begun.elapsed().as_secs_f64(),
            memory_bytes: program.memory_bytes()?,
            descriptors: program.descriptors()?,
            sockets: program.sockets()?,
            cpu_s: program.cpu_s()?,
            open,
        })
    };
    let before = look(0)?;
    let comers = Comers { connections: config.connections, slow: config.slow, seed: config.seed };
    let crowd = Crowd::begin(&scene.client, origin, comers);
    let passing = PasserBy::begin(&scene.client, origin);
    let mut looks = Vec::new();
    for number in 1..=LOOKS {
        thread::sleep((config.length * number / LOOKS).saturating_sub(begun.elapsed()));
        let seen = look(crowd.open())?;
        on_look(&seen);
        looks.push(seen);
    }
    let mut waits = passing.end()?;
    let passed = Delay::of(&waits);
    let dropped_packets =
        dropped_before.zip(dropped_packets()).map(|(before, after)| after.saturating_sub(before));
    waits.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    waits.truncate(WORST);
    for wait in &mut waits {
        wait.at_s -= begun_s;
    }
    let counted = crowd.end()?;
    let left = Instant::now();
    let after = loop {
        let after = look(0)?;
        if after.sockets <= before.sockets || left.elapsed() > LEAVING {
            break after;
        }
        thread::sleep(LOOKING);
    };
    let delay_ms = passed.max - quiet.median;
    let rows = vec![
        row("memory-growth", growth(&looks), MOST_GROWTH),
        row("wrong-bytes", counted.wrong_bytes as f64, 0.0),
        row("cut-short", counted.cut_short as f64, 0.0),
        row("refused", counted.refused as f64, 0.0),
        row("sockets-left", after.sockets.saturating_sub(before.sockets) as f64, 0.0),
        row("honest-delay-ms", delay_ms, MOST_DELAY_MS),
    ];
    Ok(CrowdResult {
        rows,
        system: config.system,
        connections: config.connections,
        slow: config.slow,
        seconds: config.length.as_secs_f64(),
        counted,
        quiet_ms: quiet,
        crowd_ms: passed,
        worst: waits,
        dropped_packets,
        before,
        looks,
        after,
    })
}

fn row(name: &'static str, ours: f64, bound: f64) -> CrowdRow {
    CrowdRow { name, ours, bound, held: ours <= bound }
}

/// Packets that this machine has dropped since its start, as they came faster than it took them (second column of `softnet_stat`).
fn dropped_packets() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").ok()?;
    text.lines().map(|line| u64::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok()).sum()
}

/// The median of memory in the last quarter, for that of the second one: in the first one they come.
fn growth(looks: &[Look]) -> f64 {
    let quarter = looks.len() / 4;
    let median = |looks: &[Look]| {
        Spread::of(looks.iter().map(|look| look.memory_bytes as f64)).map_or(f64::NAN, |spread| spread.median)
    };
    median(&looks[3 * quarter..]) / median(&looks[quarter..2 * quarter])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_from_the_first_who_come() {
        let look =
            |memory_bytes| Look { at_s: 0.0, memory_bytes, descriptors: 0, sockets: 0, cpu_s: 0.0, open: 0 };
        let looks: Vec<Look> = [1, 2, 100, 100, 101, 100, 110, 112].map(look).into();
        assert!((growth(&looks) - 1.11).abs() < 1e-9);
    }

    #[test]
    fn who_needs_more_descriptors_than_there_are_is_told_so() {
        let config = CrowdConfig {
            connections: usize::MAX / 4,
            slow: 0,
            length: QUIET,
            system: System::PolypathTcp,
            program: PathBuf::new(),
            seed: 0,
        };
        let error = check_descriptors(&config).expect_err("too many").to_string();
        assert!(error.contains("expected at most"), "{error}");
        assert!(check_descriptors(&CrowdConfig { connections: 10, ..config }).is_ok());
    }
}
