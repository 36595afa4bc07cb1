//! How long the numbers of a DSS have to be (RFC 8684 §3.3.1).

use polypath_units::{Duration, Instant};
use polypath_wire::DataSeq;

/// A segment may live so long in the network (RFC 9293 §3.4.1).
const MAX_SEGMENT_LIFETIME: Duration = Duration::from_secs(120);
/// With less than this in each of two such times, 4-byte numbers do not come around in any.
const MOST_SHORT_BYTES: i64 = 1 << 30;

/// How much was sent in a segment's lifetime.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    since: Instant,
    from: DataSeq,
    /// It was too much for 4-byte numbers in the lifetime before.
    was_fast: bool,
}

impl Pace {
    pub(super) const fn new(first: DataSeq) -> Self {
        Self { since: Instant::ZERO, from: first, was_fast: false }
    }

    /// Whether 4 bytes of a data sequence number will do, with data up to `next` sent: the lower 4 do not come around while a segment
    /// lives.
    #[inline]
    pub(super) fn allows_short(&mut self, now: Instant, next: DataSeq) -> bool {
        if now.since(self.since) >= MAX_SEGMENT_LIFETIME {
            *self = Self { since: now, from: next, was_fast: self.is_fast(next) };
        }
        !self.was_fast && !self.is_fast(next)
    }

    const fn is_fast(&self, next: DataSeq) -> bool {
        next.diff(self.from) >= MOST_SHORT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_long_while_short_ones_could_come_around() {
        let mut pace = Pace::new(DataSeq(7));
        let mut next = DataSeq(7);
        let mut is_short_after = |seconds: u64, megabytes: u64| {
            next = next.add(megabytes << 20);
            pace.allows_short(Instant::from_secs(seconds), next)
        };
        assert!(is_short_after(1000, 1));
        assert!(is_short_after(1100, 1000));
        assert!(!is_short_after(1101, 1000));
        assert!(!is_short_after(1120, 0), "the lifetime before was too fast");
        assert!(!is_short_after(1239, 0));
        assert!(is_short_after(1240, 0));
    }
}
