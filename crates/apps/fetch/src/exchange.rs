//! The range requests of one connection, and what is answered to them: HTTP/1.1 without sockets, for a schedule.

use std::collections::HashMap;

use bytes::Bytes;

use crate::answer::{Answer, AskedRange, Extent, Unusable};
use crate::http1;
use crate::schedule::RequestId;

/// What happened on the connection.
#[derive(Debug)]
pub enum Happened {
    /// An answer begins. What follows of one that is of no use is not told.
    Head {
        /// To which request.
        id: RequestId,
        /// What it says.
        answer: Result<Answer, Unusable>,
    },
    /// Bytes of the file.
    Bytes {
        /// Of the answer to this request.
        id: RequestId,
        /// The place of the first one in the file.
        first: u64,
        /// They.
        bytes: Bytes,
    },
    /// An answer is complete.
    End {
        /// To which request.
        id: RequestId,
    },
    /// Nothing more comes: an answer was cut off, or requests are left unanswered.
    Over,
}

/// One connection.
#[derive(Debug, Default)]
pub struct Exchange {
    http: http1::Connection,
    asked: HashMap<http1::RequestId, Asked>,
}

#[derive(Debug)]
struct Asked {
    id: RequestId,
    range: AskedRange,
    /// The place of the next byte that it brings; none if it is of no use.
    next: Option<u64>,
}

impl Exchange {
    /// A connection on which nothing was asked for.
    #[must_use]
    pub fn new() -> Self {
        Self { http: http1::Connection::new(), asked: HashMap::new() }
    }

    /// Asks for a range, which the request has as its field `Range`.
    pub fn ask(&mut self, id: RequestId, range: AskedRange, request: http1::Request) {
        self.asked.insert(self.http.request(request), Asked { id, range, next: Some(range.first) });
    }

    /// What is to be sent.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        self.http.poll_transmit()
    }

    /// The peer sent this.
    pub fn handle_bytes(&mut self, bytes: Bytes) -> Result<(), http1::Error> {
        self.http.handle_bytes(bytes)
    }

    /// The peer sends nothing more.
    pub fn handle_end(&mut self) {
        self.http.handle_end();
    }

    /// The connection takes further requests.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.http.is_open()
    }

    /// What happened, one after the other.
    pub fn poll_event(&mut self) -> Option<Happened> {
        loop {
            match self.http.poll_event()? {
                http1::Event::Head { id, head } => {
                    let Some(asked) = self.asked.get_mut(&id) else { continue };
                    let answer = Answer::read(&head, Some(asked.range));
                    asked.next = match &answer {
                        Ok(Answer { extent: Extent::Part { first, .. }, .. }) => Some(*first),
                        Ok(Answer { extent: Extent::Whole, .. }) => Some(0),
                        Err(_) => None,
                    };
                    return Some(Happened::Head { id: asked.id, answer });
                }
                http1::Event::Data { id, bytes } => {
                    let Some(asked) = self.asked.get_mut(&id) else { continue };
                    let Some(first) = asked.next else { continue };
                    asked.next = Some(first + bytes.len() as u64);
                    return Some(Happened::Bytes { id: asked.id, first, bytes });
                }
                http1::Event::End { id } => {
                    if let Some(Asked { id, next: Some(_), .. }) = self.asked.remove(&id) {
                        return Some(Happened::End { id });
                    }
                }
                http1::Event::Truncated { .. } | http1::Event::Unanswered { .. } => {
                    self.asked.clear();
                    return Some(Happened::Over);
                }
            }
        }
    }
}
