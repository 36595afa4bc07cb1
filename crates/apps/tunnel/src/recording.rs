//! What comes from a peer, number by number, as long as somebody wants to know how far out of order it is.

use std::collections::BTreeMap;

use polypath_units::Instant;

use crate::frame::{DataHeader, Order, Sequence};
use crate::inner_packet::InnerPacket;
use crate::noise::{Index, PathId};
use crate::resequencer::MOST_AHEAD;

/// So much is kept until it is taken: 4 MB.
const MOST_RECORDS: usize = 1 << 17;

/// Packets that the peer numbers one by one: a flow, or several that share a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordedFlow {
    /// Each packet goes over several paths, and has a number of another row than those of which one copy goes.
    pub is_copied: bool,
    /// The flow's.
    pub number: u8,
}

/// What numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordedStream {
    /// Datagrams over a path, of data and of control, as they came. New keys begin anew, so they are part of its name.
    Path {
        /// The path.
        path: PathId,
        /// The keys.
        keys: u32,
    },
    /// Packets of a flow as they came over all paths. What is sent again has its old number.
    Came(RecordedFlow),
    /// Packets of a flow as they were handed on, in order as far as that can be had.
    HandedOn(RecordedFlow),
}

/// A packet or a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What its number counts.
    pub stream: RecordedStream,
    /// Its number: 32 bits of a path's, 24 of a flow's.
    pub number: u32,
    /// Its length.
    pub len_bytes: u32,
    /// When it came, or was handed on.
    pub at: Instant,
}

/// What was recorded since it was last asked for.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// In the order in which it happened.
    pub records: Vec<Record>,
    /// For so many there was no room.
    pub missed: u64,
    /// Packets without numbers, which leave at once: urgent ones, those that a rule pins to a path, and all of a stock WireGuard.
    pub without_number: u64,
    /// Flows of which nothing had come before: their first packets.
    pub flows: Vec<(RecordedFlow, InnerPacket)>,
    /// Flows that were found to share their number with others.
    pub shared: Vec<RecordedFlow>,
}

/// Records what comes from one peer.
#[derive(Debug)]
pub(crate) struct Recording {
    recorded: Recorded,
    /// The first number of each flow: what was sent before may have come before, and it would be missed.
    first: BTreeMap<RecordedFlow, Sequence>,
    /// The first packet of each flow, and whether another flow has its number.
    flows: BTreeMap<RecordedFlow, (InnerPacket, bool)>,
}

impl Recording {
    /// `next_new` tells the first number of a flow that has not come: of packets that are kept in order, and of those that come in copies.
    pub(crate) fn new(next_new: impl Fn(u8) -> (Sequence, Sequence)) -> Self {
        let first = (0..=u8::MAX).flat_map(|number| {
            let (kept, copied) = next_new(number);
            [(false, kept), (true, copied)]
                .map(|(is_copied, first)| (RecordedFlow { is_copied, number }, first))
        });
        Self { recorded: Recorded::default(), first: first.collect(), flows: BTreeMap::new() }
    }

    /// The peer begins anew, and with it all numbers.
    pub(crate) fn handle_restart(&mut self) {
        self.first.clear();
    }

    /// Whether a packet was sent after the first that counts.
    fn counts(&mut self, flow: RecordedFlow, sequence: Sequence) -> bool {
        let Some(first) = self.first.get(&flow) else { return true };
        let ahead = sequence.ahead_of(*first);
        if ahead.abs() >= MOST_AHEAD {
            // Far beyond it, or another beginning. Numbers wrap: they must not come to it again.
            self.first.remove(&flow);
            return true;
        }
        ahead >= 0
    }

    /// What came since it was taken last.
    pub(crate) fn take(&mut self) -> Recorded {
        std::mem::take(&mut self.recorded)
    }

