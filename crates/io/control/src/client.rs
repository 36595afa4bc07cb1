use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;

use super::server::is_deserted;
use super::{Answer, Ask, Change, EventReport, Question};

/// How long a stack may take to answer. One that is stopped takes for ever.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// How often somebody who waits for room at a socket tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A stack that can be asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    path: PathBuf,
}

/// The stacks that offer a socket in a directory, sorted by name. A directory that is missing has none.
pub fn find(directory: &Path) -> io::Result<Vec<Peer>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result?,
    };
    let mut peers = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sock") && !is_deserted(&path) {
            peers.push(Peer { path });
        }
    }
    peers.sort();
    Ok(peers)
}

impl Peer {
    /// At a socket.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where its socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks for connections or counters. [`io::ErrorKind::TimedOut`] if there is no answer within [`ANSWER_LIMIT`].
    pub async fn ask(&self, ask: Ask) -> io::Result<Answer> {
        Ok(tokio::time::timeout(ANSWER_LIMIT, self.open(ask)).await??.0)
    }

    /// Changes the stack. An error of kind [`io::ErrorKind::Other`] is what the stack says against it.
    pub async fn change(&self, change: Change) -> io::Result<()> {
        let question = Question { ask: Ask::Change, early: false, change: Some(change) };
        tokio::time::timeout(ANSWER_LIMIT, self.open_with(&question)).await?.map(drop)
    }

    /// Events from now on. Waits for the stack to answer.
    pub async fn monitor(&self) -> io::Result<Monitor> {
        Ok(Monitor { lines: self.open(Ask::Monitor).await?.1 })
    }

    /// As [`Peer::monitor`], with the events of the stack's first seconds before those from now on, if they are not over. For a
    /// stack whose socket has just come.
    pub async fn monitor_early(&self) -> io::Result<Monitor> {
        let question = Question { ask: Ask::Monitor, early: true, change: None };
        Ok(Monitor { lines: self.open_with(&question).await?.1 })
    }

    async fn open(&self, ask: Ask) -> io::Result<(Answer, Lines<BufReader<UnixStream>>)> {
        self.open_with(&Question { ask, early: false, change: None }).await
    }

    async fn open_with(&self, question: &Question) -> io::Result<(Answer, Lines<BufReader<UnixStream>>)> {
        let mut stream = loop {
            match UnixStream::connect(&self.path).await {
                // Too many wait there already.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                stream => break stream?,
            }
        };
        let mut question = serde_json::to_vec(question)?;
        question.push(b'\n');
        stream.write_all(&question).await?;
        let mut lines = BufReader::new(stream).lines();
        let line = lines.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let answer: Answer = serde_json::from_str(&line)?;
        match answer.error {
            Some(error) => Err(io::Error::other(error)),
            None => Ok((answer, lines)),
        }
    }
}

/// Events of a stack.
#[derive(Debug)]
pub struct Monitor {
    lines: Lines<BufReader<UnixStream>>,
}

impl Monitor {
    /// The next; none once the stack has ended. May be given up at any time.
    pub async fn next(&mut self) -> io::Result<Option<EventReport>> {
        match self.lines.next_line().await? {
            Some(line) => Ok(Some(serde_json::from_str(&line)?)),
            None => Ok(None),
        }
    }
}
