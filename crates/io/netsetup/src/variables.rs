//! Variables of the system that instances need and share: the last one to leave puts them back, not the first.

use std::path::{Path, PathBuf};
use std::{fs, io};

use polypath_system::Netlink;
use polypath_system::process::Process;
use serde::{Deserialize, Serialize};

use super::action::{Action, is_router};
use super::limits::Limits;
use super::record;

/// An instance's part in the shared variables. It ends with [`SharedVariables::leave`].
#[derive(Debug)]
pub(super) struct SharedVariables {
    path: PathBuf,
    slot: u8,
}

/// What is on file for a network namespace.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    users: Vec<User>,
    /// What was set, in order.
    set: Vec<Action>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct User {
    process: Process,
    slot: u8,
}

impl Content {
    fn put_back_if_unused(&mut self, netlink: &Netlink) -> io::Result<()> {
        if !self.users.is_empty() {
            return Ok(());
        }
        let mut result = Ok(());
        for action in std::mem::take(&mut self.set).iter().rev() {
            result = result.and(action.undo(netlink));
        }
        result
    }
}

fn place(directory: &Path) -> io::Result<PathBuf> {
    Ok(directory.join(format!("variables-{}.json", record::namespace()?)))
}

impl SharedVariables {
    /// Takes part. What instances that died have set stays set, and is put back by the last that leaves.
    pub(super) fn join(directory: &Path, slot: u8) -> io::Result<Self> {
        let shared = Self { path: place(directory)?, slot };
        let user = User { process: Process::current(), slot };
        shared.change(|content| {
            content.users.push(user);
            Ok(())
        })?;
        Ok(shared)
    }

    /// Notes which variables are about to be set.
    pub(super) fn note(&self, actions: &[Action]) -> io::Result<()> {
        if actions.is_empty() {
            return Ok(());
        }
        self.change(|content| {
            for action in actions {
                // What was there before the first instance is what counts.
                if !content.set.iter().any(|known| known.variable() == action.variable()) {
                    content.set.push(action.clone());
                }
            }
            Ok(())
        })
    }

    /// What the system forwards because of instances, rather than because somebody else wants it.
    pub(super) fn limits(&self) -> io::Result<Limits> {
        let mut limits = Limits::default();
        self.change(|content| {
            limits = Limits::of(&content.set, is_router);
            Ok(())
        })?;
        Ok(limits)
    }

    /// Leaves; the last one puts the variables back.
    pub(super) fn leave(&self, netlink: &Netlink) -> io::Result<()> {
        let me = User { process: Process::current(), slot: self.slot };
        self.change(|content| {
            content.users.retain(|user| *user != me);
            content.put_back_if_unused(netlink)
        })
    }

    /// Puts the variables back if all that take part are dead.
    pub(super) fn clear(directory: &Path, netlink: &Netlink) -> io::Result<()> {
        // It takes no part itself, so that the number of its instance does not matter.
        let shared = Self { path: place(directory)?, slot: 0 };
        shared.change(|content| content.put_back_if_unused(netlink))
    }

    /// Changes what is on file, one process at a time. Processes that died take part no more.
    fn change(&self, work: impl FnOnce(&mut Content) -> io::Result<()>) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let _lock = record::lock_directory(directory)?;
        let text = record::read(&self.path)?.unwrap_or_default();
        // It is replaced as a whole, so what can't be read isn't ours.
        let mut content: Content = serde_json::from_str(&text).unwrap_or_default();
        record::check_actions(&self.path, &content.set)?;
        content.users.retain(|user| user.process.is_alive());
        let result = work(&mut content);
        if content.users.is_empty() && content.set.is_empty() {
            match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(record::at(&self.path, error));
                }
                _ => return result,
            }
        }
        record::replace(&self.path, &content)?;
        result
    }
}
