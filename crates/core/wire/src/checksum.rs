use core::net::IpAddr;

use crate::{DataSeq, Payload};

/// Whether a parser verifies checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Checksums {
    /// Those of the IP header and of the transport.
    #[default]
    Verify,
    /// None: a device or the kernel has done it, or they are not filled in yet.
    Ignore,
}

/// The Internet checksum (RFC 1071) over pieces of any length: the sum over the pieces is the sum over their
/// concatenation, odd lengths included.
#[derive(Clone, Copy, Debug, Default)]
pub struct IncrementalSum {
    sum: u64,
    /// An odd number of bytes came so far: the next one is the low byte of a word.
    odd: bool,
}

impl IncrementalSum {
    /// The sum over nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let sum = sum_of_words(bytes);
        // RFC 1071 §2(B): a sum shifted by one byte is the sum with its bytes swapped.
        self.sum += u64::from(if self.odd { sum.swap_bytes() } else { sum });
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// Adds all slices of `payload`.
    pub fn push_payload(&mut self, payload: &Payload) {
        for slice in payload.slices() {
            self.push(slice);
        }
    }

    /// The ones' complement sum, folded to 16 bits and not complemented: what a pseudo header leaves in the
    /// checksum field for an offload.
    #[must_use]
    pub const fn folded(self) -> u16 {
        fold(self.sum)
    }

    /// The checksum, as it stands in a header. Over bytes that contain their own correct checksum it is zero.
    #[must_use]
    pub const fn finish(self) -> u16 {
        !self.folded()
    }
}

const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The ones' complement sum of `bytes` as big-endian words, the last one padded with zero.
///
/// Words are added eight bytes at a time in the machine's order, with the carry coming back in at the low
/// end: the ones' complement sum does not depend on the order of bytes but for a final swap (RFC 1071 §2(B)).
fn sum_of_words(bytes: &[u8]) -> u16 {
    const LANES: usize = 4;
    let (chunks, rest) = bytes.as_chunks::<{ 8 * LANES }>();
    let mut lanes = [0_u64; LANES];
    for chunk in chunks {
        let (words, _) = chunk.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            let word = u64::from_ne_bytes(*word);
            *lane += (word & 0xffff_ffff) + (word >> 32);
        }
    }
    let mut sum = 0;
    for lane in lanes {
        sum += u64::from(fold(lane));
    }
    let (words, tail) = rest.as_chunks::<2>();
    for word in words {
        sum += u64::from(u16::from_ne_bytes(*word));
    }
    if let [last] = tail {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    u16::from_be(fold(sum))
}

/// The sum over the pseudo header of TCP, UDP and ICMPv6 (RFC 9293 §3.1, RFC 8200 §8.1). Addresses of two
/// families are taken as IPv6.
pub(crate) fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, len: usize) -> IncrementalSum {
    let mut sum = IncrementalSum::new();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            sum.push(&src.octets());
            sum.push(&dst.octets());
        }
        (src, dst) => {
            sum.push(&as_ipv6(src));
            sum.push(&as_ipv6(dst));
        }
    }
    sum.sum += u64::from(protocol) + len as u64;
    sum
}

/// The octets of an IPv6 address, or of an IPv4 address mapped into IPv6.
pub(crate) fn as_ipv6(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    }
}

/// The DSS checksum over data that comes in pieces (RFC 8684 §3.3.1).
#[derive(Clone, Copy, Debug)]
pub struct DssChecksum {
    sum: IncrementalSum,
}

impl DssChecksum {
    /// Begins with the pseudo header: the full data sequence number of the mapping's first byte, its offset
    /// in the subflow (zero for a DATA_FIN alone) and its length in bytes, DATA_FIN included.
    #[must_use]
    pub fn new(data_seq: DataSeq, subflow_offset: u32, len: u16) -> Self {
        let mut sum = IncrementalSum::new();
        sum.push(&data_seq.0.to_be_bytes());
        sum.push(&subflow_offset.to_be_bytes());
        sum.push(&len.to_be_bytes());
        // The checksum field itself, in the pseudo header, is zero.
        Self { sum }
    }

    /// Adds data of the mapping, in order. A DATA_FIN has no byte here.
    pub fn push(&mut self, bytes: &[u8]) {
        self.sum.push(bytes);
    }

