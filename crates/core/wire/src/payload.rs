use alloc::vec::Vec;
use core::fmt;

use bytes::{Buf, Bytes};

/// A segment's data: a rope of reference-counted slices. Cloning and slicing never copy bytes.
///
/// Nearly every segment is one slice, so one slice needs no allocation.
#[derive(Clone, Default)]
pub struct Payload {
    rope: Rope,
}

#[derive(Clone, Default)]
enum Rope {
    #[default]
    Empty,
    One(Bytes),
    // Never fewer than two slices, none of them empty.
    Many(Vec<Bytes>),
}

impl Payload {
    /// No data.
    pub const EMPTY: Self = Self { rope: Rope::Empty };

    /// Length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.rope {
            Rope::Empty => 0,
            Rope::One(slice) => slice.len(),
            Rope::Many(slices) => slices.iter().map(Bytes::len).sum(),
        }
    }

    /// True if there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.rope, Rope::Empty)
    }

    /// The slices, in order; none is empty.
    #[must_use]
    pub fn slices(&self) -> &[Bytes] {
        match &self.rope {
            Rope::Empty => &[],
            Rope::One(slice) => core::slice::from_ref(slice),
            Rope::Many(slices) => slices,
        }
    }

    /// Appends a slice; an empty one changes nothing.
    pub fn push(&mut self, slice: Bytes) {
        if slice.is_empty() {
            return;
        }
        self.rope = match core::mem::take(&mut self.rope) {
            Rope::Empty => Rope::One(slice),
            Rope::One(first) => Rope::Many(alloc::vec![first, slice]),
            Rope::Many(mut slices) => {
                slices.push(slice);
                Rope::Many(slices)
            }
        };
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: Payload) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for slice in other {
            self.push(slice);
        }
    }

    /// Drops the first `count` bytes (all of them if there are fewer).
    pub fn advance(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        match &mut self.rope {
            Rope::One(slice) if count < slice.len() => slice.advance(count),
            Rope::Many(_) => *self = self.slice(count, usize::MAX),
            _ => self.rope = Rope::Empty,
        }
    }

    /// Takes the first `count` bytes out (all of them if there are fewer), sharing the storage.
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> Self {
        match &mut self.rope {
            Rope::One(slice) if count > 0 && count < slice.len() => slice.split_to(count).into(),
            Rope::Many(slices) if count > 0 => {
                let (mut whole, mut part) = (0, count);
                while let Some(slice) = slices.get(whole).filter(|slice| slice.len() <= part) {
                    part -= slice.len();
                    whole += 1;
                }
                let mut head = Self::EMPTY;
                let split = slices.get_mut(whole).filter(|_| part > 0).map(|slice| slice.split_to(part));
                for slice in slices.drain(..whole).chain(split) {
                    head.push(slice);
                }
                if slices.len() < 2 {
                    let last = slices.pop();
                    self.rope = last.map_or(Rope::Empty, Rope::One);
                }
                head
            }
            _ if count == 0 => Self::EMPTY,
            _ => core::mem::take(self),
        }
    }

    /// Keeps the first `count` bytes.
    pub fn truncate(&mut self, count: usize) {
        match &mut self.rope {
            Rope::One(slice) if count > 0 => slice.truncate(count),
            Rope::Many(_) => *self = self.slice(0, count),
            _ if count == 0 => self.rope = Rope::Empty,
            _ => {}
        }
    }

    /// At most `count` bytes from `offset`, sharing the storage; shorter or empty where there are fewer.
    #[must_use]
    pub fn slice(&self, offset: usize, count: usize) -> Self {
        let mut out = Self::EMPTY;
        let (mut skip, mut wanted) = (offset, count);
        for slice in self.slices() {
            if skip >= slice.len() {
                skip -= slice.len();
                continue;
            }
            let take = wanted.min(slice.len() - skip);
            if take == 0 {
                break;
            }
            out.push(slice.slice(skip..skip + take));
            wanted -= take;
            skip = 0;
        }
        out
    }

    /// All bytes in one new vector. For tests and for edges; the core never copies.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        for slice in self.slices() {
            out.extend_from_slice(slice);
        }
        out
    }
}

impl From<Bytes> for Payload {
    fn from(slice: Bytes) -> Self {
        let mut payload = Self::EMPTY;
        payload.push(slice);
        payload
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<&'static [u8]> for Payload {
    fn from(bytes: &'static [u8]) -> Self {
        Bytes::from_static(bytes).into()
    }
}

impl IntoIterator for Payload {
    type Item = Bytes;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        match self.rope {
            Rope::Empty => IntoIter(IntoIterInner::One(None)),
            Rope::One(slice) => IntoIter(IntoIterInner::One(Some(slice))),
            Rope::Many(slices) => IntoIter(IntoIterInner::Many(slices.into_iter())),
        }
    }
}

/// The slices of a [`Payload`], in order.
pub struct IntoIter(IntoIterInner);

enum IntoIterInner {
    One(Option<Bytes>),
    Many(alloc::vec::IntoIter<Bytes>),
}

impl Iterator for IntoIter {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            IntoIterInner::One(slice) => slice.take(),
            IntoIterInner::Many(slices) => slices.next(),
        }
    }
}

impl PartialEq for Payload {
    /// Equal bytes, however they are cut into slices.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.slices().iter().flat_map(|s| s.iter()).eq(other.slices().iter().flat_map(|s| s.iter()))
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope() -> Payload {
        let mut payload = Payload::from(&b"abc"[..]);
        payload.push(Bytes::from_static(b"defg"));
        payload.push(Bytes::new());
        payload.push(Bytes::from_static(b"h"));
        payload
    }

    #[test]
    fn slicing_agrees_with_slicing_the_bytes() {
        let all = rope().to_vec();
        for offset in 0..=all.len() + 1 {
            for count in 0..=all.len() + 1 {
                let start = offset.min(all.len());
                let end = (offset + count).min(all.len()).max(start);
                assert_eq!(rope().slice(offset, count).to_vec(), all[start..end]);
            }
            let mut tail = rope();
            tail.advance(offset);
            assert_eq!(tail.to_vec(), all[offset.min(all.len())..]);
            let mut head = rope();
            head.truncate(offset);
            assert_eq!(head.to_vec(), all[..offset.min(all.len())]);
            let mut tail = rope();
            let head = tail.split_to(offset);
            assert_eq!(head.to_vec(), all[..offset.min(all.len())]);
            assert_eq!(tail.to_vec(), all[offset.min(all.len())..]);
            assert_eq!((head.is_empty(), tail.is_empty()), (offset == 0, offset >= all.len()));
        }
    }

    #[test]
    fn equality_ignores_where_the_cuts_are() {
        assert_eq!(rope(), Payload::from(&b"abcdefgh"[..]));
        assert_ne!(rope(), Payload::from(&b"abcdefgx"[..]));
        assert_eq!(rope().into_iter().count(), 3);
    }
}
