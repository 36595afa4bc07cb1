//! What a server may send at most.

/// Most bytes of a head.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Most answers with a status of 1xx before an answer.
pub(crate) const MAX_INTERIM_ANSWERS: usize = 16;
/// Most fields of a head.
pub const MAX_FIELDS: usize = 200;
