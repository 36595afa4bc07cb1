//! What of an IP packet stays the same on its way, as far as it was captured.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Transport protocols with ports at their beginning.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const WITH_PORTS: [u8; 5] = [TCP, UDP, 33, 132, 136];

/// An IP packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpPacket<'a> {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) protocol: u8,
    /// IPv4's; others have none.
    pub(super) identification: Option<u16>,
    /// Of the IP header, with what stands before the transport header.
    pub(super) header_len: usize,
    /// What was captured of the transport header and its data.
    pub(super) transport: &'a [u8],
    /// How long that was on the wire.
    pub(super) transport_len: usize,
}

/// Why a packet is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NoPacket {
    /// There is something else than IP.
    NotIp,
    /// A part of a packet.
    Fragment,
    /// Not even the headers were captured.
    Cut,
}

impl<'a> IpPacket<'a> {
    /// Reads what was captured of a packet that was so long, with what the link layer put behind it.
    pub(super) fn parse(bytes: &'a [u8], whole_len: usize) -> Result<Self, NoPacket> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::parse_ipv4(bytes, whole_len),
            Some(6) => Self::parse_ipv6(bytes, whole_len),
            Some(_) => Err(NoPacket::NotIp),
            None => Err(NoPacket::Cut),
        }
    }

    /// RFC 791 §3.1.
    fn parse_ipv4(bytes: &'a [u8], whole_len: usize) -> Result<Self, NoPacket> {
        let header = bytes.first_chunk::<20>().ok_or(NoPacket::Cut)?;
        let [first, _, l0, l1, i0, i1, f0, f1, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        // More fragments, and the offset of this one.
        if u16::from_be_bytes([f0, f1]) & 0x3fff != 0 {
            return Err(NoPacket::Fragment);
        }
        let header_len = usize::from(first & 0x0f) * 4;
        // Aggregates that the field can't hold have zero there.
        let total_len = match usize::from(u16::from_be_bytes([l0, l1])) {
            0 => whole_len,
            total => total.min(whole_len),
        };
        if header_len < 20 || total_len < header_len {
            return Err(NoPacket::NotIp);
        }
        let transport = bytes.get(header_len..bytes.len().min(total_len)).ok_or(NoPacket::Cut)?;
        Ok(Self {
            src: Ipv4Addr::new(s0, s1, s2, s3).into(),
            dst: Ipv4Addr::new(d0, d1, d2, d3).into(),
            protocol,
            identification: Some(u16::from_be_bytes([i0, i1])),
            header_len,
            transport,
            transport_len: total_len - header_len,
        })
    }

    /// RFC 8200 §3 and §4; the extension headers that routers read are skipped.
    fn parse_ipv6(bytes: &'a [u8], whole_len: usize) -> Result<Self, NoPacket> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const DESTINATION: u8 = 60;
        let header = bytes.first_chunk::<40>().ok_or(NoPacket::Cut)?;
        let (fixed, addresses) = header.split_at(8);
        let (src, dst) = addresses.split_at(16);
        let (Some(src), Some(dst), [.., l0, l1, next, _]) =
            (src.first_chunk::<16>(), dst.first_chunk::<16>(), fixed)
        else {
            return Err(NoPacket::Cut);
        };
        let total_len = match usize::from(u16::from_be_bytes([*l0, *l1])) {
            0 => whole_len,
            payload => (40 + payload).min(whole_len),
        };
        let captured = &bytes[..bytes.len().min(total_len)];
        let (mut protocol, mut start) = (*next, 40);
        while let HOP_BY_HOP | ROUTING | DESTINATION = protocol {
            let &[next, len_in_8_bytes] = captured.get(start..start + 2).ok_or(NoPacket::Cut)? else {
                return Err(NoPacket::Cut);
            };
            protocol = next;
            start += 8 + 8 * usize::from(len_in_8_bytes);
        }
        if protocol == FRAGMENT {
            return Err(NoPacket::Fragment);
        }
        Ok(Self {
            src: Ipv6Addr::from(*src).into(),
            dst: Ipv6Addr::from(*dst).into(),
            protocol,
            identification: None,
            header_len: start,
            transport: captured.get(start..).ok_or(NoPacket::Cut)?,
            transport_len: total_len.saturating_sub(start),
        })
    }

    /// Source and destination port; zero where there are none.
    pub(super) fn ports(&self) -> Option<(u16, u16)> {
        if !WITH_PORTS.contains(&self.protocol) {
            return Some((0, 0));
        }
        let &[s0, s1, d0, d1] = self.transport.first_chunk::<4>()?;
        Some((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])))
    }
}
