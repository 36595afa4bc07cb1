//! What all subflows of a connection share.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use polypath_congestion::FlowView;
use polypath_units::{Duration, Instant};
use polypath_wire::{
    DataSeq, DssMapping, MpCapable, MpCapableKeys, MptcpOption, MptcpVersion, Payload, WireDataSeq,
    dss_checksum,
};

use crate::config::ConnectionConfig;
use crate::crypto::Key;
use crate::mapping::{Carried, Mapping, Numbers};
use crate::reassembly::Reassembly;
use crate::receive_window::{self, ReceiveWindow};
use crate::send_buffer::SendBuffer;
pub(crate) use crate::sent_chunk::SentChunk;
use crate::subflow::Stage;

/// State of the connection as a whole: keys, both data sequence spaces, the shared window.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Arc<ConnectionConfig>,
    pub(crate) is_client: bool,
    pub(crate) version: MptcpVersion,
    pub(crate) mode: Mode,
    /// The DSS checksum is in use.
    pub(crate) checksum: bool,
    /// The peer set flag C.
    pub(crate) no_join_initial: bool,
    /// A DSS arrived, or a join succeeded: the path lets options through (RFC 8684 §3.1, §3.7).
    pub(crate) confirmed: bool,
    pub(crate) local_key: Key,
    pub(crate) remote_key: Option<Key>,
    pub(crate) local_token: u32,
    pub(crate) remote_token: u32,

    pub(crate) send: SendBuffer,
    /// Data sent and not data-acknowledged, in order.
    pub(crate) sent: VecDeque<SentChunk>,
    /// Right edge of the peer's window.
    pub(crate) window_end: DataSeq,
    /// The largest window of the peer.
    pub(crate) most_peer_window_bytes: u64,
    /// How long the numbers of a DSS are now.
    pub(crate) numbers: Numbers,
    pub(crate) pace: Pace,
    /// The application will write no more.
    pub(crate) write_closed: bool,
    /// Number of our DATA_FIN, once all data has been sent.
    pub(crate) data_fin: Option<DataSeq>,
    pub(crate) data_fin_acked: bool,

    pub(crate) receive_next: DataSeq,
    /// Data in order that the application has not read.
    pub(crate) in_order: VecDeque<Payload>,
    pub(crate) unread_bytes: u64,
    pub(crate) reassembly: Reassembly,
    pub(crate) receive_window: ReceiveWindow,
    /// The largest window of ours when data came.
    pub(crate) most_window_bytes: u64,
    /// Number of the peer's DATA_FIN.
    pub(crate) peer_fin: Option<DataSeq>,
    /// Everything up to the peer's end of stream has arrived.
    pub(crate) peer_finished: bool,
    /// The peer's DATA_FIN arrived before ours was sent: TIME-WAIT is the peer's.
    pub(crate) peer_fin_first: bool,
    /// The application reads no more: what arrives is dropped.
    pub(crate) discard: bool,
    /// Something was, and the peer is to know.
    pub(crate) discarded: bool,

    /// A mid-connection fallback: where in the subflow the endless mapping starts. Sent until acknowledged.
    pub(crate) infinite_mapping: Option<InfiniteMapping>,
    /// MP_FASTCLOSE goes with every RST.
    pub(crate) fastclose: bool,
    /// Subflows by position, for coupled congestion control.
    pub(crate) views: Vec<FlowView>,
}

/// What the connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// The first handshake is not complete.
    Negotiating,
    Mptcp,
    /// TCP: one subflow, no second sequence space.
    Plain,
}

/// "From this subflow offset on, everything is data from this number on" (RFC 8684 §3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InfiniteMapping {
    pub(crate) data_seq: DataSeq,
    /// Stream offset; one more on the wire.
    pub(crate) offset: u64,
    /// When the peer has acknowledged the subflow up to here, it has seen the mapping.
    pub(crate) seen_at: u64,
    /// Not retroactive: data begins anew at `offset`. Each segment then says where itself belongs, for a middlebox that
    /// changes lengths shifts offsets, but not what a segment says of its own first byte.
    pub(crate) anew: bool,
}

/// A mapping with a checksum is this share of the largest window of the peer at the most, but may be [`LEAST_SUMMED_BYTES`] long: one
/// segment.
const SUMMED_WINDOW_SHARE: u64 = 8;
const LEAST_SUMMED_BYTES: u64 = 1500;

