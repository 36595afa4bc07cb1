//! Downloads and adaptive streams over several interfaces in the simulator: the schedules and the HTTP that ship, over plain TCP.
//!
//! Each path has a connection of its own to a server that knows nothing of the others (K §6.2).

mod client;
mod movie;
mod origin;
mod pairs;
mod stream;
mod whole_file;
mod work;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use polypath_fetch::playback::History;
use polypath_fetch::schedule::Sizing;
use polypath_mptcp::scheduler::Policy;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_sim::app::{App, Pattern};
use polypath_sim::network::BoxPosition;
use polypath_sim::topologies::{PathConfig, parallel_paths};
use polypath_units::{Duration, Instant};
use polypath_wire::Endpoint;

use self::client::{Client, PathConnection};
pub use self::movie::Movie;
use self::origin::{Origin, Site};
pub use self::pairs::{Pair, PairRanges, run_pairs};
use self::stream::Streaming;
use self::whole_file::WholeFile;
use self::work::Work;
use crate::run::watch::{self, MaybeWatched};
use crate::run::{
    Outcome, PathOutcome, PathSet, PlaybackOutcome, Player, StreamTraffic, Variant, VariantKind, Workload,
};

/// The server's port of the first path; each has its own.
const PORT: u16 = 8000;

/// What is downloaded, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Download {
    /// Bytes of the file.
    pub total_bytes: u64,
    /// How large requests are.
    pub sizing: Sizing,
    /// When it is given up.
    pub timeout: Duration,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Downloaded {
    /// From the first SYN to the last byte; `None` if it was given up.
    pub took: Option<Duration>,
    /// When what came, came.
    pub history: History,
    /// Requests that were sent.
    pub requests: u64,
    /// Bytes of answers, by path, whether they were needed or not.
    pub path_bytes: Vec<u64>,
    /// Every byte was the right one.
    pub is_right: bool,
}

/// Downloads over these paths at once, by connections with congestion control CUBIC. Everything random follows from `seed`.
#[must_use]
pub fn run_download(set: &PathSet, download: &Download, seed: u64) -> Downloaded {
    let variant = Variant::multipath("download", Policy::default(), polypath_congestion::CUBIC);
    run(set, &variant, download, seed, None).0
}

/// The same as a variant says, and what is made of it.
pub(crate) fn download_over(
    set: &PathSet,
    variant: &Variant,
    download: &Download,
    player: Option<Player>,
    seed: u64,
    watch: MaybeWatched<'_>,
) -> Outcome {
    let (downloaded, mut outcome) = run(set, variant, download, seed, watch);
    let rate = player.map(|player| player.rate.as_bps() as f64 / 8.0);
    // Of what is not complete nobody sees the end.
    let playback = downloaded.history.playback(rate).filter(|_| downloaded.took.is_some());
    outcome.playback = playback.map(|playback| PlaybackOutcome {
        rate_bps: playback.bytes_per_second * 8.0,
        startup_s: playback.startup_latency.as_secs_f64(),
        buffer_bytes: playback.required_buffer_bytes,
        blocked_bytes: playback.most_blocked_bytes,
    });
    outcome
}

/// An adaptive stream of the sample movie over these paths, as a variant says.
pub(crate) fn stream_over(
    set: &PathSet,
    variant: &Variant,
    traffic: StreamTraffic,
    seed: u64,
    watch: MaybeWatched<'_>,
) -> Outcome {
    let StreamTraffic { duration, buffer, timeout } = traffic;
    let (movie, pattern) = (Rc::new(Movie::new(duration, seed)), Pattern::new(seed));
    let sizing = variant.sizing.clone();
    let work = Streaming::new(movie.clone(), pattern, sizing, &variant.adaptation, buffer);
    let fetched = fetch(set, variant, Site::Movie(movie), work, timeout, seed, watch);
    let client = fetched.client.borrow();
    assert!(client.work().is_right(), "the simulated server's bytes come as they were");
    let mut outcome = fetched.outcome(client.work().received_bytes());
    outcome.stream = Some(client.work().outcome());
    outcome
}

