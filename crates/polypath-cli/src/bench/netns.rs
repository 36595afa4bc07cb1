//! The laboratory's runs in real time: two processes in network namespaces of their own, joined by emulated paths.

mod over_http;

use std::time::Duration;

use polypath_emulate::{DirectionStatistics, EmulatedLink, Emulation};
use polypath_lab::experiment::{Job, Topology};
use polypath_lab::run::{
    Backend, BackendError, Buffer, DatagramTraffic, Flavour, PathOutcome, StreamTraffic, VariantKind,
};
use polypath_lab::{Outcome, PathSet, Variant, Workload};
use polypath_link::queue;
use polypath_mptcp::scheduler;
use polypath_testbed::{Side, Testbed};

use super::host::{Ground, Hosts};
use super::peer::Role;
use super::timed::Settings;
use super::{BenchError, Contender};

/// Most paths of a set: each has a network of its own.
const MOST_PATHS: usize = 8;

/// Whose protocol runs at the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoints {
    /// Ours, behind TUN devices.
    Polypath,
    /// The kernel's, with its own scheduler and path manager.
    Kernel,
}

/// Runs over emulated paths between network namespaces (Linux, root), one at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Netns {
    /// Whose protocol it is.
    pub endpoints: Endpoints,
}

impl Backend for Netns {
    fn check(&self, job: &Job) -> Result<(), BackendError> {
        if job.topology != Topology::Parallel {
            return Err(unfit("this backend has parallel paths only; use the backend sim"));
        }
        self.check_run(&job.set, &job.variant, &job.workload)
    }

    fn run(&self, job: &Job) -> Result<Outcome, BackendError> {
        self.run_set(&job.set, &job.variant, &job.workload, job.seed)
    }
}

