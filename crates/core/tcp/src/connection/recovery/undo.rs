//! Whether a recovery was spurious: Eifel (RFC 3522) and DSACK (RFC 3708).

/// What is known of the retransmissions of the last episode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    /// What was outstanding in the episode.
    range: (u64, u64),
    /// Timestamp of the first retransmission: an echo older than it proves that it was spurious.
    first_resend_ms: Option<u32>,
    /// Retransmissions that no DSACK has reported yet. Kept after the episode's end, as the last of them often comes later
    /// (RFC 3708).
    left: Option<u32>,
    /// The episode began with nothing resent in flight, so that its acknowledgments can be told from older ones'.
    is_possible: bool,
}

impl Undo {
    /// An episode begins.
    pub(super) fn new(is_possible: bool, range: (u64, u64)) -> Self {
        Self { range, first_resend_ms: None, left: is_possible.then_some(0), is_possible }
    }

    /// Something left again, at this time of the timestamp clock.
    pub(super) fn handle_resent(&mut self, now_ms: u32) {
        self.first_resend_ms.get_or_insert(now_ms);
        if let Some(left) = &mut self.left {
            *left += 1;
        }
    }

    /// A duplicate was reported. True if that was the last retransmission that had not been (RFC 3708).
    pub(super) fn handle_dsack(&mut self, (start, end): (u64, u64)) -> bool {
        let (from, until) = self.range;
        match &mut self.left {
            Some(left) if *left > 0 && start >= from && end <= until => {
                *left -= 1;
                *left == 0
            }
            _ => false,
        }
    }

    /// The episode ended. Only DSACKs tell of it from now on.
    pub(super) fn handle_end(&mut self) {
        self.first_resend_ms = None;
    }

    /// It was undone.
    pub(super) fn handle_undone(&mut self) {
        self.first_resend_ms = None;
        self.left = None;
    }

    /// When the first retransmission of the episode left, by the timestamp clock.
    #[inline]
    pub(super) const fn first_resend_ms(&self) -> Option<u32> {
        self.first_resend_ms
    }

    /// An echo answers the original (RFC 3522): it is from before the first retransmission, and not from an earlier episode.
    #[inline]
    pub(super) fn is_proven_by(&self, echo: u32) -> bool {
        self.is_possible
            && echo != 0
            && self.first_resend_ms.is_some_and(|resent| (echo.wrapping_sub(resent) as i32) < 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_from_before_the_first_retransmission_proves_it() {
        let mut undo = Undo::new(true, (1, 9));
        assert!(!undo.is_proven_by(5), "nothing was sent again");
        undo.handle_resent(3);
        undo.handle_resent(7);
        assert!(undo.is_proven_by(2) && undo.is_proven_by(u32::MAX));
        assert!(!undo.is_proven_by(3) && !undo.is_proven_by(0), "zero echoes nothing");
        undo.handle_end();
        assert!(!undo.is_proven_by(2));
    }

    #[test]
    fn a_dsack_for_each_retransmission_undoes_even_after_the_end() {
        let mut undo = Undo::new(true, (100, 300));
        undo.handle_resent(1);
        undo.handle_resent(2);
        assert!(!undo.handle_dsack((100, 200)));
        assert!(!undo.handle_dsack((50, 150)), "of an episode before");
        undo.handle_end();
        assert!(undo.handle_dsack((200, 300)));
        assert!(!undo.handle_dsack((200, 300)), "more than left");
    }

    #[test]
    fn where_older_retransmissions_were_in_flight_nothing_is_proven() {
        let mut undo = Undo::new(false, (1, 9));
        undo.handle_resent(3);
        assert!(!undo.is_proven_by(2) && !undo.handle_dsack((1, 9)));
    }
}
