//! Packets of the inside that are longer than any path carries: what a router does with them.

use std::net::IpAddr;

use polypath_wire::IncrementalSum;

use crate::inner_packet::InnerPacket;

const IPV4_HEADER_BYTES: usize = 20;
const IPV6_HEADER_BYTES: usize = 40;
/// Type, code, checksum, and the length that fits.
const ICMP_BYTES: usize = 8;
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
/// No host of IPv6 takes a lower value (RFC 8200 §5).
const LEAST_V6_BYTES: usize = 1_280;
const DONT_FRAGMENT: u8 = 0x40;
const MORE_FRAGMENTS: u8 = 0x20;

/// What becomes of a packet that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TooBig {
    /// IPv4 allows it to be cut.
    Cut(Vec<Vec<u8>>),
    /// The sender is told what fits.
    Told(Vec<u8>),
    /// Nothing can be done.
    Dropped,
}

/// For a packet that is longer than `fits_bytes`.
pub(crate) fn treat(packet: &[u8], fits_bytes: usize) -> TooBig {
    let Some(inner) = InnerPacket::parse(packet) else { return TooBig::Dropped };
    let packet = &packet[..inner.len_bytes];
    match (inner.source, inner.destination) {
        // Never about an error, nor to nobody (RFC 1812 §4.3.2.7).
        _ if is_icmp_error(&inner, packet)
            || inner.source.is_unspecified()
            || inner.source.is_multicast() =>
        {
            TooBig::Dropped
        }
        (IpAddr::V4(_), _) if packet[6] & DONT_FRAGMENT == 0 => {
            fragments(packet, fits_bytes).map_or(TooBig::Dropped, TooBig::Cut)
        }
        (IpAddr::V4(_), _) => TooBig::Told(fragmentation_needed(packet, fits_bytes)),
        (IpAddr::V6(_), _) if packet.len() > LEAST_V6_BYTES => {
            TooBig::Told(packet_too_big(packet, fits_bytes.max(LEAST_V6_BYTES)))
        }
        _ => TooBig::Dropped,
    }
}

fn is_icmp_error(inner: &InnerPacket, packet: &[u8]) -> bool {
    match inner.source {
        IpAddr::V4(_) => {
            let kind = packet.get(usize::from(packet[0] & 0x0f) * 4);
            inner.protocol == ICMP && kind.is_some_and(|kind| [3, 4, 5, 11, 12].contains(kind))
        }
        IpAddr::V6(_) => inner.protocol == ICMP_V6 && packet.get(40).is_some_and(|kind| *kind < 128),
    }
}

fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = IncrementalSum::new();
    parts.iter().for_each(|part| sum.push(part));
    sum.finish()
}

