//! What somebody knows who sees the packets of all flows: sequence numbers, windows, keys, tokens.

use std::collections::BTreeMap;

use polypath_wire::{
    DataSeq, FourTuple, MpCapableKeys, MpJoin, MptcpOption, Packet, Segment, SeqNumber, TcpOption,
    Timestamps, Transport, WireDataSeq,
};

/// Flows that are remembered; the one that was silent longest goes first.
const MOST_FLOWS: usize = 512;

/// One direction of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Direction {
    /// Its initial sequence number.
    pub isn: Option<SeqNumber>,
    /// After the last byte that was sent.
    pub next: Option<SeqNumber>,
    /// What its sender acknowledged last.
    pub ack: Option<SeqNumber>,
    /// After the last byte that its sender lets the other end send.
    pub edge: Option<SeqNumber>,
    /// The window field as it came last.
    pub window: u16,
    /// Window scale of its SYN.
    pub shift: u8,
    /// As they came last.
    pub timestamps: Option<Timestamps>,
    /// After the last data that was mapped.
    pub data_next: Option<DataSeq>,
    /// After the last byte that was mapped, relative to `isn`.
    pub mapped: u32,
    /// The last DATA_ACK.
    pub data_ack: Option<WireDataSeq>,
    /// Key of its sender.
    pub key: Option<u64>,
    /// Token that its sender joined with.
    pub token: Option<u32>,
    /// The last segment was a SYN/ACK.
    pub is_syn_ack: bool,
    last_seen: u64,
}

/// All flows by how their senders name them.
#[derive(Debug, Default)]
pub(crate) struct Sniffer {
    flows: BTreeMap<FourTuple, Direction>,
    seen: u64,
}

impl Sniffer {
    /// A packet passes.
    pub(crate) fn observe(&mut self, packet: &Packet) {
        let (Transport::Tcp(segment), Some(tuple)) = (&packet.transport, packet.receiver_tuple()) else {
            return;
        };
        self.seen += 1;
        let direction = self.flows.entry(tuple.reversed()).or_default();
        direction.last_seen = self.seen;
        direction.observe(segment);
        if self.flows.len() > MOST_FLOWS {
            let oldest = self.flows.iter().min_by_key(|(_, direction)| direction.last_seen);
            if let Some(tuple) = oldest.map(|(tuple, _)| *tuple) {
                self.flows.remove(&tuple);
            }
        }
    }

    /// The flow number `number`, modulo how many there are, among those that `wanted` names.
    pub(crate) fn flow(&self, number: u8, wanted: impl Fn(&FourTuple) -> bool) -> Option<FourTuple> {
        let flows: Vec<&FourTuple> = self.flows.keys().filter(|tuple| wanted(tuple)).collect();
        flows.get(usize::from(number) % flows.len().max(1)).map(|tuple| **tuple)
    }

    /// What is known of what `tuple.local` sends.
    #[must_use]
    pub(crate) fn direction(&self, tuple: &FourTuple) -> Direction {
        self.flows.get(tuple).copied().unwrap_or_default()
    }

    /// The flow whose SYN/ACK came last of those that `wanted` names.
    pub(crate) fn latest_syn_ack(&self, wanted: impl Fn(&FourTuple) -> bool) -> Option<FourTuple> {
        let answered = self.flows.iter().filter(|(tuple, seen)| seen.is_syn_ack && wanted(tuple));
        answered.max_by_key(|(_, seen)| seen.last_seen).map(|(tuple, _)| *tuple)
    }

    /// A token by which a host was joined.
    #[must_use]
    pub(crate) fn token(&self) -> Option<u32> {
        self.flows.values().find_map(|direction| direction.token)
    }
}

impl Direction {
    fn observe(&mut self, segment: &Segment) {
        // It may answer what is of no connection: then its number is that segment's (RFC 9293 §3.10.7.1).
        if segment.flags.rst() {
            return;
        }
        self.is_syn_ack = segment.flags.syn() && segment.flags.ack();
        if segment.flags.syn() {
            *self = Self { last_seen: self.last_seen, is_syn_ack: self.is_syn_ack, ..Self::default() };
            self.isn = Some(segment.seq);
        }
        let end = segment.seq_end();
        self.next = Some(self.next.map_or(end, |next| next.max(end)));
        for option in &segment.options.rest {
            self.observe_option(option, segment.flags.syn());
        }
        if segment.flags.ack() {
            self.ack = Some(self.ack.map_or(segment.ack, |ack| ack.max(segment.ack)));
            let shift = if segment.flags.syn() { 0 } else { self.shift };
            let edge = segment.ack.add(u32::from(segment.window) << shift);
            self.edge = Some(self.edge.map_or(edge, |before| before.max(edge)));
            self.window = segment.window;
        }
        self.timestamps = segment.options.timestamps.or(self.timestamps);
        if let Some(dss) = segment.options.dss {
            self.data_ack = dss.data_ack.or(self.data_ack);
            if let Some(mapping) = dss.mapping {
                let near = self.data_next.unwrap_or_default();
                let end = mapping.data_seq.expand(near).add(u64::from(mapping.len));
                self.data_next = Some(end);
                self.mapped = mapping.subflow_offset.wrapping_add(u32::from(mapping.len));
            }
        }
    }

    fn observe_option(&mut self, option: &TcpOption, syn: bool) {
        match option {
            TcpOption::WindowScale(shift) if syn => self.shift = (*shift).min(14),
            TcpOption::Mptcp(MptcpOption::Capable(capable)) => {
                if let MpCapableKeys::Sender(key)
                | MpCapableKeys::Both { sender: key, .. }
                | MpCapableKeys::BothWithData { sender: key, .. } = capable.keys
                {
                    self.key = Some(key);
                }
            }
            TcpOption::Mptcp(MptcpOption::Join(MpJoin::Syn { token, .. })) => self.token = Some(*token),
            _ => {}
        }
    }
}
