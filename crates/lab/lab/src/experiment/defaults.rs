//! What an experiment file gets that does not say otherwise. Variants have the stack's own defaults.

use polypath_units::Duration;

/// How many paths a set has.
pub const PATHS: usize = 2;

/// Runs of each set.
pub const REPEATS: usize = 1;

/// Seed of a design.
pub const SEED: u64 = 1;

/// Designs with consecutive seeds.
pub const DESIGNS: usize = 1;

/// When a transfer or an exchange is given up.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// Shape of the Pareto distribution of times that datagrams are sent, or not.
pub const SHAPE: f64 = 1.5;

/// Length of a datagram's packet in bytes, headers included.
pub const PACKET_BYTES: u64 = 1000;

pub(super) const fn seed() -> u64 {
    SEED
}
