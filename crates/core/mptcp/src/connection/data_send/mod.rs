//! What this end sends: data by its numbers, what the peer has of it, and its end (RFC 8684 §3.3.1 to §3.3.4, §3.3.6).

mod chunks;
mod pace;
mod reinjections;

use alloc::collections::VecDeque;

use bytes::Bytes;
use polypath_units::{Duration, Instant};
use polypath_wire::{DataSeq, DssMapping, Payload, dss_checksum};

use crate::config::ConnectionConfig;
use crate::identifiers::SubflowId;
use crate::mapping::{Mapping, Numbers, Repetition};
use crate::misbehaviour::Misbehaviour;
use crate::receive_window::most_under_way_bytes;
use crate::send_buffer::SendBuffer;
use crate::sent_chunk::SentChunk;

use pace::Pace;
pub(super) use reinjections::Reinjection;
use reinjections::Reinjections;

const MIN_DATA_FIN_INTERVAL: Duration = Duration::from_millis(200);
const MAX_DATA_FIN_INTERVAL: Duration = Duration::from_secs(10);

/// Least wait for a DATA_ACK of data that a subflow delivered. A peer may acknowledge data later than segments.
const MIN_DATA_RETRANSMIT: Duration = Duration::from_millis(200);
const MAX_DATA_RETRANSMIT: Duration = Duration::from_secs(10);

/// A mapping with a checksum is this share of the largest window of the peer at the most, but may be [`LEAST_SUMMED_BYTES`] long: one
/// segment.
const SUMMED_WINDOW_SHARE: u64 = 8;
const LEAST_SUMMED_BYTES: u64 = 1500;

/// What a send buffer has room for behind what is under way, however small the windows.
const LEAST_SEND_BYTES: u64 = 1 << 20;

/// After so many losses above the subflows, something on the way merges segments and drops their mappings.
const DATA_LEVEL_LOSSES: u32 = 2;

/// The send half of a connection.
#[derive(Debug)]
pub(super) struct DataSend {
    buffer: SendBuffer,
    /// Data sent and not data-acknowledged, in order.
    sent: VecDeque<SentChunk>,
    /// Data that goes out again on another subflow.
    reinjections: Reinjections,
    /// Right edge of the peer's window.
    window_end: DataSeq,
    /// The largest window of the peer.
    most_peer_window_bytes: u64,
    pace: Pace,
    /// How long the numbers of a DSS are now.
    numbers: Numbers,
    /// Number of our DATA_FIN, once all data has been sent.
    fin: Option<DataSeq>,
    /// It is sent again then.
    fin_at: Instant,
    fin_interval: Duration,
    /// Data that a subflow delivered is still not data-acknowledged.
    retransmit_at: Instant,
    retransmit_interval: Duration,
    /// How often data was lost above the subflows.
    losses: u32,
    is_fin_acked: bool,
    is_writable_wanted: bool,
}

/// What a DATA_ACK said that was not known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DataAcked {
    /// The send buffer has more room.
    pub(super) frees: bool,
    /// The peer has our DATA_FIN.
    pub(super) fin: bool,
}

impl DataSend {
    /// Data begins with the number `first`.
    pub(super) fn new(first: DataSeq) -> Self {
        Self {
            buffer: SendBuffer::new(first),
            sent: VecDeque::new(),
            reinjections: Reinjections::default(),
            window_end: first,
            most_peer_window_bytes: 0,
            pace: Pace::new(first),
            numbers: Numbers::default(),
            fin: None,
            fin_at: Instant::FAR_FUTURE,
            fin_interval: Duration::ZERO,
            retransmit_at: Instant::FAR_FUTURE,
            retransmit_interval: Duration::ZERO,
            losses: 0,
            is_fin_acked: false,
            is_writable_wanted: false,
        }
    }

    // ---- the application

    /// Queues what there is room for; returns how much.
    #[inline]
    pub(super) fn write(&mut self, mut data: Bytes, room_bytes: u64) -> usize {
        if (room_bytes as usize) < data.len() {
            self.is_writable_wanted = true;
            data.truncate(room_bytes as usize);
        }
        let taken = data.len();
        self.buffer.push(data);
        taken
    }

