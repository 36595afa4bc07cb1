use super::fields::{
    MAX_PACKET_BYTES, TCP, TCP_CHECKSUM_AT, UDP, UDP_CHECKSUM_AT, finish_ipv4, pseudo_header, set_word,
};
use super::flow::{CWR, FIN, Layout, PSH};
use super::vnet_header::{Gso, VNET_HEADER_BYTES, VnetHeader};

/// virtio header, IPv6 and the longest header of TCP.
const MAX_HEADERS_BYTES: usize = VNET_HEADER_BYTES + 40 + 60;

/// Packets of a flow that follow each other, as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct SuperPacket {
    pub(super) layout: Layout,
    /// Its first and last packet, by place in the batch.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) packets: u16,
    /// Payload of the first packet.
    segment_bytes: usize,
    payload_bytes: usize,
    /// FIN and PSH of the last packet.
    flags: u8,
    is_first_intact: bool,
}

/// Whether a packet has become a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    Yes,
    /// It is the last one: nothing may follow.
    AsLast,
    No,
}

impl SuperPacket {
    /// Of one packet, so far.
    pub(super) fn of(layout: Layout, at: usize, packet: &[u8]) -> Self {
        let payload_bytes = packet.len() - layout.header_bytes;
        Self {
            layout,
            first: at,
            last: at,
            packets: 1,
            segment_bytes: payload_bytes,
            payload_bytes,
            flags: 0,
            is_first_intact: false,
        }
    }

    /// Takes a later packet of the same flow if it is what follows.
    pub(super) fn join(&mut self, first: &[u8], layout: &Layout, at: usize, packet: &[u8]) -> Joined {
        let payload_bytes = packet.len().saturating_sub(layout.header_bytes);
        let fits = payload_bytes > 0
            && payload_bytes <= self.segment_bytes
            && layout.header_bytes == self.layout.header_bytes
            && layout.header_bytes + self.payload_bytes + payload_bytes <= MAX_PACKET_BYTES;
        if !fits || !layout.is_continued(first, packet, self.packets, self.payload_bytes as u32) {
            return Joined::No;
        }
        // The sums are formed only of what else would be joined: the kernel checks what passes alone.
        self.is_first_intact = self.is_first_intact || layout.is_intact(first);
        if !self.is_first_intact || !layout.is_intact(packet) {
            return Joined::No;
        }
        self.flags = if layout.is_tcp { packet[layout.ip_bytes + 13] & (FIN | PSH) } else { 0 };
        self.last = at;
        self.packets += 1;
        self.payload_bytes += payload_bytes;
        let is_last = payload_bytes < self.segment_bytes || self.flags != 0;
        if is_last { Joined::AsLast } else { Joined::Yes }
    }

    /// The headers of the whole, made of those of the first packet.
    pub(super) fn headers(&self, first: &[u8]) -> Headers {
        let Layout { is_v4, is_tcp, ip_bytes, header_bytes } = self.layout;
        let mut bytes = [0; MAX_HEADERS_BYTES];
        let len_bytes = VNET_HEADER_BYTES + header_bytes;
        let packet = &mut bytes[VNET_HEADER_BYTES..len_bytes];
        packet.copy_from_slice(&first[..header_bytes]);
        let total_bytes = header_bytes + self.payload_bytes;
        let transport_bytes = total_bytes - ip_bytes;
        let (protocol, checksum_at) = if is_tcp { (TCP, TCP_CHECKSUM_AT) } else { (UDP, UDP_CHECKSUM_AT) };
        let pseudo = pseudo_header(packet, is_v4, protocol, transport_bytes).folded();
        let (ip, transport) = packet.split_at_mut(ip_bytes);
        if is_v4 {
            set_word(ip, 2, total_bytes as u16);
            finish_ipv4(ip);
        } else {
            set_word(ip, 4, transport_bytes as u16);
        }
        set_word(transport, checksum_at, pseudo);
        if is_tcp {
            transport[13] |= self.flags;
        } else {
            set_word(transport, 4, transport_bytes as u16);
        }
        let header = VnetHeader {
            needs_checksum: true,
            gso: match (is_tcp, is_v4) {
                (true, true) => Gso::TcpV4,
                (true, false) => Gso::TcpV6,
                (false, _) => Gso::Udp,
            },
            has_cwr: is_tcp && transport[13] & CWR != 0,
            header_len_bytes: header_bytes as u16,
            segment_bytes: self.segment_bytes as u16,
            checksum_start: ip_bytes as u16,
            checksum_offset: checksum_at as u16,
        };
        bytes[..VNET_HEADER_BYTES].copy_from_slice(&header.to_bytes());
        Headers { bytes, len_bytes }
    }
}

/// virtio header and headers of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    bytes: [u8; MAX_HEADERS_BYTES],
    len_bytes: usize,
}

impl Headers {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }
}