fn unfit(message: impl Into<String>) -> BackendError {
    BackendError::Unfit(message.into())
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> BackendError {
    BackendError::Failed(error.into())
}

fn is_installed(program: &str) -> bool {
    std::process::Command::new(program).arg("-v").output().is_ok()
}

/// The kernel has the congestion control of a variant.
fn must_have_congestion(variant: &Variant) -> Result<(), BackendError> {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let known = known.map_err(failed)?;
    let name = variant.congestion.name();
    if !known.split_whitespace().any(|known| known == name) {
        return Err(unfit(format!("this kernel has no {name}; it has {}", known.trim())));
    }
    Ok(())
}

impl Netns {
    fn check_run(&self, set: &PathSet, variant: &Variant, workload: &Workload) -> Result<(), BackendError> {
        match workload {
            Workload::Bulk { .. } | Workload::Transfer { .. } => {}
            Workload::Download { .. } | Workload::Stream(_) => {
                if self.endpoints == Endpoints::Kernel {
                    return Err(unfit(
                        "downloads and streams go over the system's TCP; use the backend netns",
                    ));
                }
                for program in ["nginx", "openssl"] {
                    if !is_installed(program) {
                        return Err(unfit(format!("downloads and streams need {program}; install it")));
                    }
                }
                must_have_congestion(variant)?;
            }
            Workload::Blocks { .. } | Workload::Requests { .. } | Workload::Datagrams(_) => {
                let message = format!(
                    "this backend carries bulk and transfer traffic, downloads and streams, no {workload}"
                );
                return Err(unfit(message + "; use the backend sim"));
            }
        }
        if !(1..=MOST_PATHS).contains(&set.paths.len()) {
            return Err(unfit(format!("{} paths; this backend has 1 to {MOST_PATHS}", set.paths.len())));
        }
        if set.line.discipline != queue::Policy::default() {
            return Err(unfit(format!(
                "links in real time have no queue discipline {}",
                set.line.discipline
            )));
        }
        if set.paths.iter().any(|path| path.change.is_some()) {
            return Err(unfit("links in real time stay as they are; use the backend sim"));
        }
        if variant.mtu_bytes.is_some() {
            return Err(unfit("links in real time have packets of 1500 bytes; use the backend sim"));
        }
        if variant.carrier.is_some() {
            return Err(unfit(
                "no aggregator carries the packets of this backend's hosts; use the backend sim",
            ));
        }
        if variant.kind == VariantKind::SplitPackets || variant.flavour != Flavour::default() {
            return Err(unfit(
                "the stacks of this backend have one way to repair losses; use the backend sim",
            ));
        }
        if variant.acquainted {
            return Err(unfit("hosts of this backend have never talked before; use the backend sim"));
        }
        if self.endpoints == Endpoints::Kernel {
            if matches!(variant.buffer, Buffer::Bytes(_)) {
                return Err(unfit(
                    "the kernel counts its own overhead in buffers, so they have no fixed size",
                ));
            }
            if variant.kind == VariantKind::Multipath && variant.scheduler != scheduler::Policy::default() {
                return Err(unfit(format!("the kernel has no scheduler {}", variant.scheduler)));
            }
            must_have_congestion(variant)?;
        }
        if !rustix::process::geteuid().is_root() {
            return Err(unfit("this backend makes network namespaces; run as root"));
        }
        Ok(())
    }

    /// Runs `workload` by `variant` over `set`, as [`polypath_lab::run_set`] does in virtual time. `seed` is that of
    /// random loss; the rest of the luck is real.
    ///
    /// # Errors
    /// If this backend can't do that, or something failed.
    pub(crate) fn run_set(
        &self,
        set: &PathSet,
        variant: &Variant,
        workload: &Workload,
        seed: u64,
    ) -> Result<Outcome, BackendError> {
        self.check_run(set, variant, workload)?;
        if let Some(outcome) = over_http::run(set, variant, workload, seed).map_err(failed)? {
            return Ok(outcome);
        }
        let (bytes, limit) = match *workload {
            Workload::Transfer { bytes, timeout } => (Some(bytes), timeout),
            Workload::Bulk { duration }
            | Workload::Blocks { duration, .. }
            | Workload::Datagrams(DatagramTraffic { duration, .. }) => (None, duration),
            Workload::Requests { timeout, .. }
            | Workload::Download { timeout, .. }
            | Workload::Stream(StreamTraffic { timeout, .. }) => (None, timeout),
        };
        let initial_path = variant.initial_path(set, workload, seed);
        let measured = self.measure(set, variant, initial_path, bytes, limit.as_secs_f64(), seed);
        let (started_s, arrivals, paths) = measured.map_err(failed)?;
        let arrivals: Vec<(f64, u64)> =
            arrivals.into_iter().map(|(at_s, total)| (at_s - started_s, total)).collect();
        let in_time = || arrivals.iter().take_while(|(at_s, _)| *at_s <= limit.as_secs_f64());
        let received_bytes = in_time().last().map_or(0, |(_, total)| *total);
        let completion_s =
            bytes.and_then(|bytes| in_time().find(|(_, total)| *total >= bytes)).map(|(at, _)| *at);
        let span_s = completion_s.unwrap_or(limit.as_secs_f64());
        Ok(Outcome {
            received_bytes,
            goodput_bps: received_bytes as f64 * 8.0 / span_s.max(1e-9),
            completion_s,
            initial_path,
            paths,
            ..Outcome::default()
        })
    }

    #[allow(clippy::type_complexity, reason = "used once")]
    fn measure(
        &self,
        set: &PathSet,
        variant: &Variant,
        initial_path: usize,
        bytes: Option<u64>,
        limit_s: f64,
        seed: u64,
    ) -> Result<(f64, Vec<(f64, u64)>, Vec<PathOutcome>), BenchError> {
        let contender = match (self.endpoints, variant.kind) {
            (Endpoints::Polypath, _) => Contender::OursTun,
            (Endpoints::Kernel, VariantKind::Multipath) => Contender::KernelMptcp,
            // Packets are not split here, which was told before.
            (Endpoints::Kernel, VariantKind::SinglePath | VariantKind::SplitPackets) => Contender::KernelTcp,
        };
        let paths = set.paths.len() as u8;
        let initial_path = initial_path as u8;
        let ground = Ground { initial_path, ..Ground::of(contender, paths) };
        let mut hosts = Hosts::with_middle(ground)?;
        hosts.settings = Some(Settings::of(&variant.connection(set)));
        if self.endpoints == Endpoints::Kernel {
            set_up_kernel(&hosts.testbed, set)?;
        }
        let middle = hosts.testbed.middle.as_ref();
        let middle = middle.ok_or_else(|| std::io::Error::other("hosts without anything between them"))?;
        let emulation = Emulation::start(middle, links_of(set, seed)).map_err(std::io::Error::from)?;
        hosts.testbed.make_neighbours(neighbours_wait(set))?;

        let receiver = hosts.start(Role::Collect, limit_s)?;
        let before = emulation.statistics()?;
        let sent = hosts.start(Role::Carry { bytes, seconds: limit_s }, limit_s)?.finish()?;
        let after = emulation.statistics()?;
        let received = receiver.finish()?;
        if received.reset_s.is_some_and(|at_s| at_s < sent.started_s + limit_s) {
            return Err(std::io::Error::other("the connection was reset before its time was over").into());
        }
        let outcomes = before.iter().zip(&after);
        let outcomes = outcomes.map(|(before, after)| counted(&before.forward, &after.forward)).collect();
        Ok((sent.started_s, received.arrivals, outcomes))
    }
}

/// The paths between two hosts.
fn links_of(set: &PathSet, seed: u64) -> Vec<EmulatedLink> {
    let links = (0..).zip(&set.paths).map(|(number, path)| EmulatedLink {
        a: format!("client{number}"),
        b: format!("server{number}"),
        forward: set.link(path),
        backward: set.link(path),
        middleboxes: set.line.middleboxes.clone(),
        seed: seed.wrapping_add(number),
    });
    links.collect()
}

/// What went over one direction of a path meanwhile.
fn counted(before: &DirectionStatistics, after: &DirectionStatistics) -> PathOutcome {
    let (before, after) = (before.link, after.link);
    PathOutcome {
        delivered_bytes: after.delivered_bytes - before.delivered_bytes,
        delivered_packets: after.delivered_packets - before.delivered_packets,
        queue_drops: after.queue_drops - before.queue_drops,
        lost_packets: after.lost_packets - before.lost_packets,
    }
}

/// Room for buffers that are never the limit.
fn set_up_kernel(testbed: &Testbed, set: &PathSet) -> Result<(), BenchError> {
    // Half of it may be the kernel's overhead, and growing it takes as much again.
    let most_bytes = (4 * set.recommended_buffer_bytes()).clamp(8 << 20, 1 << 30);
    for side in [Side::Client, Side::Server] {
        let namespace = testbed.namespace(side);
        namespace.set_variable("net/ipv4/tcp_rmem", &format!("4096 131072 {most_bytes}"))?;
        namespace.set_variable("net/ipv4/tcp_wmem", &format!("4096 16384 {most_bytes}"))?;
    }
    Ok(())
}

/// How long the question for a hardware address, a packet, and the answer to it take at the most.
fn neighbours_wait(set: &PathSet) -> Duration {
    let longest = set.paths.iter().map(|path| path.rtt).max().unwrap_or_default();
    let lossy = set.paths.iter().any(|path| path.loss > 0.0);
    let patience = if lossy { 2000 } else { 50 };
    Duration::from_secs_f64(2.0 * longest.as_secs_f64()) + Duration::from_millis(patience)
}