    /// An authentic datagram.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        (local, path, counter): (Index, PathId, u32),
        len_bytes: usize,
    ) {
        let keys = u32::from_le_bytes(local.to_bytes());
        self.note(RecordedStream::Path { path, keys }, counter, len_bytes, now);
    }

    /// A packet came out of a datagram.
    pub(crate) fn handle_packet(&mut self, now: Instant, header: &DataHeader, packet: &[u8]) {
        let Some(flow) = flow_of(header) else { return self.handle_unnumbered() };
        if !self.counts(flow, header.sequence) {
            return;
        }
        if let Some(inner) = InnerPacket::parse(packet) {
            let recorded = &mut self.recorded;
            let (first, is_shared) = self.flows.entry(flow).or_insert_with(|| {
                recorded.flows.push((flow, inner));
                (inner, false)
            });
            if !*is_shared && !is_same_flow(first, &inner) {
                *is_shared = true;
                recorded.shared.push(flow);
            }
        }
        self.note(RecordedStream::Came(flow), header.sequence.bits(), packet.len(), now);
    }

    /// A packet that has no number.
    pub(crate) fn handle_unnumbered(&mut self) {
        self.recorded.without_number += 1;
    }

    /// A packet was handed on.
    pub(crate) fn handle_left(
        &mut self,
        now: Instant,
        flow: RecordedFlow,
        sequence: Sequence,
        len_bytes: usize,
    ) {
        if self.counts(flow, sequence) {
            self.note(RecordedStream::HandedOn(flow), sequence.bits(), len_bytes, now);
        }
    }

    fn note(&mut self, stream: RecordedStream, number: u32, len_bytes: usize, at: Instant) {
        if self.recorded.records.len() < MOST_RECORDS {
            let len_bytes = u32::try_from(len_bytes).unwrap_or(u32::MAX);
            self.recorded.records.push(Record { stream, number, len_bytes, at });
        } else {
            self.recorded.missed += 1;
        }
    }
}

fn flow_of(header: &DataHeader) -> Option<RecordedFlow> {
    match header.order {
        Order::Kept => Some(RecordedFlow { is_copied: false, number: header.flow }),
        Order::FirstCopy => Some(RecordedFlow { is_copied: true, number: header.flow }),
        Order::Free | Order::Across => None,
    }
}

fn is_same_flow(one: &InnerPacket, other: &InnerPacket) -> bool {
    let name = |packet: &InnerPacket| (packet.source, packet.destination, packet.protocol, packet.ports);
    name(one) == name(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        Recording::new(|_| (Sequence::new(7), Sequence::new(0)))
    }

    fn header(flow: u8, order: Order) -> DataHeader {
        DataHeader::new(order, flow, Sequence::new(7))
    }

    fn packet(port: u8) -> [u8; 28] {
        let mut packet = [0; 28];
        (packet[0], packet[3], packet[9], packet[21]) = (0x45, 28, 17, port);
        packet
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut recording = recording();
        for _ in 0..MOST_RECORDS + 5 {
            recording.handle_packet(Instant::ZERO, &header(1, Order::Kept), &packet(1));
        }
        let taken = recording.take();
        assert_eq!((taken.records.len(), taken.missed), (MOST_RECORDS, 5));
        recording.handle_packet(Instant::ZERO, &header(1, Order::Kept), &packet(1));
        let taken = recording.take();
        assert_eq!((taken.records.len(), taken.missed, taken.flows.len()), (1, 0, 0));
    }

    #[test]
    fn what_was_sent_before_does_not_count() {
        let mut recording = recording();
        for number in [6, 0x00ff_ffff, 8, 7, 200_000, 6] {
            let header = DataHeader { sequence: Sequence::new(number), ..header(1, Order::Kept) };
            recording.handle_packet(Instant::ZERO, &header, &packet(1));
        }
        let numbers: Vec<_> = recording.take().records.iter().map(|record| record.number).collect();
        assert_eq!(numbers, [8, 7, 200_000, 6], "numbers wrap, so that after long the last is new");
    }

    #[test]
    fn flows_that_share_a_number_are_told_once() {
        let mut recording = recording();
        for port in [1, 1, 2, 3] {
            recording.handle_packet(Instant::ZERO, &header(9, Order::Kept), &packet(port));
        }
        recording.handle_packet(Instant::ZERO, &header(9, Order::FirstCopy), &packet(5));
        recording.handle_packet(Instant::ZERO, &header(9, Order::Free), &packet(6));
        let taken = recording.take();
        let flows = [false, true].map(|is_copied| RecordedFlow { is_copied, number: 9 });
        let ports: Vec<_> = taken.flows.iter().map(|(flow, first)| (*flow, first.ports)).collect();
        assert_eq!(ports, [(flows[0], Some((1, 0))), (flows[1], Some((5, 0)))]);
        assert_eq!((taken.shared, taken.without_number), (vec![flows[0]], 1));
    }
}
