mod emit;
mod icmp;
mod ip;
mod parse;
mod segments;

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::{Options, Payload, SeqNumber};

pub use emit::Checksum;
pub use segments::Segments;

/// Transport protocol numbers in an IP header.
mod protocol {
    pub(super) const ICMP: u8 = 1;
    pub(super) const TCP: u8 = 6;
    pub(super) const UDP: u8 = 17;
    pub(super) const ICMPV6: u8 = 58;
}

/// An IP address and a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// IPv4 or IPv6 address.
    pub addr: IpAddr,
    /// TCP or UDP port.
    pub port: u16,
}

impl Endpoint {
    /// An address with a port.
    pub const fn new(addr: IpAddr, port: u16) -> Self {
        Self { addr, port }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(socket: SocketAddr) -> Self {
        Self::new(socket.ip(), socket.port())
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> Self {
        Self::new(endpoint.addr, endpoint.port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr {
            IpAddr::V4(addr) => write!(f, "{addr}:{}", self.port),
            IpAddr::V6(addr) => write!(f, "[{addr}]:{}", self.port),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The two ends of a flow, as one of them sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FourTuple {
    /// This end.
    pub local: Endpoint,
    /// The other end.
    pub remote: Endpoint,
}

impl FourTuple {
    /// The same flow as the other end sees it.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { local: self.remote, remote: self.local }
    }
}

impl fmt::Display for FourTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.local, self.remote)
    }
}

impl fmt::Debug for FourTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Explicit congestion notification field of the IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotCapable = 0,
    /// ECN-capable, codepoint 1.
    Capable1 = 1,
    /// ECN-capable, codepoint 0.
    Capable0 = 2,
    /// Congestion experienced.
    CongestionExperienced = 3,
}

impl Ecn {
    /// The codepoint in the two low bits of the IPv4 type of service or the IPv6 traffic class.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::CongestionExperienced,
        }
    }
}

/// What Polypath keeps of an IPv4 or IPv6 header. The version is that of the addresses, which are of one
/// family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Congestion notification.
    pub ecn: Ecn,
    /// IPv4's "don't fragment"; always true for IPv6.
    pub dont_fragment: bool,
}

impl IpHeader {
    /// A header with a TTL of 64, not ECN-capable, not to be fragmented.
    pub const fn new(src: IpAddr, dst: IpAddr) -> Self {
        Self { src, dst, ttl: 64, ecn: Ecn::NotCapable, dont_fragment: true }
    }

    /// Header length on the wire: 20 or 40 bytes.
    pub const fn len_bytes(&self) -> usize {
        match self.src {
            IpAddr::V4(_) => 20,
            IpAddr::V6(_) => 40,
        }
    }
}

/// One IP packet, not serialized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Network layer.
    pub ip: IpHeader,
    /// Transport layer and payload.
    pub transport: Transport,
}

/// What an IP packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every packet is a TCP segment, and boxing one would allocate"
)]
pub enum Transport {
    /// A TCP segment.
    Tcp(Segment),
    /// A UDP datagram.
    Udp(Datagram),
    /// The ICMP and ICMPv6 messages that path-MTU discovery and error reporting need.
    Icmp(IcmpMessage),
}

impl Packet {
    /// A TCP segment from `tuple.local` to `tuple.remote`. The segment's ports are set from the tuple.
    pub fn tcp(tuple: FourTuple, mut segment: Segment) -> Self {
        segment.src_port = tuple.local.port;
        segment.dst_port = tuple.remote.port;
        Self { ip: IpHeader::new(tuple.local.addr, tuple.remote.addr), transport: Transport::Tcp(segment) }
    }

    /// The flow of a TCP packet as its *receiver* sees it: local is the destination.
    pub fn receiver_tuple(&self) -> Option<FourTuple> {
        let Transport::Tcp(segment) = &self.transport else { return None };
        Some(FourTuple {
            local: Endpoint::new(self.ip.dst, segment.dst_port),
            remote: Endpoint::new(self.ip.src, segment.src_port),
        })
    }

