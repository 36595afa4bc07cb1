//! The connection's send buffer: everything from the first byte that is not data-acknowledged to the last that the
//! application wrote.

use alloc::collections::VecDeque;

use bytes::{Buf, Bytes};
use polypath_wire::{DataSeq, Payload};

/// A rope of the application's slices, addressed by data sequence number.
///
/// # Cost
/// New data is taken from where it ended last. To find other data costs log *n*; how many slices it spans, and how many are
/// dropped by an acknowledgment, is for the application, as each was a write.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    slices: VecDeque<Slice>,
    /// Data sequence number of the first byte of the front slice.
    start: DataSeq,
    /// Data sequence number after the last byte.
    end: DataSeq,
    /// Where the next new byte is: slice index and offset in it. Emission of new data never searches.
    next: DataSeq,
    next_slice: usize,
    next_offset: usize,
}

#[derive(Debug)]
struct Slice {
    /// Data sequence number of the first byte.
    seq: DataSeq,
    data: Bytes,
}

impl Slice {
    fn end(&self) -> DataSeq {
        self.seq.add(self.data.len() as u64)
    }
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
            let seq = self.end;
            self.end = seq.add(slice.len() as u64);
            self.slices.push_back(Slice { seq, data: slice });
        }
    }

    /// Takes up to `count` new bytes.
    pub(crate) fn take_new(&mut self, count: usize) -> Payload {
        let mut out = Payload::EMPTY;
        let mut wanted = count;
        while wanted > 0 {
            let Some(slice) = self.slices.get(self.next_slice) else { break };
            let there = slice.data.len() - self.next_offset;
            let take = there.min(wanted);
            out.push(slice.data.slice(self.next_offset..self.next_offset + take));
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

    /// Index of the slice that holds `seq`, or of the first behind it.
    fn index_of(&self, seq: DataSeq) -> usize {
        self.slices.partition_point(|slice| !slice.end().after(seq))
    }

    /// Up to `count` bytes from `from`, which lies in what is held; empty otherwise.
    pub(crate) fn slice(&self, from: DataSeq, count: usize) -> Payload {
        let mut out = Payload::EMPTY;
        if from.before(self.start) {
            return out;
        }
        let (first, mut wanted) = (self.index_of(from), count);
        let mut skip = self.slices.get(first).map_or(0, |slice| from.diff(slice.seq).max(0) as usize);
        for slice in self.slices.range(first..) {
            if wanted == 0 {
                break;
            }
            let take = wanted.min(slice.data.len() - skip);
            out.push(slice.data.slice(skip..skip + take));
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
        while let Some(front) = self.slices.front_mut().filter(|front| front.seq.before(until)) {
            if front.end().after(until) {
                let count = until.diff(front.seq) as usize;
                front.data.advance(count);
                front.seq = until;
                if self.next_slice == 0 {
                    self.next_offset -= count;
                }
                break;
            }
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
        self.next = to;
        self.next_slice = self.index_of(to);
        self.next_offset =
            self.slices.get(self.next_slice).map_or(0, |slice| to.diff(slice.seq).max(0) as usize);
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
