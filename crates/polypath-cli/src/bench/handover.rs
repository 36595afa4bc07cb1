//! `polypath bench handover`: a path of a running transfer is lost and comes back.

use std::thread;
use std::time::Duration;

use polypath_emulate::{EmulatedLink, Emulation};
use polypath_link::{Change, LinkConfig, QueueLimit};
use polypath_system::Netlink;
use polypath_testbed::Testbed;
use polypath_units::{BitRate, Duration as Span};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde::Serialize;

use super::host::{Ground, Hosts};
use super::outcome::monotonic_s;
use super::peer::Role;
use super::{BenchError, Contender, Spread};

/// Paths; losing one must leave another.
const PATHS: u8 = 2;

/// Longest wait in the queue before each path.
const QUEUE: Span = Span::from_millis(50);

/// What to compare.
#[derive(Clone, Debug)]
pub(crate) struct HandoverConfig {
    /// How often each path is lost in each manner by each contender.
    pub repeats: u32,
    /// Who takes part; iperf3 can't.
    pub contenders: Vec<Contender>,
    /// Rate of each path, in Mbit/s.
    pub rate_mbit_per_s: u32,
    /// Round-trip time of each path without queueing.
    pub rtts: [Span; PATHS as usize],
    /// Time before the loss, of the outage, and after it.
    pub phase: Duration,
    /// Of the moments at which paths are lost.
    pub seed: u64,
}

/// How a path is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Loss {
    /// The client's interface loses its carrier, as when a cable is pulled.
    Carrier,
    /// Packets vanish on their way, and both interfaces stay up.
    Silent,
}

impl Loss {
    const ALL: [Self; 2] = [Self::Carrier, Self::Silent];

    /// As in JSON.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Carrier => "carrier",
            Self::Silent => "silent",
        }
    }
}

/// One run of one contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HandoverRun {
    /// Who.
    pub contender: Contender,
    /// Counted from 0.
    pub repeat: u32,
    /// The path that was lost.
    pub path: u8,
    /// How.
    pub loss: Loss,
    /// The longest time from the loss on in which the receiving application got nothing; nothing if the transfer failed.
    /// Gaps below 2 ms count as 0.
    pub longest_gap_ms: Option<f64>,
    /// Longest gap before the loss, to compare with.
    pub longest_gap_before_ms: f64,
    /// What the receiver got in the whole run, in Mbit/s.
    pub mbit_per_s: f64,
    /// Why the transfer failed, if it did.
    pub failure: Option<String>,
}

/// The runs of one contender with one path and manner of loss together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HandoverRow {
    /// Who.
    pub contender: Contender,
    /// The path that was lost; the connection began on path 0.
    pub path: u8,
    /// How.
    pub loss: Loss,
    /// Of the runs that did not fail.
    pub longest_gap_ms: Option<Spread>,
    /// Runs whose transfer failed.
    pub failures: u32,
}

/// The comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HandoverResult {
    /// How often each path was lost in each manner by each contender.
    pub repeats: u32,
    /// Rate of each path.
    pub rate_mbit_per_s: u32,
    /// Round-trip time of each path without queueing.
    pub rtts_ms: [f64; PATHS as usize],
    /// Seed of the moments.
    pub seed: u64,
    /// One for each contender, path and manner of loss.
    pub rows: Vec<HandoverRow>,
    /// Every run.
    pub runs: Vec<HandoverRun>,
}

/// Runs the comparison; `on_run` is told of each run when it has ended.
pub(crate) fn run(
    config: &HandoverConfig,
    mut on_run: impl FnMut(&HandoverRun),
) -> Result<HandoverResult, BenchError> {
    let mut random = ChaCha8Rng::seed_from_u64(config.seed);
    let cases: Vec<(u8, Loss)> =
        (0..PATHS).flat_map(|path| Loss::ALL.into_iter().map(move |loss| (path, loss))).collect();
    let mut runs = Vec::new();
    for repeat in 0..config.repeats {
        for &(path, loss) in &cases {
            // The same moment for each contender.
            let later = Duration::from_micros(u64::from(random.next_u32() % 500_000));
            for &contender in &config.contenders {
                let run = run_once(config, contender, repeat, (path, loss), later)?;
                on_run(&run);
                runs.push(run);
            }
        }
    }
    let mut rows = Vec::new();
    for &(path, loss) in &cases {
        for &contender in &config.contenders {
            let own = || {
                runs.iter().filter(move |run| (run.contender, run.path, run.loss) == (contender, path, loss))
            };
            rows.push(HandoverRow {
                contender,
                path,
                loss,
                longest_gap_ms: Spread::of(own().filter_map(|run| run.longest_gap_ms)),
                failures: own().filter(|run| run.failure.is_some()).count() as u32,
            });
        }
    }
    let &HandoverConfig { repeats, rate_mbit_per_s, seed, .. } = config;
    let rtts_ms = config.rtts.map(Span::as_millis_f64);
    Ok(HandoverResult { repeats, rate_mbit_per_s, rtts_ms, seed, rows, runs })
}

