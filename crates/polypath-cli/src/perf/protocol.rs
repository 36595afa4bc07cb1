//! Frames of JSON on a connection.

use std::io;
use std::time::Duration;

use polypath_stack::engine::Stream;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::report::Results;
use super::{Error, Parameters};

const GREETING: &[u8] = b"polypath-perf 1\n";
/// Results of all streams with all their subflows fit several times.
const MAX_FRAME_BYTES: u32 = 1 << 20;
/// How long a peer may take for a frame that is due.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Message {
    Control { cookie: String, parameters: Parameters },
    Data { cookie: String, number: u32 },
    Accepted,
    Refused { reason: String },
    Start,
    Drained,
    Stop,
    Results(Results),
}

impl Message {
    fn name(&self) -> &'static str {
        match self {
            Self::Control { .. } => "control",
            Self::Data { .. } => "data",
            Self::Accepted => "accepted",
            Self::Refused { .. } => "refused",
            Self::Start => "start",
            Self::Drained => "drained",
            Self::Stop => "stop",
            Self::Results(_) => "results",
        }
    }

    pub(super) fn unexpected(&self) -> Error {
        Error::Protocol(format!("a frame \"{}\" at the wrong time", self.name()))
    }
}

/// Writes the greeting and the first frame.
pub(super) async fn greet(stream: &mut (impl AsyncWrite + Unpin), message: &Message) -> io::Result<()> {
    let mut bytes = GREETING.to_vec();
    bytes.extend(frame(message)?);
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// Reads the greeting and the first frame.
pub(super) async fn read_greeting(stream: &mut (impl AsyncRead + Unpin)) -> Result<Message, Error> {
    let mut greeting = [0; GREETING.len()];
    let read = async {
        stream.read_exact(&mut greeting).await.map_err(|error| Error::lost("new connection", error))?;
        if greeting != GREETING {
            return Err(Error::Protocol("another greeting".into()));
        }
        read(stream).await
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| Err(Error::Protocol("no greeting".into())))
}

pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &Message) -> io::Result<()> {
    stream.write_all(&frame(message)?).await?;
    stream.flush().await
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Message, Error> {
    let lost = |error| Error::lost("control connection", error);
    let length = stream.read_u32().await.map_err(lost)?;
    if length > MAX_FRAME_BYTES {
        return Err(Error::Protocol(format!("a frame of {length} bytes")));
    }
    let mut text = Vec::new();
    let got = stream.take(length.into()).read_to_end(&mut text).await.map_err(lost)?;
    if got < length as usize {
        return Err(lost(io::ErrorKind::UnexpectedEof.into()));
    }
    serde_json::from_slice(&text).map_err(|error| Error::Protocol(error.to_string()))
}

fn frame(message: &Message) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    Ok([&length.to_be_bytes()[..], &text].concat())
}

/// The control connection: frames arrive on a channel, so that waiting for one can be given up at any time.
#[derive(Debug)]
pub(super) struct Control {
    incoming: mpsc::Receiver<Result<Message, Error>>,
    writer: WriteHalf<Stream>,
    reading: JoinHandle<()>,
}

impl Control {
    pub(super) fn new(stream: Stream) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let (sender, incoming) = mpsc::channel(4);
        Self { incoming, writer, reading: tokio::spawn(read_all(reader, sender)) }
    }

    pub(super) async fn next(&mut self) -> Result<Message, Error> {
        let closed = || Error::lost("control connection", io::ErrorKind::UnexpectedEof.into());
        self.incoming.recv().await.unwrap_or_else(|| Err(closed()))
    }

    pub(super) async fn next_soon(&mut self) -> Result<Message, Error> {
        let timed_out = |_| Err(Error::lost("control connection", io::ErrorKind::TimedOut.into()));
        tokio::time::timeout(PATIENCE, self.next()).await.unwrap_or_else(timed_out)
    }

    pub(super) async fn send(&mut self, message: &Message) -> Result<(), Error> {
        write(&mut self.writer, message).await.map_err(|error| Error::lost("control connection", error))
    }

    pub(super) async fn close(mut self) {
        // The peer may have closed first.
        let _ = self.writer.shutdown().await;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

async fn read_all(mut reader: ReadHalf<Stream>, sender: mpsc::Sender<Result<Message, Error>>) {
    loop {
        let message = read(&mut reader).await;
        let is_over = message.is_err();
        if sender.send(message).await.is_err() || is_over {
            return;
        }
    }
}
