use polypath_units::Duration;

use super::{Fate, Impairment, Passing, Random};

/// Packets that arrive late, so that others overtake them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reordering {
    /// Which share of packets.
    pub probability: f64,
    /// How much later they arrive.
    pub extra_delay: Duration,
}

impl Reordering {
    /// Packets arrive in order.
    pub const NONE: Self = Self { probability: 0.0, extra_delay: Duration::ZERO };

    /// How much later they arrive if nobody says: long enough for several of any rate to overtake them.
    pub const EXTRA_DELAY: Duration = Duration::from_millis(10);
}

impl Impairment for Reordering {
    fn handle_packet(&mut self, _: Passing, fate: &mut Fate, random: &mut Random) {
        if random.chance(self.probability) {
            fate.hold_back(self.extra_delay);
        }
    }
}
