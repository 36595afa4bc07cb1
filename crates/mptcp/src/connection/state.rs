//! What all subflows of a connection share, and the options that follow from it.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use polypath_congestion::{FlowView, Flows};
use polypath_tcp::{Extension, OptionSpace, Outgoing, OutgoingKind};
use polypath_units::{Duration, Instant};
use polypath_wire::{
    DataSeq, Dss, DssMapping, MpCapable, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, Payload,
    WireDataSeq, dss_checksum,
};

use crate::config::ConnectionConfig;
use crate::crypto::{Key, join_hmac, truncated};
use crate::mapping::{Carried, Mapping, Numbers};
use crate::reassembly::Reassembly;
use crate::receive_window::{self, ReceiveWindow};
use crate::send_buffer::SendBuffer;
use crate::subflow::{Meta, Stage};

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

/// Data that a subflow was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentChunk {
    pub(crate) seq: DataSeq,
    pub(crate) len: u32,
    /// Which subflow had it last.
    pub(crate) subflow: u8,
    /// It waits in the reinjection queue.
    pub(crate) queued: bool,
    /// It was sent more than once, so this is not the first place where the peer has seen it.
    pub(crate) again: bool,
    /// The subflow's stream offset after its last byte.
    pub(crate) end_offset: u64,
}

impl SentChunk {
    pub(crate) const fn end(&self) -> DataSeq {
        self.seq.add(self.len as u64)
    }
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

    fn capable(&self, keys: MpCapableKeys) -> MptcpOption {
        let version = match self.version {
            MptcpVersion::V0 => 0,
            MptcpVersion::V1 => 1,
        };
        MptcpOption::Capable(MpCapable { version, flags: self.flags(), keys })
    }

