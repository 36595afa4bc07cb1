//! What tunnels that run are doing.

mod words;

use std::sync::Arc;
use std::time::{Duration as SystemDuration, Instant};

use polypath_tunnel::driver::{Driver, Handle, Losses};
use polypath_tunnel::{PeerStatus, ResequencerCounts, Rule};
use polypath_units::Duration;
use serde::{Deserialize, Serialize};

use super::super::engine::clear_leftovers;
use super::super::{Failure, complain, print_json, print_line};
use super::budgets::Budget;
use super::control::{MISTAKE, Question, ask, names, remove};
use super::pinned;
use super::running::Running;
use words::words;

/// A tunnel ends within this, unless it hangs.
const MOST_WAIT: SystemDuration = SystemDuration::from_secs(5);

/// A tunnel at a moment; also what `--json` prints.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct TunnelReport {
    pub(super) name: String,
    pub(super) public_key: String,
    pub(super) listen_port: Option<u16>,
    pub(super) peers: Vec<PeerReport>,
    pub(super) budgets: Vec<BudgetReport>,
    pub(super) dropped: Dropped,
    pub(super) lost: Lost,
}

/// What may still go over an interface.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct BudgetReport {
    interface: String,
    budget_bytes: u64,
    is_daily: bool,
    /// Spent, it carries nothing; else it is a backup then.
    is_hard: bool,
    used_bytes: u64,
    left_bytes: u64,
}

/// What was lost between the tunnel and the kernel.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Lost {
    unsent_datagrams: u64,
    overflowed_datagrams: u64,
    unwritten_packets: u64,
    overflowed_packets: u64,
    malformed_frames: u64,
}

impl From<Losses> for Lost {
    fn from(losses: Losses) -> Self {
        let Losses { unsent_datagrams, overflowed_datagrams, .. } = losses;
        let Losses { unwritten_packets, overflowed_packets, malformed_frames, .. } = losses;
        Self {
            unsent_datagrams,
            overflowed_datagrams,
            unwritten_packets,
            overflowed_packets,
            malformed_frames,
        }
    }
}

/// What belonged to no peer, in datagrams or packets.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Dropped {
    pub(super) malformed: u64,
    pub(super) unknown_session: u64,
    pub(super) refused_handshakes: u64,
    pub(super) replayed_handshakes: u64,
    pub(super) unknown_peers: u64,
    pub(super) no_peer: u64,
    pub(super) too_long: u64,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PeerReport {
    name: Option<String>,
    public_key: String,
    /// `polypath` or `wireguard`; none before the first handshake.
    kind: Option<String>,
    keys_age_seconds: Option<f64>,
    endpoint: Option<String>,
    sent_packets: u64,
    received_packets: u64,
    dropped_packets: u64,
    /// Of them, those whose rule pins them to a path that is not there, or does not work.
    pinned_dropped_packets: u64,
    /// Paths that rules pin packets to, and that are not there or do not work now.
    missing_pinned_paths: Vec<usize>,
    sent_again_packets: u64,
    repair_packets_sent: u64,
    repair_packets_received: u64,
    rebuilt_packets: u64,
    not_rebuilt_packets: u64,
    foreign_packets: u64,
    replayed_packets: u64,
    not_authentic_packets: u64,
    late_packets: u64,
    missing_packets: u64,
    waiting_bytes: usize,
    held_bytes: usize,
    /// Flows of TCP that are carried by Multipath TCP.
    split_flows: usize,
    paths: Vec<PathReport>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PathReport {
    number: usize,
    interface: Option<String>,
    remote: String,
    state: String,
    rtt_ms: Option<f64>,
    rate_mbps: f64,
    /// The longest packet that comes through, its IP header included.
    mtu_bytes: usize,
    sent_bytes: u64,
    received_bytes: u64,
    lost_packets: u64,
    silent_seconds: Option<f64>,
}

impl PeerReport {
    pub(super) fn new(
        name: Option<String>,
        status: &PeerStatus,
        rules: &[Rule],
        interface: impl Fn(polypath_tunnel::PathId) -> Option<String>,
    ) -> Self {
        let (counts, order) = (&status.counts, &status.order);
        let ResequencerCounts { late, missing, .. } = *order;
        let kind = status.keys_age.map(|_| if status.knows_paths { "polypath" } else { "wireguard" });
        Self {
            name,
            public_key: status.key.to_string(),
            kind: kind.map(str::to_owned),
            keys_age_seconds: status.keys_age.map(Duration::as_secs_f64),
            endpoint: status.plain_remote.map(|remote| remote.to_string()),
            sent_packets: counts.sent,
            received_packets: counts.received,
            dropped_packets: counts.dropped,
            pinned_dropped_packets: counts.pinned_dropped,
            missing_pinned_paths: pinned::missing(rules, status).map(|(_, path)| path.index()).collect(),
            sent_again_packets: counts.sent_again,
            repair_packets_sent: counts.repairs_sent,
            repair_packets_received: counts.repairs_received,
            rebuilt_packets: counts.rebuilt,
            not_rebuilt_packets: counts.not_rebuilt,
            foreign_packets: counts.foreign,
            replayed_packets: counts.replayed,
            not_authentic_packets: counts.not_authentic,
            late_packets: late,
            missing_packets: missing,
            waiting_bytes: status.waiting_bytes,
            held_bytes: status.held_bytes,
            split_flows: status.split_flows,
            paths: status
                .paths
                .iter()
                .map(|path| PathReport {
                    number: path.id.index(),
                    interface: interface(path.id),
                    remote: path.remote.to_string(),
                    state: state_of(path).to_owned(),
                    rtt_ms: path.srtt.map(Duration::as_millis_f64),
                    rate_mbps: path.rate.as_mbps_f64(),
                    mtu_bytes: path.mtu_bytes,
                    sent_bytes: path.sent.1,
                    received_bytes: path.received.1,
                    lost_packets: path.sent.2,
                    silent_seconds: path.silent_for.map(Duration::as_secs_f64),
                })
                .collect(),
        }
    }
}

/// A tunnel as it is now, as JSON; nothing if it has just ended.
pub(super) fn report(running: &Arc<Running>, handle: &Handle<Driver>) -> String {
    let running = Arc::clone(running);
    let report = handle.ask(move |driver| {
        let lost = driver.losses().into();
        let mut state = running.state();
        // What went since the last look counts, too. That it can't be kept is told by the next look.
        let _ = state.count(driver);
        let (engine, now) = driver.engine();
        let peers = state.peers().filter_map(|(id, plan)| {
            let status = engine.peer_status(now, id)?;
            let interface = |path| state.follower.interface_of(id, path).map(str::to_owned);
            Some(PeerReport::new(plan.name.clone(), &status, &state.plan.rules, interface))
        });
        let budgets = state.plan.uplinks.budgets().map(|budget| {
            let used_bytes = state.budgets.used_bytes(&budget);
            let Budget { interface, bytes: budget_bytes, is_daily, is_hard } = budget;
            let left_bytes = budget_bytes.saturating_sub(used_bytes);
            BudgetReport { interface, budget_bytes, is_daily, is_hard, used_bytes, left_bytes }
        });
        let counts = engine.counts();
        TunnelReport {
            name: state.plan.name.clone(),
            public_key: state.plan.private_key.public_key().to_string(),
            listen_port: state.plan.listen_port,
            peers: peers.collect(),
            budgets: budgets.collect(),
            dropped: Dropped {
                malformed: counts.malformed,
                unknown_session: counts.unknown_session,
                refused_handshakes: counts.refused_handshakes,
                replayed_handshakes: counts.replayed_handshakes,
                unknown_peers: counts.unknown_peers,
                no_peer: counts.no_peer,
                too_long: counts.too_long,
            },
            lost,
        }
    });
    report.ok().and_then(|report| serde_json::to_string(&report).ok()).unwrap_or_default()
}

fn state_of(path: &polypath_tunnel::PathStatus) -> &'static str {
    match path {
        _ if !path.is_up => "down",
        _ if !path.is_believed => "asked",
        _ if path.is_closed => "closed",
        _ if !path.is_usable => "silent",
        _ if path.is_backup => "backup",
        _ => "used",
    }
}

