//! Packets by the million from addresses that are not their senders', for tests of hosts and for `polypath bench attacks`. Each follows
//! from its number.

use core::net::Ipv4Addr;

use polypath_wire::{
    Endpoint, FourTuple, MpCapable, MpCapableKeys, MptcpOption, Packet, Segment, SeqNumber, TcpFlags,
    TcpOption, Timestamps,
};

/// From which of a million addresses that answer nobody the packet of this number comes, and to whom.
#[must_use]
pub fn tuple(number: u32, to: Endpoint) -> FourTuple {
    let from = Ipv4Addr::from_bits(0xac10_0000 + number.wrapping_mul(2_654_435_761) % (1 << 20));
    FourTuple { local: Endpoint::new(from.into(), 1024 + (number % 60_000) as u16), remote: to }
}

/// The segment, from such an address, with a sequence number of its own.
#[must_use]
pub fn packet(number: u32, to: Endpoint, mut segment: Segment) -> Packet {
    segment.seq = SeqNumber(number.wrapping_mul(40_503));
    Packet::tcp(tuple(number, to), segment)
}

/// A SYN with the options of a usual client, and this one.
#[must_use]
pub fn syn(number: u32, to: Endpoint, option: MptcpOption) -> Packet {
    let mut syn = Segment { flags: TcpFlags::SYN, window: 65_535, ..Segment::default() };
    syn.options.timestamps = Some(Timestamps { value: number, echo: 0 });
    syn.options.rest.extend([
        TcpOption::Mss(1460),
        TcpOption::SackPermitted,
        TcpOption::WindowScale(7),
        TcpOption::Mptcp(option),
    ]);
    packet(number, to, syn)
}

/// A SYN that asks for Multipath TCP, every other one in version 0.
#[must_use]
pub fn capable_syn(number: u32, to: Endpoint) -> Packet {
    let (version, keys) = match number % 2 {
        0 => (0, MpCapableKeys::Sender(u64::from(number))),
        _ => (1, MpCapableKeys::None),
    };
    syn(number, to, MptcpOption::Capable(MpCapable { version, flags: MpCapable::HMAC, keys }))
}
