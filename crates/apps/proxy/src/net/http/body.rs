//! Bodies that pass through, and what is told of a request once they have.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::super::flow::{Flow, Way};
use super::super::gate::Gate;
use super::super::known::Known;
use super::super::session::Ending;
use super::super::sessions::Session;
use super::super::watched::Watched;
use super::super::within::Inner;
use super::outgoing::Outgoing;

/// A body, and whose it is.
pub(super) struct Passing {
    inner: Incoming,
    way: Way,
    log: Arc<RequestLog>,
    /// Told how far it has come.
    outgoing: Option<Arc<Outgoing>>,
    is_whole: bool,
    gate: Option<Gate>,
    /// What was read and limits do not let pass yet; no more than hyper reads at once.
    kept: Bytes,
    /// Whose answer it is. Nobody reads or writes there while limits let nothing pass.
    client: Option<Watched>,
}

impl Passing {
    pub(super) fn new(inner: Incoming, way: Way, log: Arc<RequestLog>) -> Self {
        let is_whole = inner.is_end_stream();
        Self { inner, way, log, outgoing: None, is_whole, gate: None, kept: Bytes::new(), client: None }
    }

    /// It goes over that connection.
    pub(super) fn set_outgoing(&mut self, outgoing: Arc<Outgoing>) {
        outgoing.begins();
        self.outgoing = Some(outgoing);
        self.tell_if_read();
    }

    /// It goes no faster than that.
    pub(super) fn set_gate(&mut self, gate: Gate) {
        self.gate = Some(gate);
    }

    /// It is an answer for that client, which may leave while it waits.
    pub(super) fn set_client(&mut self, client: Watched) {
        self.client = Some(client);
    }

    /// Whether the client has left, which it has to be asked while limits hold its answer back. Its connection is reset then.
    fn client_has_left(&self) -> bool {
        let Some(client) = self.client.as_ref().filter(|client| client.is_broken()) else { return false };
        self.log.ended(Ending::ClientBroke("it was reset".into()));
        if let Some(leg) = client.take() {
            leg.abort();
        }
        true
    }

    fn tell_if_read(&self) {
        if let Some(outgoing) = self.outgoing.as_ref().filter(|_| self.is_whole && self.kept.is_empty()) {
            outgoing.is_read();
        }
    }

    /// As much of what is kept as may pass; nothing if there is nobody whom it could go to.
    fn poll_kept(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let count = match &mut self.gate {
            Some(gate) => match gate.poll_pass(cx, self.kept.len()) {
                Poll::Ready(count) => count,
                Poll::Pending if self.client_has_left() => return Poll::Ready(None),
                Poll::Pending => {
                    self.log.is_held_back();
                    return Poll::Pending;
                }
            },
            None => self.kept.len(),
        };
        let passing = self.kept.split_to(count.min(self.kept.len()));
        self.log.moved(self.way, passing.len());
        self.tell_if_read();
        Poll::Ready(Some(passing))
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if !self.kept.is_empty() {
            return self.poll_kept(cx).map(|passing| passing.map(|passing| Ok(Frame::data(passing))));
        }
        let mut polled = Pin::new(&mut self.inner).poll_frame(cx);
        match &mut polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.is_whole = self.inner.is_end_stream();
                if let Some(data) = frame.data_mut().filter(|data| !data.is_empty()) {
                    self.kept = std::mem::take(data);
                    return self.poll_kept(cx).map(|passing| passing.map(|passing| Ok(Frame::data(passing))));
                }
                // Nobody asks for more behind trailers.
                self.is_whole |= frame.is_trailers();
                self.tell_if_read();
            }
            Poll::Ready(None) => {
                self.is_whole = true;
                self.tell_if_read();
            }
            Poll::Ready(Some(Err(error))) => {
                let why: Arc<str> = error.to_string().into();
                match self.way {
                    Way::ToServer => self.log.ended(Ending::ClientBroke(why)),
                    Way::ToClient => self.log.ended(Ending::ServerBroke(why)),
                }
            }
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.kept.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, kept) = (self.inner.size_hint(), self.kept.len() as u64);
        let mut with_kept = SizeHint::new();
        with_kept.set_lower(hint.lower().saturating_add(kept));
        if let Some(upper) = hint.upper() {
            with_kept.set_upper(upper.saturating_add(kept));
        }
        with_kept
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if self.way == Way::ToClient && self.is_whole && self.kept.is_empty() {
            self.log.ended(Ending::Finished);
        }
    }
}

/// What is told of a request when nothing of it is left.
pub(super) struct RequestLog {
    proxy: Arc<Inner>,
    /// Of the connection.
    session: Arc<Session>,
    /// Of this request alone.
    flow: Flow,
    /// What the connection had moved before it: to the server, and to the client.
    before: (u64, u64),
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Known,
    is_answered: bool,
    ending: Option<Ending>,
}

impl RequestLog {
    pub(super) fn new(proxy: &Arc<Inner>, session: &Arc<Session>) -> Self {
        let (proxy, session) = (proxy.clone(), session.clone());
        session.flow().touch();
        let before = (session.flow().to_server_bytes(), session.flow().to_client_bytes());
        Self { proxy, session, flow: Flow::new(), before, state: Mutex::default() }
    }

    /// What this request moves.
    pub(super) fn flow(&self) -> &Flow {
        &self.flow
    }

    /// A limit lets none of its bytes pass.
    fn is_held_back(&self) {
        self.flow.is_held_back();
        self.session.flow().is_held_back();
    }

    pub(super) fn known<T>(&self, tell: impl FnOnce(&mut Known) -> T) -> T {
        tell(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).known)
    }

    pub(super) fn begins_answer(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_answered = true;
    }

    /// Whether its body was cut off, or is none.
    pub(super) fn client_broke(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(state.ending, Some(Ending::ClientBroke(_)))
    }

    /// The first that is said counts. What breaks once the proxy has given the connection up is nobody else's fault.
    pub(super) fn ended(&self, ending: Ending) {
        let ending = self.session.given_up().unwrap_or(ending);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ending.get_or_insert(ending);
    }

    /// What the connection has moved since is this request's.
    pub(super) fn took_the_rest(&self) {
        let (whole, (to_server, to_client)) = (self.session.flow(), self.before);
        for (way, bytes) in [
            (Way::ToServer, whole.to_server_bytes() - to_server),
            (Way::ToClient, whole.to_client_bytes() - to_client),
        ] {
            self.flow.moved(way, usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }

    fn moved(&self, way: Way, count: usize) {
        self.flow.moved(way, count);
        self.session.flow().moved(way, count);
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let unsaid = if state.is_answered {
            Ending::ClientBroke("it left before the end of the answer".into())
        } else {
            Ending::Unasked
        };
        let ending = state.ending.take().or_else(|| self.session.given_up()).unwrap_or(unsaid);
        let known = std::mem::take(&mut state.known);
        self.proxy.tell("http", self.session.client(), &known, &self.flow, &ending);
    }
}
