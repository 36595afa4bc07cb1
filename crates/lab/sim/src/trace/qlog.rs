//! Writes a trace as qlog (draft-ietf-quic-qlog-main-schema), a record a line, with the events that `docs/qlog.md` describes.

use std::io::{self, Write};
use std::net::IpAddr;

use polypath_mptcp::SubflowInfo;
use polypath_units::Instant;
use polypath_wire::{
    Dss, Endpoint, MpCapable, MpJoin, MptcpOption, Packet, Segment, TcpFlags, Transport, WireDataSeq,
};
use serde_json::{Map, Value, json};

use super::PacketDirection;

/// Before each record (RFC 7464).
const RECORD: u8 = 0x1e;
/// What the events of each namespace are.
const SCHEMAS: [&str; 2] = [
    "https://github.com/polypath/polypath/blob/main/docs/qlog.md#tcp",
    "https://github.com/polypath/polypath/blob/main/docs/qlog.md#mptcp",
];

/// A qlog file that is being written.
#[derive(Debug)]
pub(crate) struct QlogWriter<W: Write> {
    out: W,
}

impl<W: Write> QlogWriter<W> {
    /// Starts the file.
    ///
    /// # Errors
    /// Whatever `out` reports.
    pub(crate) fn new(out: W, title: &str) -> io::Result<Self> {
        let mut writer = Self { out };
        writer.write(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": title,
            "trace": {
                "common_fields": {
                    "time_format": "relative_to_epoch",
                    "reference_time": { "clock_type": "monotonic", "epoch": "unknown" },
                },
                "vantage_point": { "name": "first node of each link", "type": "network", "flow": "client" },
                "event_schemas": SCHEMAS,
            },
        }))?;
        Ok(writer)
    }

    fn write(&mut self, record: &Value) -> io::Result<()> {
        self.out.write_all(&[RECORD])?;
        serde_json::to_writer(&mut self.out, record)?;
        self.out.write_all(b"\n")
    }

    fn event(&mut self, at: Instant, name: &str, data: Map<String, Value>) -> io::Result<()> {
        self.write(&json!({ "time": at.as_nanos() as f64 / 1e6, "name": name, "data": data }))
    }

    /// A packet at the first node of its link, and what its options mean for the connection.
    ///
    /// # Errors
    /// Whatever the output reports.
    pub(crate) fn packet(
        &mut self,
        at: Instant,
        path: &str,
        direction: PacketDirection,
        packet: &Packet,
    ) -> io::Result<()> {
        let Transport::Tcp(segment) = &packet.transport else { return Ok(()) };
        let is_out = direction == PacketDirection::Outbound;
        let name = if is_out { "tcp:packet_sent" } else { "tcp:packet_received" };
        let ends = ends(packet.ip.src, packet.ip.dst, segment);
        self.event(at, name, packet_data(path, &ends, segment))?;
        let dss = segment.options.dss.map(MptcpOption::Dss);
        for option in dss.iter().chain(segment.options.mptcp()) {
            if let Some((name, mut data)) = meaning(option, segment) {
                data.insert("path".into(), path.into());
                data.insert("initiator".into(), if is_out { "local" } else { "remote" }.into());
                let [source, destination] = ends.clone();
                data.insert("source".into(), source);
                data.insert("destination".into(), destination);
                self.event(at, name, data)?;
            }
        }
        Ok(())
    }

    /// The state of a subflow, as the sender of its data sees it.
    ///
    /// # Errors
    /// Whatever the output reports.
    pub(crate) fn metrics(&mut self, at: Instant, subflow: &SubflowInfo) -> io::Result<()> {
        let tcp = &subflow.tcp;
        let mut data = object(json!({
            "source": subflow.tuple.local.to_string(),
            "destination": subflow.tuple.remote.to_string(),
            "smoothed_rtt": tcp.srtt.as_millis_f64(),
            "rtt_variance": tcp.rttvar.as_millis_f64(),
            "min_rtt": tcp.min_rtt.as_millis_f64(),
            "retransmission_timeout": tcp.rto.as_millis_f64(),
            "congestion_window": tcp.cwnd_bytes,
            "bytes_in_flight": tcp.in_flight_bytes,
            "bytes_sent": tcp.bytes_sent,
            "bytes_acknowledged": tcp.bytes_acked,
            "segments_retransmitted": tcp.retransmits,
            "delivery_rate": tcp.delivery_rate.as_bps(),
            "pacing_rate": tcp.pacing_rate.as_bps(),
        }));
        if let Some(multipath) = &subflow.multipath {
            data.insert("subflow".into(), multipath.id.0.into());
            data.insert("backup".into(), multipath.backup.into());
            data.insert("stale".into(), multipath.stale.into());
        }
        self.event(at, "tcp:metrics_updated", data)
    }

    /// # Errors
    /// Whatever the output reports.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Source and destination.