    fn both_keys(&self) -> (u64, u64) {
        (self.local_key.0, self.remote_key.map_or(0, |key| key.0))
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
    fn data_ack(&self) -> WireDataSeq {
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
    fn fin_mapping(&self) -> Option<DssMapping> {
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

/// A subflow's option writer: lent to its TCP connection for the length of a call.
pub(crate) struct SubflowExtension<'a> {
    pub(crate) shared: &'a mut Shared,
    pub(crate) meta: &'a mut Meta,
    /// Position of the subflow in [`Shared::views`].
    pub(crate) position: usize,
}

impl Extension for SubflowExtension<'_> {
    type Mapping = Mapping;

    fn data_option_bytes(&self, mapping: &Mapping, is_start: bool) -> usize {
        self.shared.data_option_bytes(self.meta.stage, mapping, is_start)
    }

    fn receive_window_bytes(&self, _own_bytes: u64) -> u64 {
        self.shared.receive_window_bytes()
    }

    fn flows<'a>(&'a self, own: &'a FlowView) -> Flows<'a> {
        if self.shared.views.len() < 2 {
            return Flows::single(own);
        }
        Flows { all: &self.shared.views, own: self.position }
    }

    /// The one place that decides which Multipath TCP options a segment carries. In order of precedence: what the
    /// handshake needs; on a reset, the reason; on a segment with data, no more than the DSS that its mapping asks for, so that its
    /// size holds; on an acknowledgment, one signal (it may take the place of the timestamps), then the DSS, with DATA_FIN where that
    /// is due or no SACK block waits, then more signals.
    fn write_options(&mut self, segment: &Outgoing<Mapping>, space: &mut OptionSpace<'_>) {
        // What does not fit is left out: the tests of this function show that what matters fits.
        let _fits = match (self.meta.stage, segment.kind) {
            (Stage::Plain, OutgoingKind::Data) => self.write_infinite_mapping(segment.mapping, space),
            (Stage::Plain, OutgoingKind::Ack) => {
                self.write_infinite_mapping(None, space) && self.write_signals(space)
            }
            (Stage::Plain, OutgoingKind::Reset) => true,
            // No signal goes with what the peer will not believe.
            (Stage::Established, OutgoingKind::Probe) => {
                space.try_dss(Dss { data_ack: Some(self.shared.data_ack()), ..Dss::default() })
            }
            (_, OutgoingKind::Reset) => self.write_reset(space),
            (Stage::CapableSyn, OutgoingKind::Syn { retransmission }) => {
                self.write_capable_syn(retransmission, space)
            }
            (Stage::CapableSynAck, OutgoingKind::SynAck { .. }) => {
                space.try_push(self.shared.capable(MpCapableKeys::Sender(self.shared.local_key.0)))
            }
            (Stage::CapableAck, OutgoingKind::Ack) => self.write_third_ack(segment, space),
            (Stage::CapableAck, OutgoingKind::Data) => self.write_first_data(segment, space),
            (Stage::JoinSyn, OutgoingKind::Syn { .. }) => {
                let (token, nonce) = (self.shared.remote_token, self.meta.local_nonce);
                let (backup, address_id) = (self.meta.backup_local, self.meta.local_id);
                space.try_push(MptcpOption::Join(MpJoin::Syn { backup, address_id, token, nonce }))
            }
            (Stage::JoinSynAck, OutgoingKind::SynAck { .. }) => {
                let (backup, address_id) = (self.meta.backup_local, self.meta.local_id);
                let (truncated_hmac, nonce) = (truncated(&self.own_hmac()), self.meta.local_nonce);
                space.try_push(MptcpOption::Join(MpJoin::SynAck {
                    backup,
                    address_id,
                    truncated_hmac,
                    nonce,
                }))
            }
            (Stage::JoinAck, OutgoingKind::Data | OutgoingKind::Ack) => {
                space.try_push(MptcpOption::Join(MpJoin::Ack { hmac: self.own_hmac() }))
            }
            (Stage::Established, OutgoingKind::Data) => self.write_mapping(segment, space),
            (Stage::Established, OutgoingKind::Ack) => self.write_acknowledgment(segment, space),
            _ => true,
        };
    }
}

impl SubflowExtension<'_> {
    /// The HMAC that this end sends in MP_JOIN.
    fn own_hmac(&self) -> crate::crypto::Hmac160 {
        let shared = &self.shared;
        let peer = shared.remote_key.unwrap_or(Key(0));
        join_hmac(shared.version, shared.local_key, peer, self.meta.local_nonce, self.meta.remote_nonce)
    }

    fn write_capable_syn(&mut self, retransmission: u8, space: &mut OptionSpace<'_>) -> bool {
        if retransmission > self.shared.config.syn_retries_before_fallback {
            self.meta.syn_without_option = true;
            return true;
        }
        let keys = match self.shared.version {
            MptcpVersion::V0 => MpCapableKeys::Sender(self.shared.local_key.0),
            MptcpVersion::V1 => MpCapableKeys::None,
        };
        space.try_push(self.shared.capable(keys))
    }

    /// The keys, and behind them DATA_FIN where that is due: both do not fit into one segment.
    fn write_third_ack(&mut self, segment: &Outgoing<Mapping>, space: &mut OptionSpace<'_>) -> bool {
        if core::mem::replace(&mut self.meta.keys_said, true) && self.meta.owes_data_fin {
            return self.write_acknowledgment(segment, space);
        }
        let (sender, receiver) = self.shared.both_keys();
        space.try_push(self.shared.capable(MpCapableKeys::Both { sender, receiver }))
    }

    /// Client data before the first DSS came back: version 1 repeats the keys with the first mapping (RFC 8684 §3.1).
    fn write_first_data(&mut self, segment: &Outgoing<Mapping>, space: &mut OptionSpace<'_>) -> bool {
        match segment.mapping {
            Some(mapping) if mapping.subflow_offset == 1 && self.shared.version == MptcpVersion::V1 => {
                let (sender, receiver) = self.shared.both_keys();
                let (data_len, checksum) = (mapping.len_bytes, mapping.checksum);
                let keys = MpCapableKeys::BothWithData { sender, receiver, data_len, checksum };
                self.meta.keys_said = true;
                space.try_push(self.shared.capable(keys))
            }
            _ => self.write_mapping(segment, space),
        }
    }

    /// A segment without DSS acknowledges what its peer sent to TCP only: an acknowledgment of its own says the rest.
    fn write_mapping(&mut self, segment: &Outgoing<Mapping>, space: &mut OptionSpace<'_>) -> bool {
        let (next, latest) = (self.shared.receive_next, self.shared.send.next());
        let dss = |mapping: Mapping| mapping.dss(segment.is_mapping_start, next, latest);
        let Some(dss) = segment.mapping.and_then(dss) else {
            let has_news = self.meta.data_acked != self.shared.receive_next;
            self.meta.owes_data_ack |= segment.acknowledges || has_news;
            return true;
        };
        self.say(dss, space)
    }

    /// Adds a DSS; where its DATA_ACK has no room, beside a signal or a long number, that is said later.
    fn say(&mut self, dss: Dss, space: &mut OptionSpace<'_>) -> bool {
        let is_written = space.try_dss(dss);
        self.meta.owes_data_ack = !is_written || dss.data_ack.is_none();
        if !self.meta.owes_data_ack {
            self.meta.data_acked = self.shared.receive_next;
        }
        is_written
    }

    fn write_acknowledgment(&mut self, segment: &Outgoing<Mapping>, space: &mut OptionSpace<'_>) -> bool {
        let data_ack = Some(self.shared.data_ack());
        if !self.meta.signals.is_empty() {
            let signal = self.meta.signals.remove(0);
            return space.try_push_evicting_timestamps(signal)
                && self.say(Dss { data_ack, ..Dss::default() }, space)
                && self.write_signals(space);
        }
        // Beside a DATA_FIN there is no room for SACK blocks. Where it is not due, they go first.
        let may_fin = self.meta.owes_data_fin || !segment.sack_follows;
        let mapping = self.shared.fin_mapping().filter(|_| may_fin);
        self.meta.owes_data_fin = false;
        self.say(Dss { data_ack, mapping, data_fin: mapping.is_some(), ..Dss::default() }, space)
    }

    fn write_signals(&mut self, space: &mut OptionSpace<'_>) -> bool {
        self.meta.signals.retain(|signal| !space.try_push(signal.clone()));
        true
    }

    fn write_reset(&mut self, space: &mut OptionSpace<'_>) -> bool {
        if self.shared.fastclose {
            let receiver_key = self.shared.remote_key.map_or(0, |key| key.0);
            return space.try_push(MptcpOption::Fastclose { receiver_key });
        }
        let fail = self.meta.fail_on_reset.map(|data_seq| MptcpOption::Fail { data_seq });
        // Version 0 has no such option.
        let is_known = self.shared.version == MptcpVersion::V1;
        let reset = self
            .meta
            .reset_reason
            .filter(|_| is_known)
            .map(|reason| MptcpOption::Reset { flags: u8::from(reason.is_transient()), reason });
        fail.is_none_or(|option| space.try_push(option)) && reset.is_none_or(|option| space.try_push(option))
    }

    fn write_infinite_mapping(&mut self, segment: Option<Mapping>, space: &mut OptionSpace<'_>) -> bool {
        let Some(infinite) = self.shared.infinite_mapping else { return true };
        let retroactive = (infinite.data_seq, infinite.offset as u32 + 1);
        let (data_seq, subflow_offset) = match segment {
            _ if !infinite.anew => retroactive,
            Some(own) if own.subflow_offset.wrapping_sub(retroactive.1) as i32 >= 0 => {
                (own.data_seq, own.subflow_offset)
            }
            // What was queued before is mapped as it was: without a mapping, the peer would take it for what follows.
            Some(own) => {
                let mapping = Some(own.to_wire(self.shared.send.next()));
                return space.try_dss(Dss { mapping, ..Dss::default() });
            }
            // An acknowledgment has no place of its own.
            None => return true,
        };
        let data_seq = WireDataSeq::Full(data_seq);
        let mapping = DssMapping { data_seq, subflow_offset, len: 0, checksum: None };
        space.try_dss(Dss { mapping: Some(mapping), ..Dss::default() })
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv6Addr};

    use polypath_wire::{AddAddr, MAX_OPTIONS_BYTES, Options, ResetReason, SackBlock, SeqNumber, Timestamps};

    use super::*;

    /// The largest signal there is: 30 bytes.
    fn add_addr_v6() -> MptcpOption {
        MptcpOption::AddAddr(AddAddr {
            version: MptcpVersion::V1,
            echo: false,
            address_id: 1,
            addr: IpAddr::V6(Ipv6Addr::LOCALHOST),
            port: Some(1),
            hmac: Some(1),
        })
    }

    fn shared(version: MptcpVersion, checksum: bool) -> Shared {
        let mut shared = Shared::new(Arc::default(), true, version, Key(7), Mode::Mptcp);
        shared.remote_key = Some(Key(8));
        shared.checksum = checksum;
        shared
    }

    /// What a segment carries: the options that TCP puts before ours, ours, then SACK blocks.
    fn compose(
        shared: &mut Shared,
        meta: &mut Meta,
        kind: OutgoingKind,
        mapping: Option<Mapping>,
    ) -> Options {
        let sack_follows = kind == OutgoingKind::Ack;
        let mut options = Options::default();
        let syn = matches!(kind, OutgoingKind::Syn { .. } | OutgoingKind::SynAck { .. });
        if syn {
            let tcp = [TcpOption::Mss(1460), TcpOption::SackPermitted, TcpOption::WindowScale(7)];
            options.rest.extend(tcp);
        }
        options.timestamps = Some(Timestamps::default());
        let payload_len_bytes = mapping.map_or(0, |mapping| usize::from(mapping.len_bytes));
        let is_mapping_start = true;
        let outgoing = Outgoing {
            kind,
            payload_len_bytes,
            mapping,
            is_mapping_start,
            acknowledges: true,
            fin: false,
            sack_follows,
        };
        let mut space = OptionSpace::new(&mut options, mapping.is_none() && !syn);
        let mut extension = SubflowExtension { shared, meta, position: 0 };
        if let Some(mapping) = &mapping {
            let before = Timestamps::LEN_BYTES + extension.data_option_bytes(mapping, true);
            extension.write_options(&outgoing, &mut space);
            assert!(MAX_OPTIONS_BYTES - space.remaining_bytes() <= before, "data segments keep their size");
        } else {
            extension.write_options(&outgoing, &mut space);
        }
        if kind == OutgoingKind::Ack {
            space.push_sack([SackBlock { start: SeqNumber(1), end: SeqNumber(2) }; 4]);
        }
        options
    }

    fn has(options: &Options, wanted: fn(&MptcpOption) -> bool) -> bool {
        options.mptcp().any(wanted)
    }

    use polypath_wire::TcpOption;

    const STAGES: [Stage; 8] = [
        Stage::CapableSyn,
        Stage::CapableSynAck,
        Stage::CapableAck,
        Stage::JoinSyn,
        Stage::JoinSynAck,
        Stage::JoinAck,
        Stage::Established,
        Stage::Plain,
    ];

    const KINDS: [OutgoingKind; 5] = [
        OutgoingKind::Syn { retransmission: 0 },
        OutgoingKind::SynAck { retransmission: 0 },
        OutgoingKind::Data,
        OutgoingKind::Ack,
        OutgoingKind::Reset,
    ];

    #[test]
    fn every_segment_fits_and_carries_what_it_must() {
        for version in [MptcpVersion::V0, MptcpVersion::V1] {
            for case in 0..32 {
                let bit = |at: u32| case & (1 << at) != 0;
                for stage in STAGES {
                    for kind in KINDS {
                        let mut shared = shared(version, bit(0));
                        let mut meta = Meta::new(0, stage);
                        shared.data_fin = bit(1).then_some(DataSeq(5));
                        shared.fastclose = bit(2);
                        meta.reset_reason = bit(3).then_some(ResetReason::MIDDLEBOX);
                        if bit(4) {
                            meta.signals.extend([add_addr_v6(), MptcpOption::Fail { data_seq: DataSeq(1) }]);
                        }
                        let checksum = shared.checksum.then_some(1);
                        let mapping =
                            Mapping { subflow_offset: 1, len_bytes: 9, checksum, ..Mapping::default() };
                        let mapping = (kind == OutgoingKind::Data).then_some(mapping);
                        let options = compose(&mut shared, &mut meta, kind, mapping);
                        assert!(options.len_bytes() <= MAX_OPTIONS_BYTES, "{stage:?} {kind:?} {case:05b}");
                        assert_required(stage, kind, version, case, &options);
                    }
                }
            }
        }
    }

    fn assert_required(
        stage: Stage,
        kind: OutgoingKind,
        version: MptcpVersion,
        case: u32,
        options: &Options,
    ) {
        let capable = |option: &MptcpOption| matches!(option, MptcpOption::Capable(_));
        let join = |option: &MptcpOption| matches!(option, MptcpOption::Join(_));
        let required = match (stage, kind) {
            (Stage::CapableSyn, OutgoingKind::Syn { .. })
            | (Stage::CapableSynAck, OutgoingKind::SynAck { .. })
            | (Stage::CapableAck, OutgoingKind::Ack) => has(options, capable),
            (Stage::CapableAck, OutgoingKind::Data) if version == MptcpVersion::V1 => has(options, capable),
            (Stage::JoinSyn, OutgoingKind::Syn { .. })
            | (Stage::JoinSynAck, OutgoingKind::SynAck { .. })
            | (Stage::JoinAck, OutgoingKind::Ack | OutgoingKind::Data) => has(options, join),
            (Stage::CapableAck | Stage::Established, OutgoingKind::Data) => {
                options.dss.is_some_and(|dss| dss.mapping.is_some() && dss.data_ack.is_some())
            }
            // A 30-byte signal and timestamps fill a header; the DATA_ACK goes with the next.
            (Stage::Established, OutgoingKind::Ack) => {
                let signal = has(options, |option| matches!(option, MptcpOption::AddAddr(_)));
                signal == (case & 16 != 0)
                    && (signal || options.dss.is_some_and(|dss| dss.data_ack.is_some()))
            }
            (stage, OutgoingKind::Reset) if stage != Stage::Plain && case & 4 != 0 => {
                has(options, |option| matches!(option, MptcpOption::Fastclose { .. }))
            }
            (Stage::Plain, _) => options.dss.is_none(),
            _ => true,
        };
        assert!(required, "{stage:?} {kind:?} {version:?} {case:05b}: {options:?}");
    }

    #[test]
    fn signals_leave_one_acknowledgment_after_the_other_and_then_the_fin() {
        let mut shared = shared(MptcpVersion::V1, true);
        shared.data_fin = Some(DataSeq(5));
        let mut meta = Meta::new(0, Stage::Established);
        meta.signals.extend([add_addr_v6(), add_addr_v6()]);
        for _ in 0..2 {
            let options = compose(&mut shared, &mut meta, OutgoingKind::Ack, None);
            assert!(has(&options, |option| matches!(option, MptcpOption::AddAddr(_))));
            assert_eq!(options.len_bytes(), MAX_OPTIONS_BYTES);
        }
        assert!(meta.signals.is_empty());
        meta.owes_data_fin = true;
        let options = compose(&mut shared, &mut meta, OutgoingKind::Ack, None);
        assert!(options.dss.is_some_and(|dss| dss.data_fin) && options.timestamps.is_some());
        // It is repeated when a timer says so; until then, what the peer lost is told.
        let options = compose(&mut shared, &mut meta, OutgoingKind::Ack, None);
        assert!(options.dss.is_some_and(|dss| !dss.data_fin && dss.data_ack.is_some()));
        assert!(!options.sack.is_empty());
    }

    #[test]
    fn a_segment_without_dss_leaves_the_data_ack_to_an_acknowledgment() {
        let mut shared = shared(MptcpVersion::V1, false);
        let mut meta = Meta::new(0, Stage::Established);
        let mapping = Mapping { carried: Carried::Once, len_bytes: 20_000, ..Mapping::default() };
        let mut owes_after = |shared: &mut Shared, is_mapping_start, acknowledges| {
            let outgoing = Outgoing {
                kind: OutgoingKind::Data,
                payload_len_bytes: 1448,
                mapping: Some(mapping),
                is_mapping_start,
                acknowledges,
                fin: false,
                sack_follows: false,
            };
            let mut options = Options::default();
            let mut space = OptionSpace::new(&mut options, false);
            SubflowExtension { shared, meta: &mut meta, position: 0 }.write_options(&outgoing, &mut space);
            assert_eq!(options.dss.is_some(), is_mapping_start);
            meta.owes_data_ack
        };
        assert!(!owes_after(&mut shared, true, true));
        assert!(!owes_after(&mut shared, false, false));
        assert!(owes_after(&mut shared, false, true), "the peer may not have the first that said it");
        assert!(!owes_after(&mut shared, true, false));
        shared.receive_next = shared.receive_next.add(1);
        assert!(owes_after(&mut shared, false, false), "data has arrived");
        // An acknowledgment that a signal fills does not say it; the next does.
        meta.signals.push(add_addr_v6());
        assert!(compose(&mut shared, &mut meta, OutgoingKind::Ack, None).dss.is_none());
        assert!(meta.owes_data_ack);
        assert!(compose(&mut shared, &mut meta, OutgoingKind::Ack, None).dss.is_some());
        assert!(!meta.owes_data_ack);
    }

    #[test]
    fn numbers_are_long_while_short_ones_could_come_around() {
        let mut shared = shared(MptcpVersion::V1, false);
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

    #[test]
    fn syns_go_without_option_after_two_retransmissions() {
        let mut shared = shared(MptcpVersion::V1, false);
        let mut meta = Meta::new(0, Stage::CapableSyn);
        for retransmission in 0..4 {
            let options = compose(&mut shared, &mut meta, OutgoingKind::Syn { retransmission }, None);
            assert_eq!(options.mptcp().next().is_some(), retransmission <= 2);
        }
        assert!(meta.syn_without_option);
    }
}
