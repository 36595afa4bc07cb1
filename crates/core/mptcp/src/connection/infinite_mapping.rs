//! What a fallback in the middle of a connection leaves to be said: MP_FAIL, and the infinite mapping (RFC 8684 §3.7).

use alloc::boxed::Box;

use polypath_units::{Duration, Instant};
use polypath_wire::{DataSeq, DssMapping};

use crate::subflow::Receiver;

/// How often, and how long apart, MP_FAIL is sent while no infinite mapping comes.
const FAIL_INTERVAL: Duration = Duration::from_millis(500);
const FAIL_RETRIES: u8 = 6;

/// No stream is so long.
const NO_OFFSET: u64 = u64::MAX;

/// "From this subflow offset on, everything is data from this number on" (RFC 8684 §3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InfiniteMapping {
    pub(super) data_seq: DataSeq,
    /// Stream offset; one more on the wire.
    pub(super) offset: u64,
    /// When the peer has acknowledged the subflow up to here, it has seen the mapping.
    pub(super) seen_at: u64,
    /// Not retroactive: data begins again at `offset`. Each segment then says where itself belongs, for a middlebox that
    /// changes lengths shifts offsets, but not what a segment says of its own first byte.
    pub(super) is_restart: bool,
}

/// Both directions of a fallback: the mapping that we send until it is acknowledged, and the one that MP_FAIL asks for.
#[derive(Debug)]
pub(super) struct Fallback {
    /// Boxed: few connections fall back in the middle.
    ours: Option<Box<InfiniteMapping>>,
    /// MP_FAIL is sent again until an infinite mapping arrives.
    fail_at: Instant,
    fail_retries: u8,
    /// Subflow stream offset of the segment that is being handled; [`NO_OFFSET`] if it has no payload.
    segment_offset: u64,
}

impl Fallback {
    pub(super) const fn new() -> Self {
        Self { ours: None, fail_at: Instant::FAR_FUTURE, fail_retries: 0, segment_offset: NO_OFFSET }
    }

    // ---- ours

    /// This is sent from now on.
    pub(super) fn send(&mut self, mapping: InfiniteMapping) {
        self.ours = Some(Box::new(mapping));
    }

    /// The peer has acknowledged so many bytes of the subflow.
    pub(super) fn handle_acked(&mut self, acked: u64) {
        if self.ours.as_ref().is_some_and(|ours| acked >= ours.seen_at) {
            self.ours = None;
        }
    }

    /// What is sent until the peer has it.
    #[inline]
    pub(super) fn ours(&self) -> Option<&InfiniteMapping> {
        self.ours.as_deref()
    }

    /// Data begins again, and each segment says where it belongs: see [`InfiniteMapping::is_restart`].
    pub(super) fn is_announcing(&self) -> bool {
        self.ours().is_some_and(|ours| ours.is_restart)
    }

    // ---- the peer's

    /// From which subflow offset on everything is data, and from which number on, if an infinite mapping is to be believed: on
    /// the only subflow (RFC 8684 §3.7), whose bytes came to `rx`, and so that the stream goes on with `next`, without a gap. An end would
    /// else be taken for that of a stream of which bytes are missing.
    pub(super) fn place(
        &self,
        rx: &Receiver,
        next: DataSeq,
        mapping: &DssMapping,
        most_repeated_bytes: u64,
    ) -> Option<(u64, DataSeq)> {
        let data_seq = mapping.data_seq.expand(next);
        let near = rx.offset();
        let start = mapping.subflow_offset.wrapping_sub(1);
        let offset = near.checked_add_signed(i64::from(start.wrapping_sub(near as u32) as i32))?;
        let first_missing = rx.first_missing()?;
        let repeats = next.diff(data_seq);
        match self.segment_offset() {
            // Not retroactive: what counts is the place of the segment itself (see `InfiniteMapping::is_restart`). The peer sends
            // everything anew that we miss, so if this segment has overtaken others, what they bring lies before it.
            Some(own) if offset > first_missing && repeats < 0 => {
                let overtaken = repeats.unsigned_abs();
                let offset = own.checked_sub(overtaken).filter(|offset| *offset >= first_missing)?;
                Some((offset, next))
            }
            // It repeats no more than may be outstanding.
            Some(own) if offset > first_missing || offset == own => {
                let is_near = repeats >= 0 && repeats as u64 <= most_repeated_bytes;
                is_near.then_some((own, data_seq))
            }
            _ if offset > first_missing => None,
            // Retroactive: what comes next is what is missing.
            _ => (data_seq.add(first_missing - offset) == next).then_some((offset, data_seq)),
        }
    }

    /// The segment says of its own bytes, which follow an infinite mapping of the subflow whose bytes came to `rx`, that they are other
    /// data: that mapping was not the peer's, and bytes are missing from what the application has.
    pub(super) fn contradicts(&self, rx: &Receiver, mapping: &DssMapping) -> bool {
        let (Some((offset, data_seq)), Some(own)) = (rx.infinite(), self.segment_offset()) else {
            return false;
        };
        // Something that changes lengths moves bytes away from where their mappings say they are.
        let is_in_place = mapping.subflow_offset.wrapping_sub(1) == own as u32;
        let is_covered = mapping.len > 0 && own >= offset && is_in_place;
        let expected = data_seq.add(own.saturating_sub(offset));
        is_covered && mapping.data_seq.expand(expected) != expected
    }

    /// A checksum was wrong: MP_FAIL is about to leave for the first time.
    pub(super) fn begin_to_fail(&mut self) {
        self.fail_retries = 0;
    }

    /// MP_FAIL left.
    pub(super) fn handle_fail_sent(&mut self, now: Instant) {
        self.fail_at = now + FAIL_INTERVAL;
    }

    /// The time for an answer is over; once.
    pub(super) fn take_fail(&mut self, now: Instant) -> bool {
        let is_due = self.fail_at <= now;
        if is_due {
            self.fail_at = Instant::FAR_FUTURE;
        }
        is_due
    }

    /// MP_FAIL may be sent once more.
    pub(super) fn may_fail_again(&mut self) -> bool {
        self.fail_retries += 1;
        self.fail_retries < FAIL_RETRIES
    }

    /// The infinite mapping came, or the connection is over.
    pub(super) fn stop(&mut self) {
        self.fail_at = Instant::FAR_FUTURE;
    }

    #[inline]
    pub(super) const fn next_timeout(&self) -> Instant {
        self.fail_at
    }

    // ---- the segment that is being handled

    /// Its place in the subflow, if it has payload.
    #[inline]
    pub(super) fn handle_segment(&mut self, offset: Option<u64>) {
        self.segment_offset = offset.unwrap_or(NO_OFFSET);
    }

    /// See [`Fallback::handle_segment`].
    pub(super) fn segment_offset(&self) -> Option<u64> {
        Some(self.segment_offset).filter(|offset| *offset != NO_OFFSET)
    }
}
