use std::collections::BTreeMap;

/// Values that differ by less are put together once there are more different ones.
const MOST_CELLS: usize = 4096;

/// How often which value occurred: the histogram and the cumulative distribution that RFC 4737 §4.2.4, §4.3.4 and §4.4.4 propose.
///
/// It is exact as long as there are no more than 4096 different values. Beyond that, values are rounded up to multiples of a [width](Self::width).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// Cell *k* counts values up to *k* widths, and above those of the cell before.
    cells: BTreeMap<u64, u64>,
    width: u64,
    count: u64,
    sum: u128,
}

impl Distribution {
    /// A value occurred.
    pub fn note(&mut self, value: u64) {
        *self.cells.entry(value.div_ceil(self.width)).or_default() += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.coarsen();
    }

    /// Puts cells together until there are few enough.
    fn coarsen(&mut self) {
        while self.cells.len() > MOST_CELLS {
            self.width *= 2;
            for (cell, count) in std::mem::take(&mut self.cells) {
                *self.cells.entry(cell.div_ceil(2)).or_default() += count;
            }
        }
    }

    /// All that another one has seen. What that one has rounded up stays so; the mean is exact nonetheless.
    pub fn absorb(&mut self, other: &Self) {
        for (value, count) in other.iter() {
            // Of both, the coarser cells are multiples of the finer ones.
            *self.cells.entry(value.div_ceil(self.width)).or_default() += count;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.coarsen();
    }

    /// A value that was noted did not occur after all.
    pub(crate) fn forget(&mut self, value: u64) {
        let cell = value.div_ceil(self.width);
        let Some(count) = self.cells.get_mut(&cell) else { return };
        *count -= 1;
        if *count == 0 {
            self.cells.remove(&cell);
        }
        self.count -= 1;
        self.sum -= u128::from(value);
    }

    /// How many values.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// What values are rounded up to multiples of. One while the distribution is exact.
    #[must_use]
    pub const fn width(&self) -> u64 {
        self.width
    }

    /// The mean, which is exact; none without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Each value that occurred, and how often; from the smallest.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.cells.iter().map(|(cell, count)| (cell.saturating_mul(self.width), *count))
    }

    /// The share of values that are no greater; one without values.
    #[must_use]
    pub fn share_up_to(&self, value: u64) -> f64 {
        if self.count == 0 {
            return 1.0;
        }
        let below: u64 = self.cells.range(..=value / self.width).map(|(_, count)| count).sum();
        below as f64 / self.count as f64
    }

    /// The smallest value that this share of all does not exceed; none without values.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let mut below = 0;
        let wanted = share * self.count as f64;
        let reached = self.iter().find(|(_, count)| {
            below += count;
            below as f64 >= wanted
        });
        reached.or_else(|| self.iter().last()).map(|(value, _)| value)
    }

    /// The greatest value; none without values.
    #[must_use]
    pub fn greatest(&self) -> Option<u64> {
        self.percentile(1.0)
    }
}

impl Default for Distribution {
    fn default() -> Self {
        Self { cells: BTreeMap::new(), width: 1, count: 0, sum: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Distribution {
        let mut distribution = Distribution::default();
        values.into_iter().for_each(|value| distribution.note(value));
        distribution
    }

    #[test]
    fn few_values_are_kept_as_they_are() {
        let distribution = of([3, 0, 7, 3]);
        assert_eq!(distribution.iter().collect::<Vec<_>>(), [(0, 1), (3, 2), (7, 1)]);
        assert_eq!(
            [0.25, 0.5, 0.75, 0.76, 1.0].map(|p| distribution.percentile(p).unwrap()),
            [0, 3, 3, 7, 7]
        );
        assert_eq!((distribution.share_up_to(2), distribution.share_up_to(3)), (0.25, 0.75));
        assert_eq!(distribution.mean(), Some(3.25));
        assert_eq!((of([]).percentile(0.5), of([]).mean(), of([]).share_up_to(0)), (None, None, 1.0));
    }

    #[test]
    fn many_values_are_rounded_up_and_none_is_lost() {
        let distribution = of(0..10_000);
        assert_eq!((distribution.width(), distribution.count()), (4, 10_000));
        assert_eq!(distribution.iter().next(), Some((0, 1)));
        assert_eq!(distribution.iter().nth(1), Some((4, 4)));
        assert_eq!(distribution.iter().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert_eq!((distribution.percentile(0.5), distribution.greatest()), (Some(5000), Some(10_000)));
        // Never more than there are.
        assert_eq!((distribution.share_up_to(4000), distribution.share_up_to(4003)), (0.4001, 0.4001));
    }

    #[test]
    fn the_largest_value_has_a_place() {
        let distribution = of((0..5000).map(|step| u64::MAX - step));
        assert_eq!(distribution.greatest(), Some(u64::MAX));
        assert!(distribution.share_up_to(u64::MAX - 5000) == 0.0);
    }

    #[test]
    fn two_together_have_seen_what_both_have() {
        let mut both = of([3, 0]);
        both.absorb(&of([7, 3]));
        assert_eq!(both, of([3, 0, 7, 3]));
        let mut both = of(0..10_000);
        both.absorb(&of([1, 9_999]));
        assert_eq!((both.count(), both.iter().nth(1)), (10_002, Some((4, 5))));
        let mut both = of([1, 9_999]);
        both.absorb(&of(0..10_000));
        assert_eq!((both.count(), both.mean()), (10_002, Some(50_005_000.0 / 10_002.0)));
        assert_eq!(both.iter().map(|(_, count)| count).sum::<u64>(), 10_002);
    }

    #[test]
    fn what_is_forgotten_leaves_no_trace() {
        let mut distribution = of([1, 2, 2]);
        distribution.forget(1);
        distribution.forget(9);
        assert_eq!(distribution, of([2, 2]));
    }
}
