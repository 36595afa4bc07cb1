//! The flows of TCP: each is a stream of its own, numbered by its sequence numbers.

use polypath_units::{Duration, Instant};
use polypath_wire::{Segment, SeqNumber};

use super::byte_stream::{Judged, Piece};
use super::data_stream::{DataStream, FIRST_BYTE};
use super::flow::FlowId;
use super::flows::Flows;
use super::outcome::{EndedFlows, FlowFigures};

/// One direction of a connection.
#[derive(Debug)]
struct TcpFlow {
    stream: DataStream,
    /// The furthest byte that was sent, as it was sent and as it goes on.
    furthest: Option<(SeqNumber, u64)>,
    initial: Option<SeqNumber>,
    /// When the SYN of a client was seen, until the handshake is over.
    syn_at: Option<Instant>,
    round_trip: Option<Duration>,
    has_data: bool,
}

#[derive(Debug)]
pub(super) struct TcpFlows {
    window: u32,
    flows: Flows<FlowId, TcpFlow>,
    ended: EndedFlows,
}

/// A segment, as far as it was captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caught<'a> {
    pub(super) flow: FlowId,
    pub(super) at: Instant,
    pub(super) segment: &'a Segment,
    /// Its payload on the wire.
    pub(super) payload_len: usize,
    /// The host that captured it has sent it: what it holds has not come from anywhere.
    pub(super) is_outbound: bool,
}

impl TcpFlow {
    fn new(window: u32, initial: Option<SeqNumber>) -> Self {
        Self {
            stream: DataStream::new(window, initial.map(|_| FIRST_BYTE)),
            furthest: initial.map(|initial| (initial.add(1), FIRST_BYTE)),
            initial,
            syn_at: None,
            round_trip: None,
            has_data: false,
        }
    }

    /// Where a sequence number is in the stream.
    fn place(&mut self, seq: SeqNumber) -> Option<u64> {
        let (sent, place) = *self.furthest.get_or_insert((seq, FIRST_BYTE));
        let ahead = i64::from(seq.diff(sent));
        let found = place.checked_add_signed(ahead)?;
        if ahead > 0 {
            self.furthest = Some((seq, found));
        }
        Some(found)
    }
}

impl TcpFlows {
    pub(super) fn new(window: u32) -> Self {
        Self { window, flows: Flows::new(), ended: EndedFlows::new(true) }
    }

    /// A segment was captured. True if it has data that came.
    pub(super) fn handle(&mut self, caught: Caught<'_>) -> bool {
        let Caught { flow, at, segment, payload_len, is_outbound } = caught;
        if segment.flags.syn() {
            self.begin(flow, at, segment);
        } else if let Some(syn_at) = self.flow(flow).syn_at.take() {
            // The client's first segment behind its SYN: the handshake went there and back.
            let round_trip = Some(at.since(syn_at));
            self.flow(flow).round_trip = round_trip;
            self.flow(flow.reversed()).round_trip = round_trip;
        }
        if payload_len == 0 || is_outbound {
            return false;
        }
        let first = segment.seq.add(u32::from(segment.flags.syn()));
        let tcp = self.flow(flow);
        let Some(start) = tcp.place(first) else { return false };
        tcp.has_data = true;
        let sender_clock = segment.options.timestamps.map(|timestamps| timestamps.value);
        let piece = Piece { start, end: start + payload_len as u64, at, sender_clock };
        tcp.stream.handle(piece, Judged::ByClock { round_trip: tcp.round_trip });
        true
    }

    /// A SYN, of a client or a server. With another number it is another connection.
    fn begin(&mut self, flow: FlowId, at: Instant, segment: &Segment) {
        let (window, initial) = (self.window, Some(segment.seq));
        let tcp = self.flow(flow);
        if tcp.initial != initial {
            let before = std::mem::replace(tcp, TcpFlow::new(window, initial));
            if before.has_data {
                self.ended.add(before.stream.finish(flow, true));
            }
        }
        if !segment.flags.ack() {
            self.flow(flow).syn_at = Some(at);
        }
    }

    fn flow(&mut self, flow: FlowId) -> &mut TcpFlow {
        let window = self.window;
        let (tcp, silent) = self.flows.of(flow, || TcpFlow::new(window, None));
        if let Some((silent, tcp)) = silent {
            self.ended.add(tcp.stream.finish(silent, true));
        }
        tcp
    }

    /// The total, each flow, and how many more there were.
    pub(super) fn finish(mut self) -> (FlowFigures, Vec<FlowFigures>, u64) {
        for (flow, tcp) in self.flows.into_iter() {
            self.ended.add(tcp.stream.finish(flow, true));
        }
        self.ended.finish()
    }
}
