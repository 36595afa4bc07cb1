use alloc::vec::Vec;
use core::fmt;

/// Names a value in a [`Slab`]. A key is never valid again after its value was removed, even when the place
/// is reused (until 2³² values have lived in that place).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Place in the slab.
    pub(crate) index: u32,
    /// How many values the place has held before.
    pub(crate) generation: u32,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// Values at stable places, named by generational keys. All operations are O(1); places are reused last-in
/// first-out, so that the same operations give the same keys.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    /// First vacant place, or `u32::MAX`.
    vacant: u32,
    len: usize,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    /// The next vacant place, if this one is vacant.
    next: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// An empty slab, which allocates nothing.
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), vacant: u32::MAX, len: 0 }
    }

    /// Values present.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// True if there is no value.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a value.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// Adds the value that `make` returns; it is told the key beforehand.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        self.len += 1;
        let index = self.vacant;
        if let Some(place) = self.places.get_mut(index as usize) {
            let key = Key { index, generation: place.generation };
            self.vacant = place.next;
            place.value = Some(make(key));
            return key;
        }
        let key = Key { index: self.places.len() as u32, generation: 0 };
        let value = Some(make(key));
        self.places.push(Place { generation: 0, next: u32::MAX, value });
        key
    }

    /// Takes a value out; `None` if the key is stale.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation != key.generation {
            return None;
        }
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        place.next = core::mem::replace(&mut self.vacant, key.index);
        self.len -= 1;
        Some(value)
    }

    /// The value of a key; `None` if the key is stale.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.index as usize)?;
        place.value.as_ref().filter(|_| place.generation == key.generation)
    }

    /// The value of a key, to be changed; `None` if the key is stale.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        place.value.as_mut().filter(|_| place.generation == key.generation)
    }

    /// The value at a place, whatever its generation.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.places.get(index as usize)?.value.as_ref()
    }

    /// The value at a place, whatever its generation, with its key: for queues that keep 32-bit indices and
    /// forget them before the value is removed.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let place = self.places.get_mut(index as usize)?;
        Some((Key { index, generation: place.generation }, place.value.as_mut()?))
    }

    /// Places there are, vacant ones included: every index is below.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    /// All values with their keys, in the order of their places. O(places): not for the packet path.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| {
            let key = Key { index: index as u32, generation: place.generation };
            Some((key, place.value.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_keys_find_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        let second = slab.insert_with(|key| if key.index == 1 { 'b' } else { '?' });
        assert_eq!(slab.remove(first), Some('a'));
        assert_eq!(slab.remove(first), None);
        let third = slab.insert('c');
        assert_eq!((third.index, third.generation), (0, 1));
        assert_eq!((slab.get(first), slab.get(second), slab.get(third)), (None, Some(&'b'), Some(&'c')));
        assert_eq!(slab.at_mut(0), Some((third, &mut 'c')));
        assert_eq!(slab.len(), 2);
        assert_eq!(slab.get_mut(Key { index: 9, generation: 0 }), None);
        let keys: Vec<Key> = slab.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [third, second]);
        slab.remove(second);
        slab.remove(third);
        assert!(slab.is_empty());
        // Last in, first out.
        assert_eq!(slab.insert('d').index, 0);
        assert_eq!(slab.insert('e').index, 1);
        assert_eq!(slab.insert('f').index, 2);
    }
}
