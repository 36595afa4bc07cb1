//! The paths of a stream under way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use url::Url;

use crate::answer::AskedRange;
use crate::download::Dial;
use crate::download::asking::RequestFields;
use crate::download::path::{Command, Told, keep};
use crate::schedule::{PathId, RequestId};
use crate::stream::UnitNumber;

/// What a path was asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) unit: UnitNumber,
    pub(super) url: Url,
    /// In the file that the segment is, or is a part of.
    pub(super) range: AskedRange,
    /// Where the segment begins in that file.
    pub(super) offset: u64,
    /// The place in the segment of the next byte that comes; none if what comes is of no use.
    pub(super) next: Option<u64>,
}

/// A path.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) id: PathId,
    pub(super) name: String,
    commands: mpsc::UnboundedSender<Command>,
    task: JoinHandle<()>,
    /// The number of its connection, while it has one.
    pub(super) connection: Option<u64>,
    pub(super) asked: HashMap<RequestId, Asked>,
    pub(super) bytes: u64,
    /// Why it last had none.
    pub(super) cause: Option<String>,
}

impl Drop for Path {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Path {
    /// One that connects to the server of a URL.
    pub(super) fn new(
        (id, number): (PathId, usize),
        way: Arc<dyn Dial>,
        url: &Url,
        fields: &RequestFields,
        events: mpsc::Sender<Told>,
    ) -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let name = way.name().to_string();
        let asking = fields.asking(url);
        let task = tokio::spawn(keep(number, way, asking, receiver, events));
        Self { id, name, commands, task, connection: None, asked: HashMap::new(), bytes: 0, cause: None }
    }

    pub(super) fn ask(&mut self, id: RequestId, asked: Asked) {
        let Some(connection) = self.connection else { return };
        let (url, range) = (Some(asked.url.clone()), Some(asked.range.to_field()));
        self.asked.insert(id, asked);
        // Its task lasts as long as it does.
        let _ = self.commands.send(Command::Ask { connection, id, url, range });
    }

    /// Its connection is given up for another one.
    pub(super) fn renew(&mut self, pause: Duration) {
        self.asked.clear();
        if let Some(connection) = self.connection.take() {
            let _ = self.commands.send(Command::Renew { connection, pause });
        }
    }
}
