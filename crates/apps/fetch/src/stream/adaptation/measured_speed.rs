//! As fast as it comes (K §6.3, algorithm 5).

use super::view::{Adaptation, View};

/// The highest quality that comes no slower than it plays, at the speed measured last; the lowest at first.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredSpeed;

impl Adaptation for MeasuredSpeed {
    fn choose(&mut self, view: &View<'_>) -> usize {
        view.throughput.map_or(0, |throughput| view.highest_within(throughput.as_bps() as f64))
    }
}
