//! What the live view knows: samples of stacks go in, rates and histories of paths come out. It has no clock and no terminal.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use polypath_control::{Answer, ConnectionReport, SubflowReport};
use serde::Serialize;

use super::history::remember;
use super::order::Order;
use super::proxies::{Proxies, Proxy, ProxySample};

/// Samples for which a path is shown that has ended, while its connection goes on.
const SHOWN_AFTER_END: usize = 30;

/// What a stack told at one time, and its socket, by which it is known.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) socket: String,
    pub(crate) answer: Answer,
}

/// What somebody at the terminal wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Up,
    Down,
    Pause,
    Sort,
}

/// A path: one subflow of a connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Path {
    /// Its subflow, as `ss` numbers it.
    pub(crate) subflow: u8,
    /// Its interface, or its own address where that has no name.
    pub(crate) interface: String,
    /// By which people tell it from others of its connection.
    #[serde(skip)]
    pub(crate) label: String,
    /// `up`, `backup`, `stale`, `aside`, `joining` or `lost`.
    pub(crate) state: &'static str,
    pub(crate) down_bps: f64,
    pub(crate) up_bps: f64,
    /// By the estimate that was measured last: an end that only receives has the sender's from the handshake.
    pub(crate) rtt_ms: f64,
    /// What was sent again, as a share of all that was sent; none before anything was.
    pub(crate) retransmitted_share: Option<f64>,
    pub(crate) cwnd_packets: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_acked: u64,
    /// Both directions together, the latest last.
    #[serde(skip)]
    pub(crate) history: VecDeque<u64>,
    #[serde(skip)]
    ended_for: usize,
}

/// A connection and its paths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Connection {
    pub(crate) process: String,
    pub(crate) pid: u32,
    /// The peer's address and port, as far as they are known.
    pub(crate) peer: String,
    pub(crate) is_multipath: bool,
    pub(crate) scheduler: String,
    pub(crate) down_bps: f64,
    pub(crate) up_bps: f64,
    #[serde(skip)]
    by_id: BTreeMap<u8, Path>,
    #[serde(rename = "paths")]
    pub(crate) listed: Vec<Path>,
}

/// All that is shown at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) stacks: usize,
    pub(crate) down_bps: f64,
    pub(crate) up_bps: f64,
    pub(crate) connections: Vec<Connection>,
    pub(crate) proxies: Vec<Proxy>,
}

impl Report {
    /// Whether sums of stacks say anything: where nothing else runs, they say that.
    pub(super) fn has_sums(&self) -> bool {
        !self.connections.is_empty() || self.proxies.is_empty()
    }
}

/// A connection of a stack: its socket, and its token or, of those that have none, the port.
type ConnectionKey = (String, u32, u16);

/// The port is the first path's: with a token it does not count, since another path is the first once that one is lost.
fn key(socket: &str, report: &ConnectionReport) -> ConnectionKey {
    let port = report.local.filter(|_| report.token == 0).map_or(0, |local| local.port());
    (socket.to_string(), report.token, port)
}

/// The state of the view.
#[derive(Debug, Default)]
pub(crate) struct View {
    connections: BTreeMap<ConnectionKey, Connection>,
    stacks: usize,
    proxies: Proxies,
    sampled_at: Option<Duration>,
    total: VecDeque<u64>,
    order: Order,
    selected: usize,
    is_paused: bool,
}

impl View {
    /// What stacks told at a time. Between two samples, rates are known.
    pub(crate) fn handle_samples(&mut self, now: Duration, samples: &[Sample]) {
        if self.is_paused {
            return;
        }
        let elapsed = self.sampled_at.map(|before| now.saturating_sub(before).as_secs_f64());
        let elapsed = elapsed.filter(|elapsed| *elapsed > 0.0);
        self.sampled_at = Some(now);
        self.stacks = samples.len();
        let mut known = std::mem::take(&mut self.connections);
        for Sample { socket, answer } in samples {
            for report in &answer.connections {
                let key = key(socket, report);
                let before = known.remove(&key);
                let connection = follow(before, answer, report, elapsed);
                self.connections.insert(key, connection);
            }
        }
        let report = self.report();
        remember(&mut self.total, report.down_bps + report.up_bps);
        self.selected = self.selected.min(self.rows().saturating_sub(1));
    }

    /// What proxies told at a time.
    pub(crate) fn handle_proxies(&mut self, now: Duration, samples: &[ProxySample]) {
        if self.is_paused {
            return;
        }
        self.proxies.handle_samples(now, samples);
        self.selected = self.selected.min(self.rows().saturating_sub(1));
    }

    /// Those that can be selected: connections of stacks, and then clients of proxies.
    fn rows(&self) -> usize {
        self.connections.len() + self.proxies.clients()
    }

    pub(crate) fn handle_key(&mut self, key: Key) {
        match key {
            Key::Up => self.selected = self.selected.saturating_sub(1),
            Key::Down => self.selected = (self.selected + 1).min(self.rows().saturating_sub(1)),
            Key::Pause => self.is_paused = !self.is_paused,
            Key::Sort => self.order = self.order.next(),
        }
    }

