//! A connection that a path of a stream keeps to one server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use url::Url;

use crate::download::Dial;
use crate::download::asking::Asking;
use crate::download::path::{Command, Told, keep};
use crate::schedule::RequestId;

/// Which line of which path tells something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineId {
    pub(super) path: usize,
    /// The lines of a path are numbered in the order in which they were made.
    pub(super) line: usize,
}

/// There are never so many paths.
const PATHS: usize = 1 << 16;

impl LineId {
    pub(super) const fn of(told: usize) -> Self {
        Self { path: told % PATHS, line: told / PATHS }
    }

    const fn number(self) -> usize {
        self.line * PATHS + self.path
    }
}

/// One of a path's connections, which is made again as often as it is lost.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) server: Url,
    commands: mpsc::UnboundedSender<Command>,
    task: JoinHandle<()>,
    /// The number of the connection, while there is one.
    pub(super) connection: Option<u64>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Line {
    pub(super) fn new(id: LineId, way: Arc<dyn Dial>, asking: Asking, events: mpsc::Sender<Told>) -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let server = asking.url.clone();
        let task = tokio::spawn(keep(id.number(), way, asking, receiver, events));
        Self { number: id.line, server, commands, task, connection: None }
    }

    pub(super) fn ask(&self, id: RequestId, url: &Url, range: String) {
        let Some(connection) = self.connection else { return };
        // Its task lasts as long as it does.
        let _ =
            self.commands.send(Command::Ask { connection, id, url: Some(url.clone()), range: Some(range) });
    }

    /// The connection is given up for another one.
    pub(super) fn renew(&mut self, pause: Duration) {
        if let Some(connection) = self.connection.take() {
            let _ = self.commands.send(Command::Renew { connection, pause });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_known_by_its_number() {
        for (path, line) in [(0, 0), (3, 0), (3, 7), (65_535, 1_000_000)] {
            let id = LineId { path, line };
            assert_eq!(LineId::of(id.number()), id);
        }
    }
}
