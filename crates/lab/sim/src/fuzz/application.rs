//! One end's application: writes a pattern, reads at its own pace, and checks what it reads.

use polypath_mptcp::{CloseReason, ConnectionId, Event, Host};
use polypath_units::Instant;
use polypath_wire::FourTuple;

use super::failure::{Finding, FindingKind};
use super::op::Pace;
use super::setup::Side;
use crate::app::Pattern;

/// What an application wants, has done and has seen.
#[derive(Debug)]
pub(super) struct Application {
    pub(super) side: Side,
    pub(super) id: ConnectionId,
    /// The other end's application, once both are known.
    pub(super) peer: Option<usize>,
    /// Flows that its connection had.
    pub(super) flows: Vec<FourTuple>,
    writes: Pattern,
    reads: Pattern,
    /// What is read is compared with what was written.
    pub(super) checks_bytes: bool,
    pub(super) to_write_bytes: u64,
    pub(super) written_bytes: u64,
    /// It ends its stream when everything is written.
    pub(super) wants_shutdown: bool,
    pub(super) has_shut_down: bool,
    pub(super) read_bytes: u64,
    pub(super) pace: Pace,
    pub(super) next_read: Instant,
    pub(super) peer_finished: bool,
    pub(super) closed: Option<CloseReason>,
    pub(super) aborted: bool,
    pub(super) released: bool,
    /// It has read the end of the stream.
    pub(super) at_end: bool,
}

impl Application {
    /// The application of a connection; `number` is the connection's.
    pub(super) fn new(side: Side, id: ConnectionId, number: u64, checks_bytes: bool) -> Self {
        let (up, down) = (Pattern::new(2 * number), Pattern::new(2 * number + 1));
        let (writes, reads) = if side == Side::Client { (up, down) } else { (down, up) };
        Self {
            side,
            id,
            peer: None,
            flows: Vec::new(),
            writes,
            reads,
            checks_bytes,
            to_write_bytes: 0,
            written_bytes: 0,
            wants_shutdown: false,
            has_shut_down: false,
            read_bytes: 0,
            pace: Pace::Eager,
            next_read: Instant::FAR_FUTURE,
            peer_finished: false,
            closed: None,
            aborted: false,
            released: false,
            at_end: false,
        }
    }

    /// The application at the other end of this one's connection.
    pub(super) fn other_end(&self, id: ConnectionId) -> Self {
        let (writes, reads) = (self.reads, self.writes);
        Self { writes, reads, ..Self::new(self.side.other(), id, 0, self.checks_bytes) }
    }

    /// Nothing more comes of it.
    pub(super) fn is_over(&self) -> bool {
        self.released || self.aborted || self.closed.is_some()
    }

    /// It did nothing but write, read and end its stream.
    pub(super) fn is_orderly(&self) -> bool {
        !self.released && !self.aborted
    }

    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::PeerFinished => self.peer_finished = true,
            Event::Closed(reason) => self.closed = Some(*reason),
            _ => {}
        }
    }

    /// Writes and reads what it can; true if something moved.
    pub(super) fn work(&mut self, now: Instant, host: &mut Host) -> Result<bool, Finding> {
        if self.released {
            return Ok(false);
        }
        let wrote = self.write(now, host);
        let read = match self.pace {
            Pace::Eager => self.read(host, usize::MAX)?,
            Pace::Slow(pause) => {
                let is_due = self.next_read == Instant::FAR_FUTURE || self.next_read <= now;
                let read = is_due && self.read(host, 1)?;
                if is_due {
                    self.next_read = if read { now + pause } else { Instant::FAR_FUTURE };
                }
                read
            }
            Pace::Paused => false,
        };
        Ok(wrote || read)
    }

    fn write(&mut self, now: Instant, host: &mut Host) -> bool {
        let before = self.written_bytes;
        while self.to_write_bytes > 0 && !self.has_shut_down {
            let data = self.writes.slice(self.written_bytes, self.to_write_bytes.min(64 << 10));
            match host.send(self.id, data) {
                Ok(0) => break,
                Ok(taken) => {
                    self.written_bytes += taken as u64;
                    self.to_write_bytes -= taken as u64;
                }
                Err(_) => self.to_write_bytes = 0,
            }
        }
        if self.wants_shutdown && self.to_write_bytes == 0 && !self.has_shut_down {
            self.has_shut_down = true;
            host.shutdown(now, self.id);
        }
        self.written_bytes > before
    }

    fn read(&mut self, host: &mut Host, most_pieces: usize) -> Result<bool, Finding> {
        for piece in 0..most_pieces {
            let Some(data) = host.recv(self.id) else {
                self.at_end |= self.peer_finished;
                return Ok(piece > 0);
            };
            for slice in data {
                if self.checks_bytes
                    && let Err(mismatch) = self.reads.verify(self.read_bytes, &slice)
                {
                    let details = format!("{:?} read a wrong byte at {}", self.side, mismatch.offset);
                    return Err(Finding::new(FindingKind::WrongByte, details));
                }
                self.read_bytes += slice.len() as u64;
            }
        }
        Ok(true)
    }
}
