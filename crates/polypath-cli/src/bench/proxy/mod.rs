//! `polypath bench proxy`: our proxy beside nginx, HAProxy, Squid, Dante and microsocks.

mod client;
pub(crate) mod crowd;
mod figures;
mod origin;
mod report;
mod scene;
mod system;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polypath_system::process::raise_descriptor_limit;
use serde::Serialize;

pub(crate) use client::Service;
use client::Way;
use figures::{Delays, Throughput, Times};
use origin::Origin;
use report::Samples;
pub(crate) use report::{Figure, Row};
use scene::Scene;
pub(crate) use system::System;

use super::program::Program;
use super::{BenchError, Spread};

/// Connections at a time where there are many.
const MANY: usize = 100;
/// Threads of the origin: more than there are connections at a time, for some may be about to end.
const ORIGIN_THREADS: usize = MANY + 28;
/// Exchanges of which delays are measured, for a second of the other measurements; bounded.
const EXCHANGES_PER_S: f64 = 1000.0;
const LEAST_EXCHANGES: f64 = 20.0;
const MOST_EXCHANGES: f64 = 4000.0;
/// Bytes of the answers to requests.
const REQUESTS: [(Figure, u64); 2] = [(Figure::Requests1k, 1000), (Figure::Requests100k, 100_000)];

/// What to compare.
#[derive(Clone, Debug)]
pub(crate) struct ProxyConfig {
    /// How often each is measured, by turns.
    pub(crate) rounds: u32,
    /// Of each transfer and of requests.
    pub(crate) length: Duration,
    /// Who takes part besides what there is without a proxy, and the program of each.
    pub(crate) systems: Vec<(System, PathBuf)>,
    /// What is asked of them.
    pub(crate) services: Vec<Service>,
}

/// The comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProxyResult {
    pub(crate) rows: Vec<Row>,
    /// What there was without a proxy, by figure. Delays are whole, and not what is added.
    pub(crate) direct: BTreeMap<&'static str, Spread>,
    pub(crate) rounds: u32,
    pub(crate) seconds: f64,
    /// Connections of which delays were measured, in each round.
    pub(crate) exchanges: usize,
    /// Who takes no part, and why.
    pub(crate) skipped: BTreeMap<&'static str, String>,
    /// What could not be measured, and why.
    pub(crate) failures: Vec<String>,
}

/// What runs in a round.
fn turns(config: &ProxyConfig) -> Vec<(Service, System, &Path)> {
    let of = |service: Service| {
        let able = config.systems.iter().filter(move |(system, _)| system.services().contains(&service));
        able.map(move |(system, program)| (service, *system, program.as_path()))
    };
    config.services.iter().copied().flat_map(of).collect()
}

/// Measurements of a run, for a bar.
pub(crate) fn steps(config: &ProxyConfig) -> u64 {
    u64::from(config.rounds) * (1 + turns(config).len() as u64)
}

/// Runs the comparison; `on_step` is told what was measured.
pub(crate) fn run(
    config: &ProxyConfig,
    skipped: BTreeMap<&'static str, String>,
    mut on_step: impl FnMut(String),
) -> Result<ProxyResult, BenchError> {
    raise_descriptor_limit();
    let seconds = config.length.as_secs_f64();
    let exchanges = (EXCHANGES_PER_S * seconds).clamp(LEAST_EXCHANGES, MOST_EXCHANGES) as usize;
    let (mut samples, mut failures) = (Samples::default(), Vec::new());
    for _ in 0..config.rounds {
        let mut site = Site::direct()?;
        // What delays are measured against has to be there.
        let direct = site.delays(exchanges)?;
        for (figure, times, percent) in parts(&direct) {
            samples.add(None, System::Direct, figure, times.percentile_us(percent));
        }
        let mut note = |figure, value| samples.add(None, System::Direct, figure, value);
        site.measure(config.length, &mut note).map_err(|(_, error)| error)?;
        on_step(System::Direct.to_string());
        for (service, system, program) in turns(config) {
            let mut note = |figure, value| samples.add(Some(service), system, figure, value);
            let measured = measure(system, program, service, config.length, (exchanges, &direct), &mut note);
            if let Err((what, error)) = measured {
                failures.push(format!("{system}, {}, {what}: {error}", service.name()));
            }
            on_step(format!("{system} {}", service.name()));
        }
    }
    Ok(ProxyResult {
        rows: samples.rows(),
        direct: samples.direct(),
        rounds: config.rounds,
        seconds,
        exchanges,
        skipped,
        failures,
    })
}