    /// It wants to know when there is room.
    pub(super) fn want_writable(&mut self) {
        self.is_writable_wanted = true;
    }

    /// It has more than the buffer took.
    #[inline]
    pub(super) const fn wants_writable(&self) -> bool {
        self.is_writable_wanted
    }

    /// There is room again for whoever waits for it, once, in a buffer of this size.
    #[inline]
    pub(super) fn poll_writable(&mut self, limit_bytes: u64) -> bool {
        let room = limit_bytes.saturating_sub(self.buffer.len_bytes());
        let is_writable =
            self.is_writable_wanted && room * 3 >= limit_bytes.saturating_sub(self.under_way_bytes());
        self.is_writable_wanted &= !is_writable;
        is_writable
    }

    /// How much the buffer may hold: what is under way, and behind it what two round trips will take, or half of what the peer lets come
    /// at once, and no more than the path could hold. More would only wait here instead of in the application.
    #[inline]
    pub(super) fn limit_bytes(
        &self,
        config: &ConnectionConfig,
        longest_min_rtt: Duration,
        windows_bytes: u64,
    ) -> u64 {
        // Before the first sample nothing says how long the path is.
        let by_path =
            if longest_min_rtt.is_zero() { u64::MAX } else { most_under_way_bytes(longest_min_rtt) };
        let most = config.tcp.send_buffer_bytes.min(by_path);
        let peer_takes = self.window_end.diff(self.una()).max(0) as u64;
        most.min(self.under_way_bytes() + (2 * windows_bytes).min(peer_takes / 2).max(LEAST_SEND_BYTES))
    }

    // ---- what the peer says

    /// Its window when the connection opened.
    pub(super) fn handle_open(&mut self, window_bytes: u64) {
        self.most_peer_window_bytes = window_bytes;
        self.window_end = self.una().add(window_bytes);
    }

    /// DATA_ACK, and the window of the segment that brought it, which holds relative to it and whose right edge never moves back
    /// (RFC 8684 §3.3.4).
    #[inline]
    pub(super) fn handle_data_ack(
        &mut self,
        until: DataSeq,
        window_bytes: u64,
    ) -> Result<DataAcked, Misbehaviour> {
        let mut acked = DataAcked::default();
        let mut data_until = until;
        if let Some(fin) = self.fin
            && until == fin.add(1)
        {
            data_until = fin;
            acked.fin = !core::mem::replace(&mut self.is_fin_acked, true);
            if acked.fin {
                self.fin_at = Instant::FAR_FUTURE;
            }
        }
        if data_until.after(self.next()) {
            return Err(Misbehaviour::DataAckOfUnsent);
        }
        self.most_peer_window_bytes = self.most_peer_window_bytes.max(window_bytes);
        self.window_end = self.window_end.max(until.add(window_bytes));
        if self.buffer.acknowledge(data_until) > 0 {
            self.retransmit_interval = Duration::ZERO;
            chunks::drop_before(&mut self.sent, data_until);
            acked.frees = true;
        }
        Ok(acked)
    }

    /// After a fallback the one subflow acknowledges: so many bytes of its stream. True if the buffer has more room.
    #[inline]
    pub(super) fn handle_subflow_ack(&mut self, acked: u64) -> bool {
        let until = chunks::deliver_in_order(&mut self.sent, self.buffer.start(), acked);
        let frees = self.buffer.acknowledge(until) > 0;
        if frees {
            chunks::drop_before(&mut self.sent, until);
        }
        frees
    }

    /// The peer's data sequence numbers have 8 bytes, and so do the DATA_ACKs that it gets (RFC 8684 §3.3.2).
    #[inline]
    pub(super) fn handle_number_len(&mut self, is_long: bool) {
        self.numbers.is_ack_full = is_long;
    }

    // ---- numbers and room

    /// First byte that is not data-acknowledged.
    #[inline]
    pub(super) fn una(&self) -> DataSeq {
        self.buffer.start()
    }

    /// First byte never sent.
    #[inline]
    pub(super) fn next(&self) -> DataSeq {
        self.buffer.next()
    }

