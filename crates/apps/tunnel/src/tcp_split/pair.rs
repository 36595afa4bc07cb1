//! A flow from inside and the connection that carries it: what comes on one leaves on the other.

use bytes::Bytes;
use polypath_tcp::{ConnectionId, StreamHost};
use polypath_units::Instant;
use polypath_wire::{FourTuple, Packet, Payload};

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
}

/// The other side can't take what came.
pub(super) struct Broken;

/// Passes on what came on one side, as far as the other has room.
pub(super) fn pass<F: StreamHost, T: StreamHost>(
    now: Instant,
    (from_host, from): (&mut F, &mut Side),
    (to_host, to): (&mut T, &mut Side),
) -> Result<(), Broken> {
    if to.id.is_none() && !to.is_gone() {
        return Ok(());
    }
    loop {
        while let Some(slice) = from.pending.slices().first() {
            let (slice, len) = (Bytes::clone(slice), slice.len());
            let taken = to_host.send(to.id.ok_or(Broken)?, slice).map_err(|_| Broken)?;
            from.pending.advance(taken);
            if taken < len {
                return Ok(());
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
    Ok(())
}
