//! What a path is asked for, and what both are known by.

/// A path over which the file can be asked for: an interface, and a server that has the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u32);

impl PathId {
    pub(super) const fn new(index: usize) -> Self {
        Self(index as u32)
    }

    /// The paths are numbered in the order in which they were added.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A request of one schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

impl RequestId {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// What a path is to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// By which the answer is told.
    pub id: RequestId,
    /// The first byte.
    pub start: u64,
    /// The byte after the last; `None` is the end of the file, which is not known yet or not worth a limit.
    pub end: Option<u64>,
}
