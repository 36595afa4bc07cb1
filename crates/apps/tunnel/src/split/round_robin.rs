use crate::split::splitter::{PathView, Splitter};

/// Each path in turn takes a packet, whatever its rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundRobin {
    /// The place of the path that is next.
    next: usize,
}

impl Splitter for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn choose(&mut self, paths: &[PathView]) -> Option<usize> {
        let turns = (0..paths.len()).map(|step| (self.next + step) % paths.len());
        let chosen = turns.into_iter().find(|place| paths[*place].is_usable())?;
        self.next = (chosen + 1) % paths.len();
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use polypath_units::{BitRate, Duration};

    use super::*;

    #[test]
    fn rates_do_not_matter_but_for_zero() {
        let paths = |rates: [u64; 3]| {
            rates.map(|rate| PathView { rate: BitRate::from_kbps(rate), delay: Duration::ZERO })
        };
        let mut splitter = RoundRobin::default();
        let mut chosen = |rates| (0..4).filter_map(|_| splitter.choose(&paths(rates))).collect::<Vec<_>>();
        assert_eq!(chosen([1, 1000, 20]), [0, 1, 2, 0]);
        assert_eq!(chosen([1, 0, 20]), [2, 0, 2, 0]);
    }
}
