//! Segments that arrive, step by step as RFC 9293 §3.10.7 has it.

use core::fmt::Debug;

use polypath_units::Instant;
use polypath_wire::{MAX_OPTIONS_BYTES, Segment, Timestamps};

use super::{CloseReason, Connection, Disposition, DropReason, Event, State};
use crate::extension::Extension;
use crate::host::ReplyLimit;
use crate::reassembly::Insertion;

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// A segment arrived. Its payload is taken if it is of use; its options stay for the caller.
    pub fn handle_segment<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        segment: &mut Segment,
        ext: &mut X,
    ) -> Disposition {
        match self.state() {
            State::Closed => return Disposition::Dropped(DropReason::Closed),
            State::SynSent => return self.handle_in_syn_sent(now, segment),
            _ => {}
        }
        let offset = self.offset_of(segment.seq);
        match self.check_sequence(now, segment, offset) {
            Ok(()) => {}
            Err(DropReason::Duplicate) => return self.handle_duplicate(now, segment, ext),
            Err(reason) => return Disposition::Dropped(reason),
        }
        if segment.flags.rst() {
            return self.handle_reset(now, segment);
        }
        if segment.flags.syn() {
            return Disposition::Dropped(self.handle_unexpected_syn(now, segment));
        }
        if !segment.flags.ack() {
            return Disposition::Dropped(DropReason::NoAck);
        }
        if self.state() == State::SynReceived && !self.complete_handshake(now, segment) {
            return Disposition::Dropped(DropReason::Ack);
        }
        if let Err(reason) = self.handle_acknowledgment(now, segment, true, ext) {
            return Disposition::Dropped(reason);
        }
        self.note_alive(now);
        // RFC 7323 §4.3: only an acceptable segment that covers the last acknowledgment we sent updates the echo.
        if let Some(timestamps) = segment.options.timestamps
            && self.handshake.timestamps().is_on()
            && offset <= self.acks.acked_to() as i64
        {
            self.handshake.handle_timestamp(now, timestamps.value);
        }
        // FIN comes after the payload, which is about to be taken.
        let fin_offset = segment.flags.fin().then(|| offset + segment.payload.len() as i64);
        if !segment.payload.is_empty() {
            self.handle_text(now, segment, offset);
        }
        if fin_offset.is_some() || self.receive.knows_fin() {
            self.handle_fin(now, fin_offset);
        }
        self.follow_our_fin(now);
        Disposition::Accepted
    }

    /// [`Connection::handle_segment`] within the bound that the host has for challenge ACKs (RFC 5961 §10). True: one that the segment
    /// would have drawn is withheld.
    pub fn handle_segment_within<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        segment: &mut Segment,
        ext: &mut X,
        challenges: &mut ReplyLimit,
    ) -> (Disposition, bool) {
        let owed = self.acks.is_only_challenge();
        let disposition = self.handle_segment(now, segment, ext);
        let is_withheld =
            !owed && self.acks.is_only_challenge() && !challenges.allows(now, self.tuple.remote.addr);
        if is_withheld {
            self.acks.withhold_challenge();
        }
        (disposition, is_withheld)
    }

    /// A retransmission of what was received before. It is not for the state machine, but it may bring the only copy of an
    /// acknowledgment. Nothing else of it is believed (RFC 9293 §3.10.7.4: what is not acceptable is dropped), its window neither.
    fn handle_duplicate<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        segment: &Segment,
        ext: &mut X,
    ) -> Disposition {
        let plain = segment.flags.ack() && !segment.flags.syn() && !segment.flags.rst();
        let synchronized = self.state().is_synchronized();
        if !plain || !synchronized || self.handle_acknowledgment(now, segment, false, ext).is_err() {
            return Disposition::Dropped(DropReason::Duplicate);
        }
        self.note_alive(now);
        self.follow_our_fin(now);
        Disposition::Acknowledged
    }

    // ---- SYN-SENT (RFC 9293 §3.10.7.3)

    fn handle_in_syn_sent(&mut self, now: Instant, segment: &mut Segment) -> Disposition {
        let acknowledges = segment.flags.ack();
        if acknowledges && segment.ack != self.send.wire(1) {
            // Of an earlier connection between the same ports that the peer still has: this ends it there (RFC 9293 §3.5.1).
            if !segment.flags.rst() {
                self.lifecycle.send_stray_reset(segment.ack);
            }
            return Disposition::Dropped(DropReason::Ack);
        }
        if segment.flags.rst() {
            if acknowledges {
                self.close(CloseReason::Refused);
                return Disposition::Reset;
            }
            return Disposition::Dropped(DropReason::Reset);
        }
        if !segment.flags.syn() {
            return Disposition::Dropped(DropReason::NoAck);
        }
        self.learn_from_syn(now, segment);
        if acknowledges {
            self.measure_handshake(now, segment);
            self.send.handle_syn_acked(self.send.window_bytes());
            self.establish(now);
            self.acks.owe();
        } else {
            // Simultaneous open.
            self.lifecycle.become_syn_received();
            self.handshake.send_syn_ack();
            self.stall.forget_timeouts();
        }
        Disposition::Accepted
    }

    /// What the peer's SYN or SYN/ACK says of it.
    pub(super) fn learn_from_syn(&mut self, now: Instant, syn: &Segment) {
        self.keepalive.handle_syn(now);
        let options = &syn.options;
        let shift = self.handshake.handle_syn(now, options, &self.config);
        self.receive.handle_syn(syn.seq, shift.is_some());
        self.send.handle_syn(syn.window, shift);
        self.mtu.handle_syn(options.mss());
        self.controller.on_mss(self.mss_bytes());
    }

    fn complete_handshake(&mut self, now: Instant, segment: &Segment) -> bool {
        if segment.ack != self.send.wire(1) {
            self.lifecycle.send_stray_reset(segment.ack);
            return false;
        }
        self.measure_handshake(now, segment);
        self.send.handle_syn_acked(0);
        self.establish(now);
        true
    }

    /// A SYN that was sent more than once measures nothing (RFC 6298 §3), but for its timestamp.
    fn measure_handshake(&mut self, now: Instant, answer: &Segment) {
        let timestamps = answer.options.timestamps.filter(|_| self.handshake.timestamps().is_on());
        let echo = timestamps.map_or(0, |timestamps| timestamps.echo);
        if !self.handshake.is_ambiguous() {
            self.rtt.sample(now, now.since(self.departure.last_at()), &self.config);
        } else if !self.sample_echo(now, echo) {
            self.rtt.distrust_initial(&self.config);
        }
    }

    fn establish(&mut self, now: Instant) {
        self.lifecycle.become_established();
        self.handshake.cancel_syn();
        self.stall.forget_timeouts();
        self.rtt.reset_backoff();
        self.retransmit.stop();
        self.delivery.begin_round(self.send.next());
        self.keepalive.start(now, &self.config);
    }

    // ---- first: sequence number, and timestamps before it (RFC 7323 §5.3)

    #[inline]
    fn check_sequence(&mut self, now: Instant, segment: &Segment, offset: i64) -> Result<(), DropReason> {
        if let Some(timestamps) = segment.options.timestamps
            && self.handshake.timestamps().is_on()
        {
            if !segment.flags.rst() && self.handshake.timestamps().is_older(now, timestamps.value) {
                self.acknowledge_stray(now, segment, offset);
                return Err(DropReason::Paws);
            }
        } else if self.handshake.timestamps().is_on() && must_have_timestamps(segment) {
            return Err(DropReason::NoTimestamp);
        }
        let (next, edge) = (self.receive.covered() as i64, self.receive.window_end() as i64);
        let len = i64::from(segment.sequence_len());
        // An acknowledgment that data has overtaken is not old yet: it began where the last one that we sent ends.
        let least =
            if self.state().is_synchronized() { (self.acks.acked_to() as i64).min(next) } else { next };
        let in_window =
            if len == 0 { offset >= least && offset <= edge } else { offset <= edge && offset + len > next };
        if in_window {
            return Ok(());
        }
        // A retransmitted SYN is for the state's own handling.
        if self.state() == State::SynReceived && segment.flags.syn() && offset == -1 {
            return Ok(());
        }
        if !segment.flags.rst() {
            self.acknowledge_stray(now, segment, offset);
        }
        // As far back as a window reaches; beyond, a segment is more likely made up than old.
        let oldest = next - (self.config.receive_buffer_bytes.max(1 << 16) as i64);
        let old = offset < next && offset >= oldest.max(-1);
        Err(if old { DropReason::Duplicate } else { DropReason::Sequence })
    }

    /// A segment outside of the window is answered with an acknowledgment; one without data, or with a SYN (RFC 5961 §4.2), only so
    /// often.
    fn acknowledge_stray(&mut self, now: Instant, segment: &Segment, offset: i64) {
        let len = segment.payload.len() as u64;
        if len > 0 && self.reports_duplicates() && offset >= 0 && (offset as u64) < self.receive.next() {
            self.acks.handle_duplicate((offset as u64, offset as u64 + len));
        }
        if segment.flags.syn() {
            self.acks.challenge(now, &self.config);
        } else if segment.sequence_len() > 0 {
            self.acks.owe();
        } else {
            self.acks.answer_empty(now, &self.config);
        }
        if segment.flags.fin() && self.state() == State::TimeWait {
            self.lifecycle.extend_time_wait(now + self.config.time_wait);
        }
    }

    /// RFC 2883.
    fn reports_duplicates(&self) -> bool {
        self.handshake.has_sack() && self.config.loss_recovery.duplicate_reports
    }

    // ---- second: RST (RFC 5961 §3.2); fourth: SYN (RFC 5961 §4.2)

    fn handle_reset(&mut self, now: Instant, segment: &Segment) -> Disposition {
        if segment.seq == self.receive.wire_ack() {
            let reason = match self.state() {
                State::TimeWait => return Disposition::Dropped(DropReason::Reset),
                State::SynReceived => CloseReason::Refused,
                // Both have said all, and the peer has it. RFC 9293 §3.10.7.4 has no word for what it had not acknowledged.
                State::Closing | State::LastAck if self.send.has_delivered_all() => CloseReason::Finished,
                _ => CloseReason::Reset,
            };
            self.close(reason);
            return Disposition::Reset;
        }
        self.acks.challenge(now, &self.config);
        Disposition::Dropped(DropReason::Reset)
    }

    fn handle_unexpected_syn(&mut self, now: Instant, segment: &Segment) -> DropReason {
        if self.state() == State::SynReceived && segment.seq == self.receive.isn() {
            if segment.flags.ack() && segment.ack == self.send.wire(1) {
                // Simultaneous open: the peer's SYN/ACK completes it.
                self.send.handle_syn_acked(u64::from(segment.window));
                self.establish(now);
                self.acks.owe();
            } else {
                self.handshake.send_syn();
            }
        } else {
            self.acks.challenge(now, &self.config);
        }
        DropReason::Syn
    }

    fn note_alive(&mut self, now: Instant) {
        self.keepalive.handle_segment(now, &self.config);
        self.acks.handle_acceptable();
    }

    // ---- seventh: text

    #[inline]
    fn handle_text(&mut self, now: Instant, segment: &mut Segment, offset: i64) {
        if !self.state().may_receive() {
            // Data after the peer's FIN, or after we stopped listening to it: acknowledged, not kept.
            self.acks.owe();
            return;
        }
        let data = core::mem::take(&mut segment.payload);
        let segments = match usize::from(segment.segment_size) {
            0 => 1,
            size => data.len().div_ceil(size) as u32,
        };
        let text = self.receive.handle_text(offset, data, self.config.max_reassembly_gaps);
        if text.is_cut {
            self.acks.owe();
        }
        match text.arrival {
            None => {}
            Some(Insertion::InOrder) => {
                self.lifecycle.report(Event::Readable);
                self.acks.handle_in_order(now, segments, &self.config);
            }
            Some(Insertion::FilledGap) => {
                self.lifecycle.report(Event::Readable);
                self.acks.owe();
            }
            Some(Insertion::OutOfOrder | Insertion::TooManyGaps) => self.acks.owe(),
            Some(Insertion::Duplicate) => {
                if self.reports_duplicates() {
                    self.acks.handle_duplicate(text.range);
                }
                self.acks.owe();
            }
        }
    }

    // ---- eighth: FIN

    fn handle_fin(&mut self, now: Instant, offset: Option<i64>) {
        if let Some(offset) = offset {
            self.acks.owe();
            self.receive.handle_fin(offset);
        }
        if !self.receive.poll_fin() {
            return;
        }
        self.acks.owe();
        let after = self.lifecycle.handle_peer_fin(now + self.config.time_wait);
        self.go_on_after(after);
    }

    /// Our FIN was acknowledged.
    fn follow_our_fin(&mut self, now: Instant) {
        if self.send.is_fin_acked() {
            let after = self.lifecycle.handle_fin_acked(now + self.config.time_wait);
            self.go_on_after(after);
        }
    }
}

/// RFC 7323 §3.2: all but RST, and a SYN, which is of another connection. An acknowledgment whose other options leave no room for
/// timestamps goes without: a 30-byte ADD_ADDR (RFC 8684 §3.4.1).
fn must_have_timestamps(segment: &Segment) -> bool {
    let lacks_room = segment.options.unpadded_len_bytes() + Timestamps::LEN_BYTES > MAX_OPTIONS_BYTES;
    let is_signal = segment.sequence_len() == 0 && lacks_room;
    !segment.flags.rst() && !segment.flags.syn() && !is_signal
}
