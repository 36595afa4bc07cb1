//! What each move of bytes asks before: whether limits let it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::clock::now;
use super::flow::Flow;
use super::settings::Surroundings;
use crate::throttle::{self, Grant, Moment};

/// One direction of a connection, as limits see it. Where none is of it, asking takes no lock and no clock.
pub(super) struct Gate {
    flow: throttle::Flow,
    surroundings: Arc<dyn Surroundings>,
    /// Whether limits have counted what was granted last.
    is_counted: bool,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("flow", &self.flow).finish_non_exhaustive()
    }
}

impl Gate {
    pub(super) fn new(flow: throttle::Flow, surroundings: Arc<dyn Surroundings>) -> Self {
        Self { flow, surroundings, is_counted: false, waiting: None }
    }

    /// Whether it has to ask.
    pub(super) fn is_limited(&self) -> bool {
        self.flow.is_limited()
    }

    /// Whether it has to ask, before it moves what then counts, or does not.
    pub(super) fn has_to_ask(&mut self) -> bool {
        self.is_counted = self.is_limited();
        self.is_counted
    }

    /// How many bytes may be moved now, of as many as that.
    pub(super) fn poll_pass(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<usize> {
        loop {
            let ready = match self.ask(wanted, cx.waker()) {
                Grant::Octets(octets) => {
                    self.waiting = None;
                    return Poll::Ready(usize::try_from(octets).unwrap_or(usize::MAX));
                }
                Grant::Wait(ready) => ready,
            };
            let wait = Duration::from_nanos(ready.since(now()).as_nanos());
            let waiting = self.waiting.insert(Box::pin(sleep(wait)));
            // One that is over already asks again.
            if waiting.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// How many bytes may be moved, of as many as that, once any may. A connection that a limit holds back does not rest.
    pub(super) fn pass(&mut self, wanted: usize, moved: &Flow) -> impl Future<Output = usize> {
        poll_fn(move |cx| {
            let polled = self.poll_pass(cx, wanted);
            if polled.is_pending() {
                moved.is_held_back();
            }
            polled
        })
    }

    /// How many bytes may be moved at once, of as many as that; none if it has to wait.
    pub(super) fn pass_now(&mut self, wanted: usize) -> Option<usize> {
        match self.ask(wanted, Waker::noop()) {
            Grant::Octets(octets) => Some(usize::try_from(octets).unwrap_or(usize::MAX)),
            Grant::Wait(_) => None,
        }
    }

    /// So many of the bytes that might have been moved were not.
    pub(super) fn give_back(&mut self, count: usize) {
        if self.is_counted && count > 0 {
            self.flow.give_back(count as u64);
        }
    }

    fn ask(&mut self, wanted: usize, waker: &Waker) -> Grant {
        if !self.has_to_ask() {
            return Grant::Octets(wanted as u64);
        }
        let moment = Moment { now: now(), minute: self.surroundings.minute() };
        self.flow.poll_grant(moment, wanted as u64, waker)
    }
}

/// Both directions of a connection.
#[derive(Debug)]
pub(super) struct Gates {
    pub(super) to_server: Gate,
    pub(super) to_client: Gate,
}
