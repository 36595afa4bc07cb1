//! What must hold, whatever happens.

use polypath_mptcp::{CloseReason, ConnectionInfo, Host};

use super::application::Application;
use super::failure::{Finding, FindingKind};
use super::setup::{Setup, Side, Strength};

/// Beyond twice the receive buffer, as what a window promised once is taken later, too: a segment that crosses its end, and what a
/// probe of a closed window brings.
const RECEIVE_SLACK_BYTES: u64 = 64 << 10;
/// What the window of every connection may be, whatever others were promised.
const INITIAL_WINDOW_BYTES: u64 = 256 << 10;

/// After a host was given something and has said all that it has to say.
pub(super) fn after_step(hosts: &[Host; 2], applications: &[Application], side: Side) -> Result<(), Finding> {
    let host = &hosts[side.index()];
    for application in applications.iter().filter(|application| application.side == side) {
        if application.released {
            continue;
        }
        let Some(info) = host.info(application.id) else { continue };
        waiting_data_has_a_timer(host, application, &info)?;
        memory_is_bounded(host, application, &info)?;
    }
    // What a window promised once is taken later, too: of each connection as much again, with what every connection has.
    let most =
        2 * host.config().receive_memory_bytes + host.population().connections as u64 * INITIAL_WINDOW_BYTES;
    if host.promised_receive_bytes() > most {
        let details = format!("{side:?}: {} bytes promised of {most}", host.promised_receive_bytes());
        return Err(Finding::new(FindingKind::Memory, details));
    }
    Ok(())
}

fn waiting_data_has_a_timer(
    host: &Host,
    application: &Application,
    info: &ConnectionInfo,
) -> Result<(), Finding> {
    let waits = info.send_buffer_bytes > 0 && application.closed.is_none();
    let in_flight: u64 = info.subflows.iter().map(|subflow| subflow.tcp.in_flight_bytes).sum();
    if waits && host.connection_timeout(application.id).is_none() {
        let (side, waiting) = (application.side, info.send_buffer_bytes);
        let details = format!("{side:?}: {waiting} bytes wait, {in_flight} in flight, no timer; {info:?}");
        return Err(Finding::new(FindingKind::NoTimer, details));
    }
    Ok(())
}

fn memory_is_bounded(host: &Host, application: &Application, info: &ConnectionInfo) -> Result<(), Finding> {
    let tcp = &host.config().connection.tcp;
    let held = info.unread_bytes + info.reassembly_bytes;
    let counts = [
        ("received", held, 2 * tcp.receive_buffer_bytes + RECEIVE_SLACK_BYTES),
        ("queued to send", info.send_buffer_bytes, tcp.send_buffer_bytes),
        ("subflows", info.subflows.len() as u64, u64::from(u8::MAX)),
    ];
    for (what, count, bound) in counts {
        if count > bound {
            let details = format!("{:?}: {what}: {count}, bound {bound}; {info:?}", application.side);
            return Err(Finding::new(FindingKind::Memory, details));
        }
    }
    Ok(())
}

/// A clean end comes after everything that the other end wrote, and only if that ended its stream.
pub(super) fn at_end(applications: &[Application], number: usize) -> Result<(), Finding> {
    let application = &applications[number];
    let is_clean = application.at_end || application.closed == Some(CloseReason::Finished);
    if !application.checks_bytes || application.released || application.aborted || !is_clean {
        return Ok(());
    }
    let (side, read) = (application.side, application.read_bytes);
    let Some(peer) = application.peer.map(|peer| &applications[peer]) else {
        let details = format!("{side:?} came to a clean end that no application made");
        return Err(Finding::new(FindingKind::FalseEnd, details));
    };
    // Who reads slowly still has something to come.
    let has_read_all = application.at_end;
    if !(peer.has_shut_down || peer.released) || has_read_all && read != peer.written_bytes {
        let ended = if peer.released { "let go" } else { "ended its stream" };
        let ended = if peer.has_shut_down || peer.released { ended } else { "did not end its stream" };
        let details = format!(
            "{side:?} came to a clean end after {read} bytes; the other end wrote {} and {ended}; closed {:?}",
            peer.written_bytes, application.closed
        );
        return Err(Finding::new(FindingKind::FalseEnd, details));
    }
    Ok(())
}

/// Everything that was not disturbed has come to its end in order.
pub(super) fn at_rest(setup: &Setup, hosts: &[Host; 2], applications: &[Application]) -> Result<(), Finding> {
    for application in applications {
        let Some(peer) = application.peer.map(|peer| &applications[peer]) else { continue };
        if !application.checks_bytes || !application.is_orderly() || !peer.is_orderly() {
            continue;
        }
        let describe = |end: &Application| {
            let info = hosts[end.side.index()].info(end.id);
            format!(
                "{:?} wrote {} (to write {}) read {} finished {} closed {:?} subflows {:?}",
                end.side,
                end.written_bytes,
                end.to_write_bytes,
                end.read_bytes,
                end.peer_finished,
                end.closed,
                info.map(|info| info.subflows.len()),
            )
        };
        match application.closed {
            // The other end is gone, and its reset was lost: who has nothing to send learns that from keep-alives only.
            None if is_lost(peer) && has_nothing_to_send(hosts, application) => {}
            None => {
                let details = format!("{}; {}", describe(application), describe(peer));
                return Err(Finding::new(FindingKind::Stall, details));
            }
            Some(CloseReason::Finished) => {}
            Some(_) if !setup.fair || may_overtake_a_cookie(setup, hosts) => {}
            Some(_) => {
                let details = format!("{}; {}", describe(application), describe(peer));
                return Err(Finding::new(FindingKind::Broken, details));
            }
        }
    }
    Ok(())
}

fn is_lost(application: &Application) -> bool {
    application.closed.is_some_and(|reason| reason != CloseReason::Finished)
}

/// Without timestamps, a segment that overtakes the third ACK with a SYN cookie looks as one of a connection that is gone, and is
/// reset (RFC 9293 §3.5.1).
fn may_overtake_a_cookie(setup: &Setup, hosts: &[Host; 2]) -> bool {
    let cookies = hosts[Side::Server.index()].counters().syncookies_sent;
    cookies > 0 && !setup.have_timestamps()
}

fn has_nothing_to_send(hosts: &[Host; 2], application: &Application) -> bool {
    let info = hosts[application.side.index()].info(application.id);
    application.to_write_bytes == 0 && info.is_none_or(|info| info.send_buffer_bytes == 0)
}

/// Nothing is left of all connections.
pub(super) fn empty(hosts: &[Host; 2]) -> Result<(), Finding> {
    for side in [Side::Client, Side::Server] {
        let host = &hosts[side.index()];
        let counts = [
            ("connections", host.population().connections as u64),
            ("flows", host.population().flows as u64),
            ("tokens", host.token_count() as u64),
            ("TIME-WAITs", host.population().time_waits as u64),
            ("promised bytes", host.promised_receive_bytes()),
            ("timers", u64::from(host.poll_timeout().is_some())),
        ];
        if counts.iter().any(|(_, count)| *count > 0) {
            let details = format!("{side:?} still has {counts:?}");
            return Err(Finding::new(FindingKind::Leak, details));
        }
    }
    Ok(())
}

/// Packets that one injection may cause between hosts at rest.
pub(super) const fn most_packets_after_one(strength: Strength) -> u64 {
    match strength {
        Strength::None | Strength::OffPath => 10,
        // An end that is believed ends every subflow; an address that is believed is tried.
        Strength::OnPath => 60,
    }
}
