//! What tunnels that run are doing.

mod report;
mod words;

use std::sync::Arc;
use std::time::Duration as SystemDuration;

use polypath_netsetup::{GatewayLeft, gateway_left};
use polypath_tunnel::driver::{Driver, Handle};

use super::super::engine::clear_leftovers;
use super::super::{Failure, complain, print_json, print_line};
use super::budgets::Budget;
use super::control::{Question, TUNNELS};
use super::running::Running;
use report::{BudgetReport, Dropped, PeerReport, TunnelReport};
use words::words;

/// A tunnel as it is now, as JSON; nothing if it has just ended.
pub(super) fn report(running: &Arc<Running>, handle: &Handle<Driver>) -> String {
    // The kernel's tables are read in this thread: packets do not wait for them.
    let Ok(lost) = handle.ask(|driver| driver.losses()) else { return String::new() };
    let lost = lost.with_kernels().into();
    let running = Arc::clone(running);
    let report = handle.ask(move |driver| {
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

pub(super) fn run(name: Option<&str>, is_json: bool) -> Result<(), Failure> {
    let asked = match name {
        Some(name) => vec![name.to_owned()],
        None => TUNNELS.names().map_err(Failure::run)?,
    };
    let mut reports: Vec<TunnelReport> = Vec::new();
    for one in &asked {
        // One that ends just now says nothing.
        if let Some(answer) =
            TUNNELS.ask(one, Question::Status.word()).map_err(Failure::run)?.filter(|text| !text.is_empty())
        {
            reports.push(serde_json::from_str(&answer).map_err(Failure::run)?);
        }
    }
    if let (Some(name), true) = (name, reports.is_empty()) {
        return Err(TUNNELS.missing(name));
    }
    if is_json {
        return print_json(&reports);
    }
    if reports.is_empty() {
        return print_line("no tunnel runs");
    }
    reports.iter().try_for_each(|report| print_line(&words(report)))
}

pub(super) fn reload(name: Option<&str>) -> Result<(), Failure> {
    let running = TUNNELS.names().map_err(Failure::run)?;
    let name = TUNNELS.meant(name, &running)?;
    print_line(&TUNNELS.tell(name, Question::Reload.word())?)
}

pub(super) fn down(name: Option<&str>) -> Result<(), Failure> {
    let running = TUNNELS.names().map_err(Failure::run)?;
    let name = TUNNELS.meant(name, &running)?;
    if TUNNELS.ask(name, Question::Down.word()).map_err(Failure::run)?.is_some() {
        return TUNNELS.wait_for_end(name, SystemDuration::ZERO);
    }
    // Its socket may be gone already: whatever begins on this host removes those of the dead.
    let has_socket = running.iter().any(|left| left == name);
    if !has_socket && gateway_left(name).map_err(Failure::run)?.is_none() {
        return Err(TUNNELS.missing(name));
    }
    // It was killed: what it left is taken down, and its socket last.
    clear_leftovers();
    TUNNELS.remove(name).map_err(Failure::run)?;
    if gateway_left(name).map_err(Failure::run)? == Some(GatewayLeft::Elsewhere) {
        return Err(Failure::Run(format!(
            "{name} had been killed in another network namespace, and what it set up there stays: expected `polypath tunnel down {name}` in that one"
        )));
    }
    complain(&format!("{name} had been killed; what it left is taken down"));
    Ok(())
}
