//! Frames of paths that fell silent, for others.

use std::collections::VecDeque;

/// A queue that knows how many bytes it has.
#[derive(Debug, Default)]
pub(super) struct Again {
    frames: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl Again {
    pub(super) fn extend(&mut self, frames: Vec<Box<[u8]>>) {
        self.bytes += frames.iter().map(|frame| frame.len()).sum::<usize>();
        self.frames.extend(frames);
    }

    pub(super) fn pop_front(&mut self) -> Option<Box<[u8]>> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len();
        Some(frame)
    }

    pub(super) fn front(&self) -> Option<&[u8]> {
        self.frames.front().map(|frame| &**frame)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
