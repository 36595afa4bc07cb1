//! What a connection says of itself.

use core::fmt::Debug;

use polypath_congestion::{Controller, FlowView, MOST_WINDOW_BYTES};
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::{FourTuple, Segment, SeqNumber};

use super::{Connection, State};
use crate::extension::Extension;
use crate::host::TimeWaitNumbers;

/// State of a connection in the words of `TCP_INFO`, whichever stack carries it.
///
/// The kernel's engine fills it from `struct tcp_info`. A field that not every stack tells is an `Option`; every other
/// is told by all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// State.
    pub state: State,
    /// Congestion control. The kernel's structure does not name it.
    pub congestion: Option<&'static str>,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Its variation.
    pub rttvar: Duration,
    /// Least round-trip time of the last five minutes; zero before the first sample.
    pub min_rtt: Duration,
    /// Round-trip time by the timestamps that come back with data (RFC 7323); zero before the first sample. Where an end only
    /// receives, `srtt` stays as it was at the handshake, and this follows the path.
    pub rcv_rtt: Duration,
    /// It was measured later than `srtt`, and differs by more than the clock of timestamps ticks.
    pub rcv_rtt_is_newer: bool,
    /// Retransmission timeout, with backoff.
    pub rto: Duration,
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow-start threshold; before the first loss it is beyond every window.
    pub ssthresh_bytes: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Bytes taken for lost that have not been sent again.
    pub lost_bytes: u64,
    /// Bytes selectively acknowledged.
    pub sacked_bytes: u64,
    /// Bytes handed over that have not left.
    pub unsent_bytes: u64,
    /// The peer's window.
    pub peer_window_bytes: u64,
    /// Sender maximum segment size, without options.
    pub mss_bytes: u32,
    /// Path MTU.
    pub pmtu_bytes: u32,
    /// Payload acknowledged.
    pub bytes_acked: u64,
    /// Payload received in order.
    pub bytes_received: u64,
    /// Payload sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload retransmitted.
    pub bytes_retrans: u64,
    /// Data segments sent, an aggregate by its parts.
    pub data_segs_out: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Retransmission timeouts. The kernel tells since Linux 6.7.
    pub timeouts: Option<u64>,
    /// Fast recoveries: times that losses were found without a timeout. The kernel does not tell.
    pub recoveries: Option<u64>,
    /// Recoveries and timeouts that turned out spurious. The kernel does not tell.
    pub spurious: Option<u64>,
    /// Duplicate selective acknowledgments received (RFC 2883).
    pub dsacks: u64,
    /// The path was seen to reorder (RFC 8985 §6.2).
    pub reordering_seen: bool,
    /// Latest delivery rate.
    pub delivery_rate: BitRate,
    /// Rate at which segments leave; zero while nothing limits it.
    pub pacing_rate: BitRate,
}

impl Info {
    /// The estimate of the round-trip time that was measured last: `srtt` or `rcv_rtt`.
    #[must_use]
    pub const fn latest_rtt(&self) -> Duration {
        if self.rcv_rtt_is_newer { self.rcv_rtt } else { self.srtt }
    }

    /// Times that data was found lost and was: recoveries and timeouts, without those that turned out spurious.
    #[must_use]
    pub fn loss_events(&self) -> Option<u64> {
        Some((self.recoveries? + self.timeouts?).saturating_sub(self.spurious?))
    }
}

impl<M: Copy + PartialEq + Debug + Default> Connection<M> {
    /// State.
    #[inline]
    #[must_use]
    pub fn state(&self) -> State {
        self.lifecycle.state()
    }

    /// Both ends.
    #[must_use]
    pub fn tuple(&self) -> FourTuple {
        self.tuple
    }

    /// Our initial sequence number.
    #[must_use]
    pub fn isn(&self) -> SeqNumber {
        self.send.isn()
    }

    /// Smoothed round-trip time; zero before the first sample.
    #[must_use]
    pub fn srtt(&self) -> Duration {
        self.rtt.srtt()
    }

    /// Least round-trip time; zero before the first sample.
    #[must_use]
    pub fn min_rtt(&self) -> Duration {
        self.rtt.min()
    }

