//! A small file, which one answer on one connection brings whole.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::answer::{Answer, AskedRange, Extent, Unusable};
use crate::download::way::Wire;
use crate::http1::{self, Head};

/// So much is asked for. Of a longer file the rest comes over all ways.
pub(super) const MOST_BYTES: u64 = 256 << 10;
/// What is read at once.
const READ_BYTES: usize = 32 << 10;

/// What is asked for.
pub(super) const ASKED: AskedRange = AskedRange { first: 0, last: Some(MOST_BYTES - 1) };

/// What was answered.
pub(super) enum Small {
    /// The file from its beginning; all of it, if `is_whole`.
    File { head: Head, answer: Box<Answer>, bytes: Vec<Bytes>, is_whole: bool },
    /// A file without any byte, of which there is no range.
    Empty,
    /// Something else, with this head.
    Other(Head),
    /// It is none that can be used.
    Unusable,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Broken {
    /// Nothing came for so long.
    Silent,
    /// The connection ended before the answer.
    Unanswered(String),
    /// And in the middle of it.
    Cut(String),
}

/// Asks for a file on a connection, and says whether the connection is idle.
pub(super) async fn ask(
    wire: &mut dyn Wire,
    request: http1::Request,
    patience: Option<Duration>,
) -> Result<Small, Broken> {
    let mut http = http1::Connection::new();
    http.request(request);
    let unanswered = |error: io::Error| Broken::Unanswered(error.to_string());
    while let Some(bytes) = http.poll_transmit() {
        wire.write_all(&bytes).await.map_err(unanswered)?;
    }
    wire.flush().await.map_err(unanswered)?;
    let mut buffer = BytesMut::new();
    let (mut head, mut bytes, mut count) = (None, Vec::new(), 0);
    loop {
        buffer.reserve(READ_BYTES);
        let read = wire.read_buf(&mut buffer);
        let read = match patience {
            Some(patience) => timeout(patience, read).await.map_err(|_| Broken::Silent)?,
            None => read.await,
        };
        let mut cause = None;
        match read {
            Ok(0) => http.handle_end(),
            Ok(_) => {
                cause = http.handle_bytes(buffer.split().freeze()).err().map(|error| error.to_string());
            }
            Err(error) => {
                http.handle_lost();
                cause = Some(error.to_string());
            }
        }
        while let Some(event) = http.poll_event() {
            match event {
                http1::Event::Head { head: found, .. } => head = Some(found),
                http1::Event::Data { bytes: more, .. } => {
                    count += more.len() as u64;
                    bytes.push(more);
                }
                http1::Event::End { .. } => {
                    wire.set_idle(http.is_open());
                    return Ok(head.map_or(Small::Unusable, |head| small(head, bytes, true)));
                }
                http1::Event::Unanswered { .. } => {
                    let closed = || "the server closed the connection".into();
                    return Err(Broken::Unanswered(cause.unwrap_or_else(closed)));
                }
                http1::Event::Truncated { .. } => {
                    let closed = || "the server closed the connection in the middle".into();
                    return Err(Broken::Cut(cause.unwrap_or_else(closed)));
                }
            }
        }
        // More than was asked for: a server without ranges.
        if count > MOST_BYTES
            && let Some(head) = head.take()
        {
            return Ok(small(head, Vec::new(), false));
        }
    }
}

/// What an answer is, all of which came if `is_complete`.
fn small(head: Head, bytes: Vec<Bytes>, is_complete: bool) -> Small {
    let count: u64 = bytes.iter().map(|bytes| bytes.len() as u64).sum();
    let answer = match (head.status, Answer::read(&head, Some(ASKED))) {
        (200 | 206, Ok(answer)) => answer,
        // A range of an empty file has nothing to begin with.
        (_, Err(Unusable::NoSuchRange { total: Some(0), .. })) => return Small::Empty,
        (200 | 206 | 416, _) => return Small::Unusable,
        _ => return Small::Other(head),
    };
    let expected = match answer.extent {
        Extent::Part { last, .. } => Some(last + 1),
        Extent::Whole => answer.version.total(),
    };
    if is_complete && expected.is_some_and(|expected| expected != count) {
        return Small::Unusable;
    }
    let is_whole = is_complete
        && match answer.extent {
            Extent::Part { .. } => answer.version.total() == Some(count),
            Extent::Whole => true,
        };
    Small::File { head, answer: Box::new(answer), bytes, is_whole }
}
