//! The process that stays when its parent is killed, and takes down what the parent had set up.
//!
//! A process that gets SIGKILL, or that the kernel ends when memory runs out, can't put the network back. So set-up starts a
//! child before the first change, which does nothing but wait for its parent's end.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use polypath_stack::peer_list::PeerList;
use polypath_system::tun::Tun;
use polypath_system::{Namespace, Netlink};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

use super::farewell::take_leave;
use super::options::GuardianCommand;
use super::places::SLOTS;
use super::record;
use super::variables::SharedVariables;

/// A guardian that waits. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Guardian {
    child: Child,
    peers: File,
}

impl Guardian {
    /// Starts one for this process, in the calling thread's network namespace.
    pub(super) fn start(command: &GuardianCommand, directory: &Path, tun: &Tun) -> io::Result<Self> {
        let peers = File::from(memfd_create("polypath-peers", MemfdFlags::CLOEXEC)?);
        let mut process = Command::new(&command.program);
        process.args(&command.arguments).arg(directory).arg(std::process::id().to_string());
        // What a terminal sends to its foreground process group is not for it. Standard error stays this process's: what can't be
        // taken down is said there.
        process.process_group(0).current_dir("/");
        process.stdin(peers.try_clone()?).stdout(tun.descriptor()?);
        Ok(Self { child: process.spawn()?, peers })
    }

    /// The list in which it looks for the peers that are to be told.
    pub(super) fn peer_list(&self) -> io::Result<PeerList> {
        self.peers.try_clone().map(PeerList::new)
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // Its own child, and not yet waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the process has ended that started this one and has the number `parent`, tells its peers, and takes down what
/// it has left in the network of this process. Standard input is a list of the peers, standard output the process's device.
/// `directory` is where its records are.
pub fn guard(directory: &Path, parent: u32) -> io::Result<()> {
    ignore_signals();
    wait_for_end(parent)?;
    let (device, peers) =
        (io::stdout().as_fd().try_clone_to_owned(), io::stdin().as_fd().try_clone_to_owned());
    // What is set up goes also if they can't be told, and before anything is said: nobody may read it.
    let told = device.and_then(|device| take_leave(device, &File::from(peers?)));
    let cleared = clear_in(directory);
    if let Err(error) = told {
        tracing::warn!(%error, "the peers of a process that was killed can't be told");
    }
    cleared
}

/// Waits until this process's parent has ended, which had the number `parent`.
fn wait_for_end(parent: u32) -> io::Result<()> {
    let parent = i32::try_from(parent).ok().and_then(Pid::from_raw).ok_or(Errno::INVAL)?;
    let watched = match pidfd_open(parent, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        watched => watched?,
    };
    // The number may be another process's by now, but not as long as it is that of our parent.
    if getppid() != Some(parent) {
        return Ok(());
    }
    let mut watched = [PollFd::new(&watched, PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut watched, None))?;
    Ok(())
}

/// A service manager asks all processes of a service to end; this one ends when its parent has. Nor does a terminal stop it that
/// lets processes in the background write nothing.
#[allow(unsafe_code)]
fn ignore_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGTTOU] {
        // SAFETY: to ignore a signal runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Takes down what processes that died have left in the calling thread's network, where this user's records say so, and the
/// sockets at which they were asked.
pub fn clear() -> io::Result<()> {
    // Where there is no directory, there are no records.
    let Ok(directory) = polypath_system::runtime_directory() else { return Ok(()) };
    // One that stays does no harm.
    let _ = polypath_control::clear(&directory);
    if !record::has_some(&directory)? {
        return Ok(());
    }
    // The caller may be in a runtime, which must not wait.
    Namespace::current()?.run(|| clear_in(&directory))?
}

/// The processes that died and have left their set-up in the calling thread's network, as this user's records say.
pub(crate) fn left_behind() -> io::Result<Vec<u32>> {
    // Where there is no directory, there are no records.
    polypath_system::runtime_directory().map_or(Ok(Vec::new()), |directory| record::left(&directory))
}

pub(super) fn clear_in(directory: &Path) -> io::Result<()> {
    if !record::has_some(directory)? {
        return Ok(());
    }
    let netlink = Netlink::new()?;
    // Before the rules that limit what is forwarded: not for a moment is this a router for others.
    let mut result = SharedVariables::clear(directory, &netlink);
    for slot in 0..SLOTS {
        result = result.and(record::clear(directory, slot, &netlink));
    }
    result.and(polypath_control::clear(directory))
}
