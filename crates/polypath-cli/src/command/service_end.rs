//! What systemd starts when a service that `polypath enable` changed ends: the keeper of its connections delivers what was written
//! and takes down what it set up, before systemd kills what is left of the service.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::engine::{GUARDIAN, clear_leftovers};
use super::{Failure, network, preload};

/// The subcommand.
pub(super) const SERVICE_END: &str = "service-end";
/// How often is looked whether they have ended.
const LOOKING: Duration = Duration::from_millis(20);
/// How long guardians of what is killed may take to take it down.
const TAKING_DOWN: Duration = Duration::from_secs(2);
/// systemd gives it to all commands that a service ends with, and to no other.
const VARIABLE: &str = "SERVICE_RESULT";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// How long peers may take for what the program wrote
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
}

/// Ends what is left of Polypath in the service that this is run for, unless its main process is still there: systemd asks that
/// one to end first.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if std::env::var_os(VARIABLE).is_none() {
        return Err(Failure::input("service-end: expected to be started by systemd, when a service ends"));
    }
    let main = std::env::var("MAINPID").ok().and_then(|pid| opened(pid.parse().ok()?));
    if main.is_some_and(|main| !has_ended(&main)) {
        return Ok(());
    }
    let guardians = of_this_service(GUARDIAN);
    let keepers = of_this_service(preload::KEEPER);
    send(&keepers, Signal::TERM);
    let within = arguments.within.map_or(Duration::MAX, Duration::from_secs);
    // When it is told to hurry, it does.
    let in_time = network::block_on_whatever_asked(async { Ok(end_within(within, &keepers).await) });
    if !matches!(in_time, Ok(true)) {
        send(&keepers, Signal::KILL);
    }
    network::block_on_whatever_asked(async { Ok(end_within(TAKING_DOWN, &guardians).await) }).map(drop)?;
    clear_leftovers();
    Ok(())
}

/// The processes of this service with this subcommand.
fn of_this_service(subcommand: &str) -> Vec<OwnedFd> {
    let group = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
    let Some(own) = group("self") else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_meant = |pid: &str| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // The program's own name comes first.
        words.split(|byte| *byte == 0).skip(1).any(|word| word == subcommand.as_bytes())
            && group(pid).as_ref() == Some(&own)
    };
    let opened = names.filter_map(|name| {
        let number = name.parse().ok()?;
        // Opened before it is looked at, so that it is the one that is seen.
        let process = opened(number)?;
        is_meant(&name).then_some(process)
    });
    opened.collect()
}

fn opened(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

fn send(processes: &[OwnedFd], signal: Signal) {
    for process in processes {
        // One that has ended needs none.
        let _ = pidfd_send_signal(process, signal);
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Whether all have ended within a time.
async fn end_within(time: Duration, processes: &[OwnedFd]) -> bool {
    let ended = async {
        while !processes.iter().all(has_ended) {
            tokio::time::sleep(LOOKING).await;
        }
    };
    tokio::time::timeout(time, ended).await.is_ok()
}
