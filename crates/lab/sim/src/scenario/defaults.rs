//! What a file gets that does not say otherwise. Connections have the stack's own defaults.

use polypath_units::Duration;

/// Seed of everything random.
pub const SEED: u64 = 1;

/// Time between two points of a time series.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The port of the first connection; the next one has the next.
pub const FIRST_PORT: u16 = 5001;

/// How much later than others a reordered packet arrives: long enough for several of any rate to overtake it.
pub const REORDER_DELAY: Duration = Duration::from_millis(10);

pub(super) const fn seed() -> u64 {
    SEED
}
