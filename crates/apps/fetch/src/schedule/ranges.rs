//! Sets of bytes of a file, as ranges that don't touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a file. Neighbours are one range, so it is as small as the number of gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// The end of each range, by its start.
    ends: BTreeMap<u64, u64>,
    len_bytes: u64,
}

impl Ranges {
    /// No byte.
    #[must_use]
    pub const fn new() -> Self {
        Self { ends: BTreeMap::new(), len_bytes: 0 }
    }

    /// How many bytes are in it.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The ranges, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ends.iter().map(|(start, end)| *start..*end)
    }

    /// The end of what is there from the first byte on.
    #[must_use]
    pub fn prefix_bytes(&self) -> u64 {
        self.ends.get(&0).copied().unwrap_or(0)
    }

    /// Whether all of a range is there.
    #[must_use]
    pub fn contains(&self, range: &Range<u64>) -> bool {
        range.is_empty()
            || self.ends.range(..=range.start).next_back().is_some_and(|(_, end)| *end >= range.end)
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&low, &high)) = self.ends.range(..=end).next_back()
            && high >= start
        {
            self.ends.remove(&low);
            self.len_bytes -= high - low;
            (start, end) = (start.min(low), end.max(high));
        }
        self.ends.insert(start, end);
        self.len_bytes += end - start;
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&low, &high)) = self.ends.range(..range.end).next_back()
            && high > range.start
        {
            self.ends.remove(&low);
            self.len_bytes -= high - low;
            for rest in [low..range.start.max(low), range.end.min(high)..high] {
                if !rest.is_empty() {
                    self.len_bytes += rest.end - rest.start;
                    self.ends.insert(rest.start, rest.end);
                }
            }
            // What is left on the right is outside, what is left on the left ends where the range starts.
            if low <= range.start {
                break;
            }
        }
    }

    /// The first range at or after `from`, cut there.
    #[must_use]
    pub fn first_from(&self, from: u64) -> Option<Range<u64>> {
        if let Some((_, &end)) = self.ends.range(..=from).next_back()
            && end > from
        {
            return Some(from..end);
        }
        self.ends.range(from..).next().map(|(start, end)| *start..*end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0_u64..40, 0_u64..12), 0..40), from in 0_u64..50) {
            let (mut ranges, mut bytes) = (Ranges::new(), BTreeSet::new());
            for (is_added, start, len) in steps {
                let range = start..start + len;
                if is_added {
                    ranges.insert(range.clone());
                    bytes.extend(range);
                } else {
                    ranges.remove(range.clone());
                    bytes.retain(|byte| !range.contains(byte));
                }
            }
            prop_assert_eq!(ranges.iter().flatten().collect::<BTreeSet<_>>(), bytes.clone());
            prop_assert_eq!(ranges.len_bytes(), bytes.len() as u64);
            let parts: Vec<_> = ranges.iter().collect();
            prop_assert!(parts.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", parts);
            let first = ranges.first_from(from);
            prop_assert_eq!(first.as_ref().map(|range| range.start), bytes.range(from..).next().copied());
            if let Some(first) = first {
                prop_assert!(ranges.contains(&first) && !ranges.contains(&(first.start..first.end + 1)));
            }
            prop_assert_eq!(ranges.prefix_bytes(), (0..).take_while(|byte| bytes.contains(byte)).count() as u64);
        }
    }
}
