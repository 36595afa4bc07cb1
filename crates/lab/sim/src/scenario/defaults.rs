//! What a file gets that does not say otherwise. Connections have the stack's own defaults.

use polypath_link::impairment::Reordering;
use polypath_link::{LinkConfig, QueueLimit};
use polypath_units::Duration;

/// Seed of everything random.
pub const SEED: u64 = 1;

/// Time between two points of a time series.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The port of the first connection; the next one has the next.
pub const FIRST_PORT: u16 = 5001;

/// How much may wait for the line of a link.
pub const LIMIT: QueueLimit = LinkConfig::QUEUE;

/// How much later than others a packet arrives that `reorder` holds back, the key of a link or the impairment.
pub const REORDER_DELAY: Duration = Reordering::EXTRA_DELAY;

pub(super) const fn seed() -> u64 {
    SEED
}
