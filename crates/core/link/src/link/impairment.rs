use polypath_units::Duration;

use crate::random::Random;
use crate::{Jitter, JitterKind, Loss, Reordering};

/// Everything random about a link.
#[derive(Debug)]
pub(super) struct Impairments {
    pub(super) jitter: Jitter,
    loss: Loss,
    /// State of the Gilbert-Elliott model.
    bad: bool,
    pub(super) duplicate: f64,
    pub(super) reorder: Reordering,
    random: Random,
    seed: u64,
}

impl Impairments {
    pub(super) fn new(jitter: Jitter, loss: Loss, duplicate: f64, reorder: Reordering, seed: u64) -> Self {
        Self { jitter, loss, bad: false, duplicate, reorder, random: Random::new(seed), seed }
    }

    pub(super) fn begin_anew(&mut self) {
        self.random = Random::new(self.seed);
        self.bad = false;
    }

    pub(super) fn set_loss(&mut self, loss: Loss) {
        self.loss = loss;
        self.bad = false;
    }

    /// Nothing is random: no packet needs the generator.
    pub(super) fn none(&self) -> bool {
        let lossy = match self.loss {
            Loss::None => false,
            Loss::Random(probability) => probability > 0.0,
            Loss::GilbertElliott { .. } => true,
        };
        let disorderly = self.duplicate > 0.0 || self.reorder.probability > 0.0;
        !lossy && !disorderly && self.jitter.amount.is_zero()
    }

    /// The next packet is lost.
    pub(super) fn lose(&mut self) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::Random(probability) => self.random.chance(probability),
            Loss::GilbertElliott { p, r, bad_loss, good_loss } => {
                let lost = self.random.chance(if self.bad { bad_loss } else { good_loss });
                if self.random.chance(if self.bad { r } else { p }) {
                    self.bad = !self.bad;
                }
                lost
            }
        }
    }

    /// The next packet arrives twice.
    pub(super) fn duplicates(&mut self) -> bool {
        self.random.chance(self.duplicate)
    }

    /// The next packet arrives late.
    pub(super) fn reorders(&mut self) -> bool {
        self.random.chance(self.reorder.probability)
    }

    /// A delay around `mean`.
    pub(super) fn delay(&mut self, mean: Duration) -> Duration {
        if self.jitter.amount.is_zero() {
            return mean;
        }
        let deviation = match self.jitter.kind {
            JitterKind::Uniform => 2.0 * self.random.unit() - 1.0,
            JitterKind::Normal => self.random.normal(),
        };
        let amount = self.jitter.amount.mul_f64(deviation.abs());
        if deviation < 0.0 { mean - amount } else { mean + amount }
    }
}
