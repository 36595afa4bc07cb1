//! Which Multipath TCP options a segment carries.

use polypath_congestion::{FlowView, Flows};
use polypath_tcp::{Extension, OptionSpace, Outgoing, OutgoingKind};
use polypath_wire::{Dss, DssMapping, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, WireDataSeq};

use super::infinite_mapping::Fallback;
use super::stream::Stream;
use crate::mapping::Mapping;
use crate::subflow::{Stage, SubflowState};

/// What the options of a data segment need at most beside the timestamps until the first DSS of the peer has come: MP_CAPABLE with
/// keys, length and checksum, or a DSS with a 4-byte DATA_ACK, an 8-byte number and a checksum.
pub(super) const MOST_DATA_OPTION_BYTES: usize = 24;

/// Bytes of option space that the data segments of a mapping need beside the timestamps, the first or the others.
#[inline]
pub(super) fn data_option_bytes(
    fallback: &Fallback,
    stage: Stage,
    mapping: &Mapping,
    is_start: bool,
) -> usize {
    match stage {
        Stage::Plain if fallback.ours().is_none() => 0,
        Stage::Established => mapping.dss_bytes(is_start),
        _ => MOST_DATA_OPTION_BYTES,
    }
}

/// A subflow's option writer: lent to its TCP connection for the length of a call.
pub(super) struct SubflowExtension<'a> {
    pub(super) stream: &'a Stream,
    pub(super) state: &'a mut SubflowState,
    /// What coupled congestion control sees of all subflows.
    pub(super) views: &'a [FlowView],
    /// Position of the subflow among them.
    pub(super) position: usize,
}

impl Extension for SubflowExtension<'_> {
    type Mapping = Mapping;

    fn data_option_bytes(&self, mapping: &Mapping, is_start: bool) -> usize {
        data_option_bytes(&self.stream.fallback, self.state.stage(), mapping, is_start)
    }

    fn receive_window_bytes(&self, _own_bytes: u64) -> u64 {
        self.stream.receive.window_bytes(&self.stream.config)
    }

    fn flows<'a>(&'a self, own: &'a FlowView) -> Flows<'a> {
        if self.views.len() < 2 {
            return Flows::single(own);
        }
        Flows { all: self.views, own: self.position }
    }

    /// The one place that decides which Multipath TCP options a segment carries. In order of precedence: what the
    /// handshake needs; on a reset, the reason; on a segment with data, no more than the DSS that its mapping asks for, so that its
    /// size holds; on an acknowledgment, one signal (it may take the place of the timestamps), then the DSS, with DATA_FIN where that
    /// is due or no SACK block waits, then more signals.
    fn write_options(&mut self, segment: &Outgoing<Mapping>, space: &mut OptionSpace<'_>) {
        // What does not fit is left out: the tests of this function show that what matters fits.
        let _fits = match (self.state.stage(), segment.kind) {
            (Stage::Plain, OutgoingKind::Data) => self.write_infinite_mapping(segment.mapping, space),
            (Stage::Plain, OutgoingKind::Ack) => {
                self.write_infinite_mapping(None, space) && self.write_signals(space)
            }
            (Stage::Plain, OutgoingKind::Reset) => true,
            // No signal goes with what the peer will not believe.
            (Stage::Established, OutgoingKind::Probe) => {
                space.try_dss(Dss { data_ack: Some(self.data_ack()), ..Dss::default() })
            }
            (_, OutgoingKind::Reset) => self.write_reset(space),
            (Stage::CapableSyn, OutgoingKind::Syn { retransmission }) => {
                self.write_capable_syn(retransmission, space)
            }
            (Stage::CapableSynAck, OutgoingKind::SynAck { .. }) => {
                space.try_push(self.capable(self.stream.negotiation.own_key()))
            }
            (Stage::CapableAck, OutgoingKind::Ack) => self.write_third_ack(segment, space),
            (Stage::CapableAck, OutgoingKind::Data) => self.write_first_data(segment, space),
            (Stage::JoinSyn, OutgoingKind::Syn { .. }) => {
                let (token, nonce) = (self.stream.negotiation.remote_token(), self.state.join.nonces().0);
                let (backup, address_id) = (self.state.role.asks_for_backup(), self.state.role.local_id().0);
                space.try_push(MptcpOption::Join(MpJoin::Syn { backup, address_id, token, nonce }))
            }
            (Stage::JoinSynAck, OutgoingKind::SynAck { .. }) => {
                let (backup, address_id) = (self.state.role.asks_for_backup(), self.state.role.local_id().0);
                let nonce = self.state.join.nonces().0;
                let truncated_hmac =
                    self.stream.negotiation.truncated_join_hmac(nonce, self.state.join.nonces().1);
                space.try_push(MptcpOption::Join(MpJoin::SynAck {
                    backup,
                    address_id,
                    truncated_hmac,
                    nonce,
                }))
            }
            (Stage::JoinAck, OutgoingKind::Data | OutgoingKind::Ack) => {
                space.try_push(MptcpOption::Join(MpJoin::Ack {
                    hmac: self
                        .stream
                        .negotiation
                        .join_hmac(self.state.join.nonces().0, self.state.join.nonces().1),
                })) && (!self.state.role.is_tried()
                    || space.try_push(MptcpOption::Prio { backup: false, address_id: None }))
            }
            (Stage::Established, OutgoingKind::Data) => self.write_mapping(segment, space),
            (Stage::Established, OutgoingKind::Ack) => self.write_acknowledgment(segment, space),
            _ => true,
        };
    }
}

