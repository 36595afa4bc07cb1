//! The two programs: one serves a file, the other fetches it.

use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

use bytes::Bytes;
use polypath_mptcp::{ConnectionId, Host};
use polypath_sim::app::{Application, StreamEvent};
use polypath_units::{Duration, Instant};
use sha2::{Digest, Sha256};

/// Sends the file to whoever connects.
#[derive(Debug)]
pub(super) struct Server {
    left: Bytes,
}

impl Server {
    pub(super) fn new(content: Bytes) -> Self {
        Self { left: content }
    }
}

impl Application<Host> for Server {
    fn handle_event(&mut self, now: Instant, stack: &mut Host, id: ConnectionId, event: StreamEvent) {
        match event {
            StreamEvent::Accepted { .. } | StreamEvent::Writable => {
                while !self.left.is_empty() {
                    let taken = stack.send(id, self.left.clone()).unwrap_or(0);
                    if taken == 0 {
                        return;
                    }
                    self.left = self.left.slice(taken..);
                }
                stack.shutdown(now, id);
            }
            StreamEvent::Closed { .. } => stack.release(now, id),
            _ => {}
        }
    }
}

/// How far the client is.
#[derive(Debug)]
pub(super) struct Progress {
    expected_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) finished_at: Option<Instant>,
    /// Its start and its length.
    longest_gap: (Instant, Duration),
    last_data_at: Option<Instant>,
    closed: bool,
    hash: Sha256,
}

impl Progress {
    pub(super) fn new(expected_bytes: u64) -> Self {
        Self {
            expected_bytes,
            received_bytes: 0,
            finished_at: None,
            longest_gap: (Instant::ZERO, Duration::ZERO),
            last_data_at: None,
            closed: false,
            hash: Sha256::new(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.finished_at.is_some() || self.closed
    }

    /// The longest time in which nothing arrived after the first byte: its start and its length. One that lasts counts up
    /// to now.
    pub(super) fn longest_gap(&self, now: Instant) -> (Instant, Duration) {
        let current = match (self.last_data_at, self.finished_at) {
            (Some(last), None) => (last, now.since(last)),
            _ => self.longest_gap,
        };
        if current.1 > self.longest_gap.1 { current } else { self.longest_gap }
    }

    pub(super) fn sha256(&self) -> String {
        hexadecimal(&self.hash.clone().finalize())
    }

    pub(super) fn add(&mut self, now: Instant, slice: &[u8]) {
        self.hash.update(slice);
        self.received_bytes += slice.len() as u64;
        self.longest_gap = self.longest_gap(now);
        self.last_data_at = Some(now);
        if self.received_bytes >= self.expected_bytes {
            self.finished_at.get_or_insert(now);
        }
    }
}

/// Reads until the server has sent everything.
#[derive(Debug)]
pub(super) struct Client {
    progress: Rc<RefCell<Progress>>,
}

impl Client {
    pub(super) fn new(progress: Rc<RefCell<Progress>>) -> Self {
        Self { progress }
    }
}

impl Application<Host> for Client {
    fn handle_event(&mut self, now: Instant, stack: &mut Host, id: ConnectionId, event: StreamEvent) {
        let mut progress = self.progress.borrow_mut();
        match event {
            StreamEvent::Readable => {
                while let Some(data) = stack.recv(id) {
                    for slice in data.slices() {
                        progress.add(now, slice);
                    }
                }
            }
            StreamEvent::PeerFinished => stack.shutdown(now, id),
            StreamEvent::Closed { .. } => {
                progress.closed = true;
                stack.release(now, id);
            }
            _ => {}
        }
    }
}

pub(super) fn sha256(content: &[u8]) -> String {
    hexadecimal(&Sha256::digest(content))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}
