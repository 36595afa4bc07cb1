//! Stretches of a sequence, kept in order.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use polypath_wire::DataSeq;

/// What takes up the positions from `start` to before `end`.
pub(crate) trait Stretch {
    fn start(&self) -> u64;
    fn end(&self) -> u64;
}

/// Stretches that don't overlap, sorted. Nearly all of them come behind those that are there.
///
/// # Cost
/// What comes behind the others, or leaves at the front, costs what it does in a queue. What comes before others costs log *n*,
/// and so does a look-up: nothing that is there moves.
#[derive(Debug)]
pub(crate) struct OrderedQueue<T> {
    /// Never empty while `late` is not: its last is the last of all.
    in_order: VecDeque<T>,
    /// What came before the end of `in_order`, by start; none while nothing has, as nearly always.
    // Boxed: there are three queues in a connection of two subflows, and an empty map is no pointer.
    #[allow(clippy::box_collection)]
    late: Option<Box<BTreeMap<u64, T>>>,
    /// Look-ups and changes so far.
    steps: core::cell::Cell<u64>,
}

impl<T> Default for OrderedQueue<T> {
    fn default() -> Self {
        Self { in_order: VecDeque::new(), late: None, steps: core::cell::Cell::new(0) }
    }
}

impl<T: Stretch> OrderedQueue<T> {
    /// Counts a look-up or a change: what a peer can make us do has bounds, which are measured.
    #[inline]
    fn step(&self) {
        self.steps.set(self.steps.get() + 1);
    }

    #[cfg(any(test, feature = "attacks"))]
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.late.as_ref().map_or(0, |late| late.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.in_order.clear();
        self.late = None;
    }

    pub(crate) fn back(&self) -> Option<&T> {
        self.in_order.back()
    }

    /// Adds what overlaps nothing that is there.
    #[inline]
    pub(crate) fn push(&mut self, stretch: T) {
        self.step();
        match self.in_order.back() {
            Some(last) if stretch.start() < last.end() => {
                self.late.get_or_insert_default().insert(stretch.start(), stretch);
            }
            _ => self.in_order.push_back(stretch),
        }
    }

    /// The first late one, if it goes before all others.
    #[inline]
    fn first_late(&self) -> Option<&T> {
        let (_, late) = self.late.as_ref()?.first_key_value()?;
        let is_first = self.in_order.front().is_some_and(|front| late.start() < front.start());
        is_first.then_some(late)
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.first_late().or_else(|| self.in_order.front())
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        self.step();
        if self.first_late().is_none() {
            return self.in_order.pop_front();
        }
        let late = self.late.as_mut()?;
        let first = late.pop_first().map(|(_, stretch)| stretch);
        if late.is_empty() {
            self.late = None;
        }
        first
    }

    /// What holds `position`, or the first behind it.
    pub(crate) fn first_ending_after(&self, position: u64) -> Option<&T> {
        self.step();
        let at = self.in_order.partition_point(|stretch| stretch.end() <= position);
        let in_order = self.in_order.get(at);
        let late = self.late.as_ref().and_then(|late| {
            let around = late.range(..=position).next_back().filter(|(_, stretch)| stretch.end() > position);
            around.or_else(|| late.range(position..).next()).map(|(_, stretch)| stretch)
        });
        match (in_order, late) {
            (Some(one), Some(other)) => Some(if one.start() < other.start() { one } else { other }),
            (one, other) => one.or(other),
        }
    }

    #[cfg(test)]
    pub(crate) fn starts(&self) -> alloc::vec::Vec<u64> {
        let mut starts: alloc::vec::Vec<u64> = self
            .in_order
            .iter()
            .chain(self.late.iter().flat_map(|late| late.values()))
            .map(Stretch::start)
            .collect();
        starts.sort_unstable();
        starts
    }
}

/// Where data sequence numbers count from, so that they don't wrap as far as half their space around.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(DataSeq);

impl Default for Origin {
    fn default() -> Self {
        Self::near(DataSeq(0))
    }
}

impl Origin {
    /// For numbers around this one.
    pub(crate) const fn near(seq: DataSeq) -> Self {
        Self(seq.add(1 << 63))
    }

    pub(crate) const fn position(self, seq: DataSeq) -> u64 {
        seq.0.wrapping_sub(self.0.0)
    }

    pub(crate) const fn seq(self, position: u64) -> DataSeq {
        self.0.add(position)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    impl Stretch for (u64, u64) {
        fn start(&self) -> u64 {
            self.0
        }

        fn end(&self) -> u64 {
            self.1
        }
    }

    proptest! {
        /// Tens in any order, each once, with some taken from the front meanwhile.
        #[test]
        fn it_is_sorted(order in Just((0..60_u64).collect::<Vec<_>>()).prop_shuffle(), pops in 0..60_usize) {
            let mut queue = OrderedQueue::default();
            let mut expected = Vec::new();
            for (index, start) in order.into_iter().enumerate() {
                queue.push((start * 10, start * 10 + 5));
                expected.push(start * 10);
                expected.sort_unstable();
                if index % 3 == 2 && index < pops {
                    prop_assert_eq!(queue.front().map(|first| first.0), expected.first().copied());
                    prop_assert_eq!(queue.pop_front().map(|first| first.0), Some(expected.remove(0)));
                }
                prop_assert_eq!(&queue.starts(), &expected);
                prop_assert_eq!(queue.back().map(|last| last.0), expected.last().copied());
                for position in 0..600 {
                    let first = expected.iter().copied().find(|start| start + 5 > position);
                    prop_assert_eq!(queue.first_ending_after(position).map(|found| found.0), first);
                }
            }
        }
    }

    #[test]
    fn positions_hold_across_the_wrap() {
        for near in [0, 5, u64::MAX, 1 << 63] {
            let origin = Origin::near(DataSeq(near));
            let (before, after) = (DataSeq(near).add(u64::MAX - 9), DataSeq(near).add(10));
            assert_eq!(origin.position(after) - origin.position(before), 20);
            assert_eq!(origin.seq(origin.position(after)), after);
        }
    }
}