    /// Mean deviation of the round-trip time (RFC 6298 §2); zero before the first sample.
    #[must_use]
    pub fn rtt_variance(&self) -> Duration {
        self.rtt.variance()
    }

    /// What the path's bottleneck carries in bytes per second: the most that was delivered while a queue stood before it, until a queue
    /// lets out less. `None` if none was seen.
    #[must_use]
    pub fn bottleneck_bytes_per_s(&self) -> Option<u64> {
        self.delivery.bottleneck_bytes_per_s()
    }

    /// The same by now, where what did not come since the last acknowledgments tells that it carries much less.
    #[must_use]
    #[inline]
    pub fn bottleneck_falls_to(&self, now: Instant) -> Option<u64> {
        let oldest_age = || self.send.board().front().map_or(Duration::ZERO, |piece| now.since(piece.at));
        self.delivery.bottleneck_falls_to(now, oldest_age, self.rtt.min())
    }

    /// The path's bottleneck carries less than when it was given what is under way.
    #[must_use]
    pub fn bottleneck_has_fallen(&self) -> bool {
        self.delivery.has_fallen()
    }

    /// A tail loss probe (RFC 8985 §7) waits for an answer: nothing was acknowledged for about two round-trip times.
    #[must_use]
    pub fn is_probing(&self) -> bool {
        self.recovery.is_tail_probe_waiting(self.send.una())
    }

    /// Round-trip time as a receiver of data sees it: from an acknowledgment of this end to the data that came for it, by
    /// timestamps (RFC 7323). At least that, if the sender waited.
    #[must_use]
    pub fn receiver_rtt(&self, now: Instant, segment: &Segment) -> Option<Duration> {
        let timestamps = segment
            .options
            .timestamps
            .filter(|theirs| self.handshake.timestamps().is_on() && theirs.echo != 0)?;
        let elapsed_ms = self.handshake.timestamps().elapsed_ms(now, timestamps.echo);
        // More is an echo of another clock.
        (elapsed_ms < 60_000).then(|| Duration::from_millis(elapsed_ms.into()))
    }

    /// Data came: what [`Connection::receiver_rtt`] says of it, which is remembered for [`Info::rcv_rtt`].
    pub fn measure_receiver_rtt(&mut self, now: Instant, segment: &Segment) -> Option<Duration> {
        let elapsed = self.receiver_rtt(now, segment)?;
        let echo = segment.options.timestamps?.echo;
        self.receiver_rtt.handle_data(now, echo, elapsed, self.rtt.srtt(), self.send.acked_offset());
        Some(elapsed)
    }

    /// Retransmission timeout, with backoff.
    #[must_use]
    pub fn rto(&self) -> Duration {
        self.rtt.rto(&self.config)
    }

    /// Congestion window in bytes; at most [`MOST_WINDOW_BYTES`].
    #[must_use]
    #[inline]
    pub fn window_bytes(&self) -> u64 {
        self.controller.window_bytes().min(MOST_WINDOW_BYTES)
    }

    /// Slow-start threshold in bytes.
    #[must_use]
    pub fn ssthresh_bytes(&self) -> u64 {
        self.controller.ssthresh_bytes()
    }

    /// Bytes in flight: RFC 6675's pipe.
    #[must_use]
    #[inline]
    pub fn in_flight_bytes(&self) -> u64 {
        self.send.in_flight_bytes()
    }

    /// Bytes queued that have not left.
    #[must_use]
    pub fn unsent_bytes(&self) -> u64 {
        self.send.unsent_bytes()
    }

    /// Stream offset up to which the peer has acknowledged.
    #[inline]
    #[must_use]
    pub fn acked_offset(&self) -> u64 {
        self.send.acked_offset()
    }

    /// Stream offset up to which data has left.
    #[cfg(any(test, feature = "fuzzing"))]
    #[must_use]
    pub(crate) fn sent_offset(&self) -> u64 {
        self.send.sent_offset()
    }

    /// Stream offset after the last byte queued.
    #[must_use]
    pub fn enqueued_offset(&self) -> u64 {
        self.send.enqueued_offset()
    }

