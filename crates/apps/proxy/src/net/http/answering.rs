//! How far the answer of a connection has come.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the end of a connection would cut off an answer. hyper holds what it has not written yet, so an answer is over once all of it was read
/// from its server and then all that hyper holds was written.
#[derive(Debug, Default)]
pub(super) struct Answering {
    is_read_from: AtomicBool,
    is_unwritten: AtomicBool,
}

impl Answering {
    pub(super) fn begins(&self) {
        self.is_unwritten.store(true, Ordering::Relaxed);
        self.is_read_from.store(true, Ordering::Relaxed);
    }

    /// All of it was read.
    pub(super) fn is_read(&self) {
        self.is_read_from.store(false, Ordering::Relaxed);
    }

    /// hyper holds nothing.
    pub(super) fn is_written(&self) {
        if !self.is_read_from.load(Ordering::Relaxed) {
            self.is_unwritten.store(false, Ordering::Relaxed);
        }
    }

    /// An end now is none of an answer.
    pub(super) fn is_in_the_middle(&self) -> bool {
        self.is_unwritten.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_over_once_it_was_read_and_then_written() {
        let answering = Answering::default();
        assert!(!answering.is_in_the_middle());
        answering.begins();
        answering.is_written();
        assert!(answering.is_in_the_middle(), "a part was written");
        answering.is_read();
        assert!(answering.is_in_the_middle(), "hyper has the rest");
        answering.is_written();
        assert!(!answering.is_in_the_middle());
    }
}
