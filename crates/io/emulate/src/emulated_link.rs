//! A link, as it is asked for, and what it has done.

use polypath_link::middlebox;
use polypath_link::{LinkConfig, LinkStats};
use polypath_units::Duration;

use super::port::PortStatistics;

/// A link to be emulated.
#[derive(Clone, Debug)]
pub struct EmulatedLink {
    /// The interface at one end. Nothing else should use it: an address on it would make the kernel answer, too.
    pub a: String,
    /// The interface at the other end.
    pub b: String,
    /// From `a` to `b`. Times of the schedule count from the start of the emulation.
    pub forward: LinkConfig,
    /// From `b` to `a`.
    pub backward: LinkConfig,
    /// From `a` to `b`; packets meet them before the link itself.
    pub middleboxes: Vec<middlebox::Policy>,
    /// Source of everything random.
    pub seed: u64,
}

/// What a direction of a link has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStatistics {
    /// The link itself.
    pub link: LinkStats,
    /// How late a frame left at most: how far the emulation was from what was asked.
    pub max_lateness: Duration,
    /// How often frames left more than 0.2 ms late.
    pub late_batches: u64,
}

/// What an emulated link has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// From `a` to `b`.
    pub forward: DirectionStatistics,
    /// From `b` to `a`.
    pub backward: DirectionStatistics,
    /// The interface `a`.
    pub a: PortStatistics,
    /// The interface `b`.
    pub b: PortStatistics,
}
