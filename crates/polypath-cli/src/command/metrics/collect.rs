//! Where figures come from: a stack of this process, all stacks of the host, or emulated links.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use polypath_control::{
    Answer, Arrivals, Ask, FiguresReport, PathReport, Peer, SubflowsNow, create_directory,
};
use polypath_metrics::{Counted, Format, LinkSample, PathNow, PathSample, StackSample, Totals, expose};
use polypath_system::runtime_directory;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::proxies::{self, OwnProxy};
use crate::command::Failure;
use crate::command::monitor::directories;
use crate::command::offered::Offered;
use crate::command::ss::peers;

/// Figures that are younger are not asked for again, however many want them.
const FRESH: Duration = Duration::from_secs(1);

/// How often new stacks are looked for beside that: their sockets may come where nothing is watched.
const SEARCH_INTERVAL: Duration = Duration::from_secs(5);

/// What is asked for figures.
pub(super) trait Source: Send + Sync + 'static {
    /// Takes in what is there now.
    fn refresh(&self, totals: &mut Totals) -> impl Future<Output = ()> + Send;

    /// Emulated links.
    fn links(&self) -> Vec<LinkSample> {
        Vec::new()
    }
}

/// Figures, and when they were asked for.
pub(super) struct Collector<S> {
    source: Arc<S>,
    known: Arc<Mutex<(Totals, Option<Instant>)>>,
}

impl<S> Clone for Collector<S> {
    fn clone(&self) -> Self {
        Self { source: self.source.clone(), known: self.known.clone() }
    }
}

impl<S: Source> Collector<S> {
    pub(super) fn new(source: S) -> Self {
        Self { source: Arc::new(source), known: Arc::default() }
    }

    /// Something made of fresh figures: asks anew, unless that was done just now.
    pub(super) async fn refreshed<T>(&self, make: impl FnOnce(&Totals) -> T) -> T {
        let mut known = self.known.lock().await;
        let (totals, asked_at) = &mut *known;
        if asked_at.is_none_or(|at| at.elapsed() >= FRESH) {
            self.source.refresh(totals).await;
            *asked_at = Some(Instant::now());
        }
        make(totals)
    }

    /// Fresh figures as Prometheus reads them.
    pub(super) async fn text(&self, format: Format) -> String {
        let links = self.source.links();
        self.refreshed(|totals| expose(totals, &links, format)).await
    }
}

/// All stacks of the host that this user may ask.
#[derive(Clone, Default)]
pub(super) struct Host {
    /// What stacks said at their end since somebody looked.
    ended: Arc<std::sync::Mutex<Vec<StackSample>>>,
}

impl Host {
    /// Waits for the last words of every stack: what comes after a stack was asked last would be lost, and all of one that nobody
    /// asked. Ends only if it fails.
    pub(super) async fn hear_the_end(self) -> Result<(), Failure> {
        let arrivals = Arrivals::new().map_err(Failure::run)?;
        let own = runtime_directory().map_err(Failure::run)?;
        // Where it can't be made, no stack of this user can offer a socket either, until somebody makes it.
        let _ = create_directory(&own);
        let mut known = HashSet::new();
        let (gone, mut went) = mpsc::unbounded_channel();
        let mut search = tokio::time::interval(SEARCH_INTERVAL);
        loop {
            tokio::select! {
                _ = search.tick() => {}
                come = arrivals.come() => come.map_err(Failure::run)?,
                Some(peer) = went.recv() => {
                    known.remove(&peer);
                    continue;
                }
            }
            // What comes while it is looked for is seen next time.
            for directory in directories(&own) {
                arrivals.watch(&directory).map_err(Failure::run)?;
            }
            for peer in peers().unwrap_or_default() {
                if known.insert(peer.clone()) {
                    tokio::spawn(self.clone().hear(peer, gone.clone()));
                }
            }
        }
    }

    async fn hear(self, peer: Peer, gone: mpsc::UnboundedSender<Peer>) {
        // One that was killed, or is of an older version, has none.
        if let Ok(last) = peer.last().await
            && let Ok(Some(answer)) = last.wait().await
        {
            self.ended().push(sample(source(&peer), answer));
        }
        // Without a receiver, the command is over.
        let _ = gone.send(peer);
    }

    fn ended(&self) -> MutexGuard<'_, Vec<StackSample>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn source(peer: &Peer) -> String {
    peer.path().display().to_string()
}

impl Source for Host {
    async fn refresh(&self, totals: &mut Totals) {
        // Before any is asked: what answers by the same name afterwards is another one.
        std::mem::take(&mut *self.ended()).into_iter().for_each(|last| totals.end(last));
        proxies::refresh(totals).await;
        let peers = peers().unwrap_or_default();
        let results = join_all(peers.iter().map(|peer| peer.ask(Ask::Figures))).await;
        let (mut samples, mut silent) = (Vec::new(), Vec::new());
        for (peer, result) in peers.iter().zip(results) {
            match result {
                Ok(answer) => samples.push(sample(source(peer), answer)),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => silent.push(source(peer)),
                Err(_) => {}
            }
        }
        totals.update(samples, &silent);
    }
}

/// A stack of this process, and its proxy.
pub(super) struct Own(pub(super) Offered, pub(super) OwnProxy);

impl Source for Own {
    async fn refresh(&self, totals: &mut Totals) {
        self.1.refresh(totals);
        let Offered { observed, program } = &self.0;
        let counters = observed.counters();
        let answer = Answer {
            process: program.clone(),
            figures: Some(observed.figures()),
            counters: counters.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            ..Answer::default()
        };
        totals.update(vec![sample("own".into(), answer)], &[]);
    }
}

fn sample(source: String, answer: Answer) -> StackSample {
    let FiguresReport { paths, connections, fallbacks } = answer.figures.unwrap_or_default();
    StackSample {
        source,
        program: answer.process,
        connections,
        paths: paths.into_iter().map(path).collect(),
        fallbacks,
        counters: answer.counters,
    }
}

fn path(report: PathReport) -> PathSample {
    let SubflowsNow { subflows, rtt_ms, cwnd_bytes, delivery_rate_bps } = report.now;
    PathSample {
        interface: report.interface,
        counted: Counted {
            sent_bytes: report.sent_bytes,
            received_bytes: report.received_bytes,
            retransmitted_bytes: report.retransmitted_bytes,
            retransmitted_segments: report.retransmitted_segments,
            subflows: report.subflows,
        },
        now: PathNow {
            subflows,
            round_trip_s: rtt_ms.map(|millis| millis / 1e3),
            window_bytes: cwnd_bytes,
            delivered_bytes_per_s: delivery_rate_bps as f64 / 8.0,
        },
    }
}
