//! A file over two emulated access links, one of which is cut midway and comes back.
//!
//! Both hosts live in this process and run the production stack; the links between them are the link crate's, stepped
//! against the wall clock or, with [`Clock::Virtual`], as fast as the machine can.

mod baseline;
mod charts;
#[cfg(feature = "full")]
pub(crate) mod namespaces;
mod path;
mod shown;
mod summary;
mod transfer;
mod words;

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) use baseline::{Baselines, Beside, Provenance, measure_baselines};
#[cfg(feature = "full")]
pub(crate) use baseline::{KernelBaselines, aggregation_benefit};
use bytes::Bytes;
pub(crate) use path::{Cut, DemoPath};
use polypath_link::Change;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_sim::app::App;
use polypath_sim::network::{AppId, LinkId, Network, NodeId};
use polypath_sim::topologies::{PathConfig, parallel_paths};
use polypath_sim::trace::TraceOutputs;
use polypath_system::{Timed, run_in_real_time};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Endpoint;
use serde::Serialize;
pub(crate) use shown::Shown;
pub(crate) use summary::{report, table};
use transfer::{Client, Progress, Server};
pub(crate) use words::{faster, list, seconds, sentence};

/// What to show.
#[derive(Clone, Debug)]
pub(crate) struct Demo {
    /// The access links.
    pub(crate) paths: Vec<DemoPath>,
    /// The file's content.
    pub(crate) content: Bytes,
    /// A path that goes down and comes back.
    pub(crate) cut: Option<Cut>,
    /// Settings of both ends.
    pub(crate) connection: ConnectionConfig,
    /// How time passes.
    pub(crate) clock: Clock,
    /// Seed of everything random.
    pub(crate) seed: u64,
    /// Give up after this long.
    pub(crate) limit: Duration,
}

/// How time passes in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// As on the wall.
    Real,
    /// At once.
    Virtual,
}

/// One sample of a running transfer, for progress displays and charts.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Sample {
    /// Seconds since the connection was opened.
    pub(crate) at_s: f64,
    /// Bytes that the client has of the file.
    pub(crate) received_bytes: u64,
    /// By path.
    pub(crate) paths: Vec<PathSample>,
}

/// A path in a [`Sample`].
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct PathSample {
    /// Payload acknowledged so far, over all subflows that the path has had; where the kernel sends, payload that arrived.
    pub(crate) acked_bytes: u64,
    /// What its link has carried to the client so far, headers and repeats included.
    pub(crate) carried_bytes: u64,
    /// Congestion window in bytes; zero while there is no subflow.
    pub(crate) cwnd_bytes: u64,
    /// Smoothed round-trip time in milliseconds; zero while there is none.
    pub(crate) srtt_ms: f64,
    /// The link is down.
    pub(crate) down: bool,
}

/// What came of a transfer.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Outcome {
    /// The whole file arrived.
    pub(crate) complete: bool,
    /// Seconds from opening the connection to the last byte.
    pub(crate) duration_s: f64,
    /// The file's length over the duration, in bits per second.
    pub(crate) goodput_bps: f64,
    /// Bytes that arrived.
    pub(crate) received_bytes: u64,
    /// SHA-256 of what was sent, in hexadecimal.
    pub(crate) sent_sha256: String,
    /// SHA-256 of what arrived.
    pub(crate) received_sha256: String,
    /// The longest time in which nothing arrived, in seconds, after the first byte.
    pub(crate) longest_gap_s: f64,
    /// When that began, in seconds since the connection was opened.
    pub(crate) longest_gap_from_s: f64,
    /// Samples, 100 ms apart.
    pub(crate) samples: Vec<Sample>,
}

impl Outcome {
    /// All bytes arrived, unchanged.
    #[must_use]
    pub(crate) fn is_intact(&self) -> bool {
        self.complete && self.sent_sha256 == self.received_sha256
    }
}

/// Between two samples.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

const PORT: u16 = 80;

/// The transfer while it runs.
struct Running {
    demo: Demo,
    network: Network,
    server: NodeId,
    client_addrs: Vec<IpAddr>,
    links: Vec<LinkId>,
    serving: AppId,
    progress: Rc<RefCell<Progress>>,
    is_over: bool,
    totals: PathTotals,
    samples: Vec<Sample>,
}

