//! How far the kernel receives ahead of the side that takes the bytes.
//!
//! Linux lets a receive buffer grow with what is read from it, up to 32 MB. A pipe reads much at once, so that it grew to that while the other side
//! took nothing. A thousand clients that asked for a lot and read an octet a second had all memory of TCP on the machine then
//! (`net.ipv4.tcp_mem`), and connections of others stood still. So the buffer is held until the other side has taken something.

use polypath_stack::engine::KernelStream;

use super::pipe::CAPACITY_BYTES;

/// A buffer, and what the other side takes until the next one. Half of a buffer is a window, and a sender whose flights double sends as much at once as
/// it has sent before: it is not held back, or hardly.
const STEPS: [Step; 2] = [
    Step { buffer_bytes: 256 << 10, taken_bytes: 256 << 10 },
    Step { buffer_bytes: 512 << 10, taken_bytes: 1 << 20 },
];
/// With this buffer the kernel goes on by itself.
const RELEASED_BYTES: usize = 2 << 20;
/// What goes through a pipe at once before the last step.
const FEW_AT_ONCE_BYTES: usize = 128 << 10;
/// Writing waits while as many bytes were not sent yet, however much memory the kernel would give: as many as a pipe holds are on their way to it.
const UNSENT_BYTES: u32 = 256 << 10;

#[derive(Debug)]
struct Step {
    buffer_bytes: usize,
    taken_bytes: u64,
}

/// One way between two sockets of the kernel, from where its bytes were found to be many.
#[derive(Debug)]
pub(in super::super) struct Ahead {
    moved_bytes: u64,
    /// None: the kernel decides.
    step: Option<u8>,
}

impl Ahead {
    /// Holds the source, where that can be.
    pub(in super::super) fn hold(from: &KernelStream, to: &KernelStream) -> Self {
        // Where it can't be set, it stays as it is.
        let _ = to.set_most_unsent_bytes(UNSENT_BYTES);
        Self { moved_bytes: 0, step: hold(from, 0) }
    }

    /// How many bytes are moved at once, at most.
    pub(super) fn most_at_once(&self) -> usize {
        self.step.map_or(CAPACITY_BYTES, |_| FEW_AT_ONCE_BYTES)
    }

    /// So many bytes were written.
    pub(in super::super) fn moved(&mut self, count: usize, from: &KernelStream, to: &KernelStream) {
        let Some(step) = self.step else { return };
        self.moved_bytes += count as u64;
        let enough = STEPS[usize::from(step)].taken_bytes;
        if self.moved_bytes < enough {
            return;
        }
        // Nobody is slower for what can't be known.
        let waiting = to.unacknowledged_bytes().unwrap_or(0);
        if self.moved_bytes.saturating_sub(waiting) >= enough {
            self.step = hold(from, step + 1);
        }
    }
}

/// Goes to this step, or leaves the buffer to the kernel.
fn hold(from: &KernelStream, step: u8) -> Option<u8> {
    if let Some(Step { buffer_bytes, .. }) = STEPS.get(usize::from(step))
        // More than the kernel allows can't be held (`net.core.rmem_max`).
        && from.hold_receive_buffer(*buffer_bytes).is_ok_and(|held| held == *buffer_bytes)
    {
        return Some(step);
    }
    let _ = from.release_receive_buffer(RELEASED_BYTES);
    None
}
