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

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Content {
    pid: u32,
    /// When the process began: its number may be another's by now.
    started: u64,
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
        let pid = std::process::id();
        let started = start_time(pid).unwrap_or_default();
        let content = Content { pid, started, namespace: namespace()?, slot, actions: Vec::new() };
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
        // A whole file or the one before: never half of one.
        let fresh = self.path.with_extension("new");
        write(File::create(&fresh).map_err(|error| at(&fresh, &error))?, &self.content)?;
        fs::rename(&fresh, &self.path).map_err(|error| at(&self.path, &error))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // Without the file there is nothing to clear.
        let _ = fs::remove_file(&self.path);
    }
}

fn write(mut file: File, content: &Content) -> io::Result<()> {
    file.write_all(serde_json::to_string_pretty(content)?.as_bytes())
}

fn at(path: &Path, error: &io::Error) -> io::Error {
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
    if start_time(left.pid) == Some(left.started) {
        return Ok(());
    }
    if left.namespace == namespace()? {
        tracing::info!(slot = left.slot, pid = left.pid, "removing what an instance that died has left");
        nat::remove(left.slot)?;
        for action in left.actions.iter().rev() {
            action.undo(netlink)?;
        }
    }
    fs::remove_file(path).map_err(|error| at(path, &error))
}

fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// Field 22 of `/proc/PID/stat`, if the process lives.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, a name in parentheses, may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
