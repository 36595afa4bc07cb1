//! How far out of order a peer's packets come is found by whoever asks, from what the tunnel records meanwhile: a line of JSON each tenth
//! of a second.

mod give;
mod take;

use std::net::SocketAddr;

use polypath_tunnel::{InnerPacket, PathId, Record, Recorded, RecordedFlow, RecordedStream};
use polypath_units::Instant;
use serde::{Deserialize, Serialize};

use crate::reorder::FlowId;

pub(super) use give::begin;
pub(in crate::command) use take::{Taken, take};

/// The first line: of whom it is.
#[derive(Debug, Deserialize, Serialize)]
struct Begun {
    peer: String,
}

/// Each line behind it.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Batch {
    /// What a number counts, which of them, the number, bytes, and nanoseconds.
    records: Vec<(Kind, u64, u32, u32, u64)>,
    missed: u64,
    without_number: u64,
    flows: Vec<(u64, FlowLine)>,
    shared: Vec<u64>,
    paths: Vec<PathLine>,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
enum Kind {
    #[serde(rename = "p")]
    Path,
    #[serde(rename = "c")]
    Came,
    #[serde(rename = "h")]
    HandedOn,
}

/// What a flow is called.
#[derive(Debug, Deserialize, Serialize)]
struct FlowLine {
    from: SocketAddr,
    to: SocketAddr,
    protocol: u8,
}

/// A path as it is now.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(in crate::command) struct PathLine {
    pub(in crate::command) number: u8,
    pub(in crate::command) interface: Option<String>,
    pub(in crate::command) remote: String,
}

impl Batch {
    fn new(recorded: &Recorded, paths: Vec<PathLine>) -> Self {
        Self {
            records: recorded.records.iter().map(written).collect(),
            missed: recorded.missed,
            without_number: recorded.without_number,
            flows: recorded
                .flows
                .iter()
                .map(|(flow, first)| (flow_number(*flow), FlowLine::new(first)))
                .collect(),
            shared: recorded.shared.iter().copied().map(flow_number).collect(),
            paths,
        }
    }
}

impl FlowLine {
    fn new(first: &InnerPacket) -> Self {
        let (from, to) = first.ports.unwrap_or_default();
        let (from, to) = (SocketAddr::new(first.source, from), SocketAddr::new(first.destination, to));
        Self { from, to, protocol: first.protocol }
    }

    fn id(&self) -> FlowId {
        FlowId { from: self.from, to: self.to, protocol: self.protocol }
    }
}

fn written(record: &Record) -> (Kind, u64, u32, u32, u64) {
    let (kind, which) = match record.stream {
        RecordedStream::Path { path, keys } => (Kind::Path, u64::from(keys) << 8 | path.index() as u64),
        RecordedStream::Came(flow) => (Kind::Came, flow_number(flow)),
        RecordedStream::HandedOn(flow) => (Kind::HandedOn, flow_number(flow)),
    };
    (kind, which, record.number, record.len_bytes, record.at.since(Instant::ZERO).as_nanos())
}

/// `None` for a path that none can be.
fn read((kind, which, number, len_bytes, nanos): (Kind, u64, u32, u32, u64)) -> Option<Record> {
    let stream = match kind {
        Kind::Path => RecordedStream::Path { path: PathId::new(which as u8)?, keys: (which >> 8) as u32 },
        Kind::Came => RecordedStream::Came(numbered_flow(which)),
        Kind::HandedOn => RecordedStream::HandedOn(numbered_flow(which)),
    };
    Some(Record { stream, number, len_bytes, at: Instant::from_nanos(nanos) })
}

fn flow_number(flow: RecordedFlow) -> u64 {
    u64::from(flow.is_copied) << 8 | u64::from(flow.number)
}

fn numbered_flow(number: u64) -> RecordedFlow {
    RecordedFlow { is_copied: number >> 8 != 0, number: number as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let flow = RecordedFlow { is_copied: true, number: 255 };
        let path = PathId::new(15).unwrap();
        let keys = 0x00ff_fffe;
        for stream in
            [RecordedStream::Path { path, keys }, RecordedStream::Came(flow), RecordedStream::HandedOn(flow)]
        {
            let record =
                Record { stream, number: u32::MAX, len_bytes: 1_400, at: Instant::from_nanos(7_000_000_001) };
            let text = serde_json::to_string(&written(&record)).unwrap();
            assert_eq!(read(serde_json::from_str(&text).unwrap()), Some(record), "{text}");
        }
        assert_eq!(read((Kind::Path, 16, 0, 0, 0)), None);
    }
}