fn ends(src: IpAddr, dst: IpAddr, segment: &Segment) -> [Value; 2] {
    let end = |addr, port| Endpoint::new(addr, port).to_string().into();
    [end(src, segment.src_port), end(dst, segment.dst_port)]
}

fn packet_data(path: &str, ends: &[Value; 2], segment: &Segment) -> Map<String, Value> {
    let mut header = object(json!({
        "source": ends[0],
        "destination": ends[1],
        "flags": flags(segment.flags),
        "sequence_number": segment.seq.0,
        "window": segment.window,
    }));
    if segment.flags.ack() {
        header.insert("acknowledgment_number".into(), segment.ack.0.into());
    }
    let sack: Vec<[u32; 2]> = segment.options.sack.iter().map(|block| [block.start.0, block.end.0]).collect();
    if !sack.is_empty() {
        header.insert("sack".into(), json!(sack));
    }
    let mut data = Map::new();
    data.insert("path".into(), path.into());
    data.insert("header".into(), header.into());
    data.insert("payload_length".into(), segment.payload.len().into());
    if segment.segment_size > 0 {
        data.insert("segment_size".into(), segment.segment_size.into());
    }
    let dss = segment.options.dss.map(MptcpOption::Dss);
    let options: Vec<Value> = dss.iter().chain(segment.options.mptcp()).map(option_data).collect();
    if !options.is_empty() {
        data.insert("mptcp".into(), options.into());
    }
    data
}

fn flags(flags: TcpFlags) -> Vec<&'static str> {
    let names = [
        (TcpFlags::SYN, "syn"),
        (TcpFlags::ACK, "ack"),
        (TcpFlags::FIN, "fin"),
        (TcpFlags::RST, "rst"),
        (TcpFlags::PSH, "psh"),
        (TcpFlags::URG, "urg"),
        (TcpFlags::ECE, "ece"),
        (TcpFlags::CWR, "cwr"),
    ];
    names.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| name).collect()
}

/// An option as it stands in a packet. Keys and HMACs are left out.
fn option_data(option: &MptcpOption) -> Value {
    match option {
        MptcpOption::Capable(capable) => json!({
            "type": "mp_capable",
            "version": capable.version,
            "checksum": capable.flags & MpCapable::CHECKSUM != 0,
        }),
        MptcpOption::Join(_) => json!({ "type": "mp_join" }),
        MptcpOption::Dss(dss) => dss_data(dss),
        MptcpOption::AddAddr(_) => json!({ "type": "add_addr" }),
        MptcpOption::RemoveAddr(_) => json!({ "type": "remove_addr" }),
        MptcpOption::Prio { .. } => json!({ "type": "mp_prio" }),
        MptcpOption::Fail { .. } => json!({ "type": "mp_fail" }),
        MptcpOption::Fastclose { .. } => json!({ "type": "mp_fastclose" }),
        MptcpOption::Reset { .. } => json!({ "type": "mp_tcprst" }),
        _ => json!({ "type": "unknown" }),
    }
}

/// Numbers of 64 bits are text: not every reader of JSON has so many.
fn data_number(number: WireDataSeq) -> Value {
    match number {
        WireDataSeq::Low(low) => format!("0x{low:08x}").into(),
        WireDataSeq::Full(full) => format!("0x{:016x}", full.0).into(),
    }
}

fn dss_data(dss: &Dss) -> Value {
    let mut data = object(json!({ "type": "dss", "data_fin": dss.data_fin }));
    if let Some(ack) = dss.data_ack {
        data.insert("data_ack".into(), data_number(ack));
    }
    if let Some(mapping) = dss.mapping {
        data.insert("data_sequence_number".into(), data_number(mapping.data_seq));
        data.insert("subflow_sequence_number".into(), mapping.subflow_offset.into());
        data.insert("data_length".into(), mapping.len.into());
    }
    data.into()
}

