//! Which Multipath TCP options a segment carries.

use polypath_congestion::{FlowView, Flows};
use polypath_tcp::{Extension, OptionSpace, Outgoing, OutgoingKind};
use polypath_wire::{Dss, DssMapping, MpCapableKeys, MpJoin, MptcpOption, MptcpVersion, WireDataSeq};

use super::state::Shared;
use crate::crypto::{Key, join_hmac, truncated};
use crate::mapping::Mapping;
use crate::subflow::{Meta, Stage};

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
                let (backup, address_id) = (self.meta.asks_for_backup(), self.meta.local_id);
                space.try_push(MptcpOption::Join(MpJoin::Syn { backup, address_id, token, nonce }))
            }
            (Stage::JoinSynAck, OutgoingKind::SynAck { .. }) => {
                let (backup, address_id) = (self.meta.asks_for_backup(), self.meta.local_id);
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
                    && (!self.meta.is_tried()
                        || space.try_push(MptcpOption::Prio { backup: false, address_id: None }))
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

    /// Client data before the first DSS came back: version 1 repeats the keys with the first mapping (RFC 8684 §3.1). The option has no
    /// data sequence number: it stands for the first. Another subflow may have joined and carry that.
    fn write_first_data(&mut self, segment: &Outgoing<Mapping>, space: &mut OptionSpace<'_>) -> bool {
        let is_first = |mapping: &Mapping| {
            mapping.subflow_offset == 1
                && self.shared.version == MptcpVersion::V1
                && mapping.data_seq == self.shared.first_data_seq()
        };
        match segment.mapping.filter(is_first) {
            Some(mapping) => {
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
    use alloc::sync::Arc;
    use core::net::{IpAddr, Ipv6Addr};

    use polypath_wire::{
        AddAddr, DataSeq, MAX_OPTIONS_BYTES, Options, ResetReason, SackBlock, SeqNumber, TcpOption,
        Timestamps,
    };

    use super::super::state::Mode;
    use super::*;
    use crate::mapping::Carried;

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
                        let data_seq = shared.first_data_seq();
                        let mapping = Mapping {
                            data_seq,
                            subflow_offset: 1,
                            len_bytes: 9,
                            checksum,
                            ..Mapping::default()
                        };
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
