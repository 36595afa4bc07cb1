//! Joins that were accepted without having been held half-open.

use alloc::vec::Vec;

use polypath_units::Instant;

use crate::host::STATELESS_JOIN_LIFE;

/// Stateless joins that a connection remembers; while it remembers so many, it takes no further one.
const MOST_REMEMBERED: usize = 64;

/// Our nonces that third ACKs have used: the same third ACK, sent again by somebody who heard it, opens no second subflow.
#[derive(Debug, Default)]
pub(super) struct StatelessJoins {
    used: Vec<(Instant, u32)>,
}

impl StatelessJoins {
    /// True if the nonce was not used yet, and can be remembered for as long as it holds.
    pub(super) fn note(&mut self, now: Instant, nonce: u32) -> bool {
        self.used.retain(|(at, _)| now.since(*at) < STATELESS_JOIN_LIFE);
        if self.used.len() >= MOST_REMEMBERED || self.used.iter().any(|(_, used)| *used == nonce) {
            return false;
        }
        self.used.push((now, nonce));
        true
    }
}
