//! Editing the byte stream of a flow, as an application-level gateway does, and keeping sequence numbers
//! consistent.

mod half;

use alloc::vec::Vec;

use polypath_wire::{FourTuple, Packet};

use super::flows::{FlowTable, flow_of, segment_mut};
use super::options::{has_infinite_mapping, icmp_quote, map_sack};
use super::{Direction, Flows, Outputs};
use crate::segmentation;
use half::{Edit, Half};

/// Most changes that one box makes, whatever its limit: what it has to remember is bounded.
const MAX_REWRITES: u64 = 65_536;

/// A segment that an insertion makes longer is cut into pieces of its old length, but not into shorter ones
/// than this: the default MSS of IPv4 (RFC 9293 §3.7.1).
const MIN_PIECE_BYTES: usize = 536;

/// What an editing box looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditTarget {
    /// These bytes, wherever they are within one segment.
    Bytes(Vec<u8>),
    /// A place in the stream: its first byte has offset 0.
    Place {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes; fewer if a segment ends before.
        len: usize,
    },
}

/// What an editing box does to data that is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Retransmissions {
    /// The same as the first time, as a gateway does.
    #[default]
    Same,
    /// Nothing: only the first transmission is changed.
    Clean,
}

/// A change that a box has made to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// The flow, as its client sees it.
    pub flow: FourTuple,
    /// The direction of the stream.
    pub direction: Direction,
    /// Where it begins in the stream as it was sent, from 0.
    pub stream_offset: u64,
    /// What was there.
    pub removed: Vec<u8>,
    /// What is there now.
    pub inserted: Vec<u8>,
}

/// What takes the place of what was found.
#[derive(Clone, Debug)]
pub(super) enum Replacement {
    With(Vec<u8>),
    /// The same, cut or filled with zeros to the length of what was found.
    Fitted(Vec<u8>),
    /// Every bit of it inverted.
    Inverted,
}

/// What to edit, and how.
#[derive(Clone, Debug)]
pub(super) struct EditRules {
    pub(super) target: EditTarget,
    pub(super) replacement: Replacement,
    pub(super) flows: Flows,
    pub(super) direction: Option<Direction>,
    pub(super) limit: u64,
    pub(super) retransmissions: Retransmissions,
    pub(super) stop_at_infinite_mapping: bool,
}

/// The editor.
#[derive(Debug)]
pub(super) struct StreamEditor {
    rules: EditRules,
    flows: FlowTable<EditedFlow>,
    rewrites: Vec<Rewrite>,
}

#[derive(Debug, Default)]
struct EditedFlow {
    halves: [Option<Half>; 2],
    /// Nothing new is edited.
    finished: bool,
}

impl StreamEditor {
    pub(super) fn new(rules: EditRules) -> Self {
        Self { rules, flows: FlowTable::new(), rewrites: Vec::new() }
    }

    pub(super) fn rewrites(&self) -> &[Rewrite] {
        &self.rewrites
    }

    pub(super) fn handle_packet(&mut self, direction: Direction, mut packet: Packet, out: &mut Outputs) {
        if let Some((flow, seq)) = icmp_quote(&mut packet) {
            let quoted = direction.reversed();
            let flow = if quoted == Direction::Forward { *flow } else { flow.reversed() };
            if let Some(half) = self.flows.get(flow).and_then(|known| known.halves[quoted.index()].as_ref()) {
                *seq = half.original(*seq);
            }
        }
        let piece_bytes = match flow_of(direction, &packet) {
            Some(flow) => self.edit(direction, flow, &mut packet),
            None => usize::MAX,
        };
        for piece in segmentation::cut(packet, piece_bytes) {
            out.push(direction, piece);
        }
    }

