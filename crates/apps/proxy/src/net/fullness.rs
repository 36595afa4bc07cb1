//! What was seen of the process's memory last.

use polypath_units::Instant;

#[derive(Debug, Default)]
pub(super) struct Fullness {
    /// Whether there was too much.
    pub(super) is_full: bool,
    /// When what was freed was given back to the system.
    pub(super) given_back_at: Option<Instant>,
}
