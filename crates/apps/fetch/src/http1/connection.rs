use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};

use super::chunked::{ChunkedBody, Step};
use super::framing::{Framing, framing};
use super::head::{end_of_head, is_no_answer, parse_head};
use super::limits::{MAX_HEAD_BYTES, MAX_INTERIM_ANSWERS};
use super::{Error, Head, Method, Request};

/// Bytes that are looked at together for the end of a head.
const HEAD_STEP_BYTES: usize = 512;

/// A request on its connection; the later, the larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// What happened. Events of a request come in this order: one `Head`, any number of `Data`, then `End` or `Truncated`; or `Unanswered` alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<Id = RequestId> {
    /// An answer begins.
    Head {
        /// The request.
        id: Id,
        /// What it begins with.
        head: Head,
    },
    /// A part of an answer's body.
    Data {
        /// The request.
        id: Id,
        /// A slice of what came in.
        bytes: Bytes,
    },
    /// An answer is complete.
    End {
        /// The request.
        id: Id,
    },
    /// The connection ended before an answer: the request is to be asked again on another one.
    Unanswered {
        /// The request.
        id: Id,
    },
    /// The connection ended in the middle of an answer. What came of it may be used, the rest is missing.
    Truncated {
        /// The request.
        id: Id,
    },
}

impl<Id> Event<Id> {
    /// The request.
    pub fn id(&self) -> &Id {
        let (Self::Head { id, .. }
        | Self::Data { id, .. }
        | Self::End { id }
        | Self::Unanswered { id }
        | Self::Truncated { id }) = self;
        id
    }

    /// The same with another name of the request.
    pub fn with_id<Other>(self, id: Other) -> Event<Other> {
        match self {
            Self::Head { head, .. } => Event::Head { id, head },
            Self::Data { bytes, .. } => Event::Data { id, bytes },
            Self::End { .. } => Event::End { id },
            Self::Unanswered { .. } => Event::Unanswered { id },
            Self::Truncated { .. } => Event::Truncated { id },
        }
    }
}

/// A connection to a server. Requests are sent without waiting for the answers to earlier ones; answers come in the same order.
#[derive(Debug, Default)]
pub struct Connection {
    next_id: u64,
    /// Not answered, in order.
    requests: VecDeque<(RequestId, Method)>,
    /// Not handed out: of the last of `requests`.
    unsent: VecDeque<Bytes>,
    reading: Reading,
    events: VecDeque<Event>,
}

#[derive(Debug)]
enum Reading {
    /// What came of a head, and how many interim answers came before it.
    Head { begin: BytesMut, interim_answers: usize },
    /// The body of the first request's answer.
    Body { rest: Body, is_last: bool },
    /// Over; an error if the server made one.
    Over(Option<Error>),
}

#[derive(Debug)]
enum Body {
    Length(u64),
    Chunked(ChunkedBody),
    UntilEnd,
}

impl Default for Reading {
    fn default() -> Self {
        Self::Head { begin: BytesMut::new(), interim_answers: 0 }
    }
}

impl Connection {
    /// A connection on which nothing was sent yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks. When the connection is over, the next event says that there is no answer.
    pub fn request(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        if let Reading::Over(_) = self.reading {
            self.events.push_back(Event::Unanswered { id });
        } else {
            self.requests.push_back((id, request.method()));
            self.unsent.push_back(request.into_bytes());
        }
        id
    }

