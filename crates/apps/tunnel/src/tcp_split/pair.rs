//! A flow from inside and the connection that carries it: what comes on one leaves on the other.

use polypath_tcp::{ConnectionId, StreamHost};
use polypath_units::Instant;
use polypath_wire::{FourTuple, Packet, Payload};

use super::memory::Share;

/// Of data in pieces that are so short, no more than so many wait: each takes memory of its own. What is kept back is joined meanwhile.
const SHORT_BYTES: usize = 256;
const MOST_SHORT: u32 = 256;

/// How far a flow is.
#[derive(Debug)]
pub(super) enum Stage {
    /// This end called; the flow's SYN waits for the answer.
    Calling(Box<Packet>),
    /// This end was called, and reads for whom.
    Called(Vec<u8>),
    /// This end asks the flow's destination.
    Asking,
    /// The destination did not take it; the caller was told.
    Refused,
    /// Bytes go both ways.
    Open,
}

/// One of the two connections.
#[derive(Debug, Default)]
pub(super) struct Side {
    id: Option<ConnectionId>,
    /// Came, and waits for room on the other side.
    pending: Payload,
    /// Its peer sends no more.
    is_finished: bool,
    /// Its peer was told that no more comes.
    is_shut: bool,
    /// It ended in order; what came before may still be here.
    is_closed: bool,
    /// Short pieces that it was given since nothing waited for it.
    short: u32,
}

impl Side {
    pub(super) fn new(id: ConnectionId) -> Self {
        Self { id: Some(id), ..Self::default() }
    }

    pub(super) fn id(&self) -> Option<ConnectionId> {
        self.id
    }

    pub(super) fn set_id(&mut self, id: ConnectionId) {
        self.id = Some(id);
    }

    pub(super) fn mark_finished(&mut self) {
        self.is_finished = true;
    }

    pub(super) fn mark_closed(&mut self) {
        (self.is_finished, self.is_closed) = (true, true);
    }

    /// Its peer was told that no more comes.
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut
    }

    /// What came and is not passed on.
    pub(super) fn pending_mut(&mut self) -> &mut Payload {
        &mut self.pending
    }

    /// There was such a connection, and it is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.is_closed && self.id.is_none()
    }

    /// Ends it at once.
    pub(super) fn abort<H: StreamHost>(&mut self, now: Instant, host: &mut H) {
        if let Some(id) = self.id.take() {
            host.abort(now, id);
            host.release(now, id);
        }
    }

    /// Says that no more comes.
    pub(super) fn shut<H: StreamHost>(&mut self, now: Instant, host: &mut H) {
        if let Some(id) = self.id.filter(|_| !self.is_shut) {
            self.is_shut = true;
            host.shutdown(now, id);
        }
    }
}

/// A flow.
#[derive(Debug)]
pub(super) struct Pair {
    /// As the host inside sees it that this end is to the flow.
    pub(super) flow: FourTuple,
    pub(super) stage: Stage,
    pub(super) inside: Side,
    pub(super) across: Side,
    /// What it holds of the memory that all flows share.
    pub(super) share: Share,
}

/// The other side can't take what came.
pub(super) struct Broken;

/// How much was passed on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    pub(super) bytes: u64,
    /// There is more, which has to wait for memory.
    pub(super) is_held: bool,
}

/// What waits for a side, and how much more may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) queued_bytes: u64,
    pub(super) room_bytes: u64,
}

/// Passes on what came on one side, as far as the other has room.
pub(super) fn pass<F: StreamHost, T: StreamHost>(
    now: Instant,
    (from_host, from): (&mut F, &mut Side),
    (to_host, to): (&mut T, &mut Side),
    room: Room,
) -> Result<Passed, Broken> {
    let mut passed = Passed::default();
    if to.id.is_none() && !to.is_gone() {
        return Ok(passed);
    }
    if room.queued_bytes == 0 {
        to.short = 0;
    }
    loop {
        while let Some(slice) = from.pending.slices().first() {
            let len = slice.len();
            let room_bytes = room.room_bytes.saturating_sub(passed.bytes);
            passed.is_held = room_bytes == 0 || len < SHORT_BYTES && to.short >= MOST_SHORT;
            if passed.is_held {
                return Ok(passed);
            }
            to.short += u32::from(len < SHORT_BYTES);
            let slice = slice.slice(..len.min(usize::try_from(room_bytes).unwrap_or(usize::MAX)));
            let given = slice.len();
            let taken = to_host.send(to.id.ok_or(Broken)?, slice).map_err(|_| Broken)?;
            passed.bytes += taken as u64;
            from.pending.advance(taken);
            if taken < given {
                return Ok(passed);
            }
        }
        match from.id.and_then(|id| from_host.recv(id)) {
            Some(payload) => from.pending = payload,
            None => break,
        }
    }
    if from.is_finished {
        to.shut(now, to_host);
    }
    if from.is_closed
        && let Some(id) = from.id.take()
    {
        from_host.release(now, id);
    }
    Ok(passed)
}