    /// Edits a segment; returns the longest payload to send it with.
    fn edit(&mut self, direction: Direction, flow: FourTuple, packet: &mut Packet) -> usize {
        let Some(segment) = segment_mut(packet) else { return usize::MAX };
        if segment.flags.syn() {
            let (_, known) = self.flows.get_or_insert(flow, EditedFlow::default);
            let half = &mut known.halves[direction.index()];
            if half.as_ref().is_none_or(|half| half.isn() != segment.seq) {
                *half = Some(Half::new(segment.seq));
                if direction == Direction::Forward {
                    known.halves[1] = None;
                    known.finished = false;
                }
            }
        }
        // The lookup counts as a packet of this flow; a flow without a SYN is not entered.
        if self.flows.get(flow).is_none() {
            return usize::MAX;
        }
        let (number, known) = self.flows.get_or_insert(flow, EditedFlow::default);
        if self.rules.stop_at_infinite_mapping && has_infinite_mapping(&segment.options) {
            known.finished = true;
        }
        let may_edit = !known.finished
            && self.rules.flows.contain(number, flow)
            && self.rules.direction.is_none_or(|only| only == direction);
        if segment.flags.ack()
            && let Some(other) = &known.halves[direction.reversed().index()]
        {
            segment.ack = other.original(segment.ack);
            map_sack(&mut segment.options, |seq| other.original(seq));
        }
        let Some(half) = &mut known.halves[direction.index()] else { return usize::MAX };
        if segment.flags.syn() {
            return usize::MAX;
        }
        let start = half.offset(segment.seq);
        let old_len = segment.payload.len();
        let already_known = half.edits().len();
        if may_edit && old_len > 0 {
            let room = self.rules.limit.min(MAX_REWRITES).saturating_sub(self.rewrites.len() as u64);
            let seen = half.seen().max(start);
            for (offset, removed, inserted) in self.rules.find(seen, start, &segment.payload, room) {
                let edit = Edit::new(offset, removed.len() as u64, inserted.clone().into());
                if half.add(edit) {
                    self.rewrites.push(Rewrite {
                        flow,
                        direction,
                        stream_offset: offset as u64,
                        removed,
                        inserted,
                    });
                }
            }
        }
        half.see(start + old_len as i64);
        let first = match self.rules.retransmissions {
            Retransmissions::Same => 0,
            Retransmissions::Clean => already_known,
        };
        segment.seq = half.changed(segment.seq);
        if let Some(payload) = half.apply(start, &segment.payload, first) {
            segment.payload = payload;
        }
        // What was not made longer is not cut.
        if segment.payload.len() <= old_len { usize::MAX } else { old_len.max(MIN_PIECE_BYTES) }
    }
}

impl EditRules {
    /// What is to be edited in `payload`, which begins at `start`, from offset `from` on: offset, what is
    /// there, and what takes its place. At most `room` of it.
    fn find(
        &self,
        from: i64,
        start: i64,
        payload: &polypath_wire::Payload,
        room: u64,
    ) -> Vec<(i64, Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        let end = start + payload.len() as i64;
        if room == 0 || from < 0 || from >= end {
            return found;
        }
        let inserted = |removed: &[u8]| match &self.replacement {
            Replacement::With(bytes) => bytes.clone(),
            Replacement::Fitted(bytes) => {
                let mut bytes = bytes.clone();
                bytes.resize(removed.len(), 0);
                bytes
            }
            Replacement::Inverted => removed.iter().map(|byte| !byte).collect(),
        };
        match &self.target {
            EditTarget::Place { offset, len } => {
                let offset = i64::try_from(*offset).unwrap_or(i64::MAX);
                if (from..end).contains(&offset) {
                    let removed = payload.slice((offset - start) as usize, *len).to_vec();
                    let inserted = inserted(&removed);
                    found.push((offset, removed, inserted));
                }
            }
            EditTarget::Bytes(pattern) if pattern.is_empty() => {}
            EditTarget::Bytes(pattern) => {
                let bytes = payload.slice((from - start) as usize, usize::MAX).to_vec();
                let mut at = 0;
                while let Some(rest) = bytes.get(at..)
                    && let Some(step) = rest.windows(pattern.len()).position(|window| window == pattern)
                    && (found.len() as u64) < room
                {
                    found.push((from + (at + step) as i64, pattern.clone(), inserted(pattern)));
                    at += step + pattern.len();
                }
            }
        }
        found.retain(|(_, removed, inserted)| removed != inserted);
        found
    }
}

#[cfg(test)]
mod tests;
