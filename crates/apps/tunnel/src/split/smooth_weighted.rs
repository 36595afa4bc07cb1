use crate::split::splitter::{PathView, Splitter};

/// Smooth weighted round robin, as nginx gives requests to servers: paths take packets in proportion to their rates, and in small groups.
///
/// Each path saves up its rate for each packet; the path that has most takes the packet, and pays the rates of all.
#[derive(Clone, Debug, Default)]
pub(super) struct SmoothWeightedRoundRobin {
    saved: Vec<i128>,
    /// The sum of the rates for which was saved.
    total: i128,
}

impl SmoothWeightedRoundRobin {
    /// What was saved at other rates counts as much as before among these.
    fn convert(&mut self, total: i128) {
        if self.total != total && self.total > 0 {
            for saved in &mut self.saved {
                *saved = saved.saturating_mul(total) / self.total;
            }
        }
        self.total = total;
    }
}

impl Splitter for SmoothWeightedRoundRobin {
    fn name(&self) -> &'static str {
        "smooth-weighted-round-robin"
    }

    fn choose(&mut self, paths: &[PathView]) -> Option<usize> {
        let total = paths.iter().map(|path| i128::from(path.rate.as_bps())).sum();
        if total == 0 {
            return None;
        }
        self.convert(total);
        self.saved.resize(paths.len(), 0);
        let mut most = None;
        for (place, (path, saved)) in paths.iter().zip(&mut self.saved).enumerate() {
            if !path.is_usable() {
                *saved = 0;
                continue;
            }
            *saved += i128::from(path.rate.as_bps());
            if most.is_none_or(|(_, best)| *saved > best) {
                most = Some((place, *saved));
            }
        }
        let (chosen, _) = most?;
        self.saved[chosen] -= total;
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use polypath_units::{BitRate, Duration};

    use super::*;

    fn view(bps: u64) -> PathView {
        PathView { rate: BitRate::from_bps(bps), delay: Duration::ZERO }
    }

    /// The example that nginx gives: a a b a c a a.
    #[test]
    fn five_to_one_to_one() {
        let mut splitter = SmoothWeightedRoundRobin::default();
        let paths = [5, 1, 1].map(view);
        let chosen: Vec<_> = (0..14).filter_map(|_| splitter.choose(&paths)).collect();
        assert_eq!(chosen, [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(splitter.saved, [0, 0, 0]);
    }

    #[test]
    fn rates_that_fall_leave_no_debt() {
        let mut splitter = SmoothWeightedRoundRobin::default();
        let fast = [3, 2].map(|rate| view(rate * 1_000_000_000));
        assert_eq!(splitter.choose(&fast), Some(0));
        let slow = [3, 2].map(|rate| view(rate * 1_000));
        let chosen: Vec<_> = (0..5).filter_map(|_| splitter.choose(&slow)).collect();
        assert_eq!(chosen, [1, 0, 1, 0, 0]);
    }

    #[test]
    fn the_largest_rates_do_no_harm() {
        let mut splitter = SmoothWeightedRoundRobin::default();
        for rate in [u64::MAX, 1, u64::MAX - 1, 2, u64::MAX] {
            assert!(splitter.choose(&[view(rate), view(u64::MAX)]).is_some());
        }
    }
}
