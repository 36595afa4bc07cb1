//! Experimental designs: sets of points in the unit cube, one dimension for each factor.
//!
//! All of them are seeded: the same arguments give the same points. [`wsp`] fills space, [`latin_hypercube`] fills each
//! factor's range, [`full_factorial`] and [`orthogonal_array`] combine a few levels of each factor.

mod full_factorial;
mod latin_hypercube;
mod orthogonal_array;
mod wsp;

use rand_core::{Rng, SeedableRng};

pub use full_factorial::full_factorial;
pub use latin_hypercube::latin_hypercube;
pub use orthogonal_array::{OrthogonalArrayError, orthogonal_array};
pub use wsp::wsp;

/// A value for each factor, 0 to 1.
pub type Point = Vec<f64>;

/// The random numbers of a design.
struct Random(rand_chacha::ChaCha8Rng);

impl Random {
    fn new(seed: u64) -> Self {
        Self(rand_chacha::ChaCha8Rng::seed_from_u64(seed))
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn point(&mut self, factors: usize) -> Point {
        (0..factors).map(|_| self.unit()).collect()
    }

    /// The numbers below `count` in random order.
    fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        // Fisher and Yates.
        for last in (1..count).rev() {
            let other = (self.unit() * (last + 1) as f64) as usize;
            order.swap(last, other);
        }
        order
    }
}

/// The place of level number `level` of `levels`: they span the whole range.
fn place(level: usize, levels: usize) -> f64 {
    if levels < 2 { 0.5 } else { level as f64 / (levels - 1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_has_every_number_once_and_depends_on_the_seed() {
        let order = Random::new(1).permutation(100);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..100));
        assert_ne!(order, Random::new(2).permutation(100));
        assert_eq!(order, Random::new(1).permutation(100));
    }
}
