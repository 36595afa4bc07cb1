use alloc::collections::VecDeque;

use polypath_units::{Duration, Instant};
use polypath_wire::{Packet, SackBlock, SackBlocks, Segment, SeqNumber};

use super::config::AckProxyConfig;
use crate::middlebox::flows::{segment, segment_mut};

/// Most segments beyond a gap that are kept.
const MAX_EARLY_SEGMENTS: usize = 256;
/// Retransmissions without any progress after which the receiver counts as gone.
const MAX_TIMEOUTS: u32 = 15;
/// Initial window in packets (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;

/// The data of one direction: what the box has acknowledged to its sender and now has to bring to its
/// receiver. A small TCP sender: slow start, congestion avoidance, NewReno, RTO with go-back-N.
#[derive(Debug)]
pub(super) struct Relay {
    config: AckProxyConfig,
    /// Next sequence number expected from the sender: all before is acknowledged to it.
    pub(super) expected: SeqNumber,
    /// Acknowledged by the receiver.
    unacknowledged: SeqNumber,
    /// After the last byte that was ever sent to the receiver.
    sent_end: SeqNumber,
    /// In sequence, from `unacknowledged` to `expected`.
    buffer: VecDeque<Packet>,
    buffered_bytes: usize,
    /// So many of `buffer` are with the receiver or on the way there.
    in_flight: usize,
    /// Segments beyond a gap, in sequence.
    early: VecDeque<Packet>,
    window_packets: f64,
    threshold_packets: f64,
    duplicate_acks: u32,
    /// Loss recovery lasts until this is acknowledged.
    recover: Option<SeqNumber>,
    smoothed_rtt: Option<Duration>,
    /// End and time of the transmission that is being timed.
    timed: Option<(SeqNumber, Instant)>,
    timeouts: u32,
    pub(super) deadline: Option<Instant>,
}

fn seq_of(packet: &Packet) -> SeqNumber {
    segment(packet).map_or(SeqNumber(0), |segment| segment.seq)
}

fn end_of(packet: &Packet) -> SeqNumber {
    segment(packet).map_or(SeqNumber(0), Segment::seq_end)
}

impl Relay {
    pub(super) fn new(first: SeqNumber, config: AckProxyConfig) -> Self {
        Self {
            config,
            expected: first,
            unacknowledged: first,
            sent_end: first,
            buffer: VecDeque::new(),
            buffered_bytes: 0,
            in_flight: 0,
            early: VecDeque::new(),
            window_packets: INITIAL_WINDOW,
            threshold_packets: f64::INFINITY,
            duplicate_acks: 0,
            recover: None,
            smoothed_rtt: None,
            timed: None,
            timeouts: 0,
            deadline: None,
        }
    }

    /// Bytes acknowledged to the sender, but not yet by the receiver.
    pub(super) fn owed_bytes(&self) -> u32 {
        self.expected.diff(self.unacknowledged) as u32
    }

    /// Bytes that the buffer has room for.
    pub(super) fn room_bytes(&self) -> usize {
        self.config.buffer_bytes.saturating_sub(self.buffered_bytes)
    }

    /// After the last byte that was ever sent to the receiver.
    pub(super) fn sent_end(&self) -> SeqNumber {
        self.sent_end
    }

    /// A segment with data or FIN from the sender. What is in sequence is in the box's care from here.
    pub(super) fn receive(&mut self, packet: Packet) {
        if seq_of(&packet).after(self.expected) {
            self.keep_early(packet);
            return;
        }
        self.take(packet);
        while let Some(next) = self.early.pop_front_if(|next| !seq_of(next).after(self.expected)) {
            self.take(next);
        }
    }

    fn take(&mut self, mut packet: Packet) {
        let Some(segment) = segment_mut(&mut packet) else { return };
        let known = self.expected.diff(segment.seq);
        if self.expected.diff(segment.seq_end()) >= 0 || segment.payload.len() > self.room_bytes() {
            return;
        }
        segment.payload.advance(known as usize);
        segment.seq = self.expected;
        self.expected = segment.seq_end();
        self.buffered_bytes += segment.payload.len();
        self.buffer.push_back(packet);
    }

    fn keep_early(&mut self, packet: Packet) {
        let seq = seq_of(&packet);
        let far = seq.diff(self.expected) as usize > self.config.buffer_bytes;
        if far || self.early.len() >= MAX_EARLY_SEGMENTS {
            return;
        }
        let at = self.early.partition_point(|other| seq_of(other).before(seq));
        if self
            .early
            .get(at)
            .is_none_or(|other| end_of(other).before(end_of(&packet)) || seq_of(other) != seq)
        {
            self.early.insert(at, packet);
        }
    }

