//! The program that downloads: one schedule, and a connection of each path.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use polypath_fetch::answer::{Answer, AskedRange};
use polypath_fetch::http1;
use polypath_fetch::playback::History;
use polypath_fetch::schedule::{PathId, Ranges, Request, RequestId, Rest, Schedule, Sizing};
use polypath_sim::app::{Application, Pattern, Stack, StreamEvent};
use polypath_tcp::ConnectionId;
use polypath_units::{Duration, Instant};

/// A download, shared by its connections.
#[derive(Debug)]
pub(super) struct Client {
    schedule: Schedule,
    file: Pattern,
    paths: Vec<Path>,
    history: History,
    requests: u64,
    is_wrong: bool,
}

#[derive(Debug)]
struct Path {
    id: PathId,
    round_trip: Duration,
    /// Its connection: the number of it, and by what the stack knows it once it is open.
    number: u64,
    open: Option<ConnectionId>,
    http: http1::Connection,
    asked: HashMap<http1::RequestId, Asked>,
    is_wanted: bool,
    bytes: u64,
}

/// A request that is not answered in full.
#[derive(Debug)]
struct Asked {
    request: RequestId,
    range: AskedRange,
    /// The next byte that it brings.
    next: u64,
}

impl Client {
    /// A download over paths with these round trips, of which none is connected.
    pub(super) fn new(file: Pattern, sizing: Sizing, round_trips: impl Iterator<Item = Duration>) -> Self {
        let mut schedule = Schedule::new(sizing, Ranges::new());
        let paths = round_trips.map(|round_trip| {
            let id = schedule.add_path(Instant::ZERO);
            schedule.handle_closed(Instant::ZERO, id);
            Path {
                id,
                round_trip,
                number: 0,
                open: None,
                http: http1::Connection::new(),
                asked: HashMap::new(),
                is_wanted: true,
                bytes: 0,
            }
        });
        let paths = paths.collect();
        let history = History::new(Instant::ZERO);
        Self { schedule, file, paths, history, requests: 0, is_wrong: false }
    }

    /// A path that needs a connection, and the number of that one.
    pub(super) fn poll_connect(&mut self) -> Option<(usize, u64)> {
        let at = self.paths.iter().position(|path| path.is_wanted)?;
        let path = &mut self.paths[at];
        path.is_wanted = false;
        path.number += 1;
        Some((at, path.number))
    }

    pub(super) fn is_complete(&self) -> bool {
        self.schedule.is_complete()
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.schedule.received().len_bytes()
    }

    /// When what came, came.
    pub(super) const fn history(&self) -> &History {
        &self.history
    }

    /// Every byte was the right one.
    pub(super) const fn is_right(&self) -> bool {
        !self.is_wrong
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
        path.http = http1::Connection::new();
        path.asked.clear();
        path.is_wanted = true;
        path.open.take()
    }

    fn handle_opened(&mut self, now: Instant, at: usize, id: ConnectionId) {
        let path = &mut self.paths[at];
        path.open = Some(id);
        self.schedule.handle_opened(now, path.id);
        self.schedule.note_round_trip(path.id, path.round_trip);
    }

    /// What the server says. True if the connection is to be given up.
    fn handle_events(&mut self, now: Instant, at: usize) -> bool {
        while let Some(event) = self.paths[at].http.poll_event() {
            let path = &mut self.paths[at];
            match event {
                http1::Event::Head { id, head } => {
                    let Some(asked) = path.asked.get(&id) else { continue };
                    let Ok(answer) = Answer::read(&head, Some(asked.range)) else { return true };
                    self.schedule.handle_head(now, path.id, asked.request);
                    if let (None, Some(total)) = (self.schedule.total_bytes(), answer.version.total()) {
                        self.schedule.set_total_bytes(total);
                    }
                }
                http1::Event::Data { id, bytes } => {
                    let Some(asked) = path.asked.get_mut(&id) else { continue };
                    self.is_wrong |= self.file.verify(asked.next, &bytes).is_err();
                    asked.next += bytes.len() as u64;
                    path.bytes += bytes.len() as u64;
                    let (path, request) = (path.id, asked.request);
                    let Some(came) = self.schedule.handle_bytes(now, path, request, bytes.len() as u64)
                    else {
                        continue;
                    };
                    self.history.note(now, came.range);
                    if came.rest == Rest::Superfluous {
                        return true;
                    }
                }
                http1::Event::End { id } => drop(path.asked.remove(&id)),
                http1::Event::Truncated { .. } | http1::Event::Unanswered { .. } => return true,
            }
        }
        false
    }

    /// Asks on all connections what is to be asked now.
    fn ask<S: Stack>(&mut self, now: Instant, stack: &mut S) {
        for path in &mut self.paths {
            let Some(open) = path.open else { continue };
            while let Some(Request { id, start, end }) = self.schedule.poll_request(now, path.id) {
                let range = AskedRange { first: start, last: end.map(|end| end - 1) };
                let request = http1::Request::new(http1::Method::Get, "192.0.2.1", "/video.mp4")
                    .and_then(|request| request.with_field("User-Agent", "polypath"))
                    .and_then(|request| request.with_field("Accept-Encoding", "identity"))
                    .and_then(|request| request.with_field("Range", &range.to_field()))
                    .expect("a request that can be written");
                path.asked.insert(path.http.request(request), Asked { request: id, range, next: start });
                self.requests += 1;
            }
            while let Some(bytes) = path.http.poll_transmit() {
                // Requests are small beside a send buffer.
                let _ = stack.send(open, bytes);
            }
        }
    }
}

/// One connection of a download.
#[derive(Debug)]
pub(super) struct PathConnection {
    pub(super) client: Rc<RefCell<Client>>,
    pub(super) path: usize,
    /// The number of the connection on its path.
    pub(super) number: u64,
}

impl PathConnection {
    fn is_current(&self) -> bool {
        self.client.borrow().paths[self.path].number == self.number
            && !self.client.borrow().paths[self.path].is_wanted
    }
}

impl<S: Stack> Application<S> for PathConnection {
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
                        is_over |= client.paths[at].http.handle_bytes(slice.clone()).is_err();
                    }
                    is_over |= client.handle_events(now, at);
                    if is_over {
                        break;
                    }
                }
                if is_over {
                    let path = client.paths[at].id;
                    client.schedule.handle_closed(now, path);
                    client.renew(at);
                    stack.abort(now, id);
                }
            }
            StreamEvent::Closed { .. } => {
                if is_current {
                    let path = client.paths[at].id;
                    client.schedule.handle_closed(now, path);
                    client.renew(at);
                }
                stack.release(now, id);
            }
            _ => {}
        }
        client.ask(now, stack);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.client.borrow().schedule.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, stack: &mut S, _id: ConnectionId) {
        let mut client = self.client.borrow_mut();
        client.schedule.handle_timeout(now);
        while let Some(gone) = client.schedule.poll_gone(now) {
            if let Some(id) = client.renew(gone.index()) {
                stack.abort(now, id);
            }
        }
        client.ask(now, stack);
    }
}
