use crate::manifest::error::Error;

/// Where the segments of a file are: a SegmentIndexBox (ISO/IEC 14496-12, section 8.16.3).
#[derive(Debug)]
pub(super) struct SegmentIndex {
    /// Ticks in a second.
    pub(super) timescale: u64,
    pub(super) earliest_time: u64,
    /// Bytes of the file between the first byte that was given and the first segment.
    pub(super) first_offset: u64,
    /// Bytes and ticks of each segment.
    pub(super) references: Vec<(u64, u64)>,
}

/// Whether bytes have an index.
pub(in crate::manifest) fn check_index(bytes: &[u8]) -> Result<(), Error> {
    SegmentIndex::parse(bytes).map(drop)
}

/// Reads big-endian numbers one after the other.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take(&mut self, bytes: usize) -> Option<u64> {
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(head.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

impl SegmentIndex {
    /// Finds the first index among boxes.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut rest = bytes;
        loop {
            let mut cursor = Cursor(rest);
            let header = cursor.take(4).zip(cursor.take(4));
            let (len, kind) = header.ok_or(Error::Index("is not in the range of its URL"))?;
            let (len, header_len) = match len {
                0 => (rest.len() as u64, 8),
                1 => (cursor.take(8).ok_or(Error::Index("ends in the middle"))?, 16),
                len => (len, 8),
            };
            let len = usize::try_from(len).ok().filter(|len| (header_len..=rest.len()).contains(len));
            let len = len.ok_or(Error::Index("is longer than what came, or stands behind what is"))?;
            let (this, after) = rest.split_at(len);
            if kind == u64::from(u32::from_be_bytes(*b"sidx")) {
                let end = (bytes.len() - after.len()) as u64;
                return Self::parse_content(&this[header_len..], end);
            }
            rest = after;
        }
    }

    fn parse_content(content: &[u8], end: u64) -> Result<Self, Error> {
        const SHORT: Error = Error::Index("ends in the middle");
        let mut cursor = Cursor(content);
        let version = cursor.take(4).ok_or(SHORT)? >> 24;
        let width = if version == 0 { 4 } else { 8 };
        let mut next = |bytes| cursor.take(bytes).ok_or(SHORT);
        let (_reference_id, timescale) = (next(4)?, next(4)?);
        let (earliest_time, offset) = (next(width)?, next(width)?);
        let count = next(4)? & 0xffff;
        if timescale == 0 {
            return Err(Error::Index("has a timescale of 0"));
        }
        let first_offset = end.checked_add(offset).ok_or(Error::Index("has an offset beyond 64 bits"))?;
        let mut references = Vec::new();
        for _ in 0..count {
            let (reference, ticks, _access_point) = (next(4)?, next(4)?, next(4)?);
            if reference >> 31 == 1 {
                return Err(Error::Index("points to other indexes, which is not supported"));
            }
            if reference == 0 {
                return Err(Error::Index("has a segment of 0 bytes"));
            }
            references.push((reference, ticks));
        }
        Ok(Self { timescale, earliest_time, first_offset, references })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_found_behind_another_box_and_never_read_too_far() {
        let mut bytes = vec![0, 0, 0, 12, b's', b't', b'y', b'p', 0, 0, 0, 0];
        let numbers =
            [44 + 12, u32::from_be_bytes(*b"sidx"), 0, 1, 1000, 500, 8, 2, 100, 2000, 0, 70, 1500, 0];
        bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        let index = SegmentIndex::parse(&bytes).expect("an index");
        assert_eq!((index.timescale, index.earliest_time, index.first_offset), (1000, 500, 12 + 56 + 8));
        assert_eq!(index.references, [(100, 2000), (70, 1500)]);
        for len in 0..bytes.len() {
            assert!(SegmentIndex::parse(&bytes[..len]).is_err(), "{len}");
        }
        for (at, value, expected) in [
            (12 + 16, [0; 4], "has a timescale of 0"),
            (12 + 32, [0x80, 0, 0, 1], "points to other indexes"),
            (12 + 32, [0; 4], "a segment of 0 bytes"),
            (0, [0, 0, 0, 3], "is longer than what came"),
        ] {
            let mut bytes = bytes.clone();
            bytes[at..at + 4].copy_from_slice(&value);
            let error = SegmentIndex::parse(&bytes).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
