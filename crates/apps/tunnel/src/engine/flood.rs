//! Whether handshakes come faster than honest peers begin them.

use polypath_units::{Duration, Instant};

/// Handshakes that are answered without cookies, in a period.
const MOST_IN_PERIOD: u32 = 50;
const PERIOD: Duration = Duration::from_secs(1);
/// An initiation takes some 100 µs: of those with a cookie, so many in a period are looked at.
const MOST_PROVEN_IN_PERIOD: u32 = 1_000;
/// How many handshakes came of late.
#[derive(Debug, Default)]
pub(super) struct Flood {
    since: Instant,
    count: u32,
    proven: u32,
}

impl Flood {
    pub(super) fn note(&mut self, now: Instant) {
        if now.since(self.since) >= PERIOD {
            *self = Self { since: now, count: 0, proven: 0 };
        }
        self.count += 1;
    }

    pub(super) fn is_one(&self) -> bool {
        self.count > MOST_IN_PERIOD
    }

    pub(super) fn takes_proven(&mut self) -> bool {
        self.proven += 1;
        self.proven <= MOST_PROVEN_IN_PERIOD
    }
}