    /// Length on the wire in bytes, IP header included. An aggregate (see [`Segment::segment_size`]) counts
    /// as one packet with one header.
    pub fn len_bytes(&self) -> usize {
        self.ip.len_bytes()
            + match &self.transport {
                Transport::Tcp(segment) => segment.header_len_bytes() + segment.payload.len(),
                Transport::Udp(datagram) => 8 + datagram.payload.len(),
                Transport::Icmp(message) => message.len_bytes(),
            }
    }
}

/// A UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Data.
    pub payload: Payload,
}

/// An ICMP (RFC 792) or ICMPv6 (RFC 4443) error about a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpMessage {
    /// Fragmentation needed and DF set (RFC 1191), or Packet Too Big (RFC 8201).
    PacketTooBig {
        /// The next hop's MTU in bytes.
        mtu: u16,
        /// The flow of the packet that was too big, as its sender sees it.
        flow: FourTuple,
        /// Its TCP sequence number (RFC 5927: to be checked against what is in flight).
        seq: SeqNumber,
    },
    /// Destination unreachable: host, network, port or prohibited; `code` is the ICMPv4 code.
    Unreachable {
        /// ICMPv4 code (0 network, 1 host, 3 port, 13 prohibited, …), never 4. Over IPv6 only these four
        /// exist; others are written as the nearest.
        code: u8,
        /// The flow of the packet that caused it, as its sender sees it.
        flow: FourTuple,
        /// Its TCP sequence number.
        seq: SeqNumber,
    },
}

impl IcmpMessage {
    /// Length in bytes: 8 of ICMP header, the offending IP header and 8 bytes of its payload.
    pub const fn len_bytes(&self) -> usize {
        let (Self::PacketTooBig { flow, .. } | Self::Unreachable { flow, .. }) = self;
        match flow.local.addr {
            IpAddr::V4(_) => 8 + 20 + 8,
            IpAddr::V6(_) => 8 + 40 + 8,
        }
    }
}

/// TCP header flags (RFC 9293 §3.1).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// ECN echo.
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced.
    pub const CWR: Self = Self(0x80);

    /// True if all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set less `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// SYN is set.
    pub const fn syn(self) -> bool {
        self.contains(Self::SYN)
    }

    /// ACK is set.
    pub const fn ack(self) -> bool {
        self.contains(Self::ACK)
    }

    /// FIN is set.
    pub const fn fin(self) -> bool {
        self.contains(Self::FIN)
    }

    /// RST is set.
    pub const fn rst(self) -> bool {
        self.contains(Self::RST)
    }
}

impl fmt::Debug for TcpFlags {
    /// The letters that tcpdump prints: `S.`, `F.`, `R`, `P.`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (flag, letter) in [
            (Self::SYN, 'S'),
            (Self::FIN, 'F'),
            (Self::RST, 'R'),
            (Self::PSH, 'P'),
            (Self::URG, 'U'),
            (Self::ECE, 'E'),
            (Self::CWR, 'W'),
            (Self::ACK, '.'),
        ] {
            if self.contains(flag) {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// A TCP segment, or an aggregate of equal segments that travels as one (segmentation offload).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Segment {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first byte, or of SYN.
    pub seq: SeqNumber,
    /// Next sequence number expected, if the ACK flag is set; else zero on the wire.
    pub ack: SeqNumber,
    /// Flags.
    pub flags: TcpFlags,
    /// Receive window as on the wire, before scaling.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options.
    pub options: Options,
    /// Data: up to 64 KB.
    pub payload: Payload,
    /// Payload bytes of each segment that a driver or link cuts this aggregate into; 0 when it is one
    /// segment.
    pub segment_size: u16,
}

impl Segment {
    /// TCP header length with options and padding, in bytes.
    pub fn header_len_bytes(&self) -> usize {
        20 + self.options.len_bytes()
    }

    /// Length in sequence space: payload plus one each for SYN and FIN.
    pub fn sequence_len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.flags.syn()) + u32::from(self.flags.fin())
    }

    /// Sequence number after the last one that this segment occupies.
    pub fn seq_end(&self) -> SeqNumber {
        self.seq.add(self.sequence_len())
    }
}
