//! A list that is mostly empty, as most of what a connection may have to remember is.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// As big as a pointer, and without memory of its own while it is empty.
#[derive(Debug)]
pub(crate) struct RareList<T> {
    #[expect(clippy::box_collection, reason = "while it is empty, a pointer is held, not an empty list")]
    items: Option<Box<VecDeque<T>>>,
}

impl<T> Default for RareList<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> RareList<T> {
    pub(crate) const fn new() -> Self {
        Self { items: None }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.items.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().flat_map(|items| items.iter())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut().flat_map(|items| items.iter_mut())
    }

    pub(crate) fn push_back(&mut self, item: T) {
        self.items.get_or_insert_default().push_back(item);
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let first = self.items.as_mut()?.pop_front();
        self.items.take_if(|items| items.is_empty());
        first
    }

    /// Keeps those that are wanted.
    pub(crate) fn retain(&mut self, is_kept: impl FnMut(&T) -> bool) {
        if let Some(items) = &mut self.items {
            items.retain(is_kept);
            self.items.take_if(|items| items.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_is_a_pointer_and_has_no_memory() {
        assert_eq!(size_of::<RareList<[u64; 8]>>(), size_of::<usize>());
        let mut list = RareList::new();
        [1, 2, 3].into_iter().for_each(|item| list.push_back(item));
        list.iter_mut().for_each(|item| *item *= 2);
        assert!(list.iter().eq(&[2, 4, 6]));
        assert_eq!(list.pop_front(), Some(2));
        list.retain(|item| *item == 6);
        assert!(!list.is_empty() && list.items.is_some());
        assert_eq!((list.pop_front(), list.pop_front()), (Some(6), None));
        assert!(list.is_empty() && list.items.is_none());
        list.push_back(7);
        list.retain(|_| false);
        assert!(list.items.is_none());
    }
}