impl Shared {
    pub(crate) fn new(
        config: Arc<ConnectionConfig>,
        is_client: bool,
        version: MptcpVersion,
        local_key: Key,
        mode: Mode,
    ) -> Self {
        let (local_token, local_idsn) = local_key.derive(version);
        let first = local_idsn.add(1);
        Self {
            is_client,
            version,
            mode,
            checksum: false,
            no_join_initial: false,
            confirmed: false,
            local_key,
            remote_key: None,
            local_token,
            remote_token: 0,
            send: SendBuffer::new(first),
            sent: VecDeque::new(),
            window_end: first,
            most_peer_window_bytes: 0,
            numbers: Numbers::default(),
            pace: Pace { since: Instant::ZERO, from: first, was_fast: false },
            write_closed: false,
            data_fin: None,
            data_fin_acked: false,
            receive_next: DataSeq(0),
            in_order: VecDeque::new(),
            unread_bytes: 0,
            reassembly: Reassembly::default(),
            receive_window: ReceiveWindow::default(),
            most_window_bytes: 0,
            peer_fin: None,
            peer_finished: false,
            peer_fin_first: false,
            discard: false,
            discarded: false,
            infinite_mapping: None,
            fastclose: false,
            views: Vec::new(),
            config,
        }
    }

    /// The window to advertise: relative to the next data expected, the same on every subflow (RFC 8684 §3.3.4).
    pub(crate) fn receive_window_bytes(&self) -> u64 {
        self.receive_edge().diff(self.receive_next).max(0) as u64
    }

    /// Right edge of our window. It never moves back.
    pub(crate) fn receive_edge(&self) -> DataSeq {
        let buffer = self.receive_buffer();
        if self.config.receive_autotuning {
            self.receive_window.edge(buffer)
        } else {
            buffer.next.add(buffer.cap_bytes.saturating_sub(buffer.unread_bytes))
        }
    }

    /// Up to where data is taken: what was promised once may be used later. Linux goes by the DATA_ACK of a segment and the window of
    /// an older one, where TCP does not take that of the segment for newer (RFC 9293 §3.10.7.4), and sends beyond our edge. TCP has
    /// acknowledged such data, so that it would come again only by and by, for each piece after a timeout of the connection.
    pub(crate) fn taken_edge(&self) -> DataSeq {
        self.receive_edge().max(self.receive_next.add(self.most_window_bytes))
    }

    pub(crate) fn receive_buffer(&self) -> receive_window::Buffer {
        receive_window::Buffer {
            next: self.receive_next,
            unread_bytes: self.unread_bytes,
            cap_bytes: self.config.tcp.receive_buffer_bytes,
        }
    }

    /// Most data of one mapping: no more than leaves as one segment, or else each is followed by a small one. With a checksum, the peer
    /// holds all of it before it can deliver any, and a buffer that is too short for that, what it needs for its bookkeeping
    /// included, would never be empty again.
    pub(crate) fn most_mapped_bytes(&self) -> u64 {
        let (mapping, aggregate) = (self.config.max_mapping_bytes, self.config.tcp.max_aggregate_bytes);
        let aggregate = if aggregate == 0 { u64::MAX } else { aggregate.min(65_000).into() };
        let gathered = match self.checksum {
            true => (self.most_peer_window_bytes / SUMMED_WINDOW_SHARE).max(LEAST_SUMMED_BYTES),
            false => u64::MAX,
        };
        u64::from(mapping).min(aggregate).min(gathered).max(1)
    }

    pub(crate) fn flags(&self) -> u8 {
        capable_flags(&self.config, self.checksum)
    }

    pub(super) fn capable(&self, keys: MpCapableKeys) -> MptcpOption {
        let version = match self.version {
            MptcpVersion::V0 => 0,
            MptcpVersion::V1 => 1,
        };
        MptcpOption::Capable(MpCapable { version, flags: self.flags(), keys })
    }

    pub(super) fn both_keys(&self) -> (u64, u64) {
        (self.local_key.0, self.remote_key.map_or(0, |key| key.0))
    }

    /// The number of the first byte that this end sends (RFC 8684 §3.1).
    pub(super) fn first_data_seq(&self) -> DataSeq {
        let (_, idsn) = self.local_key.derive(self.version);
        idsn.add(1)
    }

