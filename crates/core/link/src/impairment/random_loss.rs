use super::{Fate, Impairment, Passing, Random};

/// Loses each packet on its own, with one probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomLoss {
    /// Of 0 to 1.
    pub probability: f64,
}

impl Impairment for RandomLoss {
    fn handle_packet(&mut self, _: Passing, fate: &mut Fate, random: &mut Random) {
        if random.chance(self.probability) {
            fate.lose();
        }
    }
}