fn run(
    set: &PathSet,
    variant: &Variant,
    download: &Download,
    seed: u64,
    watch: MaybeWatched<'_>,
) -> (Downloaded, Outcome) {
    let work = WholeFile::new(Pattern::new(seed), download.sizing.clone());
    let site = Site::File(download.total_bytes);
    let fetched = fetch(set, variant, site, work, download.timeout, seed, watch);
    let client = fetched.client.borrow();
    let downloaded = Downloaded {
        took: fetched.took,
        history: client.work().history().clone(),
        requests: client.requests(),
        path_bytes: client.path_bytes(),
        is_right: client.work().is_right(),
    };
    (downloaded, fetched.outcome(client.work().received_bytes()))
}

/// A client that is done, or was given up.
struct Fetched<W> {
    client: Rc<RefCell<Client<W>>>,
    /// From the first SYN to the last byte; `None` if it was given up.
    took: Option<Duration>,
    timeout: Duration,
    initial_path: usize,
    paths: Vec<PathOutcome>,
    events: u64,
}

impl<W> Fetched<W> {
    fn outcome(&self, received_bytes: u64) -> Outcome {
        let span = self.took.unwrap_or(self.timeout).as_secs_f64().max(1e-9);
        Outcome {
            received_bytes,
            goodput_bps: received_bytes as f64 * 8.0 / span,
            completion_s: self.took.map(Duration::as_secs_f64),
            initial_path: self.initial_path,
            paths: self.paths.clone(),
            events: self.events,
            ..Outcome::default()
        }
    }
}

fn fetch<W: Work>(
    set: &PathSet,
    variant: &Variant,
    site: Site,
    work: W,
    timeout: Duration,
    seed: u64,
    mut watch: MaybeWatched<'_>,
) -> Fetched<W> {
    let paths = set.paths.iter().enumerate().map(|(number, path)| PathConfig {
        boxes: set.line.chain(seed, number).map(|chain| (BoxPosition::First, chain)),
        ..PathConfig::symmetric(format!("path {}", number + 1), set.link(path))
    });
    let connection = Arc::new(ConnectionConfig { mptcp: false, ..variant.connection(set) });
    let host = HostConfig { connection, ..HostConfig::default() };
    let (builder, net) = parallel_paths(seed, paths, host.clone(), host);
    let mut network = watch::build(builder, &mut watch);
    let total_bytes = match &site {
        Site::File(bytes) => *bytes,
        // Long enough for the rate alone to matter.
        Site::Movie(_) => 1 << 30,
    };
    let workload = Workload::Download { bytes: total_bytes, timeout, player: None };
    let initial_path = variant.initial_path(set, &workload, seed);
    let used: Vec<usize> = match variant.kind {
        VariantKind::Multipath => (0..set.paths.len()).collect(),
        VariantKind::SinglePath | VariantKind::SplitPackets => vec![initial_path],
    };
    let bytes = Pattern::new(seed);
    let round_trips = used.iter().map(|path| set.paths[*path].rtt);
    let client = Rc::new(RefCell::new(Client::new(work, round_trips)));
    let end = Instant::ZERO + timeout;
    let remote = |path: usize| Endpoint::new(net.server_addr, PORT + path as u16);
    for path in 0..used.len() {
        network.with_host(net.server, |_, host| {
            // A new host has its ports free.
            let _listener = host.stack.listen(remote(path));
        });
    }
    loop {
        // Not in the condition: it would be borrowed in the block.
        loop {
            let Some((path, number)) = client.borrow_mut().poll_connect() else { break };
            let origin = Origin::new(bytes, site.clone());
            let remote = remote(path);
            network.with_host(net.server, |_, host| host.accept(remote.port, App::Custom(Box::new(origin))));
            let app = PathConnection { client: client.clone(), path, number };
            network.with_host(net.client, |now, host| {
                let local = Endpoint::new(net.client_addrs[used[path]], 0);
                let app = host.add(App::Custom(Box::new(app)));
                if let Ok(id) = host.stack.connect(now, local, remote, None) {
                    host.bind(id, app);
                }
            });
        }
        let Some(at) = network.next_event_at().filter(|at| *at <= end) else { break };
        watch::run_until(&mut network, at, &mut watch);
        if client.borrow().work().is_complete() {
            break;
        }
    }
    watch::finish(&mut network, seed, &mut watch);
    let is_complete = client.borrow().work().is_complete();
    let took = is_complete.then(|| network.now().since(Instant::ZERO));
    let paths = net.links.iter().map(|link| PathOutcome::from_server(&network, *link)).collect();
    Fetched { client, took, timeout, initial_path, paths, events: network.events() }
}

#[cfg(test)]
mod tests;
