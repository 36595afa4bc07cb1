use polypath_wire::IncrementalSum;

use super::fields::{IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, TCP, UDP, double_word, pseudo_header, word};

pub(super) const FIN: u8 = 0x01;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;
pub(super) const ECE: u8 = 0x40;
pub(super) const CWR: u8 = 0x80;

/// Protocols of IPv6 that are extension headers, behind which TCP or UDP may stand.
const EXTENSIONS: [u8; 7] = [0, 43, 44, 51, 60, 135, 140];

/// What may be done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It belongs to a flow of TCP or UDP.
    Flow(Layout),
    /// It belongs to no such flow.
    Apart,
    /// It can't be told to which flow it belongs: fragments, options, extension headers, lengths that differ.
    Unclear,
}

/// Where things are in a packet of TCP or UDP whose lengths are right: IPv4 without options and fragments, or IPv6 without extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) is_v4: bool,
    pub(super) is_tcp: bool,
    /// Bytes of the IP header, and of all headers.
    pub(super) ip_bytes: usize,
    pub(super) header_bytes: usize,
}

impl Kind {
    pub(super) fn of(packet: &[u8]) -> Self {
        let (is_v4, ip_bytes, protocol) = match packet.first().map(|first| first >> 4) {
            Some(4) if packet.len() >= IPV4_HEADER_BYTES => {
                if packet[0] != 0x45
                    || usize::from(word(packet, 2)) != packet.len()
                    || word(packet, 6) & 0x3fff != 0
                {
                    return Self::Unclear;
                }
                (true, IPV4_HEADER_BYTES, packet[9])
            }
            Some(6) if packet.len() >= IPV6_HEADER_BYTES => {
                if usize::from(word(packet, 4)) + IPV6_HEADER_BYTES != packet.len()
                    || EXTENSIONS.contains(&packet[6])
                {
                    return Self::Unclear;
                }
                (false, IPV6_HEADER_BYTES, packet[6])
            }
            _ => return Self::Unclear,
        };
        let transport = &packet[ip_bytes..];
        let transport_bytes = match protocol {
            TCP if transport.len() >= 20 => usize::from(transport[12] >> 4) * 4,
            UDP if transport.len() >= 8 && usize::from(word(transport, 4)) == transport.len() => 8,
            TCP | UDP => return Self::Unclear,
            _ => return Self::Apart,
        };
        let is_tcp = protocol == TCP;
        if transport_bytes > transport.len() || is_tcp && transport_bytes < 20 {
            return Self::Unclear;
        }
        Self::Flow(Layout { is_v4, is_tcp, ip_bytes, header_bytes: ip_bytes + transport_bytes })
    }
}

impl Layout {
    /// Whether two packets have the same addresses and ports.
    pub(super) fn is_same_flow(&self, packet: &[u8], other: &Self, other_packet: &[u8]) -> bool {
        let is_alike = (self.is_v4, self.is_tcp) == (other.is_v4, other.is_tcp);
        // Addresses and ports stand side by side, as nothing is between the headers.
        let from = if self.is_v4 { 12 } else { 8 };
        let ends = from..self.ip_bytes + 4;
        is_alike && packet[ends.clone()] == other_packet[ends]
    }

    /// Whether a packet may be the first of several.
    pub(super) fn may_begin(&self, packet: &[u8]) -> bool {
        let transport = &packet[self.ip_bytes..];
        let is_plain = if self.is_tcp {
            transport[13] & !(PSH | ECE | CWR) == ACK && transport[13] & PSH == 0
        } else {
            // Without a checksum it would get one.
            word(transport, 6) != 0
        };
        is_plain && packet.len() > self.header_bytes
    }

    /// Whether all but what is each packet's own is alike in the headers of the first packet and of a later one of the flow, `index` packets
    /// and `offset_bytes` of payload after it.
    pub(super) fn is_continued(&self, first: &[u8], later: &[u8], index: u16, offset_bytes: u32) -> bool {
        let is_ip_alike = if self.is_v4 {
            // Where fragments are forbidden, the identification says nothing (RFC 6864).
            let is_atomic = first[6] & 0x40 != 0;
            first[1] == later[1]
                && first[6..9] == later[6..9]
                && (is_atomic || word(later, 4) == word(first, 4).wrapping_add(index))
        } else {
            first[..4] == later[..4] && first[7] == later[7]
        };
        let (first, later) = (&first[self.ip_bytes..], &later[self.ip_bytes..]);
        is_ip_alike
            && if self.is_tcp {
                let options = 20..self.header_bytes - self.ip_bytes;
                double_word(later, 4) == double_word(first, 4).wrapping_add(offset_bytes)
                    // Acknowledgment and length of the header; window; urgent pointer.
                    && first[8..13] == later[8..13]
                    && first[14..16] == later[14..16]
                    && first[18..20] == later[18..20]
                    && later[13] & !(PSH | FIN) == first[13] & !CWR
                    && first[options.clone()] == later[options]
            } else {
                word(later, 6) != 0
            }
    }

    /// Whether the checksums are right, of the IPv4 header as well: a packet that was damaged on its way must not get new ones.
    pub(super) fn is_intact(&self, packet: &[u8]) -> bool {
        let is_ip_intact = !self.is_v4 || {
            let mut sum = IncrementalSum::new();
            sum.push(&packet[..self.ip_bytes]);
            sum.finish() == 0
        };
        let transport = &packet[self.ip_bytes..];
        let protocol = if self.is_tcp { TCP } else { UDP };
        let mut sum = pseudo_header(packet, self.is_v4, protocol, transport.len());
        sum.push(transport);
        is_ip_intact && sum.finish() == 0
    }
}
