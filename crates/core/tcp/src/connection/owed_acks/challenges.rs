//! How often a connection answers segments that anybody could have made up (RFC 5961 §10).

use polypath_units::Instant;

use crate::config::Config;

/// Counts challenge ACKs, and answers to what may be an answer itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Challenges {
    /// The second that `count` is of, modulo 2³².
    second: u32,
    count: u32,
    /// Answers to segments that might be answers themselves, since the last acceptable segment.
    in_a_row: u32,
}

impl Challenges {
    /// One more may leave: a bounded number a second (RFC 5961 §10).
    pub(super) fn allow(&mut self, now: Instant, config: &Config) -> bool {
        let second = (now.as_nanos() / 1_000_000_000) as u32;
        if self.second != second {
            self.second = second;
            self.count = 0;
        }
        self.count += 1;
        self.count <= config.challenge_acks_per_second
    }

    /// One more may leave that answers what may be an answer itself: two ends that disagree, as after a forged segment, would go
    /// on for ever.
    pub(super) fn allow_for_empty(&mut self, now: Instant, config: &Config) -> bool {
        let allowed = self.in_a_row < config.challenge_acks_in_a_row && self.allow(now, config);
        self.in_a_row += u32::from(allowed);
        allowed
    }

    /// An acceptable segment came: both ends agree.
    #[inline]
    pub(super) fn handle_acceptable(&mut self) {
        self.in_a_row = 0;
    }
}