fn run_once(
    config: &HandoverConfig,
    contender: Contender,
    repeat: u32,
    (path, loss): (u8, Loss),
    later: Duration,
) -> Result<HandoverRun, BenchError> {
    let hosts = Hosts::with_middle(Ground::of(contender, PATHS))?;
    let emulation = emulate_paths(&hosts.testbed, config)?;
    let before = config.phase + later;
    let seconds = (before + 2 * config.phase).as_secs_f64();
    let receiver = hosts.start(Role::Receive, seconds)?;
    let sender = hosts.start(Role::Send { seconds }, seconds)?;
    thread::sleep(before);
    let lost_at_s = monotonic_s();
    set_path(&hosts.testbed, &emulation, path, loss, false)?;
    thread::sleep(config.phase);
    set_path(&hosts.testbed, &emulation, path, loss, true)?;
    let sent = sender.finish();
    let received = receiver.finish();
    let mut run = HandoverRun {
        contender,
        repeat,
        path,
        loss,
        longest_gap_ms: None,
        longest_gap_before_ms: 0.0,
        mbit_per_s: 0.0,
        failure: None,
    };
    match sent.and_then(|sent| Ok((sent, received?))) {
        Ok((sent, received)) => {
            let longest = |is_after: bool| {
                let gaps =
                    received.gaps.iter().filter(|(at_s, gap_s)| (at_s + gap_s > lost_at_s) == is_after);
                gaps.map(|(_, gap_s)| gap_s * 1e3).fold(0.0, f64::max)
            };
            run.longest_gap_ms = Some(longest(true));
            run.longest_gap_before_ms = longest(false);
            run.mbit_per_s = received.bytes as f64 * 8e-6 / received.seconds;
            if sent.bytes != received.bytes {
                run.failure = Some(format!("{} bytes were sent, but {} arrived", sent.bytes, received.bytes));
                run.longest_gap_ms = None;
            }
        }
        Err(error) => run.failure = Some(error.to_string()),
    }
    Ok(run)
}

/// Joins the two halves of each path in the middle.
fn emulate_paths(testbed: &Testbed, config: &HandoverConfig) -> Result<Emulation, BenchError> {
    let rate = BitRate::from_mbps(config.rate_mbit_per_s.into());
    let links = (0..PATHS).zip(config.rtts).map(|(path, rtt)| {
        let link = LinkConfig::new(rate, rtt / 2, QueueLimit::Delay(QUEUE));
        EmulatedLink {
            a: format!("client{path}"),
            b: format!("server{path}"),
            forward: link.clone(),
            backward: link,
            middleboxes: Vec::new(),
            seed: config.seed.wrapping_add(path.into()),
        }
    });
    Ok(Emulation::start(middle(testbed)?, links.collect()).map_err(std::io::Error::from)?)
}

fn set_path(
    testbed: &Testbed,
    emulation: &Emulation,
    path: u8,
    loss: Loss,
    is_usable: bool,
) -> Result<(), BenchError> {
    let port = format!("client{path}");
    match (loss, is_usable) {
        (Loss::Carrier, false) => Ok(middle(testbed)?.run(|| Netlink::new()?.set_down(&port))??),
        (Loss::Carrier, true) => Ok(middle(testbed)?.run(|| Netlink::new()?.set_up(&port))??),
        (Loss::Silent, false) => Ok(emulation.change(path.into(), Change::Down)?),
        (Loss::Silent, true) => Ok(emulation.change(path.into(), Change::Up)?),
    }
}

fn middle(testbed: &Testbed) -> Result<&polypath_system::Namespace, BenchError> {
    let middle = testbed.middle.as_ref();
    middle.ok_or_else(|| std::io::Error::other("the hosts are joined without anything between them").into())
}
