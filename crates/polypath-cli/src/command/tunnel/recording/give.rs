//! The tunnel's side.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use polypath_tunnel::PeerId;
use polypath_tunnel::driver::{Driver, Handle};

use super::super::running::Running;
use super::{Batch, Begun, PathLine};

/// Records are taken so often.
const INTERVAL: Duration = Duration::from_millis(100);

/// Begins to record what comes from the peer of this name or key; without one, from the only peer. What is returned writes it, until nobody
/// reads it any more.
pub(in super::super) fn begin(
    running: &Arc<Running>,
    handle: &Handle<Driver>,
    name: &str,
) -> Result<impl FnOnce(&UnixStream) + Send + use<>, String> {
    let (peer, label) = find(running, name)?;
    let begun = handle.ask(move |driver| {
        let (engine, now) = driver.engine();
        let status = engine.peer_status(now, peer)?;
        let is_stock = status.keys_age.is_some() && !status.knows_paths;
        Some((is_stock, !is_stock && engine.start_recording(peer)))
    });
    match begun.map_err(|error| error.to_string())? {
        None => return Err(format!("{label} is gone")),
        Some((true, _)) => {
            return Err(format!("{label} is a stock WireGuard, which has one path and numbers no flows"));
        }
        Some((_, false)) => return Err(format!("what comes from {label} is recorded already")),
        Some((_, true)) => {}
    }
    let (running, handle) = (Arc::clone(running), handle.clone());
    Ok(move |stream: &UnixStream| {
        write(&running, &handle, (peer, label), stream);
        // The driver may have ended.
        let _ = handle.ask(move |driver| driver.engine().0.stop_recording(peer));
    })
}

fn find(running: &Running, name: &str) -> Result<(PeerId, String), String> {
    let state = running.state();
    let is_meant = |plan: &super::super::file::PeerPlan| {
        name.is_empty() || plan.name.as_deref() == Some(name) || plan.public_key.to_string() == name
    };
    let meant: Vec<_> = state.peers().filter(|(_, plan)| is_meant(plan)).collect();
    let labels = || state.peers().map(|(_, plan)| plan.label()).collect::<Vec<_>>().join(", ");
    match meant[..] {
        [(id, plan)] => Ok((id, plan.label())),
        [] if name.is_empty() => Err("it has no peer".into()),
        [] => Err(format!("it has no peer {name}; expected one of {}", labels())),
        _ => Err(format!("it has several peers; expected --peer with one of {}", labels())),
    }
}

fn write(
    running: &Arc<Running>,
    handle: &Handle<Driver>,
    (peer, label): (PeerId, String),
    mut stream: &UnixStream,
) {
    let mut tell = |line: serde_json::Result<String>| {
        line.is_ok_and(|line| {
            stream.write_all(line.as_bytes()).and_then(|()| stream.write_all(b"\n")).is_ok()
        })
    };
    let mut goes_on = tell(serde_json::to_string(&Begun { peer: label }));
    while goes_on {
        std::thread::sleep(INTERVAL);
        let sharing = Arc::clone(running);
        let taken = handle.ask(move |driver| {
            let (engine, now) = driver.engine();
            let (recorded, status) = (engine.take_recorded(peer)?, engine.peer_status(now, peer)?);
            let state = sharing.state();
            let path = |path: &polypath_tunnel::PathStatus| PathLine {
                number: path.id.index() as u8,
                interface: state.follower.interface_of(peer, path.id).map(str::to_owned),
                remote: path.remote.to_string(),
            };
            Some((recorded, status.paths.iter().map(path).collect()))
        });
        let Ok(Some((recorded, paths))) = taken else { return };
        goes_on = tell(serde_json::to_string(&Batch::new(&recorded, paths)));
    }
}
