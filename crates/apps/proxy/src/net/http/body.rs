//! Bodies that pass through, and what is told of a request once they have.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::super::flow::{Flow, Way};
use super::super::session::Ending;
use super::super::within::{Inner, Known};

/// A body, and whose it is.
pub(super) struct Passing {
    inner: Incoming,
    way: Way,
    log: Arc<RequestLog>,
    /// Set if it is cut off.
    resets: Option<Arc<AtomicBool>>,
    is_whole: bool,
}

impl Passing {
    pub(super) fn new(
        inner: Incoming,
        way: Way,
        log: Arc<RequestLog>,
        resets: Option<Arc<AtomicBool>>,
    ) -> Self {
        let is_whole = inner.is_end_stream();
        Self { inner, way, log, resets, is_whole }
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.log.moved(self.way, data.len());
                }
                self.is_whole = self.inner.is_end_stream();
            }
            Poll::Ready(None) => self.is_whole = true,
            Poll::Ready(Some(Err(error))) => {
                let why: Arc<str> = error.to_string().into();
                match self.way {
                    Way::ToServer => self.log.ended(Ending::ClientBroke(why)),
                    Way::ToClient => self.log.ended(Ending::ServerBroke(why)),
                }
                if let Some(resets) = &self.resets {
                    resets.store(true, Ordering::Relaxed);
                }
            }
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if self.way == Way::ToClient && self.is_whole {
            self.log.ended(Ending::Finished);
        }
    }
}

/// What is told of a request when nothing of it is left.
pub(super) struct RequestLog {
    proxy: Arc<Inner>,
    client: SocketAddr,
    /// Of this request alone.
    flow: Flow,
    /// Of the connection.
    whole: Arc<Flow>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Known,
    is_answered: bool,
    ending: Option<Ending>,
}

impl RequestLog {
    pub(super) fn new(proxy: &Arc<Inner>, client: SocketAddr, whole: &Arc<Flow>) -> Self {
        let (proxy, whole) = (proxy.clone(), whole.clone());
        Self { proxy, client, flow: Flow::new(), whole, state: Mutex::default() }
    }

    pub(super) fn known(&self, tell: impl FnOnce(&mut Known)) {
        tell(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).known);
    }

    pub(super) fn begins_answer(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_answered = true;
    }

    /// The first that is said counts.
    pub(super) fn ended(&self, ending: Ending) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ending.get_or_insert(ending);
    }

    /// What the connection has moved is this request's.
    pub(super) fn took(&self, whole: &Flow) {
        for (way, bytes) in
            [(Way::ToServer, whole.to_server_bytes()), (Way::ToClient, whole.to_client_bytes())]
        {
            self.flow.moved(way, usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }

    fn moved(&self, way: Way, count: usize) {
        self.flow.moved(way, count);
        self.whole.moved(way, count);
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
        let ending = state.ending.take().unwrap_or(unsaid);
        let known = std::mem::take(&mut state.known);
        self.proxy.tell("http", self.client, &known, &self.flow, &ending);
    }
}
