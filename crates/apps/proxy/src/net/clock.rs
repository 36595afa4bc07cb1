//! The time, as what has no clock of its own is told it.

use std::sync::LazyLock;

use polypath_units::Instant;

/// Since some moment.
pub(super) fn now() -> Instant {
    static BEGUN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    Instant::from_nanos(u64::try_from(BEGUN.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
