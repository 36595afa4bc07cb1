//! Where figures come from: a stack of this process, all stacks of the host, or emulated links.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use polypath_control::{Answer, Ask, FiguresReport, PathReport, Peer, SubflowsNow};
use polypath_metrics::{Counted, Format, LinkSample, PathNow, PathSample, StackSample, Totals, expose};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::command::offered::Offered;
use crate::command::ss::peers;

/// Figures that are younger are not asked for again, however many want them.
const FRESH: Duration = Duration::from_secs(1);

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
pub(super) struct Host;

impl Source for Host {
    async fn refresh(&self, totals: &mut Totals) {
        let peers = peers().unwrap_or_default();
        let results = join_all(peers.iter().map(|peer| peer.ask(Ask::Figures))).await;
        let source = |peer: &Peer| peer.path().display().to_string();
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

/// A stack of this process.
pub(super) struct Own(pub(super) Offered);

impl Source for Own {
    async fn refresh(&self, totals: &mut Totals) {
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
