//! The demo between network namespaces: a stock nginx on the kernel's Multipath TCP sends, our stack behind a TUN device
//! receives, and between them are emulated links (Linux, root).

mod error;
mod nginx;

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::time::Duration as SystemDuration;

pub(crate) use error::{MAX_PATHS, NamespaceError};
use http_body_util::BodyExt;
use hyper::Method;
use nginx::{FILE_NAME, Nginx};
use polypath_emulate::{EmulatedLink, Emulation};
use polypath_link::Change;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_stack::engine::{KernelEngine, socket_info};
use polypath_stack::{Engine, Stack, stack};
use polypath_system::tun::{Tun, TunConfig};
use polypath_system::{Namespace, WallClock};
use polypath_testbed::{Side, Testbed};
use polypath_units::Instant;

use super::transfer::Progress;
use super::{
    Baselines, Beside, Cut, Demo, KernelBaselines, Outcome, PathTotals, Provenance, SAMPLE_INTERVAL, Sample,
};
use crate::web;

/// Hosts, links and the server. All of it is gone when this is dropped, and when this process ends.
#[derive(Debug)]
pub(crate) struct Namespaces<'a> {
    demo: &'a Demo,
    stack: Stack,
    // In the order in which they end.
    server: Nginx,
    emulation: Emulation,
    testbed: Testbed,
    _tun: Tun,
}

