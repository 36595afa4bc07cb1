use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::server::{is_deserted, owner};
use super::{Answer, Ask, Change, EventReport, Question};

/// How long a stack may take to answer. One that is stopped takes for ever.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// What a stack may say of its connections: some thirty thousand of them.
const MOST_OF_CONNECTIONS_BYTES: usize = 64 << 20;
/// What it may say of anything else.
const MOST_OF_OTHERS_BYTES: usize = 4 << 20;
/// What one event may have.
const MOST_OF_EVENT_BYTES: usize = 64 << 10;
/// Stacks of one directory that are asked.
const MOST_STACKS: usize = 256;

/// How often somebody who waits for room at a socket tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A stack that can be asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    path: PathBuf,
}

/// The stacks that offer a socket in a directory, sorted by name. A directory that is missing has none. Other sockets there, such as those of
/// proxies and tunnels, are left alone.
pub fn find(directory: &Path) -> io::Result<Vec<Peer>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result?,
    };
    let mut peers = Vec::new();
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        // A link would lead to somebody else's stack.
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        let is_named =
            owner(&path).is_some() && path.extension().is_some_and(|extension| extension == "sock");
        if is_named && is_socket && peers.len() < MOST_STACKS && !is_deserted(&path) {
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

    /// The figures that it will have at its end. Waits for the stack to answer.
    pub async fn last(&self) -> io::Result<LastWords> {
        Ok(LastWords { lines: self.open(Ask::Last).await?.1 })
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

    async fn open(&self, ask: Ask) -> io::Result<(Answer, Lines)> {
        self.open_with(&Question { ask, early: false, change: None }).await
    }

    async fn open_with(&self, question: &Question) -> io::Result<(Answer, Lines)> {
        let mut stream = loop {
            match UnixStream::connect(&self.path).await {
                // Too many wait there already.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                stream => break stream?,
            }
        };
        let ask = question.ask;
        let mut question = serde_json::to_vec(question)?;
        question.push(b'\n');
        stream.write_all(&question).await?;
        let most = match ask {
            Ask::Connections => MOST_OF_CONNECTIONS_BYTES,
            _ => MOST_OF_OTHERS_BYTES,
        };
        let mut lines = Lines { reader: BufReader::new(stream), begun: Vec::new() };
        let line = lines.next(most).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
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
    lines: Lines,
}

impl Monitor {
    /// The next; none once the stack has ended. May be given up at any time.
    pub async fn next(&mut self) -> io::Result<Option<EventReport>> {
        match self.lines.next(MOST_OF_EVENT_BYTES).await? {
            Some(line) => Ok(Some(serde_json::from_str(&line)?)),
            None => Ok(None),
        }
    }
}

/// What a stack says at its end.
#[derive(Debug)]
pub struct LastWords {
    lines: Lines,
}

impl LastWords {
    /// Waits for the end; none if the stack was killed.
    pub async fn wait(mut self) -> io::Result<Option<Answer>> {
        match self.lines.next(MOST_OF_OTHERS_BYTES).await? {
            Some(line) => Ok(Some(serde_json::from_str(&line)?)),
            None => Ok(None),
        }
    }
}

/// What a stack says, by lines. A stack of somebody else's may say anything, for as long as it likes.
#[derive(Debug)]
struct Lines {
    reader: BufReader<UnixStream>,
    begun: Vec<u8>,
}

impl Lines {
    /// The next one, of so many bytes at most. May be given up at any time.
    async fn next(&mut self, most: usize) -> io::Result<Option<String>> {
        loop {
            let arrived = self.reader.fill_buf().await?;
            if arrived.is_empty() {
                let is_cut = !self.begun.is_empty();
                return if is_cut { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(None) };
            }
            let end = arrived.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(arrived.len(), |at| at + 1);
            if self.begun.len() + taken > most {
                return Err(invalid(format!("it says more than {most} bytes")));
            }
            self.begun.extend_from_slice(&arrived[..end.unwrap_or(taken)]);
            self.reader.consume(taken);
            if end.is_some() {
                return String::from_utf8(std::mem::take(&mut self.begun)).map(Some).map_err(invalid);
            }
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
