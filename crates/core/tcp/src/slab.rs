use alloc::vec::Vec;
use core::fmt;

/// Names a value in a [`Slab`]. A key is never valid again after its value was removed, even when the place
/// is reused (until 2³² values have lived in that place).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Place in the slab.
    pub index: u32,
    /// How many values the place has held before.
    pub generation: u32,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// Values at stable places, named by generational keys. All operations are O(1); places are reused last-in
/// first-out, so that the same operations give the same keys.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<Place<T>>,
    /// First vacant place, or `u32::MAX`.
    vacant: u32,
    len: usize,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    content: Content<T>,
}

#[derive(Debug)]
enum Content<T> {
    Occupied(T),
    Vacant { next: u32 },
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// An empty slab, which allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { places: Vec::new(), vacant: u32::MAX, len: 0 }
    }

    /// Values present.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there is no value.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a value.
    pub fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// Adds the value that `make` returns; it is told the key beforehand.
    pub fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        self.len += 1;
        let index = self.vacant;
        if let Some(place) = self.places.get_mut(index as usize) {
            let key = Key { index, generation: place.generation };
            if let Content::Vacant { next } = place.content {
                self.vacant = next;
            }
            place.content = Content::Occupied(make(key));
            return key;
        }
        let key = Key { index: self.places.len() as u32, generation: 0 };
        let content = Content::Occupied(make(key));
        self.places.push(Place { generation: 0, content });
        key
    }

    /// Takes a value out; `None` if the key is stale.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation != key.generation || matches!(place.content, Content::Vacant { .. }) {
            return None;
        }
        place.generation = place.generation.wrapping_add(1);
        self.len -= 1;
        let next = core::mem::replace(&mut self.vacant, key.index);
        match core::mem::replace(&mut place.content, Content::Vacant { next }) {
            Content::Occupied(value) => Some(value),
            Content::Vacant { .. } => None,
        }
    }

    /// The value of a key; `None` if the key is stale.
    #[inline]
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        match self.places.get(key.index as usize)? {
            Place { generation, content: Content::Occupied(value) } if *generation == key.generation => {
                Some(value)
            }
            _ => None,
        }
    }

    /// The value of a key, to be changed; `None` if the key is stale.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.places.get_mut(key.index as usize)? {
            Place { generation, content: Content::Occupied(value) } if *generation == key.generation => {
                Some(value)
            }
            _ => None,
        }
    }

    /// The value at a place, whatever its generation, with its key: for queues that keep 32-bit indices and
    /// forget them before the value is removed.
    #[inline]
    #[must_use]
    pub fn at_mut(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let place = self.places.get_mut(index as usize)?;
        match &mut place.content {
            Content::Occupied(value) => Some((Key { index, generation: place.generation }, value)),
            Content::Vacant { .. } => None,
        }
    }

    /// Places there are, vacant ones included: every index is below.
    #[must_use]
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// All values with their keys, in the order of their places. O(places): not for the packet path.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| match &place.content {
            Content::Occupied(value) => {
                Some((Key { index: index as u32, generation: place.generation }, value))
            }
            Content::Vacant { .. } => None,
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
