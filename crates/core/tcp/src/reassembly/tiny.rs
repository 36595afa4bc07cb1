//! Pieces that are too short to be kept apart.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use polypath_wire::Payload;

/// So many neighbours that are shorter than [`RUN_BYTES`] together are copied together: a peer that sends single bytes may not
/// make the queue hold many times the memory that the window allows.
pub(super) const RUN_PIECES: usize = 16;
pub(super) const RUN_BYTES: usize = 1024;

/// Copies the piece at index `at`, which is new, together with its neighbours if they are many and tiny, so that a queue does not
/// hold many times the memory that it counts: pieces come to 32 bytes on average at least.
///
/// # Cost
/// A call copies less than `RUN_BYTES`, and looks at as many bytes. Where tiny pieces come one after the other, that happens
/// with each fifteenth.
#[inline]
pub fn join_tiny(pieces: &mut VecDeque<Payload>, at: usize) {
    for first in [(at + 1).checked_sub(RUN_PIECES), Some(at)].into_iter().flatten() {
        let run = first..first + RUN_PIECES;
        if run.end <= pieces.len()
            && let Some(bytes) = tiny_bytes(pieces.range(run.clone()))
        {
            return join(pieces, run, bytes);
        }
    }
}

/// How many bytes the pieces hold, if that is few.
fn tiny_bytes<'a>(run: impl DoubleEndedIterator<Item = &'a Payload>) -> Option<usize> {
    let mut bytes = 0;
    for slice in run.rev().flat_map(Payload::slices) {
        bytes += slice.len();
        if bytes >= RUN_BYTES {
            return None;
        }
    }
    Some(bytes)
}

#[cold]
fn join(pieces: &mut VecDeque<Payload>, run: Range<usize>, bytes: usize) {
    let first = run.start;
    let mut joined = Vec::with_capacity(bytes);
    for slice in pieces.drain(run).flatten() {
        joined.extend_from_slice(&slice);
    }
    pieces.insert(first, joined.into());
}