impl SubflowExtension<'_> {
    fn capable(&self, keys: MpCapableKeys) -> MptcpOption {
        self.stream.negotiation.capable(&self.stream.config, keys)
    }

    /// DATA_ACK, by default in its 4-byte form, which leaves a data segment four bytes more.
    fn data_ack(&self) -> WireDataSeq {
        self.stream.send.numbers().ack(self.stream.receive.next())
    }

    fn write_capable_syn(&mut self, retransmission: u8, space: &mut OptionSpace<'_>) -> bool {
        if retransmission > self.stream.config.syn_retries_before_fallback {
            self.state.owed.handle_bare_syn();
            return true;
        }
        let keys = match self.stream.negotiation.version() {
            MptcpVersion::V0 => self.stream.negotiation.own_key(),
            MptcpVersion::V1 => MpCapableKeys::None,
        };
        space.try_push(self.capable(keys))
    }

    /// The keys, and behind them DATA_FIN where that is due: both do not fit into one segment.
    fn write_third_ack(&mut self, segment: &Outgoing<Mapping>, space: &mut OptionSpace<'_>) -> bool {
        if self.state.owed.handle_keys_sent() && self.state.owed.owes_data_fin() {
            return self.write_acknowledgment(segment, space);
        }
        let (sender, receiver) = self.stream.negotiation.both_keys();
        space.try_push(self.capable(MpCapableKeys::Both { sender, receiver }))
    }

    /// Client data before the first DSS came back: version 1 repeats the keys with the first mapping (RFC 8684 §3.1). The option has no
    /// data sequence number: it stands for the first. Another subflow may have joined and carry that.
    fn write_first_data(&mut self, segment: &Outgoing<Mapping>, space: &mut OptionSpace<'_>) -> bool {
        let is_first = |mapping: &Mapping| {
            mapping.subflow_offset == 1
                && self.stream.negotiation.version() == MptcpVersion::V1
                && mapping.data_seq == self.stream.negotiation.first_data_seq()
        };
        match segment.mapping.filter(is_first) {
            Some(mapping) => {
                let (sender, receiver) = self.stream.negotiation.both_keys();
                let (data_len, checksum) = (mapping.len_bytes, mapping.checksum);
                let keys = MpCapableKeys::BothWithData { sender, receiver, data_len, checksum };
                self.state.owed.handle_keys_sent();
                space.try_push(self.capable(keys))
            }
            _ => self.write_mapping(segment, space),
        }
    }

    /// A segment without DSS acknowledges what its peer sent to TCP only: an acknowledgment of its own says the rest.
    fn write_mapping(&mut self, segment: &Outgoing<Mapping>, space: &mut OptionSpace<'_>) -> bool {
        let (next, latest) = (self.stream.receive.next(), self.stream.send.next());
        let dss = |mapping: Mapping| mapping.dss(segment.is_mapping_start, next, latest);
        let Some(dss) = segment.mapping.and_then(dss) else {
            self.state.owed.handle_bare_data(next, segment.acknowledges);
            return true;
        };
        self.say(dss, space)
    }

    /// Adds a DSS; where its DATA_ACK has no room, beside a signal or a long number, that is said later.
    fn say(&mut self, dss: Dss, space: &mut OptionSpace<'_>) -> bool {
        let is_written = space.try_dss(dss);
        if is_written && dss.data_ack.is_some() {
            self.state.owed.handle_data_ack_sent(self.stream.receive.next());
        } else {
            self.state.owed.owe_data_ack();
        }
        is_written
    }

    fn write_acknowledgment(&mut self, segment: &Outgoing<Mapping>, space: &mut OptionSpace<'_>) -> bool {
        let data_ack = Some(self.data_ack());
        if let Some(signal) = self.state.owed.take_signal() {
            return space.try_push_evicting_timestamps(signal)
                && self.say(Dss { data_ack, ..Dss::default() }, space)
                && self.write_signals(space);
        }
        // Beside a DATA_FIN there is no room for SACK blocks. Where it is not due, they go first.
        let may_fin = self.state.owed.take_data_fin() || !segment.sack_follows;
        let mapping =
            self.stream.send.fin_mapping(self.stream.negotiation.has_checksum()).filter(|_| may_fin);
        self.say(Dss { data_ack, mapping, data_fin: mapping.is_some(), ..Dss::default() }, space)
    }

    fn write_signals(&mut self, space: &mut OptionSpace<'_>) -> bool {
        self.state.owed.write_signals(|signal| space.try_push(signal));
        true
    }

    fn write_reset(&mut self, space: &mut OptionSpace<'_>) -> bool {
        if self.stream.lifecycle.is_fastclose() {
            let receiver_key = self.stream.negotiation.remote_key().unwrap_or(0);
            return space.try_push(MptcpOption::Fastclose { receiver_key });
        }
        let fail = self.state.ending.fail().map(|data_seq| MptcpOption::Fail { data_seq });
        // Version 0 has no such option.
        let is_known = self.stream.negotiation.version() == MptcpVersion::V1;
        let reset = self
            .state
            .ending
            .reset_reason()
            .filter(|_| is_known)
            .map(|reason| MptcpOption::Reset { flags: u8::from(reason.is_transient()), reason });
        fail.is_none_or(|option| space.try_push(option)) && reset.is_none_or(|option| space.try_push(option))
    }

    fn write_infinite_mapping(&mut self, segment: Option<Mapping>, space: &mut OptionSpace<'_>) -> bool {
        let Some(infinite) = self.stream.fallback.ours() else { return true };
        let retroactive = (infinite.data_seq, infinite.offset as u32 + 1);
        let (data_seq, subflow_offset) = match segment {
            _ if !infinite.is_restart => retroactive,
            Some(own) if own.subflow_offset.wrapping_sub(retroactive.1) as i32 >= 0 => {
                (own.data_seq, own.subflow_offset)
            }
            // What was queued before is mapped as it was: without a mapping, the peer would take it for what follows.
            Some(own) => {
                let mapping = Some(own.to_wire(self.stream.send.next()));
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
    use alloc::sync::Arc;
    use core::net::{IpAddr, Ipv6Addr};

    use polypath_wire::{
        AddAddr, DataSeq, MAX_OPTIONS_BYTES, Options, ResetReason, SackBlock, SeqNumber, TcpOption,
        Timestamps,
    };

    use super::super::data_receive::DataReceive;
    use super::super::data_send::DataSend;
    use super::super::lifecycle::{Lifecycle, Mode};
    use super::super::negotiation::Negotiation;
    use super::*;
    use crate::config::ConnectionConfig;
    use crate::crypto::Key;
    use crate::event::SubflowError;
    use crate::identifiers::SubflowId;
    use crate::mapping::Repetition;

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

    fn stream(version: MptcpVersion, checksum: bool) -> Stream {
        let config = Arc::new(ConnectionConfig { checksum, ..ConnectionConfig::default() });
        let mut negotiation = Negotiation::new(true, version, Key(7));
        negotiation.handle_flags(&config, 0);
        let mut receive = DataReceive::new();
        receive.begin(negotiation.handle_key(Key(8)));
        let send = DataSend::new(negotiation.first_data_seq());
        let lifecycle = Lifecycle::new(Mode::Mptcp);
        Stream { config, negotiation, lifecycle, send, receive, fallback: Fallback::new() }
    }

    /// What a segment carries: the options that TCP puts before ours, ours, then SACK blocks.
    fn compose(
        stream: &Stream,
        state: &mut SubflowState,
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
        let mut extension = SubflowExtension { stream, state, views: &[], position: 0 };
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
                for stage in Stage::ALL {
                    for kind in KINDS {
                        let mut stream = stream(version, bit(0));
                        let mut state = SubflowState::new(SubflowId(0), stage);
                        if bit(1) {
                            stream.send.finish();
                        }
                        stream.lifecycle.set_fastclose(bit(2));
                        if bit(3) {
                            state.ending.reset(SubflowError::Middlebox, ResetReason::MIDDLEBOX);
                        }
                        if bit(4) {
                            state.owed.signal(add_addr_v6());
                            state.owed.signal(MptcpOption::Fail { data_seq: DataSeq(1) });
                        }
                        let checksum = bit(0).then_some(1);
                        let data_seq = stream.negotiation.first_data_seq();
                        let mapping = Mapping {
                            data_seq,
                            subflow_offset: 1,
                            len_bytes: 9,
                            checksum,
                            ..Mapping::default()
                        };
                        let mapping = (kind == OutgoingKind::Data).then_some(mapping);
                        let options = compose(&stream, &mut state, kind, mapping);
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
        let mut stream = stream(MptcpVersion::V1, true);
        stream.send.finish();
        let mut state = SubflowState::new(SubflowId(0), Stage::Established);
        state.owed.signal(add_addr_v6());
        state.owed.signal(add_addr_v6());
        for _ in 0..2 {
            let options = compose(&stream, &mut state, OutgoingKind::Ack, None);
            assert!(has(&options, |option| matches!(option, MptcpOption::AddAddr(_))));
            assert_eq!(options.len_bytes(), MAX_OPTIONS_BYTES);
        }
        assert!(!state.owed.has_signals());
        state.owe_data_fin(true);
        let options = compose(&stream, &mut state, OutgoingKind::Ack, None);
        assert!(options.dss.is_some_and(|dss| dss.data_fin) && options.timestamps.is_some());
        // It is repeated when a timer says so; until then, what the peer lost is told.
        let options = compose(&stream, &mut state, OutgoingKind::Ack, None);
        assert!(options.dss.is_some_and(|dss| !dss.data_fin && dss.data_ack.is_some()));
        assert!(!options.sack.is_empty());
    }

    #[test]
    fn a_segment_without_dss_leaves_the_data_ack_to_an_acknowledgment() {
        let mut stream = stream(MptcpVersion::V1, false);
        let mut state = SubflowState::new(SubflowId(0), Stage::Established);
        let mapping = Mapping { repetition: Repetition::Once, len_bytes: 20_000, ..Mapping::default() };
        let mut owes_after = |stream: &Stream, is_mapping_start, acknowledges| {
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
            SubflowExtension { stream, state: &mut state, views: &[], position: 0 }
                .write_options(&outgoing, &mut space);
            assert_eq!(options.dss.is_some(), is_mapping_start);
            state.owed.owes_data_ack()
        };
        assert!(!owes_after(&stream, true, true));
        assert!(!owes_after(&stream, false, false));
        assert!(owes_after(&stream, false, true), "the peer may not have the first that said it");
        assert!(!owes_after(&stream, true, false));
        stream.receive.handle_in_order(alloc::vec![0].into());
        assert!(owes_after(&stream, false, false), "data has arrived");
        // An acknowledgment that a signal fills does not say it; the next does.
        state.owed.signal(add_addr_v6());
        assert!(compose(&stream, &mut state, OutgoingKind::Ack, None).dss.is_none());
        assert!(state.owed.owes_data_ack());
        assert!(compose(&stream, &mut state, OutgoingKind::Ack, None).dss.is_some());
        assert!(!state.owed.owes_data_ack());
    }

    #[test]
    fn syns_go_without_option_after_two_retransmissions() {
        let stream = stream(MptcpVersion::V1, false);
        let mut state = SubflowState::new(SubflowId(0), Stage::CapableSyn);
        for retransmission in 0..4 {
            let options = compose(&stream, &mut state, OutgoingKind::Syn { retransmission }, None);
            assert_eq!(options.mptcp().next().is_some(), retransmission <= 2);
        }
        assert!(state.owed.is_syn_bare());
    }
}