    /// What the box has beyond gaps.
    pub(super) fn sack_blocks(&self, most: usize) -> SackBlocks {
        let mut blocks = SackBlocks::new();
        let most = most.min(blocks.capacity());
        for packet in &self.early {
            let (start, end) = (seq_of(packet), end_of(packet));
            if let Some(last) = blocks.last_mut().filter(|last| !start.after(last.end)) {
                last.end = last.end.max(end);
            } else if blocks.len() < most {
                blocks.push(SackBlock { start, end });
            }
        }
        blocks
    }

    /// The receiver acknowledges; `duplicate` if the segment can be a duplicate acknowledgment by its form.
    /// Returns a segment to send again at once.
    pub(super) fn acknowledge(&mut self, now: Instant, ack: SeqNumber, duplicate: bool) -> Option<Packet> {
        if ack.after(self.sent_end) || ack.before(self.unacknowledged) {
            return None;
        }
        if ack == self.unacknowledged {
            if !duplicate || self.in_flight == 0 {
                return None;
            }
            self.duplicate_acks += 1;
            if self.duplicate_acks != 3 || self.recover.is_some() {
                return None;
            }
            self.halve();
            self.window_packets = self.threshold_packets;
            self.recover = Some(self.sent_end);
            return self.again(now);
        }
        self.unacknowledged = ack;
        let mut acked: usize = 0;
        while let Some(packet) = self.buffer.pop_front_if(|packet| !end_of(packet).after(ack)) {
            self.buffered_bytes -= segment(&packet).map_or(0, |segment| segment.payload.len());
            acked += 1;
        }
        self.in_flight = self.in_flight.saturating_sub(acked);
        self.duplicate_acks = 0;
        self.timeouts = 0;
        if let Some((_, sent_at)) = self.timed.take_if(|(end, _)| !end.after(ack)) {
            let sample = now - sent_at;
            self.smoothed_rtt = Some(self.smoothed_rtt.map_or(sample, |srtt| (srtt * 7 + sample) / 8));
        }
        if self.window_packets < self.threshold_packets {
            self.window_packets += acked as f64;
        } else {
            self.window_packets += acked as f64 / self.window_packets;
        }
        self.deadline = (self.in_flight > 0).then(|| now + self.timeout());
        let recover = self.recover?;
        if ack.before(recover) {
            // A partial acknowledgment: the next one is lost as well (RFC 6582 §3.2).
            return self.again(now);
        }
        self.recover = None;
        None
    }

    /// The next segment for the receiver, if the congestion window has room.
    pub(super) fn next_to_send(&mut self, now: Instant) -> Option<Packet> {
        if self.in_flight as f64 >= self.window_packets {
            return None;
        }
        let packet = self.buffer.get(self.in_flight)?.clone();
        self.in_flight += 1;
        let end = end_of(&packet);
        if end.after(self.sent_end) {
            self.sent_end = end;
            if self.timed.is_none() {
                self.timed = Some((end, now));
            }
        }
        if self.deadline.is_none() {
            self.deadline = Some(now + self.timeout());
        }
        Some(packet)
    }

    /// The retransmission timer is due: everything is to be sent again. False if the receiver counts as gone.
    pub(super) fn time_out(&mut self) -> bool {
        self.halve();
        self.window_packets = 1.0;
        self.in_flight = 0;
        self.duplicate_acks = 0;
        self.recover = None;
        self.timed = None;
        self.timeouts += 1;
        self.deadline = None;
        self.timeouts <= MAX_TIMEOUTS
    }

    fn halve(&mut self) {
        self.threshold_packets = (self.in_flight as f64 / 2.0).max(2.0);
    }

    fn again(&mut self, now: Instant) -> Option<Packet> {
        // Karn's algorithm: what was sent twice is not timed.
        self.timed = None;
        self.deadline = Some(now + self.timeout());
        self.buffer.front().cloned()
    }

    fn timeout(&self) -> Duration {
        let base = self.smoothed_rtt.map_or(Duration::from_secs(1), |srtt| srtt * 2).max(self.config.min_rto);
        (base * (1 << self.timeouts.min(16))).min(Duration::from_secs(60))
    }
}
