//! What other processes may ask a running stack: its connections, its counters, and what happens next.
//!
//! A stack offers a Unix socket of mode 0600 in [`polypath_system::runtime_directory`], `PID.sock`. A client writes one line, a JSON object like
//! `{"ask":"connections"}`, `{"ask":"counters"}` or `{"ask":"monitor"}`, and reads JSON lines: one [`Answer`] for the first two, and
//! an [`EventReport`] for each event until it closes for the third; with `"early":true`, those of the stack's first seconds come first,
//! so that whoever waits for a stack to start misses none. `{"ask":"last"}` is answered twice: at once, without content, and with
//! the figures of the end when the stack ends. `{"ask":"paths"}` is answered with [`PathsReport`], and
//! `{"ask":"change","change":…}` changes them, in the words of [`Change`]. `polypath ss` and `polypath monitor` are such clients.

mod arrivals;
mod client;
mod early;
mod figures;
mod last;
mod paths;
mod report;
mod server;
mod stack;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

pub use arrivals::Arrivals;
pub use client::{ANSWER_LIMIT, LastWords, Monitor, Peer, find};
pub use figures::{FiguresReport, PathReport, SubflowsNow};
pub use paths::{Change, ChangeError, EndpointReport, Flags, PathsReport, Target};
pub use report::{ConnectionReport, EventKind, EventReport, ListenerReport, SubflowReport};
use serde::{Deserialize, Serialize};
pub use server::{ControlSocket, offer, offer_as, process_name, process_name_of};
use tokio::sync::broadcast;

/// Whoever can be asked.
pub trait Observed: Send + Sync {
    /// State of each connection.
    fn connections(&self) -> Vec<ConnectionReport>;

    /// Where it takes connections.
    fn listeners(&self) -> Vec<ListenerReport> {
        Vec::new()
    }

    /// What happens from now on. Called within a tokio runtime.
    fn subscribe(&self) -> broadcast::Receiver<EventReport>;

    /// What was counted by path, over connections that have ended too.
    fn figures(&self) -> FiguresReport {
        FiguresReport::default()
    }

    /// Its paths, and what else can be changed; none if nothing can.
    fn paths(&self) -> Option<PathsReport> {
        None
    }

    /// Changes it.
    fn change(&self, change: &Change) -> Result<(), ChangeError> {
        let _ = change;
        Err(ChangeError::Ended)
    }

    /// Counters, by the kernel's names.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// State of each connection, and where new ones are taken.
    Connections,
    /// Counters.
    Counters,
    /// What is counted and measured by path, and counters.
    Figures,
    /// As [`Ask::Figures`], once the stack ends: until then, an answer without content says that it will come.
    Last,
    /// Events as they happen.
    Monitor,
    /// Its paths, and what else can be changed.
    Paths,
    /// A change, which stands beside it.
    Change,
}

#[derive(Debug, Serialize, Deserialize)]
struct Question {
    ask: Ask,
    /// Events of the stack's first seconds come before those from now on.
    #[serde(default)]
    early: bool,
    /// For [`Ask::Change`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    change: Option<Change>,
}

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Name of the program.
    pub process: String,
    /// Its process.
    pub pid: u32,
    /// State of each connection, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionReport>,
    /// Where connections are taken, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerReport>,
    /// Counters, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<(String, u64)>,
    /// What was counted by path, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<FiguresReport>,
    /// Its paths, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<PathsReport>,
    /// What is wrong with the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Answer {
    fn add_figures(&mut self, observed: &dyn Observed) {
        self.figures = Some(observed.figures());
        self.counters = observed.counters().into_iter().map(|(name, value)| (name.into(), value)).collect();
    }
}

/// Removes the sockets of processes that died without a word.
pub fn clear(directory: &Path) -> io::Result<()> {
    server::remove_stale(directory)
}

/// Makes the directory of a user's sockets and records, if it is missing: nobody else has to look into it.
pub fn create_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests;
