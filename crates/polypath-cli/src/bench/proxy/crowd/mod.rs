//! `polypath bench proxy-crowd`: thousands of clients at once through one proxy, for minutes. What it holds, what becomes of their bytes, and how long
//! somebody waits who comes along.

mod clients;
pub(crate) mod echo;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use polypath_system::Namespace;
use polypath_system::process::{descriptor_limit, raise_descriptor_limit};
use serde::Serialize;

use super::client::{Service, Way};
use super::figures::Times;
use super::scene::{ORIGIN, Scene};
use super::system::{self, System};
use crate::bench::outcome::monotonic_s;
use crate::bench::program::Program;
use crate::bench::{BenchError, Spread};
use clients::{Comers, Counted, Crowd};

/// How long the passer-by is alone.
const QUIET: Duration = Duration::from_secs(5);
/// Between two times that it comes.
const PASSING: Duration = Duration::from_millis(50);
/// Looks at the proxy, in all.
const LOOKS: u32 = 60;
/// For connections to end when all have gone.
const LEAVING: Duration = Duration::from_secs(30);
/// What it asks and is answered.
const WORDS_BYTES: usize = 64;
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

/// From the call of `connect` until the answer to the first bytes is there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Delay {
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) times: usize,
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
    let quiet = quiet.end()?;
    let begun = Instant::now();
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
    let passed = passing.end()?;
    let counted = crowd.end()?;
    let left = Instant::now();
    let after = loop {
        let after = look(0)?;
        if after.sockets <= before.sockets || left.elapsed() > LEAVING {
            break after;
        }
        thread::sleep(PASSING);
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
        before,
        looks,
        after,
    })
}

fn row(name: &'static str, ours: f64, bound: f64) -> CrowdRow {
    CrowdRow { name, ours, bound, held: ours <= bound }
}

/// The median of memory in the last quarter, for that of the second one: in the first one they come.
fn growth(looks: &[Look]) -> f64 {
    let quarter = looks.len() / 4;
    let median = |looks: &[Look]| {
        Spread::of(looks.iter().map(|look| look.memory_bytes as f64)).map_or(f64::NAN, |spread| spread.median)
    };
    median(&looks[3 * quarter..]) / median(&looks[quarter..2 * quarter])
}

/// A client that comes again and again, asks one thing and goes.
struct PasserBy {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<io::Result<io::Result<Vec<f64>>>>,
}

impl PasserBy {
    fn begin(client: &Namespace, origin: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, client) = (is_over.clone(), client.clone());
        let thread = thread::spawn(move || client.run(|| pass_by(origin, &over)));
        Self { is_over, thread }
    }

    fn end(self) -> io::Result<Delay> {
        self.is_over.store(true, Relaxed);
        let seconds = self.thread.join().map_err(|_| io::Error::other("a thread of a client died"))??;
        let times = Times::of(seconds?);
        let ms = |percent| times.percentile_us(percent) / 1e3;
        Ok(Delay { median: ms(50.0), p99: ms(99.0), max: ms(100.0), times: times.count() })
    }
}

fn pass_by(origin: SocketAddr, is_over: &AtomicBool) -> io::Result<Vec<f64>> {
    let mut seconds = Vec::new();
    for service in Service::ALL.into_iter().cycle() {
        if is_over.load(Relaxed) {
            break;
        }
        let called_s = monotonic_s();
        let mut stream = Way { service: Some(service), origin }.connect()?;
        stream.write_all(&[7; WORDS_BYTES])?;
        stream.read_exact(&mut [0; WORDS_BYTES])?;
        seconds.push(monotonic_s() - called_s);
        stream.shutdown(Shutdown::Write)?;
        if stream.read(&mut [0])? != 0 {
            return Err(io::Error::other("an answer was longer than its question"));
        }
        thread::sleep(PASSING);
    }
    Ok(seconds)
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
