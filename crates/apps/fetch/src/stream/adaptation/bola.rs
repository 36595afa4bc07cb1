//! By what is buffered (Spiteri, Urgaonkar and Sitaraman: BOLA, near-optimal bitrate adaptation for online videos, 2016).

use super::view::{Adaptation, View};

/// What an uninterrupted second is worth beside quality: γp of the paper.
const WEIGHT_OF_SMOOTHNESS: f64 = 5.0;

/// The quality that gains most for each of its bytes, the more careful the less is buffered. It does not rise above what the paths
/// can bring (BOLA-U of the paper).
#[derive(Clone, Copy, Debug)]
pub(super) struct Bola;

impl Adaptation for Bola {
    fn choose(&mut self, view: &View<'_>) -> usize {
        let highest = view.rates.len() - 1;
        // By average rates: what a single segment has of its own is no quality.
        let utility = |quality: usize| {
            (view.rates[quality].as_bps() as f64 / view.rates[0].as_bps().max(1) as f64).ln()
        };
        // In segments.
        let segment = view.segment.as_secs_f64().max(1e-3);
        let (most, buffered) = (view.capacity.as_secs_f64() / segment, view.buffered.as_secs_f64() / segment);
        let weight = (most - 1.0).max(0.1) / (utility(highest) + WEIGHT_OF_SMOOTHNESS);
        let score = |quality: usize| {
            (weight * (utility(quality) + WEIGHT_OF_SMOOTHNESS) - buffered) / view.bytes(quality).max(1.0)
        };
        // More than it ever needs: all scores are below zero.
        let best = if score(highest) <= 0.0 {
            highest
        } else {
            (0..=highest).max_by(|one, other| score(*one).total_cmp(&score(*other))).unwrap_or(0)
        };
        let Some(throughput) = view.throughput else { return 0 };
        let last = view.last.unwrap_or(0);
        if best <= last {
            return best;
        }
        best.min(view.highest_within(throughput.as_bps() as f64).max(last))
    }
}
