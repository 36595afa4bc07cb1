//! The connections of Multipath TCP: all subflows of one are one stream, numbered by its data sequence numbers (RFC 8684 §3.3).
//!
//! Handshakes say which subflows belong together. What comes before its handshake was captured can't be placed.

use std::collections::{HashMap, VecDeque};

use polypath_wire::{
    DataSeq, DssMapping, MpCapable, MpCapableKeys, MpJoin, MptcpOption, Segment, SeqNumber, WireDataSeq,
};
use sha2::{Digest, Sha256};

use super::byte_stream::{Judged, Piece};
use super::data_stream::{DataStream, FIRST_BYTE};
use super::flow::FlowId;
use super::flows::Flows;
use super::outcome::{EndedFlows, FlowFigures};
use super::tcp_flows::Caught;

/// So many connections' handshakes are remembered.
const MOST_CONNECTIONS: usize = 65_536;
/// So many mappings of a subflow are remembered.
const MOST_MAPPINGS: usize = 256;

const NO_HANDSHAKE: &str = "of connections whose Multipath TCP handshake is not in the capture";
/// One number stands for the data of several packets, and comes with the first of them.
const NOT_PLACED: &str = "behind a lost packet that had their data sequence number; they count as lost";

/// One direction of a connection, by the token of the host that receives it (RFC 8684 §3.2).
type Token = u32;

/// What a handshake says of one direction.
#[derive(Clone, Copy, Debug)]
struct Direction {
    /// The initial subflow.
    name: FlowId,
    /// What the other direction is called.
    other: Token,
    /// The first byte of data.
    first: DataSeq,
}

/// One direction of a subflow.
#[derive(Debug, Default)]
struct Subflow {
    initial: Option<SeqNumber>,
    of: Option<Token>,
    /// The last ones, the newest at the back: what was sent again may be of one before.
    mappings: VecDeque<Mapped>,
}

/// Which data the bytes of a subflow are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapped {
    data_seq: DataSeq,
    subflow_offset: u32,
    len: u32,
}

impl Subflow {
    fn note(&mut self, mapping: Mapped) {
        if !self.mappings.contains(&mapping) {
            self.mappings.push_back(mapping);
            if self.mappings.len() > MOST_MAPPINGS {
                self.mappings.pop_front();
            }
        }
    }

    /// Which data is at this place of the subflow, and how much follows it.
    fn mapped(&self, offset: u32) -> Option<(DataSeq, u32)> {
        let within = |mapping: &Mapped| {
            let within = offset.wrapping_sub(mapping.subflow_offset);
            (within < mapping.len).then(|| (mapping.data_seq.add(within.into()), mapping.len - within))
        };
        self.mappings.iter().rev().find_map(within)
    }
}

#[derive(Debug)]
struct Data {
    stream: DataStream,
    name: FlowId,
    /// Near what comes next, and its place in the stream.
    near: (DataSeq, u64),
}

#[derive(Debug)]
pub(super) struct DataSequence {
    window: u32,
    directions: HashMap<Token, Direction>,
    subflows: Flows<FlowId, Subflow>,
    streams: Flows<Token, Data>,
    ended: EndedFlows,
}

impl DataSequence {
    pub(super) fn new(window: u32) -> Self {
        Self {
            window,
            directions: HashMap::new(),
            subflows: Flows::new(),
            streams: Flows::new(),
            ended: EndedFlows::new(false),
        }
    }

