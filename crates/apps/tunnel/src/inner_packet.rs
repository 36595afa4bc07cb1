//! What the tunnel looks at in a packet that it carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IP protocol numbers.
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMP_V6: u8 = 58;
/// Those that have ports.
pub(crate) const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const DCCP: u8 = 33;

/// Addresses, ports and marks of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerPacket {
    /// Where it is from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// Its protocol (IPv4), or that of its first header after the fixed one (IPv6).
    pub protocol: u8,
    /// Source and destination port, where the protocol has them and the packet is no later fragment.
    pub ports: Option<(u16, u16)>,
    /// Differentiated services code point (RFC 2474).
    pub dscp: u8,
    /// Length by the header, which is at most that of the bytes.
    pub len_bytes: usize,
}

impl InnerPacket {
    /// `None` for what is no whole IP packet.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::parse_v4(bytes),
            6 => Self::parse_v6(bytes),
            _ => None,
        }
    }

    fn parse_v4(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<20>()?;
        let header_bytes = usize::from(header[0] & 0x0f) * 4;
        let len_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header_bytes < 20 || len_bytes < header_bytes || len_bytes > bytes.len() {
            return None;
        }
        let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
        let protocol = header[9];
        let after = if offset == 0 { &bytes[header_bytes..len_bytes] } else { &[] };
        let source: [u8; 4] = header[12..16].try_into().ok()?;
        let destination: [u8; 4] = header[16..20].try_into().ok()?;
        Some(Self {
            source: Ipv4Addr::from(source).into(),
            destination: Ipv4Addr::from(destination).into(),
            protocol,
            ports: ports(protocol, after),
            dscp: header[1] >> 2,
            len_bytes,
        })
    }

    fn parse_v6(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<40>()?;
        let len_bytes = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        if len_bytes > bytes.len() {
            return None;
        }
        let protocol = header[6];
        let source: [u8; 16] = header[8..24].try_into().ok()?;
        let destination: [u8; 16] = header[24..40].try_into().ok()?;
        Some(Self {
            source: Ipv6Addr::from(source).into(),
            destination: Ipv6Addr::from(destination).into(),
            protocol,
            ports: ports(protocol, &bytes[40..len_bytes]),
            dscp: (header[0] & 0x0f) << 2 | header[1] >> 6,
            len_bytes,
        })
    }

    /// A number for the flow, the same for each of its packets.
    pub(crate) fn flow(&self, key: u64) -> u8 {
        let mut state = key ^ u64::from(self.protocol);
        let mut mix = |value: u64| {
            state = (state ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            state ^= state >> 29;
        };
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                mix(u64::from(u32::from(source)) << 32 | u64::from(u32::from(destination)));
            }
            (source, destination) => {
                for address in [source, destination] {
                    let IpAddr::V6(address) = address else { continue };
                    let bits = u128::from(address);
                    mix((bits >> 64) as u64);
                    mix(bits as u64);
                }
            }
        }
        let (from, to) = self.ports.unwrap_or_default();
        mix(u64::from(from) << 16 | u64::from(to));
        (state >> 56) as u8
    }
}

fn ports(protocol: u8, after: &[u8]) -> Option<(u16, u16)> {
    if !matches!(protocol, TCP | UDP | SCTP | DCCP) {
        return None;
    }
    let &[a, b, c, d] = after.first_chunk()?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_counts_is_read() {
        let mut packet = vec![0; 28];
        packet[..4].copy_from_slice(&[0x45, 46 << 2, 0, 28]);
        packet[9] = UDP;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet[20..24].copy_from_slice(&[0x13, 0x88, 0, 53]);
        let read = InnerPacket::parse(&packet).unwrap();
        assert_eq!((read.dscp, read.protocol, read.ports), (46, UDP, Some((5000, 53))));
        assert_eq!(read.destination, IpAddr::from([10, 0, 0, 2]));
        // A later fragment has no ports.
        packet[7] = 1;
        assert_eq!(InnerPacket::parse(&packet).unwrap().ports, None);
        assert_eq!(InnerPacket::parse(&packet[..27]), None);
    }

    #[test]
    fn flows_spread() {
        let mut seen = std::collections::BTreeSet::new();
        for port in 0..1_000 {
            let packet = InnerPacket {
                source: [10, 0, 0, 1].into(),
                destination: [10, 0, 0, 2].into(),
                protocol: TCP,
                ports: Some((port, 443)),
                dscp: 0,
                len_bytes: 40,
            };
            seen.insert(packet.flow(77));
        }
        assert!(seen.len() > 240, "{}", seen.len());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(packet) = InnerPacket::parse(&bytes) {
                prop_assert!(packet.len_bytes <= bytes.len());
            }
        }
    }
}
