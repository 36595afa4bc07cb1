//! Pipes, through which the kernel moves bytes from one socket to another without handing them out.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// What one holds, if the kernel allows it; else what it gives.
pub(super) const CAPACITY_BYTES: usize = 512 << 10;
/// Pipes that wait to be used again. Descriptors are scarce.
const MOST_KEPT: usize = 64;
/// Pipes at once: what clients that read slowly can make us hold.
const MOST_IN_USE: usize = 256;

/// The two ends of a pipe.
#[derive(Debug)]
struct Ends {
    into: OwnedFd,
    out: OwnedFd,
}

/// An empty pipe, or one that has what was read and not yet written.
#[derive(Debug)]
pub(super) struct Pipe {
    ends: Ends,
    held_bytes: usize,
    _place: Place,
}

static KEPT: Mutex<Vec<Ends>> = Mutex::new(Vec::new());
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// One of those at once.
#[derive(Debug)]
struct Place;

impl Place {
    fn take() -> io::Result<Self> {
        if IN_USE.fetch_add(1, Ordering::Relaxed) < MOST_IN_USE {
            return Ok(Self);
        }
        drop(Self);
        Err(io::ErrorKind::ResourceBusy.into())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        IN_USE.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pipe {
    /// One that is empty.
    pub(super) fn take() -> io::Result<Self> {
        let place = Place::take()?;
        if let Some(ends) = KEPT.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(Self { ends, held_bytes: 0, _place: place });
        }
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user who has many of them gets small ones.
        let _ = fcntl_setpipe_size(&into, CAPACITY_BYTES);
        Ok(Self { ends: Ends { into, out }, held_bytes: 0, _place: place })
    }

    /// For the next that needs one. One that holds something is closed.
    pub(super) fn give_back(self) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if self.held_bytes == 0 && kept.len() < MOST_KEPT {
            kept.push(self.ends);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held_bytes == 0
    }

    /// Takes what a socket has, no more than so much; 0 at its end.
    pub(super) fn fill(&mut self, from: impl AsFd, most: usize) -> io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let count = splice(from, None, &self.ends.into, None, most, flags)?;
        self.held_bytes += count;
        Ok(count)
    }

    /// Gives a socket what it has room for.
    pub(super) fn drain(&mut self, to: impl AsFd) -> io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let count = splice(&self.ends.out, None, to, None, self.held_bytes, flags)?;
        self.held_bytes -= count;
        Ok(count)
    }
}
