//! The streams that are looked at: so many at once.

use std::collections::HashMap;
use std::hash::Hash;

/// So many streams are remembered. One more ends the one that has been silent for the longest.
pub(super) const MOST_STREAMS: usize = 512;

/// Streams by what names them.
#[derive(Debug)]
pub(super) struct Flows<K, S> {
    streams: HashMap<K, (u64, S)>,
    packets: u64,
}

impl<K: Copy + Eq + Hash + Ord, S> Flows<K, S> {
    pub(super) fn new() -> Self {
        Self { streams: HashMap::new(), packets: 0 }
    }

    /// The stream of a packet, and the one that ends for it, if there was no room.
    pub(super) fn of(&mut self, key: K, begin: impl FnOnce() -> S) -> (&mut S, Option<(K, S)>) {
        self.packets += 1;
        let mut ended = None;
        if self.streams.len() >= MOST_STREAMS && !self.streams.contains_key(&key) {
            let silent = self.streams.iter().min_by_key(|(key, (last, _))| (*last, **key));
            if let Some(silent) = silent.map(|(key, _)| *key) {
                ended = self.streams.remove(&silent).map(|(_, stream)| (silent, stream));
            }
        }
        let (last, stream) = self.streams.entry(key).or_insert_with(|| (0, begin()));
        *last = self.packets;
        (stream, ended)
    }

    /// All that are left.
    pub(super) fn into_iter(self) -> impl Iterator<Item = (K, S)> {
        self.streams.into_iter().map(|(key, (_, stream))| (key, stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_is_silent_for_the_longest_makes_room() {
        let mut flows = Flows::new();
        for key in 0..MOST_STREAMS {
            assert!(flows.of(key, || key).1.is_none());
        }
        flows.of(0, || unreachable!());
        let (stream, ended) = flows.of(5000, || 7);
        assert_eq!((*stream, ended), (7, Some((1, 1))));
        assert_eq!(flows.into_iter().count(), MOST_STREAMS);
    }
}
