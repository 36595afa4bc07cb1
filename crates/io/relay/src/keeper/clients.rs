//! The processes that have asked a keeper, as long as they live.

use std::collections::HashSet;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::mpsc;

/// Who has asked, and who is asking now.
#[derive(Debug)]
pub(super) struct Clients {
    state: Mutex<State>,
    newcomers: mpsc::UnboundedSender<Newcomer>,
}

/// A process that asks for the first time; its descriptor becomes readable when it has ended.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) pid: Pid,
    pub(super) process: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    present: HashSet<Pid>,
    asking: usize,
    has_had_one: bool,
    is_ending: bool,
}

/// A question that is being answered.
#[derive(Debug)]
pub(super) struct Asking<'a>(&'a Clients);

impl Clients {
    /// None yet, and where to learn of new ones.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Newcomer>) {
        let (newcomers, arriving) = mpsc::unbounded_channel();
        (Self { state: Mutex::default(), newcomers }, arriving)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody asks. None once the end has begun.
    pub(super) fn enter(&self, program: BorrowedFd<'_>) -> io::Result<Option<Asking<'_>>> {
        let pid = rustix::net::sockopt::socket_peercred(program)?.pid;
        let mut state = self.state();
        if state.is_ending {
            return Ok(None);
        }
        // It waits for the answer, so that the number is still its own.
        if !state.present.contains(&pid)
            && let Ok(process) = pidfd_open(pid, PidfdFlags::NONBLOCK)
            && self.newcomers.send(Newcomer { pid, process }).is_ok()
        {
            state.present.insert(pid);
        }
        state.has_had_one = true;
        state.asking += 1;
        Ok(Some(Asking(self)))
    }

    /// A process has ended.
    pub(super) fn leave(&self, pid: Pid) {
        self.state().present.remove(&pid);
    }

    /// Whether somebody has ever asked.
    pub(super) fn has_had_one(&self) -> bool {
        self.state().has_had_one
    }

    /// No process is left that has asked.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state();
        state.present.is_empty() && state.asking == 0
    }

    /// Takes no more of them, if none is left.
    pub(super) fn end_if_empty(&self) -> bool {
        let mut state = self.state();
        state.is_ending |= state.present.is_empty() && state.asking == 0;
        state.is_ending
    }

    /// Takes no more of them.
    pub(super) fn end(&self) {
        self.state().is_ending = true;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.state().asking -= 1;
    }
}
