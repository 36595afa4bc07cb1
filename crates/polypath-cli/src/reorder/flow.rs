//! A flow: packets from one port of one host to another.

use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;

use super::ip::{IpPacket, TCP, UDP};

/// Which packets belong together. Ports are zero where there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) struct FlowId {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// Its number in the IP header.
    pub(crate) protocol: u8,
}

impl FlowId {
    /// None if the ports were not captured.
    pub(super) fn of(packet: &IpPacket<'_>) -> Option<Self> {
        let (from, to) = packet.ports()?;
        Some(Self {
            from: SocketAddr::new(packet.src, from),
            to: SocketAddr::new(packet.dst, to),
            protocol: packet.protocol,
        })
    }

    /// All that a host sends to another by one protocol.
    pub(super) fn without_ports(packet: &IpPacket<'_>) -> Self {
        let of = |addr| SocketAddr::new(addr, 0);
        Self { from: of(packet.src), to: of(packet.dst), protocol: packet.protocol }
    }

    /// What goes the other way.
    pub(super) const fn reversed(self) -> Self {
        Self { from: self.to, to: self.from, protocol: self.protocol }
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, protocol } = self;
        if from.port() == 0 && to.port() == 0 {
            write!(f, "{} to {}", from.ip(), to.ip())?;
        } else {
            write!(f, "{from} to {to}")?;
        }
        match *protocol {
            TCP => f.write_str(", TCP"),
            UDP => f.write_str(", UDP"),
            1 => f.write_str(", ICMP"),
            58 => f.write_str(", ICMPv6"),
            132 => f.write_str(", SCTP"),
            other => write!(f, ", protocol {other}"),
        }
    }
}