    /// Bytes of option space that the data segments of this mapping need beside the timestamps, the first or the others.
    pub(super) fn data_option_bytes(&self, stage: Stage, mapping: &Mapping, is_start: bool) -> usize {
        match stage {
            Stage::Plain if self.infinite_mapping.is_none() => 0,
            Stage::Established => mapping.dss_bytes(is_start),
            _ => MOST_DATA_OPTION_BYTES,
        }
    }

    /// A mapping that is carried so, without its place.
    pub(super) fn mapping(&self, carried: Carried) -> Mapping {
        let checksum = self.checksum.then_some(0);
        Mapping { checksum, carried, numbers: self.numbers, ..Mapping::default() }
    }

    /// DATA_ACK, by default in its 4-byte form, which leaves a data segment four bytes more.
    pub(super) fn data_ack(&self) -> WireDataSeq {
        self.numbers.ack(self.receive_next)
    }

    /// A data sequence number has 8 bytes where the lower 4 might come around while a segment lives (RFC 8684 §3.3.1).
    pub(super) fn choose_numbers(&mut self, now: Instant) {
        let next = self.send.next();
        if now.since(self.pace.since) >= MAX_SEGMENT_LIFETIME {
            self.pace = Pace { since: now, from: next, was_fast: self.pace.is_fast(next) };
        }
        self.numbers.is_seq_short = !self.pace.was_fast && !self.pace.is_fast(next);
    }

    /// Our DATA_FIN, while it is unacknowledged: a mapping of one number and no payload (RFC 8684 §3.3.3).
    pub(super) fn fin_mapping(&self) -> Option<DssMapping> {
        let seq = self.data_fin.filter(|_| !self.data_fin_acked)?;
        let checksum = self.checksum.then(|| dss_checksum(seq, 0, 1, &Payload::EMPTY));
        let data_seq = self.numbers.seq(seq, seq);
        Some(DssMapping { data_seq, subflow_offset: 0, len: 1, checksum })
    }
}

/// Flags of an MP_CAPABLE from an end with this configuration; with `checksum` its peer requires the checksum.
pub(crate) fn capable_flags(config: &ConnectionConfig, checksum: bool) -> u8 {
    let mut flags = MpCapable::HMAC;
    if checksum || config.checksum {
        flags |= MpCapable::CHECKSUM;
    }
    if config.no_join_initial {
        flags |= MpCapable::NO_JOIN_INITIAL_ADDRESS;
    }
    flags
}

/// A segment may live so long in the network (RFC 9293 §3.4.1).
const MAX_SEGMENT_LIFETIME: Duration = Duration::from_secs(120);
/// With less than this in each of two such times, 4-byte numbers do not come around in any.
const MOST_SHORT_BYTES: i64 = 1 << 30;

/// How much was sent in a segment's lifetime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    since: Instant,
    from: DataSeq,
    /// It was too much for 4-byte numbers in the lifetime before.
    was_fast: bool,
}

impl Pace {
    const fn is_fast(&self, next: DataSeq) -> bool {
        next.diff(self.from) >= MOST_SHORT_BYTES
    }
}

/// What the options of a data segment need at most beside the timestamps until the first DSS of the peer has come: MP_CAPABLE with
/// keys, length and checksum, or a DSS with a 4-byte DATA_ACK, an 8-byte number and a checksum.
pub(super) const MOST_DATA_OPTION_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_long_while_short_ones_could_come_around() {
        let mut shared = Shared::new(Arc::default(), true, MptcpVersion::V1, Key(7), Mode::Mptcp);
        let block = bytes::Bytes::from(alloc::vec![0; 1 << 20]);
        let mut is_short_after = |seconds: u64, megabytes: u64| {
            for _ in 0..megabytes {
                shared.send.push(block.clone());
                shared.send.take_new(1 << 20);
                let next = shared.send.next();
                shared.send.acknowledge(next);
            }
            shared.choose_numbers(Instant::from_secs(seconds));
            shared.numbers.is_seq_short
        };
        assert!(is_short_after(1000, 1));
        assert!(is_short_after(1100, 1000));
        assert!(!is_short_after(1101, 1000));
        assert!(!is_short_after(1120, 0), "the lifetime before was too fast");
        assert!(!is_short_after(1239, 0));
        assert!(is_short_after(1240, 0));
    }
}