    /// A segment was captured. Why its data has no place, if so; and true if it has data that came.
    pub(super) fn handle(&mut self, caught: Caught<'_>) -> Result<bool, &'static str> {
        let Caught { flow, at, segment, payload_len, is_outbound } = caught;
        self.learn(flow, segment);
        if payload_len == 0 || is_outbound {
            return Ok(false);
        }
        let (subflow, _) = self.subflows.of(flow, Subflow::default);
        let (Some(initial), Some(token)) = (subflow.initial, subflow.of) else {
            return Err(NO_HANDSHAKE);
        };
        let direction = self.directions.get(&token).copied();
        let direction = direction.ok_or(NO_HANDSHAKE)?;
        let window = self.window;
        let (data, silent) = self.streams.of(token, || Data {
            stream: DataStream::new(window, Some(FIRST_BYTE)),
            name: direction.name,
            near: (direction.first, FIRST_BYTE),
        });
        if let Some((_, silent)) = silent {
            self.ended.add(silent.stream.finish(silent.name, false));
        }
        if let Some(mapping) = mapping(segment, direction.first, data.near.0) {
            subflow.note(mapping);
        }
        let mapped = subflow.mapped(segment.seq.diff(initial).cast_unsigned());
        let (data_seq, most) = mapped.ok_or(NOT_PLACED)?;
        let (near, place) = data.near;
        let start = place.checked_add_signed(data_seq.diff(near)).ok_or(NOT_PLACED)?;
        data.near = (data_seq, start);
        let end = start + (payload_len as u64).min(most.into());
        data.stream.handle(Piece { start, end, at, sender_clock: None }, Judged::Never);
        Ok(true)
    }

    /// What a segment says of whom it belongs to.
    fn learn(&mut self, flow: FlowId, segment: &Segment) {
        let flags = segment.flags;
        if flags.syn() {
            let (subflow, _) = self.subflows.of(flow, Subflow::default);
            let is_other = subflow.initial.replace(segment.seq) != Some(segment.seq);
            // Another connection may have had these ports before.
            if is_other && !flags.ack() {
                *subflow = Subflow { initial: Some(segment.seq), ..Subflow::default() };
                *self.subflows.of(flow.reversed(), Subflow::default).0 = Subflow::default();
            }
        }
        for option in segment.options.mptcp() {
            match option {
                MptcpOption::Capable(MpCapable {
                    version: 1,
                    keys:
                        MpCapableKeys::Both { sender, receiver }
                        | MpCapableKeys::BothWithData { sender, receiver, .. },
                    ..
                }) => self.connect(flow, *sender, *receiver),
                MptcpOption::Join(MpJoin::Syn { token, .. }) => self.join(flow, *token),
                _ => {}
            }
        }
    }

    fn connect(&mut self, flow: FlowId, sender: u64, receiver: u64) {
        let (own, peer) = (token_and_first(sender), token_and_first(receiver));
        if self.directions.len() + 2 > MOST_CONNECTIONS {
            return;
        }
        self.directions.insert(peer.0, Direction { name: flow, other: own.0, first: own.1 });
        self.directions.insert(own.0, Direction { name: flow.reversed(), other: peer.0, first: peer.1 });
        self.subflows.of(flow, Subflow::default).0.of = Some(peer.0);
        self.subflows.of(flow.reversed(), Subflow::default).0.of = Some(own.0);
    }

    fn join(&mut self, flow: FlowId, token: Token) {
        let Some(direction) = self.directions.get(&token) else { return };
        self.subflows.of(flow, Subflow::default).0.of = Some(token);
        self.subflows.of(flow.reversed(), Subflow::default).0.of = Some(direction.other);
    }

    /// The total, each connection's direction, and how many more there were.
    pub(super) fn finish(mut self) -> (FlowFigures, Vec<FlowFigures>, u64) {
        for (_, data) in self.streams.into_iter() {
            self.ended.add(data.stream.finish(data.name, false));
        }
        self.ended.finish()
    }
}

/// The mapping that a segment brings.
fn mapping(segment: &Segment, first: DataSeq, near: DataSeq) -> Option<Mapped> {
    if let Some(DssMapping { data_seq, subflow_offset, len, .. }) =
        segment.options.dss.and_then(|dss| dss.mapping)
    {
        let data_seq = match data_seq {
            WireDataSeq::Full(data_seq) => data_seq,
            low @ WireDataSeq::Low(_) => low.expand(near),
        };
        return Some(Mapped { data_seq, subflow_offset, len: len.into() });
    }
    // The first data may come with the keys (RFC 8684 §3.1).
    segment.options.mptcp().find_map(|option| match option {
        MptcpOption::Capable(MpCapable { keys: MpCapableKeys::BothWithData { data_len, .. }, .. }) => {
            Some(Mapped { data_seq: first, subflow_offset: 1, len: (*data_len).into() })
        }
        _ => None,
    })
}

/// The token that a key stands for, and the first data sequence number behind the initial one (RFC 8684 §3.1 and §3.2).
fn token_and_first(key: u64) -> (Token, DataSeq) {
    let hash: [u8; 32] = Sha256::digest(key.to_be_bytes()).into();
    let [t0, t1, t2, t3, .., d0, d1, d2, d3, d4, d5, d6, d7] = hash;
    let initial = DataSeq(u64::from_be_bytes([d0, d1, d2, d3, d4, d5, d6, d7]));
    (u32::from_be_bytes([t0, t1, t2, t3]), initial.add(1))
}
