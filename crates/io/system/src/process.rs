//! Processes by their numbers, which the system gives again.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A process, told apart from later ones with the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it began, in the system's ticks.
    started: u64,
}

impl Process {
    /// This one.
    pub fn current() -> Self {
        let pid = std::process::id();
        Self { pid, started: start_time(pid).unwrap_or_default() }
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

/// Lets this process have as many descriptors as it may: each connection takes one at least, and what is usual was made for
/// programs with a few files. What it starts afterwards has the same limit.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // What is not allowed is done without.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// How many descriptors this process may have at once.
#[must_use]
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether a process with this number lives.
pub fn is_alive(pid: u32) -> bool {
    start_time(pid).is_some()
}

fn start_time(pid: u32) -> Option<u64> {
    started(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Field 22 of `/proc/PID/stat`, if the process lives: one that is dead stays listed until its parent has asked how it ended.
fn started(stat: &str) -> Option<u64> {
    // The second field, a name in parentheses, may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| !is_dead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_nobody_has_asked_for_yet_is_dead() {
        assert!(Process::current().is_alive());
        let stat = |state| format!("7 (a) Z b) {state} 1{} 4711 0 0", " 0".repeat(17));
        assert_eq!(started(&stat("S")), Some(4711));
        assert_eq!(started(&stat("Z")), None);
        let mut child = std::process::Command::new("true").spawn().expect("a program");
        let pid = child.id();
        // It ends, and stays listed until it is waited for.
        rustix::process::waitid(
            rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&child)),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        )
        .expect("its end");
        assert!(fs::exists(format!("/proc/{pid}")).expect("/proc") && !is_alive(pid));
        child.wait().expect("its end");
    }
}