    /// All connections in their order.
    pub(crate) fn report(&self) -> Report {
        let mut connections: Vec<Connection> = self.connections.values().cloned().collect();
        match self.order {
            // Those that are equal stay where they were.
            Order::Rate => connections.sort_by(|a, b| b.rate().total_cmp(&a.rate())),
            Order::Process => connections.sort_by(|a, b| (&a.process, a.pid).cmp(&(&b.process, b.pid))),
            Order::Peer => connections.sort_by(|a, b| a.peer.cmp(&b.peer)),
        }
        Report {
            stacks: self.stacks,
            down_bps: connections.iter().map(|connection| connection.down_bps).sum(),
            up_bps: connections.iter().map(|connection| connection.up_bps).sum(),
            connections,
            proxies: self.proxies.report(self.order),
        }
    }

    /// Rates of all together, the latest last.
    pub(crate) fn total(&self) -> &VecDeque<u64> {
        &self.total
    }

    pub(crate) const fn selected(&self) -> usize {
        self.selected
    }

    pub(crate) const fn order(&self) -> Order {
        self.order
    }

    pub(crate) const fn is_paused(&self) -> bool {
        self.is_paused
    }
}

impl Connection {
    fn rate(&self) -> f64 {
        self.down_bps + self.up_bps
    }
}

/// A connection one sample later; of one that is new since the sample before, everything is new.
fn follow(
    before: Option<Connection>,
    answer: &Answer,
    report: &ConnectionReport,
    elapsed: Option<f64>,
) -> Connection {
    let mut by_id = before.map(|before| before.by_id).unwrap_or_default();
    for path in by_id.values_mut() {
        path.ended_for += 1;
    }
    for subflow in &report.subflows {
        // A number that comes again over another interface is another path.
        let before = by_id.remove(&subflow.id).filter(|path| path.interface == interface(subflow));
        let is_new = before.is_none();
        let path = follow_path(before, subflow, elapsed);
        if is_new {
            // It takes the place of those that have ended over the interface before.
            by_id.retain(|_, other| other.ended_for <= 1 || other.interface != path.interface);
        }
        by_id.insert(subflow.id, path);
    }
    for path in by_id.values_mut().filter(|path| path.ended_for > 0) {
        (path.state, path.down_bps, path.up_bps) = ("lost", 0.0, 0.0);
        remember(&mut path.history, 0.0);
    }
    by_id.retain(|_, path| path.ended_for <= SHOWN_AFTER_END);
    let mut listed: Vec<Path> = by_id.values().cloned().collect();
    listed.sort_by(|a, b| (&a.interface, a.subflow).cmp(&(&b.interface, b.subflow)));
    let labels: Vec<String> = listed.iter().map(|path| label(path, &listed)).collect();
    listed.iter_mut().zip(labels).for_each(|(path, label)| path.label = label);
    Connection {
        process: answer.process.clone(),
        pid: answer.pid,
        peer: report.remote.map_or("*".into(), |remote| remote.to_string()),
        is_multipath: report.is_multipath,
        scheduler: report.scheduler.clone(),
        down_bps: by_id.values().map(|path| path.down_bps).sum(),
        up_bps: by_id.values().map(|path| path.up_bps).sum(),
        listed,
        by_id,
    }
}

/// The interface, and the subflow's number where several go over it.
fn label(path: &Path, all: &[Path]) -> String {
    let count = all.iter().filter(|other| other.interface == path.interface).count();
    let name = &path.interface;
    if count > 1 { format!("{name} #{}", path.subflow) } else { name.clone() }
}

fn follow_path(before: Option<Path>, subflow: &SubflowReport, elapsed: Option<f64>) -> Path {
    let counted = before.as_ref().map_or((0, 0), |path| (path.bytes_received, path.bytes_acked));
    let rate = |bytes: u64, before: u64| {
        elapsed.map_or(0.0, |elapsed| bytes.saturating_sub(before) as f64 * 8.0 / elapsed)
    };
    let (down_bps, up_bps) = (rate(subflow.bytes_received, counted.0), rate(subflow.bytes_acked, counted.1));
    let mut history = before.map(|path| path.history).unwrap_or_default();
    remember(&mut history, down_bps + up_bps);
    Path {
        subflow: subflow.id,
        label: String::new(),
        interface: interface(subflow),
        state: state(subflow),
        down_bps,
        up_bps,
        rtt_ms: subflow.latest_rtt_ms(),
        retransmitted_share: (subflow.bytes_sent > 0)
            .then(|| subflow.bytes_retrans as f64 / subflow.bytes_sent as f64),
        cwnd_packets: subflow.cwnd_bytes / u64::from(subflow.mss_bytes.max(1)),
        bytes_received: subflow.bytes_received,
        bytes_acked: subflow.bytes_acked,
        history,
        ended_for: 0,
    }
}

fn interface(subflow: &SubflowReport) -> String {
    subflow.interface.clone().unwrap_or_else(|| subflow.local.ip().to_string())
}

fn state(subflow: &SubflowReport) -> &'static str {
    match subflow {
        SubflowReport { is_established: false, .. } => "joining",
        SubflowReport { is_stale: true, .. } => "stale",
        SubflowReport { is_set_aside: true, .. } => "aside",
        SubflowReport { is_backup: true, .. } => "backup",
        _ => "up",
    }
}
