use core::fmt;

use crate::slab::Key;

/// Names a connection of a host; never used again for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(super) Key);

impl ConnectionId {
    /// A small number that no other present connection of the host has: an index for the caller's own tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0.index as usize
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {:?}", self.0)
    }
}