/// What of a measurement went wrong.
type Failed = (&'static str, io::Error);

/// All about one system, that does one service, once.
fn measure(
    system: System,
    program: &Path,
    service: Service,
    length: Duration,
    (exchanges, direct): (usize, &Delays),
    note: &mut impl FnMut(Figure, f64),
) -> Result<(), Failed> {
    let mut site = Site::with(system, program, service).map_err(|error| ("start", error))?;
    let delays = site.delays(exchanges).map_err(|error| ("delays", error))?;
    for ((figure, times, percent), (_, without, _)) in parts(&delays).into_iter().zip(parts(direct)) {
        // Half of what there is without a proxy is longer, too: its median tells it better than each of its percentiles.
        note(figure, times.percentile_us(percent) - without.percentile_us(50.0));
    }
    site.memory(note)?;
    site.measure(length, note)
}

/// Figures of delays, and what each is a percentile of.
fn parts(delays: &Delays) -> [(Figure, &Times, f64); 6] {
    [
        (Figure::SynMedian, &delays.syn, 50.0),
        (Figure::SynP99, &delays.syn, 99.0),
        (Figure::FirstByteMedian, &delays.first_byte, 50.0),
        (Figure::FirstByteP99, &delays.first_byte, 99.0),
        (Figure::EchoMedian, &delays.echo, 50.0),
        (Figure::EchoP99, &delays.echo, 99.0),
    ]
}

/// Clients, at most one proxy, and the origin.
struct Site {
    // It ends before the origin, which else waits for its connections.
    program: Option<Program>,
    origin: Origin,
    scene: Scene,
    service: Option<Service>,
    _folder: Option<tempfile::TempDir>,
}

impl Site {
    fn direct() -> Result<Self, BenchError> {
        let scene = Scene::new()?;
        let origin = Origin::start(&scene.server, ORIGIN_THREADS)?;
        Ok(Self { program: None, origin, scene, service: None, _folder: None })
    }

    fn with(system: System, program: &Path, service: Service) -> io::Result<Self> {
        let direct = Self::direct().map_err(io::Error::other)?;
        let folder = tempfile::tempdir()?;
        let what = (service, direct.origin.addr());
        let program = system::start(system, program, what, &direct.scene, folder.path())?;
        Ok(Self { program: Some(program), service: Some(service), _folder: Some(folder), ..direct })
    }

    fn way(&self) -> Way {
        Way { service: self.service, origin: self.origin.addr() }
    }

    fn explain(&mut self, what: &'static str) -> impl FnOnce(io::Error) -> Failed {
        move |error| {
            let error = match &mut self.program {
                Some(program) => program.explain(&error),
                None => error,
            };
            (what, error)
        }
    }

    fn delays(&mut self, exchanges: usize) -> io::Result<Delays> {
        let delays = figures::delays(&self.scene.client, self.way(), exchanges);
        delays.map_err(self.explain("delays")).map_err(|(_, error)| error)
    }

    fn settle(&mut self) -> Result<(), Failed> {
        figures::settle(&self.scene.client, self.way()).map_err(self.explain("a new connection"))
    }

    fn memory(&mut self, note: &mut impl FnMut(Figure, f64)) -> Result<(), Failed> {
        self.settle()?;
        let Some(program) = &self.program else { return Ok(()) };
        let bytes = figures::memory_per_connection(&self.scene.client, self.way(), program);
        self.origin.leave();
        note(Figure::Memory, bytes.map_err(self.explain("memory"))?);
        Ok(())
    }

    fn measure(&mut self, length: Duration, note: &mut impl FnMut(Figure, f64)) -> Result<(), Failed> {
        let one = self.throughput(1, length, "one connection")?;
        note(Figure::OneConnection, one.gbit_per_s);
        note(Figure::MachinePerGb, one.machine_s_per_gb);
        if let Some(cpu_s_per_gb) = one.cpu_s_per_gb {
            note(Figure::CpuPerGb, cpu_s_per_gb);
        }
        for (figure, bytes) in REQUESTS {
            self.settle()?;
            let rate = figures::requests_per_s(&self.scene.client, self.way(), bytes, length);
            note(figure, rate.map_err(self.explain(figure.name()))?);
        }
        note(Figure::HundredConnections, self.throughput(MANY, length, "hundred connections")?.gbit_per_s);
        Ok(())
    }

    fn throughput(
        &mut self,
        connections: usize,
        length: Duration,
        what: &'static str,
    ) -> Result<Throughput, Failed> {
        self.settle()?;
        let proxy = self.program.as_ref();
        let throughput = figures::throughput(&self.scene.client, self.way(), connections, length, proxy);
        throughput.map_err(self.explain(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_do_a_service_take_turns_at_it() {
        let config = ProxyConfig {
            rounds: 2,
            length: Duration::from_secs(1),
            systems: [System::Nginx, System::PolypathTcp, System::Squid]
                .map(|system| (system, PathBuf::new()))
                .into(),
            services: vec![Service::Forward, Service::Connect],
        };
        let turns: Vec<_> =
            turns(&config).into_iter().map(|(service, system, _)| (service, system)).collect();
        assert_eq!(
            turns,
            [
                (Service::Forward, System::Nginx),
                (Service::Forward, System::PolypathTcp),
                (Service::Connect, System::PolypathTcp),
                (Service::Connect, System::Squid),
            ]
        );
        assert_eq!(steps(&config), 10);
    }
}
