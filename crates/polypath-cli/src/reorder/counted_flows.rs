//! Flows whose sender numbers packets one by one.

use polypath_tunnel::reordering::Arrival;
use polypath_units::Instant;

use super::counter::Counter;
use super::flow::FlowId;
use super::flows::Flows;
use super::metrics::Metrics;
use super::outcome::{EndedFlows, FlowFigures};

#[derive(Debug)]
struct Counted {
    counter: Counter,
    metrics: Metrics,
}

#[derive(Debug)]
pub(super) struct CountedFlows {
    window: u32,
    bits: u32,
    /// What is not counted by this flow alone has gaps that are no losses.
    has_gaps: bool,
    flows: Flows<FlowId, Counted>,
    ended: EndedFlows,
    jumping: u64,
}

impl CountedFlows {
    pub(super) fn new(window: u32, bits: u32, has_gaps: bool) -> Self {
        let (flows, ended) = (Flows::new(), EndedFlows::new(false));
        Self { window, bits, has_gaps, flows, ended, jumping: 0 }
    }

    /// A packet with this number came. True if it goes with those before it.
    pub(super) fn handle(&mut self, flow: FlowId, number: u64, at: Instant, bytes: usize) -> bool {
        let (window, bits) = (self.window, self.bits);
        let begin = || Counted { counter: Counter::new(bits), metrics: Metrics::new(window) };
        let (counted, silent) = self.flows.of(flow, begin);
        let sequence = counted.counter.unwrap(number);
        if let Some(sequence) = sequence {
            let payload_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            counted.metrics.handle_arrival(Arrival { sequence, at, payload_bytes });
        }
        if let Some((flow, silent)) = silent {
            self.end(flow, silent);
        }
        sequence.is_some()
    }

    fn end(&mut self, flow: FlowId, counted: Counted) {
        if counted.counter.is_none() {
            self.jumping += 1;
            return;
        }
        let mut figures = counted.metrics.finish();
        if self.has_gaps {
            figures.lost = None;
        }
        self.ended.add(FlowFigures { flow: Some(flow), figures, retransmitted: None, undecided: None });
    }

    /// The total, each flow, how many more there were, and how many had numbers that do not count up.
    pub(super) fn finish(mut self) -> ((FlowFigures, Vec<FlowFigures>, u64), u64) {
        let flows = std::mem::replace(&mut self.flows, Flows::new());
        flows.into_iter().for_each(|(flow, counted)| self.end(flow, counted));
        (self.ended.finish(), self.jumping)
    }
}
