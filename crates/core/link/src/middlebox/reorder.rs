use alloc::collections::BTreeMap;

use polypath_units::{Duration, Instant};
use polypath_wire::Packet;

use super::{Direction, Middlebox, Outputs};
use crate::random::Random;

/// Settings of a [`Reorder`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReorderConfig {
    /// Share of packets that are held back. Default 0.05.
    pub probability: f64,
    /// For how long. Default 5 ms.
    pub hold: Duration,
}

impl Default for ReorderConfig {
    fn default() -> Self {
        Self { probability: 0.05, hold: Duration::from_millis(5) }
    }
}

/// Holds some packets back, in both directions, so that those behind overtake them.
#[derive(Debug)]
pub struct Reorder {
    config: ReorderConfig,
    held: BTreeMap<(Instant, u64), (Direction, Packet)>,
    count: u64,
    random: Random,
}

impl Reorder {
    /// The box.
    pub fn new(config: ReorderConfig, seed: u64) -> Self {
        Self { config, held: BTreeMap::new(), count: 0, random: Random::new(seed) }
    }
}

impl Middlebox for Reorder {
    fn name(&self) -> &'static str {
        "reorder"
    }

    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: Packet, out: &mut Outputs) {
        if self.random.chance(self.config.probability) {
            self.count += 1;
            self.held.insert((now + self.config.hold, self.count), (direction, packet));
        } else {
            out.push(direction, packet);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((at, _), _)| *at)
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outputs) {
        while let Some(entry) = self.held.first_entry().filter(|entry| entry.key().0 <= now) {
            let (direction, packet) = entry.remove();
            out.push(direction, packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::testing::*;
    use super::*;
    use crate::testing::segment_of;

    #[test]
    fn held_packets_come_behind_later_ones_and_none_is_lost() {
        let run = |seed| {
            let mut path =
                Path::new(Reorder::new(ReorderConfig { probability: 0.1, ..Default::default() }, seed));
            let mut order = Vec::new();
            for n in 0..1000 {
                order.extend(path.client(seg(n, 1, 10)));
                order.extend(path.wait(Duration::from_millis(1)).into_iter().map(|(_, _, packet)| packet));
            }
            order.extend(path.wait(Duration::from_secs(1)).into_iter().map(|(_, _, packet)| packet));
            order.iter().map(|packet| segment_of(packet).seq.0).collect::<Vec<_>>()
        };
        let order = run(1);
        assert_eq!(order, run(1));
        let early = order.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!((60..140).contains(&early), "{early}");
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    }
}