/// Payload that a path has carried.
#[derive(Clone, Copy, Debug, Default)]
struct PathTotal {
    ended_bytes: u64,
    current_bytes: u64,
}

/// Payload of subflows that are gone, and of living ones, by path.
#[derive(Clone, Debug)]
struct PathTotals(Vec<PathTotal>);

impl PathTotals {
    fn new(paths: usize) -> Self {
        Self(vec![PathTotal::default(); paths])
    }

    /// What is known without looking at the subflows.
    fn sample(&self, now: Instant, cut: Option<Cut>) -> Sample {
        let path = |(path, total): (usize, &PathTotal)| PathSample {
            acked_bytes: total.ended_bytes + total.current_bytes,
            down: cut.is_some_and(|cut| cut.path == path && cut.contains(now)),
            ..PathSample::default()
        };
        Sample {
            at_s: now.as_secs_f64(),
            received_bytes: 0,
            paths: self.0.iter().enumerate().map(path).collect(),
        }
    }

    /// Takes in what the living subflows have carried, by path.
    fn note(&mut self, current: &[u64], sample: &mut Sample) {
        for ((total, current), path) in self.0.iter_mut().zip(current).zip(&mut sample.paths) {
            // Fewer than before: a subflow ended, and another may have begun.
            if *current < total.current_bytes {
                total.ended_bytes += total.current_bytes;
            }
            total.current_bytes = *current;
            path.acked_bytes = total.ended_bytes + total.current_bytes;
        }
    }
}

/// Transfers at the same time, each over links of its own.
struct Race(Vec<Running>);

impl Timed for Race {
    fn next_event_at(&self) -> Option<Instant> {
        self.0.iter().filter_map(|running| running.network.next_event_at()).min()
    }

    fn run_until(&mut self, now: Instant) {
        for running in &mut self.0 {
            running.network.run_until(now);
        }
    }
}

impl Race {
    /// Takes the samples that are due; all are over.
    fn step(&mut self, now: Instant, watch: &mut impl FnMut(usize, &Sample)) -> bool {
        for (number, running) in self.0.iter_mut().enumerate().filter(|(_, running)| !running.is_over) {
            running.sample(now);
            if let Some(sample) = running.samples.last() {
                watch(number, sample);
            }
        }
        self.0.iter().all(|running| running.is_over)
    }
}

impl Demo {
    /// Runs the transfer.
    ///
    /// # Errors
    /// A trace that can't be written.
    pub(crate) fn run(&self) -> io::Result<Outcome> {
        let running = self.start(TraceOutputs::default())?;
        Ok(self.finish(running, |_, _| {})?.remove(0))
    }

    /// Runs the transfer and another at the same time, each over links of its own; `watch` sees the samples of both, by
    /// number, and `traces` are of the first.
    ///
    /// # Errors
    /// A trace that can't be written.
    pub(crate) fn run_beside(
        &self,
        other: &Self,
        traces: TraceOutputs,
        watch: impl FnMut(usize, &Sample),
    ) -> io::Result<[Outcome; 2]> {
        let mut race = self.start(traces)?;
        race.0.extend(other.start(TraceOutputs::default())?.0);
        let outcomes = self.finish(race, watch)?;
        outcomes.try_into().map_err(|_| io::Error::other("two transfers have two outcomes"))
    }

    fn finish(&self, mut race: Race, mut watch: impl FnMut(usize, &Sample)) -> io::Result<Vec<Outcome>> {
        match self.clock {
            Clock::Real => {
                run_in_real_time(&mut race, Instant::ZERO, SAMPLE_INTERVAL, |race, now| {
                    race.step(now, &mut watch)
                });
            }
            Clock::Virtual => {
                let mut now = Instant::ZERO;
                while !race.step(now, &mut watch) {
                    now += SAMPLE_INTERVAL;
                    race.run_until(now);
                }
            }
        }
        let ended = race.0.into_iter().map(|mut running| {
            if let Some(tracer) = running.network.take_tracer() {
                tracer.finish()?;
            }
            let progress = running.progress.borrow();
            Ok(running.demo.outcome(&progress, running.network.now(), running.samples.clone()))
        });
        ended.collect()
    }