    /// Sent, and not data-acknowledged.
    #[inline]
    pub(super) fn under_way_bytes(&self) -> u64 {
        self.next().diff(self.una()) as u64
    }

    /// Written, and never sent.
    #[inline]
    pub(super) fn unsent_bytes(&self) -> u64 {
        self.buffer.unsent_bytes()
    }

    /// Written, and not data-acknowledged.
    #[inline]
    pub(super) fn len_bytes(&self) -> u64 {
        self.buffer.len_bytes()
    }

    /// How much data never sent before the peer's window takes.
    #[inline]
    pub(super) fn window_room_bytes(&self) -> u64 {
        self.window_end.diff(self.next()).max(0) as u64
    }

    /// The largest window that the peer has shown.
    pub(super) const fn most_peer_window_bytes(&self) -> u64 {
        self.most_peer_window_bytes
    }

    /// How long the numbers of a DSS are now.
    #[inline]
    pub(super) const fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// A data sequence number has 8 bytes where the lower 4 might come around while a segment lives (RFC 8684 §3.3.1).
    #[inline]
    pub(super) fn choose_numbers(&mut self, now: Instant) {
        self.numbers.is_seq_short = self.pace.allows_short(now, self.buffer.next());
    }

    /// A mapping that is carried so, without its place.
    #[inline]
    pub(super) fn mapping(&self, has_checksum: bool, repetition: Repetition) -> Mapping {
        let checksum = has_checksum.then_some(0);
        Mapping { checksum, repetition, numbers: self.numbers, ..Mapping::default() }
    }

    /// Most data of one mapping: no more than leaves as one segment, or else each is followed by a small one. With a checksum, the peer
    /// holds all of it before it can deliver any, and a buffer that is too short for that, what it needs for its bookkeeping
    /// included, would never be empty again.
    #[inline]
    pub(super) fn most_mapped_bytes(&self, config: &ConnectionConfig, has_checksum: bool) -> u64 {
        let (mapping, aggregate) = (config.max_mapping_bytes, config.tcp.max_aggregate_bytes);
        let aggregate = if aggregate == 0 { u64::MAX } else { aggregate.min(65_000).into() };
        let gathered = match has_checksum {
            true => (self.most_peer_window_bytes / SUMMED_WINDOW_SHARE).max(LEAST_SUMMED_BYTES),
            false => u64::MAX,
        };
        u64::from(mapping).min(aggregate).min(gathered).max(1)
    }

    // ---- data for subflows

    /// What was sent and is not data-acknowledged, in order.
    #[inline]
    pub(super) const fn sent(&self) -> &VecDeque<SentChunk> {
        &self.sent
    }

    /// Takes up to `count` bytes never sent; [`DataSend::handle_sent`] says where they went.
    #[inline]
    pub(super) fn take_new(&mut self, count: u64) -> Payload {
        self.buffer.take_new(count as usize)
    }

    /// What [`DataSend::take_new`] took went to a subflow, up to this offset of its stream.
    #[inline]
    pub(super) fn handle_sent(&mut self, seq: DataSeq, len: u32, subflow: SubflowId, end_offset: u64) {
        self.sent.push_back(SentChunk { seq, len, subflow, queued: false, again: false, end_offset });
    }

    /// Up to `count` bytes from `seq` on that were sent before; [`DataSend::handle_sent_again`] says where they went.
    pub(super) fn slice(&self, seq: DataSeq, count: u64) -> Payload {
        self.buffer.slice(seq, count as usize)
    }

    /// What was sent before went to a subflow, up to this offset of its stream.
    pub(super) fn handle_sent_again(
        &mut self,
        seq: DataSeq,
        len_bytes: u64,
        subflow: SubflowId,
        end_offset: u64,
    ) {
        chunks::take_over(&mut self.sent, seq, seq.add(len_bytes), subflow, end_offset);
    }

    /// All that is not data-acknowledged counts as never sent (fallback). Returns its first number.
    pub(super) fn rewind(&mut self) -> DataSeq {
        let una = self.una();
        self.buffer.rewind(una);
        self.sent.clear();
        una
    }

