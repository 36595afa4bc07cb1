//! What nobody uses now, by what it leads to: a bounded number, for a bounded time. No clock, socket or task.

use std::collections::VecDeque;

use polypath_units::{Duration, Instant};

/// Kept values. The youngest are taken first, as the oldest ones' ends are the likeliest.
#[derive(Debug)]
pub(super) struct Idle<K, C> {
    most: usize,
    most_time: Duration,
    /// The oldest first.
    kept: VecDeque<(Instant, K, C)>,
}

impl<K: PartialEq, C> Idle<K, C> {
    pub(super) fn new(most: usize, most_time: Duration) -> Self {
        Self { most, most_time, kept: VecDeque::new() }
    }

    /// Keeps one. What is too old, or too much, is dropped.
    pub(super) fn put(&mut self, now: Instant, key: K, value: C) {
        self.expire(now);
        if self.kept.len() >= self.most {
            self.kept.pop_front();
        }
        self.kept.push_back((now, key, value));
    }

    /// The youngest with this key.
    pub(super) fn take(&mut self, now: Instant, key: &K) -> Option<C> {
        self.expire(now);
        let at = self.kept.iter().rposition(|(_, known, _)| known == key)?;
        self.kept.remove(at).map(|(_, _, value)| value)
    }

    fn expire(&mut self, now: Instant) {
        while self.kept.front().is_some_and(|(since, ..)| now.since(*since) > self.most_time) {
            self.kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_of_the_same_place_is_taken_and_the_oldest_is_left_out() {
        let at = Instant::from_secs;
        let mut idle = Idle::new(3, Duration::from_secs(10));
        for (second, key, value) in [(0, 'a', 1), (1, 'a', 2), (2, 'b', 3), (3, 'b', 4)] {
            idle.put(at(second), key, value);
        }
        // There is room for three.
        assert_eq!([idle.take(at(4), &'a'), idle.take(at(4), &'a')], [Some(2), None]);
        assert_eq!([idle.take(at(4), &'b'), idle.take(at(4), &'c')], [Some(4), None]);
        // The other one has been there for more than ten seconds.
        assert_eq!(idle.take(at(13), &'b'), None);
    }
}