    /// What is to be sent next.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        self.unsent.pop_front()
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Requests that are not answered to the end.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.requests.len()
    }

    /// Whether requests may still be answered here.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.reading, Reading::Over(_))
    }

    /// The server sent something. After an error the connection is over: what was not answered is told by events.
    pub fn handle_bytes(&mut self, mut bytes: Bytes) -> Result<(), Error> {
        loop {
            let before = bytes.len();
            let read = match &mut self.reading {
                // What a server sends behind its last answer belongs to nothing, and is never taken for an answer.
                Reading::Over(None) => return Ok(()),
                Reading::Over(Some(error)) => return Err(*error),
                Reading::Head { .. } => self.read_head(&mut bytes),
                Reading::Body { .. } => self.read_body(&mut bytes),
            };
            if let Err(error) = read {
                self.finish(Some(error));
                return Err(error);
            }
            if bytes.is_empty() || bytes.len() == before {
                return Ok(());
            }
        }
    }

    /// The server closed the connection in an orderly way; with TLS only if it said so there too (close_notify).
    pub fn handle_end(&mut self) {
        if let (Reading::Body { rest: Body::UntilEnd, .. }, Some((id, _))) =
            (&self.reading, self.requests.front().copied())
        {
            self.requests.pop_front();
            self.events.push_back(Event::End { id });
            self.reading = Reading::default();
        }
        self.finish(None);
    }

    /// The connection broke: it was reset, timed out, or its TLS ended without a word. No answer is complete by that.
    pub fn handle_lost(&mut self) {
        self.finish(None);
    }

    /// Ends the connection and says what becomes of the requests.
    fn finish(&mut self, error: Option<Error>) {
        if let Reading::Over(_) = self.reading {
            return;
        }
        let reading = std::mem::replace(&mut self.reading, Reading::Over(error));
        if let (Reading::Body { .. }, Some((id, _))) = (reading, self.requests.front().copied()) {
            self.requests.pop_front();
            self.events.push_back(Event::Truncated { id });
        }
        self.unsent.clear();
        self.events.extend(self.requests.drain(..).map(|(id, _)| Event::Unanswered { id }));
    }

    fn read_head(&mut self, bytes: &mut Bytes) -> Result<(), Error> {
        let Reading::Head { begin, interim_answers } = &mut self.reading else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        // Sent ones are the first.
        let first = self.requests.front().copied().filter(|_| self.requests.len() > self.unsent.len());
        let (id, method) = first.ok_or(Error::Unasked)?;
        let looked_at = begin.len();
        // A step at a time, so that little of the body behind the head is copied.
        let step = bytes.len().min(HEAD_STEP_BYTES);
        begin.extend_from_slice(&bytes[..step]);
        if is_no_answer(begin) {
            return Err(Error::NotHttp);
        }
        let Some(end) = end_of_head(begin, looked_at) else {
            if begin.len() > MAX_HEAD_BYTES {
                return Err(Error::HeadTooLong);
            }
            bytes.advance(step);
            return Ok(());
        };
        if end > MAX_HEAD_BYTES {
            return Err(Error::HeadTooLong);
        }
        let head = parse_head(&begin[..end])?;
        // The end is in this step, or else it had been found before.
        bytes.advance(end.saturating_sub(looked_at).min(step));
        if head.status == 101 {
            return Err(Error::ProtocolChanged);
        }
        let framing = framing(&head, method)?;
        if head.status < 200 {
            begin.clear();
            *interim_answers += 1;
            return if *interim_answers > MAX_INTERIM_ANSWERS {
                Err(Error::TooManyInterimAnswers)
            } else {
                Ok(())
            };
        }
        let is_last = head.is_last() || framing == Framing::UntilEnd;
        let rest = match framing {
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked(ChunkedBody::new()),
            Framing::UntilEnd => Body::UntilEnd,
        };
        self.events.push_back(Event::Head { id, head });
        self.reading = Reading::Body { rest, is_last };
        // An empty body is complete at once: no byte of it will come.
        self.read_body(bytes)
    }

    fn read_body(&mut self, bytes: &mut Bytes) -> Result<(), Error> {
        let (Reading::Body { rest, is_last }, Some((id, _))) =
            (&mut self.reading, self.requests.front().copied())
        else {
            return Ok(());
        };
        let is_last = *is_last;
        let is_complete = match rest {
            Body::Length(length) => {
                let taken = usize::try_from(*length).unwrap_or(usize::MAX).min(bytes.len());
                *length -= taken as u64;
                let is_complete = *length == 0;
                self.push_data(id, bytes.split_to(taken));
                is_complete
            }
            Body::UntilEnd => {
                self.push_data(id, std::mem::take(bytes));
                false
            }
            Body::Chunked(chunked) => loop {
                match chunked.read(bytes)? {
                    Step::Wants => break false,
                    Step::Data(data) => self.events.push_back(Event::Data { id, bytes: data }),
                    Step::End => break true,
                }
            },
        };
        if is_complete {
            self.requests.pop_front();
            self.events.push_back(Event::End { id });
            self.reading = Reading::default();
            if is_last {
                self.finish(None);
            }
        }
        Ok(())
    }

    fn push_data(&mut self, id: RequestId, bytes: Bytes) {
        if !bytes.is_empty() {
            self.events.push_back(Event::Data { id, bytes });
        }
    }
}

#[cfg(test)]
mod tests;
