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