    fn start(&self, traces: TraceOutputs) -> io::Result<Race> {
        let connection = Arc::new(self.connection.clone());
        let config = HostConfig { connection, ..HostConfig::default() };
        let paths = self.paths.iter().map(|path| PathConfig::symmetric(path.name.clone(), path.link()));
        let (builder, net) = parallel_paths(self.seed, paths, config.clone(), config);
        let is_traced = traces.pcapng.is_some() || traces.qlog.is_some();
        let tracer = if is_traced { Some(builder.tracer(traces)?) } else { None };
        let mut network = builder.build();
        network.set_tracer(tracer);
        if let Some(cut) = self.cut {
            self.schedule_cut(&mut network, net.links[cut.path], cut);
        }
        let progress = Rc::new(RefCell::new(Progress::new(self.content.len() as u64)));
        let remote = Endpoint::new(net.server_addr, PORT);
        let server_app = App::Custom(Box::new(Server::new(self.content.clone())));
        let serving = network.with_host(net.server, |_, host| {
            host.stack.listen(remote).map(|_| host.accept(PORT, server_app)).map_err(io::Error::other)
        })?;
        let local = Endpoint::new(net.client_addrs[0], 0);
        let client_app = App::Custom(Box::new(Client::new(progress.clone())));
        network.with_host(net.client, |now, host| {
            let app = host.add(client_app);
            host.stack
                .connect(now, local, remote, None)
                .map(|id| host.bind(id, app))
                .map_err(io::Error::other)
        })?;
        Ok(Race(vec![Running {
            demo: self.clone(),
            network,
            server: net.server,
            totals: PathTotals::new(net.client_addrs.len()),
            client_addrs: net.client_addrs,
            links: net.links,
            serving,
            progress,
            is_over: false,
            samples: Vec::new(),
        }]))
    }

    fn schedule_cut(&self, network: &mut Network, link: LinkId, cut: Cut) {
        for (at, change) in [(cut.from, Change::Down), (cut.to, Change::Up)] {
            network.schedule(Instant::ZERO + at, move |network| {
                network.change(link.forward(), change.clone());
                network.change(link.backward(), change);
            });
        }
    }

    fn outcome(&self, progress: &Progress, now: Instant, samples: Vec<Sample>) -> Outcome {
        let duration = progress.finished_at.unwrap_or(now).since(Instant::ZERO);
        let goodput = BitRate::from_bytes_over(progress.received_bytes, duration);
        let (gap_from, gap) = progress.longest_gap(now);
        Outcome {
            complete: progress.received_bytes == self.content.len() as u64,
            duration_s: duration.as_secs_f64(),
            goodput_bps: goodput.as_bps() as f64,
            received_bytes: progress.received_bytes,
            sent_sha256: transfer::sha256(&self.content),
            received_sha256: progress.sha256(),
            longest_gap_s: gap.as_secs_f64(),
            longest_gap_from_s: gap_from.as_secs_f64(),
            samples,
        }
    }
}

impl Running {
    /// Notes where the transfer is; the server sends, so its view of the subflows counts.
    fn sample(&mut self, now: Instant) {
        let mut sample = self.totals.sample(now, self.demo.cut);
        sample.received_bytes = self.progress.borrow().received_bytes;
        for (path, link) in sample.paths.iter_mut().zip(&self.links) {
            path.carried_bytes = self.network.channel_stats(link.backward()).delivered_bytes;
        }
        let host = self.network.host(self.server);
        let info = host.info(self.serving).unwrap_or_default();
        self.network.note_subflows(&info);
        let mut current = vec![0; self.client_addrs.len()];
        for subflow in &info.subflows {
            let Some(path) = self.client_addrs.iter().position(|addr| *addr == subflow.tuple.remote.addr)
            else {
                continue;
            };
            current[path] += subflow.tcp.bytes_acked;
            sample.paths[path].cwnd_bytes += subflow.tcp.cwnd_bytes;
            sample.paths[path].srtt_ms = subflow.tcp.srtt.as_millis_f64();
        }
        self.totals.note(&current, &mut sample);
        self.samples.push(sample);
        self.is_over = self.progress.borrow().is_over() || now.since(Instant::ZERO) >= self.demo.limit;
    }
}
