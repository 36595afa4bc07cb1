//! What an instance has done to the system, on file: a start after a crash removes what is left, and two instances don't
//! get into each other's way.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use polypath_system::Netlink;
use polypath_system::process::Process;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::action::Action;
use super::nat;
use super::places::SLOTS;

/// How long one process may change records and what they are of, while others wait for it. Programs that it calls take
/// milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often somebody who waits tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// An instance's claim to a slot. The file goes with it.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    content: Content,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Content {
    #[serde(flatten)]
    process: Process,
    slot: u8,
    actions: Vec<Action>,
}

impl Record {
    /// Claims a slot; false if another living instance has it. What a dead one left is removed first.
    pub(super) fn claim(directory: &Path, slot: u8, netlink: &Netlink) -> io::Result<Option<Self>> {
        polypath_control::create_directory(directory).map_err(|error| refused(directory, error))?;
        // One starter at a time: what another one has not written to the end looks as if a crash had cut it short, and what a
        // dead one left is removed once.
        let _lock = lock_directory(directory).map_err(|error| refused(directory, error))?;
        // What another namespace's instance left stays on file until a start there.
        let path = place(directory, slot)?;
        clear_leftover(&path, netlink)?;
        let content = Content { process: Process::current(), slot, actions: Vec::new() };
        let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(at(&path, error)),
        };
        write(&path, file, &content)?;
        Ok(Some(Self { path, content }))
    }

    /// Notes what is done now, before it is done.
    pub(super) fn note(&mut self, actions: impl Iterator<Item = Action>) -> io::Result<()> {
        self.content.actions = actions.collect();
        replace(&self.path, &self.content)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // Without the file there is nothing to clear.
        let _ = fs::remove_file(&self.path);
    }
}

/// Writes a file as a whole: never half of one.
pub(super) fn replace(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    write(&fresh, options.open(&fresh).map_err(|error| at(&fresh, error))?, content)?;
    fs::rename(&fresh, path).map_err(|error| at(path, error))
}

/// The directory of the records is this process's alone.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Who waits for it finds out that it is gone. If it stays, it does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the directory of the records for this process alone. Who could write there could have us change the system. The
/// lock is a file that nobody else can open: whoever can open a file can keep its lock.
pub(super) fn lock_directory(directory: &Path) -> io::Result<Lock> {
    lock_within(directory, PATIENCE)
}

pub(super) fn lock_within(directory: &Path, limit: Duration) -> io::Result<Lock> {
    let file = File::open(directory).map_err(|error| at(directory, error))?;
    check_owner(directory, &file)?;
    let path = directory.join(LOCK_NAME);
    let started = Instant::now();
    loop {
        let file = open_lock(&path)?;
        while let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            match error {
                Errno::WOULDBLOCK if started.elapsed() < limit => thread::sleep(RETRY_INTERVAL),
                Errno::WOULDBLOCK => return Err(at(&path, held(limit))),
                Errno::INTR => {}
                error => return Err(at(&path, error.into())),
            }
        }
        // Whoever had it before has removed it, perhaps after it was opened here.
        let locked = file.metadata().map_err(|error| at(&path, error))?;
        if fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == locked.ino()) {
            return Ok(Lock { path, _file: file });
        }
    }
}

/// The lock of a directory of records.
const LOCK_NAME: &str = "lock";

fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(|error| at(path, error))?;
    check_regular(path, &file)?;
    check_owner(path, &file)?;
    Ok(file)
}

fn held(limit: Duration) -> io::Error {
    let problem = format!(
        "another process has held this lock for {limit:?}; `fuser` tells which: let it go on (SIGCONT), or end it"
    );
    io::Error::new(io::ErrorKind::TimedOut, problem)
}

/// Longer than any record.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// The text of a record, if it is there and nobody else can have written it.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    read_of(path, rustix::process::geteuid().as_raw())
}

/// The text of a record, if it is there and nobody but this user can have written it.
fn read_of(path: &Path, owner: u32) -> io::Result<Option<String>> {
    // Where there is something else than a file, such as a pipe, nobody waits for whoever may write to it.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at(path, error)),
    };
    check_regular(path, &file)?;
    check_owner_is(path, &file, owner)?;
    let mut bytes = Vec::new();
    file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes).map_err(|error| at(path, error))?;
    // What is no text is no record either: that is seen when it is taken apart.
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn check_regular(path: &Path, file: &File) -> io::Result<()> {
    if file.metadata().map_err(|error| at(path, error))?.is_file() {
        return Ok(());
    }
    let problem = "is no regular file; look at what it is, and remove it";
    Err(at(path, io::Error::new(io::ErrorKind::InvalidData, problem)))
}

fn check_owner(path: &Path, file: &File) -> io::Result<()> {
    check_owner_is(path, file, rustix::process::geteuid().as_raw())
}

fn check_owner_is(path: &Path, file: &File, owner: u32) -> io::Result<()> {
    let found = file.metadata().map_err(|error| at(path, error))?;
    let mode = found.mode() & 0o7777;
    if found.uid() == owner && mode & 0o022 == 0 {
        return Ok(());
    }
    let problem = format!(
        "belongs to user {} and has mode {mode:04o}; expected user {owner}, and that nobody else may write (chmod go-w, or another directory in POLYPATH_RUNTIME_DIR)",
        found.uid()
    );
    Err(at(path, io::Error::new(io::ErrorKind::InvalidData, problem)))
}

