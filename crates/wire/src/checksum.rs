//! The Internet checksum (RFC 1071) over ropes, and the DSS checksum (RFC 8684 §3.3.1).

use core::net::IpAddr;

use crate::{DataSeq, Payload};

/// A ones-complement sum over pieces of any length, odd ones included.
#[derive(Clone, Copy, Debug, Default)]
pub struct IncrementalSum {
    sum: u64,
    /// An odd number of bytes came so far: the next one is a low byte.
    odd: bool,
}

impl IncrementalSum {
    /// Nothing added yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Adds bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if self.odd {
            let Some((first, rest)) = bytes.split_first() else { return };
            self.sum += u64::from(*first);
            self.odd = false;
            bytes = rest;
        }
        // Any byte order gives the same sum, its bytes swapped (RFC 1071 §2B); 32 bits at a time carry into the upper half.
        let mut words = bytes.chunks_exact(4);
        let mut native: u64 = 0;
        for word in &mut words {
            native += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
        self.sum += u64::from(u16::from_be(fold(native)));
        let mut halves = words.remainder().chunks_exact(2);
        for half in &mut halves {
            self.sum += u64::from(u16::from_be_bytes([half[0], half[1]]));
        }
        if let [last] = halves.remainder() {
            self.sum += u64::from(*last) << 8;
            self.odd = true;
        }
    }

    /// Adds a 16-bit field; only at an even position.
    pub fn push_u16(&mut self, value: u16) {
        self.sum += u64::from(value);
    }

    /// Adds all slices of a rope.
    pub fn push_payload(&mut self, payload: &Payload) {
        for slice in payload.slices() {
            self.push(slice);
        }
    }

    /// The sum, folded to 16 bits and not complemented.
    #[must_use]
    pub fn folded(self) -> u16 {
        fold(self.sum)
    }

    /// The checksum: the complement of the folded sum.
    #[must_use]
    pub fn finish(self) -> u16 {
        !self.folded()
    }
}

fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The sum of a pseudo header (RFC 9293 §3.1, RFC 8200 §8.1).
pub(crate) fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, len: u32) -> IncrementalSum {
    let mut sum = IncrementalSum::new();
    for addr in [src, dst] {
        match addr {
            IpAddr::V4(addr) => sum.push(&addr.octets()),
            IpAddr::V6(addr) => sum.push(&addr.octets()),
        }
    }
    sum.push_u16(u16::from(protocol));
    sum.push(&len.to_be_bytes());
    sum
}

/// The checksum of a DSS mapping: over data sequence number, subflow offset, length, a zero, and the mapping's data.
#[must_use]
pub fn dss_checksum(data_seq: DataSeq, subflow_offset: u32, len: u16, payload: &Payload) -> u16 {
    let mut sum = DssChecksum::new(data_seq, subflow_offset, len);
    for slice in payload.slices() {
        sum.push(slice);
    }
    sum.finish()
}

/// A DSS checksum over data that comes in pieces.
#[derive(Clone, Copy, Debug)]
pub struct DssChecksum(IncrementalSum);

impl DssChecksum {
    /// Begins with the pseudo header.
    #[must_use]
    pub fn new(data_seq: DataSeq, subflow_offset: u32, len: u16) -> Self {
        let mut sum = IncrementalSum::new();
        sum.push(&data_seq.0.to_be_bytes());
        sum.push(&subflow_offset.to_be_bytes());
        sum.push_u16(len);
        Self(sum)
    }

    /// Adds data.
    pub fn push(&mut self, data: &[u8]) {
        self.0.push(data);
    }

    /// The checksum.
    #[must_use]
    pub fn finish(self) -> u16 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn naive(bytes: &[u8]) -> u16 {
        let sum: u64 = bytes
            .chunks(2)
            .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low)))
            .sum();
        !(sum % 0xffff) as u16
    }

    #[test]
    fn any_cut_gives_the_naive_sum() {
        // RFC 1071 §3's example: 00 01 f2 03 f4 f5 f6 f7 sums to ddf2.
        let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        let mut sum = IncrementalSum::new();
        sum.push(&example);
        assert_eq!(sum.folded(), 0xddf2);
        let bytes: Vec<u8> = (0..999u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        for cut in 0..40 {
            let mut sum = IncrementalSum::new();
            for piece in bytes.chunks(cut + 1) {
                sum.push(piece);
            }
            assert_eq!(sum.finish(), naive(&bytes), "pieces of {}", cut + 1);
        }
    }

    #[test]
    fn the_dss_checksum_covers_the_pseudo_header() {
        let payload = Payload::from(&b"abc"[..]);
        let sum = dss_checksum(DataSeq(0x0102_0304_0506_0708), 9, 3, &payload);
        let mut bytes = Vec::from([1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 3, 0, 0]);
        bytes.extend_from_slice(b"abc");
        assert_eq!(sum, naive(&bytes));
    }
}
