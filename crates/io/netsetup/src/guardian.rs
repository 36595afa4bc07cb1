//! The process that stays when its parent is killed, and takes down what the parent had set up.
//!
//! A process that gets SIGKILL, or that the kernel ends when memory runs out, can't put the network back. So set-up starts a
//! child before the first change, which does nothing but wait for its parent's end. A library, whose program waits for its own
//! children, starts one that is nobody's child.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use polypath_stack::peer_list::PeerList;
use polypath_system::tun::Tun;
use polypath_system::{Detached, Namespace, Netlink};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, getppid, pidfd_open, pidfd_send_signal, waitid,
};

use super::farewell::take_leave;
use super::gateway;
use super::options::{DetachedGuardian, GuardianCommand};
use super::places::SLOTS;
use super::record;
use super::variables::SharedVariables;

/// Where a guardian that is nobody's child says that it waits.
const TOLD_AT: RawFd = 3;
/// Where it has the process that it waits for.
const WATCHED_AT: RawFd = 4;

/// A guardian that waits. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Guardian {
    process: Waiting,
    peers: File,
}

#[derive(Debug)]
enum Waiting {
    Child(Child),
    Detached(OwnedFd),
}

impl Guardian {
    /// Starts one for this process, in the calling thread's network namespace.
    pub(super) fn start(command: &GuardianCommand, directory: &Path, tun: &Tun) -> io::Result<Self> {
        Self::start_with(command, directory, tun.descriptor()?.into())
    }

    /// The same where there is no device, and nobody to be told.
    pub(super) fn start_without_device(command: &GuardianCommand, directory: &Path) -> io::Result<Self> {
        // Nothing is ever to be read there.
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        Self::start_with(command, directory, nothing.into())
    }

    fn start_with(command: &GuardianCommand, directory: &Path, device: Stdio) -> io::Result<Self> {
        let peers = empty_list()?;
        let mut process = Command::new(&command.program);
        process.args(&command.arguments).arg(directory).arg(std::process::id().to_string());
        // What a terminal sends to its foreground process group is not for it. Standard error stays this process's: what can't be
        // taken down is said there.
        process.process_group(0).current_dir("/");
        process.stdin(peers.try_clone()?).stdout(device);
        Ok(Self { process: Waiting::Child(process.spawn()?), peers })
    }

    /// The same as nobody's child, so that the program that this is part of does not notice. It has none of its descriptors.
    pub(super) fn start_detached(how: &DetachedGuardian, directory: &Path, tun: &Tun) -> io::Result<Self> {
        let peers = empty_list()?;
        let device = tun.descriptor()?;
        let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let this = pidfd_open(getpid(), PidfdFlags::empty())?;
        let directory = std::path::absolute(directory)?;
        let arguments: Vec<OsString> = how.arguments.iter().cloned().chain([directory.into()]).collect();
        let kept = std::env::vars_os().filter(|(name, _)| name != LIBRARIES);
        let library = how.library.iter().map(|path| (LIBRARIES.into(), path.into()));
        let variables: Vec<(OsString, OsString)> = kept.chain(library).collect();
        Detached {
            program: &how.program,
            arguments: &arguments,
            variables: &variables,
            // As `guard_detached` expects them.
            descriptors: &[peers.as_fd(), device.as_fd(), nothing.as_fd(), writer.as_fd(), this.as_fd()],
            has_network_rights: true,
        }
        .start()?;
        drop(writer);
        let mut told = String::new();
        // A line, not an end: another thread of the program may have forked in between.
        BufReader::new(File::from(reader)).read_line(&mut told)?;
        let number = told.trim_end().parse().ok().and_then(Pid::from_raw);
        let number =
            number.ok_or_else(|| io::Error::other(format!("{} ended at once", how.program.display())))?;
        Ok(Self { process: Waiting::Detached(pidfd_open(number, PidfdFlags::empty())?), peers })
    }

    /// The list in which it looks for the peers that are to be told.
    pub(super) fn peer_list(&self) -> io::Result<PeerList> {
        self.peers.try_clone().map(PeerList::new)
    }
}

/// The variable with the libraries that are put into a program.
const LIBRARIES: &str = "LD_PRELOAD";

fn empty_list() -> io::Result<File> {
    Ok(File::from(memfd_create("polypath-peers", MemfdFlags::CLOEXEC)?))
}

impl Drop for Guardian {
    fn drop(&mut self) {
        match &mut self.process {
            Waiting::Child(child) => {
                // Its own child, and not yet waited for.
                let _ = child.kill();
                let _ = child.wait();
            }
            Waiting::Detached(process) => {
                // Where the program has given up its rights, it stays until the program ends.
                if pidfd_send_signal(&*process, Signal::KILL).is_ok() {
                    let _ = wait_for(process);
                    // A program that adopts orphans has adopted it.
                    let _ = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
                }
            }
        }
    }
}

/// Waits until the process has ended that started this one and has the number `parent`, tells its peers, and takes down what
/// it has left in the network of this process. Standard input is a list of the peers, standard output the process's device,
/// if it has one. `directory` is where its records are.
pub fn guard(directory: &Path, parent: u32) -> io::Result<()> {
    ignore_signals();
    wait_for_end(parent)?;
    take_down(directory)
}

