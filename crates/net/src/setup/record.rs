//! What an instance has done to the system, on file: a start after a crash removes what is left, and two instances don't
//! get into each other's way.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::action::Action;
use super::nat;
use crate::Netlink;

/// An instance's claim to a slot. The file goes with it.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    content: Content,
}

/// A process, told apart from later ones with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pid: u32,
    /// When it began, in the system's ticks.
    started: u64,
}

impl Process {
    pub(super) fn current() -> Self {
        let pid = std::process::id();
        Self { pid, started: start_time(pid).unwrap_or_default() }
    }

    pub(super) fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Content {
    #[serde(flatten)]
    process: Process,
    /// Inode of the network namespace.
    namespace: u64,
    slot: u8,
    actions: Vec<Action>,
}

impl Record {
    /// Claims a slot; false if another living instance has it. What a dead one left is removed first.
    pub(super) fn claim(directory: &Path, slot: u8, netlink: &Netlink) -> io::Result<Option<Self>> {
        fs::create_dir_all(directory)?;
        let path = directory.join(format!("setup-{slot}.json"));
        clear_leftover(&path, netlink)?;
        let (process, namespace) = (Process::current(), namespace()?);
        let content = Content { process, namespace, slot, actions: Vec::new() };
        let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(at(&path, &error)),
        };
        write(file, &content)?;
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
    write(File::create(&fresh).map_err(|error| at(&fresh, &error))?, content)?;
    fs::rename(&fresh, path).map_err(|error| at(path, &error))
}

fn write(mut file: File, content: &impl Serialize) -> io::Result<()> {
    file.write_all(serde_json::to_string_pretty(content)?.as_bytes())
}

pub(super) fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Undoes what a dead instance left, if its namespace is this one.
fn clear_leftover(path: &Path, netlink: &Netlink) -> io::Result<()> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(at(path, &error)),
    };
    // A file that can't be read was cut short by a crash, before anything was done.
    let Ok(left) = serde_json::from_str::<Content>(&text) else { return fs::remove_file(path) };
    if left.process.is_alive() {
        return Ok(());
    }
    if left.namespace == namespace()? {
        tracing::info!(
            slot = left.slot,
            pid = left.process.pid,
            "removing what an instance that died has left"
        );
        nat::remove(left.slot)?;
        for action in left.actions.iter().rev() {
            action.undo(netlink)?;
        }
    }
    fs::remove_file(path).map_err(|error| at(path, &error))
}

/// Inode of the calling thread's network namespace.
pub(super) fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// Field 22 of `/proc/PID/stat`, if the process lives.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, a name in parentheses, may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
