use alloc::collections::VecDeque;

/// Connections that may have something to transmit, first in, first out, each at most once.
///
/// The owner keeps one flag per connection, which says that it is queued: marking a connection again costs a
/// test of that flag. Taking turns (a connection that is not done marks itself again behind the others) makes
/// it a fair round robin.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    queue: VecDeque<u32>,
}

impl ReadyQueue {
    /// An empty queue.
    pub(crate) const fn new() -> Self {
        Self { queue: VecDeque::new() }
    }

    /// Queues the connection at `index`, unless its flag says that it is queued; the flag is set.
    #[inline]
    pub(crate) fn mark(&mut self, index: u32, queued: &mut bool) {
        if !*queued {
            *queued = true;
            self.queue.push_back(index);
        }
    }

    /// Takes the connection that has waited longest. The caller clears its flag, and ignores an index whose
    /// connection went away meanwhile.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.queue.pop_front()
    }

    /// The connection that has waited longest, left in its place: to transmit a burst before its turn ends.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u32> {
        self.queue.front().copied()
    }

    /// Ends the turn of the connection at the front, which goes behind the others and stays queued.
    #[inline]
    pub(crate) fn rotate(&mut self) {
        if let Some(index) = self.queue.pop_front() {
            self.queue.push_back(index);
        }
    }

    /// Connections that are queued.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// True if no connection is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_waits_once_and_in_order() {
        let mut queue = ReadyQueue::new();
        let (mut seven, mut eight) = (false, false);
        queue.mark(7, &mut seven);
        queue.mark(8, &mut eight);
        queue.mark(7, &mut seven);
        assert_eq!((queue.len(), queue.peek()), (2, Some(7)));
        queue.rotate();
        assert_eq!((queue.len(), queue.peek()), (2, Some(8)));
        queue.rotate();
        assert_eq!(queue.pop(), Some(7));
        seven = false;
        queue.mark(7, &mut seven);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(8), Some(7), None));
        assert!(queue.is_empty());
    }
}
