//! A stream of bytes and its metrics.

use super::byte_stream::{ByteStream, Judged, Piece};
use super::flow::FlowId;
use super::metrics::Metrics;
use super::outcome::FlowFigures;

/// What the first byte of a stream is counted as, so that one that came before it is not negative.
pub(super) const FIRST_BYTE: u64 = 1 << 40;

#[derive(Debug)]
pub(super) struct DataStream {
    bytes: ByteStream,
    metrics: Metrics,
}

impl DataStream {
    /// One that begins with the first byte, if that is known, or else with the first that comes.
    pub(super) fn new(window: u32, first: Option<u64>) -> Self {
        Self { bytes: ByteStream::new(window, first), metrics: Metrics::new(window) }
    }

    pub(super) fn handle(&mut self, piece: Piece, judged: Judged) {
        self.bytes.handle(piece, judged);
        while let Some(arrival) = self.bytes.poll_arrival() {
            self.metrics.handle_arrival(arrival);
        }
    }

    /// No more comes. What was sent again is told apart from what was late, or is not.
    pub(super) fn finish(mut self, flow: FlowId, tells_apart: bool) -> FlowFigures {
        while let Some(arrival) = self.bytes.poll_last_arrival() {
            self.metrics.handle_arrival(arrival);
        }
        let counts = self.bytes.counts();
        let mut figures = self.metrics.finish();
        figures.duplicates += counts.duplicates;
        figures.too_late += counts.too_late;
        FlowFigures {
            flow: Some(flow),
            figures,
            retransmitted: tells_apart.then_some(counts.retransmitted),
            undecided: tells_apart.then_some(counts.undecided),
        }
    }
}
