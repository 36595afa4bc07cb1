//! What was found.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::capture::{Capture, CaptureError, Ended};
use super::figures::Figures;
use super::flow::FlowId;
use super::numbers::Numbers;
use super::seen::LeftOut;

/// So many flows have figures of their own: those with the most packets.
const MOST_FLOWS: usize = 64;

/// All that was found of packets in one order.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    /// None, of a tunnel that runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) captures: Vec<Captured>,
    /// What says in which order packets were sent.
    pub(crate) order: String,
    /// Each packet is compared with all others, or with those of its own flow alone.
    pub(crate) total_is_one_stream: bool,
    pub(crate) total: FlowFigures,
    pub(crate) flows: Vec<FlowFigures>,
    /// That are in the total alone.
    pub(crate) more_flows: u64,
    /// What is to be known of the figures, in words.
    pub(crate) notes: Vec<String>,
    /// How many packets are remembered, at most.
    pub(crate) window: u32,
}

/// Why there are no figures: one line.
#[derive(Debug)]
pub(crate) struct Trouble(String);

/// A capture that was read.
#[derive(Debug, Serialize)]
pub(crate) struct Captured {
    pub(crate) file: String,
    pub(crate) format: &'static str,
    pub(crate) packets: u64,
    /// Not looked at, by cause.
    pub(crate) left_out: LeftOut,
    /// It did not end behind a packet: why, if so.
    pub(crate) broken: Option<String>,
}

/// A flow and its figures, or all of them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FlowFigures {
    #[serde(flatten)]
    pub(crate) flow: Option<FlowId>,
    #[serde(flatten)]
    pub(crate) figures: Figures,
    /// Sent again in the place of something that was lost; none where that can't be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retransmitted: Option<u64>,
    /// Late ones of which it is not certain whether they were sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) undecided: Option<u64>,
}

impl Captured {
    pub(super) fn new(file: String, capture: &Capture, left_out: LeftOut, ended: &Ended) -> Self {
        let broken = match ended {
            Ended::Whole => None,
            Ended::CutOff(packets) => Some(format!("cut off behind packet {packets}")),
            Ended::Damaged(packets) => Some(format!("damaged behind packet {packets}")),
        };
        let format = if capture.is_pcapng() { "pcapng" } else { "pcap" };
        Self { file, format, packets: capture.packets(), left_out, broken }
    }
}

impl Trouble {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub(super) fn unreadable(path: &Path, error: &CaptureError) -> Self {
        Self(format!("{}: {error}", name_of(path)))
    }

    /// Of no packet it is known when it was sent.
    pub(super) fn nothing(captured: &Captured, numbers: Numbers, jumping: u64) -> Self {
        let Captured { file, packets, left_out, broken, .. } = captured;
        let broken = broken.as_ref().map_or(String::new(), |broken| format!(", and is {broken}"));
        if *packets == 0 {
            return Self(format!("{file} has no packets{broken}"));
        }
        let most = left_out.iter().max_by_key(|(_, count)| **count);
        let most = match most {
            _ if jumping > 0 => "whose numbers count up by one".to_string(),
            Some((cause, count)) => format!("to look at: {count} of {packets} are {cause}"),
            None => "to look at".into(),
        };
        let expected = match numbers {
            Numbers::Tcp => "--sequence for other than TCP, or a second capture, of the sender",
            Numbers::Mptcp => "--sequence tcp",
            _ => "another --sequence, or a second capture, of the sender",
        };
        Self(format!("{file} has no packets {most}{broken}; expected {expected}"))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a capture is called.
pub(super) fn name_of(path: &Path) -> String {
    if path == Path::new("-") { "standard input".into() } else { path.display().to_string() }
}

impl FlowFigures {
    pub(super) fn none(is_tcp: bool) -> Self {
        let count = is_tcp.then_some(0);
        Self { flow: None, figures: Figures::none(), retransmitted: count, undecided: count }
    }

    pub(super) fn absorb(&mut self, other: &Self) {
        let sum = |one: Option<u64>, more: Option<u64>| one.zip(more).map(|(one, more)| one + more);
        self.figures.absorb(&other.figures);
        self.retransmitted = sum(self.retransmitted, other.retransmitted);
        self.undecided = sum(self.undecided, other.undecided);
    }
}

/// Flows that have ended.
#[derive(Debug)]
pub(super) struct EndedFlows {
    total: FlowFigures,
    kept: Vec<FlowFigures>,
    more: u64,
}

impl EndedFlows {
    pub(super) fn new(is_tcp: bool) -> Self {
        Self { total: FlowFigures::none(is_tcp), kept: Vec::new(), more: 0 }
    }

    pub(super) fn add(&mut self, flow: FlowFigures) {
        if flow.figures.received == 0 {
            return;
        }
        self.total.absorb(&flow);
        self.kept.push(flow);
        if self.kept.len() >= 2 * MOST_FLOWS {
            self.thin();
        }
    }

    /// Those with the most packets stay.
    fn thin(&mut self) {
        self.kept.sort_by(|one, other| {
            let packets = other.figures.received.cmp(&one.figures.received);
            packets.then_with(|| one.flow.cmp(&other.flow))
        });
        self.more += self.kept.len().saturating_sub(MOST_FLOWS) as u64;
        self.kept.truncate(MOST_FLOWS);
    }

    /// The total, each flow, and how many more there were.
    pub(super) fn finish(mut self) -> (FlowFigures, Vec<FlowFigures>, u64) {
        self.thin();
        (self.total, self.kept, self.more)
    }
}
