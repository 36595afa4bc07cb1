use std::cmp::Reverse;

use polypath_units::BitRate;

use crate::split::splitter::{PathView, Splitter};

const MOST_SLOTS: usize = 65_536;

/// Whether a vector may have so many slots.
pub(super) const fn is_sensible(slots: usize) -> bool {
    slots >= 1 && slots <= MOST_SLOTS
}

/// Which path takes which packet of a round, so that each has its share of them (Kaspar 2011, 3.5).
///
/// Of *n* slots a path with the share *w* has *w*·*n*, rounded. With two paths that is wrong by no more than 1/(2*n*) of the packets, as there. More paths
/// cannot all be rounded to the nearest number, as the sum has to be *n*: what is left after rounding down goes to those that lost most, and *k* paths are wrong by
/// no more than (1 − 1/*k*)/*n*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendVector {
    slots: Vec<usize>,
}

impl SendVector {
    /// A vector of so many slots for paths with these weights. None without slots, or if all weights are zero.
    ///
    /// For two paths it is Algorithm 1 of Kaspar 2011. With more, each path from the last one on has its slots by the algorithm, among those that are left.
    #[must_use]
    pub fn new(slots: usize, weights: &[u64]) -> Option<Self> {
        let counts = counts(slots, weights)?;
        let mut vector = vec![0; slots];
        let mut free: Vec<usize> = (0..slots).collect();
        for (path, count) in counts.iter().enumerate().skip(1).rev() {
            // V(⌈i/r⌉) for i from 1 on, where r is the share of free slots.
            let mut places = (1..=*count).map(|i| (i * free.len()).div_ceil(*count) - 1).peekable();
            let mut left = Vec::with_capacity(free.len() - count);
            for (place, slot) in free.iter().enumerate() {
                if places.next_if_eq(&place).is_some() {
                    vector[*slot] = path;
                } else {
                    left.push(*slot);
                }
            }
            free = left;
        }
        Some(Self { slots: vector })
    }

    /// The path of each slot.
    #[must_use]
    pub fn slots(&self) -> &[usize] {
        &self.slots
    }

    /// How many slots a path has.
    #[must_use]
    pub fn count(&self, path: usize) -> usize {
        self.slots.iter().filter(|slot| **slot == path).count()
    }
}

/// How many slots each path has.
fn counts(slots: usize, weights: &[u64]) -> Option<Vec<usize>> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if slots == 0 || total == 0 {
        return None;
    }
    let wanted: Vec<u128> = weights.iter().map(|weight| u128::from(*weight) * slots as u128).collect();
    // No more than there are slots.
    let mut counts: Vec<usize> = wanted.iter().map(|wanted| (wanted / total) as usize).collect();
    let left = slots - counts.iter().sum::<usize>();
    let mut by_loss: Vec<usize> = (0..weights.len()).collect();
    // Of two that lost as much the later one gets the slot, as where one half is rounded up for the second path.
    by_loss.sort_by_key(|path| Reverse((wanted[*path] % total, *path)));
    for path in &by_loss[..left] {
        counts[*path] += 1;
    }
    Some(counts)
}

/// Packets take the paths of a [`SendVector`] in turn, which is made anew when a rate changes.
#[derive(Clone, Debug)]
pub(super) struct SendVectorSplitter {
    slots: usize,
    rates: Vec<BitRate>,
    vector: Option<SendVector>,
    next: usize,
}

impl SendVectorSplitter {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots, rates: Vec::new(), vector: None, next: 0 }
    }
}

