//! Captures, packet by packet.

use std::path::PathBuf;

use bytes::Bytes;
use polypath_wire::{
    Datagram, Endpoint, FourTuple, IpHeader, Options, Packet, Segment, SeqNumber, TcpFlags, Timestamps,
    Transport,
};
use tempfile::TempDir;

/// LINKTYPE_RAW.
const RAW: u32 = 101;

/// A folder for captures, which is removed behind a test.
pub(super) struct Folder(TempDir);

impl Folder {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(super) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    }
}

/// When a packet came, in milliseconds, and the packet.
pub(super) type Timed = (u64, Vec<u8>);

/// A pcap file, whose times are in microseconds.
pub(super) fn pcap(packets: &[Timed]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0, RAW] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for (millis, packet) in packets {
        let length = packet.len() as u32;
        for word in [(millis / 1000) as u32, (millis % 1000 * 1000) as u32, length, length] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(packet);
    }
    file
}

/// The same with other words: big-endian, with nanoseconds, each packet cut at `kept`.
pub(super) fn big_endian_pcap(packets: &[Timed], kept: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0002_0004, 0, 0, kept as u32, RAW] {
        file.extend_from_slice(&word.to_be_bytes());
    }
    for (millis, packet) in packets {
        let kept = packet.len().min(kept);
        let words = [millis / 1000, millis % 1000 * 1_000_000, kept as u64, packet.len() as u64];
        words.iter().for_each(|word| file.extend_from_slice(&(*word as u32).to_be_bytes()));
        file.extend_from_slice(&packet[..kept]);
    }
    file
}

/// A block of a pcapng file.
pub(super) fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
    let length = ((body.len() + padding.len() + 12) as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &padding, &length].concat()
}

/// A pcapng file with one interface and times in milliseconds; of each packet, whether it went out.
pub(super) fn pcapng(packets: &[(u64, Vec<u8>, bool)]) -> Vec<u8> {
    let mut file =
        block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
    // The unit of time is a thousandth.
    file.extend(block(1, &[RAW as u8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0]));
    for (millis, packet, is_outbound) in packets {
        let length = (packet.len() as u32).to_le_bytes();
        let time =
            [&((millis >> 32) as u32).to_le_bytes(), &(*millis as u32).to_le_bytes()].map(|it| *it).concat();
        let padding = vec![0; packet.len().next_multiple_of(4) - packet.len()];
        let flags = [2, 0, 4, 0, if *is_outbound { 2 } else { 1 }, 0, 0, 0, 0, 0, 0, 0];
        file.extend(block(6, &[&[0; 4], &time[..], &length, &length, packet, &padding, &flags].concat()));
    }
    file
}

pub(super) fn endpoint(host: u8, port: u16) -> Endpoint {
    Endpoint::new([192, 0, 2, host].into(), port)
}

/// From host 1 to host 2.
pub(super) fn forth() -> FourTuple {
    FourTuple { local: endpoint(1, 5001), remote: endpoint(2, 80) }
}

pub(super) fn udp(flow: FourTuple, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (flow.local, flow.remote);
    let payload = Bytes::copy_from_slice(payload).into();
    let datagram = Datagram { src_port: from.port, dst_port: to.port, payload };
    emitted(&Packet { ip: IpHeader::new(from.addr, to.addr), transport: Transport::Udp(datagram) })
}

/// A segment with so many bytes from this place on.
pub(super) fn data(flow: FourTuple, seq: u32, len: usize, clock: Option<u32>) -> Vec<u8> {
    let options =
        Options { timestamps: clock.map(|value| Timestamps { value, echo: 0 }), ..Options::default() };
    let (seq, payload) = (SeqNumber(seq), Bytes::from(vec![seq as u8; len]).into());
    emitted(&Packet::tcp(flow, Segment { seq, flags: TcpFlags::ACK, options, payload, ..Segment::default() }))
}

pub(super) fn control(flow: FourTuple, seq: u32, flags: TcpFlags) -> Vec<u8> {
    emitted(&Packet::tcp(flow, Segment { seq: SeqNumber(seq), flags, ..Segment::default() }))
}

fn emitted(packet: &Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.emit(&mut bytes);
    bytes
}

/// The packet with another identification.
pub(super) fn with_identification(mut packet: Vec<u8>, identification: u16) -> Vec<u8> {
    packet[4..6].copy_from_slice(&identification.to_be_bytes());
    packet
}
