//! What a server may send at most.

/// Most bytes of a head.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Most fields of a head.
pub const MAX_FIELDS: usize = 200;
