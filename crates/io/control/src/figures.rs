use std::net::IpAddr;

use polypath_mptcp::SubflowInfo;
use polypath_stack::stack::{Figures, PathFigures};
use polypath_stack::{Fallback, Stack};
use serde::{Deserialize, Serialize};

use super::report::fallback_words;

/// What a stack has counted since its start, over connections that are open and those that have ended. No number goes back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FiguresReport {
    /// By local address. The number of a path is its place here.
    pub paths: Vec<PathReport>,
    /// Connections now.
    pub connections: u64,
    /// Connections that fell back to TCP, by cause, in the words of [`EventReport::reason`](super::EventReport::reason).
    pub fallbacks: Vec<(String, u64)>,
}

/// What one of the stack's own addresses has carried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// Name of the interface, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The stack's own address.
    pub address: IpAddr,
    /// Payload sent, retransmissions included.
    pub sent_bytes: u64,
    /// Payload received in order.
    pub received_bytes: u64,
    /// Payload sent again.
    pub retransmitted_bytes: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Subflows that became ready for data.
    pub subflows: u64,
    /// What its subflows are like now.
    pub now: SubflowsNow,
}

/// The subflows of a path that are ready for data, together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubflowsNow {
    /// How many there are.
    pub subflows: u64,
    /// Milliseconds of smoothed round-trip time, the mean of those that have measured one.
    pub rtt_ms: Option<f64>,
    /// Congestion windows, their sum.
    pub cwnd_bytes: u64,
    /// Bits per second that arrived lately, their sum.
    pub delivery_rate_bps: u64,
}

impl SubflowsNow {
    fn of(subflows: &[&SubflowInfo]) -> Self {
        let rtt_ms = subflows.iter().map(|subflow| subflow.tcp.latest_rtt().as_millis_f64());
        let rtt_ms: Vec<f64> = rtt_ms.filter(|rtt| *rtt > 0.0).collect();
        Self {
            subflows: subflows.len() as u64,
            rtt_ms: (!rtt_ms.is_empty()).then(|| rtt_ms.iter().sum::<f64>() / rtt_ms.len() as f64),
            cwnd_bytes: subflows.iter().map(|subflow| subflow.tcp.cwnd_bytes).sum(),
            delivery_rate_bps: subflows.iter().map(|subflow| subflow.tcp.delivery_rate.as_bps()).sum(),
        }
    }
}

impl FiguresReport {
    pub(super) fn of(stack: &Stack) -> Self {
        let connections = stack.connections();
        let subflows: Vec<&SubflowInfo> = connections.iter().flat_map(|(_, info)| &info.subflows).collect();
        Self::new(stack.figures(), connections.len(), &subflows)
    }

    /// What was counted, and the subflows of connections that are open now.
    #[must_use]
    pub fn new(figures: Figures, connections: usize, subflows: &[&SubflowInfo]) -> Self {
        let Figures { paths, fallbacks } = figures;
        let addresses: Vec<IpAddr> = paths.iter().map(|path| path.address).collect();
        // Addresses beyond those that are counted for themselves share the last place.
        let place = |subflow: &SubflowInfo| {
            let addr = subflow.tuple.local.addr;
            let own = addresses.iter().position(|known| known.to_canonical() == addr.to_canonical());
            own.or_else(|| addresses.len().checked_sub(1))
        };
        let mut live = vec![Vec::new(); paths.len()];
        for subflow in subflows.iter().copied().filter(|it| it.established) {
            if let Some(of_path) = place(subflow).and_then(|place| live.get_mut(place)) {
                of_path.push(subflow);
            }
        }
        Self {
            paths: paths.into_iter().zip(&live).map(|(path, live)| PathReport::of(path, live)).collect(),
            connections: connections as u64,
            fallbacks: fallbacks.into_iter().map(|(it, count)| (words(it).into(), count)).collect(),
        }
    }
}

fn words(fallback: Fallback) -> &'static str {
    match fallback {
        Fallback::Reason(reason) => fallback_words(reason),
        _ => "ended_early",
    }
}

impl PathReport {
    fn of(PathFigures { address, name, carried }: PathFigures, live: &[&SubflowInfo]) -> Self {
        Self {
            interface: name,
            address,
            sent_bytes: carried.sent_bytes,
            received_bytes: carried.received_bytes,
            retransmitted_bytes: carried.retransmitted_bytes,
            retransmitted_segments: carried.retransmitted_segments,
            subflows: carried.subflows,
            now: SubflowsNow::of(live),
        }
    }
}