/// Type 3, code 4 of RFC 792 with the length of RFC 1191, as if from where the packet goes.
fn fragmentation_needed(packet: &[u8], fits_bytes: usize) -> Vec<u8> {
    let quoted = &packet[..packet.len().min(548)];
    let len = IPV4_HEADER_BYTES + ICMP_BYTES + quoted.len();
    let mut answer = vec![0; len];
    answer[0] = 0x45;
    answer[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    answer[8] = 64;
    answer[9] = ICMP;
    answer[12..16].copy_from_slice(&packet[16..20]);
    answer[16..20].copy_from_slice(&packet[12..16]);
    let header_sum = sum(&[&answer[..IPV4_HEADER_BYTES]]);
    answer[10..12].copy_from_slice(&header_sum.to_be_bytes());
    answer[20..22].copy_from_slice(&[3, 4]);
    answer[26..28].copy_from_slice(&(fits_bytes as u16).to_be_bytes());
    answer[28..].copy_from_slice(quoted);
    let icmp_sum = sum(&[&answer[IPV4_HEADER_BYTES..]]);
    answer[22..24].copy_from_slice(&icmp_sum.to_be_bytes());
    answer
}

/// Type 2 of RFC 4443 §3.2.
fn packet_too_big(packet: &[u8], fits_bytes: usize) -> Vec<u8> {
    let quoted = &packet[..packet.len().min(LEAST_V6_BYTES - IPV6_HEADER_BYTES - ICMP_BYTES)];
    let payload_bytes = ICMP_BYTES + quoted.len();
    let mut answer = vec![0; IPV6_HEADER_BYTES + payload_bytes];
    answer[0] = 0x60;
    answer[4..6].copy_from_slice(&(payload_bytes as u16).to_be_bytes());
    answer[6] = ICMP_V6;
    answer[7] = 64;
    answer[8..24].copy_from_slice(&packet[24..40]);
    answer[24..40].copy_from_slice(&packet[8..24]);
    answer[40] = 2;
    answer[44..48].copy_from_slice(&(fits_bytes as u32).to_be_bytes());
    answer[48..].copy_from_slice(quoted);
    let pseudo = [&(payload_bytes as u32).to_be_bytes()[..], &[0, 0, 0, ICMP_V6]].concat();
    let icmp_sum = sum(&[&answer[8..40], &pseudo, &answer[40..]]);
    answer[42..44].copy_from_slice(&icmp_sum.to_be_bytes());
    answer
}

/// As RFC 791 §3.2 cuts it. `None` for headers with options, which hardly anyone has, and for lengths that hold nothing.
fn fragments(packet: &[u8], fits_bytes: usize) -> Option<Vec<Vec<u8>>> {
    let room = fits_bytes.checked_sub(IPV4_HEADER_BYTES)? / 8 * 8;
    if packet[0] & 0x0f != 5 || room == 0 {
        return None;
    }
    let (header, payload) = packet.split_at(IPV4_HEADER_BYTES);
    let flags = u16::from_be_bytes([header[6], header[7]]);
    let count = payload.len().div_ceil(room);
    let fragments = payload.chunks(room).enumerate().map(|(at, part)| {
        let mut fragment = [header, part].concat();
        let is_last = at + 1 == count;
        let offset = (flags & 0x1fff) + (at * room / 8) as u16;
        let more = if is_last { flags & 0x2000 } else { u16::from(MORE_FRAGMENTS) << 8 };
        let len = fragment.len() as u16;
        fragment[2..4].copy_from_slice(&len.to_be_bytes());
        fragment[6..8].copy_from_slice(&(offset | more).to_be_bytes());
        fragment[10..12].copy_from_slice(&[0, 0]);
        let header_sum = sum(&[&fragment[..IPV4_HEADER_BYTES]]);
        fragment[10..12].copy_from_slice(&header_sum.to_be_bytes());
        fragment
    });
    Some(fragments.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(flags: u8, len: usize) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..len).map(|at| at as u8).collect();
        packet[..20].copy_from_slice(&[
            0x45,
            0,
            (len >> 8) as u8,
            len as u8,
            7,
            7,
            flags,
            0,
            64,
            17,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ]);
        packet
    }

    #[test]
    fn the_sender_is_told_what_fits() {
        let TooBig::Told(answer) = treat(&v4(DONT_FRAGMENT, 1_400), 1_300) else { panic!("not told") };
        let read = InnerPacket::parse(&answer).unwrap();
        assert_eq!((read.source, read.destination), ([10, 0, 0, 2].into(), [10, 0, 0, 1].into()));
        assert_eq!((read.protocol, &answer[20..22], &answer[26..28]), (ICMP, &[3, 4][..], &[5, 20][..]));
        assert_eq!((sum(&[&answer[..20]]), sum(&[&answer[20..]])), (0, 0));
        // Not about an error.
        assert_eq!(treat(&answer, 100), TooBig::Dropped);
    }

    #[test]
    fn packets_of_ipv6_are_never_cut() {
        let mut packet = vec![1; 1_400];
        packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0x05, 0x50, 17, 64]);
        let TooBig::Told(answer) = treat(&packet, 1_200) else { panic!("not told") };
        assert_eq!((answer[40], &answer[44..48], answer.len()), (2, &[0, 0, 5, 0][..], 1_280));
        let read = InnerPacket::parse(&answer).unwrap();
        assert_eq!(read.protocol, ICMP_V6);
        let pseudo = [&(1_240_u32).to_be_bytes()[..], &[0, 0, 0, ICMP_V6]].concat();
        assert_eq!(sum(&[&answer[8..40], &pseudo, &answer[40..]]), 0);
        packet.truncate(1_250);
        packet[4..6].copy_from_slice(&1_210_u16.to_be_bytes());
        assert_eq!(treat(&packet, 1_200), TooBig::Dropped);
    }

    #[test]
    fn fragments_hold_all_of_it() {
        let packet = v4(0, 1_400);
        let TooBig::Cut(fragments) = treat(&packet, 600) else { panic!("not cut") };
        let mut payload = Vec::new();
        for (at, fragment) in fragments.iter().enumerate() {
            assert!(fragment.len() <= 600 && sum(&[&fragment[..20]]) == 0);
            assert_eq!(InnerPacket::parse(fragment).unwrap().len_bytes, fragment.len());
            let word = u16::from_be_bytes([fragment[6], fragment[7]]);
            assert_eq!(usize::from(word & 0x1fff) * 8, payload.len());
            assert_eq!(word & 0x2000 != 0, at + 1 < fragments.len());
            payload.extend_from_slice(&fragment[20..]);
        }
        assert_eq!(payload, packet[20..]);
    }
}
