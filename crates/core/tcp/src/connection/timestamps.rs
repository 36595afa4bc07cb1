//! The timestamps of one connection (RFC 7323 §3 to §5): its clock, and what it echoes.

use polypath_units::{Duration, Instant};
use polypath_wire::Timestamps;

/// Timestamps older than this are no reason to drop (RFC 7323 §5.5).
const PAWS_IDLE: Duration = Duration::from_secs(24 * 24 * 3600);

/// Whether both ends have timestamps, the own clock, and the peer's latest value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timestamping {
    is_on: bool,
    /// Added to the clock in milliseconds (RFC 7323 §5.4).
    offset: u32,
    /// TS.Recent, and since when.
    recent: u32,
    recent_at: Instant,
}

impl Timestamping {
    pub(super) const fn new(now: Instant, is_on: bool, offset: u32) -> Self {
        Self { is_on, offset, recent: 0, recent_at: now }
    }

    /// The peer's SYN came, with this timestamp or none; `is_wanted` says whether this end has them at all.
    pub(super) fn handle_syn(&mut self, now: Instant, theirs: Option<Timestamps>, is_wanted: bool) {
        self.is_on = is_wanted && theirs.is_some();
        if let Some(theirs) = theirs {
            self.recent = theirs.value;
            self.recent_at = now;
        }
    }

    /// A segment came that may change the echo (RFC 7323 §4.3). Its timestamp does, unless it is an older one.
    #[inline]
    pub(super) fn handle_value(&mut self, now: Instant, value: u32) {
        if !self.is_older(now, value) {
            self.recent = value;
            self.recent_at = now;
        }
    }

    /// Segments carry timestamps: this end wants them, and as far as is known, the peer too.
    #[inline]
    pub(super) const fn is_on(&self) -> bool {
        self.is_on
    }

    /// The timestamp clock (RFC 7323 §5.4): milliseconds from an offset of this connection's own.
    #[inline]
    pub(super) fn clock(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.offset)
    }

    /// Milliseconds since the clock showed what came back.
    #[inline]
    pub(super) fn elapsed_ms(&self, now: Instant, echo: u32) -> u32 {
        self.clock(now).wrapping_sub(echo)
    }

    /// The timestamp is older than the latest one, as long as that says anything (RFC 7323 §5.5).
    #[inline]
    pub(super) fn is_older(&self, now: Instant, value: u32) -> bool {
        (value.wrapping_sub(self.recent) as i32) < 0 && now.since(self.recent_at) < PAWS_IDLE
    }

    /// The option of a segment that leaves now. Without the ACK flag the echo is zero (RFC 7323 §3.2).
    #[inline]
    pub(super) fn option(&self, now: Instant, acknowledges: bool) -> Timestamps {
        Timestamps { value: self.clock(now), echo: if acknowledges { self.recent } else { 0 } }
    }

    /// What they take of a segment's option space.
    #[inline]
    pub(super) const fn len_bytes(&self) -> usize {
        if self.is_on { Timestamps::LEN_BYTES } else { 0 }
    }

    /// TS.Recent. It says something where both ends have timestamps.
    pub(super) const fn recent(&self) -> u32 {
        self.recent
    }

    /// What is added to the clock.
    pub(super) const fn offset(&self) -> u32 {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_value_is_believed_again_after_24_days() {
        let mut timestamps = Timestamping::new(Instant::ZERO, true, 7);
        let start = Instant::from_secs(1);
        timestamps.handle_syn(start, Some(Timestamps { value: u32::MAX, echo: 0 }), true);
        timestamps.handle_value(start, 3);
        assert_eq!(timestamps.option(start, true), Timestamps { value: 1007, echo: 3 });
        assert_eq!(timestamps.option(start, false).echo, 0);
        timestamps.handle_value(start + Duration::from_secs(1), u32::MAX);
        assert_eq!(timestamps.recent(), 3, "values wrap");
        let later = start + PAWS_IDLE;
        assert!(!timestamps.is_older(later, u32::MAX));
        timestamps.handle_value(later, u32::MAX);
        assert_eq!(timestamps.recent(), u32::MAX);
    }

    #[test]
    fn both_ends_must_want_them() {
        let theirs = Timestamps { value: 9, echo: 0 };
        for (wanted, offered) in [(false, true), (true, false), (true, true)] {
            let mut timestamps = Timestamping::new(Instant::ZERO, wanted, 0);
            timestamps.handle_syn(Instant::ZERO, offered.then_some(theirs), wanted);
            assert_eq!(timestamps.is_on(), wanted && offered);
            assert_eq!(timestamps.len_bytes() > 0, wanted && offered);
        }
    }
}