    /// The peer's FIN arrived, and everything before it.
    #[must_use]
    pub fn is_peer_finished(&self) -> bool {
        self.receive.is_finished()
    }

    /// Bytes that can be read.
    #[must_use]
    pub fn readable_bytes(&self) -> u64 {
        self.receive.readable_bytes()
    }

    /// Stream offset of the right edge of the peer's window: data before it may leave.
    #[cfg(test)]
    pub(crate) fn peer_window_end_offset(&self) -> u64 {
        self.send.window_end().saturating_sub(1)
    }

    /// The peer's last window, scaled.
    #[must_use]
    pub fn peer_window_bytes(&self) -> u64 {
        self.send.window_bytes()
    }

    /// Retransmission timeouts since the peer last acknowledged something new.
    #[must_use]
    pub fn consecutive_timeouts(&self) -> u8 {
        self.stall.timeouts()
    }

    /// When the last segment of the peer came.
    #[must_use]
    pub fn last_received_at(&self) -> Instant {
        self.keepalive.heard_at()
    }

    /// The peer has left all keep-alive probes unanswered: if the connection timed out, it was for that.
    #[must_use]
    pub fn has_left_keepalives_unanswered(&self) -> bool {
        self.keepalive.is_given_up(&self.config)
    }

    /// How long the peer has been silent although something was in flight; zero if nothing is.
    #[must_use]
    pub fn silent_for(&self, now: Instant) -> Duration {
        match self.send.board().front() {
            Some(oldest) if !self.send.is_idle() => now.since(self.keepalive.heard_at().max(oldest.at)),
            _ => Duration::ZERO,
        }
    }

    /// A loss is being repaired.
    #[must_use]
    pub fn in_recovery(&self) -> bool {
        self.recovery.is_active()
    }

    /// What was handed over and is not acknowledged as a whole, chunk by chunk: start offset, length, mapping, data.
    #[cfg(test)]
    pub(crate) fn mappings(&self) -> impl Iterator<Item = (u64, usize, M, &polypath_wire::Payload)> {
        self.send.mappings()
    }

    /// How much more could leave now: congestion window and peer window less what is in flight and what waits.
    #[must_use]
    pub fn window_room_bytes(&self) -> u64 {
        if !self.state().may_send() {
            return 0;
        }
        let by_congestion =
            self.send_window_bytes().saturating_sub(self.in_flight_bytes() + self.send.board().lost_bytes());
        let by_peer = self.send.window_room_bytes();
        by_congestion.min(by_peer).saturating_sub(self.unsent_bytes())
    }

    /// As [`Connection::window_room_bytes`], and a segment if a tail loss probe is about to leave: that had better be new data,
    /// whatever is in flight (RFC 8985 §7.3). For an owner that has no other path to send it on.
    #[must_use]
    pub fn window_or_probe_room_bytes(&self) -> u64 {
        let room = self.window_room_bytes();
        if !self.recovery.is_tail_probe_due() || self.unsent_bytes() > 0 {
            return room;
        }
        let by_peer = self.send.window_room_bytes();
        room.max(by_peer.min(self.segment_payload_bytes_with(0) as u64))
    }

    /// Payload of a full segment that leaves `option_bytes` for an extension's options. A window never holds a segment that is
    /// larger than it: half of the peer's largest is a full segment then, and two of them are acknowledged at once
    /// (RFC 9293 §3.8.6.2.1).
    #[must_use]
    #[inline]
    pub fn segment_payload_bytes_with(&self, option_bytes: usize) -> usize {
        let by_size = (self.mss_bytes() as usize).saturating_sub(self.padded_option_bytes(option_bytes));
        by_size.min(self.send.largest_window_bytes() as usize / 2).max(1)
    }

    /// All options of a segment with so many bytes of an extension's.
    #[inline]
    pub(super) fn padded_option_bytes(&self, extension_bytes: usize) -> usize {
        (self.handshake.timestamps().len_bytes() + extension_bytes).next_multiple_of(4)
    }

