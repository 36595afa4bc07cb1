//! Acknowledgments that arrive: cumulative, selective, and the window (RFC 9293 §3.10.7.4, fifth).

use core::fmt::Debug;

use polypath_congestion::{Ack, RateSample};
use polypath_units::{Duration, Instant};
use polypath_wire::Segment;

use super::{Connection, DropReason};
use crate::extension::Extension;
use crate::scoreboard::{Flags, Newly};

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    #[inline]
    pub(super) fn handle_acknowledgment<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        segment: &Segment,
        takes_window: bool,
        ext: &mut X,
    ) -> Result<(), DropReason> {
        let ahead = self.send.ahead(segment.ack);
        let oldest = -(self.send.largest_window_bytes().max(1 << 16) as i64);
        if ahead > self.send.outstanding_bytes() as i64 || ahead < oldest {
            // Of what was never sent, or too old (RFC 5961 §5.2).
            self.acks.answer_empty(now, &self.config);
            return Err(DropReason::Ack);
        }
        if ahead < 0 {
            return Ok(());
        }
        self.stall.handle_answer();
        let window_changed = takes_window && self.update_window(now, segment);
        let in_flight = self.in_flight_bytes();
        let until = self.send.una() + ahead as u64;
        let mut newly = Newly::default();
        if ahead > 0 {
            self.advance(now, until, &mut newly);
        }
        let duplicate_sack =
            if segment.options.sack.is_empty() { None } else { self.handle_sack(segment, &mut newly) };
        let quiet = newly.bytes == 0
            && duplicate_sack.is_none()
            && !self.recovery.is_active()
            && self.send.board().sacked_bytes() == 0;
        if quiet && (self.send.is_idle() || self.handshake.has_sack() || segment.flags.fin()) {
            return Ok(());
        }
        self.sample_rtt(now, segment, &newly, ahead > 0);
        self.delivery.count_delivered(now, &newly, in_flight, self.rtt.min());
        let pure_duplicate =
            ahead == 0 && segment.payload.is_empty() && !window_changed && !segment.flags.fin();
        self.after_acknowledgment(
            now,
            segment,
            &newly,
            in_flight,
            ahead > 0,
            pure_duplicate,
            duplicate_sack,
            ext,
        );
        if ahead > 0 || self.is_answered_before_the_front(&newly) {
            self.arm_retransmit(now, true);
        }
        Ok(())
    }

    /// What was selectively acknowledged had left before the first unacknowledged segment was sent again: that one's answer
    /// can't have come yet. In a queue that has grown, it takes longer than a timeout from before.
    fn is_answered_before_the_front(&self, newly: &Newly) -> bool {
        match (newly.latest, self.send.board().front()) {
            (Some(latest), Some(front)) => front.flags.has(Flags::EVER_RESENT) && latest.at < front.at,
            _ => false,
        }
    }

    fn advance(&mut self, now: Instant, until: u64, newly: &mut Newly) {
        self.send.handle_ack(until, newly);
        self.stall.handle_progress(now);
        if self.stall.timeouts() > 0 {
            self.mtu.handle_answer(now, self.stall.timeouts());
            self.stall.forget_timeouts();
            // Without timestamps, the timeout stays backed off until something new is measured (RFC 6298 §3, §5).
            if self.handshake.timestamps().is_on() {
                self.rtt.reset_backoff();
            }
            self.retransmit.forget_probes();
        }
        self.follow_mtu_probe(now);
    }

    /// Takes the window of a segment that is not older than the last that gave one.
    #[inline]
    fn update_window(&mut self, now: Instant, segment: &Segment) -> bool {
        let seq = self.offset_of(segment.seq).max(0) as u64;
        let Some(changed) = self.send.handle_window(seq, segment.ack, segment.window) else {
            return false;
        };
        if self.send.window_room_bytes() > 0 && self.stall.is_persisting() {
            // What fits leaves now, or, if that is a sliver, when the timer says so: it goes on from where it was.
            self.rtt.reset_backoff();
            self.stall.persist_until(now + self.rtt.rto(&self.config));
        }
        changed
    }

    /// Notes SACK blocks; returns the first if it reports a duplicate (RFC 2883).
    fn handle_sack(&mut self, segment: &Segment, newly: &mut Newly) -> Option<(u64, u64)> {
        if !self.handshake.has_sack() {
            return None;
        }
        let believed = self.config.loss_recovery.duplicate_reports;
        let duplicate = self.send.handle_sack(&segment.options.sack, newly).filter(|_| believed);
        if duplicate.is_some() {
            self.recovery.count_duplicate();
        }
        duplicate
    }

    /// RFC 6298 §3 with Karn's rule; where everything was retransmitted, timestamps still measure, if the first hole was filled:
    /// what arrives behind it echoes what came before it (RFC 7323 §4.1, §4.3).
    #[inline]
    fn sample_rtt(&mut self, now: Instant, segment: &Segment, newly: &Newly, advanced: bool) {
        if newly.bytes == 0 || self.answers_from_before_an_outage(now, segment) {
            return;
        }
        if let Some(sent_at) = newly.rtt_from
            && !newly.resent
        {
            self.rtt.sample(now, now.since(sent_at), &self.config);
        } else if let Some(timestamps) = segment.options.timestamps
            && self.handshake.timestamps().is_on()
            && advanced
        {
            self.sample_echo(now, timestamps.echo);
        }
    }

    /// Measures by an echoed timestamp; false if it says nothing.
    pub(super) fn sample_echo(&mut self, now: Instant, echo: u32) -> bool {
        let elapsed = self.handshake.timestamps().elapsed_ms(now, echo);
        let is_sample = echo != 0 && elapsed < 1 << 20;
        if is_sample {
            // The clock ticked somewhere within its milliseconds: good enough for a timeout, not for a minimum.
            self.rtt.sample_coarse(Duration::from_millis(u64::from(elapsed) + 1), &self.config);
        }
        is_sample
    }

    /// Tells congestion control, outside of a recovery.
    #[inline]
    pub(super) fn grow_window<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        newly: &Newly,
        in_flight_bytes: u64,
        advanced: bool,
        ext: &X,
    ) {
        let acked_bytes = self.growing_bytes(newly.bytes, advanced);
        if newly.bytes == 0 && acked_bytes == 0 {
            return;
        }
        let round_ended = self.delivery.handle_round(self.send.una(), self.send.next());
        let window = self.window_bytes();
        let slow_start = window < self.controller.ssthresh_bytes();
        // In slow start the window may run ahead of what is sent by a factor of two, as it doubles each round. Of a window of one segment,
        // a shorter one is all that leaves.
        let window_limited = if slow_start {
            in_flight_bytes * 2 >= window || in_flight_bytes + u64::from(self.mss_bytes()) > window
        } else {
            in_flight_bytes + 2 * u64::from(self.mss_bytes()) >= window
        };
        let rate = if self.controller.needs_rate_samples() { self.rate_sample(newly) } else { None };
        let ack = Ack {
            now,
            acked_bytes,
            in_flight_bytes,
            rtt: newly.rtt_from.filter(|_| !newly.resent).map(|at| now.since(at)),
            srtt: self.rtt.srtt(),
            min_rtt: self.rtt.min(),
            window_limited,
            round_ended,
            rate,
        };
        let own = self.flow_view();
        self.controller.on_ack(&ack, &ext.flows(&own));
    }

    fn rate_sample(&self, newly: &Newly) -> Option<RateSample> {
        let in_flight = self.in_flight_bytes();
        newly.latest.as_ref().map(|latest| self.delivery.sample(latest, self.rtt.min(), in_flight))
    }
}
