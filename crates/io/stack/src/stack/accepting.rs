//! Who waits at a listener for connections.

use std::collections::VecDeque;
use std::task::Waker;

/// A wait, by which it is known when it is polled again, and when it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn(pub(super) u64);

impl Turn {
    /// Of whoever polls, and does not say when it is given up.
    pub(super) const UNOWNED: Self = Self(0);
}

/// Those who wait, the longest first. Each connection wakes one of them.
#[derive(Debug, Default)]
pub(super) struct Waiters(VecDeque<(Turn, Waker)>);

impl Waiters {
    pub(super) fn wait(&mut self, turn: Turn, waker: &Waker) {
        match self.0.iter_mut().find(|(known, _)| *known == turn) {
            Some((_, known)) => known.clone_from(waker),
            None => self.0.push_back((turn, waker.clone())),
        }
    }

    /// Waits no more; false if it had been woken.
    pub(super) fn leave(&mut self, turn: Turn) -> bool {
        let before = self.0.len();
        self.0.retain(|(known, _)| *known != turn);
        self.0.len() < before
    }

    /// Those to be woken for a connection. One that nobody owns may have been given up, so it is no one's only hope.
    pub(super) fn next(&mut self) -> impl Iterator<Item = Waker> {
        let unowned = self.0.iter().position(|(turn, _)| *turn == Turn::UNOWNED);
        let unowned = unowned.and_then(|at| self.0.remove(at));
        [unowned, self.0.pop_front()].into_iter().flatten().map(|(_, waker)| waker)
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = Waker> {
        self.0.drain(..).map(|(_, waker)| waker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_wakes_the_one_that_waits_longest_and_the_one_that_polls() {
        let mut waiters = Waiters::default();
        for turn in [1, 0, 2, 1] {
            waiters.wait(Turn(turn), Waker::noop());
        }
        assert_eq!(waiters.next().count(), 2);
        assert!(!waiters.leave(Turn(1)) && !waiters.leave(Turn::UNOWNED), "woken");
        assert!(waiters.leave(Turn(2)), "still waits");
        assert_eq!(waiters.next().count(), 0);
        waiters.wait(Turn(3), Waker::noop());
        waiters.wait(Turn(4), Waker::noop());
        assert_eq!(waiters.next().count(), 1);
        assert_eq!(waiters.all().count(), 1);
    }
}
