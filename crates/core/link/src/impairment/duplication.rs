use super::{Fate, Impairment, Passing, Random};

/// Some packets arrive twice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Duplication {
    /// Which share of packets.
    pub probability: f64,
}

impl Impairment for Duplication {
    fn handle_packet(&mut self, _: Passing, fate: &mut Fate, random: &mut Random) {
        if random.chance(self.probability) {
            fate.duplicate();
        }
    }
}