    /// What the options of a segment with data from `position` on need beside the timestamps.
    #[inline]
    pub(super) fn option_bytes_at<X: Extension<Mapping = M>>(&mut self, position: u64, ext: &X) -> usize {
        self.send
            .mapping_at(position)
            .map_or(0, |(mapping, is_start)| ext.data_option_bytes(&mapping, is_start))
    }

    /// Payload of a full segment with data from `position` on.
    #[inline]
    pub(super) fn segment_payload_bytes_at<X: Extension<Mapping = M>>(
        &mut self,
        position: u64,
        ext: &X,
    ) -> usize {
        let option_bytes = self.option_bytes_at(position, ext);
        self.segment_payload_bytes_with(option_bytes)
    }

    /// Sender maximum segment size without options (RFC 6691).
    #[inline]
    #[must_use]
    pub fn mss_bytes(&self) -> u32 {
        u32::from(self.mtu.mss_bytes())
    }

    /// What coupled congestion control sees of this flow.
    #[must_use]
    #[inline]
    pub fn flow_view(&self) -> FlowView {
        let (window_bytes, ssthresh) = (self.window_bytes(), self.controller.ssthresh_bytes());
        FlowView {
            window_bytes,
            mss_bytes: self.mss_bytes(),
            srtt: self.rtt.srtt(),
            min_rtt: self.rtt.min(),
            acked_since_loss_bytes: self.delivery.acked_since_loss(),
            acked_between_losses_bytes: self.delivery.acked_between_losses(),
            in_slow_start: window_bytes < ssthresh,
        }
    }

    /// Congestion control.
    #[must_use]
    pub fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// Everything that a TIME-WAIT record needs.
    #[must_use]
    pub fn time_wait_numbers(&self) -> TimeWaitNumbers {
        TimeWaitNumbers {
            snd_nxt: self.send.wire(self.send.next()),
            rcv_nxt: self.receive.wire_ack(),
            window: self.receive.field_of(self.own_window_bytes()),
            ts_recent: self.handshake.timestamps().is_on().then_some(self.handshake.timestamps().recent()),
            timestamp_offset: self.handshake.timestamps().offset(),
        }
    }

    /// How many segments have to overtake another for it to count as lost; none where time tells
    /// ([`LossDetection`](crate::LossDetection)).
    #[must_use]
    pub fn duplicate_threshold(&self) -> Option<u32> {
        self.recovery.counts_losses().then(|| self.recovery.duplicate_threshold())
    }

    /// State in numbers.
    #[must_use]
    pub fn info(&self) -> Info {
        Info {
            state: self.state(),
            congestion: Some(self.controller.name()),
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.variance(),
            min_rtt: self.rtt.min(),
            rcv_rtt: self.receiver_rtt.smoothed(),
            rcv_rtt_is_newer: self.receiver_rtt.is_newer(self.rtt.srtt(), self.acked_offset()),
            rto: self.rtt.rto(&self.config),
            cwnd_bytes: self.window_bytes(),
            ssthresh_bytes: self.controller.ssthresh_bytes(),
            in_flight_bytes: self.in_flight_bytes(),
            lost_bytes: self.send.board().lost_bytes(),
            sacked_bytes: self.send.board().sacked_bytes(),
            unsent_bytes: self.unsent_bytes(),
            peer_window_bytes: self.send.window_bytes(),
            mss_bytes: self.mss_bytes(),
            pmtu_bytes: u32::from(self.mtu.current_bytes()),
            bytes_acked: self.acked_offset(),
            bytes_received: self.receive.next(),
            bytes_sent: self.send.sent_bytes(),
            bytes_retrans: self.send.resent_bytes(),
            data_segs_out: self.send.sent_segments(),
            retransmits: self.send.resends(),
            timeouts: Some(self.recovery.timeouts()),
            recoveries: Some(self.recovery.recoveries()),
            spurious: Some(self.recovery.spurious()),
            dsacks: self.recovery.duplicates(),
            reordering_seen: self.recovery.reordering_seen(),
            pacing_rate: self.pacing_rate(),
            delivery_rate: self.delivery.rate(),
        }
    }
}
