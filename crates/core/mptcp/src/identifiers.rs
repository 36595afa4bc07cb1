//! What subflows and addresses are called within a connection.

use core::fmt;

/// A subflow of a connection. Stable while the subflow lives, and then free for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SubflowId(pub u8);

/// An address of one end: the address identifier of RFC 8684 §3.2 and §3.4.1. Zero is the address of the initial subflow; each end
/// numbers its own, from 1 to 255.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AddressId(pub u8);

impl SubflowId {
    /// The subflow that a connection is opened with.
    pub const INITIAL: Self = Self(0);

    /// The identifier after this one; after the last comes the first.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl AddressId {
    /// The address of the initial subflow (RFC 8684 §3.2).
    pub const INITIAL: Self = Self(0);
}

impl From<u8> for SubflowId {
    fn from(id: u8) -> Self {
        Self(id)
    }
}

impl From<SubflowId> for u8 {
    fn from(id: SubflowId) -> Self {
        id.0
    }
}

impl fmt::Display for SubflowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u8> for AddressId {
    fn from(id: u8) -> Self {
        Self(id)
    }
}

impl From<AddressId> for u8 {
    fn from(id: AddressId) -> Self {
        id.0
    }
}

impl fmt::Display for AddressId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
