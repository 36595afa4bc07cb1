//! What a connection tells its application, and what it asks its host to do.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use polypath_wire::{Endpoint, FourTuple};

use crate::carried::Carried;
use crate::event::Event;
use crate::host::{PathQuality, Rivals};
use crate::identifiers::AddressId;

/// What a connection asks its host to do.
#[derive(Debug)]
pub(crate) enum Request {
    /// Open a subflow.
    OpenSubflow { local: IpAddr, local_id: AddressId, remote: Endpoint, backup: bool },
    /// The first handshake got no answer in time: try it over other paths.
    Race { initial: FourTuple, rivals: Rivals },
    /// The server at this address answers in version 0.
    AskInVersion0 { remote: IpAddr },
    /// What a subflow knew of its path when it ended.
    Remember { tuple: FourTuple, quality: PathQuality },
    /// The flow is over, and has carried this.
    RemoveFlow { tuple: FourTuple, carried: Carried },
    /// The flow is in TIME-WAIT: answer for it from now on.
    TimeWait { tuple: FourTuple, numbers: polypath_tcp::TimeWaitNumbers },
    /// The token leads nowhere any more (fallback, close).
    ForgetToken,
}

/// Events and requests that nobody has taken yet.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    events: VecDeque<Event>,
    requests: Vec<Request>,
    /// The application was told that there is data, and has not read all of it.
    is_readable_told: bool,
}

impl Outbox {
    /// Tells the application.
    #[inline]
    pub(super) fn emit(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// There is data to read: tells the application once.
    #[inline]
    pub(super) fn emit_readable(&mut self) {
        if !core::mem::replace(&mut self.is_readable_told, true) {
            self.emit(Event::Readable);
        }
    }

    /// The application has read everything.
    #[inline]
    pub(super) fn handle_read_dry(&mut self) {
        self.is_readable_told = false;
    }

    /// The application hears of nothing.
    pub(super) fn forget_events(&mut self) {
        self.events.clear();
    }

    #[inline]
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Asks the host.
    pub(super) fn ask(&mut self, request: Request) {
        self.requests.push(request);
    }

    /// Asks for a subflow, unless one of the first `known` requests does so: two events of one segment may both miss the same pair.
    pub(super) fn ask_for_subflow(
        &mut self,
        known: usize,
        (local, local_id): (IpAddr, AddressId),
        remote: Endpoint,
        backup: bool,
    ) {
        let is_asked = |request: &Request| matches!(request, Request::OpenSubflow { local: from, remote: to, .. } if (*from, *to) == (local, remote));
        if !self.requests.iter().take(known).any(is_asked) {
            self.ask(Request::OpenSubflow { local, local_id, remote, backup });
        }
    }

    /// No subflow is to be opened of those that were asked for.
    pub(super) fn forget_subflows(&mut self) {
        self.requests.retain(|request| !matches!(request, Request::OpenSubflow { .. }));
    }

    /// How many requests wait.
    #[inline]
    pub(super) fn requests_len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn take_requests(&mut self) -> Vec<Request> {
        core::mem::take(&mut self.requests)
    }

    /// Gives back the memory of empty queues: an idle connection holds little.
    pub(super) fn trim(&mut self) {
        self.events.shrink_to(0);
        self.requests.shrink_to(0);
    }
}