pub(super) fn run(name: Option<&str>, is_json: bool) -> Result<(), Failure> {
    let asked = match name {
        Some(name) => vec![name.to_owned()],
        None => names().map_err(Failure::run)?,
    };
    let mut reports: Vec<TunnelReport> = Vec::new();
    for one in &asked {
        // One that ends just now says nothing.
        if let Some(answer) =
            ask(one, Question::Status).map_err(Failure::run)?.filter(|text| !text.is_empty())
        {
            reports.push(serde_json::from_str(&answer).map_err(Failure::run)?);
        }
    }
    if let (Some(name), true) = (name, reports.is_empty()) {
        return Err(Failure::Run(format!("no tunnel named {name} runs")));
    }
    if is_json {
        return print_json(&reports);
    }
    if reports.is_empty() {
        return print_line("no tunnel runs");
    }
    reports.iter().try_for_each(|report| print_line(&words(report)))
}

/// The socket goes last.
fn wait_for_end(name: &str) -> Result<(), Failure> {
    let begin = Instant::now();
    while names().map_err(Failure::run)?.iter().any(|running| running == name) {
        if begin.elapsed() > MOST_WAIT {
            return Err(Failure::Run(format!(
                "{name} was told to end, and still runs after {} s",
                MOST_WAIT.as_secs()
            )));
        }
        std::thread::sleep(SystemDuration::from_millis(20));
    }
    Ok(())
}

/// The one that somebody means, of these.
fn meant<'a>(name: Option<&'a str>, running: &'a [String]) -> Result<&'a str, Failure> {
    match (name, running) {
        (Some(name), _) => Ok(name),
        (None, [only]) => Ok(only),
        (None, []) => Err(Failure::Run("no tunnel runs".to_owned())),
        (None, several) => {
            Err(Failure::Input(format!("several tunnels run: expected one of {}", several.join(", "))))
        }
    }
}

pub(super) fn reload(name: Option<&str>) -> Result<(), Failure> {
    let running = names().map_err(Failure::run)?;
    let name = meant(name, &running)?;
    let answer = ask(name, Question::Reload).map_err(Failure::run)?;
    let answer = answer.ok_or_else(|| Failure::Run(format!("no tunnel named {name} runs")))?;
    match answer.trim_end().strip_prefix(MISTAKE) {
        Some(mistake) => Err(Failure::Input(mistake.to_owned())),
        None => print_line(answer.trim_end()),
    }
}

pub(super) fn down(name: Option<&str>) -> Result<(), Failure> {
    let running = names().map_err(Failure::run)?;
    let name = meant(name, &running)?;
    if ask(name, Question::Down).map_err(Failure::run)?.is_some() {
        return wait_for_end(name);
    }
    if !running.iter().any(|left| left == name) {
        return Err(Failure::Run(format!("no tunnel named {name} runs")));
    }
    // It was killed: what it left is taken down, and its socket last.
    clear_leftovers();
    remove(name).map_err(Failure::run)?;
    complain(&format!("{name} had been killed; what it left is taken down"));
    Ok(())
}
