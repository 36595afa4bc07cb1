//! Segments that arrive, step by step as RFC 9293 §3.10.7 has it.

use core::fmt::Debug;

use polypath_units::Instant;
use polypath_wire::{Ecn, MAX_OPTIONS_BYTES, Segment, Timestamps};

use super::{CloseReason, Connection, Disposition, DropReason, State};
use crate::extension::Extension;
use crate::host::ReplyLimit;
use crate::reassembly::Arrival;

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// A segment arrived. Its payload is taken if it is of use; its options stay for the caller.
    pub fn handle_segment<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        _ecn: Ecn,
        segment: &mut Segment,
        ext: &mut X,
    ) -> Disposition {
        match self.state {
            State::Closed => return Disposition::Dropped(DropReason::Closed),
            State::SynSent => return self.handle_in_syn_sent(now, segment, ext),
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
        if self.state == State::SynReceived && !self.complete_handshake(now, segment) {
            return Disposition::Dropped(DropReason::Ack);
        }
        if let Err(reason) = self.handle_acknowledgment(now, segment, true, ext) {
            return Disposition::Dropped(reason);
        }
        self.note_alive(now);
        // RFC 7323 §4.3: only an acceptable segment that covers the last acknowledgment we sent updates the echo.
        if let Some(timestamps) = segment.options.timestamps
            && self.timestamps.is_on()
            && offset <= self.acked_to as i64
        {
            self.timestamps.handle_value(now, timestamps.value);
        }
        // FIN comes after the payload, which is about to be taken.
        let fin_offset = segment.flags.fin().then(|| offset + segment.payload.len() as i64);
        if !segment.payload.is_empty() {
            self.handle_text(now, segment, offset);
        }
        if fin_offset.is_some() || self.peer_fin.is_some() {
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
        ecn: Ecn,
        segment: &mut Segment,
        ext: &mut X,
        challenges: &mut ReplyLimit,
    ) -> (Disposition, bool) {
        let owed = self.owes_challenge();
        let disposition = self.handle_segment(now, ecn, segment, ext);
        let is_withheld = !owed && self.owes_challenge() && !challenges.allows(now, self.tuple.remote.addr);
        self.pending.challenge &= !is_withheld;
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
        let synchronized = self.state.is_synchronized();
        if !plain || !synchronized || self.handle_acknowledgment(now, segment, false, ext).is_err() {
            return Disposition::Dropped(DropReason::Duplicate);
        }
        self.note_alive(now);
        self.follow_our_fin(now);
        Disposition::Acknowledged
    }

    // ---- SYN-SENT (RFC 9293 §3.10.7.3)

    fn handle_in_syn_sent<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        segment: &mut Segment,
        _ext: &mut X,
    ) -> Disposition {
        let acknowledges = segment.flags.ack();
        if acknowledges && segment.ack != self.wire_seq(1) {
            // Of an earlier connection between the same ports that the peer still has: this ends it there (RFC 9293 §3.5.1).
            if !segment.flags.rst() {
                self.pending.stray_reset = Some(segment.ack);
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
            self.una = 1;
            self.next = self.next.max(1);
            self.window_end = 1 + self.peer_window_bytes;
            self.establish(now);
            self.pending.ack = true;
        } else {
            // Simultaneous open.
            self.state = State::SynReceived;
            self.pending.syn = true;
            self.syn_sent = 0;
            self.stall.forget_timeouts();
        }
        Disposition::Accepted
    }

    /// What the peer's SYN or SYN/ACK says of it.
    pub(super) fn learn_from_syn(&mut self, now: Instant, syn: &Segment) {
        self.peer_isn = syn.seq;
        self.keepalive.handle_syn(now);
        let options = &syn.options;
        if let Some(mss) = options.mss() {
            self.peer_mss = mss.max(64);
        }
        match options.window_scale() {
            Some(shift) if self.config.window_scaling => self.peer_shift = shift.min(14),
            _ => (self.peer_shift, self.own_shift, self.scaling) = (0, 0, false),
        }
        self.sack = self.config.sack && options.sack_permitted();
        self.timestamps.handle_syn(now, options.timestamps, self.config.timestamps);
        // Never scaled on a SYN (RFC 7323 §2.2).
        self.peer_window_bytes = u64::from(syn.window);
        self.largest_window_bytes = self.peer_window_bytes;
        self.controller.on_mss(self.mss_bytes());
    }

    fn complete_handshake(&mut self, now: Instant, segment: &Segment) -> bool {
        if segment.ack != self.wire_seq(1) {
            self.pending.stray_reset = Some(segment.ack);
            return false;
        }
        self.measure_handshake(now, segment);
        self.una = 1;
        self.next = self.next.max(1);
        self.window_end = 1;
        self.establish(now);
        true
    }

    /// A SYN that was sent more than once measures nothing (RFC 6298 §3), but for its timestamp.
    fn measure_handshake(&mut self, now: Instant, answer: &Segment) {
        let timestamps = answer.options.timestamps.filter(|_| self.timestamps.is_on());
        let echo = timestamps.map_or(0, |timestamps| timestamps.echo);
        if self.syn_sent <= 1 {
            self.rtt.sample(now, now.since(self.last_sent_at));
        } else if !self.sample_echo(now, echo) {
            self.rtt.distrust_initial();
        }
    }

    fn establish(&mut self, now: Instant) {
        self.state = State::Established;
        self.events.connected = true;
        self.pending.syn = false;
        self.stall.forget_timeouts();
        self.rtt.reset_backoff();
        self.timers.retransmit = Instant::FAR_FUTURE;
        self.delivery.round_end = self.next;
        self.keepalive.start(now, &self.config);
    }

    // ---- first: sequence number, and timestamps before it (RFC 7323 §5.3)

    #[inline]
    fn check_sequence(&mut self, now: Instant, segment: &Segment, offset: i64) -> Result<(), DropReason> {
        if let Some(timestamps) = segment.options.timestamps
            && self.timestamps.is_on()
        {
            if !segment.flags.rst() && self.timestamps.is_older(now, timestamps.value) {
                self.acknowledge_stray(now, segment, offset);
                return Err(DropReason::Paws);
            }
        } else if self.timestamps.is_on() && must_have_timestamps(segment) {
            return Err(DropReason::NoTimestamp);
        }
        let next = self.receive.next() as i64 + i64::from(self.fin_received);
        let edge = self.window_edge.max(self.receive.next()) as i64 + i64::from(self.fin_received);
        let len = i64::from(segment.sequence_len());
        // An acknowledgment that data has overtaken is not old yet: it began where the last one that we sent ends.
        let least = if self.state.is_synchronized() { (self.acked_to as i64).min(next) } else { next };
        let in_window =
            if len == 0 { offset >= least && offset <= edge } else { offset <= edge && offset + len > next };
        if in_window {
            return Ok(());
        }
        // A retransmitted SYN is for the state's own handling.
        if self.state == State::SynReceived && segment.flags.syn() && offset == -1 {
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
        if len > 0 && self.sack && offset >= 0 && (offset as u64) < self.receive.next() {
            self.dsack = Some((offset as u64, offset as u64 + len));
        }
        if segment.flags.syn() {
            self.challenge(now);
        } else if segment.sequence_len() > 0 {
            self.pending.ack = true;
        } else {
            self.answer_empty(now);
        }
        if segment.flags.fin() && self.state == State::TimeWait {
            self.timers.time_wait = now + self.config.time_wait;
        }
    }

    fn challenge(&mut self, now: Instant) {
        self.pending.challenge |= self.challenges.allow(now, &self.config);
    }

    /// An acknowledgment is owed to a segment that may be forged, and to nothing else.
    fn owes_challenge(&self) -> bool {
        self.pending.challenge && !self.pending.ack
    }

    /// Answers what may be an answer itself, and only so often.
    pub(super) fn answer_empty(&mut self, now: Instant) {
        self.pending.challenge |= self.challenges.allow_for_empty(now, &self.config);
    }

    // ---- second: RST (RFC 5961 §3.2); fourth: SYN (RFC 5961 §4.2)

    fn handle_reset(&mut self, now: Instant, segment: &Segment) -> Disposition {
        if segment.seq == self.wire_ack() {
            let reason = match self.state {
                State::TimeWait => return Disposition::Dropped(DropReason::Reset),
                State::SynReceived => CloseReason::Refused,
                // Both have said all, and the peer has it. RFC 9293 §3.10.7.4 has no word for what it had not acknowledged.
                State::Closing | State::LastAck if self.has_delivered_all() => CloseReason::Finished,
                _ => CloseReason::Reset,
            };
            self.close(reason);
            return Disposition::Reset;
        }
        self.challenge(now);
        Disposition::Dropped(DropReason::Reset)
    }

    fn handle_unexpected_syn(&mut self, now: Instant, segment: &Segment) -> DropReason {
        if self.state == State::SynReceived && segment.seq == self.peer_isn {
            if segment.flags.ack() && segment.ack == self.wire_seq(1) {
                // Simultaneous open: the peer's SYN/ACK completes it.
                self.una = 1;
                self.next = self.next.max(1);
                self.window_end = 1 + u64::from(segment.window);
                self.establish(now);
                self.pending.ack = true;
            } else {
                self.pending.syn = true;
            }
        } else {
            self.challenge(now);
        }
        DropReason::Syn
    }

    fn note_alive(&mut self, now: Instant) {
        self.keepalive.handle_segment(now, &self.config);
        self.challenges.handle_acceptable();
    }

    // ---- seventh: text

    #[inline]
    fn handle_text(&mut self, now: Instant, segment: &mut Segment, offset: i64) {
        if !self.state.may_receive() {
            // Data after the peer's FIN, or after we stopped listening to it: acknowledged, not kept.
            self.pending.ack = true;
            return;
        }
        let mut data = core::mem::take(&mut segment.payload);
        let segments = match usize::from(segment.segment_size) {
            0 => 1,
            size => data.len().div_ceil(size) as u32,
        };
        let mut start = offset;
        if start < 0 {
            data.advance(start.unsigned_abs() as usize);
            start = 0;
        }
        let start = start as u64;
        let limit = self.peer_fin.map_or(self.window_edge, |fin| self.window_edge.min(fin));
        let beyond = (start + data.len() as u64).saturating_sub(limit);
        if beyond > 0 {
            let keep = (data.len() as u64).saturating_sub(beyond);
            data.truncate(keep as usize);
            self.pending.ack = true;
            if data.is_empty() {
                return;
            }
        }
        let end = start + data.len() as u64;
        match self.receive.insert(start, data, self.config.max_reassembly_gaps) {
            Arrival::InOrder => {
                self.events.readable = true;
                self.unacked_segments += segments;
                self.schedule_ack(now, segments);
            }
            Arrival::FilledGap => {
                self.events.readable = true;
                self.pending.ack = true;
            }
            Arrival::OutOfOrder | Arrival::TooManyGaps => self.pending.ack = true,
            Arrival::Duplicate => {
                if self.sack {
                    self.dsack = Some((start, end));
                }
                self.pending.ack = true;
            }
        }
    }

    /// RFC 9293 §3.8.6.3: every second full-sized segment at once, others within the delay; all at once at the start, so
    /// that the sender's slow start is not held back.
    #[inline]
    fn schedule_ack(&mut self, now: Instant, segments: u32) {
        if self.quick_acks > 0 {
            self.quick_acks = self.quick_acks.saturating_sub(segments);
            self.pending.ack = true;
        } else if self.unacked_segments >= 2 {
            self.pending.ack = true;
        } else if self.timers.delayed_ack == Instant::FAR_FUTURE {
            self.timers.delayed_ack = now + self.config.delayed_ack;
        }
    }

    // ---- eighth: FIN

    fn handle_fin(&mut self, now: Instant, offset: Option<i64>) {
        if let Some(offset) = offset {
            self.pending.ack = true;
            let end = offset.max(0) as u64;
            // Neither before data that is there nor beyond the window.
            let known = self.receive.highest();
            if self.peer_fin.is_none() && end >= known && end <= self.window_edge.max(known) {
                self.peer_fin = Some(end);
            }
        }
        if self.fin_received || self.peer_fin != Some(self.receive.next()) {
            return;
        }
        self.fin_received = true;
        self.events.peer_finished = true;
        self.pending.ack = true;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }

    /// Everything before our FIN was acknowledged.
    fn has_delivered_all(&self) -> bool {
        self.fin_at.is_some_and(|fin_at| self.una >= fin_at)
    }

    /// Our FIN was acknowledged.
    fn follow_our_fin(&mut self, now: Instant) {
        let Some(fin_at) = self.fin_at else { return };
        if self.una <= fin_at {
            return;
        }
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.close(CloseReason::Finished),
            _ => {}
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
