//! A web server that answers range requests one after the other.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use polypath_sim::app::{Application, Pattern, Stack, StreamEvent};
use polypath_tcp::ConnectionId;
use polypath_units::Instant;

use super::movie::Movie;
use super::whole_file::TARGET;

/// What is handed to the stack at once.
const CHUNK_BYTES: u64 = 64 << 10;
/// No request of ours is longer.
const MAX_REQUEST_BYTES: usize = 8 << 10;

/// What a server has.
#[derive(Clone, Debug)]
pub(super) enum Site {
    /// A file of so many bytes.
    File(u64),
    Movie(Rc<Movie>),
}

impl Site {
    /// The length of a file, and its place in the bytes of all.
    fn find(&self, target: &str) -> Option<(u64, u64)> {
        match self {
            Self::File(bytes) => (target == TARGET).then_some((*bytes, 0)),
            Self::Movie(movie) => movie.find(target),
        }
    }
}

/// One connection at the server.
#[derive(Debug)]
pub(super) struct Origin {
    bytes: Pattern,
    site: Site,
    asked: Vec<u8>,
    answers: VecDeque<Answer>,
}

/// What is still to be sent of an answer.
#[derive(Debug)]
struct Answer {
    head: Bytes,
    body: Range<u64>,
}

impl Origin {
    /// A connection to a server whose files are parts of these bytes.
    pub(super) fn new(bytes: Pattern, site: Site) -> Self {
        Self { bytes, site, asked: Vec::new(), answers: VecDeque::new() }
    }

    fn read(&mut self, bytes: &[u8]) {
        self.asked.extend_from_slice(bytes);
        while let Some(end) = self.asked.windows(4).position(|end| end == b"\r\n\r\n") {
            let request: Vec<u8> = self.asked.drain(..end + 4).collect();
            let answer = self.answer(&String::from_utf8_lossy(&request));
            self.answers.push_back(answer);
        }
        debug_assert!(self.asked.len() < MAX_REQUEST_BYTES, "only requests of ours come");
    }

    /// An answer as long as nginx has it.
    fn answer(&self, request: &str) -> Answer {
        let found = request.strip_prefix("GET ").and_then(|rest| self.site.find(rest.split(' ').next()?));
        let Some((total, place)) = found else {
            let head = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into();
            return Answer { head, body: 0..0 };
        };
        let range = request.lines().find_map(|line| line.strip_prefix("Range: bytes=")).and_then(|range| {
            let (first, last) = range.split_once('-')?;
            let end = if last.is_empty() { total } else { last.parse::<u64>().ok()? + 1 };
            Some(first.parse().ok()?..end.min(total))
        });
        let (status, content_range) = match &range {
            Some(range) if range.is_empty() => {
                let head = format!(
                    "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nContent-Range: bytes */{total}\r\n\r\n"
                );
                return Answer { head: head.into(), body: 0..0 };
            }
            Some(range) => (
                "206 Partial Content",
                format!("Content-Range: bytes {}-{}/{total}\r\n", range.start, range.end - 1),
            ),
            None => ("200 OK", String::new()),
        };
        let body = range.unwrap_or(0..total);
        let head = format!(
            "HTTP/1.1 {status}\r\nServer: nginx/1.26.3\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: video/mp4\r\n\
             Content-Length: {}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nConnection: keep-alive\r\n\
             ETag: \"6955b900-{total:x}\"\r\n{content_range}\r\n",
            body.end - body.start
        );
        Answer { head: head.into(), body: place + body.start..place + body.end }
    }

    /// Sends what the stack takes.
    fn send<S: Stack>(&mut self, stack: &mut S, id: ConnectionId) {
        while let Some(answer) = self.answers.front_mut() {
            let is_head = !answer.head.is_empty();
            let chunk = if is_head {
                answer.head.clone()
            } else {
                let left = answer.body.end - answer.body.start;
                self.bytes.slice(answer.body.start, left.min(CHUNK_BYTES))
            };
            let length = chunk.len();
            let taken = if length == 0 { 0 } else { stack.send(id, chunk).unwrap_or(0) };
            if is_head {
                answer.head = answer.head.slice(taken..);
            } else {
                answer.body.start += taken as u64;
            }
            if taken < length {
                return;
            }
            if answer.head.is_empty() && answer.body.is_empty() {
                self.answers.pop_front();
            }
        }
    }
}

impl<S: Stack> Application<S> for Origin {
    fn handle_event(&mut self, now: Instant, stack: &mut S, id: ConnectionId, event: StreamEvent) {
        match event {
            StreamEvent::Readable => {
                while let Some(payload) = stack.recv(id) {
                    payload.slices().iter().for_each(|slice| self.read(slice));
                }
                self.send(stack, id);
            }
            StreamEvent::Writable => self.send(stack, id),
            StreamEvent::PeerFinished => stack.shutdown(now, id),
            StreamEvent::Closed { .. } => stack.release(now, id),
            _ => {}
        }
    }
}
