use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A seeded generator with the few shapes that links and middleboxes need.
#[derive(Clone, Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// What it gives follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Uniform in 0 ≤ x < 1.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// True with this probability. Draws nothing for 0 and below.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Standard normal (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(2.0 * core::f64::consts::PI * self.unit())
    }

    /// Uniform over all values.
    pub fn u32(&mut self) -> u32 {
        self.0.next_u32()
    }
}
