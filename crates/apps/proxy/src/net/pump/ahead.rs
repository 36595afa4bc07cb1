//! How far the kernel receives ahead of the side that takes the bytes.
//!
//! Linux lets a receive buffer grow with what is read from it, up to 32 MB. A pipe reads much at once, so that it grew to that while the other side
//! took nothing. A thousand clients that asked for a lot and read an octet a second had all memory of TCP on the machine then
//! (`net.ipv4.tcp_mem`), and connections of others stood still. So the buffer is held until the other side has taken something.

use polypath_stack::engine::{KernelStream, Stream};

use super::super::leg::Leg;
use super::super::secured::Secured;
use super::super::watched::Watched;
use super::pipe::CAPACITY_BYTES;

/// Until so many have come, they are few, and nothing is held. The kernel makes a buffer larger with the first round trip of more.
const MANY_BYTES: u64 = 16 << 10;
/// A buffer, and what the other side takes until the next one. A sender whose flights double sends as much at once as it has sent before: it is not held
/// back. What counts as taken may be with the other side's system, which has room for 128 KiB or less before its program reads.
const STEPS: [Step; 3] = [
    Step { buffer_bytes: 256 << 10, taken_bytes: 160 << 10 },
    Step { buffer_bytes: 512 << 10, taken_bytes: 256 << 10 },
    Step { buffer_bytes: 1 << 20, taken_bytes: 640 << 10 },
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

impl Step {
    /// Less than what a system gives at most: a buffer that has that already would never grow again.
    fn buffer_bytes(&self) -> usize {
        self.buffer_bytes.min(KernelStream::most_receive_buffer_bytes() / 3 * 2)
    }
}

/// One way between two connections.
#[derive(Debug, Default)]
pub(in super::super) struct Ahead {
    moved_bytes: u64,
    held: Held,
    /// Of those that were moved, so many may be neither with the one nor with the other.
    between_bytes: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum Held {
    /// Few bytes have come.
    #[default]
    NotYet,
    /// At this step.
    At(u8),
    /// The kernel decides.
    NoMore,
}

impl Ahead {
    /// Bytes are many already.
    pub(super) fn begin(from: &impl End, to: &impl End) -> Self {
        Self { moved_bytes: 0, held: begin_between(from, to, 0), between_bytes: 0 }
    }

    /// Somebody between the two has as many of the bytes that are said to be moved, at most.
    pub(in super::super) fn with_others(between_bytes: u32) -> Self {
        Self { between_bytes, ..Self::default() }
    }

    /// How many bytes are moved at once, at most.
    pub(super) fn most_at_once(&self) -> usize {
        match self.held {
            Held::NoMore => CAPACITY_BYTES,
            Held::NotYet | Held::At(_) => FEW_AT_ONCE_BYTES,
        }
    }

    /// So many bytes were written, or are about to be.
    pub(in super::super) fn moved(&mut self, count: usize, from: &impl End, to: &impl End) {
        self.moved_bytes = self.moved_bytes.saturating_add(count as u64);
        let enough = match self.held {
            Held::NotYet => MANY_BYTES,
            Held::At(step) => STEPS[usize::from(step)].taken_bytes,
            Held::NoMore => return,
        };
        if self.moved_bytes < enough {
            return;
        }
        self.held = match self.held {
            Held::At(step) => {
                // Nobody is slower for what can't be known.
                let waiting = to.with_kernel(|to| to.unacknowledged_bytes().unwrap_or(0)).unwrap_or(0);
                if self.moved_bytes.saturating_sub(waiting + u64::from(self.between_bytes)) < enough {
                    return;
                }
                from.with_kernel(|from| go_on(from, step)).unwrap_or(Held::NoMore)
            }
            _ => begin_between(from, to, self.between_bytes),
        };
    }

    /// It is over, and the source goes on otherwise.
    pub(in super::super) fn end(&mut self, from: &impl End) {
        if let Held::At(_) = std::mem::replace(&mut self.held, Held::NoMore) {
            from.with_kernel(release);
        }
    }
}

/// Where they are of the kernel, and can be held.
fn begin_between(from: &impl End, to: &impl End, between_bytes: u32) -> Held {
    // Where it can't be set, it stays as it is.
    match to.with_kernel(|to| drop(to.set_most_unsent_bytes(UNSENT_BYTES))) {
        Some(()) => from.with_kernel(|from| begin(from, between_bytes)).unwrap_or(Held::NoMore),
        None => Held::NoMore,
    }
}

/// Holds the source, where that can be. One that has more already had much to give at once, and has the last step. What others hold between is to come
/// while what was taken is not known.
fn begin(from: &KernelStream, between_bytes: u32) -> Held {
    let Some(has) = from.growing_receive_buffer_bytes() else { return Held::NoMore };
    let has = has.max(between_bytes as usize);
    let step = STEPS.iter().position(|step| step.buffer_bytes() > has).unwrap_or(STEPS.len() - 1);
    hold(from, step).unwrap_or(Held::NoMore)
}

/// As much was taken as this step is for.
fn go_on(from: &KernelStream, step: u8) -> Held {
    let (has, next) = (STEPS[usize::from(step)].buffer_bytes(), usize::from(step) + 1);
    match STEPS.get(next) {
        Some(step) if step.buffer_bytes() > has => hold(from, next),
        _ => None,
    }
    .unwrap_or_else(|| {
        release(from);
        Held::NoMore
    })
}

fn hold(from: &KernelStream, step: usize) -> Option<Held> {
    from.hold_receive_buffer(STEPS[step].buffer_bytes()).ok().map(|_| Held::At(step as u8))
}

fn release(from: &KernelStream) {
    let _ = from.release_receive_buffer(RELEASED_BYTES.min(KernelStream::most_receive_buffer_bytes()));
}

/// One of the two, by whatever holds it.
pub(in super::super) trait End {
    /// The socket of the kernel, if there is one.
    fn with_kernel<T>(&self, look: impl FnOnce(&KernelStream) -> T) -> Option<T>;
}

impl End for KernelStream {
    fn with_kernel<T>(&self, look: impl FnOnce(&KernelStream) -> T) -> Option<T> {
        Some(look(self))
    }
}

impl End for Stream {
    fn with_kernel<T>(&self, look: impl FnOnce(&KernelStream) -> T) -> Option<T> {
        match self {
            Self::Kernel(stream) => Some(look(stream)),
            _ => None,
        }
    }
}

impl End for Leg {
    fn with_kernel<T>(&self, look: impl FnOnce(&KernelStream) -> T) -> Option<T> {
        self.with(|stream| stream.with_kernel(look))
    }
}

impl End for Secured {
    fn with_kernel<T>(&self, look: impl FnOnce(&KernelStream) -> T) -> Option<T> {
        self.with(|stream| stream.with_kernel(look))
    }
}

impl End for Watched {
    fn with_kernel<T>(&self, look: impl FnOnce(&KernelStream) -> T) -> Option<T> {
        self.lock().as_ref()?.with_kernel(look)
    }
}