/// Refuses a record of what set-up never does: undoing it would let a file decide what is written where.
pub(super) fn check_actions(path: &Path, actions: &[Action]) -> io::Result<()> {
    match actions.iter().find(|action| !action.is_of_setup()) {
        None => Ok(()),
        Some(action) => {
            let problem =
                format!("\"{action}\" is nothing that set-up does; look at the file, and remove it");
            Err(at(path, io::Error::new(io::ErrorKind::InvalidData, problem)))
        }
    }
}

fn write(path: &Path, mut file: File, content: &impl Serialize) -> io::Result<()> {
    file.write_all(serde_json::to_string_pretty(content)?.as_bytes()).map_err(|error| at(path, error))
}

pub(super) fn at(path: &Path, error: io::Error) -> io::Error {
    polypath_system::in_context(path.display().to_string(), error)
}

/// The directory is not for this user.
#[derive(Debug, thiserror::Error)]
#[error("{}: can't be used: {source}; expected a directory of this user's in POLYPATH_RUNTIME_DIR", directory.display())]
struct Refused {
    directory: PathBuf,
    source: io::Error,
}

/// Of another kind than a refusal by the network, against which other rights help.
pub(super) fn refused(directory: &Path, source: io::Error) -> io::Error {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::other(Refused { directory: directory.to_path_buf(), source })
        }
        _ => source,
    }
}

fn place(directory: &Path, slot: u8) -> io::Result<PathBuf> {
    Ok(directory.join(format!("setup-{}-{slot}.json", namespace()?)))
}

/// Whether anything is on file for the calling thread's namespace.
pub(super) fn has_some(directory: &Path) -> io::Result<bool> {
    let namespace = namespace()?;
    let (setup, variables) = (format!("setup-{namespace}-"), format!("variables-{namespace}."));
    let gateway = format!("gateway-{namespace}-");
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries.map_err(|error| at(directory, error))?,
    };
    Ok(entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        [&setup, &variables, &gateway].iter().any(|prefix| name.starts_with(prefix.as_str()))
    }))
}

/// The processes that died and have something on file in the calling thread's namespace.
pub(super) fn left(directory: &Path) -> io::Result<Vec<u32>> {
    left_of(directory, rustix::process::geteuid().as_raw())
}

/// The same of another user's directory, who has written the records.
pub(super) fn left_of_others(directory: &Path) -> io::Result<Vec<u32>> {
    left_of(directory, fs::metadata(directory).map_err(|error| at(directory, error))?.uid())
}

/// The text of a record in another user's directory, if nobody but that user can have written it.
pub(super) fn read_of_others(path: &Path) -> io::Result<Option<String>> {
    let directory = path.parent().unwrap_or(Path::new("."));
    read_of(path, fs::metadata(directory).map_err(|error| at(directory, error))?.uid())
}

fn left_of(directory: &Path, owner: u32) -> io::Result<Vec<u32>> {
    let mut dead = Vec::new();
    if !has_some(directory)? {
        return Ok(dead);
    }
    for slot in 0..SLOTS {
        let Some(text) = read_of(&place(directory, slot)?, owner)? else { continue };
        let content = serde_json::from_str::<Content>(&text).ok();
        dead.extend(content.filter(|left| !left.process.is_alive()).map(|left| left.process.pid));
    }
    Ok(dead)
}

/// Undoes what an instance with this slot has left in this namespace, if it is dead.
pub(super) fn clear(directory: &Path, slot: u8, netlink: &Netlink) -> io::Result<()> {
    let _lock = lock_directory(directory)?;
    clear_leftover(&place(directory, slot)?, netlink)
}

/// Undoes what a dead instance left in this namespace.
fn clear_leftover(path: &Path, netlink: &Netlink) -> io::Result<()> {
    let Some(text) = read(path)? else { return Ok(()) };
    let Ok(left) = serde_json::from_str::<Content>(&text) else {
        // Empty, it was cut short by a crash, before anything was done.
        if !text.is_empty() {
            tracing::warn!(
                "{}: no record of a set-up, and removed; if a process was killed, its rules (`ip rule`) and tables \
                 (`nft list tables`) may be left",
                path.display()
            );
        }
        return fs::remove_file(path).map_err(|error| at(path, error));
    };
    if left.process.is_alive() {
        return Ok(());
    }
    check_actions(path, &left.actions)?;
    tracing::info!(slot = left.slot, pid = left.process.pid, "removing what an instance that died has left");
    nat::remove(left.slot)?;
    for action in left.actions.iter().rev() {
        action.undo(netlink)?;
    }
    fs::remove_file(path).map_err(|error| at(path, error))
}

/// What tells the calling thread's network namespace from all others, those too that are gone: the numbers of their files are
/// given again.
pub(super) fn namespace() -> io::Result<u64> {
    // Any socket knows it. To bind one needs an address, which a namespace may lack, even that of loopback.
    let socket = UnixDatagram::unbound()?;
    match cookie(&socket) {
        // Before Linux 5.14.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
        }
        cookie => cookie,
    }
}

#[allow(unsafe_code)]
fn cookie(socket: &UnixDatagram) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the number, and both live through the call.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if status == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// socket(7); the libc crate has no name for it.
const SO_NETNS_COOKIE: libc::c_int = 71;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named() {
        let full = Path::new("/dev/full");
        let file = OpenOptions::new().write(true).open(full).expect("a device");
        let error = write(full, file, &1).expect_err("it is full");
        assert!(error.to_string().starts_with("/dev/full: No space left"), "{error}");
    }
}