/// As [`guard`], in a process that [`DetachedGuardian`] describes.
#[allow(unsafe_code)]
pub fn guard_detached(directory: &Path) -> io::Result<()> {
    ignore_signals();
    // SAFETY: one that is not open makes the calls below fail, and nothing else in this process knows the numbers.
    let given = [TOLD_AT, WATCHED_AT].map(|number| unsafe { BorrowedFd::borrow_raw(number) });
    given.iter().try_for_each(|fd| rustix::io::fcntl_getfd(fd).map(drop))?;
    // SAFETY: they are open, and this process's own to close.
    let [told, watched] = [TOLD_AT, WATCHED_AT].map(|number| unsafe { OwnedFd::from_raw_fd(number) });
    // For what it starts, such as nft.
    for fd in [&told, &watched] {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
    }
    std::env::set_current_dir("/")?;
    // Nobody waits any more: then the end has come, and is seen below.
    let _ = writeln!(File::from(told), "{}", std::process::id());
    wait_for(&watched)?;
    take_down(directory)
}

/// What there is to do after the end of the process.
fn take_down(directory: &Path) -> io::Result<()> {
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
    wait_for(&watched)
}

/// Waits for a process's end.
fn wait_for(process: &OwnedFd) -> io::Result<()> {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut watched, None))?;
    Ok(())
}

/// A service manager asks all processes of a service to end; this one ends when its parent has. Nor does a terminal stop it that
/// lets processes in the background write nothing. What can't be written any more is an error, also where nobody has said so.
#[allow(unsafe_code)]
fn ignore_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGTTOU, libc::SIGPIPE] {
        // SAFETY: to ignore a signal runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// The processes that died and of which something is left in this user's records.
pub fn left_by() -> io::Result<Vec<u32>> {
    // Where there is no directory, there are no records.
    polypath_system::runtime_directory().map_or_else(|_| Ok(Vec::new()), |own| left(&own))
}

fn left(directory: &Path) -> io::Result<Vec<u32>> {
    Ok([record::left(directory)?, gateway::left(directory, record::read)?].concat())
}

fn left_of_others(directory: &Path) -> io::Result<Vec<u32>> {
    Ok([record::left_of_others(directory)?, gateway::left(directory, record::read_of_others)?].concat())
}

/// Takes down what processes that died have left in the calling thread's network, where this user's records say so, and the
/// sockets at which they were asked.
pub fn clear() -> io::Result<()> {
    clear_but(None)
}

/// The same, but for what forwards for this device, which [`Gateway::open`](crate::Gateway::open) is to replace at once. Connections that pass
/// through it would be reset if something came of them while nothing translates it.
pub fn clear_before_gateway(device: &str) -> io::Result<()> {
    clear_but(Some(device))
}

fn clear_but(device: Option<&str>) -> io::Result<()> {
    // Where there is no directory, there are no records.
    let Ok(directory) = polypath_system::runtime_directory() else { return Ok(()) };
    // One that stays does no harm.
    let _ = polypath_control::clear(&directory);
    if !record::has_some(&directory)? {
        return Ok(());
    }
    // The caller may be in a runtime, which must not wait.
    Namespace::current()?.run(|| clear_in_but(&directory, device))?
}

/// What processes that died have left in the calling thread's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftBehind {
    /// Where it is on file.
    pub(crate) directory: PathBuf,
    /// The directory is another user's, or a service's: this user's starts do not clear it.
    pub(crate) is_others: bool,
    pub(crate) pids: Vec<u32>,
}

/// What processes that died have left in the calling thread's network, as the records say of this user or, for root, of all.
pub(crate) fn left_behind() -> io::Result<Vec<LeftBehind>> {
    // Where there is no directory, there are no records.
    let Ok(own) = polypath_system::runtime_directory() else { return Ok(Vec::new()) };
    left_in(&own, &polypath_system::runtime_directories(&own))
}

pub(super) fn left_in(own: &Path, directories: &[PathBuf]) -> io::Result<Vec<LeftBehind>> {
    let mut found = Vec::new();
    for directory in directories {
        let is_others = directory != own;
        let pids = if is_others {
            // What others have written there keeps nobody from their own.
            left_of_others(directory).unwrap_or_default()
        } else {
            left(directory)?
        };
        if !pids.is_empty() {
            found.push(LeftBehind { directory: directory.clone(), is_others, pids });
        }
    }
    Ok(found)
}

pub(super) fn clear_in(directory: &Path) -> io::Result<()> {
    clear_in_but(directory, None)
}

fn clear_in_but(directory: &Path, device: Option<&str>) -> io::Result<()> {
    if !record::has_some(directory)? {
        return Ok(());
    }
    let netlink = Netlink::new()?;
    // Before the rules that limit what is forwarded: not for a moment is this a router for others.
    let mut result = SharedVariables::clear(directory, &netlink);
    for slot in 0..SLOTS {
        result = result.and(record::clear(directory, slot, &netlink));
    }
    result = result.and(gateway::clear(directory, device));
    result.and(polypath_control::clear(directory))
}
