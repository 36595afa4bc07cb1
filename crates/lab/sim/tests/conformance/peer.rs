//! The peer of a script: it makes the packets that come in, and knows those that go out.

use bytes::Bytes;
use polypath_units::Instant;
use polypath_wire::{
    Dss, FourTuple, IcmpMessage, IpHeader, MpJoin, MptcpOption, Options, Packet, SackBlock, Segment,
    SeqNumber, TcpOption, Timestamps, Transport,
};

use crate::flow::{Flow, Map};
use crate::keys;
use crate::script::{IcmpSpec, MptcpSpec, OptionSpec, PacketSpec, SubflowSpec};
use crate::values::{Secrets, Side};

/// Port of whoever listens.
pub(crate) const SERVICE_PORT: u16 = 80;

/// Flows and keys.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) flows: Vec<Flow>,
    pub(crate) secrets: Secrets,
    started: Instant,
}

impl Peer {
    pub(crate) fn new(version: u8, started: Instant, main: &SubflowSpec) -> Self {
        let secrets = Secrets { version, host_key: None, peer_key: 0x7065_6572_0000_0001 };
        Self { flows: vec![Flow::new(0, main)], secrets, started }
    }

    pub(crate) fn add(&mut self, spec: &SubflowSpec) {
        let number = self.flows.len() as u32;
        let named = self.flows.iter_mut().find(|flow| flow.name == spec.name);
        match named {
            Some(flow) => *flow = Flow::new(number, spec),
            None => self.flows.push(Flow::new(number, spec)),
        }
    }

    pub(crate) fn named(&self, name: &str) -> Result<usize, String> {
        let name = if name.is_empty() { "main" } else { name };
        let position = self.flows.iter().position(|flow| flow.name == name);
        position.ok_or_else(|| format!("no subflow `{name}`"))
    }

    /// Which flow a packet of the host is of; one whose ends were not all known becomes that of its first SYN.
    pub(crate) fn flow_of(&mut self, packet: &Packet) -> Option<usize> {
        let tuple = packet.receiver_tuple()?.reversed();
        let known = |flow: &Flow| flow.is_bound() && flow.may_be(&tuple);
        if let Some(position) = self.flows.iter().position(known) {
            return Some(position);
        }
        let position = self.flows.iter().position(|flow| !flow.is_bound() && flow.may_be(&tuple))?;
        let flow = &mut self.flows[position];
        (flow.host, flow.peer) = (tuple.local, tuple.remote);
        Some(position)
    }

    /// The packet that a line describes.
    pub(crate) fn packet(&mut self, now: Instant, spec: &PacketSpec) -> Result<Packet, String> {
        let position = self.named(&spec.subflow)?;
        let main_port = self.flows[0].host.port;
        let flow = &mut self.flows[position];
        if flow.host.port == 0 {
            flow.host.port = if main_port == 0 { SERVICE_PORT } else { main_port };
        }
        if flow.peer.port == 0 {
            flow.peer.port = 5000 + position as u16;
        }
        if spec.new {
            flow.peer_isn = flow.peer_seq(flow.peer_next).wrapping_add(100_000);
            flow.peer_next = 0;
        }
        let seq = spec.seq.unwrap_or(flow.peer_next);
        if let Some((_, window)) = spec.window {
            flow.window = window as u16;
        }
        let mut segment = Segment {
            seq: SeqNumber(flow.peer_seq(seq)),
            flags: spec.flags,
            window: flow.window,
            urgent: spec.urgent.unwrap_or(0),
            ..Segment::default()
        };
        if spec.flags.ack() {
            segment.ack = SeqNumber(flow.host_seq(spec.ack.unwrap_or(flow.host_next)));
        }
        segment.options = self.options(now, position, spec)?;
        let flow = &mut self.flows[position];
        let mut payload: Vec<u8> = match spec.stream_from {
            Some(from) => keys::stream(from, spec.payload_bytes as usize),
            None => content(&flow.peer_maps, seq, spec.payload_bytes),
        };
        if let Some(first) = payload.first_mut().filter(|_| spec.corrupt) {
            *first ^= 1;
        }
        segment.payload = Bytes::from(payload).into();
        if !spec.flags.rst() {
            flow.peer_next = flow.peer_next.max(seq + i64::from(segment.sequence_len()));
        }
        Ok(Packet::tcp(flow.as_peer_sends(), segment))
    }

