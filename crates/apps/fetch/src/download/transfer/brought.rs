//! Which place brought which bytes of a file.

use std::ops::Range;

use crate::schedule::Ranges;

/// Which place brought which bytes, by its number.
#[derive(Debug, Default)]
pub(super) struct Brought {
    of: Vec<Ranges>,
}

impl Brought {
    pub(super) fn note(&mut self, source: usize, range: &Range<u64>) {
        if self.of.len() <= source {
            self.of.resize_with(source + 1, Ranges::new);
        }
        for (number, ranges) in self.of.iter_mut().enumerate() {
            // The last one counts: its bytes are there.
            if number == source {
                ranges.insert(range.clone());
            } else {
                ranges.remove(range.clone());
            }
        }
    }

    /// All that came.
    pub(super) fn all(&self) -> Ranges {
        let mut all = Ranges::new();
        self.of.iter().flat_map(Ranges::iter).for_each(|range| all.insert(range));
        all
    }

    /// How many bytes of a range each place brought, those that brought some: most first.
    pub(super) fn of_range(&self, range: &Range<u64>) -> Vec<(usize, u64)> {
        let count = |ranges: &Ranges| {
            let (mut at, mut bytes) = (range.start, 0);
            while let Some(part) = ranges.first_from(at).filter(|part| part.start < range.end) {
                bytes += part.end.min(range.end) - part.start;
                at = part.end;
            }
            bytes
        };
        let mut counts: Vec<_> =
            self.of.iter().map(count).enumerate().filter(|(_, bytes)| *bytes > 0).collect();
        counts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_brought_bytes_last_brought_them() {
        let mut brought = Brought::default();
        brought.note(1, &(0..100));
        brought.note(0, &(40..60));
        assert_eq!(brought.of_range(&(0..100)), [(1, 80), (0, 20)]);
        assert_eq!(brought.of_range(&(40..60)), [(0, 20)]);
        assert_eq!(brought.of_range(&(200..300)), []);
    }
}
