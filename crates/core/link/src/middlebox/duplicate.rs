use polypath_units::Instant;
use polypath_wire::Packet;

use super::{Direction, Middlebox, Outputs};
use crate::random::Random;

/// Settings of a [`Duplicate`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DuplicateConfig {
    /// Share of packets that leave twice. Default 0.05.
    pub probability: f64,
}

impl Default for DuplicateConfig {
    fn default() -> Self {
        Self { probability: 0.05 }
    }
}

/// Sends some packets twice, in both directions.
#[derive(Debug)]
pub struct Duplicate {
    config: DuplicateConfig,
    random: Random,
}

impl Duplicate {
    /// The box.
    pub fn new(config: DuplicateConfig, seed: u64) -> Self {
        Self { config, random: Random::new(seed) }
    }
}

impl Middlebox for Duplicate {
    fn name(&self) -> &'static str {
        "duplicate"
    }

    fn handle_packet(&mut self, _now: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
        if self.random.chance(self.config.probability) {
            out.push(direction, packet.clone());
        }
        out.push(direction, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn some_packets_leave_twice_and_the_seed_says_which() {
        let run = |seed| -> alloc::vec::Vec<usize> {
            let mut path = Path::new(Duplicate::new(DuplicateConfig { probability: 0.2 }, seed));
            (0..1000).map(|n| path.client(seg(n, 1, 10)).len()).collect()
        };
        let first = run(1);
        assert_eq!(first, run(1));
        assert_ne!(first, run(2));
        let twice = first.iter().filter(|count| **count == 2).count();
        assert!((150..250).contains(&twice), "{twice}");
        assert!(first.iter().all(|count| (1..=2).contains(count)));
    }
}
