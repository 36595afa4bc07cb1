//! The connection's send buffer: everything from the first byte that is not data-acknowledged to the last that the
//! application wrote.

use alloc::collections::VecDeque;

use bytes::{Buf, Bytes};
use polypath_wire::{DataSeq, Payload};

/// A rope of the application's slices, addressed by data sequence number.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    slices: VecDeque<Bytes>,
    /// Data sequence number of the first byte of the front slice.
    start: DataSeq,
    /// Data sequence number after the last byte.
    end: DataSeq,
    /// Where the next new byte is: slice index and offset in it. Emission of new data never searches.
    next: DataSeq,
    next_slice: usize,
    next_offset: usize,
}

impl SendBuffer {
    pub(crate) fn new(start: DataSeq) -> Self {
        Self { slices: VecDeque::new(), start, end: start, next: start, next_slice: 0, next_offset: 0 }
    }

    /// Bytes held.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.end.diff(self.start) as u64
    }

    /// First byte held: DATA_ACK so far.
    pub(crate) fn start(&self) -> DataSeq {
        self.start
    }

    /// First byte that was never handed to a subflow.
    pub(crate) fn next(&self) -> DataSeq {
        self.next
    }

    /// After the last byte written.
    pub(crate) fn end(&self) -> DataSeq {
        self.end
    }

    /// Bytes that were never handed to a subflow.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.end.diff(self.next) as u64
    }

    pub(crate) fn push(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.end = self.end.add(slice.len() as u64);
            self.slices.push_back(slice);
        }
    }

    /// Takes up to `count` new bytes.
    pub(crate) fn take_new(&mut self, count: usize) -> Payload {
        let mut out = Payload::EMPTY;
        let mut wanted = count;
        while wanted > 0 {
            let Some(slice) = self.slices.get(self.next_slice) else { break };
            let there = slice.len() - self.next_offset;
            let take = there.min(wanted);
            out.push(slice.slice(self.next_offset..self.next_offset + take));
            wanted -= take;
            self.next_offset += take;
            if take == there {
                self.next_slice += 1;
                self.next_offset = 0;
            }
        }
        self.next = self.next.add((count - wanted) as u64);
        out
    }

    /// Up to `count` bytes from `from`, which lies in what is held; empty otherwise.
    pub(crate) fn slice(&self, from: DataSeq, count: usize) -> Payload {
        let mut out = Payload::EMPTY;
        let skip = from.diff(self.start);
        if skip < 0 {
            return out;
        }
        let (mut skip, mut wanted) = (skip as u64, count);
        for slice in &self.slices {
            if wanted == 0 {
                break;
            }
            if skip >= slice.len() as u64 {
                skip -= slice.len() as u64;
                continue;
            }
            let start = skip as usize;
            let take = wanted.min(slice.len() - start);
            out.push(slice.slice(start..start + take));
            wanted -= take;
            skip = 0;
        }
        out
    }

    /// Drops everything before `until`; numbers outside of what was sent change nothing. Returns the bytes freed.
    pub(crate) fn acknowledge(&mut self, until: DataSeq) -> u64 {
        if !until.after(self.start) || until.after(self.next) {
            return 0;
        }
        let freed = until.diff(self.start) as u64;
        let mut left = freed;
        while left > 0 {
            let Some(front) = self.slices.front_mut() else { break };
            if left < front.len() as u64 {
                front.advance(left as usize);
                if self.next_slice == 0 {
                    self.next_offset -= left as usize;
                }
                break;
            }
            left -= front.len() as u64;
            self.slices.pop_front();
            self.next_slice = self.next_slice.saturating_sub(1);
        }
        self.start = until;
        freed
    }

    /// Steps back: everything from `to` counts as new again (fallback with a fresh infinite mapping).
    pub(crate) fn rewind(&mut self, to: DataSeq) {
        let to = if to.before(self.start) { self.start } else { to };
        if !to.before(self.next) {
            return;
        }
        let mut skip = to.diff(self.start) as u64;
        self.next = to;
        self.next_slice = 0;
        for slice in &self.slices {
            if skip < slice.len() as u64 {
                break;
            }
            skip -= slice.len() as u64;
            self.next_slice += 1;
        }
        self.next_offset = skip as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> SendBuffer {
        let mut buffer = SendBuffer::new(DataSeq(u64::MAX - 2));
        buffer.push(Bytes::from_static(b"abc"));
        buffer.push(Bytes::from_static(b"defgh"));
        buffer
    }

    #[test]
    fn new_data_comes_once_and_in_order_across_slices_and_the_wrap() {
        let mut buffer = filled();
        assert_eq!(buffer.take_new(2).to_vec(), b"ab");
        assert_eq!(buffer.take_new(4).to_vec(), b"cdef");
        assert_eq!(buffer.next(), DataSeq(3));
        assert_eq!(buffer.unsent_bytes(), 2);
        assert_eq!(buffer.take_new(9).to_vec(), b"gh");
        assert!(buffer.take_new(1).is_empty());
    }

    #[test]
    fn acknowledged_data_goes_and_the_cursor_stays() {
        let mut buffer = filled();
        buffer.take_new(5);
        assert_eq!(buffer.acknowledge(DataSeq(1)), 4);
        assert_eq!(buffer.slice(DataSeq(1), 2).to_vec(), b"ef");
        assert_eq!(buffer.take_new(3).to_vec(), b"fgh");
        assert_eq!(buffer.acknowledge(DataSeq(0)), 0, "an old acknowledgment changes nothing");
        assert_eq!(
            buffer.acknowledge(DataSeq(99)),
            0,
            "an acknowledgment of what was never sent changes nothing"
        );
        assert_eq!(buffer.len_bytes(), 4);
    }

    #[test]
    fn rewinding_sends_again() {
        let mut buffer = filled();
        buffer.take_new(7);
        buffer.acknowledge(DataSeq(u64::MAX));
        buffer.rewind(DataSeq(0));
        assert_eq!(buffer.take_new(9).to_vec(), b"defgh");
        buffer.rewind(DataSeq(5));
        assert!(buffer.take_new(9).is_empty());
    }
}