    /// Where data number `wanted` is on a subflow that was given so many bytes, if everything sent from it on follows it there in one
    /// piece, and was never anywhere else: a copy is behind what the peer could not verify, so the peer would take its place for that of
    /// the mapping itself (see [`InfiniteMapping`](super::infinite_mapping::InfiniteMapping)).
    pub(super) fn place_on(
        &self,
        id: SubflowId,
        enqueued_offset: u64,
        wanted: DataSeq,
    ) -> Option<(DataSeq, u64)> {
        let end = self.next();
        if self.sent.is_empty() {
            return (wanted == end).then_some((end, enqueued_offset));
        }
        let mut expected: Option<(DataSeq, u64)> = None;
        let mut first = None;
        for chunk in self.sent.iter().filter(|chunk| chunk.end().after(wanted)) {
            let start_offset = chunk.end_offset.checked_sub(u64::from(chunk.len))?;
            if chunk.subflow != id
                || chunk.again
                || expected.is_some_and(|at| at != (chunk.seq, start_offset))
            {
                return None;
            }
            first.get_or_insert((chunk.seq, start_offset));
            expected = Some((chunk.end(), chunk.end_offset));
        }
        let (seq, offset) = first?;
        let (last_seq, last_offset) = expected?;
        let ahead = wanted.diff(seq);
        let complete = last_seq == end && last_offset == enqueued_offset && ahead >= 0;
        complete.then(|| (wanted, offset + ahead as u64))
    }

    // ---- what goes out again

    /// A subflow that acknowledged `acked` bytes of its stream timed out, or is gone: what it holds goes out on another.
    pub(super) fn reinject_from(&mut self, id: SubflowId, acked: u64, is_gone: bool) {
        for chunk in &mut self.sent {
            if chunk.subflow == id && !chunk.queued && (is_gone || chunk.end_offset > acked) {
                chunk.queued = true;
                self.reinjections.push(chunk.seq, chunk.len, (!is_gone).then_some(id));
            }
        }
    }

    /// What its subflow delivered and nobody data-acknowledged goes out again, from the first byte on to the first that `is_delivered`
    /// does not hold of. True if there was any.
    pub(super) fn reinject_delivered(&mut self, is_delivered: impl Fn(&SentChunk) -> bool) -> bool {
        let mut is_lost = false;
        for chunk in &mut self.sent {
            if chunk.queued || !is_delivered(chunk) {
                break;
            }
            is_lost = true;
            chunk.queued = true;
            self.reinjections.push(chunk.seq, chunk.len, None);
        }
        if is_lost {
            // What went beyond the window only asked for it.
            self.losses += u32::from(!self.next().after(self.window_end));
        }
        is_lost
    }

    /// Bytes that wait to go out again.
    #[inline]
    pub(super) const fn reinjection_bytes(&self) -> u64 {
        self.reinjections.bytes()
    }

    /// What goes first.
    #[inline]
    pub(super) fn reinjection(&self) -> Option<Reinjection> {
        self.reinjections.front().copied()
    }

    /// Its first `count` bytes go out again.
    pub(super) fn take_reinjection(&mut self, count: u64) {
        self.reinjections.take_front(count as u32);
    }

    /// What was data-acknowledged in the meantime waits no more.
    #[inline]
    pub(super) fn drop_stale_reinjections(&mut self) {
        let una = self.una();
        while let Some(front) = self.reinjections.front().copied() {
            let stale = una.diff(front.seq);
            if stale <= 0 {
                break;
            }
            self.reinjections.take_front(u32::try_from(stale).unwrap_or(u32::MAX).min(front.len));
        }
    }

    /// Data was lost above the subflows.
    #[inline]
    pub(super) const fn has_lost(&self) -> bool {
        self.losses > 0
    }

    /// So often that something on the way seems to merge segments and to drop their mappings.
    #[inline]
    pub(super) const fn are_mappings_dropped(&self) -> bool {
        self.losses > DATA_LEVEL_LOSSES
    }

    // ---- DATA_FIN

    /// All is sent: DATA_FIN follows. False if it has before.
    pub(super) fn finish(&mut self) -> bool {
        if self.fin.is_some() {
            return false;
        }
        self.fin = Some(self.buffer.end());
        self.fin_interval = Duration::ZERO;
        true
    }

