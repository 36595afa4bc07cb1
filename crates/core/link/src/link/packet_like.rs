use core::fmt;
use core::net::IpAddr;

use polypath_wire::{Endpoint, FourTuple, IcmpMessage, IpHeader, Packet, SeqNumber, Transport};

use crate::segmentation;

/// What a link carries: an IP packet, or what stands for one, such as the frame that it came in.
pub trait PacketLike: Clone + fmt::Debug {
    /// Length as a link counts it, in bytes: that of the IP packet, header included.
    fn len_bytes(&self) -> usize;

    /// True if it stands for several segments.
    fn is_aggregate(&self) -> bool;

    /// The segments that it stands for.
    fn segments(self) -> impl Iterator<Item = Self>;

    /// It may not be cut into fragments.
    fn dont_fragment(&self) -> bool;

    /// The message to its sender that it is longer than `mtu_bytes`, from `source` or else the address that it was sent
    /// to; `None` where there is nobody to tell.
    fn too_big(&self, mtu_bytes: u32, source: Option<IpAddr>) -> Option<Self>;
}

impl PacketLike for Packet {
    #[inline]
    fn len_bytes(&self) -> usize {
        Packet::len_bytes(self)
    }

    #[inline]
    fn is_aggregate(&self) -> bool {
        segmentation::is_aggregate(self)
    }

    fn segments(self) -> impl Iterator<Item = Self> {
        Packet::segments(self)
    }

    #[inline]
    fn dont_fragment(&self) -> bool {
        self.ip.dont_fragment
    }

    fn too_big(&self, mtu_bytes: u32, source: Option<IpAddr>) -> Option<Self> {
        let (src_port, dst_port, seq) = match &self.transport {
            Transport::Tcp(segment) => (segment.src_port, segment.dst_port, segment.seq),
            Transport::Udp(datagram) => (datagram.src_port, datagram.dst_port, SeqNumber(0)),
            // No error about an error (RFC 1122 §3.2.2).
            Transport::Icmp(_) => return None,
        };
        let flow = FourTuple {
            local: Endpoint::new(self.ip.src, src_port),
            remote: Endpoint::new(self.ip.dst, dst_port),
        };
        let mtu = u16::try_from(mtu_bytes).unwrap_or(u16::MAX);
        Some(Packet {
            ip: IpHeader::new(source.unwrap_or(self.ip.dst), self.ip.src),
            transport: Transport::Icmp(IcmpMessage::PacketTooBig { mtu, flow, seq }),
        })
    }
}