    /// Adds data of the mapping, in order.
    pub fn push_payload(&mut self, payload: &Payload) {
        self.sum.push_payload(payload);
    }

    /// The checksum as it stands in the option.
    #[must_use]
    pub const fn finish(self) -> u16 {
        self.sum.finish()
    }

    /// True if `received` is the checksum of what was pushed. Zero has two forms in ones' complement, so this
    /// is not always equality with [`DssChecksum::finish`].
    #[must_use]
    pub const fn matches(self, received: u16) -> bool {
        fold(self.sum.folded() as u64 + received as u64) == 0xffff
    }
}

/// The DSS checksum of a mapping (RFC 8684 §3.3.1); see [`DssChecksum`] for the arguments.
#[must_use]
pub fn dss_checksum(data_seq: DataSeq, subflow_offset: u32, len: u16, payload: &Payload) -> u16 {
    let mut checksum = DssChecksum::new(data_seq, subflow_offset, len);
    checksum.push_payload(payload);
    checksum.finish()
}

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::vec::Vec;

    use super::*;

    /// Straight from RFC 1071 §4.1, one word at a time.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 167 + i / 251 * 13) as u8 | 0x80).collect()
    }

    #[test]
    fn agrees_with_the_example_of_rfc_1071() {
        let mut sum = IncrementalSum::new();
        sum.push(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), 0xddf2);
    }

    #[test]
    fn agrees_with_the_naive_sum_at_every_length_and_cut() {
        let bytes = pattern(200);
        for len in 0..=bytes.len() {
            let whole = &bytes[..len];
            for cut in 0..=len {
                let mut sum = IncrementalSum::new();
                sum.push(&whole[..cut]);
                sum.push(&whole[cut..]);
                assert_eq!(sum.finish(), naive(whole), "{len} bytes cut at {cut}");
            }
        }
    }

    #[test]
    fn large_slices_of_ones_do_not_overflow() {
        let ones = std::vec![0xff; 1 << 20];
        let mut sum = IncrementalSum::new();
        sum.push(&ones);
        sum.push(&[0xff]);
        sum.push(&ones);
        assert_eq!(sum.folded(), !naive(&[&ones[..], &[0xff], &ones[..]].concat()));
    }

    #[test]
    fn pseudo_headers_are_those_of_the_standards() {
        let (v4, v4_too) = ([192, 0, 2, 1], [198, 51, 100, 7]);
        let bytes = [&v4[..], &v4_too[..], &[0, 6, 0x12, 0x34]].concat();
        assert_eq!(pseudo_header(v4.into(), v4_too.into(), 6, 0x1234).finish(), naive(&bytes));
        let (v6, v6_too) = ([0x20; 16], [0xfe; 16]);
        let bytes = [&v6[..], &v6_too[..], &[0, 1, 0x12, 0x34, 0, 0, 0, 58]].concat();
        assert_eq!(pseudo_header(v6.into(), v6_too.into(), 58, 0x11234).finish(), naive(&bytes));
    }

    #[test]
    fn dss_checksum_covers_the_pseudo_header_of_rfc_8684() {
        let data = pattern(1001);
        let (data_seq, offset, len) = (DataSeq(0x0123_4567_89ab_cdef), 0x1020_3040, 1002);
        let bytes = [
            &[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef][..],
            &[0x10, 0x20, 0x30, 0x40],
            &[0x03, 0xea, 0, 0],
            &data,
        ]
        .concat();
        let expected = naive(&bytes);
        assert_eq!(dss_checksum(data_seq, offset, len, &data.clone().into()), expected);
        let mut pieces = DssChecksum::new(data_seq, offset, len);
        for piece in data.chunks(37) {
            pieces.push(piece);
        }
        assert_eq!(pieces.finish(), expected);
        assert!(pieces.matches(expected));
        assert!(!pieces.matches(expected ^ 0x0100));
    }

    #[test]
    fn both_forms_of_zero_match() {
        let mut checksum = DssChecksum::new(DataSeq(0), 0, 0xffff);
        assert_eq!(checksum.finish(), 0);
        assert!(checksum.matches(0) && checksum.matches(0xffff));
        checksum.push(&[0, 1]);
        assert!(!checksum.matches(0));
    }
}