/// The event of the connection that an option stands for, if it does.
fn meaning(option: &MptcpOption, segment: &Segment) -> Option<(&'static str, Map<String, Value>)> {
    let is_syn = segment.flags.syn() && !segment.flags.ack();
    let (name, data) = match option {
        MptcpOption::Capable(capable) if is_syn => {
            ("mptcp:connection_started", json!({ "version": capable.version }))
        }
        MptcpOption::Join(MpJoin::Syn { backup, address_id, token, .. }) => (
            "mptcp:subflow_started",
            json!({ "backup": backup, "address_id": address_id, "token": format!("{token:08x}") }),
        ),
        MptcpOption::Join(MpJoin::Ack { .. }) => ("mptcp:subflow_joined", json!({})),
        MptcpOption::AddAddr(add) => {
            let mut data =
                object(json!({ "address_id": add.address_id, "address": add.addr, "echo": add.echo }));
            if let Some(port) = add.port {
                data.insert("port".into(), port.into());
            }
            ("mptcp:address_announced", data.into())
        }
        MptcpOption::RemoveAddr(remove) => {
            ("mptcp:addresses_removed", json!({ "address_ids": remove.address_ids.as_slice() }))
        }
        MptcpOption::Prio { backup, .. } => ("mptcp:priority_changed", json!({ "backup": backup })),
        MptcpOption::Fail { data_seq } => (
            "mptcp:mapping_failed",
            json!({ "data_sequence_number": data_number(WireDataSeq::Full(*data_seq)) }),
        ),
        MptcpOption::Fastclose { .. } => ("mptcp:connection_aborted", json!({})),
        MptcpOption::Reset { reason, .. } => ("mptcp:subflow_reset", json!({ "reason": reason.0 })),
        // An infinite mapping (RFC 8684 §3.7).
        MptcpOption::Dss(Dss { mapping: Some(mapping), .. }) if mapping.len == 0 => {
            ("mptcp:fell_back", json!({}))
        }
        _ => return None,
    };
    Some((name, object(data)))
}

#[cfg(test)]
mod tests {
    use polypath_wire::{DataSeq, DssMapping, FourTuple, SeqNumber, TcpOption};

    use super::*;

    fn records(bytes: &[u8]) -> Vec<Value> {
        let parts = bytes.split(|byte| *byte == RECORD).filter(|part| !part.is_empty());
        parts.map(|part| serde_json::from_slice(part).expect("JSON")).collect()
    }

    #[test]
    fn a_packet_and_what_it_means_are_records_of_their_own() {
        let end = |last, port| Endpoint::new([10, 0, 0, last].into(), port);
        let tuple = FourTuple { local: end(1, 1000), remote: end(2, 80) };
        let mut segment = Segment { seq: SeqNumber(7), flags: TcpFlags::SYN, ..Segment::default() };
        let join = MpJoin::Syn { backup: true, address_id: 2, token: 0xabc, nonce: 5 };
        segment.options.rest.push(TcpOption::Mptcp(MptcpOption::Join(join)));
        let mut out = Vec::new();
        let mut writer = QlogWriter::new(&mut out, "a test").expect("room");
        let at = Instant::from_nanos(1_500_000);
        writer.packet(at, "lte", PacketDirection::Outbound, &Packet::tcp(tuple, segment)).expect("room");
        let mapping = DssMapping {
            data_seq: WireDataSeq::Full(DataSeq(1)),
            subflow_offset: 1,
            len: 0,
            checksum: Some(0),
        };
        let mut segment = Segment { flags: TcpFlags::ACK, ..Segment::default() };
        segment.options.dss = Some(Dss { mapping: Some(mapping), ..Dss::default() });
        writer.packet(at, "lte", PacketDirection::Inbound, &Packet::tcp(tuple, segment)).expect("room");
        let records = records(&out);
        assert_eq!(records[0]["trace"]["event_schemas"][1], SCHEMAS[1]);
        let names: Vec<&str> = records[1..].iter().filter_map(|it| it["name"].as_str()).collect();
        let wanted = ["tcp:packet_sent", "mptcp:subflow_started", "tcp:packet_received", "mptcp:fell_back"];
        assert_eq!(names, wanted);
        assert_eq!(records[1]["time"], 1.5);
        assert_eq!(records[1]["data"]["header"]["flags"], json!(["syn"]));
        assert_eq!(records[2]["data"]["token"], "00000abc");
        assert_eq!(records[4]["data"]["initiator"], "remote");
    }
}
