//! Data that the application queued and the peer has not acknowledged.

use alloc::collections::VecDeque;

use polypath_wire::Payload;

/// A rope of chunks, each with its mapping, addressed by stream offset.
#[derive(Debug)]
pub(crate) struct SendQueue<M> {
    chunks: VecDeque<Chunk<M>>,
    end: u64,
    /// Index of the chunk that new data was last taken from: emission in order never searches.
    cursor: usize,
}

/// A queue that ran empty keeps room for so many chunks; an idle connection holds little memory.
const KEPT_CHUNKS: usize = 16;

#[derive(Debug)]
pub(crate) struct Chunk<M> {
    pub(crate) start: u64,
    pub(crate) data: Payload,
    len: u32,
    pub(crate) mapping: M,
}

impl<M> Chunk<M> {
    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

impl<M: Copy> SendQueue<M> {
    /// Chunks of plain TCP have no mapping that could differ: a segment may span them.
    const MERGES: bool = size_of::<M>() == 0;

    pub(crate) const fn new() -> Self {
        Self { chunks: VecDeque::new(), end: 0, cursor: 0 }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn push(&mut self, data: Payload, mapping: M) {
        if Self::MERGES && data.slices().len() > 1 {
            // Slicing a chunk then never walks a rope.
            for slice in data {
                self.push_chunk(slice.into(), mapping);
            }
        } else {
            self.push_chunk(data, mapping);
        }
    }

    fn push_chunk(&mut self, data: Payload, mapping: M) {
        let len = data.len() as u32;
        if len > 0 {
            self.chunks.push_back(Chunk { start: self.end, data, len, mapping });
            self.end += u64::from(len);
        }
    }

    fn index_of(&self, offset: u64) -> usize {
        let here =
            |index: usize| self.chunks.get(index).is_some_and(|c| c.start <= offset && offset < c.end());
        if here(self.cursor) {
            self.cursor
        } else if here(self.cursor + 1) {
            self.cursor + 1
        } else {
            self.chunks.partition_point(|chunk| chunk.end() <= offset)
        }
    }

    /// How many bytes one segment may take from `offset` on: to the end of the mapping.
    pub(crate) fn contiguous_bytes(&mut self, offset: u64) -> u64 {
        if Self::MERGES {
            return self.end.saturating_sub(offset);
        }
        let index = self.index_of(offset);
        self.cursor = index;
        self.chunks.get(index).map_or(0, |chunk| chunk.end().saturating_sub(offset))
    }

    /// The mapping of the byte at `offset`, and whether it is its first.
    pub(crate) fn mapping_at(&mut self, offset: u64) -> Option<(M, bool)> {
        let index = self.index_of(offset);
        self.cursor = index;
        self.chunks.get(index).map(|chunk| (chunk.mapping, chunk.start == offset))
    }

    /// Up to `count` bytes from `offset`, the mapping of the first, and whether the mapping begins with it.
    pub(crate) fn slice(&mut self, offset: u64, count: usize) -> Option<(Payload, M, bool)> {
        let index = self.index_of(offset);
        self.cursor = index;
        let chunk = self.chunks.get(index)?;
        let skip = offset.checked_sub(chunk.start)? as usize;
        let mut out = if skip == 0 && count >= chunk.len as usize {
            chunk.data.clone()
        } else {
            chunk.data.slice(skip, count)
        };
        let mapping = chunk.mapping;
        if Self::MERGES {
            let (mut taken, mut next) = (out.len(), index + 1);
            while taken < count
                && let Some(chunk) = self.chunks.get(next)
            {
                let more = chunk.data.slice(0, count - taken);
                taken += more.len();
                out.append(more);
                self.cursor = next;
                next += 1;
            }
        }
        Some((out, mapping, skip == 0))
    }

    /// Drops what lies before `offset`.
    pub(crate) fn acknowledge(&mut self, offset: u64) {
        while self.chunks.front().is_some_and(|chunk| chunk.end() <= offset) {
            self.chunks.pop_front();
            self.cursor = self.cursor.saturating_sub(1);
        }
        if self.chunks.is_empty() && self.chunks.capacity() > KEPT_CHUNKS {
            self.chunks = VecDeque::new();
        }
    }

    /// The chunks that are not acknowledged as a whole, in order.
    #[cfg(test)]
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Chunk<M>> {
        self.chunks.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_plain_tcp_span_chunks_and_mapped_ones_do_not() {
        let mut plain = SendQueue::<()>::new();
        let mut mapped = SendQueue::<u8>::new();
        for (index, text) in [&b"abc"[..], b"defg", b"hi"].into_iter().enumerate() {
            plain.push(Payload::from(text.to_vec()), ());
            mapped.push(Payload::from(text.to_vec()), index as u8);
        }
        assert_eq!(plain.contiguous_bytes(1), 8);
        assert_eq!(plain.slice(1, 7).map(|(data, (), _)| data.to_vec()), Some(b"bcdefgh".to_vec()));
        assert_eq!(mapped.contiguous_bytes(4), 3);
        assert_eq!(
            mapped.slice(4, 3).map(|(data, id, start)| (data.to_vec(), id, start)),
            Some((b"efg".to_vec(), 1, false))
        );
        mapped.acknowledge(7);
        assert_eq!(
            mapped.slice(7, 9).map(|(data, id, start)| (data.to_vec(), id, start)),
            Some((b"hi".to_vec(), 2, true))
        );
        assert!(mapped.slice(3, 1).is_none());
    }
}
