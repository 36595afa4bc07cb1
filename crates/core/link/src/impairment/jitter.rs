use polypath_units::Duration;

use super::{Fate, Impairment, Passing, Random};

/// Random variation of the propagation delay, drawn for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// Shape of the distribution.
    pub kind: JitterKind,
    /// Uniform: at most so much more or less. Normal: the standard deviation. A delay is never below zero.
    pub amount: Duration,
    /// A packet never overtakes another: it arrives with the one ahead of it at the earliest.
    pub keep_order: bool,
}

impl Jitter {
    /// A constant delay.
    pub const NONE: Self = Self { kind: JitterKind::Uniform, amount: Duration::ZERO, keep_order: true };

    /// Uniform in delay ± `amount`, in order.
    pub const fn uniform(amount: Duration) -> Self {
        Self { kind: JitterKind::Uniform, amount, keep_order: true }
    }

    /// Normal with this standard deviation, in order.
    pub const fn normal(standard_deviation: Duration) -> Self {
        Self { kind: JitterKind::Normal, amount: standard_deviation, keep_order: true }
    }

    /// The same, but packets may overtake each other.
    #[must_use]
    pub const fn any_order(self) -> Self {
        Self { keep_order: false, ..self }
    }
}

/// Shape of the jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JitterKind {
    /// Every value in the range is as likely.
    Uniform,
    /// Normal distribution, cut off where the delay would be negative.
    Normal,
}

impl Impairment for Jitter {
    fn handle_packet(&mut self, _: Passing, fate: &mut Fate, random: &mut Random) {
        let deviation = match self.kind {
            JitterKind::Uniform => 2.0 * random.unit() - 1.0,
            JitterKind::Normal => random.normal(),
        };
        let (mean, amount) = (fate.delay(), self.amount.mul_f64(deviation.abs()));
        fate.set_delay(if deviation < 0.0 { mean - amount } else { mean + amount });
        if !self.keep_order {
            fate.let_overtake();
        }
    }
}
