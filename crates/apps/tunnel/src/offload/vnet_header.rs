/// Length of the header in bytes.
pub const VNET_HEADER_BYTES: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;

const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Set in addition when the first packet of TCP has CWR set.
const GSO_ECN: u8 = 0x80;

/// What the packets of a frame are cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gso {
    /// Nothing: the frame is one packet.
    None,
    /// Segments of TCP over IPv4.
    TcpV4,
    /// Segments of TCP over IPv6.
    TcpV6,
    /// Datagrams of UDP over either (`VIRTIO_NET_HDR_GSO_UDP_L4`).
    Udp,
    /// What no device of ours asks for.
    Unknown(u8),
}

/// The header in front of each frame of a device with `IFF_VNET_HDR` (virtio 1.2 §5.1.6), in native byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VnetHeader {
    /// Whether the transport's checksum is still to be finished: its field holds the sum over the pseudo header.
    pub needs_checksum: bool,
    /// What it is cut into.
    pub gso: Gso,
    /// Whether the first packet has CWR set.
    pub has_cwr: bool,
    /// Bytes of all headers, as a hint.
    pub header_len_bytes: u16,
    /// Payload bytes of each packet but the last, which may be shorter.
    pub segment_bytes: u16,
    /// Where the checksum begins to count, from the packet's first byte.
    pub checksum_start: u16,
    /// Where the checksum stands, from there.
    pub checksum_offset: u16,
}

impl VnetHeader {
    /// Of a packet that passes as it is.
    pub const PLAIN: Self = Self {
        needs_checksum: false,
        gso: Gso::None,
        has_cwr: false,
        header_len_bytes: 0,
        segment_bytes: 0,
        checksum_start: 0,
        checksum_offset: 0,
    };

    /// Splits a frame into header and packet; none if it is shorter than a header.
    #[must_use]
    pub fn split(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (&[flags, kind, h0, h1, g0, g1, s0, s1, o0, o1], packet) =
            frame.split_first_chunk::<VNET_HEADER_BYTES>()?;
        let header = Self {
            needs_checksum: flags & NEEDS_CHECKSUM != 0,
            gso: match kind & !GSO_ECN {
                GSO_NONE => Gso::None,
                GSO_TCP_V4 => Gso::TcpV4,
                GSO_TCP_V6 => Gso::TcpV6,
                GSO_UDP => Gso::Udp,
                other => Gso::Unknown(other),
            },
            has_cwr: kind & GSO_ECN != 0,
            header_len_bytes: u16::from_ne_bytes([h0, h1]),
            segment_bytes: u16::from_ne_bytes([g0, g1]),
            checksum_start: u16::from_ne_bytes([s0, s1]),
            checksum_offset: u16::from_ne_bytes([o0, o1]),
        };
        Some((header, packet))
    }

    /// As it stands in front of a packet.
    #[must_use]
    pub fn to_bytes(self) -> [u8; VNET_HEADER_BYTES] {
        let kind = match self.gso {
            Gso::None => GSO_NONE,
            Gso::TcpV4 => GSO_TCP_V4,
            Gso::TcpV6 => GSO_TCP_V6,
            Gso::Udp => GSO_UDP,
            Gso::Unknown(other) => other,
        };
        let [h0, h1] = self.header_len_bytes.to_ne_bytes();
        let [g0, g1] = self.segment_bytes.to_ne_bytes();
        let [s0, s1] = self.checksum_start.to_ne_bytes();
        let [o0, o1] = self.checksum_offset.to_ne_bytes();
        let ecn = if self.has_cwr { GSO_ECN } else { 0 };
        [u8::from(self.needs_checksum) * NEEDS_CHECKSUM, kind | ecn, h0, h1, g0, g1, s0, s1, o0, o1]
    }
}
