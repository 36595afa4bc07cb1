//! The document's sample movie (K Table 6.1): two seconds each segment, in four qualities of variable rate.

use polypath_units::{BitRate, Duration};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// How many segments a scene has, at most: they are about equally hard to encode.
const MOST_OF_A_SCENE: u64 = 8;

/// One quality: the rates of its segments in kbit/s.
#[derive(Clone, Copy, Debug)]
struct Quality {
    least: f64,
    mean: f64,
    most: f64,
}

const QUALITIES: [Quality; 4] = [
    Quality { least: 524.0, mean: 746.0, most: 1057.0 },
    Quality { least: 866.0, mean: 1300.0, most: 1923.0 },
    Quality { least: 1491.0, mean: 2142.0, most: 3293.0 },
    Quality { least: 2212.0, mean: 3010.0, most: 4884.0 },
];

/// A movie: the bytes of each segment in each quality.
#[derive(Clone, Debug)]
pub struct Movie {
    sizes: Vec<[u64; QUALITIES.len()]>,
}

impl Movie {
    /// How long a segment plays.
    pub const SEGMENT: Duration = Duration::from_secs(2);

    /// A movie of this length. How hard its scenes are follows from the seed; rates have the document's least, mean and most.
    #[must_use]
    pub fn new(duration: Duration, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let count = (duration.as_secs_f64() / Self::SEGMENT.as_secs_f64()).ceil() as usize;
        let mut sizes = Vec::with_capacity(count);
        while sizes.len() < count {
            let hardness = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            for _ in 0..=random.next_u64() % MOST_OF_A_SCENE {
                sizes.push(QUALITIES.map(|quality| quality.bytes(hardness)));
            }
        }
        sizes.truncate(count);
        Self { sizes }
    }

    /// The bytes of each segment, in each quality.
    #[must_use]
    pub fn segments(&self) -> &[[u64; QUALITIES.len()]] {
        &self.sizes
    }

    /// What the qualities need on average.
    #[must_use]
    pub fn rates() -> Box<[BitRate]> {
        QUALITIES.iter().map(|quality| BitRate::from_kbps(quality.mean as u64)).collect()
    }

    /// Where a segment is.
    pub(super) fn target(segment: u64, quality: usize) -> String {
        format!("/{}/{segment}.m4s", quality + 1)
    }

    /// The length of a segment by its target, and its place in the bytes of all.
    pub(super) fn find(&self, target: &str) -> Option<(u64, u64)> {
        let (quality, segment) = target.strip_prefix('/')?.strip_suffix(".m4s")?.split_once('/')?;
        let (quality, segment) =
            (quality.parse::<usize>().ok()?.checked_sub(1)?, segment.parse::<usize>().ok()?);
        let length = *self.sizes.get(segment)?.get(quality)?;
        Some((length, Self::offset(segment as u64, quality)))
    }

    /// The place of a segment in the bytes of all: no two have the same.
    pub(super) const fn offset(segment: u64, quality: usize) -> u64 {
        (segment * QUALITIES.len() as u64 + quality as u64) << 24
    }
}

impl Quality {
    /// Of a segment as hard as that, from 0 to 1. If all are equally likely, the mean is the quality's.
    fn bytes(self, hardness: f64) -> u64 {
        // The mean of u^p is 1 / (1 + p).
        let power = (self.most - self.least) / (self.mean - self.least) - 1.0;
        let kilobits = self.least + (self.most - self.least) * hardness.powf(power);
        (kilobits * 1e3 / 8.0 * Movie::SEGMENT.as_secs_f64()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_document() {
        let movie = Movie::new(Duration::from_secs(400_000), 1);
        for (quality, known) in QUALITIES.iter().enumerate() {
            let rates: Vec<f64> =
                movie.segments().iter().map(|sizes| sizes[quality] as f64 * 8.0 / 2e3).collect();
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            assert!((mean / known.mean - 1.0).abs() < 0.02, "{mean} {known:?}");
            assert!(rates.iter().all(|rate| (known.least - 1.0..=known.most).contains(rate)), "{known:?}");
        }
    }

    #[test]
    fn segments_are_found_by_their_targets() {
        let movie = Movie::new(Duration::from_secs(5), 1);
        assert_eq!(movie.segments().len(), 3);
        assert_eq!(movie.find(&Movie::target(2, 3)), Some((movie.segments()[2][3], Movie::offset(2, 3))));
        for target in ["/5/0.m4s", "/1/3.m4s", "/0/0.m4s", "/1/x.m4s", "/video.mp4"] {
            assert_eq!(movie.find(target), None, "{target}");
        }
    }
}
