//! Packets for tests: a client on 10.0.0.1 port 40000 and a server on 10.0.9.1 port 80.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use polypath_wire::{
    Datagram, Endpoint, FourTuple, IpHeader, Packet, Segment, SeqNumber, TcpFlags, Transport,
};

pub(crate) const CLIENT: Endpoint = Endpoint::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 40000);
pub(crate) const SERVER: Endpoint = Endpoint::new(IpAddr::V4(Ipv4Addr::new(10, 0, 9, 1)), 80);
/// The flow as the client sees it.
pub(crate) const FLOW: FourTuple = FourTuple { local: CLIENT, remote: SERVER };

/// A segment from the client with `len` bytes of data that depend on the sequence number alone.
pub(crate) fn data(seq: u32, len: usize) -> Packet {
    Packet::tcp(FLOW, data_segment(seq, len))
}

pub(crate) fn data_segment(seq: u32, len: usize) -> Segment {
    Segment {
        seq: SeqNumber(seq),
        flags: TcpFlags::ACK,
        payload: stream(seq, len).into(),
        ..Segment::default()
    }
}

/// `len` bytes of the test stream from sequence number `seq`.
pub(crate) fn stream(seq: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|offset| (seq.wrapping_add(offset) % 251) as u8).collect()
}

/// A datagram whose IP packet is `size_bytes` long; `tag` is its source port.
pub(crate) fn datagram(tag: u16, size_bytes: usize) -> Packet {
    let payload = alloc::vec![0; size_bytes - 28].into();
    Packet {
        ip: IpHeader::new(CLIENT.addr, SERVER.addr),
        transport: Transport::Udp(Datagram { src_port: tag, dst_port: 9, payload }),
    }
}

pub(crate) fn tag_of(packet: &Packet) -> u16 {
    match &packet.transport {
        Transport::Udp(datagram) => datagram.src_port,
        other => panic!("{other:?} is no datagram"),
    }
}

#[track_caller]
pub(crate) fn segment_of(packet: &Packet) -> &Segment {
    match &packet.transport {
        Transport::Tcp(segment) => segment,
        other => panic!("{other:?} is no segment"),
    }
}
