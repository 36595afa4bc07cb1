//! One request and its answer.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::client::ResponseFuture;
use h2::{FlowControl, Reason, RecvStream};

use super::message;
use crate::http1::{Error, Head, MAX_INTERIM_ANSWERS, Method};

/// A request whose answer is not there in full.
pub(super) struct Stream<Id> {
    pub(super) id: Id,
    method: Method,
    answer: Answer,
}

enum Answer {
    Awaited {
        response: ResponseFuture,
        interim_answers: usize,
    },
    Coming {
        body: RecvStream,
        /// What was read behind the last part.
        next: Option<Came>,
    },
}

/// What comes of a body; none is its end.
type Came = Option<Result<Bytes, h2::Error>>;

/// Frames that are there are handed on together, up to so many bytes: each has 8 or 16 KB, and what is done for each part costs more than a copy.
const PART_BYTES: usize = 256 << 10;

/// What came of an answer.
pub(super) enum Part {
    Head(Head),
    /// With what lets the server send more, once these bytes are dealt with.
    Data(Bytes, FlowControl),
    End,
}

/// Why the rest of an answer does not come.
pub(super) enum Failure {
    /// The server did nothing with the request: it is asked elsewhere. With the reason, if it is not the usual end of a connection.
    Refused(Option<String>),
    /// The whole connection is lost.
    Lost(String),
    /// The server broke this answer off, or it lies (RFC 9113 §5.4.2).
    Broken(String),
}

impl<Id> Stream<Id> {
    pub(super) fn new(id: Id, method: Method, response: ResponseFuture) -> Self {
        Self { id, method, answer: Answer::Awaited { response, interim_answers: 0 } }
    }

    /// Whether its answer has begun.
    pub(super) fn has_begun(&self) -> bool {
        matches!(self.answer, Answer::Coming { .. })
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Part, Failure>> {
        let has_begun = self.has_begun();
        let failure = |error: h2::Error| failure(&error, has_begun);
        match &mut self.answer {
            Answer::Awaited { response, interim_answers } => {
                while let Poll::Ready(Some(Ok(_))) = response.poll_informational(cx) {
                    *interim_answers += 1;
                    if *interim_answers > MAX_INTERIM_ANSWERS {
                        let error = Error::TooManyInterimAnswers.to_string();
                        return Poll::Ready(Err(Failure::Broken(error)));
                    }
                }
                let answered = std::task::ready!(Pin::new(response).poll(cx)).map_err(failure)?;
                let (parts, body) = answered.into_parts();
                let head = message::head(parts.status, &parts.headers, self.method)
                    .map_err(|error| Failure::Broken(error.to_string()))?;
                self.answer = Answer::Coming { body, next: None };
                Poll::Ready(Ok(Part::Head(head)))
            }
            Answer::Coming { body, next } => {
                let came = match next.take() {
                    Some(came) => came,
                    None => std::task::ready!(body.poll_data(cx)),
                };
                Poll::Ready(match came {
                    Some(Ok(first)) => {
                        let bytes = join(first, next, || body.poll_data(cx));
                        Ok(Part::Data(bytes, body.flow_control().clone()))
                    }
                    Some(Err(error)) => Err(failure(error)),
                    None => Ok(Part::End),
                })
            }
        }
    }
}

/// Joins what is there already to the first bytes. What is no data is the next to come.
fn join(first: Bytes, next: &mut Option<Came>, mut poll: impl FnMut() -> Poll<Came>) -> Bytes {
    let mut joined: Option<BytesMut> = None;
    while joined.as_ref().map_or(first.len(), BytesMut::len) < PART_BYTES {
        match poll() {
            Poll::Ready(Some(Ok(more))) => {
                let joined = joined.get_or_insert_with(|| {
                    let mut joined = BytesMut::with_capacity(4 * first.len());
                    joined.extend_from_slice(&first);
                    joined
                });
                joined.extend_from_slice(&more);
            }
            Poll::Ready(came) => {
                *next = Some(came);
                break;
            }
            Poll::Pending => break,
        }
    }
    joined.map_or(first, BytesMut::freeze)
}

fn failure(error: &h2::Error, has_begun: bool) -> Failure {
    let is_usual = error.reason() == Some(Reason::NO_ERROR);
    if error.is_remote() && error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM) && !has_begun {
        return Failure::Refused(None);
    }
    if error.is_remote() && error.is_go_away() && !has_begun {
        return Failure::Refused((!is_usual).then(|| words(error)));
    }
    if error.is_reset() { Failure::Broken(words(error)) } else { Failure::Lost(words(error)) }
}

/// What an error is for a person.
pub(super) fn words(error: &h2::Error) -> String {
    if let Some(error) = error.get_io() {
        return error.to_string();
    }
    let reason = error.reason().map_or_else(|| error.to_string(), |reason| reason.description().to_owned());
    match (error.is_remote(), error.is_reset()) {
        (true, true) => format!("the server broke an answer off ({reason})"),
        (true, false) => format!("the server ended the connection ({reason})"),
        (false, true) => {
            format!("the server's answer is no HTTP/2, or not as long as it had said ({reason})")
        }
        (false, false) => format!("what the server sends is no HTTP/2 ({reason})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_are_there_are_one_part() {
        let frame = || Bytes::from(vec![1; 8 << 10]);
        let mut next = None;
        let mut frames =
            vec![Poll::Ready(None), Poll::Ready(Some(Ok(frame()))), Poll::Ready(Some(Ok(frame())))];
        let part = join(frame(), &mut next, || frames.pop().unwrap_or(Poll::Pending));
        assert_eq!(part.len(), 24 << 10);
        assert!(matches!(next, Some(None)));
        let (mut next, endless) = (None, || Poll::Ready(Some(Ok(frame()))));
        assert_eq!(join(frame(), &mut next, endless).len(), PART_BYTES);
        let alone = join(frame(), &mut next, || Poll::Pending);
        assert!(alone.len() == 8 << 10 && next.is_none());
    }
}
