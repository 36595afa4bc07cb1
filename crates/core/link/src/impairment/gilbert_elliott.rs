use super::{Fate, Impairment, Passing, Random};

/// The Gilbert-Elliott model: two states, with a loss probability each. A packet is lost or not by the present state, then the state
/// may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    p: f64,
    r: f64,
    bad_loss: f64,
    good_loss: f64,
    is_bad: bool,
}

impl GilbertElliott {
    /// Starts in the good state. `p` is the probability of going from good to bad at each packet, `r` that of going back; then the
    /// losses in the bad state (the model's 1-h) and in the good one (1-k).
    #[must_use]
    pub const fn new(p: f64, r: f64, bad_loss: f64, good_loss: f64) -> Self {
        Self { p, r, bad_loss, good_loss, is_bad: false }
    }
}

impl Impairment for GilbertElliott {
    fn handle_packet(&mut self, _: Passing, fate: &mut Fate, random: &mut Random) {
        if random.chance(if self.is_bad { self.bad_loss } else { self.good_loss }) {
            fate.lose();
        }
        if random.chance(if self.is_bad { self.r } else { self.p }) {
            self.is_bad = !self.is_bad;
        }
    }

    fn restart(&mut self) {
        self.is_bad = false;
    }
}