    /// Our DATA_FIN has left.
    pub(super) const fn is_finishing(&self) -> bool {
        self.fin.is_some()
    }

    /// The peer has it.
    #[inline]
    pub(super) const fn is_fin_acked(&self) -> bool {
        self.is_fin_acked
    }

    /// DATA_FIN leaves now if it is not acknowledged, and again after the slowest subflow's timeout at the least. Says whether this is
    /// the first time.
    pub(super) fn poll_fin(&mut self, now: Instant, slowest_rto: impl Fn() -> Duration) -> Option<bool> {
        self.fin_at = Instant::FAR_FUTURE;
        if self.fin.is_none() || self.is_fin_acked {
            return None;
        }
        let is_first = self.fin_interval.is_zero();
        let wait = self.fin_interval.max(slowest_rto()).max(MIN_DATA_FIN_INTERVAL).min(MAX_DATA_FIN_INTERVAL);
        self.fin_interval = wait * 2;
        self.fin_at = now + wait;
        Some(is_first)
    }

    /// Our DATA_FIN, while it is unacknowledged: a mapping of one number and no payload (RFC 8684 §3.3.3).
    pub(super) fn fin_mapping(&self, has_checksum: bool) -> Option<DssMapping> {
        let seq = self.fin.filter(|_| !self.is_fin_acked)?;
        let checksum = has_checksum.then(|| dss_checksum(seq, 0, 1, &Payload::EMPTY));
        let data_seq = self.numbers.seq(seq, seq);
        Some(DssMapping { data_seq, subflow_offset: 0, len: 1, checksum })
    }

    // ---- timers

    /// Data was sent and delivered by its subflow, but is not data-acknowledged: it is sent again if that lasts.
    #[inline]
    pub(super) fn watch_delivery(
        &mut self,
        now: Instant,
        is_delivered: impl Fn(&SentChunk) -> bool,
        slowest_srtt: impl Fn() -> Duration,
    ) {
        let is_stuck = self.sent.front().is_some_and(|front| !front.queued && is_delivered(front));
        if !is_stuck {
            self.retransmit_at = Instant::FAR_FUTURE;
        } else if self.retransmit_at == Instant::FAR_FUTURE {
            self.retransmit_after(now, slowest_srtt());
        }
    }

    /// The next look at it. Returns when that is.
    pub(super) fn retransmit_after(&mut self, now: Instant, slowest_srtt: Duration) -> Instant {
        let wait = self.retransmit_interval.max((slowest_srtt * 2).max(MIN_DATA_RETRANSMIT));
        self.retransmit_interval = (wait * 2).min(MAX_DATA_RETRANSMIT);
        self.retransmit_at = now + wait;
        self.retransmit_at
    }

    /// Data is to be sent again; once.
    pub(super) fn take_retransmit(&mut self, now: Instant) -> bool {
        let is_due = self.retransmit_at <= now;
        if is_due {
            self.retransmit_at = Instant::FAR_FUTURE;
        }
        is_due
    }

    /// DATA_FIN is to be sent again.
    pub(super) fn is_fin_due(&self, now: Instant) -> bool {
        self.fin_at <= now
    }

    #[inline]
    pub(super) fn next_timeout(&self) -> Instant {
        self.fin_at.min(self.retransmit_at)
    }

    // ---- the end

    /// The handshake shows that the peer takes no DATA_FIN.
    pub(super) fn forget_fin(&mut self) {
        self.fin = None;
        self.fin_at = Instant::FAR_FUTURE;
        self.reinjections = Reinjections::default();
    }

    /// Data has no numbers for the peer any more, but those of an infinite mapping.
    pub(super) fn become_plain(&mut self) {
        self.forget_fin();
        self.retransmit_at = Instant::FAR_FUTURE;
    }

    /// The connection is over: nothing is sent again.
    pub(super) fn stop(&mut self) {
        self.fin_at = Instant::FAR_FUTURE;
        self.fin_interval = Duration::ZERO;
        self.retransmit_at = Instant::FAR_FUTURE;
        self.retransmit_interval = Duration::ZERO;
        self.reinjections = Reinjections::default();
        self.sent.clear();
    }
}
