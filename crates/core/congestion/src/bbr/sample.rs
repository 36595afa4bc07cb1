//! What an acknowledgment says, in the draft's terms.

use polypath_units::{Duration, Instant};

use crate::window::MAX_WINDOW_BYTES;

/// An acknowledgment with its rate sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Instant,
    /// `RS.newly_acked`.
    pub(super) acked_bytes: u64,
    /// `RS.delivery_rate` in bytes per second; zero if the sample is not reliable.
    pub(super) rate: f64,
    pub(super) rtt: Option<Duration>,
    /// `RS.delivered`.
    pub(super) interval_bytes: u64,
    /// `RS.prior_delivered` and `C.delivered`.
    pub(super) prior_delivered_bytes: u64,
    pub(super) delivered_bytes: u64,
    /// `RS.lost`, and what this acknowledgment revealed.
    pub(super) lost_bytes: u64,
    pub(super) newly_lost_bytes: u64,
    pub(super) tx_in_flight_bytes: u64,
    pub(super) in_flight_bytes: u64,
    pub(super) app_limited: bool,
    pub(super) window_limited: bool,
}

/// A non-negative number of bytes, within the bounds of a window.
pub(super) fn to_bytes(bytes: f64) -> u64 {
    bytes.max(0.0).min(MAX_WINDOW_BYTES as f64) as u64
}
