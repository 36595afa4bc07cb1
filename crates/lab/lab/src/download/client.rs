//! The program that fetches: a connection of each path.

use std::cell::RefCell;
use std::rc::Rc;

use polypath_fetch::exchange::{Exchange, Happened};
use polypath_fetch::http1;
use polypath_fetch::schedule::{PathId, Rest};
use polypath_sim::app::{Application, Stack, StreamEvent};
use polypath_tcp::ConnectionId;
use polypath_units::{Duration, Instant};

use super::work::{Asking, Work};

/// What is fetched, shared by its connections.
#[derive(Debug)]
pub(super) struct Client<W> {
    work: W,
    paths: Vec<Path>,
    requests: u64,
}

#[derive(Debug)]
struct Path {
    id: PathId,
    round_trip: Duration,
    /// Its connection: the number of it, and by what the stack knows it once it is open.
    number: u64,
    open: Option<ConnectionId>,
    exchange: Exchange,
    is_wanted: bool,
    bytes: u64,
}

impl<W: Work> Client<W> {
    /// A client with paths of these round trips, of which none is connected.
    pub(super) fn new(mut work: W, round_trips: impl Iterator<Item = Duration>) -> Self {
        let paths = round_trips.map(|round_trip| Path {
            id: work.add_path(),
            round_trip,
            number: 0,
            open: None,
            exchange: Exchange::new(),
            is_wanted: true,
            bytes: 0,
        });
        let paths = paths.collect();
        Self { work, paths, requests: 0 }
    }

    /// A path that needs a connection, and the number of that one.
    pub(super) fn poll_connect(&mut self) -> Option<(usize, u64)> {
        let at = self.paths.iter().position(|path| path.is_wanted)?;
        let path = &mut self.paths[at];
        path.is_wanted = false;
        path.number += 1;
        Some((at, path.number))
    }

    pub(super) const fn work(&self) -> &W {
        &self.work
    }

    pub(super) const fn requests(&self) -> u64 {
        self.requests
    }

    pub(super) fn path_bytes(&self) -> Vec<u64> {
        self.paths.iter().map(|path| path.bytes).collect()
    }

    /// The connection of a path is given up for another one.
    fn renew(&mut self, at: usize) -> Option<ConnectionId> {
        let path = &mut self.paths[at];
        path.exchange = Exchange::new();
        path.is_wanted = true;
        path.open.take()
    }

    fn handle_opened(&mut self, now: Instant, at: usize, id: ConnectionId) {
        let path = &mut self.paths[at];
        path.open = Some(id);
        self.work.handle_opened(now, path.id, path.round_trip);
    }

    /// What the server says. True if the connection is to be given up.
    fn handle_events(&mut self, now: Instant, at: usize) -> bool {
        while let Some(happened) = self.paths[at].exchange.poll_event() {
            let path = &mut self.paths[at];
            match happened {
                Happened::Head { id, answer } => {
                    if !self.work.handle_head(now, path.id, id, &answer) {
                        return true;
                    }
                }
                Happened::Bytes { id, first, bytes } => {
                    path.bytes += bytes.len() as u64;
                    let rest = self.work.handle_bytes(now, path.id, id, first, &bytes);
                    if rest == Some(Rest::Superfluous) {
                        return true;
                    }
                }
                Happened::End { id } => self.work.handle_end(now, path.id, id),
                Happened::Over => return true,
            }
        }
        false
    }

    /// Asks on all connections what is to be asked now.
    fn ask<S: Stack>(&mut self, now: Instant, stack: &mut S) {
        for path in &mut self.paths {
            let Some(open) = path.open else { continue };
            while let Some(Asking { id, target, range }) = self.work.poll_request(now, path.id) {
                let request = http1::Request::new(http1::Method::Get, "192.0.2.1", &target)
                    .and_then(|request| request.with_field("User-Agent", "polypath"))
                    .and_then(|request| request.with_field("Accept-Encoding", "identity"))
                    .and_then(|request| request.with_field("Range", &range.to_field()))
                    .expect("a request that can be written");
                path.exchange.ask(id, range, request);
                self.requests += 1;
            }
            while let Some(bytes) = path.exchange.poll_transmit() {
                // Requests are small beside a send buffer.
                let _ = stack.send(open, bytes);
            }
        }
    }
}

/// One connection of a client.
#[derive(Debug)]
pub(super) struct PathConnection<W> {
    pub(super) client: Rc<RefCell<Client<W>>>,
    pub(super) path: usize,
    /// The number of the connection on its path.
    pub(super) number: u64,
}

impl<W> PathConnection<W> {
    fn is_current(&self) -> bool {
        self.client.borrow().paths[self.path].number == self.number
            && !self.client.borrow().paths[self.path].is_wanted
    }
}

impl<S: Stack, W: Work> Application<S> for PathConnection<W> {
    fn handle_event(&mut self, now: Instant, stack: &mut S, id: ConnectionId, event: StreamEvent) {
        let is_current = self.is_current();
        let mut client = self.client.borrow_mut();
        let at = self.path;
        match event {
            StreamEvent::Connected if is_current => client.handle_opened(now, at, id),
            StreamEvent::Readable if is_current => {
                let mut is_over = false;
                while let Some(payload) = stack.recv(id) {
                    for slice in payload.slices() {
                        is_over |= client.paths[at].exchange.handle_bytes(slice.clone()).is_err();
                    }
                    is_over |= client.handle_events(now, at);
                    if is_over {
                        break;
                    }
                }
                if is_over {
                    let path = client.paths[at].id;
                    client.work.handle_closed(now, path);
                    client.renew(at);
                    stack.abort(now, id);
                }
            }
            StreamEvent::Closed { .. } => {
                if is_current {
                    let path = client.paths[at].id;
                    client.work.handle_closed(now, path);
                    client.renew(at);
                }
                stack.release(now, id);
            }
            _ => {}
        }
        client.ask(now, stack);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.client.borrow().work.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, stack: &mut S, _id: ConnectionId) {
        let mut client = self.client.borrow_mut();
        client.work.handle_timeout(now);
        while let Some(gone) = client.work.poll_gone(now) {
            if let Some(id) = client.renew(gone.index()) {
                stack.abort(now, id);
            }
        }
        client.ask(now, stack);
    }
}
