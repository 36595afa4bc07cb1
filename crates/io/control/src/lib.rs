//! What other processes may ask a running stack: its connections, its counters, and what happens next.
//!
//! A stack offers a Unix socket of mode 0600 in [`polypath_system::runtime_directory`], `PID.sock`. A client writes one line, a JSON object like
//! `{"ask":"connections"}`, `{"ask":"counters"}` or `{"ask":"monitor"}`, and reads JSON lines: one [`Answer`] for the first two, and
//! an [`EventReport`] for each event until it closes for the third. `polypath ss` and `polypath monitor` are such clients.

mod client;
mod figures;
mod report;
mod server;
mod stack;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

pub use client::{ANSWER_LIMIT, Monitor, Peer, find};
pub use figures::{FiguresReport, PathReport, SubflowsNow};
pub use report::{ConnectionReport, EventKind, EventReport, SubflowReport};
use serde::{Deserialize, Serialize};
pub use server::{ControlSocket, offer};
use tokio::sync::broadcast;

/// Whoever can be asked.
pub trait Observed: Send + Sync {
    /// State of each connection.
    fn connections(&self) -> Vec<ConnectionReport>;

    /// What happens from now on. Called within a tokio runtime.
    fn subscribe(&self) -> broadcast::Receiver<EventReport>;

    /// What was counted by path, over connections that have ended too.
    fn figures(&self) -> FiguresReport {
        FiguresReport::default()
    }

    /// Counters, by the kernel's names.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// State of each connection.
    Connections,
    /// Counters.
    Counters,
    /// What is counted and measured by path, and counters.
    Figures,
    /// Events as they happen.
    Monitor,
}

#[derive(Debug, Serialize, Deserialize)]
struct Question {
    ask: Ask,
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
    /// Counters, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<(String, u64)>,
    /// What was counted by path, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<FiguresReport>,
    /// What is wrong with the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
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
