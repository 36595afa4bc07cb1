//! How far the message has come that a connection sends.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the end of a connection would cut off an answer to a client, or a request to a server. hyper holds what it has not written yet, so a
/// message is over once all of it was read from the other side and then all that hyper holds was written.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    is_read_from: AtomicBool,
    is_unwritten: AtomicBool,
}

impl Outgoing {
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

    /// An end now is none of a message.
    pub(super) fn is_in_the_middle(&self) -> bool {
        self.is_unwritten.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_over_once_it_was_read_and_then_written() {
        let outgoing = Outgoing::default();
        assert!(!outgoing.is_in_the_middle());
        outgoing.begins();
        outgoing.is_written();
        assert!(outgoing.is_in_the_middle(), "a part was written");
        outgoing.is_read();
        assert!(outgoing.is_in_the_middle(), "hyper has the rest");
        outgoing.is_written();
        assert!(!outgoing.is_in_the_middle());
    }
}
