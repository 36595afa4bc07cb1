//! The pending events of a simulation: one deadline for each source, and the earliest of them.
//!
//! A source is a node, one direction of a link, or a service of the simulator. Each has at most one pending
//! event, so that the calendar is a table of deadlines under a tournament tree: the root is the next event,
//! and a change of one deadline replays that source's matches, which is log₂ of the number of sources and
//! stops where the winner stays.

use polypath_units::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Instant,
    source: u32,
}

/// Deadlines keyed by source, with the earliest at hand. Equal deadlines come in the order of their sources.
#[derive(Debug)]
pub(crate) struct Calendar {
    // A complete binary tree in an array: the root is 1, the children of n are 2n and 2n + 1, the leaves come
    // last.
    tree: Vec<Entry>,
    leaves: usize,
}

impl Calendar {
    /// A calendar for `sources` sources, none of which has an event.
    pub(crate) fn new(sources: usize) -> Self {
        let leaves = sources.max(2).next_power_of_two();
        let mut tree = vec![Entry { at: Instant::FAR_FUTURE, source: 0 }; 2 * leaves];
        for (index, leaf) in tree[leaves..].iter_mut().enumerate() {
            leaf.source = index as u32;
        }
        for node in (1..leaves).rev() {
            tree[node] = tree[2 * node];
        }
        Self { tree, leaves }
    }

    /// The earliest deadline and whose it is; [`Instant::FAR_FUTURE`] if nothing is pending.
    #[inline]
    pub(crate) fn next(&self) -> (Instant, usize) {
        let root = self.tree[1];
        (root.at, root.source as usize)
    }

    /// Sets or clears the deadline of `source`.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, at: Option<Instant>) {
        let at = at.unwrap_or(Instant::FAR_FUTURE);
        let mut node = self.leaves + source;
        if self.tree[node].at == at {
            return;
        }
        self.tree[node].at = at;
        while node > 1 {
            let left = self.tree[node & !1];
            let right = self.tree[node | 1];
            // The left subtree holds the lower source numbers.
            let winner = if left.at <= right.at { left } else { right };
            node /= 2;
            if self.tree[node] == winner {
                return;
            }
            self.tree[node] = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn next_is_the_least_deadline_and_ties_go_to_the_lower_source() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        for sources in [1usize, 2, 3, 7, 8, 42] {
            let mut calendar = Calendar::new(sources);
            let mut model = vec![Instant::FAR_FUTURE; sources];
            for _ in 0..2_000 {
                let source = rng.next_u32() as usize % sources;
                let at = match rng.next_u32() % 9 {
                    8 => Instant::FAR_FUTURE,
                    at => Instant::from_nanos(u64::from(at)),
                };
                model[source] = at;
                calendar.set(source, Some(at));
                let least = model.iter().min().copied().unwrap();
                let first = model.iter().position(|at| *at == least).unwrap();
                assert_eq!(calendar.next().0, least);
                if least != Instant::FAR_FUTURE {
                    assert_eq!(calendar.next().1, first);
                }
            }
        }
    }
}
