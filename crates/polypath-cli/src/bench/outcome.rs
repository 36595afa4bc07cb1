//! What a process of a comparison did, and the clock by which it says when.

use serde::{Deserialize, Serialize};

/// What a process did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) bytes: u64,
    pub(super) requests: u64,
    pub(super) failures: u64,
    pub(super) last_failure: Option<String>,
    /// From the first byte to the end.
    pub(super) seconds: f64,
    pub(super) user_s: f64,
    pub(super) system_s: f64,
    /// When the connection began to be opened, in seconds of the system's monotonic clock.
    pub(super) started_s: f64,
    /// Moments of that clock, and how many bytes had arrived by then.
    pub(super) arrivals: Vec<(f64, u64)>,
    /// When the other end reset the connection, by that clock.
    pub(super) reset_s: Option<f64>,
    /// When a gap in delivery began, in seconds of the system's monotonic clock, and how long it was.
    pub(super) gaps: Vec<(f64, f64)>,
}

/// The system's monotonic clock, which all processes share, in seconds.
pub(super) fn monotonic_s() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
