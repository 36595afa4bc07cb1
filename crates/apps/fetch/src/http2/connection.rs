use std::collections::VecDeque;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{self, SendRequest};
use h2::{FlowControl, Reason};
use tokio::io::{AsyncRead, AsyncWrite};

use super::message;
use super::stream::{Failure, Part, Stream, words};
use crate::http1::{Event, MAX_HEAD_BYTES, Method, Request};

/// What a server may send that nobody has taken (RFC 9113 §5.2): of all answers together, and of one if it is alone. It is what 1 Gbit/s carries in 130 ms, and
/// more than the kernel's own window is by default, so a path is limited by TCP and not by this.
const WINDOW_BYTES: u32 = 16 << 20;
/// Requests that are under way at once. The others wait here, as more would only share the rate.
const MOST_STREAMS: usize = 32;

/// A connection to a server. Requests are sent without waiting for the answers to earlier ones; answers may come in another order, and in
/// pieces between those of others.
///
/// What is read waits until it is taken: while nobody asks for events, the connection is not read. What a server can make this end hold or do
/// for nothing is limited by `h2`: headers and their continuations, small frames, settings, pings and resets.
pub(crate) struct Connection<Id, W: AsyncRead + AsyncWrite + Unpin> {
    sender: SendRequest<Bytes>,
    connection: client::Connection<W, Bytes>,
    /// Not sent.
    waiting: VecDeque<(Id, Method, http::Request<()>)>,
    /// Sent and not answered in full, in order.
    streams: VecDeque<Stream<Id>>,
    events: VecDeque<Event<Id>>,
    /// What was last handed on. Whoever wants the next event has dealt with it.
    handed_on: Option<(FlowControl, usize)>,
    /// Nobody can read or write any more.
    is_closed: bool,
    takes_requests: bool,
    is_over: bool,
    has_answered: bool,
    cause: Option<String>,
}

impl<Id: Copy, W: AsyncRead + AsyncWrite + Unpin> Connection<Id, W> {
    /// Begins. No answer is waited for.
    ///
    /// # Errors
    /// Nothing can be sent.
    pub(crate) async fn begin(wire: W) -> Result<Self, String> {
        let mut builder = client::Builder::new();
        builder.enable_push(false).max_header_list_size(MAX_HEAD_BYTES as u32);
        builder.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
        let (sender, connection) = builder.handshake(wire).await.map_err(|error| words(&error))?;
        Ok(Self {
            sender,
            connection,
            waiting: VecDeque::new(),
            streams: VecDeque::new(),
            events: VecDeque::new(),
            handed_on: None,
            is_closed: false,
            takes_requests: true,
            is_over: false,
            has_answered: false,
            cause: None,
        })
    }

    /// Why it ended, if that is no usual end of one.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Asks. If that can't be done, the next events say so.
    pub(crate) fn ask(&mut self, id: Id, request: &Request) {
        match message::request(request) {
            _ if self.is_over => self.events.push_back(Event::Unanswered { id }),
            Ok(asked) => self.waiting.push_back((id, request.method(), asked)),
            Err(error) => {
                self.events.push_back(Event::Unanswered { id });
                self.finish(Some(error.to_string()));
            }
        }
    }

    /// What happens next; none if it is over. Nothing is lost if nobody waits for the end of this.
    pub(crate) async fn next(&mut self) -> Option<Event<Id>> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event<Id>>> {
        if let Some((mut window, bytes)) = self.handed_on.take() {
            // Fails where the answer is over, and then nobody needs it.
            let _ = window.release_capacity(bytes);
        }
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(Some(event));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            self.send(cx);
            // What was read is taken before more is.
            if self.poll_streams(cx) {
                continue;
            }
            if self.is_closed || !self.takes_requests && self.streams.is_empty() {
                self.finish(None);
                continue;
            }
            let ended = std::task::ready!(Pin::new(&mut self.connection).poll(cx));
            // There may be answers that came before its end (RFC 9113 §6.8).
            (self.is_closed, self.takes_requests) = (true, false);
            if let Err(error) = ended
                && error.reason() != Some(Reason::NO_ERROR)
            {
                self.cause.get_or_insert_with(|| words(&error));
            }
        }
    }

    /// Sends what waits, as far as the server takes it.
    fn send(&mut self, cx: &mut Context<'_>) {
        while self.takes_requests && self.streams.len() < MOST_STREAMS && !self.waiting.is_empty() {
            match self.sender.poll_ready(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {}
                // The connection itself tells why.
                Poll::Ready(Err(_)) => {
                    self.takes_requests = false;
                    return;
                }
            }
            let Some((id, method, request)) = self.waiting.pop_front() else { return };
            match self.sender.send_request(request, true) {
                Ok((response, _)) => self.streams.push_back(Stream::new(id, method, response)),
                Err(error) => {
                    self.takes_requests = false;
                    self.events.push_back(Event::Unanswered { id });
                    if error.reason() != Some(Reason::NO_ERROR) {
                        self.cause.get_or_insert_with(|| words(&error));
                    }
                }
            }
        }
    }

    /// Takes what came of one answer, of the first that was asked for if there are several; whether there was anything.
    fn poll_streams(&mut self, cx: &mut Context<'_>) -> bool {
        for at in 0..self.streams.len() {
            let stream = &mut self.streams[at];
            let id = stream.id;
            let Poll::Ready(polled) = stream.poll(cx) else { continue };
            let failure = match polled {
                Ok(Part::Head(head)) => {
                    self.has_answered = true;
                    self.events.push_back(Event::Head { id, head });
                    return true;
                }
                Ok(Part::Data(bytes, window)) => {
                    self.handed_on = Some((window, bytes.len()));
                    self.events.push_back(Event::Data { id, bytes });
                    return true;
                }
                Ok(Part::End) => {
                    self.streams.remove(at);
                    self.events.push_back(Event::End { id });
                    return true;
                }
                Err(failure) => failure,
            };
            self.takes_requests = false;
            if let Some(stream) = self.streams.remove(at) {
                self.events.push_back(unfinished(&stream));
            }
            match failure {
                Failure::Refused(None) if self.has_answered => {}
                Failure::Refused(None) => self.cause = Some("the server refuses requests".into()),
                Failure::Refused(Some(cause)) | Failure::Lost(cause) => {
                    self.cause.get_or_insert(cause);
                }
                Failure::Broken(cause) => self.finish(Some(cause)),
            }
            return true;
        }
        false
    }

    /// Ends it and says what becomes of the requests.
    fn finish(&mut self, cause: Option<String>) {
        self.is_over = true;
        self.cause = self.cause.take().or(cause);
        self.events.extend(self.streams.drain(..).map(|stream| unfinished(&stream)));
        self.events.extend(self.waiting.drain(..).map(|(id, ..)| Event::Unanswered { id }));
    }
}

fn unfinished<Id: Copy>(stream: &Stream<Id>) -> Event<Id> {
    let id = stream.id;
    if stream.has_begun() { Event::Truncated { id } } else { Event::Unanswered { id } }
}
