//! Segments that leave: which, how much, and with which options.

use core::fmt::Debug;

use polypath_units::{BitRate, Instant};
use polypath_wire::{Packet, Payload, SackBlock, Segment, TcpFlags};

use super::departure::most_bytes_at;
use super::retransmit_timer::RetransmitKind;
use super::{Connection, State};
use crate::extension::{Extension, OptionSpace, Outgoing, OutgoingKind};
use crate::scoreboard::{Flags, Sent};

/// What the options of a segment with payload depend on; see [`Outgoing`].
#[derive(Clone, Copy)]
struct DataOptions<M> {
    mapping: M,
    is_start: bool,
    acknowledges: bool,
}

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// The next segment to send; call until `None`.
    #[must_use]
    pub fn poll_transmit<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &mut X) -> Option<Packet> {
        if self.lifecycle.poll_reset() {
            return Some(self.reset(now, ext));
        }
        if let Some(seq) = self.lifecycle.poll_stray_reset() {
            let segment = Segment { seq, flags: TcpFlags::RST, ..Segment::default() };
            return Some(self.finish_segment(now, segment, OutgoingKind::Reset, None, ext));
        }
        match self.state() {
            State::Closed => return None,
            State::SynSent | State::SynReceived => return self.transmit_syn(now, ext),
            _ => {}
        }
        // Blocks that do not fit beside data go first, on their own.
        let owes_ack = self.acks.is_due();
        let owes_sack = owes_ack && self.has_sack_to_report();
        if owes_sack {
            return Some(self.acknowledge(now, ext));
        }
        if self.state().may_send()
            && (!self.send.is_idle() || self.unsent_bytes() > 0 || self.send.is_finishing())
            && let Some(packet) = self.transmit_data(now, ext)
        {
            return Some(packet);
        }
        if self.keepalive.poll_probe() {
            // Just outside of the peer's window, so that it must answer.
            let segment = self.segment_at(self.send.una().max(1) - 1, TcpFlags::ACK, ext);
            return Some(self.finish_segment(now, segment, OutgoingKind::Probe, None, ext));
        }
        owes_ack.then(|| self.acknowledge(now, ext))
    }

    fn acknowledge<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &mut X) -> Packet {
        // A peer that shrank its window would drop what lies beyond it.
        let position = self.send.next().min(self.send.window_end().max(self.send.una()));
        let segment = self.segment_at(position, TcpFlags::ACK, ext);
        self.finish_segment(now, segment, OutgoingKind::Ack, None, ext)
    }

    fn reset<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &mut X) -> Packet {
        let segment = self.segment_at(self.send.next(), TcpFlags::RST.with(TcpFlags::ACK), ext);
        self.finish_segment(now, segment, OutgoingKind::Reset, None, ext)
    }

    fn transmit_syn<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &mut X) -> Option<Packet> {
        let retransmission = self.handshake.poll_syn()?;
        self.acks.forget();
        let (flags, kind) = if self.state() == State::SynSent {
            (TcpFlags::SYN, OutgoingKind::Syn { retransmission })
        } else {
            (TcpFlags::SYN.with(TcpFlags::ACK), OutgoingKind::SynAck { retransmission })
        };
        self.send.handle_syn_sent();
        self.departure.handle_sent(now);
        self.retransmit.start(now + self.rtt.rto(&self.config), RetransmitKind::Timeout);
        let segment = self.segment_at(0, flags, ext);
        Some(self.finish_segment(now, segment, kind, None, ext))
    }

    // ---- data

    fn transmit_data<X: Extension<Mapping = M>>(&mut self, now: Instant, ext: &mut X) -> Option<Packet> {
        // What the probe was for may have been acknowledged since its time came; then there is nothing to probe.
        if self.recovery.poll_tail_probe()
            && !self.send.is_idle()
            && let Some(probe) = self.transmit_tail_probe(now, ext)
        {
            return Some(probe);
        }
        let pipe = self.in_flight_bytes();
        let lost = self.send.board().lost_bytes();
        if lost == 0 && self.unsent_bytes() == 0 && !self.send.fin_follows(0) {
            // What leaves until all this is delivered measures the application, if there was room for more.
            if pipe + self.segment_payload_bytes_with(0) as u64 <= self.send_window_bytes() {
                self.delivery.mark_app_limited(pipe);
            }
            return None;
        }
        let lost_piece = self.send.poll_lost();
        let position = lost_piece.unwrap_or(self.send.next());
        let segment_bytes = self.segment_payload_bytes_at(position, ext) as u64;
        let window = self.send_window_bytes();
        // A segment ends with its mapping: one that is short needs no room for a full one.
        let in_mapping = self.send.contiguous_bytes(position);
        let least = segment_bytes.min(lost.max(self.unsent_bytes())).min(in_mapping).max(1);
        // With nothing in flight, one segment may always leave.
        if pipe > 0 && pipe + least > window {
            return None;
        }
        if self.config.pacing && self.departure.must_wait(now) {
            return None;
        }
        if let Some(start) = lost_piece {
            let segment_bytes = self.mtu_probe_to_resend(start, ext).unwrap_or(segment_bytes);
            return self.resend(now, start, segment_bytes, ext);
        }
        let room = window.saturating_sub(pipe);
        if let Some(size) = self.mtu_probe_payload(now, segment_bytes, room, ext) {
            return self.transmit_mtu_probe(now, size, ext);
        }
        self.transmit_new(now, segment_bytes, room, ext)
    }

    /// Resends the piece of the scoreboard from `start` on, up to a segment and to the end of its mapping.
    fn resend<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        start: u64,
        segment_bytes: u64,
        ext: &mut X,
    ) -> Option<Packet> {
        let most = self.send.contiguous_to_resend(start, segment_bytes);
        let rate = self.delivery.start(now, self.in_flight_bytes() + most);
        let sent = self.send.resend(start, most, now, rate)?;
        Some(self.retransmit(now, sent, segment_bytes as usize, ext))
    }

    fn transmit_new<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        segment_bytes: u64,
        room: u64,
        ext: &mut X,
    ) -> Option<Packet> {
        let unsent = self.unsent_bytes();
        let by_peer = self.send.window_room_bytes();
        let idle = self.send.is_idle();
        let mut count = 0;
        if unsent > 0 {
            let mut most = self.most_bytes_at_once(segment_bytes);
            if most > segment_bytes
                && let Some((mapping, true)) = self.send.mapping_at(self.send.next())
                && ext.data_option_bytes(&mapping, true) != ext.data_option_bytes(&mapping, false)
            {
                most = segment_bytes;
            }
            let contiguous = self.send.contiguous_bytes(self.send.next());
            count = contiguous.min(by_peer).min(most).min(room.max(segment_bytes));
            if count > segment_bytes && count < contiguous {
                count -= count % segment_bytes;
            }
            let must_wait = count < segment_bytes && self.wait_for_more(count, contiguous, unsent, idle);
            if count == 0 || must_wait {
                // What is in flight brings an acknowledgment; with nothing in flight only a timer goes on.
                if idle {
                    self.arm_persist(now);
                }
                return None;
            }
        }
        if idle
            && now.since(self.departure.last_at()) > self.rtt.rto(&self.config)
            && !self.rtt.srtt().is_zero()
        {
            self.controller.on_idle_restart(now);
        }
        let fin = self.send.fin_follows(count);
        self.send_stretch(now, self.send.next(), count, fin, segment_bytes, ext)
    }

    /// Nagle's algorithm, cork, and the sender's silly window avoidance (RFC 9293 §3.8.6.2.1, §3.7.4) for a short segment: until
    /// more fits, or until the timer for it has passed with nothing in flight.
    fn wait_for_more(&self, count: u64, contiguous: u64, unsent: u64, idle: bool) -> bool {
        if self.stall.sliver_may_leave() {
            return false;
        }
        if count < contiguous.min(unsent) {
            // The peer's window cuts it short.
            return true;
        }
        let last = count == unsent;
        last && !self.send.is_finishing() && self.departure.waits_for_more(idle)
    }

    /// One segment, or an aggregate of whole segments: as large as it may be on a fast path, but on a slow one no more than
    /// pacing would send in a millisecond, since it leaves as one burst.
    #[must_use]
    pub fn most_bytes_at_once(&self, segment_bytes: u64) -> u64 {
        let most = u64::from(self.config.max_aggregate_bytes).min(65_000);
        if most < 2 * segment_bytes {
            return segment_bytes;
        }
        let paced = match self.segment_interval_nanos(segment_bytes) {
            Some(interval) if self.config.pacing => most_bytes_at(interval, segment_bytes),
            _ => u64::MAX,
        };
        let most = most.min(paced);
        most - most % segment_bytes
    }

    /// Sends new data from `position`, which is `next`, as segments of `segment_bytes`.
    #[allow(clippy::too_many_arguments, reason = "the parts of one segment")]
    pub(super) fn send_stretch<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        position: u64,
        count: u64,
        fin: bool,
        segment_bytes: u64,
        ext: &mut X,
    ) -> Option<Packet> {
        let (payload, mapping, is_start) =
            if count > 0 { self.send.slice(position, count)? } else { (Payload::EMPTY, M::default(), false) };
        let end = position + payload.len() as u64 + u64::from(fin);
        self.stall.handle_departure();
        if self.send.is_idle() {
            // A rate sample starts anew after silence, and so does the user timeout.
            self.delivery.restart(now);
            self.stall.handle_progress(now);
        }
        let flags = if self.delivery.is_app_limited() { Flags::APP_LIMITED } else { Flags::NONE };
        let rate = self.delivery.start(now, self.in_flight_bytes() + (end - position));
        self.send.handle_sent(Sent::new(position, end, now, rate, flags), fin);
        if fin {
            self.lifecycle.handle_fin_sent();
        }
        let segment_bytes = segment_bytes as usize;
        Some(self.send_data_segment(now, position, payload, (mapping, is_start), fin, segment_bytes, ext))
    }

    fn retransmit<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        sent: Sent,
        segment_bytes: usize,
        ext: &mut X,
    ) -> Packet {
        let fin = self.send.ends_with_fin(&sent);
        let count = sent.len() - u64::from(fin);
        let (payload, mapping, is_start) = match self.send.slice(sent.start, count) {
            Some(found) if count > 0 => found,
            _ => (Payload::EMPTY, M::default(), false),
        };
        self.send.count_resent(payload.len() as u64);
        self.recovery.handle_resent(self.handshake.timestamps().clock(now));
        self.send_data_segment(now, sent.start, payload, (mapping, is_start), fin, segment_bytes, ext)
    }

    /// RFC 8985 §7.3: new data if there is some, else the last segment again.
    fn transmit_tail_probe<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        ext: &mut X,
    ) -> Option<Packet> {
        let by_peer = self.send.window_room_bytes();
        let segment_bytes = self.segment_payload_bytes_at(self.send.next(), ext) as u64;
        let count = self.send.contiguous_bytes(self.send.next()).min(self.unsent_bytes()).min(segment_bytes);
        if count > 0 && count <= by_peer {
            let fin = self.send.fin_follows(count);
            let packet = self.send_stretch(now, self.send.next(), count, fin, segment_bytes, ext);
            self.recovery.handle_tail_probe_sent(self.send.next(), false);
            return packet;
        }
        let most = self.segment_payload_bytes_at(self.send.next() - 1, ext) as u64;
        let start = self.send.board().last_piece(most)?;
        let segment_bytes = self.segment_payload_bytes_at(start, ext) as u64;
        self.recovery.handle_tail_probe_sent(self.send.next(), true);
        self.resend(now, start, segment_bytes, ext)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one segment")]
    fn send_data_segment<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        position: u64,
        payload: Payload,
        (mapping, is_start): (M, bool),
        fin: bool,
        segment_bytes: usize,
        ext: &mut X,
    ) -> Packet {
        let len = payload.len();
        let mut flags = TcpFlags::ACK;
        if fin {
            flags = flags.with(TcpFlags::FIN);
        }
        if len > 0 && self.unsent_bytes() == 0 {
            flags = flags.with(TcpFlags::PSH);
        }
        self.recovery.handle_sent(len as u64);
        self.send.count_sent(len as u64, len.div_ceil(segment_bytes) as u64);
        self.departure.handle_sent(now);
        self.pace(now, len as u64, segment_bytes as u64);
        self.arm_retransmit(now, false);
        let acknowledges = self.acks.has_news();
        let data = DataOptions { mapping, is_start, acknowledges };
        let mut segment = self.segment_at(position, flags, ext);
        segment.segment_size = if len > segment_bytes { segment_bytes as u16 } else { 0 };
        segment.payload = payload;
        let kind = if len > 0 { OutgoingKind::Data } else { OutgoingKind::Ack };
        self.finish_segment(now, segment, kind, (len > 0).then_some(data), ext)
    }

    /// Spreads segments over the round trip.
    #[inline]
    fn pace(&mut self, now: Instant, bytes: u64, segment_bytes: u64) {
        if !self.config.pacing || bytes == 0 {
            return;
        }
        let Some(interval) = self.segment_interval_nanos(segment_bytes) else { return };
        self.departure.pace(now, bytes, segment_bytes, interval, self.config.pacing_burst_bytes);
    }

    /// Time between two segments at congestion control's rate, else at twice the window per round trip in slow start and
    /// 1.2 times after; none before the first round trip.
    #[inline]
    fn segment_interval_nanos(&self, segment_bytes: u64) -> Option<u64> {
        let srtt = self.rtt.srtt().as_nanos();
        match self.controller.pacing_rate() {
            Some(rate) => Some(rate.max(BitRate::from_bps(1)).time_to_send(segment_bytes).as_nanos()),
            None if srtt == 0 => None,
            None => {
                let tenths = if self.controller.in_slow_start() { 20 } else { 12 };
                Some(
                    srtt.saturating_mul(segment_bytes * 10)
                        / (self.window_bytes().max(segment_bytes) * tenths),
                )
            }
        }
    }

    /// The rate that [`Connection::pace`] keeps on average.
    pub(super) fn pacing_rate(&self) -> BitRate {
        if !self.config.pacing || self.rtt.srtt().is_zero() {
            return BitRate::ZERO;
        }
        let tenths = if self.controller.in_slow_start() { 20 } else { 12 };
        let bytes = self.window_bytes() * tenths / 10;
        self.controller.pacing_rate().unwrap_or_else(|| BitRate::from_bytes_over(bytes, self.rtt.srtt()))
    }

    // ---- headers and options

    /// A segment with everything but payload and options. Whatever leaves acknowledges, so what was owed is paid.
    fn segment_at<X: Extension<Mapping = M>>(&mut self, position: u64, flags: TcpFlags, ext: &X) -> Segment {
        let is_syn = flags.syn();
        let shift = if is_syn { 0 } else { self.receive.shift() };
        let own = self.own_window_bytes();
        let step = u64::from(self.mtu.peer_mss_bytes()).min(self.config.receive_buffer_bytes / 2).max(1);
        let field = self.receive.field_to_advertise(shift, own, ext.receive_window_bytes(own), step);
        self.receive.handle_advertised(field, shift);
        let ack = if flags.ack() {
            self.acks.handle_sent(self.receive.covered());
            self.receive.wire_ack()
        } else {
            polypath_wire::SeqNumber(0)
        };
        let seq = self.send.wire(position);
        Segment { seq, ack, flags, window: field, ..Segment::default() }
    }

    /// An acknowledgment has stretches or a duplicate to report.
    #[inline]
    fn has_sack_to_report(&self) -> bool {
        self.handshake.has_sack() && (self.receive.has_gap() || self.acks.has_duplicate())
    }

    /// The one place that decides which options a segment carries, in order of precedence: on a SYN, MSS, SACK permitted,
    /// window scale, timestamps, then the extension's; on others timestamps, the extension's, then SACK blocks.
    fn finish_segment<X: Extension<Mapping = M>>(
        &mut self,
        now: Instant,
        mut segment: Segment,
        kind: OutgoingKind,
        data: Option<DataOptions<M>>,
        ext: &mut X,
    ) -> Packet {
        let is_syn = segment.flags.syn();
        if is_syn {
            let (mss, shift) = (self.mtu.own_mss_bytes(), self.receive.shift());
            self.handshake.write_options(&mut segment.options, mss, shift);
        }
        // On a RST as well (RFC 7323 §3.2), unless the peer has not agreed to them yet.
        if self.handshake.timestamps().is_on()
            && (kind != OutgoingKind::Reset || self.state() != State::SynSent)
        {
            segment.options.timestamps = Some(self.handshake.timestamps().option(now, segment.flags.ack()));
        }
        let sack_follows =
            matches!(kind, OutgoingKind::Ack | OutgoingKind::Probe) && self.has_sack_to_report();
        let payload_len_bytes = segment.payload.len();
        let outgoing = Outgoing {
            kind,
            payload_len_bytes,
            mapping: data.map(|data| data.mapping),
            is_mapping_start: data.is_some_and(|data| data.is_start),
            acknowledges: data.is_none_or(|data| data.acknowledges),
            fin: segment.flags.fin(),
            sack_follows,
        };
        let mut space = OptionSpace::new(&mut segment.options, kind == OutgoingKind::Ack);
        ext.write_options(&outgoing, &mut space);
        if sack_follows {
            let first = self.acks.take_duplicate();
            let receive = &self.receive;
            let blocks = first.into_iter().chain(receive.blocks());
            let wire = |offset: u64| receive.wire(offset);
            space.push_sack(blocks.map(|(start, end)| SackBlock { start: wire(start), end: wire(end) }));
        }
        Packet::tcp(self.tuple, segment)
    }
}
