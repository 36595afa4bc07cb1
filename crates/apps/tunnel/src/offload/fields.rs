//! Positions and sums in IP packets that both directions need.

use polypath_wire::IncrementalSum;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

pub(super) const IPV4_HEADER_BYTES: usize = 20;
pub(super) const IPV6_HEADER_BYTES: usize = 40;

/// The most that an IP packet has here, in either version: what a length of 16 bits can say.
pub(super) const MAX_PACKET_BYTES: usize = 65_535;

/// Where the checksum stands in the header of a transport.
pub(super) const TCP_CHECKSUM_AT: usize = 16;
pub(super) const UDP_CHECKSUM_AT: usize = 6;

pub(super) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn double_word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn set_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Finishes the checksum of an IPv4 header.
pub(super) fn finish_ipv4(header: &mut [u8]) {
    set_word(header, 10, 0);
    let mut sum = IncrementalSum::new();
    sum.push(header);
    set_word(header, 10, sum.finish());
}

/// The sum over the pseudo header of a packet whose transport takes `len_bytes` (RFC 9293 §3.1, RFC 8200 §8.1): IPv4 without options, or IPv6
/// without extension headers.
pub(super) fn pseudo_header(packet: &[u8], is_v4: bool, protocol: u8, len_bytes: usize) -> IncrementalSum {
    let mut sum = IncrementalSum::new();
    sum.push(if is_v4 { &packet[12..20] } else { &packet[8..40] });
    sum.push(&u16::from(protocol).to_be_bytes());
    sum.push(&(len_bytes as u32).to_be_bytes());
    sum
}
