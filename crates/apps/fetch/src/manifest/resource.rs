use std::fmt;

use url::Url;

use crate::shown::without_user;

/// Bytes of a file: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    first: u64,
    last: u64,
}

impl ByteRange {
    /// `len` bytes from `first` on. None if that is nothing, or reaches beyond 64 bits.
    #[must_use]
    pub fn new(first: u64, len: u64) -> Option<Self> {
        Some(Self { first, last: first.checked_add(len.checked_sub(1)?)? })
    }

    /// As DASH writes it: `first-last` (ISO/IEC 23009-1, section 5.3.9.2.2), which is RFC 9110's byte-range-spec.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.trim().split_once('-')?;
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Self::new(first, last.checked_sub(first)?.checked_add(1)?)
    }

    /// The first byte, counted from 0.
    #[must_use]
    pub const fn first(self) -> u64 {
        self.first
    }

    /// The last byte.
    #[must_use]
    pub const fn last(self) -> u64 {
        self.last
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn len_bytes(self) -> u64 {
        // Constructed from a length, so there is no overflow.
        self.last - self.first + 1
    }

    /// The first byte behind it. None if there can't be one.
    pub(super) fn end(self) -> Option<u64> {
        self.last.checked_add(1)
    }
}

/// A file, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    url: Url,
    range: Option<ByteRange>,
}

impl Resource {
    pub(crate) const fn new(url: Url, range: Option<ByteRange>) -> Self {
        Self { url, range }
    }

    /// Where it is.
    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// Which bytes of it; none for all.
    #[must_use]
    pub const fn range(&self) -> Option<ByteRange> {
        self.range
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", without_user(&self.url))?;
        self.range.map_or(Ok(()), |range| write!(f, " (bytes {}-{})", range.first, range.last))
    }
}
