//! A connection on which something is asked for, whichever version of HTTP was agreed on.

mod http1;
mod shared;

use std::time::Duration;

use self::http1::Http1;
use self::shared::Shared;
use super::way::Wire;
use crate::http1::{Event, Request};
use crate::http2;
use crate::net::Protocol;

/// A connection, with requests that whoever asks calls by names of his own.
pub(crate) struct Link<Id> {
    inner: Inner<Id>,
}

enum Inner<Id> {
    Http1(Box<Http1<Id>>),
    Http2 {
        connection: Box<http2::Connection<Id, Shared>>,
        wire: Shared,
    },
    /// It was lost at once.
    Lost(String),
}

impl<Id: Copy> Link<Id> {
    /// Begins on a connection that is there.
    pub(crate) async fn begin(wire: Box<dyn Wire>) -> Self {
        let inner = match wire.protocol() {
            Protocol::Http1 => Inner::Http1(Box::new(Http1::new(wire))),
            Protocol::Http2 => {
                let wire = Shared::new(wire);
                match http2::Connection::begin(wire.clone()).await {
                    Ok(connection) => Inner::Http2 { connection: Box::new(connection), wire },
                    Err(cause) => Inner::Lost(cause),
                }
            }
        };
        Self { inner }
    }

    /// The round trip that the system measured.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        match &self.inner {
            Inner::Http1(http1) => http1.round_trip(),
            Inner::Http2 { wire, .. } => wire.round_trip(),
            Inner::Lost(_) => None,
        }
    }

    /// Why it ended, if that is no usual end of one.
    pub(crate) fn cause(&self) -> Option<&str> {
        match &self.inner {
            Inner::Http1(http1) => http1.cause(),
            Inner::Http2 { connection, .. } => connection.cause(),
            Inner::Lost(cause) => Some(cause),
        }
    }

    /// Whether a server that leaves requests unanswered ends it so, as one does that wants one request at a time. With HTTP/2, none does.
    pub(crate) fn is_closed_by_server(&self) -> bool {
        matches!(&self.inner, Inner::Http1(http1) if http1.is_closed())
    }

    /// Nobody is to go on with it. What is given up idle otherwise, another download may use.
    pub(crate) fn give_up(&mut self) {
        if let Inner::Http1(http1) = &mut self.inner {
            http1.give_up();
        }
    }

    /// Asks. If that fails, the next events say so.
    pub(crate) async fn ask(&mut self, id: Id, request: Request) {
        match &mut self.inner {
            Inner::Http1(http1) => http1.ask(id, request).await,
            Inner::Http2 { connection, .. } => connection.ask(id, &request),
            // It is over for whoever waits.
            Inner::Lost(_) => {}
        }
    }

    /// What happens next; none if it is over. Nothing is lost if nobody waits for the end of this.
    pub(crate) async fn next(&mut self) -> Option<Event<Id>> {
        match &mut self.inner {
            Inner::Http1(http1) => http1.next().await,
            Inner::Http2 { connection, .. } => connection.next().await,
            Inner::Lost(_) => None,
        }
    }
}