impl Splitter for SendVectorSplitter {
    fn name(&self) -> &'static str {
        "send-vector"
    }

    fn choose(&mut self, paths: &[PathView]) -> Option<usize> {
        if !paths.iter().map(|path| path.rate).eq(self.rates.iter().copied()) {
            self.rates = paths.iter().map(|path| path.rate).collect();
            let weights: Vec<u64> = self.rates.iter().map(|rate| rate.as_bps()).collect();
            // It goes on in the same place, or the first slots would have more than their share where rates change often.
            self.vector = SendVector::new(self.slots, &weights);
        }
        let chosen = *self.vector.as_ref()?.slots.get(self.next)?;
        self.next = (self.next + 1) % self.slots;
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use polypath_units::Duration;
    use proptest::prelude::*;

    use super::*;

    fn vector(slots: usize, weights: &[u64]) -> Vec<usize> {
        SendVector::new(slots, weights).unwrap().slots
    }

    /// Kaspar 2011, 3.5: 300 and 500 KB/s, and round robin.
    #[test]
    fn the_vectors_of_the_document() {
        assert_eq!(vector(8, &[300, 500]), [0, 1, 0, 1, 1, 0, 1, 1]);
        assert_eq!(vector(2, &[1, 1]), [0, 1]);
    }

    /// Kaspar 2011, table 4.1: the ratios of the experiments, in 64 slots.
    #[test]
    fn ratios_of_the_experiments() {
        let second = |first, second| SendVector::new(64, &[first, second]).unwrap().count(1);
        assert_eq!(
            [(11, 1), (10, 2), (9, 3), (8, 4), (7, 5), (6, 6)].map(|(a, b)| second(a, b)),
            [5, 11, 16, 21, 27, 32]
        );
        // A path that is too slow for one slot has none.
        assert_eq!(second(200, 1), 0);
    }

    #[test]
    fn more_paths_share_what_is_left() {
        assert_eq!(vector(4, &[1, 1, 2]), [0, 2, 1, 2]);
        assert_eq!(vector(6, &[1, 2, 3]), [0, 2, 1, 2, 1, 2]);
        assert_eq!(vector(3, &[0, 7, 0]), [1, 1, 1]);
        assert_eq!(
            (SendVector::new(0, &[1]), SendVector::new(4, &[0, 0]), SendVector::new(4, &[])),
            (None, None, None)
        );
        assert_eq!(vector(1, &[u64::MAX, u64::MAX]), [1]);
    }

    #[test]
    fn a_new_vector_goes_on_where_the_old_one_was() {
        let mut splitter = SendVectorSplitter::new(8);
        let paths = |second| {
            [300, second].map(|rate| PathView { rate: BitRate::from_kbps(rate), delay: Duration::ZERO })
        };
        let chosen: Vec<_> = (0..8).filter_map(|step| splitter.choose(&paths(500 + step % 2))).collect();
        assert_eq!(chosen, [0, 1, 0, 1, 1, 0, 1, 1]);
    }

    fn weights(paths: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u64>> {
        let all = prop::collection::vec(prop_oneof![0_u64..20, any::<u64>()], paths);
        all.prop_filter("a weight", |weights| weights.iter().any(|weight| *weight > 0))
    }

    proptest! {
        #[test]
        fn two_paths_have_their_share_to_half_a_slot(slots in 1_usize..200, weights in weights(2)) {
            let vector = SendVector::new(slots, &weights).unwrap();
            let total: i128 = weights.iter().map(|weight| i128::from(*weight)).sum();
            for (path, weight) in weights.iter().enumerate() {
                // |w/W − m/n| ≤ 1/(2n)
                let error = i128::from(*weight) * slots as i128 - vector.count(path) as i128 * total;
                prop_assert!(2 * error.abs() <= total);
            }
            // And at any time: that of the second path is always rounded down.
            let count = vector.count(1);
            for end in 0..=slots {
                let so_far = vector.slots()[..end].iter().filter(|slot| **slot == 1).count();
                prop_assert_eq!(so_far, end * count / slots);
            }
        }

        #[test]
        fn more_paths_have_their_share_to_less_than_a_slot(slots in 1_usize..200, weights in weights(2..9)) {
            let vector = SendVector::new(slots, &weights).unwrap();
            prop_assert_eq!(vector.slots().len(), slots);
            let total: i128 = weights.iter().map(|weight| i128::from(*weight)).sum();
            let used = weights.iter().filter(|weight| **weight > 0).count() as i128;
            for (path, weight) in weights.iter().enumerate() {
                // |w/W − m/n| ≤ (1 − 1/k)/n
                let error = i128::from(*weight) * slots as i128 - vector.count(path) as i128 * total;
                prop_assert!(used * error.abs() <= (used - 1) * total);
                prop_assert!(*weight > 0 || vector.count(path) == 0);
            }
        }
    }
}
