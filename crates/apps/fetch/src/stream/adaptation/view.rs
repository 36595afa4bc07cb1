//! What a choice of quality is made from.

use std::fmt;

use polypath_units::{BitRate, Duration};

/// Chooses the quality of one segment after the other.
pub trait Adaptation: fmt::Debug + Send {
    /// The quality of the next segment: its place in [`View::rates`]. What is beyond them counts as the last.
    fn choose(&mut self, view: &View<'_>) -> usize;
}

/// What is known when a quality is chosen.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What the qualities need on average, lowest first. There is at least one.
    pub rates: &'a [BitRate],
    /// Bytes of the segment in each quality, and of those that follow, as far as they are known.
    pub sizes: &'a [&'a [u64]],
    /// How long the segment plays.
    pub segment: Duration,
    /// What all paths bring together, once it was measured.
    pub throughput: Option<BitRate>,
    /// How long the player has something to play, when the segment begins to come.
    pub buffered: Duration,
    /// How much is fetched in advance at most.
    pub capacity: Duration,
    /// The quality of the segment before.
    pub last: Option<usize>,
}

impl View<'_> {
    /// Bytes of the segment in a quality, known or by its rate.
    #[must_use]
    pub fn bytes(&self, quality: usize) -> f64 {
        self.bytes_ahead(0, quality)
    }

    /// The same of one that follows, so many segments later.
    #[must_use]
    pub fn bytes_ahead(&self, ahead: usize, quality: usize) -> f64 {
        let by_rate = || self.rates[quality].as_bps() as f64 / 8.0 * self.segment.as_secs_f64();
        let known = self.sizes.get(ahead).and_then(|sizes| sizes.get(quality));
        known.map_or_else(by_rate, |bytes| *bytes as f64)
    }

    /// The highest quality that comes, at so many bits per second, in no more time than it plays; or the lowest.
    #[must_use]
    pub fn highest_within(&self, bits_per_second: f64) -> usize {
        let bits = bits_per_second * self.segment.as_secs_f64();
        (0..self.rates.len()).rev().find(|quality| self.bytes(*quality) * 8.0 <= bits).unwrap_or(0)
    }
}