    fn options(&mut self, now: Instant, position: usize, spec: &PacketSpec) -> Result<Options, String> {
        let mut options = Options::default();
        let mut says_timestamps = false;
        for option in &spec.options {
            let flow = &mut self.flows[position];
            match option {
                OptionSpec::Mss(mss) => options.rest.push(TcpOption::Mss(*mss)),
                OptionSpec::WindowScale(shift) => options.rest.push(TcpOption::WindowScale(*shift)),
                OptionSpec::SackPermitted => options.rest.push(TcpOption::SackPermitted),
                OptionSpec::Sack(blocks) => {
                    options.sack = blocks.iter().map(|block| sack_block(flow, *block)).collect();
                }
                OptionSpec::Timestamps { value, echo } => {
                    says_timestamps = true;
                    flow.timestamps |= spec.flags.syn();
                    options.timestamps = Some(timestamps(self.started, now, flow, spec, *value, *echo));
                }
                OptionSpec::Without(name) => says_timestamps |= name == "ts",
                OptionSpec::Raw { kind, data } => {
                    let data = data.as_slice().try_into().map_err(|_| "a raw option is too long")?;
                    options.rest.push(TcpOption::Unknown { kind: *kind, data });
                }
                OptionSpec::Mptcp(spec) => self.push_mptcp(position, spec, &mut options)?,
            }
        }
        let flow = &self.flows[position];
        if flow.timestamps && !says_timestamps && !spec.flags.rst() {
            options.timestamps = Some(timestamps(self.started, now, flow, spec, None, None));
        }
        Ok(options)
    }

    fn push_mptcp(&mut self, position: usize, spec: &MptcpSpec, options: &mut Options) -> Result<(), String> {
        let flow = &mut self.flows[position];
        let option = self.secrets.option(Side::Peer, flow, spec, None)?;
        note_maps(&mut flow.peer_maps, spec);
        match option {
            MptcpOption::Dss(dss) if options.dss.is_none() => options.dss = Some(dss),
            option => options.rest.push(TcpOption::Mptcp(option)),
        }
        Ok(())
    }

    /// An ICMP message about a segment of the host.
    pub(crate) fn icmp(&self, spec: &IcmpSpec) -> Packet {
        let flow = &self.flows[0];
        let about = FourTuple { local: flow.host, remote: flow.peer };
        let seq = |relative: i64| SeqNumber(flow.host_seq(relative));
        let message = match spec {
            IcmpSpec::Unreachable { code, seq: at } => {
                IcmpMessage::Unreachable { code: *code, flow: about, seq: seq(*at) }
            }
            IcmpSpec::TooBig { mtu, seq: at } => {
                IcmpMessage::PacketTooBig { mtu: *mtu, flow: about, seq: seq(*at) }
            }
        };
        Packet { ip: IpHeader::new(flow.peer.addr, flow.host.addr), transport: Transport::Icmp(message) }
    }

    /// Learns what only the host can choose: its key and nonces.
    pub(crate) fn learn(&mut self, position: usize, spec: &MptcpSpec, option: &MptcpOption) {
        use polypath_wire::MpCapableKeys::{Both, BothWithData, Sender};
        match option {
            MptcpOption::Capable(capable) if self.secrets.host_key.is_none() => {
                self.secrets.host_key = match capable.keys {
                    Sender(key) => Some(key),
                    Both { sender, .. } | BothWithData { sender, .. } => Some(sender),
                    _ => None,
                };
            }
            MptcpOption::Join(MpJoin::Syn { nonce, .. } | MpJoin::SynAck { nonce, .. }) => {
                self.flows[position].host_nonce = *nonce;
            }
            _ => {}
        }
        note_maps(&mut self.flows[position].host_maps, spec);
    }
}

fn note_maps(maps: &mut Vec<Map>, spec: &MptcpSpec) {
    match spec {
        MptcpSpec::Dss(dss) => maps.extend(dss.map.filter(|map| map.len > 0).map(|map| Map {
            at: i64::from(map.at),
            len: i64::from(map.len) - i64::from(dss.fin),
            from: map.start,
        })),
        MptcpSpec::Capable { len: Some(len), .. } => {
            maps.push(Map { at: 1, len: i64::from(*len), from: 1 });
        }
        _ => {}
    }
}

/// The payload at a subflow sequence number, given mappings.
pub(crate) fn content(maps: &[Map], seq: i64, bytes: u32) -> Vec<u8> {
    (seq..seq + i64::from(bytes)).map(|seq| keys::stream_byte(Flow::place(maps, seq))).collect()
}

fn sack_block(flow: &Flow, (start, end): (i64, i64)) -> SackBlock {
    SackBlock { start: SeqNumber(flow.host_seq(start)), end: SeqNumber(flow.host_seq(end)) }
}

/// The peer's clock is in milliseconds and was at 1 000 when the script began.
fn timestamps(
    started: Instant,
    now: Instant,
    flow: &Flow,
    spec: &PacketSpec,
    value: Option<i64>,
    echo: Option<i64>,
) -> Timestamps {
    let clock = 1000 + now.since(started).as_millis() as i64;
    let first = flow.first_host_timestamp.unwrap_or(0);
    let latest = if spec.flags.ack() { flow.host_timestamp } else { 0 };
    let echo = echo.map_or(latest, |echo| first.wrapping_add(echo as u32));
    Timestamps { value: value.unwrap_or(clock) as u32, echo }
}

/// The first DSS of a segment and its other options of Multipath TCP, in one row.
pub(crate) fn mptcp_options(options: &Options) -> Vec<MptcpOption> {
    let first = options.dss.map(|dss: Dss| MptcpOption::Dss(dss));
    first.into_iter().chain(options.mptcp().cloned()).collect()
}
