//! `polypath monitor`.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use clap::Args;
use polypath_control::{ANSWER_LIMIT, Answer, Arrivals, Ask, EventReport, Peer, create_directory};
use polypath_system::{directories_of_services, runtime_directory};
use serde::Serialize;
use tokio::sync::mpsc;

use super::network::block_on;
use super::ss::{peers, silence};
use super::{Failure, complain, harmless, harmless_json, print_line};

/// How often new stacks are looked for beside that: their sockets may come where nothing is watched.
const SEARCH_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  polypath monitor -ts\n  polypath monitor --json --count 10")]
pub(super) struct Arguments {
    /// Begin each line with the time (UTC); -ts as of `ip` does, too
    #[arg(short = 't', long)]
    timestamp: bool,
    /// The second letter of -ts
    #[arg(short = 's', hide = true, requires = "timestamp")]
    short: bool,
    /// Print a JSON object for each event, with its time
    #[arg(short = 'J', long)]
    json: bool,
    /// End after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    block_on(monitor(arguments))
}

async fn monitor(arguments: &Arguments) -> Result<(), Failure> {
    let (sender, mut events) = mpsc::channel(64);
    let (ended, mut gone) = mpsc::channel(64);
    let mut known = HashSet::new();
    let mut search = tokio::time::interval(SEARCH_INTERVAL);
    let arrivals = Arrivals::new().map_err(Failure::run)?;
    let own = runtime_directory().map_err(Failure::run)?;
    // Where it can't be made, no stack of this user can offer a socket either, until somebody makes it.
    let _ = create_directory(&own);
    let (mut shown, mut is_first) = (0, true);
    while arguments.count.is_none_or(|count| shown < count) {
        tokio::select! {
            _ = search.tick() => {}
            come = arrivals.come() => come.map_err(Failure::run)?,
            Some(peer) = gone.recv() => {
                known.remove(&peer);
                continue;
            }
            Some(event) = events.recv() => {
                shown += 1;
                show(arguments, event)?;
                continue;
            }
            stopped = tokio::signal::ctrl_c() => return stopped.map_err(Failure::run),
        }
        // What comes while it is looked for is seen next time.
        for directory in directories(&own) {
            arrivals.watch(&directory).map_err(Failure::run)?;
        }
        for peer in peers()? {
            if known.insert(peer.clone()) {
                tokio::spawn(follow(peer, !is_first, sender.clone(), ended.clone()));
            }
        }
        is_first = false;
    }
    Ok(())
}

/// Where sockets come, or directories for them.
pub(super) fn directories(own: &Path) -> Vec<PathBuf> {
    let mut directories = vec![own.to_path_buf()];
    if own == Path::new("/run/polypath") {
        let (run, users) = (Path::new("/run"), Path::new("/run/user"));
        let entries = std::fs::read_dir(users).into_iter().flatten().flatten().map(|user| user.path());
        directories.extend(entries.flat_map(|user| [user.join("polypath"), user]));
        directories.extend(directories_of_services(run));
        directories.extend([users.into(), run.into()]);
    }
    directories
}

/// An event with its time in words.
#[derive(Serialize)]
struct Timed {
    time: String,
    #[serde(flatten)]
    event: EventReport,
}

fn show(arguments: &Arguments, event: EventReport) -> Result<(), Failure> {
    let at: DateTime<Utc> = match event.time_us {
        // A stack of an older version does not tell.
        0 => SystemTime::now().into(),
        time_us => DateTime::from_timestamp_micros(i64::try_from(time_us).unwrap_or(0)).unwrap_or_default(),
    };
    let time = at.to_rfc3339_opts(SecondsFormat::Micros, true);
    if arguments.json {
        let timed = Timed { time, event };
        return print_line(&harmless_json(&serde_json::to_string(&timed).map_err(Failure::run)?));
    }
    let line = harmless(&event.to_string());
    print_line(&if arguments.timestamp { format!("[{time}] {line}") } else { line })
}

/// Passes a stack's events on until it ends; of one that has just started, its first ones too.
async fn follow(
    peer: Peer,
    has_just_come: bool,
    events: mpsc::Sender<EventReport>,
    ended: mpsc::Sender<Peer>,
) {
    let asked = peer.clone();
    let mut opening =
        pin!(async { if has_just_come { asked.monitor_early().await } else { asked.monitor().await } });
    let opened = match tokio::time::timeout(ANSWER_LIMIT, &mut opening).await {
        Ok(opened) => opened,
        // It may go on later.
        Err(_) => {
            complain(&silence(&peer));
            opening.await
        }
    };
    match opened {
        Ok(mut monitor) => {
            tell_namespace(&peer).await;
            while let Ok(Some(event)) = monitor.next().await {
                if events.send(event).await.is_err() {
                    return;
                }
            }
        }
        // It says why not; others have ended meanwhile.
        Err(error) if error.kind() == io::ErrorKind::Other => {
            complain(&format!("{}: {error}", peer.path().display()));
        }
        Err(_) => {}
    }
    // Without a receiver, the command is over.
    let _ = ended.send(peer).await;
}

/// Its events are shown all the same, with addresses and interfaces that are not those of this network.
async fn tell_namespace(peer: &Peer) {
    let Ok(Answer { pid, process, .. }) = peer.ask(Ask::Counters).await else { return };
    let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    // What may not be read is another user's, and nobody is told where it is.
    if let (Some(own), Some(theirs)) = (network("self"), network(&pid.to_string()))
        && own != theirs
    {
        complain(&format!("{process}[{pid}] is in another network namespace; its events are shown, too"));
    }
}
