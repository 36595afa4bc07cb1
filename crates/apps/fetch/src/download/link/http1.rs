//! One that speaks HTTP/1.1.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::download::way::Wire;
use crate::http1::{self, Event, Request};

/// What is read at once.
const READ_BYTES: usize = 256 << 10;

/// A connection over which HTTP/1.1 is spoken.
pub(super) struct Http1<Id> {
    wire: Box<dyn Wire>,
    http: http1::Connection,
    /// The names of the requests that are not answered in full, in order.
    asked: VecDeque<(http1::RequestId, Id)>,
    buffer: BytesMut,
    /// Why it ended, if that is no usual end of one.
    cause: Option<String>,
    /// The server ended it, and no network.
    is_closed: bool,
    was_answered: bool,
}

impl<Id: Copy> Http1<Id> {
    /// Begins on a connection that is there.
    pub(super) fn new(wire: Box<dyn Wire>) -> Self {
        Self {
            wire,
            http: http1::Connection::new(),
            asked: VecDeque::new(),
            buffer: BytesMut::new(),
            cause: None,
            is_closed: false,
            was_answered: false,
        }
    }

    /// The round trip that the system measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.wire.round_trip()
    }

    /// Why it ended, if that is no usual end of one.
    pub(super) fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Whether it is the server that ended it, as far as one can see.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Nobody is to go on with it.
    pub(super) fn give_up(&mut self) {
        self.wire.set_idle(false);
    }

    /// Asks. If that fails, the next events say so.
    pub(super) async fn ask(&mut self, id: Id, request: Request) {
        self.asked.push_back((self.http.request(request), id));
        self.wire.set_idle(false);
        if let Err(error) = self.send().await {
            self.handle_lost(&error);
        }
    }

    /// What happens next; none if it is over. Nothing is lost if nobody waits for the end of this.
    pub(super) async fn next(&mut self) -> Option<Event<Id>> {
        loop {
            let is_idle = self.was_answered && self.http.is_open() && self.http.outstanding() == 0;
            self.wire.set_idle(is_idle);
            while let Some(event) = self.http.poll_event() {
                let at = self.asked.iter().position(|(known, _)| known == event.id());
                let Some(&(_, id)) = at.and_then(|at| self.asked.get(at)) else { continue };
                if let (Some(at), false) = (at, matches!(event, Event::Head { .. } | Event::Data { .. })) {
                    self.asked.remove(at);
                    self.was_answered |= matches!(event, Event::End { .. });
                }
                return Some(event.with_id(id));
            }
            if !self.http.is_open() {
                return None;
            }
            self.buffer.reserve(READ_BYTES);
            match self.wire.read_buf(&mut self.buffer).await {
                Ok(0) => {
                    self.is_closed = true;
                    self.http.handle_end();
                }
                Ok(_) => {
                    let handled = self.http.handle_bytes(self.buffer.split().freeze());
                    self.cause = handled.err().map(|error| error.to_string());
                }
                Err(error) => self.handle_lost(&error),
            }
        }
    }

    fn handle_lost(&mut self, error: &io::Error) {
        self.http.handle_lost();
        // So ends a connection whose server reads no further, or whose TLS ends without a word.
        self.is_closed = matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
        );
        self.cause.get_or_insert_with(|| error.to_string());
    }

    /// Sends what is to be sent.
    async fn send(&mut self) -> io::Result<()> {
        while let Some(bytes) = self.http.poll_transmit() {
            self.wire.write_all(&bytes).await?;
        }
        self.wire.flush().await
    }
}