impl<'a> Namespaces<'a> {
    /// Builds it all, for the paths and the content of a demo.
    ///
    /// Must be called within a tokio runtime. Needs root, nginx, mptcpize and iproute2.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub(crate) fn set_up(demo: &'a Demo) -> Result<Self, NamespaceError> {
        let paths = u8::try_from(demo.paths.len()).ok().filter(|paths| usize::from(*paths) <= MAX_PATHS);
        let paths = paths.ok_or(NamespaceError::TooManyPaths(demo.paths.len()))?;
        nginx::find_programs()?;
        let testbed = Testbed::with_middle(paths).map_err(NamespaceError::Namespaces)?;
        for namespace in [&testbed.client, &testbed.server] {
            // Each transfer finds out for itself what the paths are like.
            namespace.set_variable("net/ipv4/tcp_no_metrics_save", "1")?;
            namespace.set_variable("net/mptcp/enabled", "1").map_err(|_| NamespaceError::NoKernelMptcp)?;
            ip(namespace, "mptcp limits set subflows 8 add_addr_accepted 8")?;
        }
        let links = (0..paths).zip(&demo.paths).map(|(number, path)| EmulatedLink {
            a: format!("client{number}"),
            b: format!("server{number}"),
            forward: path.link(),
            backward: path.link(),
            middleboxes: Vec::new(),
            seed: demo.seed.wrapping_add(number.into()),
        });
        let middle = testbed.middle.as_ref().ok_or_else(|| io::Error::other("nothing between the hosts"))?;
        let emulation = Emulation::start(middle, links.collect())?;
        let server = Nginx::start(&testbed.server, &demo.content)?;
        let tun = testbed.attach_tun(Side::Client, &TunConfig::default())?;
        let connection = ConnectionConfig { tcp: stack::default_connection().tcp, ..demo.connection.clone() };
        let config = HostConfig {
            connection: connection.into(),
            endpoints: (0..paths)
                .map(|path| LocalEndpoint::subflow(Side::Client.stack_v4(path).into(), path + 1))
                .collect(),
            ..HostConfig::default()
        };
        let stack = Stack::tun(&tun, config)?;
        Ok(Self { demo, stack, server, emulation, testbed, _tun: tun })
    }

    /// What sends and what receives, as lines of a report.
    #[must_use]
    pub(crate) fn parameters(&self) -> Vec<(String, String)> {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default().trim().to_string();
        let here = |file: &'static str| self.testbed.server.run(move || read(file)).unwrap_or_default();
        let kernel = read("/proc/sys/kernel/osrelease");
        let congestion = here("/proc/sys/net/ipv4/tcp_congestion_control");
        let scheduler = here("/proc/sys/net/mptcp/scheduler");
        let server = format!(
            "{}, Multipath TCP of Linux {kernel}, scheduler {scheduler}, congestion control {congestion}",
            self.server.version()
        );
        let client = format!("Polypath {} behind a TUN device", env!("CARGO_PKG_VERSION"));
        [("Server", server), ("Client", client), ("Links", "emulated between network namespaces".into())]
            .map(|(name, value)| (name.to_string(), value))
            .to_vec()
    }

    /// The transfer, with the cut if there is one; `watch` sees each sample.
    ///
    /// # Errors
    /// What went wrong on the way.
    pub(crate) async fn run(&self, watch: impl FnMut(&Sample)) -> Result<Outcome, NamespaceError> {
        self.run_with(self.demo.cut, watch).await
    }

    async fn run_with(
        &self,
        cut: Option<Cut>,
        mut watch: impl FnMut(&Sample),
    ) -> Result<Outcome, NamespaceError> {
        let progress = RefCell::new(self.progress());
        let clock = WallClock::starting_at(Instant::ZERO);
        let mut samples = Vec::new();
        {
            let engine = Engine::Stack(self.stack.clone());
            let fetching = self.fetch(engine, Testbed::server_v4(0), clock, &progress);
            let watching = self.watch(clock, cut, |sample| {
                let sample = Sample { received_bytes: progress.borrow().received_bytes, ..sample };
                watch(&sample);
                samples.push(sample);
            });
            let cutting = self.cut(cut);
            tokio::select! {
                fetched = fetching => fetched?,
                never = watching => match never {},
                error = cutting => return Err(error.into()),
            }
        }
        // A cut that was to end later.
        self.set_down(cut, Change::Up)?;
        self.stack.drain(SystemDuration::from_secs(2)).await;
        Ok(self.demo.outcome(&progress.borrow(), clock.now(), samples))
    }

    /// The same file over TCP on each path alone, and over Multipath TCP without a cut, by our client and by the kernel's;
    /// `on_step` is told what comes next.
    ///
    /// # Errors
    /// What went wrong on the way.
    pub(crate) async fn measure_baselines(
        &self,
        mut on_step: impl FnMut(&str),
    ) -> Result<Baselines, NamespaceError> {
        on_step("Multipath TCP without a cut");
        let outcome = self.run_with(None, |_| {}).await?;
        let mptcp_bps = if outcome.is_intact() { outcome.goodput_bps } else { return Err(damaged()) };
        on_step("the kernel's Multipath TCP without a cut");
        for path in 1..self.testbed.paths() {
            let (address, interface) = (Testbed::server_v4(path), Testbed::interface(path));
            ip(&self.testbed.server, &format!("mptcp endpoint add {address} dev {interface} signal"))?;
        }
        let kernel = KernelEngine::new().in_namespace(self.testbed.client.clone());
        let kernel = Engine::Kernel(kernel);
        let server = Testbed::server_v4(0);
        let mptcp_bps_of_kernel = self.transfer(kernel.clone(), server, None).await?.goodput_bps;
        let with_cut = match self.demo.cut {
            Some(cut) => {
                on_step("the kernel's Multipath TCP with the cut");
                Some(self.transfer(kernel, server, Some(cut)).await?)
            }
            None => None,
        };
        on_step("TCP on each path alone");
        let plain = KernelEngine::plain_tcp().in_namespace(self.testbed.client.clone());
        // At the same time: they share nothing.
        let alone = (0..self.testbed.paths())
            .map(|path| self.transfer(Engine::Kernel(plain.clone()), Testbed::server_v4(path), None));
        let alone = futures_util::future::try_join_all(alone).await?;
        Ok(Baselines {
            tcp_alone_bps: alone.iter().map(|outcome| outcome.goodput_bps).collect(),
            mptcp_bps,
            kernel: Some(KernelBaselines {
                mptcp_bps: mptcp_bps_of_kernel,
                with_cut_bps: with_cut.as_ref().map(|outcome| outcome.goodput_bps),
                with_cut_longest_gap_s: with_cut.as_ref().map(|outcome| outcome.longest_gap_s),
            }),
            provenance: Provenance::Namespaces,
        })
    }

    /// The kernel's TCP on one path, under the cut if it is that path's.
    ///
    /// # Errors
    /// What went wrong on the way.
    pub(crate) async fn tcp_beside(&self, path: usize) -> Result<Beside, NamespaceError> {
        let number = u8::try_from(path).map_err(|_| NamespaceError::TooManyPaths(path))?;
        let tcp = Engine::Kernel(KernelEngine::plain_tcp().in_namespace(self.testbed.client.clone()));
        let progress = RefCell::new(self.progress());
        let clock = WallClock::starting_at(Instant::ZERO);
        let cut = self.demo.cut.filter(|cut| cut.path == path);
        let before = self.carried()?;
        let mut samples = Vec::new();
        let sampling = async {
            let mut totals = PathTotals::new(1);
            let mut tick = tokio::time::interval(SAMPLE_INTERVAL.into());
            loop {
                tick.tick().await;
                let now = clock.now();
                let mut sample = totals.sample(now, cut.map(|cut| Cut { path: 0, ..cut }));
                let received_bytes = progress.borrow().received_bytes;
                totals.note(&[received_bytes], &mut sample);
                if let Ok(carried) = self.carried() {
                    sample.paths[0].carried_bytes = carried[path] - before[path];
                }
                samples.push(Sample { received_bytes, ..sample });
            }
        };
        tokio::select! {
            fetched = self.fetch(tcp, Testbed::server_v4(number), clock, &progress) => fetched?,
            error = self.cut(cut) => return Err(error.into()),
            () = sampling => {}
        }
        self.set_down(cut, Change::Up)?;
        let outcome = self.demo.outcome(&progress.borrow(), clock.now(), samples);
        if outcome.is_intact() { Ok(Beside { path, outcome }) } else { Err(damaged()) }
    }

    /// What each link has carried to the client so far.
    fn carried(&self) -> io::Result<Vec<u64>> {
        let statistics = self.emulation.statistics()?;
        Ok(statistics.iter().map(|link| link.backward.link.delivered_bytes).collect())
    }

    fn progress(&self) -> Progress {
        Progress::new(self.demo.content.len() as u64)
    }

    /// A transfer by any client, without samples.
    async fn transfer(
        &self,
        engine: Engine,
        server: Ipv4Addr,
        cut: Option<Cut>,
    ) -> Result<Outcome, NamespaceError> {
        let progress = RefCell::new(self.progress());
        let clock = WallClock::starting_at(Instant::ZERO);
        tokio::select! {
            fetched = self.fetch(engine, server, clock, &progress) => fetched?,
            error = self.cut(cut) => return Err(error.into()),
        }
        self.set_down(cut, Change::Up)?;
        let outcome = self.demo.outcome(&progress.borrow(), clock.now(), Vec::new());
        if outcome.is_intact() { Ok(outcome) } else { Err(damaged()) }
    }

    async fn fetch(
        &self,
        engine: Engine,
        server: Ipv4Addr,
        clock: WallClock,
        progress: &RefCell<Progress>,
    ) -> Result<(), NamespaceError> {
        let fetching = async {
            let url = web::Client::parse(&format!("http://{server}/{FILE_NAME}"))?;
            let fetched = web::Client::new(engine).get(Method::GET, &url, &[]).await?;
            let status = fetched.response.status();
            if !status.is_success() {
                return Err(NamespaceError::Server(format!("it says {status}")));
            }
            let mut body = fetched.response.into_body();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| io::Error::other(format!("{url}: {error}")))?;
                if let Some(data) = frame.data_ref() {
                    progress.borrow_mut().add(clock.now(), data);
                }
            }
            Ok(())
        };
        let limit = tokio::time::timeout(self.demo.limit.into(), fetching).await;
        limit.unwrap_or(Err(NamespaceError::Timeout(self.demo.limit)))
    }

    /// Takes a path away and gives it back. Ends only with an error.
    async fn cut(&self, cut: Option<Cut>) -> io::Error {
        let Some(Cut { from, to, .. }) = cut else { return std::future::pending().await };
        tokio::time::sleep(from.into()).await;
        if let Err(error) = self.set_down(cut, Change::Down) {
            return error;
        }
        tokio::time::sleep((to - from).into()).await;
        match self.set_down(cut, Change::Up) {
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    }

    fn set_down(&self, cut: Option<Cut>, change: Change) -> io::Result<()> {
        cut.map_or(Ok(()), |cut| self.emulation.change(cut.path, change))
    }

    /// Samples until it is dropped. What has arrived by each path is our stack's to tell; windows and round-trip times are
    /// the sender's, which is the kernel.
    async fn watch(
        &self,
        clock: WallClock,
        cut: Option<Cut>,
        mut each: impl FnMut(Sample),
    ) -> std::convert::Infallible {
        let mut totals = PathTotals::new(self.demo.paths.len());
        let mut sender = None;
        let mut before: Option<Vec<u64>> = None;
        let mut tick = tokio::time::interval(SAMPLE_INTERVAL.into());
        loop {
            tick.tick().await;
            let now = clock.now();
            let mut sample = totals.sample(now, cut);
            if let Some((_, info)) = self.stack.connections().first() {
                let mut arrived = vec![0; self.demo.paths.len()];
                for subflow in &info.subflows {
                    if let Some(path) = self.path_of(subflow.tuple.local.addr) {
                        arrived[path] += subflow.tcp.bytes_received;
                    }
                }
                totals.note(&arrived, &mut sample);
            }
            // One transfer after another uses the links.
            let carried = self.carried().unwrap_or_default();
            let before = before.get_or_insert_with(|| carried.clone());
            for ((path, now), before) in sample.paths.iter_mut().zip(&carried).zip(before.iter()) {
                path.carried_bytes = now.saturating_sub(*before);
            }
            if sender.is_none() {
                sender = self.server.socket_to(Side::Client.stack_v4(0).into());
            }
            // Without it, the report has less to show.
            let info = sender.as_ref().and_then(|socket| socket_info(socket).ok()).unwrap_or_default();
            for subflow in &info.subflows {
                if let Some(path) = self.path_of(subflow.tuple.remote.addr) {
                    sample.paths[path].cwnd_bytes += subflow.tcp.cwnd_bytes;
                    sample.paths[path].srtt_ms = subflow.tcp.srtt.as_millis_f64();
                }
            }
            each(sample);
        }
    }

    /// The path that one of our stack's addresses belongs to.
    fn path_of(&self, addr: IpAddr) -> Option<usize> {
        (0..self.testbed.paths()).position(|path| IpAddr::from(Side::Client.stack_v4(path)) == addr)
    }
}

fn damaged() -> NamespaceError {
    NamespaceError::Server("another file arrived than was to be sent".into())
}

/// Runs iproute2's `ip`: the kernel's path manager is spoken to through it alone.
fn ip(namespace: &Namespace, command: &str) -> Result<(), NamespaceError> {
    let run = || Command::new("ip").args(command.split(' ')).stdin(Stdio::null()).output();
    let output = namespace.run(run)?.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NamespaceError::Missing {
            program: "ip",
            purpose: "sets the limits of the kernel's Multipath TCP",
            package: "iproute2",
        },
        _ => error.into(),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(NamespaceError::Refused { command: command.into(), message })
}
